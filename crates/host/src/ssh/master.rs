//! The one connection to a host: an `ssh` of the user's own that others share through its control socket.
//!
//! ```text
//! [ starting ] ──"ready" from the remote shell──▶ [ open ] ──end(), its exit, our own death──▶ [ gone ]
//!       └─ its exit, a time limit ─▶ an error that says what ssh had said
//! ```
//!
//! The connection's own session is a shell that performs single lines: signals to processes, tests of rights. So neither needs a
//! session of its own, which the server may refuse. When this process dies, that shell reads its end of file and ends, and with
//! it the connection.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::timeout,
};
use tokio_util::task::TaskTracker;

use super::{
    SshConfig, SshError,
    mux::{Mux, MuxError},
    script::{CONTROL, CONTROL_READY, MARK},
    settings::Settings,
    slots::Slots,
    through::Way,
};

/// What a start-up file of the account may print before the shell is there.
const CHATTER_LINES_MAX: usize = 1000;
const WORDS_BYTES_MAX: u64 = 16 << 10;
/// A line of the connection's shell takes a moment; this is for a machine that hangs.
const CONTROL_LIMIT: Duration = Duration::from_secs(30);
const QUEUE: usize = 64;
/// How long a goodbye may take before the connection is cut.
const GOODBYE_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Master {
    dir: TempDir,
    lines: mpsc::Sender<(String, oneshot::Sender<i32>)>,
    pub(super) slots: Arc<Slots>,
    /// Followers of processes and forwards. They end with the connection.
    pub(super) tasks: TaskTracker,
    /// The groups of processes that have not ended.
    running: Mutex<BTreeSet<u32>>,
    end: watch::Sender<Wanted>,
    gone: watch::Receiver<Life>,
    /// How many listeners are being ended: the place of each can be listened at again only after that.
    pub(super) leaving: watch::Sender<usize>,
    /// Numbers sockets of forwards.
    next_socket: AtomicU64,
    /// The tasks that own the child and its shell.
    _own: JoinSet<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Life,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Alive,
    Gone,
}

impl Master {
    pub(super) async fn start(config: &SshConfig) -> Result<Arc<Self>, SshError> {
        let dir = tempfile::Builder::new()
            .prefix("ssh-")
            .tempdir_in(&config.run_dir)
            .map_err(SshError::Directory)?;
        let way = Way::open(config, dir.path())?;
        let mut child = command(config, &dir, way.as_ref())
            .spawn()
            .map_err(|source| SshError::Program {
                program: config.program.clone(),
                source,
            })?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(SshError::NoShell(String::new()));
        };
        let mut output = BufReader::new(stdout).lines();
        let ready = timeout(config.connect_limit, ready(&mut output)).await;
        match ready {
            Ok(Ok(())) => Ok(Self::started(dir, child, stdin, output, way)),
            Ok(Err(chatter)) => Err(match way.and_then(|way| way.failure()) {
                Some(error) => SshError::Before(error),
                None => failure(config, child, chatter).await,
            }),
            Err(_) => Err(SshError::TimedOut(config.connect_limit)),
        }
    }

    fn started(
        dir: TempDir,
        child: Child,
        stdin: ChildStdin,
        output: Lines<BufReader<ChildStdout>>,
        way: Option<Way>,
    ) -> Arc<Self> {
        let (lines, queue) = mpsc::channel(QUEUE);
        let (end, wanted) = watch::channel(Wanted::Life);
        let (ended, gone) = watch::channel(Life::Alive);
        let mut own = way.map(Way::into_tasks).unwrap_or_default();
        own.spawn(serve(queue, stdin, output));
        own.spawn(keep(child, wanted, ended));
        Arc::new(Self {
            dir,
            lines,
            slots: Arc::default(),
            tasks: TaskTracker::new(),
            running: Mutex::default(),
            end,
            gone,
            leaving: watch::Sender::new(0),
            next_socket: AtomicU64::new(0),
            _own: own,
        })
    }

    pub(super) async fn mux(&self) -> Result<Mux, MuxError> {
        Mux::connect(&socket(&self.dir)).await
    }

    /// Whether the connection lives, by asking it.
    pub(super) async fn is_alive(&self) -> bool {
        let asked = async { self.mux().await?.master().await };
        timeout(GOODBYE_LIMIT, asked)
            .await
            .is_ok_and(|answer| answer.is_ok())
    }

    /// A path for a socket of a forward, which nobody else uses.
    pub(super) fn new_socket(&self) -> PathBuf {
        let number = self.next_socket.fetch_add(1, Ordering::Relaxed);
        self.dir.path().join(format!("f{number}"))
    }

    /// Has the connection's shell perform a line, which must not write, and gives its code.
    pub(super) async fn perform(&self, line: &str) -> Result<i32, SshError> {
        let (tell, told) = oneshot::channel();
        let sent = self.lines.send((line.trim_end().to_owned(), tell)).await;
        sent.map_err(|_| SshError::Ended)?;
        told.await.map_err(|_| SshError::Ended)
    }

    pub(super) fn runs(&self, pid: u32) {
        self.running().insert(pid);
    }

    pub(super) fn has_ended(&self, pid: u32) {
        self.running().remove(&pid);
    }

    fn running(&self) -> std::sync::MutexGuard<'_, BTreeSet<u32>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hangs up on what still runs, as a terminal does, and ends the connection. Nothing is left here afterwards.
    pub(super) async fn end(&self) {
        let left: Vec<String> = self
            .running()
            .iter()
            .map(|pid| format!("kill -HUP -{pid}"))
            .collect();
        if !left.is_empty() {
            let line = format!("{{ {}; }} 2>/dev/null", left.join("; "));
            let _ = timeout(GOODBYE_LIMIT, self.perform(&line)).await;
        }
        let goodbye = async { self.mux().await?.terminate().await };
        let _ = timeout(GOODBYE_LIMIT, goodbye).await;
        self.end.send_replace(Wanted::End);
        let mut gone = self.gone.clone();
        // An error means that the task has ended, and with it the child.
        let _ = gone.wait_for(|life| *life == Life::Gone).await;
        self.tasks.close();
        let _ = timeout(GOODBYE_LIMIT, self.tasks.wait()).await;
        let _ = tokio::fs::remove_dir_all(self.dir.path()).await;
    }
}

fn socket(dir: &TempDir) -> PathBuf {
    dir.path().join("s")
}

fn command(config: &SshConfig, dir: &TempDir, way: Option<&Way>) -> Command {
    let mut command = Command::new(&config.program);
    command.env_clear().envs(&config.env);
    command.args(config.arguments());
    command.arg("-M").arg("-S").arg(socket(dir)).arg("-T");
    // Nobody can answer a question here, and an unknown key is an error whatever the configuration says (H13). What the
    // configuration would forward or run besides is the plugs' business.
    for option in [
        "BatchMode=yes",
        "StrictHostKeyChecking=yes",
        "ControlPersist=no",
        "ClearAllForwardings=yes",
        "RemoteCommand=none",
        "Tunnel=no",
        "LogLevel=ERROR",
    ] {
        command.args(["-o", option]);
    }
    if let Some(way) = way {
        command.args(["-o", way.option()]);
    }
    if !Settings::read(config).keeps_alive() {
        // Else a network that was cut is noticed by nobody.
        command.args([
            "-o",
            "ServerAliveInterval=15",
            "-o",
            "ServerAliveCountMax=4",
        ]);
    }
    command.arg(&config.host).arg(CONTROL);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Waits for the remote shell; what came instead is the error.
async fn ready(output: &mut Lines<BufReader<ChildStdout>>) -> Result<(), String> {
    let mut chatter = String::new();
    for _ in 0..CHATTER_LINES_MAX {
        match output.next_line().await {
            Ok(Some(line)) if line.trim_end() == CONTROL_READY => return Ok(()),
            Ok(Some(line)) if chatter.len() < 1000 => {
                chatter.push_str(&line);
                chatter.push('\n');
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => break,
        }
    }
    Err(chatter)
}

/// What `ssh` said when it gave up.
async fn failure(config: &SshConfig, mut child: Child, chatter: String) -> SshError {
    let mut words = Vec::new();
    if let Some(stderr) = &mut child.stderr {
        let mut stderr = stderr.take(WORDS_BYTES_MAX);
        let _ = timeout(GOODBYE_LIMIT, stderr.read_to_end(&mut words)).await;
    }
    let words = String::from_utf8_lossy(&words).trim().to_owned();
    let host = config.host.clone();
    if words.contains("REMOTE HOST IDENTIFICATION HAS CHANGED") {
        return SshError::ChangedKey { host, words };
    }
    if words.contains("Host key verification failed") || words.contains("host key is known for") {
        return SshError::UnknownKey { host, words };
    }
    if words.contains("Permission denied") {
        return SshError::Denied { host, words };
    }
    if words.is_empty() {
        return SshError::NoShell(chatter.trim().to_owned());
    }
    SshError::Ssh(words)
}

/// Owns the child until it ends or is to end.
async fn keep(mut child: Child, mut wanted: watch::Receiver<Wanted>, ended: watch::Sender<Life>) {
    let mut stderr = child.stderr.take();
    let drain = async {
        if let Some(stderr) = &mut stderr {
            // What it says while it works is of no use to anybody, but must not fill the pipe.
            let _ = tokio::io::copy(stderr, &mut tokio::io::sink()).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = child.wait() => {}
        _ = wanted.wait_for(|wanted| *wanted == Wanted::End) => {}
        () = drain => {}
    }
    if timeout(GOODBYE_LIMIT, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
    ended.send_replace(Life::Gone);
}

/// Owns the connection's shell: one line after the other. A line that nobody waits for any more is performed all the same.
async fn serve(
    mut queue: mpsc::Receiver<(String, oneshot::Sender<i32>)>,
    mut stdin: ChildStdin,
    mut output: Lines<BufReader<ChildStdout>>,
) {
    let mut number: u64 = 0;
    while let Some((line, tell)) = queue.recv().await {
        number += 1;
        // On one line, because reading the next one would be the last command then.
        let text = format!("{line}; echo \"{MARK}{number} $?\"\n");
        if stdin.write_all(text.as_bytes()).await.is_err() {
            return;
        }
        let Ok(Some(code)) = timeout(CONTROL_LIMIT, answer(&mut output, number)).await else {
            return;
        };
        let _ = tell.send(code);
    }
}

async fn answer(output: &mut Lines<BufReader<ChildStdout>>, number: u64) -> Option<i32> {
    let mark = format!("{MARK}{number} ");
    while let Ok(Some(line)) = output.next_line().await {
        if let Some(code) = line.strip_prefix(&mark) {
            return code.trim().parse().ok();
        }
    }
    None
}
