//! The plug that makes the sandbox the host of everything after it (R4).

use std::{
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    sync::Arc,
};

use async_trait::async_trait;
use bulkhead_host::{ExitStatus, SandboxHost};
use bulkhead_model::{SandboxId, Stage};
use bulkhead_sandbox::{
    Bind, BoundSocket, Cause, ExitStatus as SandboxStatus, Listener, Plan, Workspace,
};
use tokio::sync::oneshot;

use crate::{
    agents::BULKHEAD_INSIDE,
    hosts,
    plug::{Ctx, Ended, Plug, PlugError},
    wire::Delivery,
};

/// The ports that the sandbox's network door listens on, in the order of the plan's listeners.
pub(super) const PROXY: u16 = 3128;
pub(super) const DNS: u16 = 53;
pub(super) const GATEWAY: u16 = 7080;

pub(super) struct SandboxPlug {
    host: Arc<SandboxHost>,
}

impl SandboxPlug {
    /// Describes the phase's sandbox; the receiver gets its sockets when it stands.
    pub(super) fn new(delivery: &Delivery) -> (Self, oneshot::Receiver<Vec<BoundSocket>>) {
        let (sender, receiver) = oneshot::channel();
        let hand_over = Box::new(move |sockets| {
            // Where the door is gone already, so is the phase.
            drop(sender.send(sockets));
        });
        let host = SandboxHost::new(hosts::engine(&delivery.machine), plan(delivery), hand_over);
        let host = Arc::new(host);
        (Self { host }, receiver)
    }
}

#[async_trait]
impl Plug for SandboxPlug {
    fn name(&self) -> &str {
        "sandbox"
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        self.host.connect().await?;
        ctx.out.stage(Stage::SandboxReady).await;
        ctx.set_host(self.host.clone());
        Ok(())
    }

    /// By the sandbox's init: a process that is started for it could be stopped by those it is to end.
    async fn clear_away(&self) -> Result<(), PlugError> {
        Ok(self.host.clear().await?)
    }

    /// Everything inside is killed, and the outcome is read, whatever state the sandbox is in.
    async fn teardown(&mut self, ctx: &mut Ctx, ended: Ended) -> Result<(), PlugError> {
        let cause = match ended {
            Ended::Finished(ExitStatus::Code(code)) => Cause::Finished(SandboxStatus::Code(code)),
            Ended::Finished(ExitStatus::Signal(signal)) => {
                Cause::Finished(SandboxStatus::Signal(signal))
            }
            Ended::Finished(ExitStatus::HostEnded) => Cause::Finished(SandboxStatus::SandboxEnded),
            Ended::Idle => Cause::Idle,
            Ended::Cancelled | Ended::Paused => Cause::Cancelled,
        };
        ctx.results.outcome = self.host.end(cause).await;
        if ctx.results.outcome.is_some() {
            ctx.out.stage(Stage::SandboxGone).await;
        }
        Ok(())
    }
}

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
}

/// Proxy and names, in the order in which the door takes them.
pub(crate) fn listeners() -> Vec<Listener> {
    vec![
        Listener::tcp(loopback(PROXY)),
        Listener::udp(loopback(DNS)),
        Listener::tcp(loopback(DNS)),
    ]
}

fn plan(delivery: &Delivery) -> Plan {
    let order = &delivery.order;
    let id = SandboxId::from_uuid(uuid::Uuid::now_v7());
    let mut plan = Plan::new(id, order.limits, Workspace::Image);
    plan.listeners = listeners();
    plan.listeners.push(Listener::tcp(loopback(GATEWAY)));
    plan.binds = order.toolchains.iter().map(Bind::same_path).collect();
    if let Some(program) = &delivery.program {
        plan.binds.push(Bind::own_program(program, BULKHEAD_INSIDE));
    }
    plan
}
