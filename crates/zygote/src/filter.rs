//! The system calls of an invocation process: what an interpreter needs that has one pipe, memory and nothing else.
//!
//! Deliberately absent: everything that makes a descriptor, a process or a thread, takes a path, an address or another
//! process's number, changes a limit or a right, waits for time, or asks for what the machine is. No page becomes executable:
//! V8 runs without compiling, so no code but that of the program's files ever runs.

use std::{fmt, io};

use bulkhead_init::rights;
use bulkhead_sandbox::seccomp::{self, Checked, Group, is, masked};
use libc::{
    PROT_EXEC, SYS_brk, SYS_clock_getres, SYS_clock_gettime, SYS_close, SYS_close_range, SYS_exit,
    SYS_exit_group, SYS_futex, SYS_getpid, SYS_getrandom, SYS_gettid, SYS_gettimeofday,
    SYS_madvise, SYS_mmap, SYS_mprotect, SYS_mremap, SYS_munmap, SYS_pkey_mprotect, SYS_read,
    SYS_restart_syscall, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sched_yield,
    SYS_sigaltstack, SYS_tgkill, SYS_time, SYS_write,
};

const ALLOWED: &[Group] = &[
    Group {
        why: "The pipe, and closing what the fork left open.",
        calls: &[SYS_read, SYS_write, SYS_close, SYS_close_range],
    },
    Group {
        why: "Memory: growing, moving, giving back. How much is for the memory group to say.",
        calls: &[SYS_brk, SYS_munmap, SYS_mremap, SYS_madvise],
    },
    Group {
        why: "Locks. There is one thread, so nobody waits long; the libraries lock all the same.",
        calls: &[SYS_futex, SYS_sched_yield],
    },
    Group {
        why: "The time and the processor's time used, where the kernel does not answer that without a call.",
        calls: &[
            SYS_clock_gettime,
            SYS_clock_getres,
            SYS_gettimeofday,
            SYS_time,
        ],
    },
    Group {
        why: "Random bytes: a forked copy has no others of its own.",
        calls: &[SYS_getrandom],
    },
    Group {
        why: "Its own signals: an abort unblocks and resets its signal before it raises it.",
        calls: &[
            SYS_rt_sigaction,
            SYS_rt_sigprocmask,
            SYS_rt_sigreturn,
            SYS_sigaltstack,
            SYS_getpid,
            SYS_gettid,
            SYS_restart_syscall,
        ],
    },
    Group {
        why: "The end of the process.",
        calls: &[SYS_exit, SYS_exit_group],
    },
];

const EXECUTABLE: u64 = PROT_EXEC.cast_unsigned() as u64;
/// Large pages that the machine's owner has set aside.
const LARGE: u64 = libc::MAP_HUGETLB.cast_unsigned() as u64;
/// Stands for the process's own number, which nobody knows when the list is compiled.
const SELF: u32 = 0x7fff_5e1f;

const CHECKED: &[Checked] = &[
    Checked {
        why: "New memory, not executable, and not from the large pages that no memory limit counts.",
        calls: &[SYS_mmap],
        any_of: &[&[masked(2, EXECUTABLE, 0), masked(3, LARGE, 0)]],
    },
    Checked {
        why: "Other protections of memory, never executable ones.",
        calls: &[SYS_mprotect, SYS_pkey_mprotect],
        any_of: &[&[masked(2, EXECUTABLE, 0)]],
    },
    Checked {
        why: "A signal to itself: an abort is one, and what it died of tells the broker why.",
        calls: &[SYS_tgkill],
        any_of: &[&[is(0, SELF as u64)]],
    },
];

/// The list, compiled once in the zygote: each process only puts its own number in.
pub(crate) struct Filter(Vec<libc::sock_filter>);

impl Filter {
    pub(crate) fn compile() -> io::Result<Self> {
        rights::filter_steps(&seccomp::compile(ALLOWED, CHECKED)).map(Self)
    }

    /// Holds for the rest of this process's life.
    pub(crate) fn install(&mut self, own_pid: u32) -> io::Result<()> {
        for step in &mut self.0 {
            if step.k == SELF {
                step.k = own_pid;
            }
        }
        rights::install_steps(&self.0)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filter({} steps)", self.0.len())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests {
    use super::*;

    /// Issue 4, item 2: a comment per group, and each call in one place.
    #[test]
    fn escape_every_group_says_why_and_no_call_stands_twice() {
        let mut seen = std::collections::BTreeSet::new();
        let allowed = ALLOWED.iter().map(|group| (group.why, group.calls));
        let checked = CHECKED.iter().map(|checked| (checked.why, checked.calls));
        for (why, calls) in allowed.chain(checked) {
            assert!(why.len() > 20 && why.ends_with('.'), "{why}");
            for call in calls {
                assert!(seen.insert(*call), "system call {call} stands twice");
            }
        }
    }

    /// D8: the number of the process stands in exactly one step, so that it is put in and nothing else is.
    #[test]
    fn d8_the_processs_own_number_has_one_place() {
        let filter = Filter::compile().unwrap();
        assert_eq!(filter.0.iter().filter(|step| step.k == SELF).count(), 1);
    }
}
