//! The conformance suite: what every host must do, written once and run for each of them.
//!
//! A host joins by a [`Maker`] and one line in [`conformance`] below. Each section is a test of its own, with a fresh host.

mod containers;
mod errors;
mod files;
mod forwarding;
mod laziness;
mod local;
mod names;
mod nested;
mod operations;
mod processes;
mod sandbox;
mod signals;
mod ssh;
mod streams;
mod teardown;
mod terminal;

use std::{path::PathBuf, sync::Arc, time::Duration};

use bulkhead_host::{
    Command, ExitStatus, FileSystem, Host, Process, ProcessControl, Reader, RmOptions, Stdio,
};
use tokio::io::AsyncReadExt as _;

/// Nothing that is waited for takes this long on any machine that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Describes hosts of one kind for the suite. Whatever it keeps (a server, a directory) lives as long as it does.
pub(crate) trait Maker: Send + Sync {
    /// Describes a fresh host, each time it is called; nothing is connected.
    fn describe(&self) -> Box<dyn Fn() -> Arc<dyn Host> + Send + Sync>;

    /// A directory of the host in which its user may make directories.
    fn scratch(&self) -> PathBuf;

    /// A read-only file system there, with what `tests/node-errors/inside.sh` puts into it.
    fn read_only(&self) -> Option<PathBuf> {
        None
    }

    /// A directory on another file system than [`Maker::scratch`].
    fn other_file_system(&self) -> Option<PathBuf> {
        None
    }

    /// How many connections or machines have been made so far, where that can be counted.
    fn connections(&self) -> Option<u64> {
        None
    }

    /// Whether an exit status tells a signal from an exit code above 128.
    fn tells_signals(&self) -> bool {
        true
    }

    /// What a teardown ends.
    fn ends(&self) -> Ends {
        Ends::Everything
    }
}

/// What is gone after a teardown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Every process, also those that made a session of their own.
    Everything,
    /// The connection only: the machine outlives the session, and its processes may too.
    Connection,
}

/// One test a section, for each host: a name, and what makes its maker.
macro_rules! conformance {
    ($($host:ident: $maker:expr;)+) => {
        $(mod $host {
            use super::{errors, files, forwarding, laziness, names, processes, signals, streams, teardown, terminal};
            conformance! { @tests $maker;
                h1_processes: processes::section,
                h1_streams: streams::section,
                h1_signals_and_exits: signals::section,
                h1_terminal: terminal::section,
                h1_forwarding: forwarding::section,
                h2_laziness: laziness::section,
                h9_files: files::section,
                h9_synchronous: files::blocking,
                h9_names: names::section,
                h9_ten_thousand_files: names::many,
                h9_errors: errors::section,
                h3_teardown: teardown::section,
            }
        })+
    };
    (@tests $maker:expr; $($test:ident: $section:path,)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let maker = $maker;
            $section(&maker).await;
        })+
    };
}

// Each host kind on one line; where a maker needs a server, it starts it.
conformance! {
    on_local: crate::conformance::local::Local::new();
    on_sandbox: crate::conformance::sandbox::Sandboxes::new();
    on_ssh: crate::conformance::ssh::Ssh::new();
    on_docker: crate::conformance::containers::Containers::of(bulkhead_test_hosts::ContainerEngine::docker());
    on_podman: crate::conformance::containers::Containers::of(bulkhead_test_hosts::ContainerEngine::podman());
    on_docker_over_ssh: crate::conformance::containers::ContainersOverSsh::new();
    on_sandbox_in_docker: crate::conformance::containers::SandboxInContainer::new();
    on_sandbox_over_ssh: crate::conformance::containers::SandboxOverSsh::new();
}

/// A host and a directory on it for one section.
pub(crate) struct Place {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) files: FileSystem,
    pub(crate) dir: PathBuf,
}

impl Place {
    pub(crate) async fn new(maker: &impl Maker) -> Self {
        let host = maker.describe()();
        let files = FileSystem::new(host.files());
        let dir = files
            .mkdtemp(&maker.scratch().join("suite-"))
            .await
            .unwrap();
        Self { host, files, dir }
    }

    pub(crate) fn path(&self, name: impl AsRef<std::path::Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// Removes the directory and ends the host.
    pub(crate) async fn end(self) {
        let all = RmOptions {
            recursive: true,
            force: true,
            max_retries: 3,
            ..RmOptions::default()
        };
        self.files.rm(&self.dir, all).await.unwrap();
        self.host.teardown().await.unwrap();
    }
}

/// What a process wrote, and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) status: ExitStatus,
}

impl Ran {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }
}

/// Runs a process to its end, reading both of its outputs.
pub(crate) async fn run(host: &dyn Host, command: Command) -> Ran {
    let process = host.spawn(command).await.unwrap();
    collect(process).await
}

pub(crate) async fn collect(mut process: Process) -> Ran {
    drop(process.stdin.take());
    let all = async {
        let (stdout, stderr) = tokio::join!(
            read_all(process.stdout.take()),
            read_all(process.stderr.take())
        );
        let status = process.control.wait().await;
        Ran {
            stdout,
            stderr,
            status,
        }
    };
    soon("the end of a process", all).await
}

async fn read_all(stream: Option<Reader>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        stream.read_to_end(&mut bytes).await.unwrap();
    }
    bytes
}

/// A line for the host's shell; it must succeed, and what it wrote is returned.
pub(crate) async fn shell(host: &dyn Host, line: &str) -> String {
    let ran = run(host, Command::shell(line)).await;
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{line}: {} {errors}", ran.status);
    ran.text().to_owned()
}

/// A shell with pipes for all three streams.
pub(crate) fn piped(line: &str) -> Command {
    Command::shell(line).stdio(Stdio::PIPES)
}

/// Reads until the text has come.
pub(crate) async fn read_until(stream: &mut Reader, wanted: &str) -> String {
    let mut text = String::new();
    let reads = async {
        while !text.contains(wanted) {
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).await.unwrap();
            assert_ne!(count, 0, "{wanted:?} did not come: {text:?}");
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    };
    soon(wanted, reads).await;
    text
}

/// Waits with a generous limit, and says for what.
pub(crate) async fn soon<T>(what: &str, waits: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, waits).await {
        Ok(done) => done,
        Err(_) => panic!("waited {PATIENCE:?} for {what}"),
    }
}

pub(crate) async fn ended(control: &Arc<dyn ProcessControl>) -> ExitStatus {
    soon("a process to end", control.wait()).await
}

/// That a process was ended by this signal, as far as the host can tell.
pub(crate) fn assert_signal(maker: &impl Maker, status: ExitStatus, signal: i32) {
    let is_it = match status {
        ExitStatus::Signal(number) => number == signal,
        ExitStatus::Code(code) => !maker.tells_signals() && (code == 128 + signal || code == 255),
        ExitStatus::HostEnded => false,
    };
    assert!(is_it, "{status}, and not signal {signal}");
}
