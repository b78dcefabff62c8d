//! Command lines that end with each turn, and how the next turn takes their conversation up again (H15).

use bulkhead_model::{AgentSpec, Protocol};

/// Phases forget their conversations; a session may be paused.
const FORGETS: &str = "--no-session-persistence";

/// The agent as a session starts it: its conversation is kept on its machine.
pub(crate) fn for_session(mut agent: AgentSpec) -> AgentSpec {
    if agent.protocol == Protocol::ClaudeStreamJson {
        agent.argv.retain(|arg| arg != FORGETS);
    }
    agent
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
    fn h15_a_command_line_goes_on_with_its_conversation() {
        let claude = continued(&agent("claude"), "abc");
        assert!(claude.ends_with(&["--resume".to_owned(), "abc".to_owned()]));
        assert!(!claude.contains(&FORGETS.to_owned()));
        let codex = continued(&agent("codex"), "abc");
        assert!(codex.ends_with(&["resume".to_owned(), "abc".to_owned(), "-".to_owned()]));
        assert_eq!(continued(&agent("gemini"), "abc"), agent("gemini").argv);
    }
}
