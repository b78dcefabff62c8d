//! What an agent or command is started with.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bulkhead_host::{Command, Host, HostError, Stdio};
use bulkhead_model::{PhaseOrder, Protocol, Work};
use bulkhead_sandbox::WORKSPACE_DIR;

use super::sink::Caps;
use crate::{agents::continued, plug::McpServer, protocol::Conversation};

/// The most bytes of a prompt that fit into one argument; the kernel takes 128 KiB.
const MAX_ARGUMENT: usize = 120 << 10;

/// What is to be done, and within which bounds.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) work: Work,
    pub(crate) env: BTreeMap<String, String>,
    /// None is the host's own working directory.
    pub(crate) cwd: Option<String>,
    /// None is no bound: a person watches.
    pub(crate) idle: Option<Duration>,
    pub(crate) caps: Caps,
    pub(crate) mcp: Vec<McpServer>,
    /// The conversation to go on with.
    pub(crate) resume: Option<Conversation>,
}

impl Task {
    /// The task of a phase.
    pub(crate) fn of(order: &PhaseOrder, env: &BTreeMap<String, String>) -> Self {
        Self {
            work: order.work.clone(),
            env: env.clone(),
            cwd: Some(WORKSPACE_DIR.to_owned()),
            idle: Some(Duration::from_millis(order.limits.idle_ms)),
            caps: Caps::of(order),
            mcp: vec![],
            resume: None,
        }
    }

    /// What the agent is told first; none waits for a person.
    pub(super) fn prompt(&self) -> Option<&str> {
        match &self.work {
            Work::Agent { prompt, .. } => Some(prompt.as_str()).filter(|text| !text.is_empty()),
            Work::Command { .. } => None,
        }
    }

    /// Whether the protocol itself says that a conversation was taken up again.
    pub(crate) fn loads_by_protocol(&self) -> bool {
        matches!(&self.work, Work::Agent { agent, .. } if agent.protocol == Protocol::Acp)
    }

    pub(super) fn ends_with_each_turn(&self) -> bool {
        let Work::Agent { agent, .. } = &self.work else {
            return false;
        };
        matches!(
            agent.protocol,
            Protocol::ClaudeStreamJson | Protocol::CodexJson
        )
    }
}

/// One start of the program.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) prompt: Option<String>,
    pub(super) resume: Option<Conversation>,
}

/// What to start, and how to speak with it.
pub(super) struct Start {
    pub(super) command: Command,
    pub(super) protocol: Protocol,
    pub(super) cwd: String,
    /// Goes to standard input, which is then closed.
    pub(super) input: Option<String>,
    pub(super) prompt: Option<String>,
    pub(super) mcp: Vec<McpServer>,
    pub(super) resume: Option<Conversation>,
}

pub(super) fn start(
    task: &Task,
    turn: &Turn,
    interactive: bool,
    host: &dyn Host,
) -> Result<Start, HostError> {
    let (argv, protocol) = match &task.work {
        Work::Command { run } => {
            let argv = vec!["/bin/sh".to_owned(), "-c".to_owned(), run.clone()];
            (argv, Protocol::Plain)
        }
        Work::Agent { agent, .. } => match &turn.resume {
            Some(conversation) => (continued(agent, &conversation.id), agent.protocol),
            None => (agent.argv.clone(), agent.protocol),
        },
    };
    let is_agent = matches!(task.work, Work::Agent { .. });
    let in_argv = is_agent && argv.iter().any(|arg| arg.contains("{prompt}"));
    let text = turn.prompt.clone().unwrap_or_default();
    if in_argv && text.len() > MAX_ARGUMENT {
        return Err(too_long(host, &argv, text.len()));
    }
    let argv = match in_argv {
        true => argv
            .iter()
            .map(|arg| arg.replace("{prompt}", &text))
            .collect(),
        false => argv,
    };
    let by_input = is_agent && !in_argv && protocol != Protocol::Acp;
    let stdio = match by_input || protocol == Protocol::Acp || interactive {
        true => Stdio::PIPES,
        false => Stdio::OUTPUT,
    };
    let mut command = Command::new(argv).envs(task.env.clone()).stdio(stdio);
    command.cwd.clone_from(&task.cwd);
    Ok(Start {
        command,
        protocol,
        cwd: task.cwd.clone().unwrap_or_else(|| "/".to_owned()),
        input: by_input.then(|| text.clone()),
        prompt: turn.prompt.clone(),
        mcp: task.mcp.clone(),
        resume: turn.resume.clone(),
    })
}

fn too_long(host: &dyn Host, argv: &[String], length: usize) -> HostError {
    HostError::Spawn {
        host: host.describe(),
        program: argv.first().cloned().unwrap_or_default(),
        source: Arc::new(std::io::Error::other(format!(
            "the prompt has {length} bytes, and an argument holds at most {MAX_ARGUMENT}: leave `{{prompt}}` \
             out of the command line, and the prompt comes on standard input"
        ))),
    }
}
