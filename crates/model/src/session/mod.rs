//! The session's file, `SESSION.yaml`: YAML text in, a [`SessionFile`] out, with the same machinery and the same care
//! for errors as the workflow file has.
//!
//! Here is only what the file says. What a plug does with it is the crate `session`'s business; values of secrets
//! are never in the file, only where they come from.

mod hosts;
mod plugs;
pub mod schema;
mod types;

pub use types::{
    DockerConfig, Engine, FileContent, FileSpec, Forward, HostPlug, LocalConfig, McpConfig,
    McpTransport, Mount, PlugConfig, PortsConfig, RecordConfig, ResourceLimits, SandboxConfig,
    ScriptConfig, SecretConfig, SecretSource, SessionFile, SessionWork, SetupStep, SshConfig,
    WorkspaceConfig, WorkspaceOut, WorkspaceSource,
};

use crate::workflow::{
    Known, Problem, WorkflowError,
    error::Place,
    node::{self, Node},
    phase::Scope,
    reader::{Field, Reader},
    settings,
};

pub(crate) const FIELDS: &[&str] = &[
    "name", "agent", "run", "prompt", "timeout", "idle", "caps", "plugs",
];
const DAY_MS: u64 = 24 * 3_600_000;

/// What a file is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// An agent or a command is to be started.
    Session,
    /// Only its hosts are looked at.
    Hosts,
}

impl SessionFile {
    /// Reads a session's file. `file` is its name, for the error's sake.
    ///
    /// # Errors
    /// With every independent problem of the file at once, in the order of the file.
    pub fn read(
        file: &str,
        text: &str,
        known: &Known,
        purpose: Purpose,
    ) -> Result<Self, WorkflowError> {
        let mut reader = Reader::new(text, known);
        let read = match node::read(text, "a session") {
            Ok(tree) => read_file(&mut reader, &tree, purpose),
            Err(problem) => {
                reader.problems.push(problem);
                None
            }
        };
        reader.finish(file, read)
    }

    /// As [`SessionFile::read`], from bytes that may be anything.
    ///
    /// # Errors
    /// Also where the bytes are not UTF-8.
    pub fn read_bytes(
        file: &str,
        bytes: &[u8],
        known: &Known,
        purpose: Purpose,
    ) -> Result<Self, WorkflowError> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::read(file, text, known, purpose),
            Err(_) => Err(WorkflowError {
                file: file.to_owned(),
                problems: vec![Problem::new(Place::START, "", "the file is not UTF-8 text")],
                more: 0,
            }),
        }
    }
}

/// The fields of each mapping as the reader knows them, by the name of its definition in the schema, for tests
/// that compare the two.
#[doc(hidden)]
pub fn reader_fields() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut fields = vec![
        ("", FIELDS.to_vec()),
        ("AgentMapping", settings::AGENT_FIELDS.to_vec()),
        ("PhaseCapFields", settings::PHASE_CAP_FIELDS.to_vec()),
    ];
    fields.extend(hosts::reader_fields());
    fields.extend(plugs::reader_fields());
    fields
}

fn read_file(reader: &mut Reader<'_>, tree: &Node, purpose: Purpose) -> Option<SessionFile> {
    let root = Field::root(tree);
    let fields = reader.fields(&root, FIELDS)?;
    let name = fields.get("name").and_then(|field| reader.line(&field));
    let scope = Scope {
        inputs: vec![],
        secrets: &[],
    };
    let agent = fields.get("agent");
    let run = fields.get("run");
    let work = match (&agent, &run) {
        (Some(agent), None) => settings::agent(reader, agent, &scope).map(SessionWork::Agent),
        (None, Some(run)) => reader.text(run).map(SessionWork::Command),
        (None, None) => {
            if purpose == Purpose::Session {
                let words = "expected `agent` (who works) or `run` (a shell command)";
                reader.problem(&root, words);
            }
            None
        }
        (Some(_), Some(run)) => {
            reader.problem(run, "expected `agent` or `run`, found both");
            None
        }
    };
    let prompt = fields.get("prompt").and_then(|field| reader.text(&field));
    let time = |name: &str, reader: &mut Reader<'_>| {
        let field = fields.get(name)?;
        reader.duration(&field, 1_000..=7 * DAY_MS)
    };
    let timeout_ms = time("timeout", reader);
    let idle_ms = time("idle", reader);
    let caps = fields.get("caps");
    let (cost_micro_usd, turns) =
        caps.map_or((None, None), |field| settings::phase_caps(reader, &field));
    let plugs = reader.required(&fields, "plugs");
    let plugs = plugs.map_or_else(Vec::new, |field| plugs::read_all(reader, &field));
    Some(SessionFile {
        name,
        work,
        prompt,
        timeout_ms,
        idle_ms,
        cost_micro_usd,
        turns,
        plugs,
    })
}
