//! A whole phase without a control plane: a repository, the phase gateway on a Unix socket (git's real one, and
//! the fake model behind a token check), and the session's worker on a socket pair.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::any,
};
use bulkhead_fake_model::{Script, Seen};
use bulkhead_git::{
    Access, GatewayLimits, GitProgram, LedgerError, PhaseAuth, PhaseGrant, Push, PushLedger,
    Recorded, Repository, Served, Source, gateway,
};
use bulkhead_model::{
    AgentEvent, Fence, GitOrder, Limits, NetworkPolicy, PhaseEvent, PhaseOrder, RunId, Stage,
    Stream, Work,
};
use bulkhead_session::{
    plug::NoScripts,
    run_worker,
    wire::{ArtifactChunk, Delivery, FromSession, Incoming, Machine, Outgoing, Report, ToSession},
};
use secrecy::{ExposeSecret as _, SecretString};
use tempfile::TempDir;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::Notify,
};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use uuid::Uuid;

pub(crate) const TOKEN: &str = "canary-phase-token-0123456789abcdef";
const BRANCH: &str = "refs/heads/bulkhead/run-1";

/// One repository with one run's branch, and the gateway to it.
pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
    start: String,
    _serving: AbortOnDropHandle<()>,
}

/// What a phase came to.
#[derive(Debug)]
pub(crate) struct Phase {
    pub(crate) report: Report,
    pub(crate) events: Vec<PhaseEvent>,
    pub(crate) log: Vec<(Stream, Vec<u8>)>,
    pub(crate) artifacts: Vec<ArtifactChunk>,
}

struct Books(Access);

#[async_trait]
impl PhaseAuth for Books {
    async fn access(&self, token: &SecretString) -> Result<Option<Access>, LedgerError> {
        Ok((token.expose_secret() == TOKEN).then(|| self.0.clone()))
    }
}

#[async_trait]
impl PushLedger for Books {
    async fn record(&self, _: &Push) -> Result<Recorded, LedgerError> {
        Ok(Recorded::New)
    }

    async fn done(&self, _: &Push) -> Result<(), LedgerError> {
        Ok(())
    }
}

impl World {
    pub(crate) async fn new(script: Script) -> Self {
        let dir = TempDir::new().unwrap();
        let user = dir.path().join("user");
        std::fs::create_dir_all(&user).unwrap();
        git(&user, &["init", "-q", "-b", "main"]);
        std::fs::write(user.join("README.md"), "hello\n").unwrap();
        git(&user, &["add", "-A"]);
        git(&user, &["commit", "-q", "-m", "first"]);
        let data = dir.path().join("git");
        let repository = Repository::open(&GitProgram::default(), &Source::Local(user), &data)
            .await
            .unwrap();
        let start = repository.resolve("main").await.unwrap();
        let branch = BRANCH.parse().unwrap();
        repository.create_branch(&branch, &start).await.unwrap();
        let grant = PhaseGrant {
            run: RunId::from_uuid(Uuid::now_v7()),
            phase: "implement".parse().unwrap(),
            attempt: 1,
            fence: Fence(1),
            branch,
        };
        let repo = Arc::new(Served::new(repository));
        let books = Arc::new(Books(Access { grant, repo }));
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let socket = UnixListener::bind(dir.path().join("gateway.sock")).unwrap();
        let router = router(books, script, Arc::clone(&seen));
        #[expect(
            clippy::disallowed_methods,
            reason = "the handle ends it with the world"
        )]
        let serving = tokio::spawn(async move { axum::serve(socket, router).await.unwrap() });
        Self {
            dir,
            seen,
            start: start.to_string(),
            _serving: AbortOnDropHandle::new(serving),
        }
    }

    pub(crate) fn order(&self, work: Work) -> PhaseOrder {
        PhaseOrder {
            run: RunId::from_uuid(Uuid::now_v7()),
            phase: "implement".parse().unwrap(),
            phase_index: 0,
            attempt: 1,
            fence: Fence(1),
            work,
            git: Some(GitOrder {
                branch: BRANCH.to_owned(),
                start: self.start.clone(),
                commit_message: "Phase implement".to_owned(),
                author_name: "Bulkhead".to_owned(),
                author_email: "bulkhead@example.org".to_owned(),
                extras: bulkhead_model::GitExtras::default(),
            }),
            models: vec![],
            limits: Limits {
                disk_bytes: 256 << 20,
                time_ms: 120_000,
                idle_ms: 60_000,
                ..Limits::default()
            },
            network: NetworkPolicy::default(),
            toolchains: vec![],
            env: BTreeMap::new(),
            secrets: vec![],
            artifacts_in: vec![],
            artifacts_out: BTreeMap::new(),
            max_turns: None,
            max_cost_usd_milli: None,
        }
    }

    pub(crate) fn delivery(&self, order: PhaseOrder) -> Delivery {
        Delivery {
            order,
            secrets: BTreeMap::new(),
            phase_token: TOKEN.into(),
            gateway_socket: self.dir.path().join("gateway.sock"),
            program: None,
            machine: Machine::new(self.dir.path().join("sandbox")),
        }
    }

    /// Carries out the order to its report.
    pub(crate) async fn run(&self, order: PhaseOrder) -> Phase {
        run(self.delivery(order), vec![], Cancel::Never).await
    }

    /// A file of the run's branch, as the user sees it.
    pub(crate) fn file(&self, path: &str) -> String {
        let spec = format!("{BRANCH}:{path}");
        git(&self.dir.path().join("user"), &["show", &spec])
    }

    pub(crate) fn tip(&self) -> String {
        git(&self.dir.path().join("user"), &["rev-parse", BRANCH])
    }
}

pub(crate) fn command(run: &str) -> Work {
    Work::Command {
        run: run.to_owned(),
    }
}

/// When the executor asks the session to cancel.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Cancel {
    Never,
    /// As soon as the agent has said anything, so that it is surely at work.
    WhenItSpeaks,
}

/// Carries out a delivery.
pub(crate) async fn run(
    delivery: Delivery,
    artifacts: Vec<ArtifactChunk>,
    cancel: Cancel,
) -> Phase {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (reader, writer) = ours.into_split();
    let theirs = theirs.into_std().unwrap();
    let spoke = Notify::new();
    let executor = async {
        let mut out = Outgoing::<_, ToSession>::new(writer);
        out.send(ToSession::Order(Box::new(delivery)))
            .await
            .unwrap();
        for chunk in artifacts {
            out.send(ToSession::Artifact(chunk)).await.unwrap();
        }
        spoke.notified().await;
        if cancel == Cancel::WhenItSpeaks {
            out.send(ToSession::Cancel).await.unwrap();
        }
        std::future::pending::<()>().await;
    };
    let (worked, phase) = tokio::join!(run_worker(theirs.into(), Arc::new(NoScripts)), async {
        tokio::select! {
            phase = listen(Incoming::new(reader), &spoke) => phase,
            () = executor => unreachable!("it waits for ever"),
        }
    });
    worked.unwrap();
    phase
}

async fn listen<R: tokio::io::AsyncRead + Unpin>(
    mut incoming: Incoming<R, FromSession>,
    spoke: &Notify,
) -> Phase {
    let (mut events, mut log, mut artifacts, mut report) = (vec![], vec![], vec![], None);
    while let Some(message) = incoming.next().await.unwrap() {
        match message {
            FromSession::Event(event) => {
                if matches!(
                    event,
                    PhaseEvent::Agent {
                        event: AgentEvent::Message { .. }
                    }
                ) {
                    spoke.notify_one();
                }
                events.push(event);
            }
            FromSession::Log { stream, data } => {
                if stream == Stream::Stdout {
                    spoke.notify_one();
                }
                log.push((stream, data.to_vec()));
            }
            FromSession::Artifact(chunk) => artifacts.push(chunk),
            FromSession::Summary(_) | FromSession::Awaiting => {}
            FromSession::Report(last) => report = Some(*last),
        }
    }
    Phase {
        report: report.expect("the session ends with a report"),
        events,
        log,
        artifacts,
    }
}

impl Phase {
    /// The output of one stream.
    pub(crate) fn output(&self, wanted: Stream) -> String {
        let pieces = self.log.iter().filter(|(stream, _)| *stream == wanted);
        let bytes: Vec<u8> = pieces.flat_map(|(_, data)| data.clone()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(crate) fn stages(&self) -> Vec<Stage> {
        let stages = self.events.iter().filter_map(|event| match event {
            PhaseEvent::Stage { stage, .. } => Some(*stage),
            _ => None,
        });
        stages.collect()
    }

    pub(crate) fn agent(&self) -> Vec<AgentEvent> {
        let events = self.events.iter().filter_map(|event| match event {
            PhaseEvent::Agent { event } => Some(event.clone()),
            _ => None,
        });
        events.collect()
    }

    /// Fails the test with all that is known where the phase did not succeed.
    pub(crate) fn succeeded(&self) -> &Self {
        assert!(
            self.report.failure.is_none(),
            "{:#?}\nstdout: {}\nstderr: {}\nsystem: {}\n{:#?}",
            self.report,
            self.output(Stream::Stdout),
            self.output(Stream::Stderr),
            self.output(Stream::System),
            self.agent(),
        );
        self
    }

    pub(crate) fn failure(&self) -> &str {
        let failure = self.report.failure.as_ref();
        &failure.expect("the phase fails").message
    }
}

fn router(books: Arc<Books>, script: Script, seen: Arc<Mutex<Vec<Seen>>>) -> Router {
    let git = gateway::service(
        Arc::clone(&books) as Arc<dyn PhaseAuth>,
        books,
        GatewayLimits::default(),
        TaskTracker::new(),
    );
    let script = Arc::new(script);
    let model = move |request: Request| {
        let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
        async move { model(&script, &seen, request).await }
    };
    git.route("/model/{*rest}", any(model))
}

/// The model gateway's part: a request without the phase's token gets nothing.
async fn model(script: &Script, seen: &Mutex<Vec<Seen>>, request: Request<Body>) -> Response {
    if !has_token(request.headers()) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let answer = bulkhead_fake_model::answer(script, seen, request).await;
    answer.map(Body::new)
}

fn has_token(headers: &HeaderMap) -> bool {
    let names = ["x-api-key", "authorization", "x-goog-api-key"];
    let mut values = names
        .iter()
        .filter_map(|name| headers.get(*name)?.to_str().ok());
    values.any(|value| value.trim_start_matches("Bearer ") == TOKEN)
}

pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(dir)
        .args(args)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "Ann")
        .env("GIT_AUTHOR_EMAIL", "ann@example.org")
        .env("GIT_COMMITTER_NAME", "Ann")
        .env("GIT_COMMITTER_EMAIL", "ann@example.org")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The scripted agent as a program, which stands where sandboxes show `bulkhead` itself.
pub(crate) fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap().parent().unwrap();
    built.join("examples/scripted-agent")
}
