//! The service that the commands speak to: one of their own in a private directory, or one that runs already.

use std::{fs::Permissions, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc};

use anyhow::{Context as _, Result};
use bulkhead_egress::{AllowPrivate, DnsResolver, Egress, EgressConfig, Tls, UpstreamProxy};
use bulkhead_isolates::{
    broker::Broker,
    calls::{HostFunctions, rehearsal::Rehearsal},
    client::Client,
    fetch::Fetch,
    host_calls::HostCalls,
    server::{Listen, ListenError, serve},
    settings::Settings,
    zygotes::{ZygoteSettings, Zygotes},
};
use tokio::{sync::oneshot, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    cli::{Global, PluginPlace},
    config::OperatorConfig,
    environment,
    failure::Misuse,
};

/// One author needs few processes ahead.
const STANDBY: usize = 2;
const PROCESSES_MAX: usize = 64;

pub(super) struct Service {
    pub(super) client: Client,
    /// Where replies can be written for it: not for a service of somebody else.
    pub(super) rehearsal: Option<Arc<Rehearsal>>,
    own: Option<Own>,
}

struct Own {
    stop: CancellationToken,
    zygotes: Arc<Zygotes>,
    serving: JoinSet<Result<(), ListenError>>,
    _directory: tempfile::TempDir,
}

impl Service {
    pub(super) async fn open(place: &PluginPlace, global: &Global) -> Result<Self> {
        match &place.service {
            Some(socket) => {
                let client = connect(socket).await?;
                Ok(Self {
                    client,
                    rehearsal: None,
                    own: None,
                })
            }
            None => Self::start(place, global).await,
        }
    }

    async fn start(place: &PluginPlace, global: &Global) -> Result<Self> {
        let operator = OperatorConfig::load(global)?;
        let functions = HostFunctions::new(fetch(&operator, &place.allow_private)?);
        let rehearsal = Arc::new(Rehearsal::new(functions));
        let settings = ZygoteSettings {
            standby: STANDBY,
            processes_max: PROCESSES_MAX,
            ..ZygoteSettings::new(javascript_program()?)
        };
        let zygotes = Arc::new(
            Zygotes::start(settings)
                .await
                .context("starting the plugins' service")?,
        );
        let host_calls = Arc::clone(&rehearsal) as Arc<dyn HostCalls>;
        let broker = Arc::new(Broker::new(
            Settings::default(),
            Arc::clone(&zygotes) as _,
            host_calls,
        ));
        let directory = tempfile::Builder::new()
            .prefix("bulkhead-plugin-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .context("making a directory for the plugins' service")?;
        let socket = directory.path().join("isolates.sock");
        let stop = CancellationToken::new();
        let (listening, listens) = oneshot::channel();
        let mut serving = JoinSet::new();
        let served = serve(
            broker,
            Listen::Unix(socket.clone()),
            stop.clone(),
            move |_| {
                // Whoever gave up waiting needs no news.
                let _ = listening.send(());
            },
        );
        serving.spawn(served);
        if listens.await.is_err() {
            let ended = serving
                .join_next()
                .await
                .context("the plugins' service never began")?;
            ended?.context("starting the plugins' service")?;
        }
        Ok(Self {
            client: connect(&socket).await?,
            rehearsal: Some(rehearsal),
            own: Some(Own {
                stop,
                zygotes,
                serving,
                _directory: directory,
            }),
        })
    }

    /// Ends a service of our own, and all that it made.
    pub(super) async fn close(self) {
        let Some(mut own) = self.own else { return };
        drop(self.client);
        own.stop.cancel();
        while let Some(ended) = own.serving.join_next().await {
            if let Ok(Err(error)) = ended {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "ending the plugins' service"
                );
            }
        }
        own.zygotes.stop().await;
    }
}

async fn connect(socket: &Path) -> Result<Client> {
    let client = Client::unix(socket).await;
    client.with_context(|| format!("reaching the plugins' service at unix:{}", socket.display()))
}

pub(crate) fn fetch(operator: &OperatorConfig, allow_private: &[String]) -> Result<Fetch> {
    let hosts = operator.allow_private.iter().chain(allow_private);
    let allow_private = AllowPrivate::hosts(hosts)
        .map_err(|error| Misuse::usage(format!("a host that may be private: {error}")))?;
    let proxy = operator.proxy_secret();
    let upstream_proxy = proxy.as_ref().map(UpstreamProxy::from_url).transpose()?;
    let config = EgressConfig {
        allow_private,
        upstream_proxy,
        ..EgressConfig::default()
    };
    let pem = operator.ca_pem()?;
    let tls = Tls::with_extra(pem.as_deref().map(str::as_bytes))?;
    Ok(Fetch::new(Egress::new(config, DnsResolver::system()), tls))
}

pub(crate) fn javascript_program() -> Result<std::path::PathBuf> {
    let program = environment::own_program()?.with_file_name("bulkhead-js");
    if program.is_file() {
        return Ok(program);
    }
    let what = format!("{} is not there, and plugins run in it", program.display());
    Err(Misuse::usage_hint(what, "install `bulkhead-js` beside `bulkhead`").into())
}
