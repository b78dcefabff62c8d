//! The plug that serves the sandbox's one way out (D5): proxy, DNS, and the forward to the phase gateway.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use bulkhead_door::{Door, DoorConfig, DoorLimits, DoorListeners, Forward};
use bulkhead_egress::{AllowPrivate, DnsResolver, Egress, EgressConfig, UpstreamProxy};
use bulkhead_model::{NetworkPolicy, PhaseEvent};
use bulkhead_sandbox::BoundSocket;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use crate::{
    outbox::Outbox,
    plug::{Ctx, Ended, Grant, Plug, PlugError, TimeLimits},
    wire::Machine,
    words::chain,
};

/// Decisions that wait to be told; the door counts what does not fit.
const DECISIONS: usize = 64;

/// How long standing connections may go on after the agent's end.
const GRACE: Duration = Duration::from_millis(100);

pub(super) struct DoorPlug {
    listeners: Option<oneshot::Receiver<Vec<BoundSocket>>>,
    settings: Arc<DoorSettings>,
    opens: Opens,
    door: Arc<OnceLock<Door>>,
    telling: TaskTracker,
}

/// What the door lets through, and how.
#[derive(Debug)]
pub(super) struct DoorSettings {
    pub(super) network: NetworkPolicy,
    pub(super) machine: Machine,
    /// The phase gateway, where there is one.
    pub(super) gateway: Option<PathBuf>,
}

/// When the door opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opens {
    /// The sandbox stands by now.
    Now,
    /// As soon as a first use builds the sandbox (H2).
    WhenItStands,
}

impl DoorPlug {
    pub(super) fn new(
        listeners: oneshot::Receiver<Vec<BoundSocket>>,
        settings: DoorSettings,
        opens: Opens,
    ) -> Self {
        Self {
            listeners: Some(listeners),
            settings: Arc::new(settings),
            opens,
            door: Arc::default(),
            telling: TaskTracker::new(),
        }
    }
}

#[async_trait]
impl Plug for DoorPlug {
    fn name(&self) -> &str {
        "door"
    }

    fn limits(&self) -> TimeLimits {
        TimeLimits::of(Duration::from_secs(10))
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        let Some(listeners) = self.listeners.take() else {
            return Ok(());
        };
        ctx.grant(Grant::Other {
            words: lets_through(&self.settings.network),
        });
        if self.opens == Opens::Now {
            let sockets = listeners.await.unwrap_or_default();
            let door = open(sockets, &self.settings, &ctx.out, &self.telling)?;
            // Nobody else sets it.
            let _ = self.door.set(door);
            return Ok(());
        }
        let (settings, door) = (Arc::clone(&self.settings), Arc::clone(&self.door));
        let (out, telling) = (ctx.out.clone(), self.telling.clone());
        self.telling.spawn(async move {
            // Where the sandbox is never built, this ends with its description.
            let Ok(sockets) = listeners.await else { return };
            match open(sockets, &settings, &out, &telling) {
                Ok(opened) => drop(door.set(opened)),
                Err(error) => out.say(&format!("the door: {}", chain(&error))).await,
            }
        });
        Ok(())
    }

    async fn teardown(&mut self, _: &mut Ctx, _: Ended) -> Result<(), PlugError> {
        if let Some(door) = Arc::get_mut(&mut self.door).and_then(OnceLock::take) {
            door.stop(GRACE).await;
        }
        self.telling.close();
        if self.opens == Opens::Now {
            self.telling.wait().await;
        }
        Ok(())
    }
}

/// The network as the agent has it, in words for the isolation summary (H16).
fn lets_through(policy: &NetworkPolicy) -> String {
    if policy.allow.is_empty() {
        return "no way out: the network door lets nothing through".to_owned();
    }
    let rules: Vec<_> = policy.allow.iter().map(ToString::to_string).collect();
    format!("the network door lets through {}", rules.join(", "))
}

fn open(
    sockets: Vec<BoundSocket>,
    settings: &DoorSettings,
    out: &Outbox,
    telling: &TaskTracker,
) -> Result<Door, PlugError> {
    let listeners = sorted(sockets, settings.gateway.as_deref())?;
    let (log, decisions) = mpsc::channel(DECISIONS);
    let config = DoorConfig {
        policy: settings.network.clone(),
        egress: egress(&settings.machine)?,
        limits: DoorLimits::default(),
        log,
    };
    telling.spawn(tell(decisions, out.clone()));
    Door::serve(config, listeners).map_err(|error| PlugError::because("opening it", error))
}

/// The sockets come in the order of the plan's listeners.
fn sorted(
    sockets: Vec<BoundSocket>,
    gateway_socket: Option<&Path>,
) -> Result<DoorListeners, PlugError> {
    let mut sockets = sockets.into_iter();
    let three = (sockets.next(), sockets.next(), sockets.next());
    let (
        Some(BoundSocket::Tcp(proxy)),
        Some(BoundSocket::Udp(dns_udp)),
        Some(BoundSocket::Tcp(dns_tcp)),
    ) = three
    else {
        let words = "the sandbox did not hand over its listeners";
        return Err(PlugError::words(words));
    };
    let forwards = match (sockets.next(), gateway_socket) {
        (Some(BoundSocket::Tcp(listener)), Some(path)) => vec![Forward {
            listener,
            path: path.to_owned(),
        }],
        _ => vec![],
    };
    Ok(DoorListeners {
        proxy: Some(proxy),
        dns_udp: Some(dns_udp),
        dns_tcp: Some(dns_tcp),
        forwards,
    })
}

fn egress(machine: &Machine) -> Result<Egress, PlugError> {
    let proxy = machine.proxy.as_ref().map(UpstreamProxy::from_url);
    let config = EgressConfig {
        allow_private: AllowPrivate::hosts(&machine.allow_private)
            .map_err(|error| PlugError::because("reading the hosts that may be private", error))?,
        upstream_proxy: proxy
            .transpose()
            .map_err(|error| PlugError::because("reading the operator's proxy", error))?,
        ..EgressConfig::default()
    };
    Ok(Egress::new(config, DnsResolver::system()))
}

async fn tell(mut decisions: mpsc::Receiver<bulkhead_door::DecisionRecord>, out: Outbox) {
    while let Some(record) = decisions.recv().await {
        let why = match record.count {
            1 => record.why,
            count => format!("{} ({count} times)", record.why),
        };
        let event = PhaseEvent::Egress {
            allowed: record.allowed,
            host: record.host,
            port: record.port,
            why,
        };
        out.event(event).await;
    }
}
