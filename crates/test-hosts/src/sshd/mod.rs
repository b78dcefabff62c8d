//! A real OpenSSH server, one process for each connection.
//!
//! The fixture accepts the connections itself and hands each to an `sshd -i`: so the port is never guessed, connections can
//! be counted (H3), and the server process of each one is known by pid. As root, every server process lives in a mount
//! namespace of its own whose `/etc/passwd` names accounts that only the fixture has: an unprivileged one, and root with a
//! home directory in the fixture's temporary directory. Nothing of the machine's own configuration is read or changed.
//!
//! Where the tests do not run as root, the only account is the tests' own user.

mod processes;
mod write;

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tempfile::TempDir;

/// How often the accepting thread looks whether it shall end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Who the sessions run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    Root,
    /// User and group id 2000.
    Unprivileged,
}

/// When the server gives a silent client up (`ClientAliveInterval`, `ClientAliveCountMax`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAlive {
    pub interval_s: u32,
    pub count_max: u32,
}

#[derive(Debug, Clone)]
pub struct SshdOptions {
    /// Ignored where the tests do not run as root: then it is the tests' own user.
    pub account: Account,
    /// The account's login shell.
    pub shell: PathBuf,
    pub max_sessions: u32,
    pub client_alive: Option<ClientAlive>,
    /// What serves `sftp`: `internal-sftp`, or a program with its arguments.
    pub sftp: String,
    /// More lines of `sshd_config`. The first value of a keyword counts, and these stand first.
    pub lines: Vec<String>,
}

impl Default for SshdOptions {
    fn default() -> Self {
        Self {
            account: Account::Unprivileged,
            shell: "/bin/sh".into(),
            max_sessions: 10,
            client_alive: None,
            sftp: "internal-sftp".to_owned(),
            lines: Vec::new(),
        }
    }
}

/// A running server. Dropping it ends it, its connections, and every process that was started through it.
#[derive(Debug)]
pub struct Sshd {
    shared: Arc<Shared>,
    options: SshdOptions,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

/// What the accepting thread has too.
#[derive(Debug)]
struct Shared {
    dir: TempDir,
    /// Marks every process that was started through this server, by its environment.
    mark: String,
    stop: AtomicBool,
    accepted: AtomicUsize,
    servers: Mutex<Vec<Child>>,
}

impl Sshd {
    /// A name of this server in [`Sshd::client_config`], with everything set for it.
    pub const ALIAS: &str = "target";

    pub fn start() -> Self {
        Self::start_with(SshdOptions::default())
    }

    pub fn start_with(options: SshdOptions) -> Self {
        Self::serve(TcpListener::bind(("127.0.0.1", 0)).unwrap(), options)
    }

    /// Serves a listener of the caller's, which may belong to a network namespace of its own.
    pub fn serve(listener: TcpListener, options: SshdOptions) -> Self {
        let dir = TempDir::new().unwrap();
        let address = listener.local_addr().unwrap();
        let mark = format!("{}", dir.path().display());
        write::everything(dir.path(), address, &mark, &options);
        let shared = Arc::new(Shared {
            dir,
            mark,
            stop: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
            servers: Mutex::default(),
        });
        let theirs = Arc::clone(&shared);
        let accepting = std::thread::spawn(move || accept_all(&listener, &theirs));
        Self {
            shared,
            options,
            address,
            accepting: Some(accepting),
        }
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The account that sessions run as.
    pub fn user(&self) -> String {
        write::user(&self.options)
    }

    /// The account's home directory: empty at the start.
    pub fn home(&self) -> PathBuf {
        self.dir().join("home")
    }

    /// A file for `ssh -F` that knows this server as [`Sshd::ALIAS`]: its address, user, key and host key.
    pub fn client_config(&self) -> PathBuf {
        self.dir().join("ssh_config")
    }

    /// Adds lines to the client's configuration, before the others, so that they count first.
    pub fn configure_client(&self, lines: &str) {
        let path = self.client_config();
        let rest = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("Host *\n{lines}\n{rest}")).unwrap();
    }

    /// The file of known host keys that the client's configuration names.
    pub fn known_hosts(&self) -> PathBuf {
        self.dir().join("known_hosts")
    }

    /// The private key that the account accepts.
    pub fn identity(&self) -> PathBuf {
        self.dir().join("user_key")
    }

    /// The fixture's directory, which the account may enter.
    pub fn dir(&self) -> &Path {
        self.shared.dir.path()
    }

    /// How many connections have been accepted so far, whatever became of them.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// The pids of the server processes of the living connections: of each, first the one that watches, then the one that
    /// speaks with the client. A connection is cut by killing both.
    pub fn servers(&self) -> Vec<u32> {
        let mut servers = self.shared.servers.lock().unwrap();
        servers.retain_mut(|server| server.try_wait().unwrap().is_none());
        let pids = servers.iter().map(Child::id);
        pids.flat_map(processes::with_children).collect()
    }

    /// The pids of all processes that were started through this server and live, however far they strayed: those whose
    /// environment still carries the server's mark.
    pub fn processes(&self) -> Vec<u32> {
        processes::marked(&self.shared.mark)
    }

    /// What the server has written about its connections.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir().join("log")).unwrap_or_default()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        if let Ok(mut servers) = self.shared.servers.lock() {
            for server in &mut *servers {
                processes::kill(&processes::with_children(server.id()));
                let _ = server.wait();
            }
        }
        processes::end(&self.shared.mark);
    }
}

fn accept_all(listener: &TcpListener, shared: &Shared) {
    while !shared.stop.load(Ordering::SeqCst) {
        let timeout = Timespec::try_from(LOOK_EVERY).unwrap();
        let mut polled = [PollFd::new(listener, PollFlags::IN)];
        if poll(&mut polled, Some(&timeout)).is_ok_and(|ready| ready > 0)
            && let Ok((stream, _)) = listener.accept()
        {
            shared.accepted.fetch_add(1, Ordering::SeqCst);
            let server = serve_one(stream, shared.dir.path());
            let mut servers = shared.servers.lock().unwrap();
            servers.retain_mut(|server| server.try_wait().is_ok_and(|ended| ended.is_none()));
            servers.push(server);
        }
    }
}

fn serve_one(stream: TcpStream, dir: &Path) -> Child {
    let _ = stream.set_nodelay(true);
    let stream = OwnedFd::from(stream);
    let mut command = Command::new("/bin/sh");
    command.arg(dir.join("serve.sh")).env_clear();
    command.stdin(stream.try_clone().unwrap()).stdout(stream);
    command.stderr(Stdio::null()).spawn().unwrap()
}
