//! The JSON Schema of the session's file (draft 2020-12), for editors. As with the workflow's, the types here only
//! describe, and a test compares them with what the reader knows.

#![expect(dead_code, reason = "the types exist for their schema alone")]
#![expect(clippy::large_enum_variant, reason = "no value of them is ever made")]

use std::collections::BTreeMap;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

use crate::workflow::schema::{
    AgentField, DURATION, Network, PhaseCapFields, Resources, SECRET, SIZE, VARIABLE,
    absent_not_null,
};

const ENDPOINT: &str = "^(/.+|.+:[0-9]+)$";

/// A Bulkhead session: one agent or command, and the plugs around it, in order.
#[derive(JsonSchema)]
#[schemars(
    title = "Bulkhead session",
    deny_unknown_fields,
    rename_all = "camelCase",
    extend("oneOf" = [{ "required": ["agent"] }, { "required": ["run"] }])
)]
struct SessionFile {
    /// What the session is called, in one line.
    #[schemars(length(min = 1, max = 200), example = &"Fix the failing test")]
    name: Option<String>,
    /// Which agent does the work.
    agent: Option<AgentField>,
    /// A shell command, instead of an agent.
    #[schemars(length(min = 1), example = &"make test")]
    run: Option<String>,
    /// What the agent is told first. `--prompt` replaces it.
    #[schemars(length(min = 1))]
    prompt: Option<String>,
    /// Wall-clock limit of the session. Default: none.
    #[schemars(regex(pattern = DURATION), example = &"2h")]
    timeout: Option<String>,
    /// How long an agent that works may be silent. Default: no limit.
    #[schemars(regex(pattern = DURATION), example = &"15m")]
    idle: Option<String>,
    /// What the session may spend, where its agent reports it.
    caps: Option<PhaseCapFields>,
    /// The plugs, in order: a host changes the machine of those after it, and the agent runs on the last.
    #[schemars(length(max = 128))]
    plugs: Vec<Plug>,
}

/// A plug's name, or the name with its configuration below it.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Plug {
    Name(PlugName),
    Mapping(PlugMapping),
}

/// Plugs that need no configuration.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
enum PlugName {
    Local,
    Sandbox,
    Workspace,
    Record,
}

/// One plug with its configuration.
#[derive(JsonSchema)]
#[schemars(
    deny_unknown_fields,
    rename_all = "camelCase",
    extend("minProperties" = 1, "maxProperties" = 1)
)]
struct PlugMapping {
    /// This machine, without any isolation: the agent has your rights.
    local: Option<Local>,
    /// Limits on files and network for what runs on the host before it; goes with the session.
    sandbox: Option<Sandbox>,
    /// A container, made at the first use and removed at the end. Text is the image's name.
    docker: Option<DockerField>,
    /// Another machine, through your own ssh configuration. Text is the host's name.
    ssh: Option<SshField>,
    /// The agent's files: where they come from and where they go.
    workspace: Option<Workspace>,
    /// Environment variables for the agent.
    #[schemars(extend("propertyNames" = { "pattern": VARIABLE }))]
    env: Option<BTreeMap<String, String>>,
    /// Files to write on the host before the agent starts, by their path there.
    files: Option<BTreeMap<String, FileField>>,
    /// Commands to run on the host before the agent starts, in order.
    setup: Option<Vec<SetupField>>,
    /// Secrets for the agent, each in a variable: from the store by name, or from where each says.
    secrets: Option<SecretsField>,
    /// Forwards of ports and sockets between this machine and the host.
    ports: Option<Ports>,
    /// Servers of the Model Context Protocol, by name, that the agent is told of.
    mcp: Option<BTreeMap<String, McpServer>>,
    /// Writes every message to a file, with secrets masked.
    record: Option<Record>,
    /// A plug of your own, in JavaScript or TypeScript. Text is the file's path.
    script: Option<ScriptField>,
}

/// This machine.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct Local {
    /// Where the agent starts. Default: a directory of the session's own, which goes with it.
    directory: Option<String>,
}

/// A sandbox.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct Sandbox {
    /// Limits of the sandbox.
    resources: Option<Resources>,
    /// What it may reach. Default: nothing.
    network: Option<Network>,
    /// Directories that are shown inside at the same path, read-only.
    #[schemars(inner(regex(pattern = "^/")))]
    read_only: Option<Vec<String>>,
    /// Wall-clock limit of the sandbox. Default: 60m.
    #[schemars(regex(pattern = DURATION))]
    timeout: Option<String>,
}

/// An image's name, or more about the container.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum DockerField {
    Image(String),
    Mapping(Docker),
}

/// A container.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct Docker {
    /// What the container is made of.
    #[schemars(example = &"debian:stable")]
    image: String,
    /// Which engine's usual socket is used. Default: docker.
    engine: Option<EngineWord>,
    /// The engine's socket, on the host before this one.
    #[schemars(regex(pattern = "^/"))]
    socket: Option<String>,
    /// Another OCI runtime that the engine knows.
    #[schemars(example = &"runsc")]
    runtime: Option<String>,
    /// The user inside.
    user: Option<String>,
    /// Where processes start. Default: the image's own.
    #[schemars(regex(pattern = "^/"))]
    workdir: Option<String>,
    /// `bridge`, `none`, `host`, or a network's name.
    network: Option<String>,
    /// What of the host before this one is shown inside.
    mounts: Option<Vec<DockerMount>>,
    /// Variables of every process in the container.
    #[schemars(extend("propertyNames" = { "pattern": VARIABLE }))]
    env: Option<BTreeMap<String, String>>,
    /// What the container may use.
    resources: Option<ContainerResources>,
    /// Takes the container's walls away. The isolation summary says so. Default: false.
    privileged: Option<bool>,
    /// Allows what the plug `sandbox` needs to stand in the container: the engine's filter of system calls is off and the
    /// kernel's files are shown, while all Linux capabilities are dropped and nothing gains rights. Default: false.
    sandbox_inside: Option<bool>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
enum EngineWord {
    Docker,
    Podman,
}

/// A directory, file or volume that the container sees.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct DockerMount {
    /// A path on the engine's machine, or a volume's name.
    source: String,
    /// Where it is inside.
    #[schemars(regex(pattern = "^/"))]
    target: String,
    /// Default: false.
    read_only: Option<bool>,
}

/// What a container may use.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct ContainerResources {
    /// CPUs, as a decimal number.
    #[schemars(range(min = 0.001, max = 1024))]
    cpus: Option<f64>,
    /// Memory.
    #[schemars(regex(pattern = SIZE), example = &"2GiB")]
    memory: Option<String>,
    /// Processes and threads together.
    #[schemars(range(min = 8, max = 1_000_000))]
    pids: Option<u32>,
}

/// A host's name, or more about it.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum SshField {
    Host(String),
    Mapping(Ssh),
}

/// Another machine.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct Ssh {
    /// As `ssh` takes it: a name of your configuration, or USER@NAME.
    #[schemars(regex(pattern = "^[^-\\s]\\S*$"))]
    host: String,
    /// Starts the agent under a supervisor that ends it when the connection is lost. Default: false.
    persistent: Option<bool>,
    /// Where processes start. Default: the account's home.
    directory: Option<String>,
    /// Another client configuration than your own.
    config_file: Option<String>,
}

/// The agent's files. `directory` or `git`; neither is an empty directory.
#[derive(JsonSchema)]
#[schemars(
    deny_unknown_fields,
    rename_all = "camelCase",
    extend("dependentRequired" = { "revision": ["git"] })
)]
struct Workspace {
    /// A directory of this machine, copied in.
    directory: Option<String>,
    /// A repository of this machine, cloned.
    git: Option<String>,
    /// A branch, tag or commit to start from. Default: what is checked out.
    revision: Option<String>,
    /// Where the files are on the host. Default: the host's usual place.
    #[schemars(regex(pattern = "^/"))]
    target: Option<String>,
    /// Where the result goes after a success. Default: nowhere.
    out: Option<WorkspaceOutFields>,
}

/// `directory` or `branch`.
#[derive(JsonSchema)]
#[schemars(
    deny_unknown_fields,
    rename_all = "camelCase",
    extend("oneOf" = [{ "required": ["directory"] }, { "required": ["branch"] }])
)]
struct WorkspaceOutFields {
    /// A directory of this machine, which must not hold anything yet.
    directory: Option<String>,
    /// A branch of the repository, made or moved forward.
    branch: Option<String>,
}

/// The file's text, or more about it.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum FileField {
    Text(String),
    Mapping(FileMapping),
}

/// `text` or `from`.
#[derive(JsonSchema)]
#[schemars(
    deny_unknown_fields,
    rename_all = "camelCase",
    extend("oneOf" = [{ "required": ["text"] }, { "required": ["from"] }])
)]
struct FileMapping {
    /// What the file holds.
    text: Option<String>,
    /// A file of this machine.
    from: Option<String>,
    /// Permissions as octal digits. Default: "0644".
    #[schemars(regex(pattern = "^[0-7]{1,4}$"), example = &"0755")]
    mode: Option<String>,
}

/// A command, or more about it.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum SetupField {
    Run(String),
    Mapping(SetupMapping),
}

/// A command before the agent.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct SetupMapping {
    /// A line for the host's shell; another exit code than 0 ends the session.
    run: String,
    /// Default: 10m.
    #[schemars(regex(pattern = DURATION))]
    timeout: Option<String>,
    /// A line to run at the session's end, however it ended.
    teardown: Option<String>,
}

/// Names of the store, or variables with the place that each comes from.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum SecretsField {
    Names(#[schemars(inner(regex(pattern = SECRET)))] Vec<String>),
    Sources(
        #[schemars(extend("propertyNames" = { "pattern": SECRET }))]
        BTreeMap<String, SecretMapping>,
    ),
}

/// Where a secret comes from: one of the three.
#[derive(JsonSchema)]
#[schemars(
    deny_unknown_fields,
    rename_all = "camelCase",
    extend("minProperties" = 1, "maxProperties" = 1)
)]
struct SecretMapping {
    /// Its name in Bulkhead's store.
    store: Option<String>,
    /// A variable of whoever starts the session.
    env: Option<String>,
    /// A file of this machine.
    file: Option<String>,
}

/// Forwards in both directions.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct Ports {
    /// Listen here, connect on the host.
    to_host: Option<Vec<PortForward>>,
    /// Listen on the host, connect here.
    to_runner: Option<Vec<PortForward>>,
}

/// One forward.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct PortForward {
    /// An address with a port (0 for any), or a socket's path.
    #[schemars(regex(pattern = ENDPOINT), example = &"127.0.0.1:8080")]
    listen: String,
    /// Where each connection is taken to.
    #[schemars(regex(pattern = ENDPOINT))]
    connect: String,
    /// A variable of the agent's that gets the place that is listened at.
    env: Option<String>,
}

/// `command` or `url`.
#[derive(JsonSchema)]
#[schemars(
    deny_unknown_fields,
    rename_all = "camelCase",
    extend("oneOf" = [{ "required": ["command"] }, { "required": ["url"] }])
)]
struct McpServer {
    /// A program on the agent's host, which the agent starts.
    #[schemars(length(min = 1))]
    command: Option<Vec<String>>,
    /// Variables of that program.
    env: Option<BTreeMap<String, String>>,
    /// A server that the agent reaches over HTTP.
    url: Option<String>,
    /// Headers of every request to it.
    headers: Option<BTreeMap<String, String>>,
}

/// A transcript.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct Record {
    /// Where it is written. Default: in the session's own directory.
    file: Option<String>,
}

/// A script's path, or more about it.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum ScriptField {
    File(#[schemars(regex(pattern = r"\.m?[jt]s$"))] String),
    Mapping(ScriptMapping),
}

/// A plug of your own.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, rename_all = "camelCase")]
struct ScriptMapping {
    /// The script's file.
    #[schemars(regex(pattern = r"\.m?[jt]s$"), example = &"./plugs/answer.ts")]
    file: String,
    /// What errors call the plug. Default: the file's name.
    name: Option<String>,
    /// Handed to the script as it is.
    config: Option<Value>,
}

/// The schema, as `docs/session.schema.json` holds it.
pub fn schema() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.meta_schema = Some("https://json-schema.org/draft/2020-12/schema".into());
    let generator = settings.into_generator();
    let mut schema = generator.into_root_schema_for::<SessionFile>().to_value();
    absent_not_null(&mut schema);
    schema
}
