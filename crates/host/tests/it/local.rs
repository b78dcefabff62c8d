//! The runner's own machine as a host, for what only it can show; the rest is in the conformance suite.

use std::{path::Path, time::Duration};

use bulkhead_host::{
    Command, ExitStatus, Follow, Host as _, LocalConfig, LocalHost, LocalProvider, OpenFlags,
    Provider as _, Stdio,
};
use tokio::io::AsyncReadExt as _;

fn host(dir: &Path) -> LocalHost {
    LocalHost::new(LocalConfig::new(dir))
}

async fn output(host: &LocalHost, command: Command) -> (String, ExitStatus) {
    let mut process = bulkhead_host::Host::spawn(host, command).await.unwrap();
    let mut text = String::new();
    process
        .stdout
        .as_mut()
        .unwrap()
        .read_to_string(&mut text)
        .await
        .unwrap();
    (text, process.control.wait().await)
}

/// Whether a process is there and not only waits for its burial.
fn is_alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap()
            .trim_start()
            .starts_with('Z')
    })
}

async fn until_dead(pid: &str) {
    let waits = async {
        while is_alive(pid) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), waits).await;
    assert!(waited.is_ok(), "{pid} is still there");
}

#[tokio::test]
async fn h7_nothing_is_inherited_but_what_the_host_sets() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    let (env, _) = output(&host, Command::new(["env"])).await;
    let mut names: Vec<&str> = env
        .lines()
        .map(|line| line.split('=').next().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["HOME", "LANG", "PATH"]);
    // A descriptor that this process leaves open for its children on purpose.
    let leaky = std::fs::File::open("/etc/hostname").unwrap();
    rustix::io::fcntl_setfd(&leaky, rustix::io::FdFlags::empty()).unwrap();
    let (open, _) = output(&host, Command::shell("ls /proc/self/fd")).await;
    assert_eq!(open, "0\n1\n2\n3\n", "3 is the directory that ls reads");
    host.teardown().await.unwrap();
}

/// Children that left the session, twice removed, and that ignore every polite signal (H3, H4).
const STRAYS: &str = "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM HUP; echo $$; sleep 1000 & wait' &) ; \
    sh -c '(setsid sleep 1000 & echo $!)'; sleep 1000 & echo $!; wait";

#[tokio::test]
async fn h3_teardown_ends_what_left_its_session_and_its_parents() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    let mut process = host.spawn(Command::shell(STRAYS)).await.unwrap();
    let pids = three_lines(&mut process).await;
    assert!(pids.iter().all(|pid| is_alive(pid)));
    host.teardown().await.unwrap();
    assert_eq!(process.control.wait().await, ExitStatus::Signal(9));
    for pid in &pids {
        until_dead(pid).await;
    }
    assert!(host.spawn(Command::new(["true"])).await.is_err());
}

#[tokio::test]
async fn h4_a_host_that_is_dropped_ends_its_processes_too() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    let mut process = host.spawn(Command::shell(STRAYS)).await.unwrap();
    let pids = three_lines(&mut process).await;
    drop(process);
    drop(host);
    for pid in &pids {
        until_dead(pid).await;
    }
}

async fn three_lines(process: &mut bulkhead_host::Process) -> Vec<String> {
    let output = process.stdout.as_mut().unwrap();
    let mut text = String::new();
    while text.lines().count() < 3 || !text.ends_with('\n') {
        let mut buffer = [0; 256];
        let count = output.read(&mut buffer).await.unwrap();
        assert_ne!(count, 0, "only {text:?} came");
        text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
    }
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn h2_describing_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    assert!(host.describe().starts_with("local"));
    assert_eq!(host.isolation()[0].kind, "local");
    host.teardown().await.unwrap();
    assert!(!host.is_connected());
}

#[tokio::test]
async fn h9_a_rooted_file_system_is_never_left() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    std::fs::create_dir_all(root.join("sub")).unwrap();
    std::fs::write(dir.path().join("secret"), "outside").unwrap();
    std::fs::write(root.join("inside"), "inside").unwrap();
    let links = [
        ("absolute", dir.path().join("secret")),
        ("relative", "../secret".into()),
        (
            "magic",
            format!("/proc/self/fd/0/../../{}", dir.path().display()).into(),
        ),
        ("sub/up", "../../../secret".into()),
        ("home", "/inside".into()),
    ];
    for (name, target) in &links {
        std::os::unix::fs::symlink(target, root.join(name)).unwrap();
    }
    let files = LocalProvider::rooted(&root).unwrap();
    let read = OpenFlags {
        read: true,
        ..OpenFlags::default()
    };
    for path in [
        "absolute",
        "relative",
        "magic",
        "sub/up",
        "../secret",
        "/../../secret",
    ] {
        let opened = files.open(Path::new(path), read, 0).await;
        let error = opened.err().unwrap_or_else(|| panic!("{path} was opened"));
        assert!(matches!(error.code.name(), "ENOENT"), "{path}: {error}");
    }
    // An absolute link begins at the root.
    let opened = files.open(Path::new("/home"), read, 0).await.unwrap();
    assert_eq!(opened.read_at(0, 100).await.unwrap(), "inside");
    let real = files.realpath(Path::new("sub/../home")).await.unwrap();
    assert_eq!(real, Path::new("/inside"));
    // Names in a directory that a link leads to stay inside as well.
    std::os::unix::fs::symlink(dir.path(), root.join("out")).unwrap();
    let error = files.unlink(Path::new("out/secret")).await.unwrap_err();
    assert_eq!(error.code.name(), "ENOENT");
    for path in ["..", "sub/..", "/", "absolute/", "out/"] {
        let seen = files.stat(Path::new(path), Follow::No).await;
        let outside = std::os::unix::fs::MetadataExt::ino(&dir.path().metadata().unwrap());
        assert!(
            seen.is_err() || seen.is_ok_and(|seen| seen.inode != outside),
            "{path}"
        );
    }
    assert_eq!(
        std::fs::read(dir.path().join("secret")).unwrap(),
        b"outside"
    );
}

#[tokio::test]
async fn h1_a_terminal_is_the_process_s_own() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    let size = bulkhead_host::TerminalSize {
        rows: 30,
        columns: 90,
    };
    let command =
        Command::shell("tty < /dev/tty >/dev/null && stty size").stdio(Stdio::Terminal(size));
    let (text, status) = output(&host, command).await;
    assert_eq!((text.trim(), status), ("30 90", ExitStatus::Code(0)));
    host.teardown().await.unwrap();
}
