//! A supervised agent: as its owner holds it, and what follows it to its end.

use std::{io, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    channel::{Ask, End},
    start::{SCRIPT, SHELL, Standing},
};
use crate::{Command, ExitStatus, Host, HostError, ProcessControl, Signal, Target, TerminalSize};

/// A busy machine answers late; one that does not in this time does not at all.
const ANSWER: Duration = Duration::from_secs(30);
/// How long another supervisor may take to end the agent of one that was killed.
const RESCUE: Duration = Duration::from_secs(15);

/// The process is the host's own, and its end is the host's to tell; signals go by the supervisor, which knows the
/// agent even where a login shell stands before it.
pub(super) struct Agent {
    pub(super) host: String,
    pub(super) process: Arc<dyn ProcessControl>,
    pub(super) asks: mpsc::Sender<Ask>,
}

#[async_trait]
impl ProcessControl for Agent {
    async fn wait(&self) -> ExitStatus {
        self.process.wait().await
    }

    async fn signal(&self, signal: Signal, target: Target) -> Result<(), HostError> {
        let (answer, answered) = oneshot::channel();
        // A supervisor that has ended had no agent any more.
        let asked = self.asks.send(Ask::Signal(signal, target, answer));
        let passed = async {
            if asked.await.is_ok() {
                let _ = answered.await;
            }
        };
        timeout(ANSWER, passed)
            .await
            .map_err(|_| HostError::Process {
                host: self.host.clone(),
                source: Arc::new(io::Error::from(io::ErrorKind::TimedOut)),
            })
    }

    async fn resize(&self, size: TerminalSize) -> Result<(), HostError> {
        self.process.resize(size).await
    }
}

/// Sees to it that the supervisor ends when its agent has, and the agent when its supervisor has.
pub(super) struct Owner {
    pub(super) host: Arc<dyn Host>,
    pub(super) process: Arc<dyn ProcessControl>,
    /// How the machine names the agent.
    pub(super) agent: String,
    pub(super) standing: Standing,
    pub(super) lost: CancellationToken,
}

impl Owner {
    pub(super) async fn follow(self, ending: CancellationToken) {
        let end = tokio::select! {
            end = self.standing.ended() => end,
            () = self.over(&ending) => {
                self.standing.end().await;
                self.standing.ended().await
            }
        };
        match end {
            Some(End::Clean) => {}
            Some(End::Remains) => {
                let host = self.host.describe();
                tracing::warn!(host, "an agent left processes that may not be ended");
            }
            Some(End::Silent) | None => self.rescue().await,
        }
    }

    async fn over(&self, ending: &CancellationToken) {
        tokio::select! {
            _ = self.process.wait() => {}
            () = ending.cancelled() => {}
        }
    }

    /// An agent is never without a supervisor: where only that one is gone, and not the machine, another ends the agent.
    async fn rescue(&self) {
        if self.lost.is_cancelled() {
            return;
        }
        let [level, version, group] = &self.standing.ready.words;
        let token = &self.standing.token;
        let argv = [
            SHELL,
            "-c",
            SCRIPT,
            SHELL,
            token,
            "1",
            "none",
            level,
            version,
            group,
            &self.agent,
        ];
        let ended = async {
            match self.host.spawn(Command::new(argv)).await {
                Ok(process) => drop(process.control.wait().await),
                Err(error) => tracing::debug!(%error, "the machine went with its supervisor"),
            }
        };
        // A machine that does not answer ends the agent by its own supervisor.
        let _ = timeout(RESCUE, ended).await;
    }
}
