//! A process of a holder, from its start on: its streams.

use std::{
    io,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
};

use bulkhead_init::wire::{DATA_MAX, ERROR, OUTPUT, Order, SpawnStage, WINDOW};
use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt as _, DuplexStream, ReadBuf};

use super::{
    control::Control,
    link::Link,
    order,
    table::{Fresh, Input, Tap},
};
use crate::{Command, HostError, Process, Reader, Signal, Stdio, Stream, Target, Writer};

/// Input that is taken from its writer before the process has room for it.
const INPUT_BUFFER: usize = 64 << 10;
const GRANT_SIZE: u32 = WINDOW / 4;

/// A start under way. Where its caller goes away in the middle, the process is killed: nobody would know of it.
pub(super) struct Starting {
    link: Arc<Link>,
    process: u32,
    is_done: bool,
}

/// Which streams the host's side has.
struct Wanted {
    input: bool,
    output: bool,
    error: bool,
}

impl Starting {
    pub(super) async fn run(link: Arc<Link>, command: Command) -> Result<Process, HostError> {
        let program = command.argv.first().cloned().unwrap_or_default();
        let cwd = command.cwd.clone();
        let wanted = Wanted::of(command.stdio);
        let gone = || HostError::Gone {
            host: link.host().to_owned(),
        };
        let _permit = link.starts.acquire().await.map_err(|_| gone())?;
        let fresh = link.table().insert().ok_or_else(gone)?;
        let mut starting = Self {
            link: Arc::clone(&link),
            process: fresh.process,
            is_done: false,
        };
        link.order(&order(fresh.process, command));
        let Fresh {
            process,
            answer,
            input,
            outputs: [output, error],
            exited,
        } = fresh;
        let answer = answer.await;
        starting.is_done = true;
        match answer {
            Err(_) => return Err(gone()),
            Ok(Err((stage, errno))) => return Err(failed(&link, program, cwd, &stage, errno)),
            Ok(Ok(_)) => {}
        }
        let reader = |wanted: bool, channel: u8, tap: Tap| {
            let reader = Output::new(Arc::clone(&link), process, channel, tap);
            wanted.then(|| Box::new(reader) as Reader)
        };
        Ok(Process {
            stdin: wanted.input.then(|| writer(&link, process, input)),
            stdout: reader(wanted.output, OUTPUT, output),
            stderr: reader(wanted.error, ERROR, error),
            control: Arc::new(Control::new(Arc::clone(&link), process, exited)),
        })
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if !self.is_done {
            super::control::send(&self.link, self.process, Signal::Kill, Target::Group);
            self.link.order(&Order::Release {
                process: self.process,
            });
            self.link.table().release(self.process);
        }
    }
}

impl Wanted {
    fn of(stdio: Stdio) -> Self {
        match stdio {
            Stdio::Terminal(_) => Self {
                input: true,
                output: true,
                error: false,
            },
            Stdio::Streams {
                stdin,
                stdout,
                stderr,
            } => Self {
                input: stdin == Stream::Pipe,
                output: stdout == Stream::Pipe,
                error: stderr == Stream::Pipe,
            },
        }
    }
}

fn failed(
    link: &Link,
    program: String,
    cwd: Option<String>,
    stage: &SpawnStage,
    errno: i32,
) -> HostError {
    let host = link.host().to_owned();
    let error = io::Error::from_raw_os_error(errno);
    let source: Arc<dyn std::error::Error + Send + Sync> = match stage {
        SpawnStage::Execute {} if error.kind() == io::ErrorKind::NotFound => {
            return HostError::NotFound { host, program };
        }
        SpawnStage::Execute {} => Arc::new(error),
        SpawnStage::WorkingDirectory {} => Arc::new(StartError {
            step: format!("entering {}", cwd.unwrap_or_default()),
            source: error,
        }),
        SpawnStage::Terminal {} => Arc::new(StartError {
            step: "opening a terminal".to_owned(),
            source: error,
        }),
        SpawnStage::Fork {} | SpawnStage::Setup {} => Arc::new(StartError {
            step: "making the process".to_owned(),
            source: error,
        }),
    };
    HostError::Spawn {
        host,
        program,
        source,
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{step}")]
struct StartError {
    step: String,
    source: io::Error,
}

pub(super) fn writer(link: &Arc<Link>, process: u32, input: Arc<Input>) -> Writer {
    let (ours, theirs) = tokio::io::duplex(INPUT_BUFFER);
    let link = Arc::clone(link);
    let tasks = link.tasks().clone();
    tasks.spawn(async move {
        let refused = input.refused.clone();
        tokio::select! {
            () = feed(&link, process, &input, theirs) => {}
            // The stream is dropped here, and its writer learns it as a broken pipe.
            () = refused.cancelled() => {}
            () = link.closed_token().cancelled() => {}
        }
    });
    Box::new(ours)
}

/// Carries input until its writer is dropped.
async fn feed(link: &Link, process: u32, input: &Input, mut from: DuplexStream) {
    let mut buffer = vec![0; DATA_MAX];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if read == 0 {
            return link.finish_input(process).await;
        }
        let wanted = u32::try_from(read).unwrap_or(0);
        let Ok(room) = input.window.acquire_many(wanted).await else {
            return;
        };
        room.forget();
        if !link.feed(process, &buffer[..read]).await {
            return;
        }
    }
}

/// An output as its reader sees it. What was read is granted anew in quarters of the window.
pub(super) struct Output {
    link: Arc<Link>,
    process: u32,
    channel: u8,
    tap: Tap,
    current: Bytes,
    read: u32,
    has_ended: bool,
}

impl Output {
    pub(super) fn new(link: Arc<Link>, process: u32, channel: u8, tap: Tap) -> Self {
        Self {
            link,
            process,
            channel,
            tap,
            current: Bytes::new(),
            read: 0,
            has_ended: false,
        }
    }

    fn was_read(&mut self, bytes: usize) {
        self.read += u32::try_from(bytes).unwrap_or(0);
        if self.read >= GRANT_SIZE {
            self.tap.under_way.fetch_sub(self.read, Ordering::Relaxed);
            self.link.order(&Order::Grant {
                process: self.process,
                channel: self.channel,
                bytes: std::mem::take(&mut self.read),
            });
        }
    }
}

impl AsyncRead for Output {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.current.is_empty() {
            match ready!(self.tap.from.poll_recv(context)) {
                Some(bytes) => self.current = bytes,
                None => {
                    self.has_ended = true;
                    return Poll::Ready(Ok(()));
                }
            }
        }
        let count = self.current.len().min(into.remaining());
        into.put_slice(&self.current[..count]);
        self.current.advance(count);
        self.was_read(count);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.has_ended {
            self.link.order(&Order::Shut {
                process: self.process,
                channel: self.channel,
            });
            self.link.table().finish(self.process, self.channel);
        }
    }
}
