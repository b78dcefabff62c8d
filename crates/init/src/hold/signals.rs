//! Signals as flags that a waiting `ppoll` is interrupted for. No descriptor for signals: gVisor's does not wake a poll.

use std::{
    io, mem, ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::sys;

static CHILD_ENDED: AtomicBool = AtomicBool::new(false);
static ASKED_TO_END: AtomicBool = AtomicBool::new(false);

const ENDING: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// The mask while waiting; everywhere else every signal is blocked.
pub(super) struct Signals {
    open: libc::sigset_t,
}

impl Signals {
    pub(super) fn take() -> io::Result<Self> {
        let mut open = sys::block_all_signals()?;
        for number in ENDING.into_iter().chain([libc::SIGCHLD]) {
            // SAFETY: all-zero is a valid action to fill in; the handler only stores flags.
            sys::check(unsafe {
                let mut action: libc::sigaction = mem::zeroed();
                action.sa_sigaction = note as *const () as libc::sighandler_t;
                action.sa_flags = libc::SA_SIGINFO;
                libc::sigfillset(&raw mut action.sa_mask);
                libc::sigdelset(&raw mut open, number);
                libc::sigaction(number, &raw const action, ptr::null_mut())
            })?;
        }
        Ok(Self { open })
    }

    /// Waits for a file, a signal, or the time (none: forever).
    pub(super) fn poll(&self, files: &mut [libc::pollfd], milliseconds: Option<i32>) {
        let time = milliseconds.map(|milliseconds| libc::timespec {
            tv_sec: i64::from(milliseconds / 1000),
            tv_nsec: i64::from(milliseconds % 1000) * 1_000_000,
        });
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        let count = libc::nfds_t::try_from(files.len()).unwrap_or(0);
        // SAFETY: the array, the time and the mask outlive the call, and the array's length is given.
        let ready = unsafe { libc::ppoll(files.as_mut_ptr(), count, time, &raw const self.open) };
        if ready <= 0 {
            // An interrupted call says nothing about files.
            for file in files {
                file.revents = 0;
            }
        }
    }
}

/// Whether a child may have ended since the last call.
pub(super) fn child_ended() -> bool {
    CHILD_ENDED.swap(false, Ordering::Relaxed)
}

pub(super) fn asked_to_end() -> bool {
    ASKED_TO_END.load(Ordering::Relaxed)
}

extern "C" fn note(number: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if number == libc::SIGCHLD {
        CHILD_ENDED.store(true, Ordering::Relaxed);
        return;
    }
    // SAFETY: the kernel hands a valid record to a handler that asked for one.
    let sender = unsafe { (*info).si_pid() };
    // A sender without a pid here is outside the container; what runs inside may not end it.
    if sender == 0 {
        ASKED_TO_END.store(true, Ordering::Relaxed);
    }
}
