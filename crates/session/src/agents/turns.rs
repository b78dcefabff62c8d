//! Command lines that end with each turn, and how the next turn takes their conversation up again (H15).

use bulkhead_model::{AgentSpec, Protocol};

use super::GATEWAY;

/// Phases forget their conversations; a session may be paused.
const FORGETS: &str = "--no-session-persistence";

/// The agent as a session starts it: its conversation is kept on its machine, and it reaches its model by itself, because
/// there is no phase gateway to reach it through.
pub(crate) fn for_session(mut agent: AgentSpec) -> AgentSpec {
    agent.env.retain(|_, value| !value.contains(GATEWAY));
    agent.argv = without_gateway(agent.argv);
    if agent.protocol == Protocol::ClaudeStreamJson {
        agent.argv.retain(|arg| arg != FORGETS);
    }
    agent
}

/// Codex is told of the gateway by pairs of `-c` and a setting.
fn without_gateway(argv: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = vec![];
    for arg in argv {
        let is_ours = arg.starts_with("model_provider=bulkhead") || arg.contains(GATEWAY);
        if !is_ours {
            kept.push(arg);
        } else if kept.last().is_some_and(|last| last == "-c") {
            kept.pop();
        }
    }
    kept
}

/// The command line that goes on with a conversation. The Agent Client Protocol needs none: it says so itself.
pub(crate) fn continued(agent: &AgentSpec, conversation: &str) -> Vec<String> {
    let mut argv = agent.argv.clone();
    let conversation = conversation.to_owned();
    match agent.protocol {
        Protocol::ClaudeStreamJson => argv.extend(["--resume".to_owned(), conversation]),
        Protocol::CodexJson => {
            let closing = argv.pop_if(|last| last == "-");
            argv.extend(["resume".to_owned(), conversation]);
            argv.extend(closing);
        }
        Protocol::Acp | Protocol::Plain => {}
    }
    argv
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;
    use crate::agents::{Overrides, resolve};

    fn agent(name: &str) -> AgentSpec {
        for_session(resolve(name, &Overrides::default()).unwrap().spec)
    }

    #[test]
    fn a_sessions_agent_is_told_of_no_gateway() {
        for name in ["claude", "codex", "gemini", "opencode"] {
            let agent = agent(name);
            let all = format!("{:?} {:?}", agent.argv, agent.env);
            assert!(!all.contains("127.0.0.1") && !all.contains("-c\""), "{all}");
        }
    }

    #[test]
    fn h15_a_command_line_goes_on_with_its_conversation() {
        let claude = continued(&agent("claude"), "abc");
        assert!(claude.ends_with(&["--resume".to_owned(), "abc".to_owned()]));
        assert!(!claude.contains(&FORGETS.to_owned()));
        let codex = continued(&agent("codex"), "abc");
        assert!(codex.ends_with(&["resume".to_owned(), "abc".to_owned(), "-".to_owned()]));
        assert_eq!(continued(&agent("gemini"), "abc"), agent("gemini").argv);
    }
}
