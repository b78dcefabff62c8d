//! A host over the real OpenSSH client: one master process, one client process for each session on its connection.

use std::{path::PathBuf, process::Stdio as Std, sync::Arc, time::Duration};

use async_trait::async_trait;
use bulkhead_host::{
    Command, DuplexStream, Endpoint, ExitStatus, Host, HostError, Layer, Listener, Process,
    ProcessControl, Provider, Signal, Stdio, Stream, Target, TerminalSize,
};
use bulkhead_test_hosts::Sshd;
use rustix::process::{Pid, Signal as Unix, kill_process};
use tokio::{
    process::{Child, Command as Program},
    sync::watch,
    task::JoinSet,
};

/// What a session runs over; several runners may use one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Connection {
    pub(super) config: PathBuf,
    pub(super) socket: PathBuf,
}

/// The client's process that has the connection. Dropping it kills it.
pub(super) struct Master(std::process::Child);

#[derive(Debug)]
pub(super) struct SshClient {
    connection: Connection,
    env: Vec<(String, String)>,
    sessions: std::sync::Mutex<JoinSet<()>>,
}

struct Session {
    pid: Option<Pid>,
    status: watch::Receiver<Option<ExitStatus>>,
}

impl Connection {
    /// Connects, and waits until sessions can be had.
    pub(super) fn open(sshd: &Sshd, name: &str) -> (Self, Master) {
        let connection = Self {
            config: sshd.client_config(),
            socket: sshd.dir().join(name),
        };
        let mut master = std::process::Command::new("ssh");
        master.args(connection.arguments());
        master.args(["-M", "-N", Sshd::ALIAS]);
        let master = master
            .stdin(Std::null())
            .stdout(Std::null())
            .spawn()
            .unwrap();
        let mut tries = 0;
        while !connection.socket.exists() {
            tries += 1;
            assert!(tries < 1000, "no connection: {}", sshd.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        (connection, Master(master))
    }

    fn arguments(&self) -> [String; 4] {
        let [config, socket] = [&self.config, &self.socket].map(|path| path.display().to_string());
        ["-F".to_owned(), config, "-S".to_owned(), socket]
    }
}

impl Master {
    pub(super) fn signal(&self, signal: Unix) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl SshClient {
    /// `env` is set for every process there.
    pub(super) fn new(connection: Connection, env: &[(&str, &str)]) -> Arc<Self> {
        Arc::new(Self {
            connection,
            env: env
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                .collect(),
            sessions: std::sync::Mutex::default(),
        })
    }

    fn no_forwarding(&self) -> HostError {
        HostError::Unsupported {
            host: self.describe(),
            what: "forward".to_owned(),
        }
    }

    fn line(&self, command: &Command) -> String {
        let mut words = vec!["exec".to_owned(), "env".to_owned()];
        let own = self.env.iter().map(|(name, value)| (name, value));
        for (name, value) in own.chain(&command.env) {
            words.push(quote(&format!("{name}={value}")));
        }
        words.extend(command.argv.iter().map(|word| quote(word)));
        let cd = command
            .cwd
            .as_ref()
            .map(|dir| format!("cd {} && ", quote(dir)));
        cd.unwrap_or_default() + &words.join(" ")
    }

    fn client(&self, command: &Command) -> Child {
        let mut client = Program::new("ssh");
        client.args(self.connection.arguments());
        let std = |stream| match stream {
            Stream::Null => Std::null(),
            Stream::Pipe => Std::piped(),
        };
        match command.stdio {
            Stdio::Terminal(_) => {
                client
                    .arg("-tt")
                    .stdin(Std::piped())
                    .stdout(Std::piped())
                    .stderr(Std::null());
            }
            Stdio::Streams {
                stdin,
                stdout,
                stderr,
            } => {
                client
                    .stdin(std(stdin))
                    .stdout(std(stdout))
                    .stderr(std(stderr));
            }
        }
        client
            .args([Sshd::ALIAS, &self.line(command)])
            .spawn()
            .unwrap()
    }
}

fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[async_trait]
impl Host for SshClient {
    fn describe(&self) -> String {
        "ssh".to_owned()
    }

    fn is_connected(&self) -> bool {
        true
    }

    async fn spawn(&self, command: Command) -> Result<Process, HostError> {
        let mut client = self.client(&command);
        let pid = client.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let (told, status) = watch::channel(None);
        let (stdin, stdout, stderr) = (
            client.stdin.take(),
            client.stdout.take(),
            client.stderr.take(),
        );
        self.sessions.lock().unwrap().spawn(async move {
            let status = client.wait().await.unwrap();
            // The client tells a session that broke, or ended by a signal, by this code.
            told.send_replace(Some(match status.code() {
                Some(255) | None => ExitStatus::HostEnded,
                Some(code) => ExitStatus::Code(code),
            }));
        });
        Ok(Process {
            stdin: stdin.map(|stream| Box::new(stream) as _),
            stdout: stdout.map(|stream| Box::new(stream) as _),
            stderr: stderr.map(|stream| Box::new(stream) as _),
            control: Arc::new(Session { pid, status }),
        })
    }

    fn files(&self) -> Arc<dyn Provider> {
        panic!("supervised agents need no files of the host")
    }

    async fn connect(&self, _: Endpoint) -> Result<DuplexStream, HostError> {
        Err(self.no_forwarding())
    }

    async fn listen(&self, _: Endpoint) -> Result<Box<dyn Listener>, HostError> {
        Err(self.no_forwarding())
    }

    fn isolation(&self) -> Vec<Layer> {
        Vec::new()
    }

    async fn teardown(&self) -> Result<(), HostError> {
        Ok(())
    }
}

#[async_trait]
impl ProcessControl for Session {
    async fn wait(&self) -> ExitStatus {
        let mut status = self.status.clone();
        status.wait_for(Option::is_some).await.unwrap().unwrap()
    }

    /// Only the client's own process can be reached from here.
    async fn signal(&self, _: Signal, _: Target) -> Result<(), HostError> {
        if self.status.borrow().is_none() {
            let _ = kill_process(self.pid.unwrap(), Unix::TERM);
        }
        Ok(())
    }

    async fn resize(&self, _: TerminalSize) -> Result<(), HostError> {
        Ok(())
    }
}
