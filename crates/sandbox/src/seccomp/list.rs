//! Which system calls exist inside, as data. A call that is in none of these lists is refused.
//!
//! Deliberately absent, beside what needs a Linux capability anyway: `ptrace` and `process_vm_*` (debuggers do not work
//! inside: reading a neighbour's memory is how tokens are stolen), `keyctl` and `add_key` (key rings are a channel between
//! sandboxes), `bpf`, `perf_event_open`, `userfaultfd`, io_uring and `vmsplice` (large, often-broken parts of the kernel that
//! build tools and agents do without), `mount` and its family, `setns`, `unshare`, `name_to_handle_at`, `fanotify_init`.

use libc::*;

use super::rules::{Checked, Group, is, is_not, masked};

pub(super) const ALLOWED: &[Group] = &[
    Group {
        why: "Reading and writing open files, and waiting for them.",
        calls: &[
            SYS_read,
            SYS_write,
            SYS_readv,
            SYS_writev,
            SYS_pread64,
            SYS_pwrite64,
            SYS_preadv,
            SYS_pwritev,
            SYS_preadv2,
            SYS_pwritev2,
            SYS_lseek,
            SYS_close,
            SYS_close_range,
            SYS_dup,
            SYS_dup2,
            SYS_dup3,
            SYS_fcntl,
            SYS_flock,
            SYS_fsync,
            SYS_fdatasync,
            SYS_sync,
            SYS_syncfs,
            SYS_sync_file_range,
            SYS_ftruncate,
            SYS_fallocate,
            SYS_fadvise64,
            SYS_readahead,
            SYS_sendfile,
            SYS_copy_file_range,
            SYS_splice,
            SYS_tee,
            SYS_pipe,
            SYS_pipe2,
            SYS_poll,
            SYS_ppoll,
            SYS_select,
            SYS_pselect6,
            SYS_epoll_create,
            SYS_epoll_create1,
            SYS_epoll_ctl,
            SYS_epoll_wait,
            SYS_epoll_pwait,
            SYS_epoll_pwait2,
            SYS_eventfd,
            SYS_eventfd2,
            451, /* cachestat */
        ],
    },
    Group {
        why: "Finding, naming, linking and removing files. Who may do what to which file is for the mounts, Landlock and \
              the file's owner to say.",
        calls: &[
            SYS_stat,
            SYS_fstat,
            SYS_lstat,
            SYS_newfstatat,
            SYS_statx,
            SYS_statfs,
            SYS_fstatfs,
            SYS_access,
            SYS_faccessat,
            SYS_faccessat2,
            SYS_getdents,
            SYS_getdents64,
            SYS_getcwd,
            SYS_chdir,
            SYS_fchdir,
            SYS_mkdir,
            SYS_mkdirat,
            SYS_rmdir,
            SYS_rename,
            SYS_renameat,
            SYS_renameat2,
            SYS_link,
            SYS_linkat,
            SYS_symlink,
            SYS_symlinkat,
            SYS_readlink,
            SYS_readlinkat,
            SYS_unlink,
            SYS_unlinkat,
            SYS_truncate,
            SYS_utime,
            SYS_utimes,
            SYS_futimesat,
            SYS_utimensat,
            SYS_chown,
            SYS_fchown,
            SYS_lchown,
            SYS_fchownat,
            SYS_umask,
            SYS_getxattr,
            SYS_lgetxattr,
            SYS_fgetxattr,
            SYS_setxattr,
            SYS_lsetxattr,
            SYS_fsetxattr,
            SYS_listxattr,
            SYS_llistxattr,
            SYS_flistxattr,
            SYS_removexattr,
            SYS_lremovexattr,
            SYS_fremovexattr,
            SYS_inotify_init,
            SYS_inotify_init1,
            SYS_inotify_add_watch,
            SYS_inotify_rm_watch,
        ],
    },
    Group {
        why: "Memory of the process itself. The protection keys are V8's.",
        calls: &[
            SYS_brk,
            SYS_munmap,
            SYS_mremap,
            SYS_mprotect,
            SYS_pkey_mprotect,
            SYS_pkey_alloc,
            SYS_pkey_free,
            SYS_madvise,
            SYS_mincore,
            SYS_msync,
            SYS_mlock,
            SYS_mlock2,
            SYS_munlock,
            SYS_mlockall,
            SYS_munlockall,
            SYS_remap_file_pages,
            SYS_membarrier,
            SYS_mseal,
            453, /* map_shadow_stack */
        ],
    },
    Group {
        why: "Making, replacing and ending processes and threads (`clone` is checked below).",
        calls: &[
            SYS_fork,
            SYS_vfork,
            SYS_execve,
            SYS_execveat,
            SYS_exit,
            SYS_exit_group,
            SYS_wait4,
            SYS_waitid,
            SYS_set_tid_address,
            SYS_set_robust_list,
            SYS_get_robust_list,
            SYS_rseq,
            SYS_arch_prctl,
            SYS_prctl,
            SYS_pidfd_open,
            SYS_pidfd_send_signal,
            SYS_futex,
            SYS_futex_waitv,
            454,
            455,
            456, /* futex_wake, _wait, _requeue */
            SYS_restart_syscall,
        ],
    },
    Group {
        why: "Signals. Landlock's scope and the pid namespace keep them inside.",
        calls: &[
            SYS_kill,
            SYS_tkill,
            SYS_tgkill,
            SYS_rt_sigaction,
            SYS_rt_sigprocmask,
            SYS_rt_sigreturn,
            SYS_rt_sigpending,
            SYS_rt_sigsuspend,
            SYS_rt_sigtimedwait,
            SYS_rt_sigqueueinfo,
            SYS_rt_tgsigqueueinfo,
            SYS_sigaltstack,
            SYS_signalfd,
            SYS_signalfd4,
            SYS_pause,
        ],
    },
    Group {
        why: "Who and where a process is. Without Linux capabilities the setting half only repeats what is so already; PID 1 \
              needs it to become the agent.",
        calls: &[
            SYS_getpid,
            SYS_getppid,
            SYS_gettid,
            SYS_getuid,
            SYS_geteuid,
            SYS_getgid,
            SYS_getegid,
            SYS_getresuid,
            SYS_getresgid,
            SYS_getgroups,
            SYS_setgroups,
            SYS_setuid,
            SYS_setgid,
            SYS_setreuid,
            SYS_setregid,
            SYS_setresuid,
            SYS_setresgid,
            SYS_setfsuid,
            SYS_setfsgid,
            SYS_getpgid,
            SYS_getpgrp,
            SYS_setpgid,
            SYS_getsid,
            SYS_setsid,
            SYS_capget,
            SYS_capset,
            SYS_uname,
            SYS_sysinfo,
            SYS_getcpu,
            SYS_getrandom,
        ],
    },
    Group {
        why: "Reading clocks, sleeping, timers. Nothing here sets a clock.",
        calls: &[
            SYS_time,
            SYS_gettimeofday,
            SYS_clock_gettime,
            SYS_clock_getres,
            SYS_clock_nanosleep,
            SYS_nanosleep,
            SYS_times,
            SYS_alarm,
            SYS_getitimer,
            SYS_setitimer,
            SYS_timer_create,
            SYS_timer_settime,
            SYS_timer_gettime,
            SYS_timer_getoverrun,
            SYS_timer_delete,
            SYS_timerfd_create,
            SYS_timerfd_settime,
            SYS_timerfd_gettime,
        ],
    },
    Group {
        why: "Scheduling and limits, downwards only: raising needs Linux capabilities.",
        calls: &[
            SYS_sched_yield,
            SYS_sched_getaffinity,
            SYS_sched_setaffinity,
            SYS_sched_getparam,
            SYS_sched_setparam,
            SYS_sched_getscheduler,
            SYS_sched_setscheduler,
            SYS_sched_get_priority_max,
            SYS_sched_get_priority_min,
            SYS_sched_rr_get_interval,
            SYS_sched_getattr,
            SYS_sched_setattr,
            SYS_getpriority,
            SYS_setpriority,
            SYS_ioprio_get,
            SYS_ioprio_set,
            SYS_getrlimit,
            SYS_setrlimit,
            SYS_prlimit64,
            SYS_getrusage,
        ],
    },
    Group {
        why: "Sockets that are open. Which ones can be opened is checked below.",
        calls: &[
            SYS_bind,
            SYS_listen,
            SYS_accept,
            SYS_accept4,
            SYS_connect,
            SYS_shutdown,
            SYS_recvfrom,
            SYS_recvmsg,
            SYS_recvmmsg,
            SYS_getsockname,
            SYS_getpeername,
            SYS_getsockopt,
        ],
    },
    Group {
        why: "System V and POSIX message passing; the IPC namespace keeps it inside, the memory limit counts it.",
        calls: &[
            SYS_shmat,
            SYS_shmdt,
            SYS_shmctl,
            SYS_semget,
            SYS_semop,
            SYS_semtimedop,
            SYS_semctl,
            SYS_msgget,
            SYS_msgsnd,
            SYS_msgrcv,
            SYS_msgctl,
            SYS_mq_open,
            SYS_mq_unlink,
            SYS_mq_timedsend,
            SYS_mq_timedreceive,
            SYS_mq_notify,
            SYS_mq_getsetattr,
        ],
    },
    Group {
        why: "Giving up more rights: agents that sandbox their own tools (Codex does) may.",
        calls: &[
            SYS_seccomp,
            SYS_landlock_create_ruleset,
            SYS_landlock_add_rule,
            SYS_landlock_restrict_self,
        ],
    },
];

/// CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. (NEWTIME's bit is part of the exit signal here,
/// where no signal has a number that large.)
const NEW_NAMESPACES: u64 = 0x80
    | 0x2_0000
    | 0x200_0000
    | 0x400_0000
    | 0x800_0000
    | 0x1000_0000
    | 0x2000_0000
    | 0x4000_0000;
/// S_ISUID and S_ISGID.
const SET_ID_BITS: u64 = 0o6000;
/// O_CREAT and the bit that is O_TMPFILE's own.
const CREATES: u64 = 0o100 | 0o20_000_000;
/// What of a socket's type is its type; the rest are flags.
const SOCKET_TYPE: u64 = 0xf;
const UNIX: u64 = 1;
const INET: u64 = 2;
const INET6: u64 = 10;
const NETLINK: u64 = 16;
const STREAM: u64 = 1;
const DATAGRAM: u64 = 2;
const TCP: u64 = 6;
const UDP: u64 = 17;
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;
const TIOCSETD: u64 = 0x5423;
/// Large pages that the machine's owner has set aside (the flags of `mmap`, `memfd_create` and `shmget`).
const MAP_LARGE: u64 = 0x4_0000;
const MEMFD_LARGE: u64 = 4;
const SHM_LARGE: u64 = 0o4000;
const OUT_OF_BAND: u64 = 1;
/// Another protocol on top of an open TCP connection: TLS in the kernel and the like.
const TCP_ULP: u64 = 31;
/// `personality` that only asks.
const ASKS: u64 = 0xffff_ffff;

pub(super) const CHECKED: &[Checked] = &[
    Checked {
        why: "Threads and processes, without new namespaces: a user namespace inside would bring Linux capabilities back, and \
              with them most of the kernel that this list keeps away.",
        calls: &[SYS_clone],
        any_of: &[&[masked(0, NEW_NAMESPACES, 0)]],
    },
    Checked {
        why: "Unix sockets, TCP and UDP, and asking for the list of interfaces (`getifaddrs`). No raw or packet sockets, no \
              vsock, Bluetooth, AF_ALG and whatever else a kernel has; of IP's protocols no others either.",
        calls: &[SYS_socket],
        any_of: &[
            &[is(0, UNIX)],
            &[is(0, INET), masked(1, SOCKET_TYPE, STREAM), is(2, 0)],
            &[is(0, INET), masked(1, SOCKET_TYPE, STREAM), is(2, TCP)],
            &[is(0, INET), masked(1, SOCKET_TYPE, DATAGRAM), is(2, 0)],
            &[is(0, INET), masked(1, SOCKET_TYPE, DATAGRAM), is(2, UDP)],
            &[is(0, INET6), masked(1, SOCKET_TYPE, STREAM), is(2, 0)],
            &[is(0, INET6), masked(1, SOCKET_TYPE, STREAM), is(2, TCP)],
            &[is(0, INET6), masked(1, SOCKET_TYPE, DATAGRAM), is(2, 0)],
            &[is(0, INET6), masked(1, SOCKET_TYPE, DATAGRAM), is(2, UDP)],
            &[is(0, NETLINK), is(2, 0)],
        ],
    },
    Checked {
        why: "Pairs of Unix sockets; other families make none.",
        calls: &[SYS_socketpair],
        any_of: &[&[is(0, UNIX)]],
    },
    Checked {
        why: "Device controls, except typing into another's terminal (TIOCSTI, TIOCLINUX) and changing what a terminal's line \
              is driven by (TIOCSETD).",
        calls: &[SYS_ioctl],
        any_of: &[&[
            is_not(1, TIOCSTI),
            is_not(1, TIOCLINUX),
            is_not(1, TIOCSETD),
        ]],
    },
    Checked {
        why: "File modes without set-user-id and set-group-id. Inside they have no effect; but a file in a shared directory \
              is also a file outside, where it would lend its owner's rights to whoever runs it.",
        calls: &[SYS_chmod, SYS_fchmod, SYS_creat, SYS_mknod],
        any_of: &[&[masked(1, SET_ID_BITS, 0)]],
    },
    Checked {
        why: "As above, for the calls that have the mode one place later.",
        calls: &[SYS_fchmodat, 452 /* fchmodat2 */, SYS_mknodat],
        any_of: &[&[masked(2, SET_ID_BITS, 0)]],
    },
    Checked {
        why: "As above. Without O_CREAT or O_TMPFILE the mode is not looked at, by the kernel or here.",
        calls: &[SYS_open],
        any_of: &[&[masked(1, CREATES, 0)], &[masked(2, SET_ID_BITS, 0)]],
    },
    Checked {
        why: "As above, below a directory.",
        calls: &[SYS_openat],
        any_of: &[&[masked(2, CREATES, 0)], &[masked(3, SET_ID_BITS, 0)]],
    },
    Checked {
        why: "Memory, but not from the large pages that the machine's owner has set aside: no memory limit counts those.",
        calls: &[SYS_mmap],
        any_of: &[&[masked(3, MAP_LARGE, 0)]],
    },
    Checked {
        why: "As above, for memory files.",
        calls: &[SYS_memfd_create],
        any_of: &[&[masked(1, MEMFD_LARGE, 0)]],
    },
    Checked {
        why: "As above, for System V's shared memory.",
        calls: &[SYS_shmget],
        any_of: &[&[masked(2, SHM_LARGE, 0)]],
    },
    Checked {
        why: "Sending, except out of band: hardly anybody does it, and the kernel's part for Unix sockets was broken often.",
        calls: &[SYS_sendto, SYS_sendmmsg],
        any_of: &[&[masked(3, OUT_OF_BAND, 0)]],
    },
    Checked {
        why: "As above, where the flags come one place earlier.",
        calls: &[SYS_sendmsg],
        any_of: &[&[masked(2, OUT_OF_BAND, 0)]],
    },
    Checked {
        why: "Options of sockets, except putting another protocol's kernel code on a TCP connection.",
        calls: &[SYS_setsockopt],
        any_of: &[&[is_not(1, TCP)], &[is_not(2, TCP_ULP)]],
    },
    Checked {
        why: "Asking for the execution domain, or the usual one: the others switch protections of memory off.",
        calls: &[SYS_personality],
        any_of: &[&[is(0, 0)], &[is(0, ASKS)]],
    },
];

/// From here on whatever is not allowed does not exist, up to well past today's last number. It begins with io_uring and
/// holds `clone3` and `openat2`, into whose structs a filter cannot look: libraries then use `clone` and `openat`, which it
/// can check.
pub(super) const FIRST_UNKNOWN: u32 = 425;
pub(super) const LAST_UNKNOWN: u32 = 547;

#[cfg(test)]
mod tests {
    use super::*;

    /// Issue 2, item 4: a comment per group.
    #[test]
    fn every_group_says_why() {
        let whys = ALLOWED
            .iter()
            .map(|group| group.why)
            .chain(CHECKED.iter().map(|checked| checked.why));
        assert!(
            whys.into_iter()
                .all(|why| why.len() > 20 && why.ends_with('.'))
        );
    }
}
