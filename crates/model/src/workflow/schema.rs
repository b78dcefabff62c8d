//! The JSON Schema of the workflow file (draft 2020-12), for editors.
//!
//! The types here only describe; nothing is read into them. A test compares their fields with those that
//! the reader knows, in both directions, and another validates the samples, so the two cannot part.
//! Editors check form by it; what holds between fields (declared secrets, earlier artifacts, names that
//! the operator offers) only the reader checks.

#![expect(dead_code, reason = "the types exist for their schema alone")]

use std::collections::BTreeMap;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

pub(crate) const DURATION: &str = "^[0-9]+(d|h|m|s|ms)([0-9]+(h|m|s|ms))*$";
pub(crate) const SIZE: &str = "^[0-9]+(B|KiB|MiB|GiB|TiB)$";
const NAME: &str = "^[a-z0-9][a-z0-9_-]{0,63}$";
pub(crate) const SECRET: &str = "^[A-Z_][A-Z0-9_]{0,63}$";
const INPUT: &str = "^[A-Za-z][A-Za-z0-9_]{0,63}$";
pub(crate) const VARIABLE: &str = "^[A-Za-z_][A-Za-z0-9_]{0,127}$";

/// A Bulkhead workflow: phases that run one after the other, each in a sandbox of its own.
#[derive(JsonSchema)]
#[schemars(
    title = "Bulkhead workflow",
    deny_unknown_fields,
    rename_all = "camelCase"
)]
struct WorkflowFile {
    /// What the workflow is called, in one line.
    #[schemars(length(min = 1, max = 200), example = &"Plan, implement, test")]
    name: String,
    /// What it is for.
    description: Option<String>,
    /// What whoever starts a run may say. Prompts find it as `{{ inputs.NAME }}`, commands as the
    /// variable `BULKHEAD_INPUT_NAME`.
    #[schemars(extend("propertyNames" = { "pattern": INPUT }))]
    inputs: Option<BTreeMap<String, InputField>>,
    /// The secrets that phases may name. Their values are set with `bulkhead secrets set`.
    #[schemars(inner(regex(pattern = SECRET)), extend("uniqueItems" = true), extend("examples" = [["DEPLOY_KEY"]]))]
    secrets: Option<Vec<String>>,
    /// What counts for every phase that does not say otherwise.
    defaults: Option<Defaults>,
    /// What the whole run may spend, over all phases and attempts. A run that reaches a cap ends as failed.
    caps: Option<RunCapFields>,
    /// The phases, in the order in which they run.
    #[schemars(length(min = 1, max = 64))]
    phases: Vec<Phase>,
}

/// Something that whoever starts a run may say.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct InputField {
    /// What to say here.
    description: Option<String>,
    /// What counts where nothing is said.
    default: Option<String>,
    /// Whether a run cannot start without it. Default: false.
    required: Option<bool>,
}

/// What counts for every phase that does not say otherwise.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct Defaults {
    /// Keep git-ignored files (such as `node_modules`) between the phases of one run. Every phase still
    /// starts from the branch. Default: false.
    cache_workspace: Option<bool>,
}

/// One step: an agent with a prompt, or a command, in one fresh sandbox.
#[derive(JsonSchema)]
#[schemars(
    deny_unknown_fields,
    rename_all = "camelCase",
    extend("oneOf" = [{ "required": ["prompt"] }, { "required": ["run"] }])
)]
struct Phase {
    /// Unique in the workflow.
    #[schemars(regex(pattern = NAME), example = &"implement")]
    name: String,
    /// What the agent is told. Placeholders: `{{ inputs.NAME }}`, `{{ run.id }}`, `{{ run.branch }}`,
    /// `{{ phase.name }}`, `{{ phase.attempt }}`, `{{ comment }}`. Write `\{{` for two braces.
    #[schemars(length(min = 1), example = &"Carry out PLAN.md.")]
    prompt: Option<String>,
    /// A shell command, instead of an agent. It is no template: use `$BULKHEAD_INPUT_NAME`.
    #[schemars(length(min = 1), example = &"cargo test")]
    run: Option<String>,
    /// Labels that a runner must have.
    #[schemars(inner(regex(pattern = NAME)), extend("uniqueItems" = true), extend("examples" = [["gpu"]]))]
    needs: Option<Vec<String>>,
    /// Wait for a runner with the needed labels even while no runner at all is connected, instead of
    /// running in the control plane's own sandbox. Default: false.
    wait_for_labels: Option<bool>,
    /// Files that the phase hands on, and gets from earlier ones.
    artifacts: Option<ArtifactFields>,
}

/// What both `defaults` and a phase can set; moved into both.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct Settings {
    /// Which agent does the work.
    agent: Option<AgentField>,
    /// Wall-clock limit of one attempt. Default: 60m.
    #[schemars(regex(pattern = DURATION), example = &"45m")]
    timeout: Option<String>,
    /// How long an agent may be silent. Default: 15m.
    #[schemars(regex(pattern = DURATION), example = &"10m")]
    idle: Option<String>,
    /// Limits of the sandbox.
    resources: Option<Resources>,
    /// What the sandbox may reach. Default: nothing.
    network: Option<Network>,
    /// Secrets that the phase gets, as environment variables; those under `defaults` go to every phase.
    #[schemars(inner(regex(pattern = SECRET)), extend("uniqueItems" = true))]
    secrets: Option<Vec<String>>,
    /// Environment variables. Put numbers and truth values in quotes.
    #[schemars(extend("propertyNames" = { "pattern": VARIABLE }))]
    env: Option<BTreeMap<String, String>>,
    /// Toolchains outside the system's directories, from the operator's list.
    toolchains: Option<Vec<String>>,
    /// Whether, and how, the run waits for a person after the phase. Default: review.
    gate: Option<Gate>,
    /// What one attempt of the phase may spend, where its agent reports it.
    caps: Option<PhaseCapFields>,
    /// How often a failed attempt is repeated before the phase waits for a person. Default: 0.
    #[schemars(range(min = 0, max = 10))]
    retries: Option<u32>,
}

/// A ready agent's name, or more about it.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum AgentField {
    /// A ready agent: claude, codex, gemini, opencode, or one that the operator added.
    #[schemars(example = &"claude")]
    Name(String),
    Mapping(AgentMapping),
}

/// An agent and what is changed about it.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("dependentRequired" = { "protocol": ["command"] }))]
pub(crate) struct AgentMapping {
    /// A ready agent's name; any name where a command is given.
    name: String,
    /// The model, as the agent's own command line calls it.
    model: Option<String>,
    /// What to start in the sandbox instead of a ready agent; `{prompt}` stands for the prompt.
    #[schemars(length(min = 1), extend("examples" = [["my-agent", "--prompt", "{prompt}"]]))]
    command: Option<Vec<String>>,
    /// How the command's output is read. Default: plain.
    protocol: Option<ProtocolWord>,
    /// Environment variables for the agent alone.
    #[schemars(extend("propertyNames" = { "pattern": VARIABLE }))]
    env: Option<BTreeMap<String, String>>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
pub(crate) enum ProtocolWord {
    Acp,
    ClaudeStreamJson,
    CodexJson,
    Plain,
}

/// Limits of the sandbox. All of them always hold; there is no way to lift one.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Resources {
    /// CPUs, as a decimal number. Default: 2.
    #[schemars(range(min = 0.001, max = 1024), example = 1.5)]
    cpus: Option<f64>,
    /// Memory with swap. Default: 4GiB.
    #[schemars(regex(pattern = SIZE), example = &"2GiB")]
    memory: Option<String>,
    /// Processes and threads together. Default: 512.
    #[schemars(range(min = 8, max = 1_000_000))]
    pids: Option<u32>,
    /// The workspace's file system. Default: 10GiB.
    #[schemars(regex(pattern = SIZE), example = &"4GiB")]
    disk: Option<String>,
    /// Output that is kept; the rest is counted and dropped. Default: 64MiB.
    #[schemars(regex(pattern = SIZE), example = &"8MiB")]
    log: Option<String>,
}

/// What the sandbox may reach. A phase's own list replaces the one under `defaults`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Network {
    /// Names with an optional port (443 where none is given), `*.` for every name below, or a preset
    /// for a package registry. An empty list reaches nothing.
    #[schemars(extend("examples" = [["preset:npm", "api.example.com", "*.example.com:8443"]]))]
    allow: Vec<String>,
}

/// A word, or more about the gate.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Gate {
    Word(GateWord),
    Mapping(GateMapping),
}

/// `review` waits for a person after a success; `none` goes on at once. A failure waits either way.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
enum GateWord {
    Review,
    None,
}

/// Who may answer, until when, and who is told.
#[derive(JsonSchema)]
#[schemars(
    deny_unknown_fields,
    rename_all = "camelCase",
    extend("dependentRequired" = { "onExpiry": ["expires"] })
)]
struct GateMapping {
    /// Default: review.
    on_success: Option<GateWord>,
    /// Names of access tokens. Left out: anyone whose token has the scope `decide`.
    #[schemars(length(min = 1))]
    approvers: Option<Vec<String>>,
    /// How long the gate waits, at least 1m. Left out: for ever.
    #[schemars(regex(pattern = DURATION), example = &"24h")]
    expires: Option<String>,
    /// What happens then. Silence never approves.
    on_expiry: Option<ExpiryWord>,
    /// Who is told that the gate waits.
    notify: Option<Vec<Notify>>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
enum ExpiryWord {
    Reject,
}

/// Either a URL or the name of a command of the operator's.
#[derive(JsonSchema)]
#[schemars(
    deny_unknown_fields,
    extend("oneOf" = [{ "required": ["webhook"] }, { "required": ["command"] }])
)]
struct Notify {
    /// Gets an HTTP POST with JSON.
    #[schemars(
        regex(pattern = "^https?://"),
        example = &"https://chat.example.com/hooks/gates"
    )]
    webhook: Option<String>,
    /// The name of a command in the operator's configuration; a workflow cannot bring its own.
    command: Option<String>,
}

/// What one attempt may spend.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct PhaseCapFields {
    /// US dollars.
    #[schemars(range(min = 0.000001, max = 1_000_000), example = 2.5)]
    cost_usd: Option<f64>,
    /// Turns of the agent.
    #[schemars(range(min = 1, max = 1_000_000))]
    turns: Option<u32>,
}

/// What the run may spend.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct RunCapFields {
    /// US dollars.
    #[schemars(range(min = 0.000001, max = 1_000_000), example = 10)]
    cost_usd: Option<f64>,
    /// Turns of all agents together.
    #[schemars(range(min = 1, max = 1_000_000))]
    turns: Option<u32>,
    /// Time in which phases run; waiting for people does not count.
    #[schemars(regex(pattern = DURATION), example = &"6h")]
    time: Option<String>,
}

/// Files that the phase hands on, and gets from earlier ones.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ArtifactFields {
    /// Name, and path in the workspace.
    #[schemars(extend("propertyNames" = { "pattern": NAME }))]
    out: Option<BTreeMap<String, String>>,
    /// Names of artifacts of earlier phases; they lie in `/run/bulkhead/artifacts`.
    #[schemars(inner(regex(pattern = NAME)), extend("uniqueItems" = true))]
    r#in: Option<Vec<String>>,
}

/// The schema, as `docs/workflow.schema.json` holds it.
pub fn schema() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.meta_schema = Some("https://json-schema.org/draft/2020-12/schema".into());
    let mut generator = settings.into_generator();
    // Asked for first, so that the definition is there to be moved below.
    generator.subschema_for::<Settings>();
    let mut schema = generator.into_root_schema_for::<WorkflowFile>().to_value();
    share_settings(&mut schema);
    absent_not_null(&mut schema);
    schema
}

/// Puts the fields of `Settings` into both mappings that have them. Done here and not by flattening,
/// because editors know `additionalProperties` better than what flattening would need.
fn share_settings(schema: &mut Value) {
    let Some(definitions) = schema["$defs"].as_object_mut() else {
        return;
    };
    let Some(settings) = definitions.remove("Settings") else {
        return;
    };
    let shared = settings["properties"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    for name in ["Defaults", "Phase"] {
        let own = definitions.get_mut(name);
        if let Some(properties) = own.and_then(|own| own["properties"].as_object_mut()) {
            properties.extend(shared.clone());
        }
    }
}

/// A field that may be left out may not be null: the reader takes an empty value for a mistake.
pub(crate) fn absent_not_null(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(absent_not_null),
        Value::Object(object) => {
            // Rust's own number types say nothing to an editor; the ranges do.
            object.remove("format");
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|word| word != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    object.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
                choices.retain(|choice| choice["type"] != "null");
                if let [Value::Object(only)] = choices.as_slice() {
                    let only = only.clone();
                    object.remove("anyOf");
                    object.extend(only);
                }
            }
            object.values_mut().for_each(absent_not_null);
        }
        _ => {}
    }
}
