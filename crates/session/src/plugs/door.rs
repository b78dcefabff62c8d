//! The plug that serves the sandbox's one way out (D5): proxy, DNS, and the forward to the phase gateway.

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use bulkhead_door::{Door, DoorConfig, DoorLimits, DoorListeners, Forward};
use bulkhead_egress::{AllowPrivate, DnsResolver, Egress, EgressConfig, UpstreamProxy};
use bulkhead_model::PhaseEvent;
use bulkhead_sandbox::BoundSocket;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use crate::{
    outbox::Outbox,
    plug::{Ctx, Ended, Plug, PlugError, TimeLimits},
    wire::{Delivery, Machine},
};

/// Decisions that wait to be told; the door counts what does not fit.
const DECISIONS: usize = 64;

/// How long standing connections may go on after the agent's end.
const GRACE: Duration = Duration::from_millis(100);

pub(super) struct DoorPlug {
    listeners: Option<oneshot::Receiver<Vec<BoundSocket>>>,
    delivery: Arc<Delivery>,
    door: Option<Door>,
    telling: TaskTracker,
}

impl DoorPlug {
    pub(super) fn new(
        listeners: oneshot::Receiver<Vec<BoundSocket>>,
        delivery: Arc<Delivery>,
    ) -> Self {
        Self {
            listeners: Some(listeners),
            delivery,
            door: None,
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
        let sockets = match self.listeners.take() {
            Some(listeners) => listeners.await.unwrap_or_default(),
            None => vec![],
        };
        let listeners = sorted(sockets, &self.delivery.gateway_socket)?;
        let (log, decisions) = mpsc::channel(DECISIONS);
        let config = DoorConfig {
            policy: self.delivery.order.network.clone(),
            egress: egress(&self.delivery.machine)?,
            limits: DoorLimits::default(),
            log,
        };
        self.telling.spawn(tell(decisions, ctx.out.clone()));
        let door = Door::serve(config, listeners)
            .map_err(|error| PlugError::because("opening it", error))?;
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
fn sorted(sockets: Vec<BoundSocket>, gateway_socket: &Path) -> Result<DoorListeners, PlugError> {
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
                path: gateway_socket.to_owned(),
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
