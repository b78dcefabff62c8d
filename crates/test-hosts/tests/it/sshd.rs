//! The server is a real one, reachable by the real client, and gone when it is dropped.

use std::{
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

use bulkhead_test_hosts::{Account, Sshd, SshdOptions};

fn ssh(sshd: &Sshd, line: &str) -> Output {
    let mut ssh = Command::new("ssh");
    ssh.arg("-F").arg(sshd.client_config());
    ssh.args([Sshd::ALIAS, line]).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// H13: a real server, whose accounts are of the test's own.
#[test]
fn the_account_its_home_and_its_shell_are_the_fixtures_own() {
    for account in [Account::Unprivileged, Account::Root] {
        let sshd = Sshd::start_with(SshdOptions {
            account,
            ..SshdOptions::default()
        });
        let said = text(&ssh(&sshd, "id -un; pwd; echo $SHELL"));
        let home = sshd.home().canonicalize().unwrap();
        if rustix::process::getuid().is_root() {
            assert_eq!(
                said,
                format!("{}\n{}\n/bin/sh\n", sshd.user(), home.display())
            );
        }
        assert_eq!(sshd.accepted(), 1);
    }
}

#[test]
fn what_was_started_through_it_is_known_and_ends_with_it() {
    let sshd = Sshd::start();
    assert_eq!(sshd.processes(), Vec::<u32>::new());
    let line = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo";
    text(&ssh(&sshd, line));
    let left = sshd.processes();
    assert_eq!(left.len(), 1, "{left:?}");
    drop(sshd);
    let deadline = Instant::now() + Duration::from_secs(20);
    while Path::new(&format!("/proc/{}/exe", left[0])).exists() {
        assert!(Instant::now() < deadline, "the process is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_server_without_our_host_key_is_refused_by_the_client() {
    let sshd = Sshd::start();
    std::fs::write(sshd.known_hosts(), "").unwrap();
    let output = ssh(&sshd, "true");
    assert_eq!(output.status.code(), Some(255));
}
