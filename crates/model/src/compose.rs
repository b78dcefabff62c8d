//! From a workflow and a dispatch to the order: what one attempt at one phase is told to do, and what it
//! may reach and spend. Nothing is added here that neither the workflow nor the operator named.

use std::collections::BTreeMap;

use crate::{
    digest::Digest,
    gate::Binding,
    ids::{CommitId, PhaseName, RunId},
    limits::Limits,
    order::{AgentSpec, GitExtras, GitOrder, ModelGateway, PhaseOrder, Work},
    run::{Attempt, GateWhy, Run},
    workflow::{PhaseSpec, Values, WorkSpec, Workflow, input_variable},
};

/// What the control plane adds to a workflow.
#[derive(Debug, Clone)]
pub struct Surroundings<'a> {
    /// As [`Workflow::resolve_inputs`] made them at the run's start.
    pub inputs: &'a BTreeMap<String, String>,
    /// None where the run has no repository.
    pub git: Option<GitSurroundings<'a>>,
    /// The definition behind the phase's agent; none for a command.
    pub agent: Option<AgentSpec>,
    pub models: Vec<ModelGateway>,
    /// The directories behind the names of the phase's toolchains.
    pub toolchains: Vec<String>,
}

/// How the run's branch is seen and who commits to it.
#[derive(Debug, Clone)]
pub struct GitSurroundings<'a> {
    /// The full ref, for example `refs/heads/bulkhead/run-…`.
    pub branch: &'a str,
    pub author_name: &'a str,
    pub author_email: &'a str,
    pub extras: GitExtras,
}

/// Why no order can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ComposeError {
    #[error("nothing of the run is in flight")]
    NothingInFlight,
    #[error("the workflow has no phase {0}")]
    NoSuchPhase(usize),
    #[error("the phase needs an agent, and none was resolved")]
    NoAgent,
    #[error("the run has a branch, but its attempt has no commit to start from")]
    NoStart,
}

/// The order for the attempt that is in flight.
///
/// Its limits and caps are the phase's, lowered to what the run's own caps leave.
///
/// # Errors
/// Where the run and the workflow do not belong together, or an agent is missing.
pub fn phase_order(
    workflow: &Workflow,
    run: &Run,
    around: Surroundings<'_>,
) -> Result<PhaseOrder, ComposeError> {
    let (index, attempt) = run.in_flight().ok_or(ComposeError::NothingInFlight)?;
    let phase = workflow.phases.get(index);
    let phase = phase.ok_or(ComposeError::NoSuchPhase(index))?;
    let branch = around.git.as_ref().map_or("", |git| git.branch);
    let values = Values {
        inputs: around.inputs,
        run_id: run.id.to_string(),
        branch,
        phase: phase.name.as_str(),
        attempt: attempt.attempt,
        comment: run.phases[index].comment.as_deref(),
    };
    let left = Left::of(run, phase);
    Ok(PhaseOrder {
        run: run.id,
        phase: phase.name.clone(),
        phase_index: u32::try_from(index).unwrap_or(u32::MAX),
        attempt: attempt.attempt,
        fence: attempt.fence,
        env: environment(phase, &values),
        work: work(phase, &values, around.agent)?,
        git: git(workflow, run, phase, attempt, around.git)?,
        models: around.models,
        limits: left.limits,
        network: phase.network.clone(),
        toolchains: around.toolchains,
        secrets: phase.secrets.clone(),
        artifacts_in: phase.artifacts.r#in.clone(),
        artifacts_out: phase.artifacts.out.clone(),
        max_turns: left.turns,
        max_cost_usd_milli: left.cost_micro_usd.map(|micro| micro.div_ceil(1_000)),
    })
}

fn work(
    phase: &PhaseSpec,
    values: &Values<'_>,
    agent: Option<AgentSpec>,
) -> Result<Work, ComposeError> {
    match &phase.work {
        WorkSpec::Command { run } => Ok(Work::Command { run: run.clone() }),
        WorkSpec::Agent {
            agent: choice,
            prompt,
        } => {
            let mut agent = agent.ok_or(ComposeError::NoAgent)?;
            agent.env.extend(choice.env.clone());
            let prompt = prompt.render(values);
            Ok(Work::Agent { agent, prompt })
        }
    }
}

/// The phase's variables, and what a prompt would have placeholders for.
fn environment(phase: &PhaseSpec, values: &Values<'_>) -> BTreeMap<String, String> {
    let mut env = phase.env.clone();
    let attempt = values.attempt.to_string();
    let own = [
        ("BULKHEAD_RUN_ID", values.run_id.as_str()),
        ("BULKHEAD_RUN_BRANCH", values.branch),
        ("BULKHEAD_PHASE_NAME", values.phase),
        ("BULKHEAD_PHASE_ATTEMPT", &attempt),
        ("BULKHEAD_COMMENT", values.comment.unwrap_or_default()),
    ];
    env.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let inputs = values.inputs.iter();
    env.extend(inputs.map(|(name, value)| (input_variable(name), value.clone())));
    env
}

fn git(
    workflow: &Workflow,
    run: &Run,
    phase: &PhaseSpec,
    attempt: &Attempt,
    git: Option<GitSurroundings<'_>>,
) -> Result<Option<GitOrder>, ComposeError> {
    let Some(git) = git else { return Ok(None) };
    let start = attempt.start.as_ref().ok_or(ComposeError::NoStart)?;
    let completion = Completion {
        run: run.id,
        phase: phase.name.clone(),
        attempt: attempt.attempt,
    };
    Ok(Some(GitOrder {
        branch: git.branch.to_owned(),
        start: start.to_string(),
        commit_message: completion.message(&workflow.name),
        author_name: git.author_name.to_owned(),
        author_email: git.author_email.to_owned(),
        extras: git.extras,
    }))
}

/// What the phase may still spend, given what the run has spent.
struct Left {
    limits: Limits,
    cost_micro_usd: Option<u64>,
    turns: Option<u32>,
}

impl Left {
    fn of(run: &Run, phase: &PhaseSpec) -> Self {
        let (caps, spent) = (&run.plan.caps, &run.spent);
        let left = |cap: Option<u64>, spent: u64| cap.map(|cap| cap.saturating_sub(spent));
        let turns = left(caps.turns, spent.turns);
        let turns = turns.map(|turns| u32::try_from(turns).unwrap_or(u32::MAX));
        let mut limits = phase.limits;
        if let Some(time_ms) = left(caps.time_ms, spent.time_ms) {
            limits.time_ms = limits.time_ms.min(time_ms);
        }
        Self {
            limits,
            cost_micro_usd: least(
                phase.caps.cost_micro_usd,
                left(caps.cost_micro_usd, spent.cost_micro_usd),
            ),
            turns: least(phase.caps.turns, turns),
        }
    }
}

fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The mark of the commit that completes a phase, by which recovery knows it from a push that an agent
/// made on the way: only with it is a recorded push that landed reported as `PushConfirmed`.
///
/// An agent could write the mark itself, and would gain what it can have anyway: it says when it is
/// done, and the gate comes after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    pub run: RunId,
    pub phase: PhaseName,
    pub attempt: u32,
}

impl Completion {
    /// The commit message, with the mark as trailers.
    pub fn message(&self, workflow: &str) -> String {
        format!("{workflow}: {}\n\n{}\n", self.phase, self.trailers())
    }

    /// Whether a commit message carries this mark in its last paragraph.
    pub fn is_in(&self, message: &str) -> bool {
        let message = message.replace("\r\n", "\n");
        let last = message.trim_end().rsplit("\n\n").next();
        let wanted = self.trailers();
        last.is_some_and(|last| wanted.lines().all(|line| last.lines().any(|l| l == line)))
    }

    fn trailers(&self) -> String {
        let (run, phase, attempt) = (self.run, &self.phase, self.attempt);
        format!("Bulkhead-Run: {run}\nBulkhead-Phase: {phase}\nBulkhead-Attempt: {attempt}")
    }
}

/// The phase that Approve would start at the open gate: the next one after a success, the same one
/// where it parked, none after the last.
pub fn approved_phase<'a>(workflow: &'a Workflow, run: &Run) -> Option<&'a PhaseSpec> {
    let (index, gate) = run.open_gate()?;
    match gate.why {
        GateWhy::Review => workflow.phases.get(index + 1),
        GateWhy::Parked { .. } => workflow.phases.get(index),
    }
}

impl Binding {
    /// Binds a gate to what is shown at it. `diff` is the digest of the diff as shown; `operator` is what
    /// the operator's configuration adds to the phase's policy (agent definition, directories, models).
    ///
    /// # Errors
    /// Where a part has no JSON form.
    pub fn of(
        commit: Option<CommitId>,
        diff: Digest,
        next: Option<&PhaseSpec>,
        operator: &impl serde::Serialize,
    ) -> Result<Self, serde_json::Error> {
        let work = next.map(|phase| (&phase.name, &phase.work, &phase.artifacts, phase.retries));
        let policy = next.map(|phase| {
            let reach = (
                &phase.network,
                &phase.secrets,
                &phase.env,
                &phase.toolchains,
            );
            let place = (&phase.needs, phase.without_runner);
            (phase.limits, reach, place, phase.caps, &phase.gate)
        });
        Ok(Self {
            commit,
            diff,
            next: Digest::of_value("next-phase", &work)?,
            policy: Digest::of_value("effective-policy", &(policy, operator))?,
        })
    }
}
