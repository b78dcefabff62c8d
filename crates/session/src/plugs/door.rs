//! The plug that serves the sandbox's one way out (D5): proxy, DNS, and the forward to the phase gateway.

use std::time::Duration;

use async_trait::async_trait;
use bulkhead_door::{Door, DoorConfig, DoorLimits, DoorListeners, Forward};
use bulkhead_egress::{AllowPrivate, DnsResolver, Egress, EgressConfig, UpstreamProxy};
use bulkhead_model::PhaseEvent;
use bulkhead_sandbox::BoundSocket;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::{Ctx, Ended, Plug, PlugError};
use crate::{outbox::Outbox, wire::Machine};

/// Decisions that wait to be told; the door counts what does not fit.
const DECISIONS: usize = 64;

/// How long standing connections may go on after the agent's end.
const GRACE: Duration = Duration::from_millis(100);

pub(super) struct DoorPlug {
    listeners: Option<oneshot::Receiver<Vec<BoundSocket>>>,
    door: Option<Door>,
    telling: TaskTracker,
}

impl DoorPlug {
    pub(super) fn new(listeners: oneshot::Receiver<Vec<BoundSocket>>) -> Self {
        Self {
            listeners: Some(listeners),
            door: None,
            telling: TaskTracker::new(),
        }
    }
}

#[async_trait]
impl Plug for DoorPlug {
    fn name(&self) -> &'static str {
        "door"
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(10)
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        let sockets = match self.listeners.take() {
            Some(listeners) => listeners.await.unwrap_or_default(),
            None => vec![],
        };
        let listeners = sorted(sockets, ctx)?;
        let (log, decisions) = mpsc::channel(DECISIONS);
        let config = DoorConfig {
            policy: ctx.delivery.order.network.clone(),
            egress: egress(&ctx.delivery.machine)?,
            limits: DoorLimits::default(),
            log,
        };
        self.telling.spawn(tell(decisions, ctx.out.clone()));
        let door = Door::serve(config, listeners).map_err(|error| because("opening it", error))?;
        self.door = Some(door);
        Ok(())
    }

    async fn teardown(&mut self, _: &mut Ctx, _: Ended) -> Result<(), PlugError> {
        if let Some(door) = self.door.take() {
            door.stop(GRACE).await;
        }
        self.telling.close();
        self.telling.wait().await;
        Ok(())
    }
}

/// The sockets come in the order of the plan's listeners.
fn sorted(sockets: Vec<BoundSocket>, ctx: &Ctx) -> Result<DoorListeners, PlugError> {
    match <[BoundSocket; 4]>::try_from(sockets) {
        Ok(
            [
                BoundSocket::Tcp(proxy),
                BoundSocket::Udp(dns_udp),
                BoundSocket::Tcp(dns_tcp),
                BoundSocket::Tcp(gateway),
            ],
        ) => Ok(DoorListeners {
            proxy: Some(proxy),
            dns_udp: Some(dns_udp),
            dns_tcp: Some(dns_tcp),
            forwards: vec![Forward {
                listener: gateway,
                path: ctx.delivery.gateway_socket.clone(),
            }],
        }),
        _ => Err(PlugError::Words(
            "the sandbox did not hand over its listeners".to_owned(),
        )),
    }
}

fn egress(machine: &Machine) -> Result<Egress, PlugError> {
    let proxy = machine.proxy.as_ref().map(UpstreamProxy::from_url);
    let config = EgressConfig {
        allow_private: AllowPrivate::hosts(&machine.allow_private)
            .map_err(|error| because("reading the hosts that may be private", error))?,
        upstream_proxy: proxy
            .transpose()
            .map_err(|error| because("reading the operator's proxy", error))?,
        ..EgressConfig::default()
    };
    Ok(Egress::new(config, DnsResolver::system()))
}

fn because(what: &'static str, error: impl std::error::Error + Send + Sync + 'static) -> PlugError {
    PlugError::Because {
        what,
        source: Box::new(error),
    }
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
