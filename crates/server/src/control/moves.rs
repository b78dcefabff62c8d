//! What callers do to runs.

use bulkhead_model::{
    GateId, RunId,
    run::{PauseMode, RunEvent},
};
use bulkhead_store::runs::{Life, RunFilter};

use super::{Caller, ControlPlane};
use crate::{
    Code, DecisionRequest, LandRequest, LandView, NewRun, PauseRequest, Problem, RunView,
    StopAllView, create, gates, land,
};

impl ControlPlane {
    pub async fn create_run(&self, caller: &Caller, new: NewRun) -> Result<RunView, Problem> {
        if self.plane.closing.is_cancelled() {
            return Err(Problem::new(
                Code::ShuttingDown,
                "the server takes no new runs",
            ));
        }
        let run = create::run(&self.plane, caller, new).await?;
        self.run(run).await
    }

    pub async fn decide(
        &self,
        caller: &Caller,
        run: RunId,
        gate: GateId,
        request: DecisionRequest,
    ) -> Result<RunView, Problem> {
        gates::decide(&self.plane, caller, run, gate, request).await?;
        self.run(run).await
    }

    pub async fn cancel(&self, caller: &Caller, run: RunId) -> Result<RunView, Problem> {
        let by = caller.name.clone();
        self.plane
            .post(run, &RunEvent::Cancel { by }, &caller.name)
            .await?;
        self.run(run).await
    }

    pub async fn pause(
        &self,
        caller: &Caller,
        run: RunId,
        request: PauseRequest,
    ) -> Result<RunView, Problem> {
        let mode = match request.stop {
            true => PauseMode::Stop,
            false => PauseMode::Finish,
        };
        self.plane
            .post(run, &RunEvent::Pause { mode }, &caller.name)
            .await?;
        self.run(run).await
    }

    pub async fn resume(&self, caller: &Caller, run: RunId) -> Result<RunView, Problem> {
        self.plane
            .post(run, &RunEvent::Resume, &caller.name)
            .await?;
        self.run(run).await
    }

    /// Cancels every run that has not ended. Each is tried, whatever becomes of the others.
    pub async fn stop_all(&self, caller: &Caller) -> Result<StopAllView, Problem> {
        let mut stopped = StopAllView::default();
        let mut failed = None;
        for run in self.live().await? {
            match self.cancel(caller, run).await {
                Ok(_) => stopped.runs.push(run.to_string()),
                // It ended by itself meanwhile.
                Err(problem) if problem.code() == Code::Conflict => {}
                Err(problem) => failed = Some(problem),
            }
        }
        match failed {
            Some(problem) => Err(problem),
            None => Ok(stopped),
        }
    }

    /// Brings the run's branch into the base.
    pub async fn land(
        &self,
        caller: &Caller,
        run: RunId,
        request: LandRequest,
    ) -> Result<LandView, Problem> {
        land::run(&self.plane, caller, run, request).await
    }

    async fn live(&self) -> Result<Vec<RunId>, Problem> {
        let mut live = Vec::new();
        let mut filter = RunFilter {
            only: Some(Life::Live),
            limit: 1000,
            ..RunFilter::default()
        };
        loop {
            let page = self.plane.store.runs(&filter).await?;
            filter.before = page.last().map(|run| run.id);
            live.extend(page.iter().map(|run| run.id));
            if page.len() < 1000 {
                return Ok(live);
            }
        }
    }
}
