//! The plug that forwards ports and sockets between the runner and the host, in both directions.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use bulkhead_host::{Duplex, DuplexStream, Endpoint, Listener};
use bulkhead_model::session::{Forward, PortsConfig};
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::plug::{Ctx, Ended, Grant, Log, Plug, PlugError, Undo, UndoEntry};

/// Connections of one forward at the same time; more wait.
const CONNECTIONS: usize = 128;

pub(super) struct PortsPlug {
    config: PortsConfig,
    tasks: TaskTracker,
    ending: CancellationToken,
    undo: Vec<UndoEntry>,
    sockets: Vec<PathBuf>,
}

impl PortsPlug {
    pub(super) fn new(config: PortsConfig) -> Self {
        Self {
            config,
            tasks: TaskTracker::new(),
            ending: CancellationToken::new(),
            undo: vec![],
            sockets: vec![],
        }
    }

    /// Listens here; the host is connected when somebody connects (H2).
    async fn forward_to_host(&mut self, ctx: &mut Ctx, forward: &Forward) -> Result<(), PlugError> {
        let to = endpoint(&forward.connect)?;
        let at = endpoint(&forward.listen)?;
        if let Endpoint::Unix(path) = &at {
            self.undo
                .push(ctx.undo(Undo::RemoveFile { path: path.clone() })?);
            self.sockets.push(path.clone());
        }
        let here = Here::listen(&at).await.map_err(|error| {
            PlugError::because(format!("listening at {}", forward.listen), error)
        })?;
        let (host, log) = (ctx.host()?, ctx.log());
        announce(
            ctx,
            forward,
            &here.place(),
            &format!("{} on {}", forward.connect, host.describe()),
        );
        let ending = self.ending.clone();
        let (tasks, places) = (self.tasks.clone(), Arc::new(Semaphore::new(CONNECTIONS)));
        self.tasks.spawn(async move {
            loop {
                let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                    return;
                };
                let accepted = tokio::select! {
                    accepted = here.accept() => accepted,
                    () = ending.cancelled() => return,
                };
                let Ok(stream) = accepted else { continue };
                let (host, to, log, ending) =
                    (host.clone(), to.clone(), log.clone(), ending.clone());
                tasks.spawn(async move {
                    carry(stream, host.connect(to), &log, &ending).await;
                    drop(place);
                });
            }
        });
        Ok(())
    }

    async fn forward_to_runner(
        &mut self,
        ctx: &mut Ctx,
        forward: &Forward,
    ) -> Result<(), PlugError> {
        let host = ctx.host()?;
        let mut there = host.listen(endpoint(&forward.listen)?).await?;
        let to = endpoint(&forward.connect)?;
        let from = format!("{} on {}", words(&there.endpoint()), host.describe());
        let place = words(&there.endpoint());
        announce(
            ctx,
            forward,
            &place,
            &format!("{} on this machine", forward.connect),
        );
        if let Some(Grant::Forward { from: said, .. }) = ctx.grants.last_mut() {
            *said = from;
        }
        let (log, ending) = (ctx.log(), self.ending.clone());
        let (tasks, places) = (self.tasks.clone(), Arc::new(Semaphore::new(CONNECTIONS)));
        self.tasks.spawn(async move {
            loop {
                let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                    return;
                };
                let accepted = tokio::select! {
                    accepted = Listener::accept(&mut *there) => accepted,
                    () = ending.cancelled() => return,
                };
                let stream = match accepted {
                    Ok(stream) => stream,
                    Err(error) => {
                        log.say(&format!("a forward ended: {}", crate::words::chain(&error)))
                            .await;
                        return;
                    }
                };
                let (to, log, ending) = (to.clone(), log.clone(), ending.clone());
                tasks.spawn(async move {
                    carry(stream, connect_here(to), &log, &ending).await;
                    drop(place);
                });
            }
        });
        Ok(())
    }
}

/// Notes the forward for the summary, and tells the agent its place where it is to know it.
fn announce(ctx: &mut Ctx, forward: &Forward, place: &str, to: &str) {
    if let Some(name) = &forward.env {
        ctx.agent.env.insert(name.clone(), place.to_owned());
    }
    ctx.grant(Grant::Forward {
        from: format!("{place} on this machine"),
        to: to.to_owned(),
    });
}

/// Connects, and copies both ways until both ends are done.
async fn carry<E: std::error::Error + 'static>(
    mut from: DuplexStream,
    connecting: impl Future<Output = Result<DuplexStream, E>>,
    log: &Log,
    ending: &CancellationToken,
) {
    let carried = async {
        match connecting.await {
            Ok(mut to) => drop(tokio::io::copy_bidirectional(&mut from, &mut to).await),
            Err(error) => log.say(&crate::words::chain(&error)).await,
        }
    };
    tokio::select! {
        () = carried => {}
        () = ending.cancelled() => {}
    }
}

async fn connect_here(to: Endpoint) -> std::io::Result<DuplexStream> {
    Ok(match to {
        Endpoint::Tcp(address) => Box::new(TcpStream::connect(address).await?) as DuplexStream,
        Endpoint::Unix(path) => Box::new(UnixStream::connect(path).await?),
    })
}

/// A listening place on the runner.
enum Here {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, PathBuf),
}

impl Here {
    async fn listen(at: &Endpoint) -> std::io::Result<Self> {
        Ok(match at {
            Endpoint::Tcp(address) => {
                let listener = TcpListener::bind(address).await?;
                let address = listener.local_addr()?;
                Self::Tcp(listener, address)
            }
            Endpoint::Unix(path) => Self::Unix(UnixListener::bind(path)?, path.clone()),
        })
    }

    fn place(&self) -> String {
        match self {
            Self::Tcp(_, address) => address.to_string(),
            Self::Unix(_, path) => path.display().to_string(),
        }
    }

    async fn accept(&self) -> std::io::Result<DuplexStream> {
        fn boxed(stream: impl Duplex + 'static) -> DuplexStream {
            Box::new(stream)
        }
        Ok(match self {
            Self::Tcp(listener, _) => boxed(listener.accept().await?.0),
            Self::Unix(listener, _) => boxed(listener.accept().await?.0),
        })
    }
}

fn words(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Tcp(address) => address.to_string(),
        Endpoint::Unix(path) => path.display().to_string(),
    }
}

fn endpoint(text: &str) -> Result<Endpoint, PlugError> {
    if text.starts_with('/') {
        return Ok(Endpoint::Unix(text.into()));
    }
    text.parse()
        .map(Endpoint::Tcp)
        .map_err(|error| PlugError::because(format!("reading the address {text:?}"), error))
}

#[async_trait]
impl Plug for PortsPlug {
    fn name(&self) -> &str {
        "ports"
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        for forward in self.config.to_host.clone() {
            self.forward_to_host(ctx, &forward).await?;
        }
        for forward in self.config.to_runner.clone() {
            self.forward_to_runner(ctx, &forward).await?;
        }
        Ok(())
    }

    async fn teardown(&mut self, _: &mut Ctx, _: Ended) -> Result<(), PlugError> {
        self.ending.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        for socket in self.sockets.drain(..) {
            // Where it is gone already, that is what was wanted.
            drop(tokio::fs::remove_file(socket).await);
        }
        for undo in self.undo.drain(..) {
            undo.done()?;
        }
        Ok(())
    }
}
