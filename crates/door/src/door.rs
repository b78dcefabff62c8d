//! The handle of one sandbox's door, and the tasks behind it.

use std::{
    io,
    net::{TcpListener as StdTcpListener, UdpSocket as StdUdpSocket},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use bulkhead_egress::{Egress, Grant};
use bulkhead_model::network::NetworkPolicy;
use tokio::{
    net::{TcpListener, TcpStream, UdpSocket},
    sync::{Semaphore, mpsc},
    time,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::debug;

use crate::{
    dns, forward, http_proxy,
    log::{DecisionLog, DecisionRecord, LogStats},
    relay::RelayLimits,
};

/// Bounds of one door, that is, of one sandbox.
#[derive(Debug, Clone, Copy)]
pub struct DoorLimits {
    /// Connections at one time to the proxy, and as many to each forward. Further ones wait.
    pub connections: usize,
    /// DNS questions being answered at one time. Further ones over UDP are dropped, as a full network would.
    pub dns_questions: usize,
    /// Silence after which a tunnel, forward or kept connection is closed.
    pub idle: Duration,
    /// The longest that one tunnel or forward may live.
    pub total: Duration,
    /// How long an upstream may take to begin its answer to a plain HTTP request.
    pub answer: Duration,
}

impl DoorLimits {
    pub(crate) const fn relay(&self) -> RelayLimits {
        RelayLimits {
            idle: self.idle,
            total: self.total,
        }
    }
}

impl Default for DoorLimits {
    fn default() -> Self {
        Self {
            connections: 256,
            dns_questions: 64,
            idle: Duration::from_secs(15 * 60),
            total: Duration::from_secs(24 * 60 * 60),
            answer: Duration::from_secs(10 * 60),
        }
    }
}

/// What a door lets through, and where its decisions go.
pub struct DoorConfig {
    pub policy: NetworkPolicy,
    pub egress: Egress,
    pub limits: DoorLimits,
    /// Gets the decisions; a small bound (64) is enough, because repetitions are counted and nothing that
    /// does not fit is lost from the counts.
    pub log: mpsc::Sender<DecisionRecord>,
}

/// Listeners that were made inside the sandbox's network namespace. All are optional.
#[derive(Debug, Default)]
pub struct DoorListeners {
    pub proxy: Option<StdTcpListener>,
    pub dns_udp: Option<StdUdpSocket>,
    pub dns_tcp: Option<StdTcpListener>,
    pub forwards: Vec<Forward>,
}

/// A port inside, and the Unix socket outside that it stands for.
#[derive(Debug)]
pub struct Forward {
    pub listener: StdTcpListener,
    pub path: PathBuf,
}

/// A door could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("taking over the listener for {what}")]
pub struct DoorError {
    what: &'static str,
    #[source]
    source: io::Error,
}

/// What all tasks of one door share.
pub(crate) struct Shared {
    pub(crate) egress: Egress,
    pub(crate) grant: Grant,
    pub(crate) limits: DoorLimits,
    pub(crate) log: DecisionLog,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl Shared {
    /// Runs a task that ends with the door, whatever it is waiting for.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = task => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

/// A door that is open. Dropping it closes everything at once; [`Door::stop`] waits until that is done.
pub struct Door {
    shared: Arc<Shared>,
    /// Cancelled first: no new connections.
    closing: CancellationToken,
    log_stop: CancellationToken,
}

impl Door {
    /// Serves the listeners until the door is stopped or dropped. Must be called within a Tokio runtime.
    pub fn serve(config: DoorConfig, listeners: DoorListeners) -> Result<Self, DoorError> {
        let shared = Arc::new(Shared {
            egress: config.egress,
            grant: Grant::rules(config.policy),
            limits: config.limits,
            log: DecisionLog::new(config.log),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        let door = Self {
            shared,
            closing: CancellationToken::new(),
            log_stop: CancellationToken::new(),
        };
        let log = door.shared.log.clone().run(door.log_stop.clone());
        door.shared.tasks.spawn(log);
        door.open(listeners)?;
        Ok(door)
    }

    fn open(&self, listeners: DoorListeners) -> Result<(), DoorError> {
        if let Some(listener) = listeners.proxy {
            self.accept("the proxy", listener, http_proxy::serve)?;
        }
        if let Some(listener) = listeners.dns_tcp {
            self.accept("DNS over TCP", listener, dns::serve_tcp)?;
        }
        if let Some(socket) = listeners.dns_udp {
            let socket = into_udp(socket).map_err(|source| DoorError {
                what: "DNS over UDP",
                source,
            })?;
            let answering = dns::serve_udp(socket, Arc::clone(&self.shared));
            self.shared.spawn(until(self.closing.clone(), answering));
        }
        for Forward { listener, path } in listeners.forwards {
            let path = Arc::new(path);
            self.accept("a forward", listener, move |stream, shared| {
                forward::serve(stream, Arc::clone(&path), shared)
            })?;
        }
        Ok(())
    }

    fn accept<F>(
        &self,
        what: &'static str,
        listener: StdTcpListener,
        serve: impl Fn(TcpStream, Arc<Shared>) -> F + Send + Sync + 'static,
    ) -> Result<(), DoorError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = into_tcp(listener).map_err(|source| DoorError { what, source })?;
        let accepting = accept_all(listener, Arc::clone(&self.shared), serve);
        self.shared.spawn(until(self.closing.clone(), accepting));
        Ok(())
    }

    /// How much was decided so far.
    pub fn stats(&self) -> LogStats {
        self.shared.log.stats()
    }

    /// Takes no more connections, lets the standing ones end for as long as `grace`, closes what is left,
    /// reports the last decisions, and returns when no task of the door is left: with the final counts.
    pub async fn stop(self, grace: Duration) -> LogStats {
        self.closing.cancel();
        self.shared.tasks.close();
        // The log's task never ends by itself, so the wait is for all but that one.
        let _ = time::timeout(grace, async {
            while self.shared.tasks.len() > 1 {
                time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        self.shared.stop.cancel();
        self.log_stop.cancel();
        self.shared.tasks.wait().await;
        self.stats()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.closing.cancel();
        self.shared.stop.cancel();
        self.log_stop.cancel();
    }
}

async fn until(closing: CancellationToken, task: impl Future<Output = ()>) {
    tokio::select! {
        () = task => {}
        () = closing.cancelled() => {}
    }
}

/// Takes a connection only when there is room for it: the rest wait in the kernel's queue, inside.
async fn accept_all<F>(
    listener: TcpListener,
    shared: Arc<Shared>,
    serve: impl Fn(TcpStream, Arc<Shared>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(shared.limits.connections));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let serving = serve(stream, Arc::clone(&shared));
                shared.spawn(async move {
                    serving.await;
                    drop(place);
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: the connections that stand will give some back.
                debug!(%error, "accepting a connection failed");
                time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn into_tcp(listener: StdTcpListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn into_udp(socket: StdUdpSocket) -> io::Result<UdpSocket> {
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}
