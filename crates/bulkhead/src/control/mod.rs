//! Runs, wherever their control plane is: in this process, on this machine in another one, or elsewhere.
//! Commands speak to a [`Control`] and do not know which.

pub(crate) mod logins;
pub(crate) mod published;
mod remote;
mod sse;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Result;
use bulkhead_model::{GateId, PhaseName, RunId};
use bulkhead_server::{
    Caller, ControlPlane, DecisionRequest, DiffView, GateView, LandRequest, LandView, LogLine,
    NewRun, News, Page, PauseRequest, RunQuery, RunView, StopAllView,
};
use futures::{StreamExt as _, stream::BoxStream};

use self::{logins::Logins, remote::Client};
use crate::{
    cli::Remote,
    config::OperatorConfig,
    embedded::{self, Work},
    environment::Environment,
    failure::Misuse,
    output::Output,
};
use secrecy::SecretString;

/// How long a data directory may be held by somebody who has not yet said where it answers: another command that only
/// looks holds it for a moment.
const PATIENCE: Duration = Duration::from_secs(5);

/// A control plane that can be asked.
#[derive(Clone)]
pub(crate) enum Control {
    /// In this process.
    Here(ControlPlane),
    /// In another process, here or elsewhere.
    There(Box<Client>),
}

/// A token that somebody has put into a file.
pub(crate) fn token_in(file: &Path) -> Result<SecretString> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Misuse::usage(format!("the token in {}: {error}", file.display())))?;
    Ok(text.trim().into())
}

/// The nearest one: what this command was told, what this shell was, what this person has kept.
fn token(server: &str, remote: &Remote, environment: &Environment) -> Result<SecretString> {
    if let Some(file) = &remote.token_file {
        return token_in(file);
    }
    if let Some(token) = environment.secret("BULKHEAD_TOKEN") {
        return Ok(token.clone());
    }
    Logins::open()?.token(server)?.ok_or_else(|| {
        Misuse::usage_hint(
            format!("there is no token for {server}"),
            format!("bulkhead login --server {server}, or set BULKHEAD_TOKEN, or use --token-file"),
        )
        .into()
    })
}

/// Whether a server accepts a token.
pub(crate) async fn try_token(
    server: &str,
    token: SecretString,
    operator: &OperatorConfig,
) -> Result<()> {
    let client = Client::new(server, token, operator.ca_pem()?.as_deref())?;
    client.get::<Page<RunView>>("runs?limit=1").await.map(drop)
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
        if let Some(server) = &remote.server {
            let token = token(server, remote, environment)?;
            let client = Client::new(server, token, operator.ca_pem()?.as_deref())?;
            return Ok(Self::There(Box::new(client)));
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let error = match embedded::open(data_dir, operator, environment, work, output).await {
                Ok(plane) => return Ok(Self::Here(plane)),
                Err(error) => error,
            };
            if !embedded::is_in_use(&error) {
                return Err(error);
            }
            if let Some((address, token)) = published::read(data_dir) {
                return Ok(Self::There(Box::new(Client::new(&address, token, None)?)));
            }
            if Instant::now() > deadline {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Whether this process does the work of runs, and so must stay while they move.
    pub(crate) const fn works_here(&self) -> bool {
        matches!(self, Self::Here(_))
    }

    pub(crate) async fn create_run(&self, new: NewRun) -> Result<RunView> {
        match self {
            Self::Here(plane) => Ok(plane.create_run(&me(), new).await?),
            Self::There(client) => client.post("runs", &new).await,
        }
    }

    pub(crate) async fn runs(&self, query: RunQuery) -> Result<Page<RunView>> {
        match self {
            Self::Here(plane) => Ok(plane.runs(query).await?),
            Self::There(client) => {
                client
                    .get(&format!("runs?limit={}", query.limit.unwrap_or(100)))
                    .await
            }
        }
    }

    pub(crate) async fn run(&self, run: RunId) -> Result<RunView> {
        match self {
            Self::Here(plane) => Ok(plane.run(run).await?),
            Self::There(client) => client.get(&format!("runs/{run}")).await,
        }
    }

    /// What happens to a run, beginning with what it is now.
    pub(crate) fn follow(&self, run: RunId) -> BoxStream<'static, Result<News>> {
        match self {
            Self::Here(plane) => plane.follow(run).map(|news| Ok(news?)).boxed(),
            Self::There(client) => client.follow(run),
        }
    }

    pub(crate) async fn gate(&self, run: RunId, gate: GateId) -> Result<GateView> {
        match self {
            Self::Here(plane) => Ok(plane.gate(run, gate).await?),
            Self::There(client) => client.get(&format!("runs/{run}/gates/{gate}")).await,
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
            Self::There(client) => {
                client
                    .post(&format!("runs/{run}/gates/{gate}/decision"), &request)
                    .await
            }
        }
    }

    pub(crate) async fn cancel(&self, run: RunId) -> Result<RunView> {
        match self {
            Self::Here(plane) => Ok(plane.cancel(&me(), run).await?),
            Self::There(client) => client.post(&format!("runs/{run}/cancel"), &()).await,
        }
    }

    pub(crate) async fn pause(&self, run: RunId, request: PauseRequest) -> Result<RunView> {
        match self {
            Self::Here(plane) => Ok(plane.pause(&me(), run, request).await?),
            Self::There(client) => client.post(&format!("runs/{run}/pause"), &request).await,
        }
    }

    pub(crate) async fn resume(&self, run: RunId) -> Result<RunView> {
        match self {
            Self::Here(plane) => Ok(plane.resume(&me(), run).await?),
            Self::There(client) => client.post(&format!("runs/{run}/resume"), &()).await,
        }
    }

    pub(crate) async fn stop_all(&self) -> Result<StopAllView> {
        match self {
            Self::Here(plane) => Ok(plane.stop_all(&me()).await?),
            Self::There(client) => client.post("stop-all", &()).await,
        }
    }

    pub(crate) async fn diff(&self, run: RunId, phase: Option<PhaseName>) -> Result<DiffView> {
        match self {
            Self::Here(plane) => Ok(plane.diff(run, phase).await?),
            Self::There(client) => match phase {
                Some(phase) => client.get(&format!("runs/{run}/diff?phase={phase}")).await,
                None => client.get(&format!("runs/{run}/diff")).await,
            },
        }
    }

    pub(crate) async fn land(&self, run: RunId, request: LandRequest) -> Result<LandView> {
        match self {
            Self::Here(plane) => Ok(plane.land(&me(), run, request).await?),
            Self::There(client) => client.post(&format!("runs/{run}/land"), &request).await,
        }
    }

    /// A page of the log of a phase's latest attempt, after `after`. From elsewhere the whole log comes as one piece.
    pub(crate) async fn logs(
        &self,
        run: RunId,
        phase: &PhaseName,
        after: u64,
    ) -> Result<Vec<LogLine>> {
        match self {
            Self::Here(plane) => Ok(plane.logs(run, phase, 0, after).await?),
            Self::There(_) if after > 0 => Ok(Vec::new()),
            Self::There(client) => {
                let text = client
                    .text(&format!("runs/{run}/phases/{phase}/log"))
                    .await?;
                Ok(vec![LogLine {
                    seq: 1,
                    at_ms: 0,
                    stream: "stdout".into(),
                    text,
                }])
            }
        }
    }

    /// The log of a phase's latest attempt from its beginning until its end.
    pub(crate) fn follow_log(
        &self,
        run: RunId,
        phase: &PhaseName,
    ) -> BoxStream<'static, Result<LogLine>> {
        match self {
            // Nothing moves where this process only looks: what there is, is all.
            Self::Here(_) => futures::stream::empty().boxed(),
            Self::There(client) => client.follow_log(run, phase, 0),
        }
    }

    /// Ends what is in this process; a control plane elsewhere goes on.
    pub(crate) async fn leave(&self) {
        match self {
            Self::Here(plane) => plane.shutdown().await,
            Self::There(_) => {}
        }
    }
}
