//! An executor without sandboxes: it performs a phase as a real one would (lease, clone through the gateway with
//! the real git client, a commit, a push, a report), inside this process.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bulkhead_model::{
    AgentEvent, EndReason, Outcome, PhaseEvent, PhaseOrder, ResourceUse, Stage, Stream, Usage,
};
use bulkhead_runner::{
    Executor, FailureKind, LeaseKeeper, Orphan, PhaseFailure, PhaseKey, PhaseReport, PhaseSecrets,
    PhaseSink, Place, Running, SinkError, StartError, StopReason,
};
use secrecy::ExposeSecret as _;
use tokio::{
    net::{TcpListener, UnixStream},
    sync::{Mutex, watch},
    task::JoinSet,
};

use crate::repo;

/// What the fake keeps for the test to look at.
pub(crate) trait Witness: Send + Sync + 'static {
    /// The control plane has acknowledged this line of the phase.
    fn acknowledged(&self, line: &str);
}

pub(crate) struct FakeExecutor {
    leases: LeaseKeeper,
    work_dir: PathBuf,
    witness: Arc<dyn Witness>,
    tasks: Mutex<JoinSet<()>>,
}

impl FakeExecutor {
    pub(crate) fn new(work_dir: &Path, witness: Arc<dyn Witness>) -> Self {
        std::fs::create_dir_all(work_dir).unwrap();
        Self {
            leases: LeaseKeeper::start().unwrap(),
            work_dir: work_dir.to_owned(),
            witness,
            tasks: Mutex::default(),
        }
    }
}

#[async_trait]
impl Executor for FakeExecutor {
    async fn reserve(&self) -> Place {
        Place::unbounded()
    }

    async fn start(
        &self,
        _place: Place,
        order: PhaseOrder,
        secrets: PhaseSecrets,
        sink: Arc<dyn PhaseSink>,
    ) -> Result<Running, StartError> {
        let key = PhaseKey::of(&order);
        let hold = self.leases.hold(key.clone(), Arc::clone(&sink));
        let (stop, mut stopped) = watch::channel(None::<StopReason>);
        let phase = FakePhase {
            dir: self
                .work_dir
                .join(format!("{}-{}", order.phase, order.fence)),
            order,
            secrets,
            sink,
            witness: Arc::clone(&self.witness),
        };
        let (ended, end) = tokio::sync::oneshot::channel();
        self.tasks.lock().await.spawn(async move {
            let report = tokio::select! {
                report = phase.perform() => report,
                _ = stopped.wait_for(Option::is_some) => {
                    PhaseReport::without_outcome(FailureKind::Cancelled, "stopped")
                }
                () = hold.lost() => PhaseReport::without_outcome(FailureKind::Lost, "the lease was lost"),
            };
            let _ = ended.send(report);
        });
        Ok(Running::new(key, stop, async move {
            end.await
                .unwrap_or_else(|_| PhaseReport::without_outcome(FailureKind::Lost, "gone"))
        }))
    }

    async fn sweep(&self, _alive: &[PhaseKey]) -> Vec<Orphan> {
        Vec::new()
    }

    async fn shutdown(&self) {
        self.tasks.lock().await.shutdown().await;
    }
}

struct FakePhase {
    dir: PathBuf,
    order: PhaseOrder,
    secrets: PhaseSecrets,
    sink: Arc<dyn PhaseSink>,
    witness: Arc<dyn Witness>,
}

impl FakePhase {
    async fn perform(&self) -> PhaseReport {
        match self.work().await {
            Ok(head) => succeeded(head),
            Err(message) => PhaseReport {
                failure: Some(PhaseFailure {
                    kind: FailureKind::Failed,
                    message,
                }),
                ..succeeded(None)
            },
        }
    }

    async fn work(&self) -> Result<Option<String>, String> {
        self.say_stage(Stage::AgentStarted).await?;
        self.say("begins").await?;
        let head = self.clone_commit_push().await?;
        self.say("is done").await?;
        self.say_stage(Stage::Pushed).await?;
        Ok(Some(head))
    }

    /// A line as an event and as output; acknowledged only when both were taken.
    async fn say(&self, words: &str) -> Result<(), String> {
        let line = format!("{} {}", self.order.phase, words);
        let text = line.clone();
        let event = AgentEvent::Message { text };
        self.sink
            .event(PhaseEvent::Agent { event })
            .await
            .map_err(told)?;
        let bytes = format!("{line}\n").into_bytes().into();
        self.sink.log(Stream::Stdout, bytes).await.map_err(told)?;
        let (attempt, phase) = (self.order.attempt, &self.order.phase);
        self.witness
            .acknowledged(&format!("{phase}\t{attempt}\t{line}"));
        Ok(())
    }

    async fn say_stage(&self, stage: Stage) -> Result<(), String> {
        let event = PhaseEvent::Stage { stage, at_ms: 0 };
        self.sink.event(event).await.map_err(told)
    }

    async fn clone_commit_push(&self) -> Result<String, String> {
        let git = self
            .order
            .git
            .clone()
            .ok_or("the order has no repository")?;
        let forward = Forward::start(self.secrets.gateway.clone()).await;
        let url = format!("http://127.0.0.1:{}/git/repo.git", forward.port);
        let token = self.secrets.token.expose_secret().to_owned();
        let (dir, phase) = (self.dir.clone(), self.order.phase.to_string());
        tokio::task::spawn_blocking(move || {
            // What an earlier life left of this very attempt is of no use.
            drop(std::fs::remove_dir_all(&dir));
            std::fs::create_dir_all(&dir).unwrap();
            let branch = git.branch.strip_prefix("refs/heads/").unwrap();
            let client = Client {
                dir: &dir,
                token: &token,
            };
            client.run(&["clone", "--quiet", "--branch", branch, &url, "."])?;
            let head = client.run(&["rev-parse", "HEAD"])?;
            if head != git.start {
                return Err(format!(
                    "the clone is at {head}, the order says {}",
                    git.start
                ));
            }
            let file = dir.join(format!("{phase}.txt"));
            if file.exists() {
                return Err(format!("{phase} was done before"));
            }
            std::fs::write(&file, "done\n").unwrap();
            client.run(&["add", "."])?;
            client.run(&["commit", "--quiet", "-m", &git.commit_message])?;
            client.run(&["push", "--quiet", "origin", &format!("HEAD:{}", git.branch)])?;
            client.run(&["rev-parse", "HEAD"])
        })
        .await
        .map_err(|panic| panic.to_string())?
    }
}

fn told(error: SinkError) -> String {
    error.to_string()
}

fn succeeded(head: Option<String>) -> PhaseReport {
    PhaseReport {
        outcome: Some(Outcome {
            reason: EndReason::Exit { code: 0 },
            evidence: vec![],
            used: ResourceUse::default(),
        }),
        failure: None,
        head,
        usage: Usage::default(),
        result: None,
        artifacts: vec![],
        dropped_log_bytes: 0,
    }
}

/// The git client of a sandbox: the token comes by environment only.
struct Client<'a> {
    dir: &'a Path,
    token: &'a str,
}

impl Client<'_> {
    fn run(&self, args: &[&str]) -> Result<String, String> {
        let output = repo::command(self.dir)
            .args(args)
            .env("GIT_CONFIG_COUNT", "1")
            .env("GIT_CONFIG_KEY_0", "http.extraHeader")
            .env(
                "GIT_CONFIG_VALUE_0",
                format!("Authorization: Bearer {}", self.token),
            )
            .output()
            .unwrap();
        if output.status.success() {
            return Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned());
        }
        Err(format!(
            "git {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        ))
    }
}

/// A TCP port on loopback that leads to the gateway's socket, as the session makes one in a sandbox.
struct Forward {
    port: u16,
    /// Ends with this.
    _task: JoinSet<()>,
}

impl Forward {
    async fn start(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((mut inside, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                let socket = socket.clone();
                connections.spawn(async move {
                    let mut outside = UnixStream::connect(socket).await.unwrap();
                    drop(tokio::io::copy_bidirectional(&mut inside, &mut outside).await);
                });
            }
        });
        Self { port, _task: task }
    }
}
