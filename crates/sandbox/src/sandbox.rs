//! One living sandbox.

use std::{
    io,
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
    sync::{Mutex, PoisonError},
};

use bulkhead_init::wire::IoKind;
use bulkhead_model::{
    ids::SandboxId,
    outcome::{EndReason, Evidence, Outcome, ResourceUse},
};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::{
    io::AsyncReadExt as _,
    sync::{mpsc, oneshot, watch},
};

use crate::{
    DEFAULT_PATH,
    driver::Ask,
    error::SpawnError,
    plan::BoundSocket,
    process::{ExitStatus, OuterEnds, Process},
    processes::{Answer, Start},
    spec::{ProcessSpec, Stdio, Stream, TerminalSize},
};

/// Why the owner ends a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The work is over: the process that counts ended so. The outcome's reason is its status, or the limit that the
    /// kernel's counters show to be behind its failure.
    Finished(ExitStatus),
    /// The owner's own clock ran out. (`limits.time_ms` is watched by the sandbox itself.)
    Timeout,
    /// The owner heard nothing for `limits.idle_ms`.
    Idle,
    Cancelled,
}

/// A sandbox. Dropping it ends it in the background, as the parent's death does.
#[derive(Debug)]
pub struct Sandbox {
    id: SandboxId,
    asks: mpsc::Sender<Ask>,
    ends: mpsc::Sender<Cause>,
    outcome: watch::Receiver<Option<Outcome>>,
    listeners: Mutex<Vec<BoundSocket>>,
}

impl Sandbox {
    pub(crate) const fn new(
        id: SandboxId,
        asks: mpsc::Sender<Ask>,
        ends: mpsc::Sender<Cause>,
        outcome: watch::Receiver<Option<Outcome>>,
        listeners: Vec<BoundSocket>,
    ) -> Self {
        Self {
            id,
            asks,
            ends,
            outcome,
            listeners: Mutex::new(listeners),
        }
    }

    pub const fn id(&self) -> SandboxId {
        self.id
    }

    /// The plan's listeners, in the plan's order, once; empty after that.
    pub fn take_listeners(&self) -> Vec<BoundSocket> {
        std::mem::take(
            &mut *self
                .listeners
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Starts a process. The sandbox's time limit counts from the first one.
    pub async fn spawn(&self, spec: ProcessSpec) -> Result<Process, SpawnError> {
        let (answer, answered) = oneshot::channel();
        let (start, outer) = describe(spec, answer)?;
        let asked = self.asks.send(Ask::Spawn(Box::new(start))).await;
        asked.map_err(|_| SpawnError::SandboxEnded)?;
        let started = answered.await.map_err(|_| SpawnError::SandboxEnded)??;
        Process::new(started, outer, self.asks.downgrade()).map_err(SpawnError::Io)
    }

    /// Starts a further mode of the helper inside, as the agent: it serves files (`files`), connects or listens. It needs no
    /// program in the sandbox, and it is behind every wall like any other process there. Its input and output are pipes.
    pub async fn helper(&self, arguments: Vec<String>) -> Result<Process, SpawnError> {
        let (answer, answered) = oneshot::channel();
        let mut ends = Ends::default();
        let mut inner = Vec::new();
        let (theirs, ours) = ends.one(Stream::Pipe, Direction::Inwards)?;
        inner.extend(theirs);
        ends.outer.stdin = ours;
        let (theirs, ours) = ends.one(Stream::Pipe, Direction::Outwards)?;
        inner.extend(theirs);
        ends.outer.stdout = ours;
        let files = inner.try_into().map_err(|_| SpawnError::SandboxEnded)?;
        let asked = Ask::Helper {
            arguments: arguments.into_iter().map(String::into_bytes).collect(),
            files,
            answer,
        };
        let asked = self.asks.send(asked).await;
        asked.map_err(|_| SpawnError::SandboxEnded)?;
        let started = answered.await.map_err(|_| SpawnError::SandboxEnded)??;
        Process::new(started, ends.outer, self.asks.downgrade()).map_err(SpawnError::Io)
    }

    /// Kills every process inside, whatever it does against it, and keeps the sandbox for what is started next.
    pub async fn clear(&self) -> Result<(), SpawnError> {
        let asked = self.asks.send(Ask::Clear).await;
        asked.map_err(|_| SpawnError::SandboxEnded)
    }

    /// A look around by PID 1's own code, as the agent, behind every wall: lines of what was tried and answered.
    pub(crate) async fn examine(&self) -> Result<String, SpawnError> {
        let (answer, answered) = oneshot::channel();
        let (reads, writes) = pipe_with(PipeFlags::CLOEXEC)
            .map_err(io::Error::from)
            .map_err(SpawnError::Io)?;
        rustix::io::ioctl_fionbio(&reads, true)
            .map_err(io::Error::from)
            .map_err(SpawnError::Io)?;
        let asked = self
            .asks
            .send(Ask::Examine {
                output: writes,
                answer,
            })
            .await;
        asked.map_err(|_| SpawnError::SandboxEnded)?;
        let started = answered.await.map_err(|_| SpawnError::SandboxEnded)??;
        let ends = OuterEnds {
            stdout: Some(reads),
            ..OuterEnds::default()
        };
        let mut process =
            Process::new(started, ends, self.asks.downgrade()).map_err(SpawnError::Io)?;
        let mut text = String::new();
        if let Some(output) = &mut process.stdout {
            output
                .read_to_string(&mut text)
                .await
                .map_err(SpawnError::Io)?;
        }
        Ok(text)
    }

    /// Waits until the sandbox has ended by itself (its time limit, its launcher's death) or by [`Sandbox::end`] elsewhere.
    pub async fn ended(&self) -> Outcome {
        let mut told = self.outcome.clone();
        let outcome = told.wait_for(Option::is_some).await;
        outcome
            .ok()
            .and_then(|outcome| outcome.clone())
            .unwrap_or_else(unwatched)
    }

    /// Kills everything inside, waits until nothing is left of the sandbox, and says how it ended. Where it had already
    /// ended, or is ended twice, the first cause counts and every caller gets the same outcome. Legal in every state.
    pub async fn end(&self, cause: Cause) -> Outcome {
        // There is room for one, the first, which counts.
        let _ = self.ends.try_send(cause);
        self.ended().await
    }
}

/// The runtime was shut down under the sandbox's task. The launcher has seen its link close and ends everything.
fn unwatched() -> Outcome {
    let seen = Evidence {
        source: "parent".to_owned(),
        detail: "the task that watched the sandbox was stopped; the launcher ends it".to_owned(),
    };
    Outcome {
        reason: EndReason::Lost,
        evidence: vec![seen],
        used: ResourceUse::default(),
    }
}

/// The request for PID 1, and the ends of the streams that stay outside.
pub(crate) fn describe(
    spec: ProcessSpec,
    answer: Answer,
) -> Result<(Start, OuterEnds), SpawnError> {
    let mut ends = Ends::default();
    let mut size = TerminalSize::default();
    match spec.stdio {
        Stdio::Terminal(wanted) => {
            size = wanted;
            ends.io = vec![
                IoKind::Terminal {},
                IoKind::Terminal {},
                IoKind::Terminal {},
            ];
        }
        Stdio::Streams {
            stdin,
            stdout,
            stderr,
        } => {
            let (inner, outer) = ends.one(stdin, Direction::Inwards)?;
            ends.outer.stdin = outer;
            ends.inner.extend(inner);
            let (inner, outer) = ends.one(stdout, Direction::Outwards)?;
            ends.outer.stdout = outer;
            ends.inner.extend(inner);
            let (inner, outer) = ends.one(stderr, Direction::Outwards)?;
            ends.outer.stderr = outer;
            ends.inner.extend(inner);
        }
    }
    let path = spec
        .env
        .iter()
        .rev()
        .find(|(name, _)| name == "PATH")
        .map(|(_, value)| value.clone());
    let variable = |(mut name, value): (std::ffi::OsString, std::ffi::OsString)| {
        name.push("=");
        name.push(value);
        name.into_vec()
    };
    let start = Start {
        argv: spec.argv.into_iter().map(OsStringExt::into_vec).collect(),
        env: spec.env.into_iter().map(variable).collect(),
        cwd: spec.cwd.into_os_string().into_vec(),
        search_path: path.map_or_else(|| DEFAULT_PATH.as_bytes().to_vec(), OsStringExt::into_vec),
        io: ends.io,
        rows: size.rows,
        columns: size.columns,
        files: ends.inner,
        answer,
    };
    Ok((start, ends.outer))
}

#[derive(Clone, Copy)]
enum Direction {
    Inwards,
    Outwards,
}

impl Direction {
    /// The pipe is the parent's, but `/dev/stderr` and the like open it anew, as the agent. It has no name: who could open
    /// it has it already.
    const fn mode(self) -> rustix::fs::Mode {
        match self {
            Self::Inwards => rustix::fs::Mode::from_raw_mode(0o604),
            Self::Outwards => rustix::fs::Mode::from_raw_mode(0o602),
        }
    }
}

#[derive(Default)]
struct Ends {
    io: Vec<IoKind>,
    inner: Vec<OwnedFd>,
    outer: OuterEnds,
}

impl Ends {
    /// The end that goes inside and the one that stays.
    fn one(
        &mut self,
        stream: Stream,
        direction: Direction,
    ) -> Result<(Option<OwnedFd>, Option<OwnedFd>), SpawnError> {
        let null = matches!(stream, Stream::Null);
        self.io.push(if null {
            IoKind::Null {}
        } else {
            IoKind::Passed {}
        });
        match stream {
            Stream::Null => Ok((None, None)),
            Stream::Fd(file) => Ok((Some(file), None)),
            Stream::Pipe => {
                let (reads, writes) = pipe_with(PipeFlags::CLOEXEC)
                    .map_err(io::Error::from)
                    .map_err(SpawnError::Io)?;
                let (inner, outer) = match direction {
                    Direction::Inwards => (reads, writes),
                    Direction::Outwards => (writes, reads),
                };
                rustix::io::ioctl_fionbio(&outer, true)
                    .and_then(|()| rustix::fs::fchmod(&outer, direction.mode()))
                    .map_err(io::Error::from)
                    .map_err(SpawnError::Io)?;
                Ok((Some(inner), Some(outer)))
            }
        }
    }
}
