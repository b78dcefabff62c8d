//! The parent of a session's process: sends the order, shows what comes, passes on what a person says, and sees to it
//! that nothing is left.
//!
//! ```text
//! terminal, control socket, signals ──▶ requests ──▶ session process
//!                        screen, JSON ◀── messages ◀──
//! ```

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result};
use bulkhead_session::{
    Launch, SessionProcess, last_words,
    summary::IsolationSummary,
    wire::{FromSession, Incoming, Outgoing, PromptSource, Report, SessionDelivery, ToSession},
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    task::JoinSet,
    time::timeout,
};

use super::{control, lost, show::Show};
use crate::output::Output;

/// How long a session may take to end after it was asked to, teardowns included.
const GRACE: Duration = Duration::from_secs(120);
const REQUESTS: usize = 16;
/// Two signals within this time mean "end", not "give up the turn" twice.
const TWICE: Duration = Duration::from_secs(3);

pub(super) struct Supervised {
    process: SessionProcess,
    incoming: Incoming<OwnedReadHalf, FromSession>,
    outgoing: Outgoing<OwnedWriteHalf, ToSession>,
    delivery: SessionDelivery,
    show: Show,
    requests: mpsc::Receiver<ToSession>,
    /// Says to those who asked for a pause that the session is over.
    over: watch::Sender<bool>,
    _listeners: JoinSet<()>,
}

impl Supervised {
    pub(super) fn begin(
        launch: Launch,
        delivery: SessionDelivery,
        dir: &Path,
        output: Output,
    ) -> Result<Self> {
        let show = Show::new(&delivery, output)?;
        let (sender, requests) = mpsc::channel(REQUESTS);
        let (over, is_over) = watch::channel(false);
        let mut listeners = JoinSet::new();
        let socket = control::listen(dir).context("listening for `session pause`")?;
        listeners.spawn(control::serve(socket, sender.clone(), is_over));
        let person = delivery.order.prompts == PromptSource::Person;
        listeners.spawn(signals(sender.clone(), person, output));
        if person {
            listeners.spawn(prompts(sender));
        }
        let program = launch.program.display().to_string();
        let (process, socket) = SessionProcess::spawn(&launch)
            .with_context(|| format!("starting the session's process {program}"))?;
        let (incoming, outgoing) = split(socket);
        Ok(Self {
            process,
            incoming,
            outgoing,
            delivery,
            show,
            requests,
            over,
            _listeners: listeners,
        })
    }

    /// Until nothing of the process is left; then what stands in its journal is all that there may be to undo.
    pub(super) async fn run(mut self) -> (Result<Report>, Option<IsolationSummary>) {
        let stderr = self.process.take_stderr();
        let words = async {
            match stderr {
                Some(stderr) => last_words(stderr).await,
                None => String::new(),
            }
        };
        tokio::pin!(words);
        let mut said = None;
        let result = {
            let conversation = self.converse();
            tokio::pin!(conversation);
            loop {
                tokio::select! {
                    result = &mut conversation => break result,
                    last = &mut words, if said.is_none() => said = Some(last),
                }
            }
        };
        let summary = self.show.summary.take();
        // The socket's end alone makes a healthy session end.
        drop(self.outgoing);
        if timeout(GRACE, self.process.wait()).await.is_err() {
            self.process.kill();
            drop(self.process.wait().await);
        }
        let said = match said {
            Some(said) => said,
            None => timeout(Duration::from_secs(5), words)
                .await
                .unwrap_or_default(),
        };
        self.over.send_replace(true);
        let report = match result {
            Ok(Some(report)) => Ok(report),
            Ok(None) => Err(lost(&said)),
            Err(error) => Err(error.context(said)),
        };
        (report, summary)
    }

    async fn converse(&mut self) -> Result<Option<Report>> {
        let order = ToSession::Session(Box::new(self.delivery.clone()));
        if self.outgoing.send(order).await.is_err() {
            return Ok(None);
        }
        loop {
            tokio::select! {
                biased;
                message = self.incoming.next() => match message {
                    Ok(Some(FromSession::Report(report))) => {
                        self.show.finish()?;
                        return Ok(Some(*report));
                    }
                    Ok(Some(message)) => self.show.message(message)?,
                    Ok(None) | Err(_) => {
                        self.show.finish()?;
                        return Ok(None);
                    }
                },
                Some(request) = self.requests.recv() => {
                    // A session that does not take it any more is ending.
                    drop(self.outgoing.send(request).await);
                }
            }
        }
    }
}

fn split(
    socket: UnixStream,
) -> (
    Incoming<OwnedReadHalf, FromSession>,
    Outgoing<OwnedWriteHalf, ToSession>,
) {
    let (reader, writer) = socket.into_split();
    (Incoming::new(reader), Outgoing::new(writer))
}

/// Each line is a prompt; the end of the input is the end of the prompts.
async fn prompts(requests: mpsc::Sender<ToSession>) {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if !line.trim().is_empty() && requests.send(ToSession::Prompt(line)).await.is_err() {
            return;
        }
    }
    drop(requests.send(ToSession::Prompt(String::new())).await);
}

/// Ctrl-C gives up the turn and then ends the session; once more stops waiting for it. Without a person the first
/// ends it.
async fn signals(requests: mpsc::Sender<ToSession>, person: bool, output: Output) {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return;
    };
    loop {
        let ends = tokio::select! {
            _ = interrupt.recv() => !person,
            _ = terminate.recv() => true,
        };
        if ends {
            break;
        }
        output.note("Giving up the turn. Once more ends the session.");
        drop(requests.send(ToSession::GiveUpTurn).await);
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            () = tokio::time::sleep(TWICE) => {}
        }
    }
    output.note("Ending the session. Once more to stop waiting for it.");
    drop(requests.send(ToSession::Cancel).await);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    // Nobody else can be asked: the process itself has to go. What is then left is undone by whoever looks next.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
}
