//! The list of plugs: each entry is one plug's name, with its configuration below it where it takes one.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::{
    FileContent, FileSpec, Forward, McpConfig, McpTransport, PlugConfig, PortsConfig, RecordConfig,
    ScriptConfig, SecretConfig, SecretSource, SetupStep, WorkspaceConfig, WorkspaceOut,
    WorkspaceSource,
    hosts::{self, text},
};
use crate::workflow::{
    node::{Node, Value, cut},
    phase::Scope,
    reader::{Field, Reader},
    settings,
};

/// Every plug by its name.
pub(super) const NAMES: &[&str] = &[
    "local",
    "sandbox",
    "docker",
    "ssh",
    "workspace",
    "env",
    "files",
    "setup",
    "secrets",
    "ports",
    "mcp",
    "record",
    "script",
];
/// Those that can stand alone.
const ALONE: &[&str] = &["local", "sandbox", "record", "workspace"];
const WORKSPACE_FIELDS: &[&str] = &["directory", "git", "revision", "target", "out"];
const OUT_FIELDS: &[&str] = &["directory", "branch"];
const FILE_FIELDS: &[&str] = &["text", "from", "mode"];
const SETUP_FIELDS: &[&str] = &["run", "timeout", "teardown"];
const SECRET_FIELDS: &[&str] = &["store", "env", "file"];
const PORTS_FIELDS: &[&str] = &["toHost", "toRunner"];
const FORWARD_FIELDS: &[&str] = &["listen", "connect", "env"];
const MCP_FIELDS: &[&str] = &["command", "env", "url", "headers"];
const RECORD_FIELDS: &[&str] = &["file"];
const SCRIPT_FIELDS: &[&str] = &["file", "name", "config"];
const SETUP_MS: u64 = 10 * 60_000;

pub(super) fn reader_fields() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        ("PlugMapping", NAMES.to_vec()),
        ("Workspace", WORKSPACE_FIELDS.to_vec()),
        ("WorkspaceOutFields", OUT_FIELDS.to_vec()),
        ("FileMapping", FILE_FIELDS.to_vec()),
        ("SetupMapping", SETUP_FIELDS.to_vec()),
        ("SecretMapping", SECRET_FIELDS.to_vec()),
        ("Ports", PORTS_FIELDS.to_vec()),
        ("PortForward", FORWARD_FIELDS.to_vec()),
        ("McpServer", MCP_FIELDS.to_vec()),
        ("Record", RECORD_FIELDS.to_vec()),
        ("ScriptMapping", SCRIPT_FIELDS.to_vec()),
    ]
}

pub(super) fn read_all(reader: &mut Reader<'_>, field: &Field<'_>) -> Vec<PlugConfig> {
    let mut plugs = Vec::new();
    for item in reader.list(field) {
        plugs.extend(read(reader, &item));
    }
    plugs
}

fn read(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<PlugConfig> {
    if let Value::Text(_) = field.node.value {
        let name = reader.line(field)?;
        if !NAMES.contains(&name.as_str()) {
            reader.unknown(field, "plug", &name, NAMES);
            return None;
        }
        if !ALONE.contains(&name.as_str()) {
            reader.problem(
                field,
                format!(
                    "the plug `{name}` needs its configuration: write `- {name}:` and it below"
                ),
            );
            return None;
        }
        return plug(reader, &name, None);
    }
    let Value::Map(entries) = &field.node.value else {
        reader.expected(field, "a plug's name, with its configuration below it");
        return None;
    };
    if entries.len() != 1 {
        let found = entries.len();
        reader.problem(
            field,
            format!("expected one plug in each entry of the list, found {found}"),
        );
        return None;
    }
    // Says which name is unknown, and the nearest.
    let fields = reader.fields(field, NAMES)?;
    let name = &entries.first()?.0.name;
    let config = fields.get(name)?;
    let config = (!matches!(config.node.value, Value::Null)).then_some(config);
    if config.is_none() && !ALONE.contains(&name.as_str()) {
        reader.problem(field, format!("the plug `{name}` needs its configuration"));
        return None;
    }
    plug(reader, name, config.as_ref())
}

fn plug(reader: &mut Reader<'_>, name: &str, config: Option<&Field<'_>>) -> Option<PlugConfig> {
    match (name, config) {
        ("local", config) => hosts::local(reader, config).map(PlugConfig::Host),
        ("sandbox", config) => hosts::sandbox(reader, config).map(PlugConfig::Host),
        ("workspace", config) => workspace(reader, config),
        ("record", None) => Some(PlugConfig::Record(RecordConfig { file: None })),
        (name, Some(config)) => configured(reader, name, config),
        (_, None) => None,
    }
}

fn configured(reader: &mut Reader<'_>, name: &str, field: &Field<'_>) -> Option<PlugConfig> {
    Some(match name {
        "docker" => PlugConfig::Host(hosts::docker(reader, field)?),
        "ssh" => PlugConfig::Host(hosts::ssh(reader, field)?),
        "env" => PlugConfig::Env(env(reader, field)),
        "files" => PlugConfig::Files(files(reader, field)),
        "setup" => PlugConfig::Setup(setup(reader, field)),
        "secrets" => PlugConfig::Secrets(secrets(reader, field)),
        "ports" => PlugConfig::Ports(ports(reader, field)?),
        "mcp" => PlugConfig::Mcp(mcp(reader, field)),
        "record" => {
            let fields = reader.fields(field, RECORD_FIELDS)?;
            PlugConfig::Record(RecordConfig {
                file: text(reader, &fields, "file"),
            })
        }
        "script" => PlugConfig::Script(script(reader, field)?),
        _ => return None,
    })
}

fn workspace(reader: &mut Reader<'_>, field: Option<&Field<'_>>) -> Option<PlugConfig> {
    let mut config = WorkspaceConfig {
        source: WorkspaceSource::Empty,
        target: None,
        out: None,
    };
    let Some(field) = field else {
        return Some(PlugConfig::Workspace(config));
    };
    let fields = reader.fields(field, WORKSPACE_FIELDS)?;
    let directory = text(reader, &fields, "directory");
    let git = text(reader, &fields, "git");
    let revision = fields.get("revision");
    let revision = revision.and_then(|field| revision_name(reader, &field));
    if revision.is_some() && git.is_none() {
        reader.problem(field, "`revision` needs `git` beside it");
    }
    config.source = match (directory, git) {
        (Some(_), Some(_)) => {
            reader.problem(field, "expected `directory` or `git`, found both");
            return None;
        }
        (Some(directory), None) => WorkspaceSource::Directory(directory),
        (None, Some(repository)) => WorkspaceSource::Git {
            repository,
            revision,
        },
        (None, None) => WorkspaceSource::Empty,
    };
    let target = fields.get("target");
    config.target = target.and_then(|field| hosts::absolute(reader, &field));
    if let Some(out) = fields.get("out") {
        config.out = workspace_out(reader, &out, &config.source);
    }
    Some(PlugConfig::Workspace(config))
}

fn workspace_out(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    source: &WorkspaceSource,
) -> Option<WorkspaceOut> {
    let fields = reader.fields(field, OUT_FIELDS)?;
    let branch = fields.get("branch");
    match (text(reader, &fields, "directory"), branch) {
        (Some(directory), None) => Some(WorkspaceOut::Directory(directory)),
        (None, Some(branch)) => {
            if !matches!(source, WorkspaceSource::Git { .. }) {
                reader.problem(&branch, "a branch needs a workspace from `git`");
            }
            revision_name(reader, &branch).map(WorkspaceOut::Branch)
        }
        _ => {
            reader.problem(field, "expected either `directory` or `branch`");
            None
        }
    }
}

/// What git takes as a name and never as an option or a range.
fn revision_name(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<String> {
    let name = reader.line(field)?;
    let bad = |c: char| c.is_whitespace() || "~^:?*[\\".contains(c);
    if name.starts_with('-') || name.contains("..") || name.contains("@{") || name.contains(bad) {
        reader.problem(field, "expected a branch, tag or commit as git names it");
        return None;
    }
    Some(name)
}

pub(super) fn env(reader: &mut Reader<'_>, field: &Field<'_>) -> BTreeMap<String, String> {
    let scope = Scope {
        inputs: vec![],
        secrets: &[],
    };
    settings::env(reader, field, &scope)
}

fn files(reader: &mut Reader<'_>, field: &Field<'_>) -> Vec<FileSpec> {
    let mut files = Vec::new();
    for (key, entry) in reader.entries(field) {
        let path = key.name.clone();
        if let Value::Text(text) = &entry.node.value {
            files.push(FileSpec {
                path,
                content: FileContent::Text(text.clone()),
                mode: None,
            });
            continue;
        }
        let Some(fields) = reader.fields(&entry, FILE_FIELDS) else {
            continue;
        };
        let own = fields.get("text").and_then(|field| reader.value(&field));
        let content = match (own, text(reader, &fields, "from")) {
            (Some(text), None) => FileContent::Text(text),
            (None, Some(from)) => FileContent::From(from),
            _ => {
                reader.problem(&entry, "expected either `text` or `from`");
                continue;
            }
        };
        let mode = fields.get("mode").and_then(|field| mode(reader, &field));
        files.push(FileSpec {
            path,
            content,
            mode,
        });
    }
    files
}

/// Octal digits in quotes: YAML 1.1 and 1.2 read a bare `0755` differently.
fn mode(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<u32> {
    let text = match &field.node.value {
        Value::Text(text) => text.clone(),
        _ => String::new(),
    };
    let mode = u32::from_str_radix(&text, 8).ok();
    let mode = mode.filter(|mode| *mode <= 0o777 && text.len() <= 4);
    if mode.is_none() {
        reader.expected(
            field,
            "permissions as octal digits in quotes, such as \"0644\"",
        );
    }
    mode
}

fn setup(reader: &mut Reader<'_>, field: &Field<'_>) -> Vec<SetupStep> {
    let mut steps = Vec::new();
    for item in reader.list(field) {
        if let Value::Text(_) = item.node.value {
            let step = |run| SetupStep {
                run,
                timeout_ms: SETUP_MS,
                teardown: None,
            };
            steps.extend(reader.text(&item).map(step));
            continue;
        }
        let Some(fields) = reader.fields(&item, SETUP_FIELDS) else {
            continue;
        };
        let run = reader.required(&fields, "run");
        let Some(run) = run.and_then(|field| reader.text(&field)) else {
            continue;
        };
        let timeout = fields.get("timeout");
        let timeout = timeout.and_then(|field| reader.duration(&field, 1_000..=86_400_000));
        steps.push(SetupStep {
            run,
            timeout_ms: timeout.unwrap_or(SETUP_MS),
            teardown: text(reader, &fields, "teardown"),
        });
    }
    steps
}

fn secrets(reader: &mut Reader<'_>, field: &Field<'_>) -> Vec<SecretConfig> {
    if let Value::List(_) = field.node.value {
        let names: Vec<crate::SecretName> = reader.names(field);
        let from_store = |name: crate::SecretName| SecretConfig {
            name: name.to_string(),
            source: SecretSource::Store(name.to_string()),
        };
        return names.into_iter().map(from_store).collect();
    }
    let mut secrets = Vec::new();
    for (key, entry) in reader.entries(field) {
        let name = key.name.clone();
        if name.parse::<crate::SecretName>().is_err() {
            let found = cut(&name);
            reader.problem(
                &entry,
                format!("{found:?} is not a secret's name: expected A-Z, 0-9 and `_`"),
            );
            continue;
        }
        let Some(fields) = reader.fields(&entry, SECRET_FIELDS) else {
            continue;
        };
        let sources = [
            text(reader, &fields, "store").map(SecretSource::Store),
            text(reader, &fields, "env").map(SecretSource::Env),
            text(reader, &fields, "file").map(SecretSource::File),
        ];
        let mut sources = sources.into_iter().flatten();
        match (sources.next(), sources.next()) {
            (Some(source), None) => secrets.push(SecretConfig { name, source }),
            _ => reader.problem(&entry, "expected one of `store`, `env` and `file`"),
        }
    }
    secrets
}

fn ports(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<PortsConfig> {
    let fields = reader.fields(field, PORTS_FIELDS)?;
    let mut list = |name: &str| {
        let field = fields.get(name);
        let items = field.map_or_else(Vec::new, |field| reader.list(&field));
        items
            .iter()
            .filter_map(|item| forward(reader, item))
            .collect()
    };
    Some(PortsConfig {
        to_host: list("toHost"),
        to_runner: list("toRunner"),
    })
}

fn forward(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Forward> {
    let fields = reader.fields(field, FORWARD_FIELDS)?;
    let listen = reader.required(&fields, "listen");
    let listen = listen.and_then(|field| endpoint(reader, &field));
    let connect = reader.required(&fields, "connect");
    let connect = connect.and_then(|field| endpoint(reader, &field));
    let env = fields.get("env").and_then(|field| reader.line(&field));
    Some(Forward {
        listen: listen?,
        connect: connect?,
        env,
    })
}

fn endpoint(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<String> {
    let place = reader.line(field)?;
    if !place.starts_with('/') && place.parse::<std::net::SocketAddr>().is_err() {
        reader.problem(
            field,
            "expected an address with a port, such as `127.0.0.1:8080`, or a socket's absolute path",
        );
        return None;
    }
    Some(place)
}

fn mcp(reader: &mut Reader<'_>, field: &Field<'_>) -> Vec<McpConfig> {
    let mut servers = Vec::new();
    for (key, entry) in reader.entries(field) {
        let Some(fields) = reader.fields(&entry, MCP_FIELDS) else {
            continue;
        };
        let argv = fields.get("command");
        let argv = argv.map(|field| settings::command(reader, &field));
        let url = text(reader, &fields, "url");
        let table = |name: &str, reader: &mut Reader<'_>| {
            let field = fields.get(name);
            field.map_or_else(BTreeMap::new, |field| strings(reader, &field))
        };
        let transport = match (argv, url) {
            (Some(Some(argv)), None) => McpTransport::Command {
                argv,
                env: table("env", reader),
            },
            (None, Some(url)) => McpTransport::Http {
                url,
                headers: table("headers", reader),
            },
            (Some(None), None) => continue,
            _ => {
                reader.problem(&entry, "expected either `command` or `url`");
                continue;
            }
        };
        servers.push(McpConfig {
            name: key.name.clone(),
            transport,
        });
    }
    servers
}

fn strings(reader: &mut Reader<'_>, field: &Field<'_>) -> BTreeMap<String, String> {
    let entries = reader.entries(field).into_iter();
    entries
        .filter_map(|(key, entry)| Some((key.name.clone(), reader.value(&entry)?)))
        .collect()
}

fn script(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<ScriptConfig> {
    if let Value::Text(_) = field.node.value {
        return Some(ScriptConfig {
            file: script_file(reader, field)?,
            name: None,
            config: Json::Null,
        });
    }
    let fields = reader.fields(field, SCRIPT_FIELDS)?;
    let file = reader.required(&fields, "file");
    let file = file.and_then(|field| script_file(reader, &field));
    let name = fields.get("name").and_then(|field| reader.line(&field));
    let config = fields.get("config");
    let config = config.map_or(Json::Null, |field| json(field.node));
    Some(ScriptConfig {
        file: file?,
        name,
        config,
    })
}

fn script_file(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<String> {
    const ENDINGS: [&str; 4] = [".js", ".mjs", ".ts", ".mts"];
    let file = reader.text(field)?;
    if !ENDINGS.iter().any(|ending| file.ends_with(ending)) {
        let endings = ENDINGS.join(", ");
        reader.problem(field, format!("expected a script's file: one of {endings}"));
        return None;
    }
    Some(file)
}

/// A script's own configuration has no form that we know.
fn json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Whole(value) => Json::from(*value),
        Value::Decimal(value) => Json::from(*value),
        Value::Text(text) => Json::String(text.clone()),
        Value::List(nodes) => nodes.iter().map(json).collect(),
        Value::Map(entries) => {
            let entries = entries.iter();
            Json::Object(
                entries
                    .map(|(key, node)| (key.name.clone(), json(node)))
                    .collect(),
            )
        }
    }
}
