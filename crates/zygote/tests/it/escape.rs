//! Native code in a locked-down process reaches nothing (issue 4, "From inside an invocation process").
//!
//! The hook makes any system call it is told to, as an attacker who has taken V8 over would. The same calls are made in a
//! process without walls, where those marked so succeed: else a probe that is wrong in itself would prove nothing.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Command, Stdio},
};

use bulkhead_zygote::TestHooks;
use libc::*;

use crate::{
    ZYGOTE,
    attacker::{Attacker, Is, long, probes, tries, works},
    support::{Zygote, assert_walls},
};

/// A file that everybody may read, so that only the walls keep it.
fn canary() -> (tempfile::TempDir, String) {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = dir.path().join("canary");
    fs::write(&path, "canary").unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

/// Issue 4, "escape", D8: whatever call native code makes, it reaches no file, no socket, no other process, makes no new one,
/// gets no right back and no executable memory.
#[test]
fn escape_native_code_reaches_nothing() {
    let (_dir, canary) = canary();
    let zygote = Zygote::start(TestHooks::Present);
    let neighbour = zygote.fork();
    let process = zygote.fork();
    let mut attacker = Attacker::new(process.pipe.try_clone().unwrap());
    assert_walls(&fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap());
    let neighbour_id = i64::from(neighbour.id.0);
    assert_eq!(
        attacker.reaches(&canary, neighbour_id),
        Vec::<String>::new()
    );
    // The neighbour still does what it is told.
    let mut neighbour = Attacker::new(neighbour.pipe);
    assert_eq!(
        neighbour.call(&works("getpid", SYS_getpid, [])),
        neighbour_id
    );
}

/// Issue 4, "escape": of all system calls there are, only the listed ones are let through, whatever a kernel adds.
#[test]
fn escape_no_call_but_the_listed_exists() {
    /// `uretprobe` and `uprobe`: parts of the kernel's own tracing, which end whoever calls them, whatever a filter says.
    const NO_CALLS: [i64; 2] = [335, 336];
    const LISTED: [i64; 28] = [
        SYS_read,
        SYS_write,
        SYS_close,
        SYS_close_range,
        SYS_brk,
        SYS_munmap,
        SYS_mremap,
        SYS_madvise,
        SYS_mmap,
        SYS_mprotect,
        SYS_pkey_mprotect,
        SYS_futex,
        SYS_sched_yield,
        SYS_clock_gettime,
        SYS_clock_getres,
        SYS_gettimeofday,
        SYS_time,
        SYS_getrandom,
        SYS_rt_sigaction,
        SYS_rt_sigprocmask,
        SYS_rt_sigreturn,
        SYS_sigaltstack,
        SYS_getpid,
        SYS_gettid,
        SYS_restart_syscall,
        SYS_exit,
        SYS_exit_group,
        SYS_tgkill,
    ];
    let zygote = Zygote::start(TestHooks::Present);
    let mut attacker = Attacker::new(zygote.fork().pipe);
    for number in (0..1024).chain(0x4000_0000..0x4000_0400) {
        if LISTED.contains(&number) || NO_CALLS.contains(&number) {
            continue;
        }
        let answer = attacker.try_call(&tries("any", number, [Is(-1), Is(-1), Is(-1)]));
        assert!(
            matches!(&answer, Ok(answer) if [-i64::from(EPERM), -i64::from(ENOSYS)].contains(answer)),
            "system call {number:#x}: {answer:?}, {:?}",
            zygote.0.control.receive()
        );
    }
}

/// Issue 4, "escape": what is there already does not become executable either: not its own memory, and not what was code.
#[test]
fn escape_no_memory_becomes_executable() {
    let zygote = Zygote::start(TestHooks::Present);
    let mut attacker = Attacker::new(zygote.fork().pipe);
    let page = (attacker.scratch & !4095).cast_signed();
    for rights in [PROT_EXEC, PROT_READ | PROT_EXEC, 7] {
        let own = tries("mprotect", SYS_mprotect, [Is(page), Is(4096), long(rights)]);
        assert_eq!(attacker.call(&own), -i64::from(EPERM));
    }
    let harmless = works("mprotect", SYS_mprotect, [Is(page), Is(4096), Is(3)]);
    assert_eq!(attacker.call(&harmless), 0);
    let mut outside = Outside::start();
    let page = (outside.attacker.scratch & !4095).cast_signed();
    let executable = works("mprotect", SYS_mprotect, [Is(page), Is(4096), Is(7)]);
    assert_eq!(outside.attacker.call(&executable), 0, "calibration");
}

/// Issue 4, "escape": a signal to itself is let through, because an abort is one; it kills nobody else.
#[test]
fn escape_it_may_kill_only_itself() {
    let zygote = Zygote::start(TestHooks::Present);
    let (other, process) = (zygote.fork(), zygote.fork());
    let own = i64::from(process.id.0);
    let mut attacker = Attacker::new(process.pipe.try_clone().unwrap());
    let checks = [
        (own, own, 0),
        (i64::from(other.id.0), own, -i64::from(EPERM)),
        (own, i64::from(other.id.0), -i64::from(ESRCH)),
        (1, 1, -i64::from(EPERM)),
        (-1, own, -i64::from(EPERM)),
    ];
    for (group, thread, expected) in checks {
        let probe = tries("tgkill", SYS_tgkill, [Is(group), Is(thread), Is(0)]);
        assert_eq!(attacker.call(&probe), expected, "{group} {thread}");
    }
}

/// A process with the hook and without walls.
struct Outside {
    attacker: Attacker,
    process: std::process::Child,
}

impl Outside {
    fn start() -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let process = Command::new(ZYGOTE)
            .arg("--unlocked")
            .stdin(OwnedFd::from(theirs))
            .spawn()
            .unwrap();
        Self {
            attacker: Attacker::new(ours),
            process,
        }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Issue 4, "escape", calibration: without walls the probes do succeed, so that their failure inside means something.
#[test]
fn escape_the_same_probes_succeed_without_walls() {
    let (_dir, canary) = canary();
    let mut outside = Outside::start();
    let mut neighbour = Command::new("sleep").arg("600").spawn().unwrap();
    let mut failed = Vec::new();
    let number = i64::from(neighbour.id());
    let all = probes(&canary, number);
    let (calibrated, total) = (
        all.iter().filter(|probe| probe.succeeds_outside).count(),
        all.len(),
    );
    for probe in all.iter().filter(|probe| probe.succeeds_outside) {
        let answer = outside.attacker.call(probe);
        // Whom it could wait for: the processes of the probes before, or nobody.
        if answer < 0 && answer != -i64::from(ECHILD) {
            failed.push(format!("{}: {answer}", probe.name));
        }
    }
    neighbour.kill().unwrap();
    neighbour.wait().unwrap();
    assert_eq!(failed, Vec::<String>::new());
    assert!(2 * calibrated > total, "{calibrated} of {total}");
}

/// Issue 4, "escape", D8: nothing of the broker's environment or arguments is in an invocation process's memory.
#[test]
fn escape_the_brokers_canaries_are_not_in_memory() {
    let (variable, argument) = (
        "canary-of-the-environment-3141",
        "canary-of-the-arguments-2718",
    );
    let mut broker = Command::new(ZYGOTE)
        .args(["broker", argument])
        .env("CANARY", variable)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(broker.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let process: u32 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    for canary in [variable, argument] {
        assert!(has_in_memory(broker.id(), canary), "calibration: {canary}");
        assert!(!has_in_memory(process, canary), "{canary}");
    }
    let environment = fs::read(format!("/proc/{process}/environ")).unwrap();
    assert_eq!(String::from_utf8_lossy(&environment), "");
    drop(broker.stdin.take());
    broker.wait().unwrap();
}

/// Looks through all that the process could read itself.
fn has_in_memory(pid: u32, canary: &str) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    maps.lines().any(|line| {
        let (range, rest) = line.split_once(' ').unwrap();
        if !rest.starts_with('r') {
            return false;
        }
        let (from, to) = range.split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        let (from, to) = (number(from), number(to));
        let mut bytes = vec![0; usize::try_from(to - from).unwrap().min(64 << 20)];
        memory.seek(SeekFrom::Start(from)).unwrap();
        let count = memory.read(&mut bytes).unwrap_or(0);
        bytes[..count]
            .windows(canary.len())
            .any(|window| window == canary.as_bytes())
    })
}
