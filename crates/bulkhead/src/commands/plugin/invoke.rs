//! One call of one handler, from files to its outcome.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use anyhow::{Context as _, Result};
use bulkhead_isolates::calls::rehearsal::{Made, Network, Reply};
use bulkhead_model::plugin::{
    Demands, InvocationKind, InvocationLimits,
    manifest::{EffectiveEgress, Handler, Permission},
};
use bulkhead_wire::isolates::{
    self, CheckRequest, Checked, Fault, Kind, Log, NotRun, Start, check_response::Outcome,
};
use serde_json::{Map, Value};

use super::{local_platform::LocalPlatform, service::Service, source::Source};
use crate::{failure::Misuse, output::Output};

/// What the service made of the module.
pub(super) enum Loaded {
    Good(Checked),
    Fault(Fault),
}

/// Loads the module. Where the service cannot, that is no fault of the plugin's.
pub(super) async fn load(service: &Service, source: &Source) -> Result<Loaded> {
    let handlers = source.manifest.handlers();
    let request = CheckRequest {
        file: source.manifest.entry.clone(),
        source: source.text.clone(),
        handlers: handlers
            .into_iter()
            .map(|handler| isolates::Handler { path: handler.path })
            .collect(),
    };
    let response = service
        .client
        .check(request)
        .await
        .context("checking the module")?;
    match response.outcome.context("the service's answer is empty")? {
        Outcome::Checked(checked) => Ok(Loaded::Good(checked)),
        Outcome::Fault(fault) => Ok(Loaded::Fault(fault)),
        Outcome::NotRun(not_run) => Err(not_loaded(&not_run)),
    }
}

fn not_loaded(not_run: &NotRun) -> anyhow::Error {
    anyhow::anyhow!("the service did not load the module: {}", not_run.message)
}

/// What one call needs.
pub(super) struct Order {
    pub(super) handler: Handler,
    pub(super) input: Value,
    /// Complete.
    pub(super) settings: Map<String, Value>,
    pub(super) secrets: BTreeMap<String, String>,
    /// None: what is asked goes out, and the rest is `unavailable`.
    pub(super) script: Option<(Vec<Reply>, Network)>,
}

pub(super) struct Ended {
    pub(super) result: isolates::Result,
    pub(super) logs: Vec<Log>,
    /// What was asked of `host`; only where there were replies.
    pub(super) made: Vec<Made>,
    pub(super) limits: InvocationLimits,
}

/// Names of invocations, for the logs of the service.
static LAST: AtomicU32 = AtomicU32::new(0);

pub(super) async fn invoke(
    service: &Service,
    source: &Source,
    checked: &Checked,
    order: Order,
    live: Option<Output>,
) -> Result<Ended> {
    let name = format!(
        "author-{}-{}",
        std::process::id(),
        LAST.fetch_add(1, Relaxed)
    );
    if let Some((replies, network)) = order.script {
        let rehearsal = service.rehearsal.as_ref().ok_or_else(|| {
            Misuse::usage_hint(
                "replies are only for a service of the command's own",
                "leave out --service",
            )
        })?;
        rehearsal.prepare(&name, replies, network);
    }
    let limits = limits(source, &order.handler);
    let start = start(
        source,
        checked,
        &name,
        &order.handler,
        &order.input,
        &order.settings,
        &order.secrets,
    )?;
    let platform = Arc::new(LocalPlatform::new(order.secrets, live));
    let bundle: Arc<str> = checked.javascript.as_str().into();
    let result = service
        .client
        .invoke(start, bundle, Arc::clone(&platform) as _)
        .await;
    let made = service
        .rehearsal
        .as_ref()
        .map(|rehearsal| rehearsal.finish(&name));
    Ok(Ended {
        result: result.context("calling the handler")?,
        logs: platform.logs(),
        made: made.unwrap_or_default(),
        limits,
    })
}

pub(super) fn limits(source: &Source, handler: &Handler) -> InvocationLimits {
    let names = permissions(source);
    let demands = Demands {
        transcodes: Demands::transcoding(&names),
        ssh_commands: handler.command_timeouts.clone(),
        attachments: 0,
    };
    InvocationLimits::of(handler.kind, &demands)
}

fn permissions(source: &Source) -> Vec<String> {
    let held = source.manifest.permissions.iter();
    held.map(|permission| Permission::name(*permission).to_owned())
        .collect()
}

fn start(
    source: &Source,
    checked: &Checked,
    name: &str,
    handler: &Handler,
    input: &Value,
    settings: &Map<String, Value>,
    secrets: &BTreeMap<String, String>,
) -> Result<Start> {
    let EffectiveEgress { policy, named } = source
        .manifest
        .egress(settings)
        .map_err(|error| Misuse::usage(error.to_string()))?;
    let declared = source.manifest.secrets.keys();
    let seconds = handler
        .command_timeouts
        .iter()
        .map(|timeout| u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX));
    Ok(Start {
        invocation: name.to_owned(),
        installation: format!("author-{}", source.manifest.name),
        kind: kind(handler.kind).into(),
        handler: handler.path.clone(),
        input_json: input.to_string(),
        settings_json: serde_json::to_string(settings)?,
        secrets: declared
            .filter(|name| secrets.contains_key(*name))
            .cloned()
            .collect(),
        egress: policy.allow.iter().map(ToString::to_string).collect(),
        installer_hosts: named.iter().map(ToString::to_string).collect(),
        permissions: permissions(source),
        token: "author".to_owned(),
        bundle_sha256: checked.bundle_sha256.clone(),
        file: source.manifest.entry.clone(),
        lower: None,
        ssh_command_timeouts_s: seconds.collect(),
        attachments: 0,
    })
}

const fn kind(kind: InvocationKind) -> Kind {
    match kind {
        InvocationKind::Tool => Kind::Tool,
        InvocationKind::Middleware => Kind::Middleware,
        InvocationKind::Lifecycle => Kind::Lifecycle,
        InvocationKind::WebSearch => Kind::WebSearch,
        InvocationKind::WebFetch => Kind::WebFetch,
        InvocationKind::ChatComplete => Kind::ChatComplete,
        InvocationKind::Compaction => Kind::Compaction,
        InvocationKind::Decision => Kind::Decision,
        InvocationKind::Speak => Kind::Speak,
        InvocationKind::Voices => Kind::Voices,
        InvocationKind::Transcribe => Kind::Transcribe,
        InvocationKind::ChannelReceive => Kind::ChannelReceive,
        InvocationKind::ChannelSend => Kind::ChannelSend,
        InvocationKind::ConnectionOpen => Kind::ConnectionOpen,
        InvocationKind::ConnectionReceive => Kind::ConnectionReceive,
        InvocationKind::ConnectionTimer => Kind::ConnectionTimer,
        InvocationKind::SshHook => Kind::SshHook,
    }
}

/// The handler that somebody named.
pub(super) fn handler(source: &Source, way: &str) -> Result<Handler> {
    source.manifest.handler(way).ok_or_else(|| {
        let all: Vec<_> = source
            .manifest
            .handlers()
            .iter()
            .map(|handler| handler.path.join("."))
            .collect();
        let nearest = bulkhead_model::workflow::nearest(way, all.iter().map(String::as_str));
        let nearest = nearest.map_or_else(String::new, |nearest| {
            format!("; did you mean `{nearest}`?")
        });
        let what = format!(
            "the manifest promises no handler `{way}`: expected one of {}{nearest}",
            all.join(", ")
        );
        Misuse::usage(what).into()
    })
}

/// Reads a JSON file of texts by name, which nobody else may read.
pub(super) fn secrets(source: &Source, file: Option<&Path>) -> Result<BTreeMap<String, String>> {
    use std::os::unix::fs::PermissionsExt as _;
    let Some(file) = file else {
        return Ok(BTreeMap::new());
    };
    let mode = std::fs::metadata(file)
        .map(|metadata| metadata.permissions().mode())
        .unwrap_or_default();
    if mode & 0o077 != 0 {
        let what = format!("others can read {}, which has secrets", file.display());
        return Err(Misuse::usage_hint(what, format!("chmod 600 {}", file.display())).into());
    }
    let given: BTreeMap<String, String> = super::source::json(file)?;
    declared(source, given)
}

/// Only secrets that the manifest declares.
pub(super) fn declared(
    source: &Source,
    given: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>> {
    match given
        .keys()
        .find(|name| !source.manifest.secrets.contains_key(*name))
    {
        None => Ok(given),
        Some(name) => {
            let what = format!("the manifest declares no secret `{name}`");
            Err(Misuse::usage_hint(what, "add it to `secrets` in plugin.json").into())
        }
    }
}
