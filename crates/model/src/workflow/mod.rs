//! The workflow file: YAML text in, a [`Workflow`] with every default filled in out (R1).
//!
//! Reading goes in three steps: [`node`] makes a tree in which every value knows its line and column;
//! `reader` takes typed values off the tree and collects problems instead of stopping at the first;
//! `phase`, `settings` and `gate` say which fields exist and what they mean. A field that is not
//! listed there is an error, so nothing can be switched off by a word that nobody reads: there is no
//! field for the sandbox at all (R3).
//!
//! The user's description of every field is `docs/workflow.md`; editors use the JSON Schema in
//! `docs/workflow.schema.json`, which [`schema`] makes from the types there.

pub(crate) mod error;
mod gate;
mod inputs;
pub(crate) mod node;
pub(crate) mod phase;
pub(crate) mod reader;
pub mod schema;
pub(crate) mod settings;
mod template;
mod types;
mod units;

pub use error::{Place, Problem, WorkflowError, nearest};
pub(crate) use inputs::variable as input_variable;
pub use inputs::{INPUT_BYTES_MAX, INPUTS_BYTES_MAX, InputError};
pub use node::FILE_BYTES_MAX;
pub use template::{Template, Values};
pub use types::{
    AgentChoice, Artifacts, Input, PhaseCaps, PhaseSpec, Presence, WithoutRunner, WorkSpec,
    Workflow, Workspace,
};
pub use units::{duration_ms, size_bytes, write_duration, write_size};

use node::Node;
use reader::{Field, Reader};

/// Where a workflow lies in its repository, where nothing else is said.
pub const DEFAULT_PATH: &str = ".bulkhead/workflow.yaml";

/// The names that the operator's configuration offers. What is `None` is not known here (in an
/// editor, say) and not checked; the control plane checks all of them.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Agents with a ready definition.
    pub agents: Option<Vec<String>>,
    /// Commands that may tell people of a waiting gate.
    pub notifiers: Option<Vec<String>>,
    /// Directories that may be mounted read-only.
    pub toolchains: Option<Vec<String>>,
}

impl Workflow {
    /// Reads a workflow file. `file` is its name, for the error's sake.
    ///
    /// # Errors
    /// With every independent problem of the file at once, in the order of the file.
    pub fn read(file: &str, text: &str, known: &Known) -> Result<Self, WorkflowError> {
        let mut reader = Reader::new(text, known);
        let read = match node::read(text, "a workflow") {
            Ok(tree) => read_file(&mut reader, &tree),
            Err(problem) => {
                reader.problems.push(problem);
                None
            }
        };
        reader.finish(file, read)
    }

    /// As [`Workflow::read`], from bytes that may be anything.
    ///
    /// # Errors
    /// Also where the bytes are not UTF-8.
    pub fn read_bytes(file: &str, bytes: &[u8], known: &Known) -> Result<Self, WorkflowError> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::read(file, text, known),
            Err(error) => {
                let good = &bytes[..error.valid_up_to()];
                let line = good.split(|byte| *byte == b'\n').count() as u64;
                let place = Place { line, column: 1 };
                let problem = Problem::new(place, "", "the file is not UTF-8 text");
                Err(WorkflowError {
                    file: file.to_owned(),
                    problems: vec![problem],
                    more: 0,
                })
            }
        }
    }
}

/// The fields of each mapping as the reader knows them, by the name of its definition in the schema
/// (the file itself has none), for tests that compare the two.
#[doc(hidden)]
pub fn reader_fields() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        ("", FIELDS.to_vec()),
        ("InputField", inputs::FIELDS.to_vec()),
        (
            "Defaults",
            [settings::SETTINGS, settings::DEFAULTS_ONLY].concat(),
        ),
        ("Phase", [settings::SETTINGS, phase::PHASE_ONLY].concat()),
        ("AgentMapping", settings::AGENT_FIELDS.to_vec()),
        ("Resources", settings::RESOURCE_FIELDS.to_vec()),
        ("Network", settings::NETWORK_FIELDS.to_vec()),
        ("GateMapping", gate::FIELDS.to_vec()),
        ("Notify", gate::NOTIFY_FIELDS.to_vec()),
        ("PhaseCapFields", settings::PHASE_CAP_FIELDS.to_vec()),
        ("RunCapFields", settings::RUN_CAP_FIELDS.to_vec()),
        ("ArtifactFields", phase::ARTIFACT_FIELDS.to_vec()),
    ]
}

pub(crate) const FIELDS: &[&str] = &[
    "name",
    "description",
    "inputs",
    "secrets",
    "defaults",
    "caps",
    "phases",
];

fn read_file(reader: &mut Reader<'_>, tree: &Node) -> Option<Workflow> {
    let root = Field::root(tree);
    let fields = reader.fields(&root, FIELDS)?;
    let name = reader.required(&fields, "name");
    let name = name.and_then(|name| reader.line(&name));
    let description = fields.get("description");
    let description = description.and_then(|field| reader.text(&field));
    let inputs = fields.get("inputs");
    let inputs = inputs.map_or_else(Default::default, |field| inputs::read(reader, &field));
    let secrets = fields.get("secrets");
    let secrets = secrets.map_or_else(Vec::new, |field| reader.names(&field));
    let scope = phase::Scope {
        inputs: inputs.keys().map(String::as_str).collect(),
        secrets: &secrets,
    };
    let defaults = fields.get("defaults");
    let defaults = defaults.map_or_else(Default::default, |field| {
        settings::read_defaults(reader, &field, &scope)
    });
    let caps = fields.get("caps");
    let caps = caps.map_or_else(Default::default, |field| settings::run_caps(reader, &field));
    let phases = reader.required(&fields, "phases");
    let phases = phases.map_or_else(Vec::new, |field| {
        phase::read_all(reader, &field, &defaults, &scope)
    });
    let workspace = defaults.workspace;
    Some(Workflow {
        name: name?,
        description,
        inputs,
        secrets,
        workspace,
        caps,
        phases,
    })
}
