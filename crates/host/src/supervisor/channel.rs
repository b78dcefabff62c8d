//! The runner's end of a supervisor's control channel: one task that beats, passes requests on and hears reports.

use std::{collections::HashMap, num::NonZeroU64, time::Duration};

use futures::StreamExt as _;
use tokio::{
    io::AsyncWriteExt as _,
    sync::{mpsc, oneshot, watch},
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::{
    codec::{FramedRead, LinesCodec},
    sync::CancellationToken,
};

use super::protocol::{LINE_BYTES, Ready, Remains, Report, Request};
use crate::{Process, Reader, Signal, Target, Writer};

/// The supervisor looks as often; it counts looks without a beat, so neither end's clock matters.
pub(super) const BEAT: Duration = Duration::from_secs(2);
/// Requests that wait to be written.
pub(super) const REQUESTS: usize = 16;

/// How far a supervisor has come. What was once so stays so: whoever looks late sees all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) ready: Option<Ready>,
    pub(super) refused: Option<String>,
    /// How the machine names the agent.
    pub(super) started: Option<String>,
    pub(super) missing: bool,
    pub(super) ended: Option<End>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Clean,
    /// Processes of the agent were left that the supervisor may not end.
    Remains,
    /// It went away without having said so.
    Silent,
}

/// What the owner of a channel asks of it.
pub(super) enum Ask {
    Signal(Signal, Target, oneshot::Sender<()>),
    End,
}

pub(super) struct Channel {
    token: String,
    input: Writer,
    reports: FramedRead<Reader, LinesCodec>,
    asks: mpsc::Receiver<Ask>,
    progress: watch::Sender<Progress>,
    unanswered: HashMap<NonZeroU64, oneshot::Sender<()>>,
    next: NonZeroU64,
}

/// Why a channel stops beating.
enum Stop {
    Said(Remains),
    Closed,
}

impl Channel {
    /// None where the host gave no pipes.
    pub(super) fn new(
        token: String,
        process: &mut Process,
        asks: mpsc::Receiver<Ask>,
        progress: watch::Sender<Progress>,
    ) -> Option<Self> {
        let codec = LinesCodec::new_with_max_length(LINE_BYTES);
        Some(Self {
            token,
            input: process.stdin.take()?,
            reports: FramedRead::new(process.stdout.take()?, codec),
            asks,
            progress,
            unanswered: HashMap::new(),
            next: NonZeroU64::MIN,
        })
    }

    /// Beats until the supervisor has ended or `lost` is cancelled, which is to the supervisor as if the runner died.
    pub(super) async fn run(mut self, on_loss: Option<String>, lost: CancellationToken) {
        if let Some(text) = on_loss {
            self.write(&Request::OnLoss(text)).await;
        }
        let stop = tokio::select! {
            stop = self.beat() => stop,
            () = lost.cancelled() => Stop::Closed,
        };
        let end = match stop {
            Stop::Said(Remains::Nothing) => End::Clean,
            Stop::Said(Remains::Something) => End::Remains,
            Stop::Closed => End::Silent,
        };
        self.progress.send_modify(|so_far| so_far.ended = Some(end));
    }

    async fn beat(&mut self) -> Stop {
        let mut beats = interval(BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut owned = true;
        loop {
            tokio::select! {
                report = self.reports.next() => match report {
                    Some(Ok(line)) => if let Some(stop) = self.hear(&line) {
                        return stop;
                    },
                    Some(Err(_)) | None => return Stop::Closed,
                },
                ask = self.asks.recv(), if owned => match ask {
                    Some(ask) => self.pass_on(ask).await,
                    // A start that was given up: nobody else can end what it began.
                    None => {
                        owned = false;
                        self.write(&Request::End).await;
                    }
                },
                _ = beats.tick() => self.write(&Request::Beat).await,
            }
        }
    }

    fn hear(&mut self, line: &str) -> Option<Stop> {
        let report = Report::parse(&self.token, line)?;
        match report {
            Report::Ready(ready) => self.note(|so_far| so_far.ready = Some(ready)),
            Report::Started(agent) => self.note(|so_far| so_far.started = Some(agent)),
            Report::Missing => self.note(|so_far| so_far.missing = true),
            Report::Refused(why) => self.note(|so_far| so_far.refused = Some(why)),
            Report::Signalled(id) => {
                let answer = self.unanswered.remove(&id);
                // Whoever asked may have stopped waiting.
                let _ = answer.map(|answer| answer.send(()));
            }
            Report::Lost(why) => tracing::warn!(why, "a supervisor ends its agent"),
            Report::Ended(remains) => return Some(Stop::Said(remains)),
        }
        None
    }

    fn note(&self, change: impl FnOnce(&mut Progress)) {
        self.progress.send_modify(change);
    }

    async fn pass_on(&mut self, ask: Ask) {
        let request = match ask {
            Ask::End => Request::End,
            Ask::Signal(signal, target, answer) => {
                let id = self.next;
                self.next = id.saturating_add(1);
                self.unanswered.insert(id, answer);
                Request::Signal { id, signal, target }
            }
        };
        self.write(&request).await;
    }

    /// A channel that takes nothing is one whose reports end soon, or whose runner the supervisor gives up; neither is
    /// for the writer to decide.
    async fn write(&mut self, request: &Request) {
        let bytes = request.to_string();
        let written = async {
            self.input.write_all(bytes.as_bytes()).await?;
            self.input.flush().await
        };
        if let Ok(Err(error)) = timeout(BEAT, written).await {
            tracing::debug!(%error, "a supervisor's control channel takes no more");
        }
    }
}
