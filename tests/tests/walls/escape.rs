//! The escape suite: `attack/probe.c` tries every way out that the threat model names, from inside.

use std::{
    fs,
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixListener},
        },
    },
    process::{Child, Command},
};

use bulkhead_sandbox::Workspace;

use crate::support::{ATTACK_DIR, Yard, assert_nothing_left, small_limits};

/// What the host holds and no sandbox may see. All of it is removed when this is dropped.
struct Planted {
    dir: tempfile::TempDir,
    process: Child,
    port: TcpListener,
    _socket: UnixListener,
    _abstract: UnixListener,
    abstract_name: String,
    secret: String,
}

impl Planted {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let secret = format!("canary-{}", uuid::Uuid::now_v7().simple());
        let abstract_name = format!("bulkhead-test-{}", uuid::Uuid::now_v7().simple());
        fs::write(dir.path().join("file"), &secret).unwrap();
        let socket = UnixListener::bind(dir.path().join("socket")).unwrap();
        fs::set_permissions(dir.path().join("socket"), fs::Permissions::from_mode(0o777)).unwrap();
        Self {
            process: Command::new("sleep")
                .arg("600")
                .env("CANARY", &secret)
                .spawn()
                .unwrap(),
            port: TcpListener::bind("127.0.0.1:0").unwrap(),
            _socket: socket,
            _abstract: UnixListener::bind_addr(
                &SocketAddr::from_abstract_name(&abstract_name).unwrap(),
            )
            .unwrap(),
            dir,
            abstract_name,
            secret,
        }
    }

    fn arguments(&self) -> Vec<String> {
        let reversed: String = self
            .secret
            .bytes()
            .rev()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        vec![
            format!("pid={}", self.process.id()),
            format!("file={}", self.dir.path().join("file").display()),
            format!("sock={}", self.dir.path().join("socket").display()),
            format!("abstract={}", self.abstract_name),
            format!("port={}", self.port.local_addr().unwrap().port()),
            format!("canary={reversed}"),
        ]
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn breaches(report: &str) -> Vec<&str> {
    report
        .lines()
        .filter(|line| line.contains("\tBREACH\t"))
        .collect()
}

async fn probe_inside(workspace: Workspace) {
    let yard = Yard::new().await;
    let planted = Planted::new();
    let mut argv = vec![format!("{ATTACK_DIR}/probe")];
    argv.extend(planted.arguments());
    let ended = yard.attack(small_limits(), workspace, &argv).await;
    assert!(
        ended.status.success(),
        "the probe itself failed: {:?} {}\n{}",
        ended.status,
        ended.stderr,
        ended.stdout
    );
    assert!(
        ended.stdout.lines().count() > 200,
        "the probe stopped early:\n{}",
        ended.stdout
    );
    let found = breaches(&ended.stdout);
    assert!(found.is_empty(), "reached:\n{}", found.join("\n"));
    assert_nothing_left(ended.id);
}

/// R3, R4, R6, case 31: nothing that the suite names is reachable from a phase's sandbox.
#[tokio::test]
async fn r4_no_way_out_of_a_sandbox_with_a_disk_of_its_own() {
    probe_inside(Workspace::Image).await;
}

/// R4, R6: the same walls stand around a sandbox whose workspace is in memory.
#[tokio::test]
async fn r4_no_way_out_of_a_sandbox_in_memory() {
    probe_inside(Workspace::Tmpfs).await;
}

/// R4, R6, case 41: the same walls stand where a directory of the host is the workspace.
#[tokio::test]
async fn r4_no_way_out_of_a_sandbox_with_a_directory_of_the_host() {
    let shared = tempfile::tempdir().unwrap();
    probe_inside(Workspace::Directory(shared.path().to_owned())).await;
}

/// The suite can fail: outside, as an ordinary user, the same probe reaches what it must not reach inside. It runs in an
/// empty network namespace, so that nothing leaves this machine, and as a user who can break nothing.
#[tokio::test]
async fn the_suite_finds_breaches_where_there_is_no_sandbox() {
    let yard = Yard::new().await;
    let planted = Planted::new();
    let probe = yard.programs.join("probe");
    // A copy where an ordinary user may execute it: the target directory may lie below a private home.
    let copy = planted.dir.path().join("probe");
    fs::copy(&probe, &copy).unwrap();
    let output = Command::new("unshare")
        .args([
            "--net",
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
        ])
        .arg(&copy)
        .args(planted.arguments())
        .env("CANARY", &planted.secret)
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    let found = breaches(&report);
    for name in [
        "environment",
        "no-new-privs",
        "seccomp-filter",
        "caps-bounding",
        "host-process-pidfd",
        "proc-lists-only-own",
        "ptrace-parent",
        "process-vm-readv",
        "host-file",
        "host-file-self-root",
        "host-path",
        "host-unix-socket",
        "device-list",
        "executor-secrets",
    ] {
        assert!(
            found
                .iter()
                .any(|line| line.starts_with(&format!("{name}\t"))),
            "{name} was not reached outside, so it proves nothing inside:\n{report}"
        );
    }
}
