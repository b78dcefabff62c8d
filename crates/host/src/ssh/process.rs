//! Processes on the machine.

use std::{
    io::{self, Cursor},
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe,
    sync::watch,
    time::sleep,
};

use super::{
    SshError,
    master::Master,
    mux::{Mux, MuxError, Runs},
    script::{self, BOOTSTRAP, Header},
    slots::Slot,
    terminal::Terminal,
};
use crate::{
    Command, ExitStatus, HostError, Process, ProcessControl, Signal, Stdio, Stream, Target,
    TerminalSize,
    process::{Reader, Writer},
};

/// What a start-up file of the account may print before the program runs.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// What `ssh` returns for a process that a signal has ended.
const KILLED_FROM_ELSEWHERE: i32 = 255;
/// Where the server refuses a session although no other is open, one is just being closed, or it lets open none at all.
const REFUSALS_MAX: u32 = 40;
const REFUSAL_PAUSE: Duration = Duration::from_millis(5);
const REFUSAL_PAUSE_MAX: Duration = Duration::from_millis(250);

/// An open session: its conversation with the master, and its place among those that the server lets open.
pub(super) struct Session {
    pub(super) mux: Mux,
    pub(super) slot: Slot,
}

/// Opens a session as soon as the server lets it.
pub(super) async fn open(
    master: &Master,
    runs: Runs<'_>,
    streams: [&OwnedFd; 3],
) -> Result<Session, SshError> {
    let mut refusals = 0;
    let mut pause = REFUSAL_PAUSE;
    loop {
        let attempt = master.slots.begin().await;
        let mut mux = master.mux().await?;
        let streams = streams.map(|stream| stream.as_fd());
        match mux.session(runs, streams).await {
            Ok(()) => {
                let slot = attempt.opened();
                return Ok(Session { mux, slot });
            }
            Err(MuxError::Refused(words)) => {
                refusals = if attempt.refused() == 0 {
                    refusals + 1
                } else {
                    0
                };
                if refusals > REFUSALS_MAX {
                    return Err(SshError::NoSessions(words));
                }
                sleep(pause).await;
                pause = REFUSAL_PAUSE_MAX.min(pause * 2);
            }
            Err(other) => return Err(other.into()),
        }
    }
}

/// Starts a process and waits until the machine's shell has become it.
pub(super) async fn spawn(
    host: &str,
    master: &Arc<Master>,
    command: Command,
) -> Result<Process, HostError> {
    let program = command.argv.first().cloned().unwrap_or_default();
    let failed = |source: SshError| HostError::Spawn {
        host: host.to_owned(),
        program: program.clone(),
        source: Arc::new(source),
    };
    let line = script::line(&command).map_err(|error| failed(error.into()))?;
    let begun = match command.stdio {
        Stdio::Terminal(size) => {
            let terminal = command
                .env
                .get("TERM")
                .map_or("xterm-256color", String::as_str);
            super::terminal::begin(master, terminal, size, &line).await
        }
        Stdio::Streams { stderr, .. } => begin(master, stderr, &line).await,
    };
    let begun = begun.map_err(failed)?;
    let pid = match begun.header {
        Header::Started { pid } => pid,
        Header::NotFound => {
            let host = host.to_owned();
            return Err(HostError::NotFound { host, program });
        }
        Header::NoDirectory => {
            return Err(failed(SshError::Directory(io::Error::other(
                "there is no such working directory on the machine, or it may not be entered",
            ))));
        }
        Header::NotExecutable => return Err(failed(SshError::NotExecutable)),
    };
    Ok(begun.process(host, master, pid, command.stdio))
}

/// A process that has been asked for, with what the machine's shell said to it.
pub(super) struct Begun {
    pub(super) session: Session,
    pub(super) header: Header,
    pub(super) stdin: Writer,
    pub(super) stdout: Reader,
    pub(super) stderr: Option<Reader>,
    pub(super) terminal: Option<Terminal>,
}

async fn begin(master: &Master, stderr: Stream, line: &str) -> Result<Begun, SshError> {
    let io = SshError::Streams;
    let (stdin, theirs_in) = pipe::pipe().map_err(io)?;
    let (theirs_out, stdout) = pipe::pipe().map_err(io)?;
    let theirs_in = theirs_in.into_blocking_fd().map_err(io)?;
    let theirs_out = theirs_out.into_blocking_fd().map_err(io)?;
    let (theirs_err, stderr) = match stderr {
        Stream::Null => (OwnedFd::from(null().map_err(io)?), None),
        Stream::Pipe => {
            let (theirs, ours) = pipe::pipe().map_err(io)?;
            let ours: Reader = Box::new(ours);
            (theirs.into_blocking_fd().map_err(io)?, Some(ours))
        }
    };
    let streams = [&theirs_in, &theirs_out, &theirs_err];
    let session = open(master, Runs::Command(BOOTSTRAP), streams).await?;
    drop((theirs_in, theirs_out, theirs_err));
    let (mut stdin, mut stdout) = (stdin, stdout);
    let wrote = async {
        // A shell that ends early says why on its output, or shows it by its end.
        let _ = stdin.write_all(line.as_bytes()).await;
    };
    let ((), header) = tokio::join!(wrote, header(&mut stdout));
    let (header, rest) = header?;
    Ok(Begun {
        session,
        header,
        stdin: Box::new(stdin),
        stdout: Box::new(Cursor::new(rest).chain(stdout)),
        stderr,
        terminal: None,
    })
}

fn null() -> io::Result<std::fs::File> {
    std::fs::OpenOptions::new().write(true).open("/dev/null")
}

/// Reads up to our own line, and gives it with what was read beyond it.
pub(super) async fn header(
    stdout: &mut (impl AsyncRead + Unpin),
) -> Result<(Header, Vec<u8>), SshError> {
    let mut buffer = Vec::with_capacity(512);
    let mut from = 0;
    loop {
        while let Some(end) = buffer[from..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&buffer[from..from + end]);
            let header = Header::parse(&line);
            from += end + 1;
            if let Some(header) = header {
                return Ok((header, buffer.split_off(from)));
            }
        }
        let over = buffer.len() > HEADER_BYTES_MAX;
        if over
            || stdout
                .read_buf(&mut buffer)
                .await
                .map_err(SshError::Streams)?
                == 0
        {
            let said = String::from_utf8_lossy(&buffer);
            let said: String = said.trim().chars().take(500).collect();
            return Err(SshError::NoShell(said));
        }
    }
}

impl Begun {
    fn process(self, host: &str, master: &Arc<Master>, pid: u32, stdio: Stdio) -> Process {
        let (exit, exited) = watch::channel(None);
        let signalled = Arc::new(AtomicI32::new(0));
        master.runs(pid);
        let follower = follow(
            self.session,
            Arc::clone(master),
            pid,
            Arc::clone(&signalled),
            exit,
        );
        master.tasks.spawn(follower);
        let (mut stdin, mut stdout) = (Some(self.stdin), Some(self.stdout));
        if let Stdio::Streams {
            stdin: input,
            stdout: output,
            ..
        } = stdio
        {
            stdin = stdin.filter(|_| input == Stream::Pipe);
            stdout = stdout.filter(|_| output == Stream::Pipe);
        }
        Process {
            stdin,
            stdout,
            stderr: self.stderr,
            control: Arc::new(Control {
                host: host.to_owned(),
                master: Arc::clone(master),
                pid,
                signalled,
                exited,
                terminal: self.terminal,
            }),
        }
    }
}

/// Waits for the end of a process and says how it ended.
///
/// `ssh` passes an exit code on, but of a death by a signal only that there was no code. Which signal it was is known where it
/// came from here; else the code is 255, as `ssh` itself says it.
async fn follow(
    mut session: Session,
    master: Arc<Master>,
    pid: u32,
    signalled: Arc<AtomicI32>,
    exit: watch::Sender<Option<ExitStatus>>,
) {
    let code = session.mux.exit().await;
    master.has_ended(pid);
    let status = match code.map(i32::try_from) {
        Some(Ok(code)) => ExitStatus::Code(code),
        _ if master.is_alive().await => match signalled.load(Ordering::SeqCst) {
            0 => ExitStatus::Code(KILLED_FROM_ELSEWHERE),
            sent => ExitStatus::Signal(sent),
        },
        _ => ExitStatus::HostEnded,
    };
    exit.send_replace(Some(status));
    // The server keeps the session's place until its streams are closed, by descendants too.
    session.mux.closed().await;
    drop(session.slot);
}

struct Control {
    host: String,
    master: Arc<Master>,
    pid: u32,
    /// The last signal that was sent from here and can end a process.
    signalled: Arc<AtomicI32>,
    exited: watch::Receiver<Option<ExitStatus>>,
    terminal: Option<Terminal>,
}

impl Control {
    fn error(&self, source: SshError) -> HostError {
        HostError::Process {
            host: self.host.clone(),
            source: Arc::new(source),
        }
    }
}

#[async_trait]
impl ProcessControl for Control {
    async fn wait(&self) -> ExitStatus {
        let mut exited = self.exited.clone();
        let status = exited.wait_for(Option::is_some).await;
        let status = status.ok().and_then(|status| *status);
        status.unwrap_or(ExitStatus::HostEnded)
    }

    async fn signal(&self, signal: Signal, target: Target) -> Result<(), HostError> {
        if self.exited.borrow().is_some() {
            return Ok(());
        }
        if !matches!(signal, Signal::Stop | Signal::Continue) {
            self.signalled.store(number(signal), Ordering::SeqCst);
        }
        let sign = match target {
            Target::Process => "",
            // Every session is a group of its own, led by the shell that became the program.
            Target::Group => "-",
        };
        let line = format!("kill -{} {sign}{} 2>/dev/null", name(signal), self.pid);
        // The code only says whether it was still there.
        let sent = self.master.perform(&line).await;
        sent.map(drop).map_err(|source| self.error(source))
    }

    async fn resize(&self, size: TerminalSize) -> Result<(), HostError> {
        let terminal = self.terminal.as_ref();
        let terminal = terminal.ok_or_else(|| self.error(SshError::NoTerminal))?;
        let told = terminal.resize(&self.master, size).await;
        told.map_err(|source| self.error(source))
    }
}

const fn name(signal: Signal) -> &'static str {
    match signal {
        Signal::Hangup => "HUP",
        Signal::Interrupt => "INT",
        Signal::Quit => "QUIT",
        Signal::User1 => "USR1",
        Signal::User2 => "USR2",
        Signal::Terminate => "TERM",
        Signal::Stop => "STOP",
        Signal::Continue => "CONT",
        Signal::Kill => "KILL",
    }
}

/// Linux's numbers, whatever the machine's own are.
const fn number(signal: Signal) -> i32 {
    use rustix::process::Signal as Number;
    match signal {
        Signal::Hangup => Number::HUP.as_raw(),
        Signal::Interrupt => Number::INT.as_raw(),
        Signal::Quit => Number::QUIT.as_raw(),
        Signal::User1 => Number::USR1.as_raw(),
        Signal::User2 => Number::USR2.as_raw(),
        Signal::Terminate => Number::TERM.as_raw(),
        Signal::Stop => Number::STOP.as_raw(),
        Signal::Continue => Number::CONT.as_raw(),
        Signal::Kill => Number::KILL.as_raw(),
    }
}
