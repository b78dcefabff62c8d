//! Runs, wherever their control plane is: in this process, on this machine in another one, or elsewhere.
//! Commands speak to a [`Control`] and do not know which.

use std::path::Path;

use anyhow::Result;
use bulkhead_model::{GateId, PhaseName, RunId};
use bulkhead_server::{
    Caller, ControlPlane, DecisionRequest, DiffView, GateView, LandRequest, LandView, LogLine,
    NewRun, News, Page, PauseRequest, RunQuery, RunView, StopAllView,
};
use futures::{StreamExt as _, stream::BoxStream};

use crate::{
    cli::Remote,
    config::OperatorConfig,
    embedded::{self, Work},
    environment::Environment,
    failure::Misuse,
    output::Output,
};

/// A control plane that can be asked.
#[derive(Clone)]
pub(crate) enum Control {
    /// In this process.
    Here(ControlPlane),
}

/// What a person at this machine's terminal asks as.
fn me() -> Caller {
    Caller::local()
}

impl Control {
    /// The control plane that is meant: the named server, or this machine's data directory.
    pub(crate) async fn open(
        remote: &Remote,
        data_dir: &Path,
        operator: &OperatorConfig,
        environment: &Environment,
        work: Work,
        output: Output,
    ) -> Result<Self> {
        if remote.server.is_some() {
            let what = "speaking to a server (--server)".to_owned();
            let hint = "leave it out: the data directory is worked on directly".to_owned();
            return Err(Misuse::NotYet { what, hint }.into());
        }
        Ok(Self::Here(
            embedded::open(data_dir, operator, environment, work, output).await?,
        ))
    }

    /// Whether this process does the work of runs, and so must stay while they move.
    pub(crate) const fn works_here(&self) -> bool {
        matches!(self, Self::Here(_))
    }

    pub(crate) async fn create_run(&self, new: NewRun) -> Result<RunView> {
        match self {
            Self::Here(plane) => Ok(plane.create_run(&me(), new).await?),
        }
    }

    pub(crate) async fn runs(&self, query: RunQuery) -> Result<Page<RunView>> {
        match self {
            Self::Here(plane) => Ok(plane.runs(query).await?),
        }
    }

    pub(crate) async fn run(&self, run: RunId) -> Result<RunView> {
        match self {
            Self::Here(plane) => Ok(plane.run(run).await?),
        }
    }

    /// What happens to a run, beginning with what it is now.
    pub(crate) fn follow(&self, run: RunId) -> BoxStream<'static, Result<News>> {
        match self {
            Self::Here(plane) => plane.follow(run).map(|news| Ok(news?)).boxed(),
        }
    }

    pub(crate) async fn gate(&self, run: RunId, gate: GateId) -> Result<GateView> {
        match self {
            Self::Here(plane) => Ok(plane.gate(run, gate).await?),
        }
    }

    pub(crate) async fn decide(
        &self,
        run: RunId,
        gate: GateId,
        request: DecisionRequest,
    ) -> Result<RunView> {
        match self {
            Self::Here(plane) => Ok(plane.decide(&me(), run, gate, request).await?),
        }
    }

    pub(crate) async fn cancel(&self, run: RunId) -> Result<RunView> {
        match self {
            Self::Here(plane) => Ok(plane.cancel(&me(), run).await?),
        }
    }

    pub(crate) async fn pause(&self, run: RunId, request: PauseRequest) -> Result<RunView> {
        match self {
            Self::Here(plane) => Ok(plane.pause(&me(), run, request).await?),
        }
    }

    pub(crate) async fn resume(&self, run: RunId) -> Result<RunView> {
        match self {
            Self::Here(plane) => Ok(plane.resume(&me(), run).await?),
        }
    }

    pub(crate) async fn stop_all(&self) -> Result<StopAllView> {
        match self {
            Self::Here(plane) => Ok(plane.stop_all(&me()).await?),
        }
    }

    pub(crate) async fn diff(&self, run: RunId, phase: Option<PhaseName>) -> Result<DiffView> {
        match self {
            Self::Here(plane) => Ok(plane.diff(run, phase).await?),
        }
    }

    pub(crate) async fn land(&self, run: RunId, request: LandRequest) -> Result<LandView> {
        match self {
            Self::Here(plane) => Ok(plane.land(&me(), run, request).await?),
        }
    }

    /// A page of the log of a phase's latest attempt, after `after`.
    pub(crate) async fn logs(
        &self,
        run: RunId,
        phase: &PhaseName,
        after: u64,
    ) -> Result<Vec<LogLine>> {
        match self {
            Self::Here(plane) => Ok(plane.logs(run, phase, 0, after).await?),
        }
    }

    /// Ends what is in this process; a control plane elsewhere goes on.
    pub(crate) async fn leave(&self) {
        match self {
            Self::Here(plane) => plane.shutdown().await,
        }
    }
}
