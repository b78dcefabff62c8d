//! From a fork to a guest that serves: the walls of one invocation process.
//!
//! The zygote has most of them already, and a fork inherits those: namespaces with nothing in them, an empty root, an
//! unprivileged user, no Linux capabilities, Landlock without a rule, no core dumps, not dumpable. What follows is what the
//! zygote itself could not live with.

use std::{
    io::Write as _,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
};

use bulkhead_init::{
    sys::{Context, Outcome, exit_now, prctl},
    wire::Failure,
};
use rustix::process::{Resource, Rlimit, setpriority_process, setrlimit};

use crate::{
    filter::Filter,
    guest::{Guest, Pipe},
    rehearsal::Pages,
    sys,
};

/// The process ended before its guest served: a wall could not be built. The reason is on the zygote's standard error.
pub const NOT_LOCKED_DOWN: i32 = 3;
/// The guest panicked.
pub const PANICKED: i32 = 101;

/// The broker and the zygote go first where processors are few.
const NICE: i32 = 10;
/// No new process or thread, no byte in any file, and no new descriptor.
const LIMITS: [Resource; 3] = [Resource::Nproc, Resource::Fsize, Resource::Nofile];

/// The rest of a forked process's life. `file` holds what the process entered its memory group by.
pub(crate) fn live(
    guest: Box<dyn Guest>,
    pages: &Pages,
    pipe: &OwnedFd,
    entrance: BorrowedFd<'_>,
    filter: Filter,
) -> ! {
    let served = catch_unwind(AssertUnwindSafe(|| {
        match lock_down(pipe, entrance, filter) {
            Ok(pipe) => {
                pages.touch();
                guest.serve(pipe);
            }
            Err(failure) => give_up(&failure),
        }
    }));
    exit_now(if served.is_ok() { 0 } else { PANICKED });
}

/// Builds every wall, and ends.
pub(crate) fn try_walls(pipe: &OwnedFd, entrance: BorrowedFd<'_>, filter: Filter) -> ! {
    match lock_down(pipe, entrance, filter) {
        // Dropping the pipe would be one call more; nothing needs it.
        Ok(_) => exit_now(0),
        Err(failure) => give_up(&failure),
    }
}

fn give_up(failure: &Failure) -> ! {
    let error = std::io::Error::from_raw_os_error(failure.errno);
    let words = format!(
        "locking a plugin's process down: {}: {error}\n",
        failure.step
    );
    // Where nobody can be told any more, the exit code says it.
    let _ = std::io::stderr().write_all(words.as_bytes());
    exit_now(NOT_LOCKED_DOWN)
}

/// Returns the pipe in its last place. The memory group comes first, so that all that follows is counted.
fn lock_down(pipe: &OwnedFd, entrance: BorrowedFd<'_>, mut filter: Filter) -> Outcome<Pipe> {
    rustix::io::write(entrance, b"0")
        .map_err(std::io::Error::from)
        .during(|| "entering the memory group".to_owned())?;
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL.cast_unsigned().into())
        .during(|| "asking for the zygote's death".to_owned())?;
    setpriority_process(None, NICE)
        .map_err(std::io::Error::from)
        .during(|| "stepping back for others".to_owned())?;
    let put = |place| {
        sys::put_in_place(pipe.as_fd(), place)
            .during(|| format!("putting the pipe in place {place}"))
    };
    let pipe = Pipe {
        stream: put(0)?,
        last_words: put(1)?,
    };
    for resource in LIMITS {
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        setrlimit(resource, none)
            .map_err(std::io::Error::from)
            .during(|| format!("setting the limit {resource:?} to 0"))?;
    }
    filter
        .install(std::process::id())
        .during(|| "installing the system-call filter".to_owned())?;
    // Last, because until here the zygote's standard error takes the reason of a failure.
    sys::close_from(2).during(|| "closing what the zygote had open".to_owned())?;
    Ok(pipe)
}
