//! The processes that were asked for over one link: those whose start is not answered yet, and those that run.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use bulkhead_init::wire::{Event, IoKind, Request, SpawnStage};
use tokio::sync::{oneshot, watch};

use crate::{
    error::SpawnError,
    link::Link,
    process::{ExitStatus, Target},
};

/// Where a start is answered.
pub(crate) type Answer = oneshot::Sender<Result<Started, SpawnError>>;

/// A process to start, with the ends of its streams that go inside.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) argv: Vec<Vec<u8>>,
    pub(crate) env: Vec<Vec<u8>>,
    pub(crate) cwd: Vec<u8>,
    pub(crate) search_path: Vec<u8>,
    pub(crate) io: Vec<IoKind>,
    pub(crate) rows: u16,
    pub(crate) columns: u16,
    pub(crate) files: Vec<OwnedFd>,
    pub(crate) answer: Answer,
}

/// A process that runs.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) token: u32,
    pub(crate) pid: u32,
    pub(crate) terminal: Option<OwnedFd>,
    pub(crate) exited: watch::Receiver<Option<ExitStatus>>,
}

/// A start that PID 1 has not answered yet.
struct Pending {
    program: Vec<u8>,
    cwd: Vec<u8>,
    answer: Answer,
}

/// What whoever reads the link knows of its processes.
#[derive(Default)]
pub(crate) struct Processes {
    pending: HashMap<u32, Pending>,
    running: HashMap<u32, watch::Sender<Option<ExitStatus>>>,
    last_token: u32,
}

impl Processes {
    pub(crate) async fn spawn(&mut self, link: &Link, start: Start) {
        let token = self.new_token();
        let Start {
            argv,
            env,
            cwd,
            search_path,
            io,
            rows,
            columns,
            files,
            answer,
        } = start;
        let waits = Pending {
            program: argv.first().cloned().unwrap_or_default(),
            cwd: cwd.clone(),
            answer,
        };
        let request = Request::Spawn {
            token,
            argv,
            env,
            cwd,
            search_path,
            io,
            rows,
            columns,
        };
        self.request(link, token, request, &files, waits).await;
    }

    /// A look around from inside, written to this file.
    pub(crate) async fn examine(&mut self, link: &Link, output: OwnedFd, answer: Answer) {
        let token = self.new_token();
        let waits = Pending {
            program: Vec::new(),
            cwd: Vec::new(),
            answer,
        };
        let request = Request::Examine { token };
        self.request(link, token, request, &[output], waits).await;
    }

    const fn new_token(&mut self) -> u32 {
        self.last_token = self.last_token.wrapping_add(1);
        self.last_token
    }

    /// Sends a request whose answer somebody waits for.
    async fn request(
        &mut self,
        link: &Link,
        token: u32,
        request: Request,
        files: &[OwnedFd],
        waits: Pending,
    ) {
        let borrowed: Vec<_> = files.iter().map(OwnedFd::as_fd).collect();
        let refused = match link.send(&request, &borrowed).await {
            Ok(()) => {
                self.pending.insert(token, waits);
                return;
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                SpawnError::Spec(error.to_string())
            }
            Err(_) => SpawnError::SandboxEnded,
        };
        let _ = waits.answer.send(Err(refused));
    }

    pub(crate) fn event(&mut self, event: Event, mut files: Vec<OwnedFd>) {
        match event {
            Event::Spawned { token, pid } => {
                let (exit, exited) = watch::channel(None);
                self.running.insert(token, exit);
                if let Some(pending) = self.pending.remove(&token) {
                    let started = Started {
                        token,
                        pid,
                        terminal: files.pop(),
                        exited,
                    };
                    let _ = pending.answer.send(Ok(started));
                }
            }
            Event::SpawnFailed {
                token,
                stage,
                errno,
            } => {
                if let Some(pending) = self.pending.remove(&token) {
                    let error = spawn_error(&pending, &stage, io::Error::from_raw_os_error(errno));
                    let _ = pending.answer.send(Err(error));
                }
            }
            Event::Exited { token, status } => {
                if let Some(exit) = self.running.remove(&token) {
                    exit.send_replace(Some(exit_status(status)));
                }
            }
            Event::Ready {} | Event::Failed { .. } => {}
        }
    }

    /// Everything is dead. Whoever waits for a start finds the answer's other end closed.
    pub(crate) fn end(&self) {
        for exit in self.running.values() {
            exit.send_replace(Some(ExitStatus::SandboxEnded));
        }
    }
}

/// A link that is closed means that the process is gone, which is no error of a signal's sender.
pub(crate) async fn signal(link: &Link, token: u32, target: Target, signal: i32) {
    let group = u8::from(target == Target::Group);
    let request = Request::Signal {
        token,
        group,
        signal,
    };
    let _ = link.send(&request, &[]).await;
}

fn exit_status(status: i32) -> ExitStatus {
    use std::os::unix::process::ExitStatusExt as _;
    let status = std::process::ExitStatus::from_raw(status);
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitStatus::Code(code),
        (None, Some(signal)) => ExitStatus::Signal(signal),
        (None, None) => ExitStatus::SandboxEnded,
    }
}

fn spawn_error(pending: &Pending, stage: &SpawnStage, source: io::Error) -> SpawnError {
    use std::os::unix::ffi::OsStringExt as _;
    let text = |bytes: &Vec<u8>| std::ffi::OsString::from_vec(bytes.clone());
    match (stage, source.raw_os_error()) {
        (SpawnStage::Execute {}, Some(libc::ENOENT | libc::ENOTDIR)) => {
            SpawnError::NotFound(text(&pending.program))
        }
        (SpawnStage::Execute {}, Some(libc::EAGAIN | libc::ENOMEM)) | (SpawnStage::Fork {}, _) => {
            SpawnError::NoRoom(source)
        }
        (SpawnStage::Execute {}, _) => SpawnError::NotExecutable {
            program: text(&pending.program),
            source,
        },
        (SpawnStage::WorkingDirectory {}, _) => SpawnError::WorkingDirectory {
            dir: text(&pending.cwd),
            source,
        },
        (SpawnStage::Setup {} | SpawnStage::Terminal {}, Some(libc::EINVAL)) => {
            SpawnError::Spec("an argument, variable or path is empty or holds a NUL".to_owned())
        }
        (SpawnStage::Setup {} | SpawnStage::Terminal {}, _) => SpawnError::Io(source),
    }
}
