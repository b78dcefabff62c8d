//! Births and deaths: nobody survives, nothing is left, and nothing is hidden.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    os::{fd::AsFd as _, unix::fs::PermissionsExt as _},
    process::{Command, Stdio},
};

use bulkhead_zygote::{
    PANICKED, TestHooks,
    control::{ENTRANCES_MAX, Ending, Event},
};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::{
    ZYGOTE,
    support::{Zygote, is_readable},
};

/// D8: a forked process answers over its pipe, ends, and is reaped.
#[test]
fn d8_a_forked_process_serves_one_call_and_ends() {
    let zygote = Zygote::start(TestHooks::Absent);
    let mut process = zygote.fork();
    process.start("echo", r#"{"a":1}"#);
    assert_eq!(process.result().unwrap(), r#"{"a":1}"#);
    assert!(process.frame().is_none(), "the pipe closes after Done");
    assert_eq!(zygote.ending(), (process.id, Ending::Code(0)));
    assert!(process.is_gone());
}

/// D8, M20: what a process died of arrives as it was: an abort as SIGABRT, a panic as its code, a kill as SIGKILL.
#[test]
fn m20_what_a_process_died_of_is_told() {
    let zygote = Zygote::start(TestHooks::Absent);
    for (source, expected) in [
        ("abort", Ending::Signal(libc::SIGABRT)),
        ("panic", Ending::Code(PANICKED)),
    ] {
        let mut process = zygote.fork();
        process.start(source, "");
        assert_eq!(process.result(), None);
        assert_eq!(zygote.ending(), (process.id, expected), "{source}");
    }
    let mut process = zygote.fork();
    process.start("spin", "");
    process.kill();
    assert_eq!(zygote.ending(), (process.id, Ending::Signal(libc::SIGKILL)));
}

/// D8: copies of one zygote have the same memory, but not the same random numbers.
#[test]
fn d8_copies_get_random_numbers_of_their_own() {
    let zygote = Zygote::start(TestHooks::Absent);
    let ask = |source: &str| {
        let mut process = zygote.fork();
        process.start(source, "");
        process.result().unwrap()
    };
    assert_eq!(ask("before"), ask("before"));
    let (one, other) = (ask("random"), ask("random"));
    assert!(one.starts_with("Ok(16)"), "{one}");
    assert_ne!(one, other);
}

/// Issue 4, item 2: many births at once, each answered in order; a thousand leave no process and no descriptor.
#[test]
fn d8_a_thousand_forks_leave_nothing() {
    let zygote = Zygote::start(TestHooks::Absent);
    let inner = children_of(zygote.0.process.id())[0];
    let count_files = || fs::read_dir(format!("/proc/{inner}/fd")).unwrap().count();
    let before = count_files();
    let nothing = File::options().write(true).open("/dev/null").unwrap();
    let entrances = [nothing.as_fd(); ENTRANCES_MAX];
    for _ in 0..1008 / ENTRANCES_MAX {
        zygote.0.control.fork(&entrances).unwrap();
        let (mut alive, mut born, mut ended) = (Vec::new(), 0, 0);
        while ended < ENTRANCES_MAX {
            match zygote.next().unwrap() {
                Event::Forked(child) => {
                    born += 1;
                    rustix::process::pidfd_send_signal(&child.pidfd, Signal::KILL).unwrap();
                    alive.push(child);
                }
                Event::Exited { .. } => ended += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(born, ENTRANCES_MAX);
    }
    assert_eq!(count_files(), before);
    assert_eq!(children_of(inner), Vec::<u32>::new());
}

/// Issue 4, item 2: a fork that fails is reported, and the zygote goes on. Eight descriptors are enough for one process and
/// too few while a second entrance waits.
#[test]
fn d8_a_fork_that_fails_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("few-files");
    fs::write(
        &program,
        format!("#!/bin/sh\nulimit -n 8\nexec {ZYGOTE} \"$@\"\n"),
    )
    .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let zygote = Zygote::start_program(&program, TestHooks::Absent);
    let nothing = File::options().write(true).open("/dev/null").unwrap();
    zygote
        .0
        .control
        .fork(&[nothing.as_fd(), nothing.as_fd()])
        .unwrap();
    let failed = zygote.next();
    let is_expected = matches!(
        failed,
        Some(Event::ForkFailed {
            errno: libc::EMFILE
        })
    );
    assert!(is_expected, "{failed:?}");
    assert!(matches!(zygote.next(), Some(Event::Forked(_))));
    drop(zygote.fork());
}

/// D8: a process that cannot enter its memory group never serves: it ends with a code of its own.
#[test]
fn d8_without_its_memory_group_no_process_serves() {
    let zygote = Zygote::start(TestHooks::Absent);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut process = zygote.fork_into(full.as_fd());
    assert!(process.frame().is_none());
    let expected = Ending::Code(bulkhead_zygote::NOT_LOCKED_DOWN);
    assert_eq!(zygote.ending(), (process.id, expected));
}

/// Issue 4, item 2: the end of the conversation is the end of all, also of one that never looks up.
#[test]
fn d8_closing_the_control_socket_ends_all() {
    let zygote = Zygote::start(TestHooks::Absent);
    let (idle, mut busy) = (zygote.fork(), zygote.fork());
    busy.start("spin", "");
    let Zygote(launched) = zygote;
    drop(launched.control);
    let mut process = launched.process;
    assert!(process.wait().unwrap().success());
    assert!(idle.is_gone() && busy.is_gone());
}

/// Issue 4, item 2: whichever of the two processes is killed, nobody survives.
#[test]
fn d8_a_killed_zygote_takes_all_with_it() {
    for is_inner in [true, false] {
        let zygote = Zygote::start(TestHooks::Absent);
        let (idle, mut busy) = (zygote.fork(), zygote.fork());
        busy.start("spin", "");
        let outer = zygote.0.process.id();
        let inner = children_of(outer)[0];
        let victim = if is_inner { inner } else { outer };
        let watched = pidfd_open(
            Pid::from_raw(inner.cast_signed()).unwrap(),
            PidfdFlags::empty(),
        )
        .unwrap();
        kill_process(Pid::from_raw(victim.cast_signed()).unwrap(), Signal::KILL).unwrap();
        assert!(is_readable(watched.as_fd()));
        assert!(idle.is_gone() && busy.is_gone(), "is_inner: {is_inner}");
        assert!(zygote.next().is_none(), "the broker hears of it");
        let mut process = zygote.0.process;
        assert!(!process.wait().unwrap().success());
    }
}

/// Issue 4, item 2: a broker that is killed leaves nobody.
#[test]
fn d8_a_killed_broker_leaves_nobody() {
    let mut broker = Command::new(ZYGOTE)
        .arg("broker")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(broker.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let pids: Vec<i32> = line
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect();
    let pidfds: Vec<_> = pids
        .iter()
        .map(|pid| pidfd_open(Pid::from_raw(*pid).unwrap(), PidfdFlags::empty()).unwrap())
        .collect();
    assert_eq!(pidfds.len(), 3, "{line}");
    broker.kill().unwrap();
    broker.wait().unwrap();
    for pidfd in &pidfds {
        assert!(is_readable(pidfd.as_fd()));
    }
}

fn children_of(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    listed
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}
