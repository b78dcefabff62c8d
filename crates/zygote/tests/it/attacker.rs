//! An attacker in an invocation process, and all that it tries. Also the test of `bulkhead-js` uses it.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
};

use bulkhead_zygote::probe::SCRATCH_BYTES;
use libc::*;

use crate::support::PATIENCE;

/// A process that makes the calls it is told to.
pub(crate) struct Attacker {
    pipe: UnixStream,
    /// Where its scratch memory is.
    pub(crate) scratch: u64,
}

impl Attacker {
    pub(crate) fn new(mut pipe: UnixStream) -> Self {
        pipe.set_read_timeout(Some(PATIENCE)).unwrap();
        let ready = read::<4>(&mut pipe);
        let mut message = vec![0; u32::from_le_bytes(ready) as usize];
        pipe.read_exact(&mut message).unwrap();
        let scratch = u64::from_le_bytes(read(&mut pipe));
        Self { pipe, scratch }
    }

    /// The names of the probes that were not refused.
    pub(crate) fn reaches(&mut self, canary: &str, neighbour: i64) -> Vec<String> {
        let mut reached = Vec::new();
        for probe in probes(canary, neighbour) {
            let answer = self.call(&probe);
            if !is_refused(answer) {
                reached.push(format!("{}: {answer}", probe.name));
            }
        }
        reached
    }

    pub(crate) fn call(&mut self, probe: &Probe) -> i64 {
        self.try_call(probe).unwrap()
    }

    pub(crate) fn try_call(&mut self, probe: &Probe) -> io::Result<i64> {
        let mut memory = probe.memory.clone();
        memory.resize(SCRATCH_BYTES, 0);
        let arguments = probe.arguments.iter().map(|argument| match argument {
            Is(number) => number.cast_unsigned(),
            At(offset) => self.scratch + offset,
        });
        let mut numbers: Vec<u64> = std::iter::once(probe.call.cast_unsigned())
            .chain(arguments)
            .collect();
        numbers.resize(7, 0);
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        self.pipe.write_all(&bytes)?;
        self.pipe.write_all(&memory)?;
        let mut answer = [0; 8];
        self.pipe.read_exact(&mut answer)?;
        self.pipe.read_exact(&mut memory)?;
        Ok(i64::from_le_bytes(answer))
    }
}

fn is_refused(answer: i64) -> bool {
    [-i64::from(EPERM), -i64::from(ENOSYS)].contains(&answer)
}

fn read<const N: usize>(pipe: &mut UnixStream) -> [u8; N] {
    let mut bytes = [0; N];
    pipe.read_exact(&mut bytes).unwrap();
    bytes
}

pub(crate) enum Argument {
    Is(i64),
    /// An address in the attacker's memory.
    At(u64),
}
pub(crate) use Argument::{At, Is};

pub(crate) struct Probe {
    pub(crate) name: &'static str,
    call: i64,
    arguments: Vec<Argument>,
    memory: Vec<u8>,
    /// Without walls, for root, on every machine, it succeeds.
    pub(crate) succeeds_outside: bool,
}

pub(crate) fn works(name: &'static str, call: i64, arguments: impl Into<Vec<Argument>>) -> Probe {
    Probe {
        name,
        call,
        arguments: arguments.into(),
        memory: Vec::new(),
        succeeds_outside: true,
    }
}

/// One that does not succeed everywhere, or would end the calibration.
pub(crate) fn tries(name: &'static str, call: i64, arguments: impl Into<Vec<Argument>>) -> Probe {
    Probe {
        succeeds_outside: false,
        ..works(name, call, arguments)
    }
}

impl Probe {
    fn with(mut self, memory: &[u8]) -> Self {
        self.memory = memory.to_vec();
        self
    }
}

pub(crate) fn long(number: i32) -> Argument {
    Is(number.into())
}

const HERE: i32 = AT_FDCWD;

fn files(canary: &str) -> Vec<Probe> {
    let canary = format!("{canary}\0");
    let path = canary.as_bytes();
    vec![
        works("open a file", SYS_open, [At(0), Is(0)]).with(path),
        works("openat", SYS_openat, [long(HERE), At(0), Is(0)]).with(path),
        works(
            "openat2",
            SYS_openat2,
            [long(HERE), At(0), At(2048), Is(24)],
        )
        .with(path),
        works("open /", SYS_open, [At(0), Is(0)]).with(b"/\0"),
        works("open /proc/self/mem", SYS_open, [At(0), Is(0)]).with(b"/proc/self/mem\0"),
        tries("open /proc/1/environ", SYS_open, [At(0), Is(0)]).with(b"/proc/1/environ\0"),
        works("open /dev/null", SYS_open, [At(0), Is(0)]).with(b"/dev/null\0"),
        works("open the working directory", SYS_open, [At(0), Is(0)]).with(b".\0"),
        tries(
            "create",
            SYS_open,
            [At(0), long(O_CREAT | O_RDWR), Is(0o600)],
        )
        .with(b"/new\0"),
        works("stat", SYS_stat, [At(0), At(1024)]).with(path),
        works("lstat", SYS_lstat, [At(0), At(1024)]).with(path),
        works("fstat of the pipe", SYS_fstat, [Is(0), At(1024)]),
        works(
            "newfstatat",
            SYS_newfstatat,
            [long(HERE), At(0), At(1024), Is(0)],
        )
        .with(path),
        works(
            "statx",
            SYS_statx,
            [long(HERE), At(0), Is(0), Is(0x7ff), At(1024)],
        )
        .with(path),
        works("statfs", SYS_statfs, [At(0), At(1024)]).with(b"/\0"),
        works("access", SYS_access, [At(0), Is(0)]).with(path),
        works("readlink", SYS_readlink, [At(0), At(1024), Is(100)]).with(b"/proc/self/exe\0"),
        works("getcwd", SYS_getcwd, [At(0), Is(1000)]),
        works("chdir", SYS_chdir, [At(0)]).with(b"/\0"),
        works("umask", SYS_umask, [Is(0)]),
        tries("mkdir", SYS_mkdir, [At(0), Is(0o700)]).with(b"/new\0"),
        tries("unlink", SYS_unlink, [At(0)]).with(b"/new\0"),
        tries("mknod", SYS_mknod, [At(0), Is(0o20_666), Is(259)]).with(b"/new\0"),
        works("memory file", SYS_memfd_create, [At(0), Is(0)]).with(b"m\0"),
        tries("secret memory", SYS_memfd_secret, [Is(0)]),
        works("inotify", SYS_inotify_init1, [Is(0)]),
        tries("fanotify", SYS_fanotify_init, [Is(0), Is(0)]),
        tries(
            "open by handle",
            SYS_open_by_handle_at,
            [Is(0), At(0), Is(0)],
        ),
        works("duplicate the pipe", SYS_dup, [Is(0)]),
        works(
            "duplicate by fcntl",
            SYS_fcntl,
            [Is(0), long(F_DUPFD), Is(5)],
        ),
        works("control the pipe", SYS_ioctl, [Is(0), Is(0x541b), At(0)]),
        works("another pipe", SYS_pipe2, [At(0), Is(0)]),
        works("eventfd", SYS_eventfd2, [Is(0), Is(0)]),
        works("epoll", SYS_epoll_create1, [Is(0)]),
        works("timerfd", SYS_timerfd_create, [Is(1), Is(0)]),
        works("signalfd", SYS_signalfd4, [Is(-1), At(0), Is(8), Is(0)]),
    ]
}

fn sockets() -> Vec<Probe> {
    let families = [
        ("unix socket", AF_UNIX, SOCK_STREAM, true),
        ("tcp", AF_INET, SOCK_STREAM, true),
        ("tcp 6", AF_INET6, SOCK_STREAM, true),
        ("udp", AF_INET, SOCK_DGRAM, true),
        ("raw", AF_INET, SOCK_RAW, false),
        ("packet", AF_PACKET, SOCK_RAW, false),
        ("netlink", AF_NETLINK, SOCK_RAW, true),
        ("kernel crypto", AF_ALG, SOCK_SEQPACKET, false),
        ("vsock", AF_VSOCK, SOCK_STREAM, false),
        ("bluetooth", AF_BLUETOOTH, SOCK_RAW, false),
        ("xdp", AF_XDP, SOCK_RAW, false),
        ("smc", 43, SOCK_STREAM, false),
    ];
    let mut all: Vec<Probe> = families
        .into_iter()
        .map(|(name, family, kind, works)| Probe {
            succeeds_outside: works,
            ..tries(name, SYS_socket, [long(family), long(kind), Is(0)])
        })
        .collect();
    all.extend([
        works("socket pair", SYS_socketpair, [Is(1), Is(1), Is(0), At(0)]),
        tries("connect", SYS_connect, [Is(0), At(0), Is(16)]).with(&[2, 0, 0, 80, 127, 0, 0, 1]),
        tries("bind", SYS_bind, [Is(0), At(0), Is(2)]).with(&[1, 0]),
        tries("listen", SYS_listen, [Is(0), Is(1)]),
        tries("accept", SYS_accept4, [Is(0), Is(0), Is(0), Is(0)]),
        works("peer's name", SYS_getpeername, [Is(0), At(64), At(0)]).with(&[16]),
        works(
            "peer's process",
            SYS_getsockopt,
            [Is(0), Is(1), Is(17), At(64), At(0)],
        )
        .with(&[12]),
        works(
            "send beside the frames",
            SYS_sendto,
            [Is(0), At(0), Is(0), Is(0), Is(0), Is(0)],
        ),
        tries("send files", SYS_sendmsg, [Is(0), At(0), Is(0)]),
        tries(
            "receive files",
            SYS_recvmsg,
            [Is(0), At(0), long(MSG_DONTWAIT)],
        ),
        tries("shut down", SYS_shutdown, [Is(7), Is(1)]),
    ]);
    all
}

fn processes(neighbour: i64) -> Vec<Probe> {
    let tgkill_other = [Is(neighbour), Is(neighbour), Is(0)];
    vec![
        works("signal the neighbour", SYS_kill, [Is(neighbour), Is(0)]),
        works("signal pid 1", SYS_kill, [Is(1), Is(0)]),
        tries("signal all", SYS_kill, [Is(-1), Is(0)]),
        works("signal its group", SYS_kill, [Is(0), Is(0)]),
        works("tkill", SYS_tkill, [Is(neighbour), Is(0)]),
        works("tgkill", SYS_tgkill, tgkill_other),
        tries(
            "queue a signal",
            SYS_rt_sigqueueinfo,
            [Is(neighbour), Is(0), At(0)],
        ),
        works("pidfd", SYS_pidfd_open, [Is(neighbour), Is(0)]),
        tries(
            "signal by pidfd",
            SYS_pidfd_send_signal,
            [Is(3), Is(9), Is(0), Is(0)],
        ),
        tries("take a descriptor", SYS_pidfd_getfd, [Is(3), Is(0), Is(0)]),
        tries("trace", SYS_ptrace, [Is(16), Is(neighbour), Is(0), Is(0)]),
        tries(
            "read another's memory",
            SYS_process_vm_readv,
            [Is(neighbour), At(0), Is(1), At(64), Is(1), Is(0)],
        ),
        tries(
            "write another's memory",
            SYS_process_vm_writev,
            [Is(neighbour), At(0), Is(1), At(64), Is(1), Is(0)],
        ),
        tries(
            "kcmp",
            SYS_kcmp,
            [Is(1), Is(neighbour), Is(0), Is(0), Is(0)],
        ),
        works("fork", SYS_fork, []),
        tries("vfork", SYS_vfork, []),
        works(
            "clone",
            SYS_clone,
            [long(SIGCHLD), Is(0), Is(0), Is(0), Is(0)],
        ),
        tries(
            "thread",
            SYS_clone,
            [
                long(CLONE_VM | CLONE_THREAD | CLONE_SIGHAND),
                At(4000),
                Is(0),
                Is(0),
                Is(0),
            ],
        ),
        works("clone3", SYS_clone3, [At(0), Is(64)]),
        tries("execute", SYS_execve, [At(0), At(100), At(100)]).with(b"/bin/true\0"),
        tries(
            "execute a descriptor",
            SYS_execveat,
            [Is(0), At(0), At(100), At(100), long(AT_EMPTY_PATH)],
        ),
        works("the parent's number", SYS_getppid, []),
        works("its group", SYS_getpgid, [Is(0)]),
        tries("its own session", SYS_setsid, []),
        works(
            "whom it could wait for",
            SYS_wait4,
            [Is(-1), Is(0), long(WNOHANG), Is(0)],
        ),
        works("priority", SYS_setpriority, [Is(0), Is(0), Is(-5)]),
        works("scheduler", SYS_sched_setscheduler, [Is(0), Is(0), At(0)]),
        works("processors", SYS_sched_getaffinity, [Is(0), Is(128), At(0)]),
        works("limits", SYS_getrlimit, [Is(7), At(0)]),
        works("raise a limit", SYS_prlimit64, [Is(0), Is(7), At(0), Is(0)]).with(&limit(100)),
        works("raise a limit, the old way", SYS_setrlimit, [Is(7), At(0)]).with(&limit(100)),
        tries(
            "another's limits",
            SYS_prlimit64,
            [Is(neighbour), Is(7), Is(0), At(0)],
        ),
    ]
}

fn limit(value: u64) -> Vec<u8> {
    [value.to_le_bytes(), value.to_le_bytes()].concat()
}

fn rights() -> Vec<Probe> {
    vec![
        works(
            "be dumpable",
            SYS_prctl,
            [Is(4), Is(1), Is(0), Is(0), Is(0)],
        ),
        works(
            "outlive the zygote",
            SYS_prctl,
            [Is(1), Is(0), Is(0), Is(0), Is(0)],
        ),
        tries(
            "another filter",
            SYS_prctl,
            [Is(22), Is(2), At(0), Is(0), Is(0)],
        ),
        tries("seccomp", SYS_seccomp, [Is(1), Is(0), At(0)]),
        works("ask for the domain", SYS_personality, [Is(0xffff_ffff)]),
        tries("read implies exec", SYS_personality, [Is(0x040_0000)]),
        works("mount namespace", SYS_unshare, [long(CLONE_NEWNS)]),
        tries("user namespace", SYS_unshare, [long(CLONE_NEWUSER)]),
        tries("network namespace", SYS_unshare, [long(CLONE_NEWNET)]),
        tries("another's namespace", SYS_setns, [Is(0), Is(0)]),
        tries("mount", SYS_mount, [At(0), At(0), At(8), Is(0), Is(0)])
            .with(b"/\0\0\0\0\0\0\0proc\0"),
        tries("unmount", SYS_umount2, [At(0), Is(2)]).with(b"/nowhere\0"),
        tries("pivot_root", SYS_pivot_root, [At(0), At(0)]).with(b".\0"),
        works("chroot", SYS_chroot, [At(0)]).with(b"/\0"),
        tries("file system context", SYS_fsopen, [At(0), Is(0)]).with(b"tmpfs\0"),
        tries("open a tree", SYS_open_tree, [long(HERE), At(0), Is(1)]).with(b"/\0"),
        works("user", SYS_setresuid, [Is(0), Is(0), Is(0)]),
        works("group", SYS_setresgid, [Is(0), Is(0), Is(0)]),
        works("groups", SYS_setgroups, [Is(0), Is(0)]),
        works("who am I", SYS_getuid, []),
        tries("capabilities", SYS_capset, [At(0), At(8)]),
        tries("keyring", SYS_keyctl, [Is(0), Is(-3), Is(1), Is(0), Is(0)]),
        tries(
            "add a key",
            SYS_add_key,
            [At(0), At(8), At(0), Is(4), Is(-3)],
        ),
        tries(
            "request a key",
            SYS_request_key,
            [At(0), At(8), Is(0), Is(0)],
        ),
    ]
}

fn kernel() -> Vec<Probe> {
    let anonymous = long(MAP_PRIVATE | MAP_ANONYMOUS);
    let executable = long(PROT_READ | PROT_EXEC);
    vec![
        tries("bpf", SYS_bpf, [Is(0), At(0), Is(72)]),
        tries(
            "performance counters",
            SYS_perf_event_open,
            [At(0), Is(0), Is(-1), Is(-1), Is(0)],
        ),
        tries("io_uring", SYS_io_uring_setup, [Is(1), At(0)]),
        tries("userfaultfd", SYS_userfaultfd, [Is(1)]),
        tries("modules", SYS_finit_module, [Is(0), At(0), Is(0)]),
        tries("kexec", SYS_kexec_load, [Is(0), Is(0), Is(0), Is(0)]),
        tries("restart", SYS_reboot, [Is(0), Is(0), Is(0), Is(0)]),
        tries("log", SYS_syslog, [Is(10), Is(0), Is(0)]),
        tries("ports", SYS_iopl, [Is(3)]),
        tries("local descriptors", SYS_modify_ldt, [Is(0), At(0), Is(16)]),
        works("the machine's name", SYS_uname, [At(0)]),
        works("the machine's state", SYS_sysinfo, [At(0)]),
        tries("set the clock", SYS_clock_settime, [Is(0), At(0)]),
        works(
            "executable memory",
            SYS_mmap,
            [Is(0), Is(4096), executable, anonymous, Is(-1), Is(0)],
        ),
        works(
            "writable and executable memory",
            SYS_mmap,
            [
                Is(0),
                Is(4096),
                long(PROT_READ | PROT_WRITE | PROT_EXEC),
                long(MAP_PRIVATE | MAP_ANONYMOUS),
                Is(-1),
                Is(0),
            ],
        ),
        tries(
            "large pages",
            SYS_mmap,
            [
                Is(0),
                Is(2 << 20),
                Is(3),
                long(MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB),
                Is(-1),
                Is(0),
            ],
        ),
        tries(
            "make memory executable by key",
            SYS_pkey_mprotect,
            [At(0), Is(4096), long(PROT_EXEC), Is(-1)],
        ),
        works(
            "protection keys, or none",
            SYS_membarrier,
            [Is(0), Is(0), Is(0)],
        ),
        tries("shared memory", SYS_shmget, [Is(0), Is(4096), Is(0o600)]),
        tries("message queue", SYS_msgget, [Is(0), Is(0o600)]),
        tries("semaphores", SYS_semget, [Is(0), Is(1), Is(0o600)]),
        works("alarm", SYS_alarm, [Is(0)]),
        works("sleep", SYS_nanosleep, [At(0), Is(0)]),
        tries("x32's open", SYS_open | 0x4000_0000, [At(0), Is(0)]).with(b"/\0"),
        works("wait for descriptors", SYS_poll, [At(0), Is(0), Is(0)]),
        tries("move pages out", SYS_vmsplice, [Is(0), At(0), Is(1), Is(0)]),
    ]
}

pub(crate) fn probes(canary: &str, neighbour: i64) -> Vec<Probe> {
    let mut all = files(canary);
    all.extend(sockets());
    all.extend(processes(neighbour));
    all.extend(rights());
    all.extend(kernel());
    all
}
