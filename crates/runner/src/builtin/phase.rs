//! One phase in one session process, from its order until nothing of it is left.

use std::time::Duration;

use bulkhead_session::{
    SessionProcess, last_words,
    wire::{Delivery, Incoming, Outgoing},
};
use tokio::{net::UnixStream, sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    journal::Entry,
    relay::{self, RelayError},
};
use crate::{
    ArtifactFile, FailureKind, Hold, PhaseKey, PhaseReport, PhaseSink, SinkError, StopReason,
};

/// How long a session may take to end its sandbox after it was asked to, and to exit after its report.
const GRACE: Duration = Duration::from_secs(10);

pub(super) struct Phase {
    pub(super) key: PhaseKey,
    pub(super) process: SessionProcess,
    pub(super) _entry: Entry,
    pub(super) hold: Hold,
    pub(super) sink: std::sync::Arc<dyn PhaseSink>,
    pub(super) stopped: watch::Receiver<Option<StopReason>>,
    pub(super) closing: CancellationToken,
}

/// What ended the conversation.
enum Ending {
    Report(PhaseReport),
    NoReport,
    Broken(RelayError),
    /// The session was asked to stop and did not answer in time.
    Unresponsive,
}

impl Phase {
    pub(super) async fn run(
        mut self,
        socket: UnixStream,
        delivery: Box<Delivery>,
        artifacts: Vec<ArtifactFile>,
    ) -> PhaseReport {
        let words = self.process.take_stderr();
        let (ending, why) = self.converse(socket, delivery, artifacts).await;
        // The socket is closed by now, which alone makes a healthy session end.
        let exited = timeout(GRACE, self.process.wait()).await;
        let status = match exited {
            Ok(status) => status.map_or_else(|error| error.to_string(), |s| s.to_string()),
            Err(_elapsed) => {
                self.process.kill();
                drop(self.process.wait().await);
                "it had to be killed".to_owned()
            }
        };
        let words = match words {
            Some(stderr) => timeout(GRACE, last_words(stderr)).await.unwrap_or_default(),
            None => String::new(),
        };
        self.conclude(ending, why, &status, &words)
    }

    async fn converse(
        &mut self,
        socket: UnixStream,
        delivery: Box<Delivery>,
        artifacts: Vec<ArtifactFile>,
    ) -> (Ending, Option<StopReason>) {
        let (read, write) = socket.into_split();
        let (pass_on, asked) = watch::channel(None);
        let speak = relay::speak(Outgoing::new(write), delivery, artifacts, asked);
        let listen = relay::listen(Incoming::new(read), &*self.sink);
        tokio::pin!(speak, listen);
        let mut spoken = None;
        let mut why = None;
        loop {
            tokio::select! {
                biased;
                heard = &mut listen => return (Ending::of(heard), why),
                Err(error) = &mut speak, if spoken.is_none() => {
                    // The session may have said why before it stopped listening: hear it out.
                    spoken = Some(error);
                }
                reason = stop_reason(&self.stopped, &self.closing, &self.hold), if why.is_none() => {
                    tracing::info!(key = %self.key, ?reason, "stopping a phase");
                    why = Some(reason);
                    pass_on.send_replace(Some(reason));
                }
                () = tokio::time::sleep(GRACE), if why.is_some() || spoken.is_some() => {
                    self.process.kill();
                    return (spoken.map_or(Ending::Unresponsive, Ending::Broken), why);
                }
            }
        }
    }

    fn conclude(
        &self,
        ending: Ending,
        why: Option<StopReason>,
        status: &str,
        words: &str,
    ) -> PhaseReport {
        if why == Some(StopReason::LeaseLost) {
            return lost("the lease was lost, so the attempt was ended".to_owned());
        }
        match ending {
            Ending::Report(report) => report,
            Ending::Unresponsive | Ending::NoReport if why == Some(StopReason::Cancelled) => {
                PhaseReport::without_outcome(FailureKind::Cancelled, "the phase was cancelled")
            }
            Ending::Broken(RelayError::Sink(SinkError::Stale)) => {
                lost("what the attempt said was refused: its lease is somebody else's".to_owned())
            }
            Ending::Broken(error) => lost(with_words(&chain(&error), words)),
            Ending::Unresponsive => lost(with_words("the session did not stop when asked", words)),
            Ending::NoReport => lost(with_words(
                &format!("the session process ended without a report ({status})"),
                words,
            )),
        }
    }
}

impl Ending {
    fn of(heard: Result<Option<PhaseReport>, RelayError>) -> Self {
        match heard {
            Ok(Some(report)) => Self::Report(report),
            Ok(None) => Self::NoReport,
            Err(error) => Self::Broken(error),
        }
    }
}

/// Resolves with the first reason to stop.
async fn stop_reason(
    stopped: &watch::Receiver<Option<StopReason>>,
    closing: &CancellationToken,
    hold: &Hold,
) -> StopReason {
    let mut stopped = stopped.clone();
    let asked = async {
        match stopped
            .wait_for(Option::is_some)
            .await
            .map(|reason| *reason)
        {
            Ok(Some(reason)) => reason,
            // Nobody can ask any more; the phase goes on.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        reason = asked => reason,
        () = closing.cancelled() => StopReason::ShuttingDown,
        () = hold.lost() => StopReason::LeaseLost,
    }
}

fn lost(message: String) -> PhaseReport {
    PhaseReport::without_outcome(FailureKind::Lost, message)
}

fn with_words(message: &str, words: &str) -> String {
    if words.is_empty() {
        message.to_owned()
    } else {
        format!("{message}; its last words: {words}")
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
