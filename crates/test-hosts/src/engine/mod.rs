//! Real container engines: a dockerd and a podman service of the tests' own.
//!
//! The tests of one run share an engine, because nextest gives every test a process and a start takes a second. Who uses it
//! holds a shared lock on a file; a watcher, a shell script that is the engine's parent, waits until nobody does, ends the
//! engine, and takes its directory away. So nothing is left either when tests are killed.
//!
//! The engine has a directory, a socket and a group of control groups of its own, makes no networks and no firewall rules,
//! and knows one image: empty directories, for the machine's own programs to be mounted in.

mod image;

use std::{
    fs::{self, File, Permissions},
    io::Write as _,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, flock};

const START_IN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const DOCKER: &str = include_str!("docker.sh");
const PODMAN: &str = include_str!("podman.sh");

/// A running engine. When the last one of a test run is dropped, it ends.
#[derive(Debug)]
pub struct ContainerEngine {
    dir: PathBuf,
    /// Locked shared: somebody uses it.
    _used: File,
}

impl ContainerEngine {
    /// The image that it knows: no programs, the users `root` and `agent` (id 1000), and mount points.
    pub const IMAGE: &'static str = "bulkhead-test:1";

    /// A Docker engine, which also knows the runtime `runsc` where that is installed.
    pub fn docker() -> Self {
        Self::shared("docker", DOCKER)
    }

    /// Podman's service.
    pub fn podman() -> Self {
        Self::shared("podman", PODMAN)
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("engine.sock")
    }

    /// Runs the engine's own client and returns what it printed.
    pub fn client(&self, arguments: &[&str]) -> String {
        let output = Command::new("sh")
            .arg(self.dir.join("client"))
            .args(arguments)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// The names of all containers, also those that do not run.
    pub fn containers(&self) -> Vec<String> {
        let listed = self.client(&["ps", "-a", "--format", "{{.Names}}"]);
        listed.lines().map(str::to_owned).collect()
    }

    fn shared(kind: &str, script: &str) -> Self {
        let run =
            std::env::var("NEXTEST_RUN_ID").unwrap_or_else(|_| format!("p{}", std::process::id()));
        // Short, because a socket's path is.
        let run: String = run.chars().filter(char::is_ascii_alphanumeric).collect();
        let run = &run[run.len().saturating_sub(12)..];
        let base = std::env::temp_dir();
        let dir = base.join(format!("bulkhead-{kind}-{run}"));
        let _lock = locked(&base.join(format!("bulkhead-{kind}-{run}.lock")));
        fs::create_dir_all(&dir).unwrap();
        let used = File::create(dir.join("used")).unwrap();
        flock(&used, FlockOperation::LockShared).unwrap();
        if !dir.join("ready").exists() {
            start(&dir, script);
        }
        Self { dir, _used: used }
    }
}

/// The lock under which an engine is started, and under which its watcher ends it and takes the lock's file away.
fn locked(path: &Path) -> File {
    loop {
        let file = File::create(path).unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        let is_current =
            fs::metadata(path).is_ok_and(|now| now.ino() == file.metadata().unwrap().ino());
        if is_current {
            return file;
        }
    }
}

fn start(dir: &Path, script: &str) {
    fs::set_permissions(dir, Permissions::from_mode(0o700)).unwrap();
    image::write(&dir.join("image.tar"));
    let watcher = dir.join("watch");
    File::create(&watcher)
        .and_then(|mut file| file.write_all(script.as_bytes()))
        .unwrap();
    let log = File::create(dir.join("log")).unwrap();
    Command::new("setsid")
        .args(["--fork", "sh"])
        .arg(&watcher)
        .arg(dir)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .status()
        .unwrap();
    let deadline = Instant::now() + START_IN;
    while !dir.join("ready").exists() {
        let log = || fs::read_to_string(dir.join("log")).unwrap_or_default();
        assert!(
            !dir.join("failed").exists(),
            "the engine did not start:\n{}",
            log()
        );
        assert!(
            Instant::now() < deadline,
            "the engine is not ready:\n{}",
            log()
        );
        std::thread::sleep(LOOK_EVERY);
    }
}
