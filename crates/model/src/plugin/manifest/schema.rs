//! The JSON Schema of `plugin.json` (draft 2020-12), for editors. The types here only describe, and a test compares them
//! with what the reader knows.

#![expect(dead_code, reason = "the types exist for their schema alone")]

use std::collections::BTreeMap;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value};

use super::Permission;
use crate::workflow::schema::absent_not_null;

const WORD: &str = "^[A-Za-z][A-Za-z0-9_]{0,63}$";

/// A plugin of Bulkhead: what it is, what it offers, and what it asks for.
#[derive(JsonSchema)]
#[schemars(
    title = "Bulkhead plugin",
    deny_unknown_fields,
    rename_all = "camelCase"
)]
struct Manifest {
    /// This schema.
    #[schemars(rename = "$schema")]
    schema: Option<String>,
    /// The plugin's name.
    #[schemars(regex(pattern = "^[a-z]([a-z0-9-]{0,62}[a-z0-9])?$"), example = &"weather")]
    name: String,
    /// Its version, as semver.org says, without build metadata.
    #[schemars(regex(pattern = "^(0|[1-9][0-9]*)\\.(0|[1-9][0-9]*)\\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$"), example = &"1.0.0")]
    version: String,
    /// What it is for.
    #[schemars(length(min = 1, max = 1000))]
    description: Option<String>,
    /// Its one module, a path below the manifest.
    #[schemars(regex(pattern = r"\.m?[jt]s$"), example = &"main.ts")]
    entry: String,
    /// What it offers; each capability means exports of the module.
    capabilities: Capabilities,
    /// What it may do beyond its own code. Whoever installs it sees them first.
    #[schemars(extend("uniqueItems" = true))]
    permissions: Option<Vec<PermissionName>>,
    /// The hosts that `host.fetch` may reach. Whoever installs it sees them first.
    egress: Option<Vec<EgressField>>,
    /// What the user can set, by name.
    #[schemars(extend("propertyNames" = { "pattern": WORD }))]
    settings: Option<BTreeMap<String, Setting>>,
    /// The secrets that the user binds, by name.
    #[schemars(extend("propertyNames" = { "pattern": WORD }))]
    secrets: Option<BTreeMap<String, Secret>>,
}

/// What a plugin offers.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase", extend("minProperties" = 1))]
struct Capabilities {
    /// Tools for the model: each is the export `tools.NAME`.
    #[schemars(extend("propertyNames" = { "pattern": WORD }))]
    tools: Option<BTreeMap<String, Tool>>,
    /// Steps of the agent's turn that it sees and may change: each is the export `middleware.HOOK`.
    middleware: Option<Vec<HookName>>,
    /// What it is told of: each is the export `events.EVENT`.
    events: Option<Vec<EventName>>,
    /// It searches the web: the export `webSearch`.
    web_search: Option<bool>,
    /// It fetches pages of the web: the export `webFetch`.
    web_fetch: Option<bool>,
    /// It shortens long chats: the export `compaction.summarize`.
    compaction: Option<bool>,
    /// It gives access to models: the export `modelProvider.complete`.
    model_provider: Option<bool>,
    /// Ways for people to write to the agent: the exports `channels.NAME.receive` and `channels.NAME.send`.
    #[schemars(extend("propertyNames" = { "pattern": WORD }))]
    channels: Option<BTreeMap<String, Channel>>,
    /// It decides: each is the export `decisions.NAME`.
    decisions: Option<Vec<DecisionName>>,
    /// It speaks and listens: each is the export `voice.NAME`.
    voice: Option<Vec<VoiceName>>,
    /// What it does with media: each is the export `media.NAME`.
    #[schemars(extend("propertyNames" = { "pattern": WORD }))]
    media: Option<BTreeMap<String, Media>>,
    /// What it does on machines over ssh: each is the export `sshHooks.NAME`.
    #[schemars(extend("propertyNames" = { "pattern": WORD }))]
    ssh_hooks: Option<BTreeMap<String, SshHook>>,
    /// It holds a live connection: the exports `liveConnection.open`, `liveConnection.receive` and `liveConnection.timer`.
    live_connection: Option<bool>,
}

/// A tool.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct Tool {
    /// What it does, for the model.
    #[schemars(length(min = 1, max = 1000))]
    description: String,
    /// A JSON Schema of the handler's argument.
    input: Option<Map<String, Value>>,
}

/// A channel.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct Channel {
    /// Its name for people.
    #[schemars(length(min = 1, max = 200))]
    label: Option<String>,
    /// What it is.
    #[schemars(length(min = 1, max = 1000))]
    description: Option<String>,
}

/// A function on media.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct Media {
    /// What it does.
    #[schemars(length(min = 1, max = 1000))]
    description: String,
}

/// A hook of ssh.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct SshHook {
    /// What it does.
    #[schemars(length(min = 1, max = 1000))]
    description: Option<String>,
    /// How many seconds each of its commands may take. They raise its time limit.
    #[schemars(length(max = 10), inner(range(min = 1, max = 90)))]
    command_timeouts_s: Option<Vec<u32>>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
enum HookName {
    BeforeTurn,
    AfterTurn,
    BeforeModel,
    AfterModel,
    BeforeTool,
    AfterTool,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
enum EventName {
    Installed,
    Updated,
    Uninstalled,
    SettingsChanged,
    SessionStarted,
    SessionEnded,
    Timer,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
enum DecisionName {
    Noul,
    Choose,
    Score,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
enum VoiceName {
    Speak,
    Voices,
    Transcribe,
}

/// A host, or a host with the reason for it.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum EgressField {
    Host(#[schemars(example = &"api.example.com")] String),
    Mapping(EgressMapping),
}

/// A host, and what for.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct EgressMapping {
    /// A name, or `*.` and a name for all below it; with `:PORT` where it is not 443.
    #[schemars(length(min = 1), example = &"*.example.com:8443")]
    host: String,
    /// What for, in one line for whoever installs it.
    #[schemars(length(min = 1, max = 200))]
    reason: Option<String>,
}

/// What the user can set.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct Setting {
    /// What kind of value it is. `hosts` are hosts that the plugin may reach besides those of `egress`.
    r#type: SettingType,
    /// Its name for people.
    #[schemars(length(min = 1, max = 200))]
    label: Option<String>,
    /// What it is for.
    #[schemars(length(min = 1, max = 1000))]
    description: Option<String>,
    /// Whether the plugin cannot do without. Default: false.
    required: Option<bool>,
    /// What it is where the user sets nothing.
    default: Option<Value>,
    /// The least number.
    min: Option<f64>,
    /// The greatest number.
    max: Option<f64>,
    /// What can be chosen.
    #[schemars(length(min = 1))]
    options: Option<Vec<String>>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
enum SettingType {
    Text,
    Number,
    Boolean,
    Choice,
    Hosts,
}

/// A secret that the user binds.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct Secret {
    /// Its name for people.
    #[schemars(length(min = 1, max = 200))]
    label: Option<String>,
    /// Where the user gets it.
    #[schemars(length(min = 1, max = 1000))]
    description: Option<String>,
    /// Whether the plugin cannot do without. Default: true.
    required: Option<bool>,
}

/// One of the known permissions.
struct PermissionName;

impl JsonSchema for PermissionName {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PermissionName".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let choices = Permission::ALL.map(|permission| {
            schemars::json_schema!({ "const": permission.name(), "description": format!("It may {}.", permission.words()) })
        });
        schemars::json_schema!({ "oneOf": choices })
    }
}

/// The schema, as `docs/plugin.schema.json` holds it.
pub fn schema() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.meta_schema = Some("https://json-schema.org/draft/2020-12/schema".into());
    let generator = settings.into_generator();
    let mut schema = generator.into_root_schema_for::<Manifest>().to_value();
    absent_not_null(&mut schema);
    schema
}
