//! Starting one of the agent's processes.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    ptr,
};

use bulkhead_init::wire::{Event, IoKind, Request, SpawnStage};

use crate::{
    examine,
    link::Link,
    pid1::AGENT,
    rights,
    serve::{Children, Place},
    sys, terminal,
};

/// A start takes a millisecond; half a minute is enough on any machine that works.
const WAKE_EVERY_MS: i32 = 50;
const WAKE_UPS: u32 = 600;

/// Where a start stopped, and the kernel's reason.
struct Stopped {
    stage: SpawnStage,
    error: io::Error,
}

impl Stopped {
    const fn at(stage: SpawnStage) -> impl FnOnce(io::Error) -> Self {
        move |error| Self { stage, error }
    }
}

/// The child's three streams, and the terminal's outer end where there is one.
struct Streams {
    inner: [OwnedFd; 3],
    outer: Option<OwnedFd>,
}

/// Everything that `execve` needs, allocated before the fork.
pub(crate) struct Program {
    candidates: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
    pub(crate) cwd: CString,
}

/// Performs a spawn request and answers it.
pub(crate) fn spawn(
    parent: &Link,
    place: &Place,
    request: &Request,
    files: Vec<OwnedFd>,
    children: &mut Children,
) {
    let Request::Spawn { token, .. } = *request else {
        return;
    };
    match start(place, request, files) {
        Ok((pid, outer)) => {
            children.insert(pid, token);
            let beside: Vec<_> = outer.iter().map(AsFd::as_fd).collect();
            let _ = parent.send(
                &Event::Spawned {
                    token,
                    pid: pid.cast_unsigned(),
                },
                &beside,
            );
        }
        Err(Stopped { stage, error }) => {
            let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
            let _ = parent.send(
                &Event::SpawnFailed {
                    token,
                    stage,
                    errno,
                },
                &[],
            );
        }
    }
}

/// Starts the look around, whose output goes to the one file.
pub(crate) fn examine(
    parent: &Link,
    place: &Place,
    token: u32,
    files: Vec<OwnedFd>,
    children: &mut Children,
) {
    let Some(output) = files.into_iter().next() else {
        return;
    };
    fork(parent, token, children, || {
        rights_of(place).and_then(|()| examine::report(&output))
    });
}

/// Starts this program in one of its further modes, without any file: the copy is the program.
pub(crate) fn helper(
    parent: &Link,
    place: &Place,
    request: Request,
    files: Vec<OwnedFd>,
    children: &mut Children,
) {
    let Request::Helper {
        token,
        arguments,
        cwd,
    } = request
    else {
        return;
    };
    fork(parent, token, children, || {
        become_helper(place, files, &cwd)?;
        crate::perform(&arguments)
    });
}

/// The two files as standard input and output; everything else is closed, the links to the parent too.
fn become_helper(place: &Place, files: Vec<OwnedFd>, cwd: &[u8]) -> io::Result<()> {
    let [input, output] =
        <[OwnedFd; 2]>::try_from(files).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    let error = sys::open("/dev/null", libc::O_WRONLY)?;
    let streams = std::mem::ManuallyDrop::new(Streams {
        inner: [input, output, error],
        outer: None,
    });
    prepare(place, &streams)?;
    // SAFETY: takes numbers only. The descriptors that owners in this copy still name are neither used nor dropped: it
    // exits without running their destructors.
    sys::check(unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) })?;
    // What runs beside it is of the same user, and must not look into a copy of PID 1.
    sys::prctl(libc::PR_SET_DUMPABLE, 0)?;
    enter(&sys::c_string(cwd)?)
}

/// A child that runs our own code, and exits.
fn fork(parent: &Link, token: u32, children: &mut Children, code: impl FnOnce() -> io::Result<()>) {
    // SAFETY: this process has one thread, so the child, a copy, may run any code.
    match unsafe { libc::fork() } {
        0 => sys::exit_now(i32::from(code().is_err())),
        pid if pid > 0 => {
            children.insert(pid, token);
            let pid = pid.cast_unsigned();
            let _ = parent.send(&Event::Spawned { token, pid }, &[]);
        }
        _ => {
            let error = io::Error::last_os_error();
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            let stage = SpawnStage::Fork {};
            let _ = parent.send(
                &Event::SpawnFailed {
                    token,
                    stage,
                    errno,
                },
                &[],
            );
        }
    }
}

fn start(
    place: &Place,
    request: &Request,
    files: Vec<OwnedFd>,
) -> Result<(i32, Option<OwnedFd>), Stopped> {
    let Request::Spawn {
        argv,
        env,
        cwd,
        search_path,
        io,
        rows,
        columns,
        ..
    } = request
    else {
        return Err(Stopped {
            stage: SpawnStage::Setup {},
            error: io::ErrorKind::InvalidInput.into(),
        });
    };
    let program =
        Program::new(argv, env, cwd, search_path).map_err(Stopped::at(SpawnStage::Setup {}))?;
    let streams = Streams::new(place, io, files, (*rows, *columns))?;
    let (told, tells) = sys::pipe().map_err(Stopped::at(SpawnStage::Fork {}))?;
    // SAFETY: this process has one thread, so the child, a copy, may run any code.
    let pid = sys::check(unsafe { libc::fork() }).map_err(Stopped::at(SpawnStage::Fork {}))?;
    if pid == 0 {
        let stopped = become_program(place, &program, &streams);
        report(&tells, &stopped);
        sys::exit_now(127);
    }
    drop(tells);
    let pid = i32::try_from(pid).unwrap_or(-1);
    match await_report(&told, pid) {
        None => Ok((pid, streams.outer)),
        Some(stopped) => {
            // SAFETY: a null status pointer is allowed. The child is exiting.
            unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
            Err(stopped)
        }
    }
}

impl Streams {
    fn new(
        place: &Place,
        kinds: &[IoKind],
        files: Vec<OwnedFd>,
        size: (u16, u16),
    ) -> Result<Self, Stopped> {
        let setup = || Stopped::at(SpawnStage::Setup {});
        if kinds.contains(&IoKind::Terminal {}) {
            let pair = terminal::open_pair(place, size.0, size.1)
                .map_err(Stopped::at(SpawnStage::Terminal {}))?;
            let (outer, inner) = pair;
            let again = || inner.try_clone().map_err(setup());
            return Ok(Self {
                inner: [again()?, again()?, inner],
                outer: Some(outer),
            });
        }
        let mut files = files.into_iter();
        let mut one = |kind: &IoKind| match kind {
            IoKind::Passed {} => files
                .next()
                .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF)),
            IoKind::Null {} | IoKind::Terminal {} => sys::open("/dev/null", libc::O_RDWR),
        };
        let inner: Result<Vec<OwnedFd>, _> = kinds.iter().map(&mut one).collect();
        let inner = inner.map_err(setup())?.try_into();
        let inner = inner.map_err(|_| Stopped {
            stage: SpawnStage::Setup {},
            error: io::ErrorKind::InvalidInput.into(),
        })?;
        Ok(Self { inner, outer: None })
    }
}

impl Program {
    pub(crate) fn new(
        argv: &[Vec<u8>],
        env: &[Vec<u8>],
        cwd: &[u8],
        path: &[u8],
    ) -> io::Result<Self> {
        let strings = |list: &[Vec<u8>]| {
            list.iter()
                .map(|text| sys::c_string(text.as_slice()))
                .collect::<io::Result<Vec<_>>>()
        };
        let name = argv.first().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let candidates = if name.contains(&b'/') {
            vec![name.clone()]
        } else {
            below(path, name)
        };
        Ok(Self {
            candidates: strings(&candidates)?,
            argv: strings(argv)?,
            env: strings(env)?,
            cwd: sys::c_string(cwd)?,
        })
    }

    /// Tries each candidate; what is there but cannot be executed counts more than what is not there.
    pub(crate) fn execute(&self) -> io::Error {
        let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
            list.iter()
                .map(|text| text.as_ptr())
                .chain([ptr::null()])
                .collect()
        };
        let (argv, env) = (pointers(&self.argv), pointers(&self.env));
        let mut worst = io::Error::from_raw_os_error(libc::ENOENT);
        for candidate in &self.candidates {
            // SAFETY: the arrays end with a null pointer and their strings outlive the call.
            unsafe { libc::execve(candidate.as_ptr(), argv.as_ptr(), env.as_ptr()) };
            let error = io::Error::last_os_error();
            if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) {
                worst = error;
            }
        }
        worst
    }
}

fn below(path: &[u8], name: &[u8]) -> Vec<Vec<u8>> {
    let dirs = path
        .split(|byte| *byte == b':')
        .filter(|dir| dir.starts_with(b"/"));
    dirs.map(|dir| [dir, b"/", name].concat()).collect()
}

/// In the child, up to the program's first instruction; returns only when something failed.
fn become_program(place: &Place, program: &Program, streams: &Streams) -> Stopped {
    if let Err(error) = prepare(place, streams) {
        return Stopped {
            stage: SpawnStage::Setup {},
            error,
        };
    }
    // As the agent, so that a directory that only PID 1 could enter is refused.
    if let Err(error) = enter(&program.cwd) {
        return Stopped {
            stage: SpawnStage::WorkingDirectory {},
            error,
        };
    }
    Stopped {
        stage: SpawnStage::Execute {},
        error: program.execute(),
    }
}

fn prepare(place: &Place, streams: &Streams) -> io::Result<()> {
    // SAFETY: these calls take numbers only; the descriptors are open.
    unsafe {
        sys::check(libc::setsid())?;
        if streams.outer.is_some() {
            sys::check(libc::ioctl(
                streams.inner[0].as_raw_fd(),
                libc::TIOCSCTTY,
                0,
            ))?;
        }
    }
    // Descriptors 0 and 1 may be this program's own: nothing is lost, everything else closes at the exec.
    let numbers: Vec<RawFd> = above_streams(streams)?;
    for (target, fd) in (0..).zip(&numbers) {
        // SAFETY: as above.
        sys::check(unsafe { libc::dup2(*fd, target) })?;
    }
    close_rest_at_exec()?;
    default_signals()?;
    // SAFETY: takes a number only.
    unsafe { libc::umask(0o022) };
    rights_of(place)
}

/// The streams' numbers, all above 2, so that `dup2` on one stream cannot overwrite another.
fn above_streams(streams: &Streams) -> io::Result<Vec<RawFd>> {
    let duplicate = |fd: &OwnedFd| {
        // SAFETY: the descriptor is open; the copy lives until the exec closes it.
        let copy = sys::check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) })?;
        RawFd::try_from(copy).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))
    };
    streams.inner.iter().map(duplicate).collect()
}

pub(crate) fn close_rest_at_exec() -> io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: u32 = 4;
    // SAFETY: takes numbers only; nothing is closed before the exec.
    sys::check(unsafe {
        libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, CLOSE_RANGE_CLOEXEC)
    })
    .map(drop)
}

/// Every signal with its default action and none blocked, whatever this program, or whoever started the parent, has set.
/// By the system call itself: the library's function leaves two signals out that it wants for itself.
pub(crate) fn default_signals() -> io::Result<()> {
    /// The kernel's own `struct sigaction`: action, flags, restorer, mask. All zero is the default action.
    const DEFAULT: [u64; 4] = [0; 4];
    for number in 1..=64_u64 {
        // SAFETY: the struct outlives the call; signals that cannot be set are refused without harm.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                number,
                DEFAULT.as_ptr(),
                0_usize,
                8_usize,
            );
        }
    }
    // SAFETY: an all-zero set is valid memory; `sigemptyset` makes it an empty one.
    let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is valid for both calls.
    sys::check(unsafe {
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut())
    })
    .map(drop)
}

/// In a sandbox no right is left; on the machine itself there is nothing to take away, only a place to belong to.
fn rights_of(place: &Place) -> io::Result<()> {
    if let Place::Machine(kept) = place {
        return kept.take_in();
    }
    // SAFETY: no preconditions.
    if unsafe { libc::getuid() } != AGENT {
        rights::become_user(AGENT)?;
    }
    rights::set_capabilities(0)
}

pub(crate) fn enter(dir: &CStr) -> io::Result<()> {
    // SAFETY: the path is a C string that outlives the call.
    sys::check(unsafe { libc::chdir(dir.as_ptr()) }).map(drop)
}

fn report(tells: &OwnedFd, stopped: &Stopped) {
    let errno = stopped.error.raw_os_error().unwrap_or(libc::EIO);
    let message = bulkhead_init::wire::encode(&(vec![stopped.stage.clone()], errno));
    let _ = sys::write_all(tells.as_fd(), &message);
}

/// Before it executes the program the child is the agent's user for a moment, so a process inside may stop it there, and
/// with it everything that waits for this one. So it is woken again and again, and given up at last.
fn await_report(told: &OwnedFd, pid: i32) -> Option<Stopped> {
    for _ in 0..WAKE_UPS {
        if sys::is_readable(told.as_fd(), WAKE_EVERY_MS) {
            return read_report(told);
        }
        // SAFETY: `kill` takes numbers only, and the child is not reaped yet, so the pid is its own.
        unsafe { libc::kill(pid, libc::SIGCONT) };
    }
    // SAFETY: as above.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    Some(Stopped {
        stage: SpawnStage::Fork {},
        error: io::Error::from_raw_os_error(libc::ETIMEDOUT),
    })
}

/// The child's report; none when the program runs, because the exec closed the pipe.
fn read_report(told: &OwnedFd) -> Option<Stopped> {
    let mut buffer = [0_u8; 64];
    // SAFETY: the buffer is valid for its length.
    let length = unsafe { libc::read(told.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    let message = usize::try_from(length).ok().filter(|length| *length > 0)?;
    let (mut stages, errno): (Vec<SpawnStage>, i32) =
        bulkhead_init::wire::decode(&buffer[..message]).ok()?;
    Some(Stopped {
        stage: stages.pop()?,
        error: io::Error::from_raw_os_error(errno),
    })
}
