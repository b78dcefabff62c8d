//! Persistent hosts: an agent on a machine that outlives the session ends when its runner is lost (H14).
//!
//! A process that was started over ssh can outlive its connection: it does, if it neither reads nor writes, or
//! ignores the hangup, or left its session. A [`Supervisor`] starts an agent together with a small POSIX shell
//! program on the same machine, which is sent over the connection and ends the agent's processes when the
//! runner, its client, the network or the connection's process on that machine is gone. Nothing is installed there.
//!
//! ```text
//!   runner                                  the machine
//!   Supervisor ── control session ───────── supervisor.sh     looks every 2 s, hears a beat every 2 s
//!       │            (beats, requests,          │   ▲
//!       │             reports)                  │   │ a queue (named pipe) in a private directory,
//!       │                                       │   │ which is removed as soon as the agent has joined
//!       └────── agent's session ──────────── start script, which becomes the agent (exec)
//! ```
//!
//! # Why two sessions
//!
//! The supervisor's control channel is a second session on the same connection, not a part of the agent's. So the
//! agent's three streams stay what the host made them, to the byte; with a terminal or without one, the agent
//! is the process that the host itself started, with its own process group, terminal and dispositions of signals;
//! and its exit code or signal is what the host reports anyway. Over ssh there is no third stream that a beat could
//! travel on, and in-band beats would need a program on both sides of the agent. Both sessions are children of the
//! same connection's process, so what ends one ends the other, and the supervisor sees its own end at once.
//!
//! # When the runner counts as lost
//!
//! - the control session's input ends: the client is gone, or the connection's process there is;
//! - the control session's leader has another parent than at the start (looked at every two seconds);
//! - [`Options::patience`] passes without a beat: the client is frozen, or the network cut. It is counted
//!   in looks, not by a clock, so neither a leap of the clock nor a machine that slept ends a live session.
//!
//! Then the agent's processes are asked to stop (TERM, and CONT for those that are stopped), and killed two seconds
//! later, all of them, by the best [`Level`] the machine has. The same happens to what an agent leaves behind when it
//! ends by itself. A supervisor that is itself killed takes the agent down with it (in a process namespace at once; else
//! the runner sends another one that ends the agent).
//!
//! # What it is not
//!
//! No boundary: an agent has the supervisor's rights, and one that means to can kill it. The start script's shell
//! cannot pass on variables whose names are no identifiers of the shell where `/bin/sh` is dash or busybox.
//! In a process namespace that needs a user namespace (an ordinary user, no control group), programs that
//! change the user (`sudo`) do not work: [`Options::ways`] can leave it out.

mod agent;
mod channel;
mod level;
mod protocol;
mod start;

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, mpsc, watch},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use level::{Level, Way};

use crate::{Command, Host, HostError, Process};
use channel::{Ask, BEAT, Progress};

/// How long the machine may take to end everything after it was told to: it asks, waits two seconds, and kills.
const END: Duration = Duration::from_secs(20);

/// How an agent is supervised.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long the machine goes without a beat before the runner counts as lost; at least 6 seconds, at most an hour.
    pub patience: Duration,
    /// What the machine may use, best first. Where it can do none of them, starting is refused.
    pub ways: Vec<Way>,
    /// Shell commands that run on the machine when the runner is lost, before the agent is killed: they end what is not
    /// the agent's descendant, such as a container. They travel on the control channel, and are in no argument.
    pub on_loss: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(16),
            ways: Way::ALL.to_vec(),
            on_loss: None,
        }
    }
}

impl Options {
    fn looks(&self) -> u64 {
        self.patience
            .as_secs()
            .div_ceil(BEAT.as_secs())
            .clamp(3, 1800)
    }

    fn words(&self) -> String {
        let words: Vec<_> = self.ways.iter().map(|way| way.word()).collect();
        words.join(",")
    }
}

/// Starts agents on a machine, and has each ended there when the runner is lost.
///
/// One for each connection, held as long as it is: it owns the beats. Each agent takes two of the connection's
/// sessions. Starts follow one another, so that several agents cannot wait for each other's second session.
/// Dropping it is, to the machine, the loss of the runner; [`Supervisor::teardown`] is the orderly end.
#[derive(Debug)]
pub struct Supervisor {
    host: Arc<dyn Host>,
    options: Options,
    starting: Mutex<()>,
    reached: std::sync::Mutex<Option<Level>>,
    ending: CancellationToken,
    tasks: TaskTracker,
    lost: CancellationToken,
}

/// What watches over something on the machine that is not a process of this connection.
#[derive(Debug)]
pub struct Guard {
    asks: mpsc::Sender<Ask>,
    progress: watch::Receiver<Progress>,
}

impl Supervisor {
    /// Does nothing until something is started.
    pub fn new(host: Arc<dyn Host>, options: Options) -> Self {
        Self {
            host,
            options,
            starting: Mutex::new(()),
            reached: std::sync::Mutex::new(None),
            ending: CancellationToken::new(),
            tasks: TaskTracker::new(),
            lost: CancellationToken::new(),
        }
    }

    /// Starts a process as [`Host::spawn`] does, supervised. Its streams, end and terminal are the host's own; its signals
    /// reach the agent. Dropping it ends neither it nor the supervision.
    pub async fn start(&self, command: Command) -> Result<(Process, Level), HostError> {
        let _one = self.starting.lock().await;
        self.still_there()?;
        let (process, level) = start::agent(self, command).await?;
        self.remember(level);
        Ok((process, level))
    }

    /// Only [`Options::on_loss`]: for what runs on the machine without being started over this connection, such as a
    /// container that the engine there started. Commands are required.
    pub async fn guard(&self) -> Result<Guard, HostError> {
        let _one = self.starting.lock().await;
        self.still_there()?;
        start::guard(self).await
    }

    /// The level that the last start reached, for the isolation summary; `None` while nothing was started.
    pub fn level(&self) -> Option<Level> {
        *self
            .reached
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn still_there(&self) -> Result<(), HostError> {
        if self.ending.is_cancelled() {
            return Err(HostError::Gone {
                host: self.host.describe(),
            });
        }
        Ok(())
    }

    fn remember(&self, level: Level) {
        let mut reached = self
            .reached
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *reached = Some(level);
    }

    /// Ends every agent and supervisor that still runs, and returns when nothing is left of them on the machine.
    pub async fn teardown(&self) -> Result<(), HostError> {
        self.tasks.close();
        self.ending.cancel();
        timeout(END, self.tasks.wait()).await.map_err(|_| {
            HostError::Refused(format!("{} does not end its agents", self.host.describe()))
        })
    }
}

/// The machine hears nothing more, and ends what it has.
impl Drop for Supervisor {
    fn drop(&mut self) {
        self.lost.cancel();
    }
}

impl Guard {
    /// The orderly end: nothing runs on the machine, and the guard is gone when this returns.
    pub async fn release(mut self) {
        if self.asks.send(Ask::End).await.is_ok() {
            let ended = self.progress.wait_for(|so_far| so_far.ended.is_some());
            // A machine that does not answer is one whose connection ends, and then it does.
            let _ = timeout(END, ended).await;
        }
    }
}
