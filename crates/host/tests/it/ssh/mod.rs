//! A machine over SSH: a real server, real keys, the user's client configuration in a file.

mod connection;
mod forward;
mod processes;
mod terminal;

use bulkhead_host::{Command, ExitStatus, Host, Process, SshConfig, SshHost};
use bulkhead_test_hosts::Sshd;
use tokio::io::AsyncReadExt as _;

/// The host that the fixture's client configuration calls `target`.
pub(crate) fn host(sshd: &Sshd) -> SshHost {
    SshHost::new(config(sshd))
}

pub(crate) fn config(sshd: &Sshd) -> SshConfig {
    SshConfig::new(Sshd::ALIAS)
        .config_file(sshd.client_config())
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", sshd.dir().display().to_string())
}

/// All that a process writes, and how it ends.
pub(crate) async fn finish(mut process: Process) -> (String, String, ExitStatus) {
    drop(process.stdin.take());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (mut stdout, mut stderr) = (process.stdout.take(), process.stderr.take());
    let read_out = async {
        if let Some(stdout) = &mut stdout {
            stdout.read_to_end(&mut out).await.unwrap();
        }
    };
    let read_err = async {
        if let Some(stderr) = &mut stderr {
            stderr.read_to_end(&mut err).await.unwrap();
        }
    };
    tokio::join!(read_out, read_err);
    let status = process.control.wait().await;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(out), text(err), status)
}

pub(crate) async fn output(host: &dyn Host, command: Command) -> String {
    let (out, err, status) = finish(host.spawn(command).await.unwrap()).await;
    assert!(status.success(), "{status}: {err}");
    out
}
