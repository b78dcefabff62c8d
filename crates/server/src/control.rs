//! The control plane as its embedder holds it.

use std::{path::Path, sync::Arc};

use bulkhead_model::{GateId, PhaseName, RunId, SecretName};
use bulkhead_runner::{Executor, Orphan};
use futures::stream::BoxStream;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use bulkhead_model::gate::Scope;

use crate::{
    Code, Config, DecisionRequest, DiffView, EventView, GateView, LandRequest, LandView, LogLine,
    NewRun, News, Page, PauseRequest, Problem, RunQuery, RunView, SecretView, StopAllView,
    TokenView,
};

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The token's name; decisions and cancels carry it.
    pub name: String,
    pub scopes: Vec<Scope>,
}

impl Caller {
    /// The person at this machine's terminal, who owns the data directory and may do everything.
    pub fn local() -> Self {
        Self {
            name: "local".to_owned(),
            scopes: vec![Scope::Read, Scope::Run, Scope::Decide, Scope::Admin],
        }
    }
}

/// The control plane could not be brought up.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot prepare {what}")]
    Io {
        what: String,
        #[source]
        source: std::io::Error,
    },
}

/// What was found at the start and mended.
#[derive(Debug, Clone, Default)]
pub struct Recovered {
    /// Phases that were in flight and are dispatched again.
    pub dispatched_again: Vec<String>,
    /// Phases whose push had landed, so that they are done.
    pub completed: Vec<String>,
    /// What an earlier life left behind.
    pub orphans: Vec<Orphan>,
}

/// Runs, phases and gates, and what makes them move. Cheap to clone.
#[derive(Clone)]
pub struct ControlPlane {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    executor: Arc<dyn Executor>,
}

fn not_yet<T>() -> Result<T, Problem> {
    Err(Problem::new(Code::Internal, "this part is not built yet"))
}

impl ControlPlane {
    /// Opens the data directory. Nothing moves before [`ControlPlane::start`].
    pub async fn open(config: Config, executor: Arc<dyn Executor>) -> Result<Self, OpenError> {
        let inner = Inner { config, executor };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Mends what an earlier life left behind, then begins to work. Once.
    pub async fn start(&self) -> Result<Recovered, OpenError> {
        let orphans = self.inner.executor.sweep(&[]).await;
        Ok(Recovered {
            orphans,
            ..Recovered::default()
        })
    }

    /// Serves the HTTP API until `stop` is cancelled, then ends the open connections.
    pub async fn serve(
        &self,
        listener: TcpListener,
        stop: CancellationToken,
    ) -> std::io::Result<()> {
        drop(listener);
        stop.cancelled().await;
        Ok(())
    }

    /// Stops taking work, ends the phases in flight (they are dispatched again at the next start) and closes
    /// the store. `kill -9` in its place loses nothing either.
    pub async fn shutdown(&self) {
        self.inner.executor.shutdown().await;
    }

    /// The first token: made once, at the first start, with every scope. None where it was made before; it
    /// is in [`ControlPlane::first_token_path`] then, 0600, until somebody removes the file.
    pub async fn first_token(&self) -> Result<Option<SecretString>, Problem> {
        not_yet()
    }

    pub fn first_token_path(&self) -> std::path::PathBuf {
        self.inner.config.data_dir.join("token")
    }

    pub async fn create_run(&self, _caller: &Caller, _new: NewRun) -> Result<RunView, Problem> {
        not_yet()
    }

    pub async fn runs(&self, _query: RunQuery) -> Result<Page<RunView>, Problem> {
        not_yet()
    }

    pub async fn run(&self, _run: RunId) -> Result<RunView, Problem> {
        not_yet()
    }

    /// Everything that happens to a run from now on, beginning with what it is now; ends after the news that
    /// it has ended.
    pub fn follow(&self, _run: RunId) -> BoxStream<'static, Result<News, Problem>> {
        Box::pin(futures::stream::empty())
    }

    /// A waiting gate, with the binding that an answer must carry.
    pub async fn gate(&self, _run: RunId, _gate: GateId) -> Result<GateView, Problem> {
        not_yet()
    }

    pub async fn decide(
        &self,
        _caller: &Caller,
        _run: RunId,
        _gate: GateId,
        _request: DecisionRequest,
    ) -> Result<RunView, Problem> {
        not_yet()
    }

    pub async fn cancel(&self, _caller: &Caller, _run: RunId) -> Result<RunView, Problem> {
        not_yet()
    }

    pub async fn pause(
        &self,
        _caller: &Caller,
        _run: RunId,
        _request: PauseRequest,
    ) -> Result<RunView, Problem> {
        not_yet()
    }

    pub async fn resume(&self, _caller: &Caller, _run: RunId) -> Result<RunView, Problem> {
        not_yet()
    }

    /// Cancels every run that has not ended.
    pub async fn stop_all(&self, _caller: &Caller) -> Result<StopAllView, Problem> {
        not_yet()
    }

    /// The diff of one phase, or of the whole run.
    pub async fn diff(&self, _run: RunId, _phase: Option<PhaseName>) -> Result<DiffView, Problem> {
        not_yet()
    }

    /// Brings the run's branch into the base.
    pub async fn land(
        &self,
        _caller: &Caller,
        _run: RunId,
        _request: LandRequest,
    ) -> Result<LandView, Problem> {
        not_yet()
    }

    /// The events of one attempt after `after` (0 for all); attempt 0 is the latest.
    pub async fn events(
        &self,
        _run: RunId,
        _phase: &PhaseName,
        _attempt: u32,
        _after: u64,
    ) -> Result<Vec<EventView>, Problem> {
        not_yet()
    }

    /// The masked log of one attempt after `after` (0 for all); attempt 0 is the latest.
    pub async fn logs(
        &self,
        _run: RunId,
        _phase: &PhaseName,
        _attempt: u32,
        _after: u64,
    ) -> Result<Vec<LogLine>, Problem> {
        not_yet()
    }

    pub async fn secrets(&self) -> Result<Vec<SecretView>, Problem> {
        not_yet()
    }

    /// Sets a secret, or puts a new value in place of the old one.
    pub async fn set_secret(
        &self,
        _caller: &Caller,
        _name: &SecretName,
        _value: SecretString,
    ) -> Result<SecretView, Problem> {
        not_yet()
    }

    pub async fn remove_secret(&self, _caller: &Caller, _name: &SecretName) -> Result<(), Problem> {
        not_yet()
    }

    pub async fn tokens(&self) -> Result<Vec<TokenView>, Problem> {
        not_yet()
    }

    pub async fn create_token(
        &self,
        _caller: &Caller,
        _name: &str,
        _scopes: &[Scope],
        _expires_at_ms: Option<i64>,
    ) -> Result<TokenView, Problem> {
        not_yet()
    }

    pub async fn revoke_token(&self, _caller: &Caller, _id: &str) -> Result<(), Problem> {
        not_yet()
    }

    /// Where the phase gateway listens.
    pub fn run_dir(&self) -> &Path {
        &self.inner.config.run_dir
    }
}
