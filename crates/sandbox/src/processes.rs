//! The processes that were asked for over one link: those whose start is not answered yet, and those that run.
//!
//! Nobody waits in a send here: the other end is one thread, which itself waits where its own messages are not read. So what is
//! to be sent is kept, and whoever owns the link sends it while it goes on reading.

use std::{
    collections::{HashMap, VecDeque},
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

/// A request on its way, with the files beside it.
struct Letter {
    request: Request,
    files: Vec<OwnedFd>,
    /// Where somebody waits for an answer.
    token: Option<u32>,
}

/// More than this are not taken on before some are sent.
const MOST_LETTERS: usize = 64;

/// What whoever reads the link knows of its processes.
#[derive(Default)]
pub(crate) struct Processes {
    letters: VecDeque<Letter>,
    pending: HashMap<u32, Pending>,
    running: HashMap<u32, watch::Sender<Option<ExitStatus>>>,
    last_token: u32,
}

impl Processes {
    /// Whether another request can be taken on.
    pub(crate) fn has_room(&self) -> bool {
        self.letters.len() < MOST_LETTERS
    }

    /// Whether there is something to send.
    pub(crate) fn has_letters(&self) -> bool {
        !self.letters.is_empty()
    }

    /// Sends the next letter. Safe to cancel: it is sent whole or not at all, and kept until then.
    pub(crate) async fn deliver(&mut self, link: &Link) {
        let Some(letter) = self.letters.front() else {
            return;
        };
        let files: Vec<_> = letter.files.iter().map(OwnedFd::as_fd).collect();
        let sent = link.send(&letter.request, &files).await;
        let token = self.letters.pop_front().and_then(|letter| letter.token);
        // A link that is closed means that the processes are gone, which is no error of a signal's sender.
        let Err(error) = sent else { return };
        let refused = match error.kind() {
            io::ErrorKind::InvalidInput => SpawnError::Spec(error.to_string()),
            _ => SpawnError::SandboxEnded,
        };
        if let Some(waits) = token.and_then(|token| self.pending.remove(&token)) {
            let _ = waits.answer.send(Err(refused));
        }
    }

    pub(crate) fn spawn(&mut self, start: Start) {
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
        self.request(token, request, files, waits);
    }

    pub(crate) fn signal(&mut self, token: u32, target: Target, signal: i32) {
        let group = u8::from(target == Target::Group);
        self.tell(Request::Signal {
            token,
            group,
            signal,
        });
    }

    /// Kills every process.
    pub(crate) fn clear(&mut self) {
        self.tell(Request::Clear {});
    }

    /// A look around from inside, written to this file.
    pub(crate) fn examine(&mut self, output: OwnedFd, answer: Answer) {
        let token = self.new_token();
        let waits = Pending {
            program: Vec::new(),
            cwd: Vec::new(),
            answer,
        };
        let request = Request::Examine { token };
        self.request(token, request, vec![output], waits);
    }

    /// A further mode of the helper inside, with its input and its output.
    pub(crate) fn helper(&mut self, arguments: Vec<Vec<u8>>, files: [OwnedFd; 2], answer: Answer) {
        let token = self.new_token();
        let waits = Pending {
            program: Vec::new(),
            cwd: Vec::new(),
            answer,
        };
        let request = Request::Helper {
            token,
            arguments,
            cwd: crate::WORKSPACE_DIR.as_bytes().to_vec(),
        };
        self.request(token, request, files.into(), waits);
    }

    const fn new_token(&mut self) -> u32 {
        self.last_token = self.last_token.wrapping_add(1);
        self.last_token
    }

    /// A request whose answer somebody waits for.
    fn request(&mut self, token: u32, request: Request, files: Vec<OwnedFd>, waits: Pending) {
        self.pending.insert(token, waits);
        self.letters.push_back(Letter {
            request,
            files,
            token: Some(token),
        });
    }

    fn tell(&mut self, request: Request) {
        self.letters.push_back(Letter {
            request,
            files: Vec::new(),
            token: None,
        });
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
