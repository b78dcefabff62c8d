//! Starting one process: its streams, its session, its program.

use std::{
    collections::BTreeMap,
    io, mem,
    os::{
        fd::{AsRawFd as _, OwnedFd, RawFd},
        unix::ffi::OsStringExt as _,
    },
    ptr,
};

use bulkhead_init::wire::{self, IoKind, Order, SpawnStage};

use super::{borrow, child::Child, set_nonblocking};
use crate::{
    spawn::{Program, close_rest_at_exec, default_signals, enter},
    sys,
};

/// Where a program is looked for when neither the command nor the container names a `PATH`.
const SEARCH_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// A start takes a millisecond; half a minute is enough on any machine that works.
const START_MS: i32 = 30_000;

/// How far the start came, and the kernel's reason.
type Stopped = (SpawnStage, io::Error);

struct Streams {
    inner: [OwnedFd; 3],
    outer: Outer,
}

enum Outer {
    Pipes([Option<OwnedFd>; 3]),
    Terminal(OwnedFd),
}

pub(super) fn start(order: &Order) -> Result<Child, Stopped> {
    let Order::Spawn {
        argv,
        env,
        cwd,
        io: kinds,
        rows,
        columns,
        ..
    } = order
    else {
        return Err((SpawnStage::Setup {}, io::ErrorKind::InvalidInput.into()));
    };
    let setup = |error| (SpawnStage::Setup {}, error);
    let env = environment(env);
    let path = env.get(&b"PATH"[..]).map_or(SEARCH_PATH, Vec::as_slice);
    let lines: Vec<Vec<u8>> = env
        .iter()
        .map(|(name, value)| [&name[..], b"=", value].concat())
        .collect();
    let program = Program::new(argv, &lines, cwd, path).map_err(setup)?;
    let streams = Streams::new(kinds, *rows, *columns)?;
    let pid = fork(&program, &streams)?;
    Ok(match streams.outer {
        Outer::Terminal(outer) => Child::with_terminal(pid, outer),
        Outer::Pipes([input, output, error]) => Child::with_pipes(pid, input, output, error),
    })
}

/// The holder's own variables, and the command's over them.
fn environment(added: &[Vec<u8>]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let own = std::env::vars_os().map(|(name, value)| (name.into_vec(), value.into_vec()));
    let added = added.iter().filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b'=')?;
        Some((line[..at].to_vec(), line[at + 1..].to_vec()))
    });
    own.chain(added).collect()
}

fn fork(program: &Program, streams: &Streams) -> Result<i32, Stopped> {
    let forking = |error| (SpawnStage::Fork {}, error);
    let (told, tells) = sys::pipe().map_err(forking)?;
    // SAFETY: this process has one thread, so the child, a copy, may run any code.
    let pid = sys::check(unsafe { libc::fork() }).map_err(forking)?;
    if pid == 0 {
        let (stage, error) = become_program(program, streams);
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        let _ = sys::write_all(borrow(&tells), &wire::encode(&(vec![stage], errno)));
        sys::exit_now(127);
    }
    drop(tells);
    let pid = i32::try_from(pid).unwrap_or(-1);
    let Some(stopped) = report(&told) else {
        return Ok(pid);
    };
    // SAFETY: numbers only, and a null status pointer is allowed. The child is not reaped yet, so the pid is its own.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, ptr::null_mut(), 0);
    }
    Err(stopped)
}

/// What stopped the child; none when its program runs, because that has closed the pipe.
fn report(told: &OwnedFd) -> Option<Stopped> {
    if !sys::is_readable(borrow(told), START_MS) {
        let late = io::Error::from_raw_os_error(libc::ETIMEDOUT);
        return Some((SpawnStage::Fork {}, late));
    }
    let mut buffer = [0_u8; 64];
    let length = sys::read(told.as_raw_fd(), &mut buffer).ok()?;
    let (mut stages, errno): (Vec<SpawnStage>, i32) = wire::decode(&buffer[..length]).ok()?;
    Some((stages.pop()?, io::Error::from_raw_os_error(errno)))
}

/// In the child, up to the program's first instruction; returns only when something failed.
fn become_program(program: &Program, streams: &Streams) -> Stopped {
    if let Err(error) = prepare(streams) {
        return (SpawnStage::Setup {}, error);
    }
    if !program.cwd.is_empty()
        && let Err(error) = enter(&program.cwd)
    {
        return (SpawnStage::WorkingDirectory {}, error);
    }
    (SpawnStage::Execute {}, program.execute())
}

fn prepare(streams: &Streams) -> io::Result<()> {
    // SAFETY: takes nothing.
    sys::check(unsafe { libc::setsid() })?;
    if let Outer::Terminal(_) = streams.outer {
        // SAFETY: the request takes a number.
        sys::check(unsafe { libc::ioctl(streams.inner[0].as_raw_fd(), libc::TIOCSCTTY, 0) })?;
    }
    // All above 2 first, so that putting one in place cannot overwrite another.
    let copy = |fd: &OwnedFd| {
        // SAFETY: the descriptor is open; the copy lives until the exec closes it.
        sys::check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) })
    };
    let copies = streams
        .inner
        .iter()
        .map(copy)
        .collect::<io::Result<Vec<_>>>()?;
    for (target, fd) in (0..).zip(copies) {
        let fd = RawFd::try_from(fd).unwrap_or(-1);
        // SAFETY: numbers only.
        sys::check(unsafe { libc::dup2(fd, target) })?;
    }
    close_rest_at_exec().or_else(|_| close_each_at_exec())?;
    default_signals()?;
    // SAFETY: takes a number only.
    unsafe { libc::umask(0o022) };
    Ok(())
}

/// For kernels that cannot do it at once: gVisor, and Linux before 5.11. All that the holder opens is so already; this is for
/// what whoever started it has left open.
fn close_each_at_exec() -> io::Result<()> {
    const HIGHEST: RawFd = 1024;
    for fd in 3..HIGHEST {
        // SAFETY: numbers only; one that is not open is refused without harm.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

impl Streams {
    fn new(kinds: &[IoKind], rows: u16, columns: u16) -> Result<Self, Stopped> {
        if kinds.contains(&IoKind::Terminal {}) {
            return terminal(rows, columns).map_err(|error| (SpawnStage::Terminal {}, error));
        }
        Self::pipes(kinds).map_err(|error| (SpawnStage::Setup {}, error))
    }

    fn pipes(kinds: &[IoKind]) -> io::Result<Self> {
        let (mut inner, mut outer) = (Vec::new(), [None, None, None]);
        if kinds.len() != outer.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (index, kind) in kinds.iter().enumerate() {
            if *kind == (IoKind::Null {}) {
                inner.push(sys::open("/dev/null", libc::O_RDWR)?);
                continue;
            }
            let (reads, writes) = sys::pipe()?;
            let (theirs, ours) = if index == 0 {
                (reads, writes)
            } else {
                (writes, reads)
            };
            set_nonblocking(ours.as_raw_fd())?;
            inner.push(theirs);
            outer[index] = Some(ours);
        }
        let inner = inner.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(Self {
            inner,
            outer: Outer::Pipes(outer),
        })
    }
}

fn terminal(rows: u16, columns: u16) -> io::Result<Streams> {
    let outer = sys::open("/dev/pts/ptmx", libc::O_RDWR | libc::O_NOCTTY)
        .or_else(|_| sys::open("/dev/ptmx", libc::O_RDWR | libc::O_NOCTTY))?;
    let unlock: i32 = 0;
    // SAFETY: the request takes a pointer to an int.
    sys::check(unsafe { libc::ioctl(outer.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlock) })?;
    set_size(&outer, rows, columns)?;
    let inner = inner_end(&outer)?;
    set_nonblocking(outer.as_raw_fd())?;
    Ok(Streams {
        inner: [inner.try_clone()?, inner.try_clone()?, inner],
        outer: Outer::Terminal(outer),
    })
}

/// By the kernel's request where it has one, else by the name: gVisor and kernels before 4.13 do not have it.
fn inner_end(outer: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the request takes open flags.
    let opened = sys::owned(unsafe { libc::ioctl(outer.as_raw_fd(), libc::TIOCGPTPEER, flags) });
    opened.or_else(|_| {
        let mut number: libc::c_uint = 0;
        // SAFETY: the request takes a pointer to an unsigned int.
        sys::check(unsafe { libc::ioctl(outer.as_raw_fd(), libc::TIOCGPTN, &raw mut number) })?;
        sys::open(&format!("/dev/pts/{number}"), libc::O_RDWR | libc::O_NOCTTY)
    })
}

pub(super) fn set_size(terminal: &OwnedFd, rows: u16, columns: u16) -> io::Result<()> {
    // SAFETY: all-zero is a valid window size.
    let mut size: libc::winsize = unsafe { mem::zeroed() };
    size.ws_row = rows;
    size.ws_col = columns;
    // SAFETY: the request takes a pointer to a window size.
    sys::check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) })
        .map(drop)
}
