//! Ctrl-C and SIGTERM: the first asks the work to end, the second ends this process at once. What then is
//! left of a sandbox ends with it, because its launcher notices.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::output::Output;

/// Listens for the first signal; from then on the signals have their usual effect again after one more.
pub(crate) struct Interrupt {
    token: CancellationToken,
    _listener: tokio::task::JoinSet<()>,
}

impl Interrupt {
    pub(crate) fn listen(output: Output) -> std::io::Result<Self> {
        let token = CancellationToken::new();
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        let mut listener = tokio::task::JoinSet::new();
        listener.spawn(watch(interrupt, terminate, token.clone(), output));
        Ok(Self {
            token,
            _listener: listener,
        })
    }

    pub(crate) fn token(&self) -> CancellationToken {
        self.token.clone()
    }
}

async fn watch(
    mut interrupt: Signal,
    mut terminate: Signal,
    token: CancellationToken,
    output: Output,
) {
    next(&mut interrupt, &mut terminate).await;
    token.cancel();
    output.note("Ending what runs. Once more to stop waiting for it.");
    next(&mut interrupt, &mut terminate).await;
    // Nobody else can be asked: the process itself has to go, without its destructors.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
}

async fn next(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
