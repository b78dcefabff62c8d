//! What a plugin offers. Each capability means exports of the plugin's module, and each export is called for one kind of
//! invocation, whose limits it has:
//!
//! | capability | exports |
//! |---|---|
//! | `tools` | `tools.NAME` |
//! | `middleware` | `middleware.HOOK` |
//! | `events` | `events.EVENT` |
//! | `webSearch`, `webFetch` | `webSearch`, `webFetch` |
//! | `compaction` | `compaction.summarize` |
//! | `modelProvider` | `modelProvider.complete` |
//! | `channels` | `channels.NAME.receive`, `channels.NAME.send` |
//! | `decisions` | `decisions.noul`, `decisions.choose`, `decisions.score` |
//! | `voice` | `voice.speak`, `voice.voices`, `voice.transcribe` |
//! | `media` | `media.NAME` |
//! | `sshHooks` | `sshHooks.NAME` |
//! | `liveConnection` | `liveConnection.open`, `liveConnection.receive`, `liveConnection.timer` |

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value as Json;

use super::read::{check_word, prose};
use crate::{
    plugin::InvocationKind,
    workflow::{
        node::Value,
        reader::{Field, Reader},
    },
};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Capabilities {
    pub tools: BTreeMap<String, Tool>,
    pub middleware: Vec<Hook>,
    pub events: Vec<Event>,
    pub web_search: bool,
    pub web_fetch: bool,
    pub compaction: bool,
    pub model_provider: bool,
    pub channels: BTreeMap<String, Channel>,
    pub decisions: Vec<Verdict>,
    pub voice: Vec<VoiceFunction>,
    /// What it does with media, by name.
    pub media: BTreeMap<String, String>,
    pub ssh_hooks: BTreeMap<String, SshHook>,
    pub live_connection: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// For the model.
    pub description: String,
    /// A JSON Schema of the handler's argument.
    pub input: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    pub label: Option<String>,
    pub description: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshHook {
    pub description: Option<String>,
    /// Of the commands that it runs; they raise its time limit.
    pub command_timeouts: Vec<Duration>,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident: $($variant:ident = $word:literal),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($variant),+
        }

        impl $name {
            pub const ALL: &[(&str, Self)] = &[$(($word, Self::$variant)),+];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }
    };
}

words!(
    /// A step of an agent's turn that middleware stands at.
    Hook:
    BeforeTurn = "beforeTurn",
    AfterTurn = "afterTurn",
    BeforeModel = "beforeModel",
    AfterModel = "afterModel",
    BeforeTool = "beforeTool",
    AfterTool = "afterTool",
);

words!(
    /// What happens to a plugin or its chats.
    Event:
    Installed = "installed",
    Updated = "updated",
    Uninstalled = "uninstalled",
    SettingsChanged = "settingsChanged",
    SessionStarted = "sessionStarted",
    SessionEnded = "sessionEnded",
    Timer = "timer",
);

words!(
    /// A kind of decision.
    Verdict:
    Noul = "noul",
    Choose = "choose",
    Score = "score",
);

words!(
    /// What a plugin does with speech.
    VoiceFunction:
    Speak = "speak",
    Voices = "voices",
    Transcribe = "transcribe",
);

/// One export that is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handler {
    /// The way to it from the module's exports.
    pub path: Vec<String>,
    pub kind: InvocationKind,
    /// The time-outs of an ssh hook's commands.
    pub command_timeouts: Vec<Duration>,
}

impl Handler {
    fn new(path: &[&str], kind: InvocationKind) -> Self {
        Self {
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            kind,
            command_timeouts: Vec::new(),
        }
    }
}

impl Capabilities {
    pub(super) fn handlers(&self) -> Vec<Handler> {
        use InvocationKind as Kind;
        let mut handlers = Vec::new();
        let mut add = |path: &[&str], kind| handlers.push(Handler::new(path, kind));
        self.tools
            .keys()
            .for_each(|name| add(&["tools", name], Kind::Tool));
        self.middleware
            .iter()
            .for_each(|hook| add(&["middleware", hook.name()], Kind::Middleware));
        self.events
            .iter()
            .for_each(|event| add(&["events", event.name()], Kind::Lifecycle));
        let single = [
            (self.web_search, &["webSearch"][..], Kind::WebSearch),
            (self.web_fetch, &["webFetch"], Kind::WebFetch),
            (
                self.compaction,
                &["compaction", "summarize"],
                Kind::Compaction,
            ),
            (
                self.model_provider,
                &["modelProvider", "complete"],
                Kind::ChatComplete,
            ),
            (
                self.live_connection,
                &["liveConnection", "open"],
                Kind::ConnectionOpen,
            ),
            (
                self.live_connection,
                &["liveConnection", "receive"],
                Kind::ConnectionReceive,
            ),
            (
                self.live_connection,
                &["liveConnection", "timer"],
                Kind::ConnectionTimer,
            ),
        ];
        single
            .iter()
            .filter(|(is_there, ..)| *is_there)
            .for_each(|(_, path, kind)| add(path, *kind));
        for name in self.channels.keys() {
            add(&["channels", name, "receive"], Kind::ChannelReceive);
            add(&["channels", name, "send"], Kind::ChannelSend);
        }
        self.decisions
            .iter()
            .for_each(|verdict| add(&["decisions", verdict.name()], Kind::Decision));
        for function in &self.voice {
            let kind = match function {
                VoiceFunction::Speak => Kind::Speak,
                VoiceFunction::Voices => Kind::Voices,
                VoiceFunction::Transcribe => Kind::Transcribe,
            };
            add(&["voice", function.name()], kind);
        }
        self.media
            .keys()
            .for_each(|name| add(&["media", name], Kind::Tool));
        for (name, hook) in &self.ssh_hooks {
            handlers.push(Handler {
                command_timeouts: hook.command_timeouts.clone(),
                ..Handler::new(&["sshHooks", name], Kind::SshHook)
            });
        }
        handlers
    }
}

const FIELDS: &[&str] = &[
    "tools",
    "middleware",
    "events",
    "webSearch",
    "webFetch",
    "compaction",
    "modelProvider",
    "channels",
    "decisions",
    "voice",
    "media",
    "sshHooks",
    "liveConnection",
];
const TOOL_FIELDS: &[&str] = &["description", "input"];
const CHANNEL_FIELDS: &[&str] = &["label", "description"];
const MEDIA_FIELDS: &[&str] = &["description"];
const SSH_HOOK_FIELDS: &[&str] = &["description", "commandTimeoutsS"];
/// P21.
const COMMAND_TIMEOUT_S_MAX: u32 = 90;
const COMMANDS_MAX: usize = 10;

pub(super) fn reader_fields() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        ("Capabilities", FIELDS.to_vec()),
        ("Tool", TOOL_FIELDS.to_vec()),
        ("Channel", CHANNEL_FIELDS.to_vec()),
        ("Media", MEDIA_FIELDS.to_vec()),
        ("SshHook", SSH_HOOK_FIELDS.to_vec()),
    ]
}

pub(super) fn read(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    value: &Json,
) -> Option<Capabilities> {
    let fields = reader.fields(field, FIELDS)?;
    let mut read = Capabilities::default();
    if let Some(field) = fields.get("tools") {
        read.tools = named(reader, &field, "a tool's name", |reader, name, item| {
            tool(reader, item, &value["tools"][name])
        });
    }
    let mut is_there = |name: &str| {
        fields
            .get(name)
            .and_then(|field| reader.truth(&field))
            .unwrap_or_default()
    };
    read.web_search = is_there("webSearch");
    read.web_fetch = is_there("webFetch");
    read.compaction = is_there("compaction");
    read.model_provider = is_there("modelProvider");
    read.live_connection = is_there("liveConnection");
    if let Some(field) = fields.get("middleware") {
        read.middleware = several(reader, &field, "hook", Hook::ALL);
    }
    if let Some(field) = fields.get("events") {
        read.events = several(reader, &field, "event", Event::ALL);
    }
    if let Some(field) = fields.get("decisions") {
        read.decisions = several(reader, &field, "decision", Verdict::ALL);
    }
    if let Some(field) = fields.get("voice") {
        read.voice = several(reader, &field, "voice function", VoiceFunction::ALL);
    }
    if let Some(field) = fields.get("channels") {
        read.channels = named(reader, &field, "a channel's name", |reader, _, item| {
            channel(reader, item)
        });
    }
    if let Some(field) = fields.get("media") {
        read.media = named(
            reader,
            &field,
            "a media function's name",
            |reader, _, item| media(reader, item),
        );
    }
    if let Some(field) = fields.get("sshHooks") {
        read.ssh_hooks = named(reader, &field, "an ssh hook's name", |reader, _, item| {
            ssh_hook(reader, item)
        });
    }
    if read.handlers().is_empty() {
        reader.problem(
            field,
            format!("expected at least one capability of {}", FIELDS.join(", ")),
        );
    }
    Some(read)
}

/// A mapping by names of the author's choice.
fn named<T>(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    what: &str,
    mut read: impl FnMut(&mut Reader<'_>, &str, &Field<'_>) -> Option<T>,
) -> BTreeMap<String, T> {
    let mut all = BTreeMap::new();
    for (key, item) in reader.entries(field) {
        check_word(reader, &item, key.place, &key.name, what);
        if let Some(one) = read(reader, &key.name, &item) {
            all.insert(key.name.clone(), one);
        }
    }
    all
}

/// A list of known words, each at most once.
fn several<T: Copy + PartialEq>(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    kind: &str,
    choices: &[(&str, T)],
) -> Vec<T> {
    let mut all = Vec::new();
    for item in reader.list(field) {
        match reader.choice(&item, kind, choices) {
            Some(one) if all.contains(&one) => reader.problem(&item, "it is listed twice"),
            one => all.extend(one),
        }
    }
    all
}

fn tool(reader: &mut Reader<'_>, field: &Field<'_>, value: &Json) -> Option<Tool> {
    let fields = reader.fields(field, TOOL_FIELDS)?;
    let description = reader.required(&fields, "description");
    let description = description.and_then(|field| prose(reader, &field));
    if let Some(input) = fields.get("input")
        && !matches!(input.node.value, Value::Map(_))
    {
        reader.expected(&input, "a JSON Schema, which is an object");
    }
    let input = value.get("input").cloned();
    description.map(|description| Tool { description, input })
}

fn channel(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<Channel> {
    let fields = reader.fields(field, CHANNEL_FIELDS)?;
    Some(Channel {
        label: fields.get("label").and_then(|field| reader.line(&field)),
        description: fields
            .get("description")
            .and_then(|field| prose(reader, &field)),
    })
}

fn media(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<String> {
    let fields = reader.fields(field, MEDIA_FIELDS)?;
    let description = reader.required(&fields, "description");
    description.and_then(|field| prose(reader, &field))
}

fn ssh_hook(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<SshHook> {
    let fields = reader.fields(field, SSH_HOOK_FIELDS)?;
    let description = fields
        .get("description")
        .and_then(|field| prose(reader, &field));
    let mut command_timeouts = Vec::new();
    if let Some(field) = fields.get("commandTimeoutsS") {
        let items = reader.list(&field);
        if items.len() > COMMANDS_MAX {
            reader.problem(
                &field,
                format!(
                    "expected at most {COMMANDS_MAX} commands, found {}",
                    items.len()
                ),
            );
        }
        for item in items {
            let seconds = reader.whole(&item, 1..=COMMAND_TIMEOUT_S_MAX);
            command_timeouts.extend(seconds.map(|s| Duration::from_secs(s.into())));
        }
    }
    Some(SshHook {
        description,
        command_timeouts,
    })
}
