//! The zygote's life.
//!
//! ```text
//! outer ─namespaces─fork─▶ zygote ─guest, rehearsal, walls, a trial of a child's walls─▶ Ready ─▶ [ Fork ─▶ Forked │ child ended ─▶ Exited ]
//!   │ waits                                                                                 │ the broker's end is closed
//!   ▼                                                                                       ▼
//! ends as the zygote did ◀───────────────────────────────── the kernel kills all in the namespace
//! ```

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    process::ExitCode,
};

use bulkhead_sandbox::Refusal;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::{Pid, WaitOptions, WaitStatus, waitpid},
};

use crate::{
    child,
    control::{ChildId, ControlError, ZygoteEnd},
    filter::Filter,
    guest::{Guest, LoadError},
    launch::Options,
    rehearsal::{Pages, rehearse},
    sys::{self, Forked},
    walls::{self, Privilege},
};

/// A wall is missing.
const REFUSED: u8 = 3;

/// Why a zygote ended that nobody had told to.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("making what runs plugins")]
    Load(#[source] LoadError),
    #[error("{0}")]
    Io(&'static str, #[source] io::Error),
    #[error(transparent)]
    Control(#[from] ControlError),
}

impl Fault {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Refused(_) => ExitCode::from(REFUSED),
            _ => ExitCode::FAILURE,
        }
    }
}

fn io(doing: &'static str) -> impl Fn(Errno) -> Fault {
    move |errno| Fault::Io(doing, errno.into())
}

/// Makes this process, which must have one thread, a zygote. It returns twice, in the outer process and in the zygote, when
/// the zygote ends; in both the caller does nothing more than to show the fault and to end.
pub fn run(
    options: &Options,
    load: impl FnOnce(&Options) -> Result<Box<dyn Guest>, LoadError>,
) -> Result<ExitCode, Fault> {
    let privilege = walls::enter_namespaces()?;
    let forked = sys::fork().map_err(|error| Fault::Io("forking the zygote", error))?;
    match forked {
        Forked::Parent { pid, .. } => wait_for(pid),
        Forked::Child => zygote(options, privilege, load),
    }
}

/// The outer process: its end is what the broker sees as the zygote's.
fn wait_for(pid: u32) -> Result<ExitCode, Fault> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let waited = rustix::io::retry_on_intr(|| waitpid(pid, WaitOptions::empty()));
    let status = waited.map_err(io("waiting for the zygote"))?;
    let code = status.map_or(1, |(_, status)| code_of(status));
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

fn code_of(status: WaitStatus) -> i32 {
    let signal = status.terminating_signal().map(|signal| 128 + signal);
    status.exit_status().or(signal).unwrap_or(1)
}

fn zygote(
    options: &Options,
    privilege: Privilege,
    load: impl FnOnce(&Options) -> Result<Box<dyn Guest>, LoadError>,
) -> Result<ExitCode, Fault> {
    let control = ZygoteEnd::from_socket(sys::take_input());
    walls::stand_apart()?;
    let guest = load(options).map_err(Fault::Load)?;
    // While there still is a /proc to ask.
    let (guest, pages) = rehearse(guest);
    walls::close_in(privilege)?;
    let filter =
        Filter::compile().map_err(|error| Fault::Io("compiling the system-call filter", error))?;
    let filter = try_a_childs_walls(filter)?;
    let ended = sys::watch_children().map_err(|error| Fault::Io("watching children", error))?;
    tell(control.ready())?;
    serve(&control, &ended, guest, &pages, filter)?;
    Ok(ExitCode::SUCCESS)
}

/// A child that only locks itself down: what a machine lacks shows before the broker counts on it.
fn try_a_childs_walls(filter: Filter) -> Result<Filter, Fault> {
    let (ours, theirs) = pipe().map_err(io("making a pipe"))?;
    let pid = match sys::fork().map_err(|error| Fault::Io("forking", error))? {
        Forked::Child => child::try_walls(&theirs, ours.as_fd(), filter),
        Forked::Parent { pid, .. } => i32::try_from(pid).ok().and_then(Pid::from_raw),
    };
    let waited = rustix::io::retry_on_intr(|| waitpid(pid, WaitOptions::empty()));
    let status = waited.map_err(io("waiting for a trial of the walls"))?;
    match status.map(|(_, status)| status) {
        Some(status) if status.exit_status() == Some(0) => Ok(filter),
        other => Err(Refusal {
            boundary: "seccomp and resource limits".to_owned(),
            seen: format!("a process that locked itself down ended with {other:?}"),
            remedy: "use a kernel with seccomp filters (`CONFIG_SECCOMP_FILTER=y`); the line before this one says which step \
                     failed"
                .to_owned(),
        }
        .into()),
    }
}

fn serve(
    control: &ZygoteEnd,
    ended: &OwnedFd,
    guest: Box<dyn Guest>,
    pages: &Pages,
    filter: Filter,
) -> Result<(), Fault> {
    loop {
        let (asked, ended_some) = wait(control, ended)?;
        if ended_some && bury(control, ended)?.is_over() {
            return Ok(());
        }
        if !asked {
            continue;
        }
        let Some(request) = control.receive()? else {
            return Ok(());
        };
        for entrance in request.entrances {
            match bear(control)? {
                Birth::Child(pipe) => child::live(guest, pages, &pipe, entrance.as_fd(), filter),
                Birth::Told(Told::Over) => return Ok(()),
                Birth::Told(Told::Heard) => {}
            }
        }
    }
}

/// Whether there is a request, and whether a child has ended.
fn wait(control: &ZygoteEnd, ended: &OwnedFd) -> Result<(bool, bool), Fault> {
    let mut watched = [
        PollFd::new(control, PollFlags::IN),
        PollFd::new(ended, PollFlags::IN),
    ];
    match poll(&mut watched, None) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok((false, false)),
        Err(errno) => return Err(io("waiting for requests")(errno)),
    }
    let [control, ended] = watched.map(|fd| !fd.revents().is_empty());
    Ok((control, ended))
}

/// Whether the broker is there to be told.
enum Told {
    Heard,
    Over,
}

impl Told {
    fn is_over(&self) -> bool {
        matches!(self, Self::Over)
    }
}

fn tell(said: Result<(), ControlError>) -> Result<Told, Fault> {
    match said {
        Ok(()) => Ok(Told::Heard),
        Err(ControlError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Told::Over),
        Err(error) => Err(error.into()),
    }
}

enum Birth {
    /// This process is the child, and this its end of the pipe.
    Child(OwnedFd),
    /// This is the zygote still.
    Told(Told),
}

/// Forks one child and tells the broker of it, or that it could not be.
fn bear(control: &ZygoteEnd) -> Result<Birth, Fault> {
    let told = match fork_with_pipe() {
        Ok(Born::Child(pipe)) => return Ok(Birth::Child(pipe)),
        Ok(Born::Parent { pid, pidfd, pipe }) => {
            control.forked(ChildId(pid), pipe.as_fd(), pidfd.as_fd())
        }
        Err(error) => control.fork_failed(error.raw_os_error().unwrap_or(libc::EIO)),
    };
    tell(told).map(Birth::Told)
}

enum Born {
    Child(OwnedFd),
    Parent {
        pid: u32,
        pidfd: OwnedFd,
        pipe: OwnedFd,
    },
}

fn fork_with_pipe() -> io::Result<Born> {
    let (ours, theirs) = pipe()?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok(match sys::fork()? {
        Forked::Child => Born::Child(theirs),
        Forked::Parent { pid, pidfd } => Born::Parent {
            pid,
            pidfd,
            pipe: ours,
        },
    })
}

fn pipe() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
}

/// Reaps all that have ended. One signal may stand for many.
fn bury(control: &ZygoteEnd, ended: &OwnedFd) -> Result<Told, Fault> {
    let mut signal = [0; size_of::<libc::signalfd_siginfo>()];
    match rustix::io::read(ended, &mut signal) {
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
        Err(errno) => return Err(io("hearing of ended children")(errno)),
    }
    loop {
        match waitpid(None, WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                let id = ChildId(pid.as_raw_nonzero().get().cast_unsigned());
                if tell(control.exited(id, status.as_raw()))?.is_over() {
                    return Ok(Told::Over);
                }
            }
            Ok(None) | Err(Errno::CHILD) => return Ok(Told::Heard),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(io("reaping children")(errno)),
        }
    }
}
