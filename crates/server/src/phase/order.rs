//! From a dispatch to the order and what travels beside it.

use std::collections::BTreeMap;

use bulkhead_model::{
    GitOrder, PhaseOrder, SecretName, Work, order::GitExtras, run::Failure, workflow::Values,
};
use bulkhead_runner::{ArtifactFile, ArtifactKind, PhaseSecrets};
use secrecy::SecretString;

use super::Dispatch;
use crate::{
    clock::now_ms,
    gateway,
    plane::Plane,
    problem::chain,
    spec::{PhaseSpec, RunSpec, WorkPlan},
};

/// Everything that [`bulkhead_runner::Executor::start`] needs, and what the log must never show.
pub(super) struct Prepared {
    pub(super) order: PhaseOrder,
    pub(super) secrets: PhaseSecrets,
    pub(super) to_mask: Vec<SecretString>,
}

pub(super) async fn prepare(plane: &Plane, dispatch: &Dispatch) -> Result<Prepared, Failure> {
    let spec = plane
        .spec(dispatch.run)
        .await
        .map_err(|error| refused(&error))?;
    let index = usize::try_from(dispatch.phase_index).unwrap_or(usize::MAX);
    let phase = spec.phases.get(index).ok_or_else(|| Failure::Refused {
        why: format!("the run has no phase {index}"),
    })?;
    let values = secret_values(plane, phase).await?;
    let branch = spec.repo.as_ref().map(|repo| repo.branch.as_str());
    let held = dispatch.held();
    plane.fail_point("token.before_minting");
    let token = plane.store.mint_phase_token(&held, branch, now_ms()).await;
    plane.fail_point("token.after_minting");
    let token = token.map_err(|error| refused(&error))?;
    let mut to_mask: Vec<SecretString> = values.iter().map(|(_, value)| value.clone()).collect();
    to_mask.push(token.clone());
    Ok(Prepared {
        order: order(plane, dispatch, &spec, phase),
        secrets: PhaseSecrets {
            token,
            gateway: gateway::socket(&plane.config.run_dir),
            values: values.into_iter().collect(),
            artifacts: artifacts(plane, dispatch, phase).await?,
        },
        to_mask,
    })
}

fn order(plane: &Plane, dispatch: &Dispatch, spec: &RunSpec, phase: &PhaseSpec) -> PhaseOrder {
    let policy = &phase.policy;
    let values = values(dispatch, spec);
    PhaseOrder {
        run: dispatch.run,
        phase: dispatch.phase.clone(),
        phase_index: dispatch.phase_index,
        attempt: dispatch.attempt,
        fence: dispatch.fence,
        work: work(&phase.work, &values),
        git: git_order(plane, dispatch, spec),
        models: policy.models.clone(),
        limits: policy.limits,
        network: policy.network.clone(),
        toolchains: policy.toolchains.clone(),
        env: environment(phase, &values),
        secrets: policy.secrets.clone(),
        artifacts_in: phase.artifacts_in.clone(),
        artifacts_out: phase.artifacts_out.clone(),
        max_turns: policy.max_turns,
        max_cost_usd_milli: policy.max_cost_usd_milli,
    }
}

fn git_order(plane: &Plane, dispatch: &Dispatch, spec: &RunSpec) -> Option<GitOrder> {
    let repo = spec.repo.as_ref()?;
    let start = dispatch.start.as_ref().unwrap_or(&repo.base_commit);
    Some(GitOrder {
        branch: repo.branch.to_string(),
        start: start.to_string(),
        commit_message: format!(
            "{}: {}\n\nRun: {}\nPhase: {}\nAttempt: {}\n",
            spec.name, dispatch.phase, dispatch.run, dispatch.phase, dispatch.attempt
        ),
        author_name: plane.config.author_name.clone(),
        author_email: plane.config.author_email.clone(),
        extras: GitExtras::default(),
    })
}

/// What stands for the placeholders of a prompt, and in the environment of a command.
fn values<'a>(dispatch: &'a Dispatch, spec: &'a RunSpec) -> Values<'a> {
    let branch = spec.repo.as_ref().and_then(|repo| repo.branch.branch());
    Values {
        inputs: &spec.inputs,
        run_id: dispatch.run.to_string(),
        branch: branch.unwrap_or_default(),
        phase: dispatch.phase.as_str(),
        attempt: dispatch.attempt,
        comment: dispatch.comment.as_deref(),
    }
}

fn work(plan: &WorkPlan, values: &Values<'_>) -> Work {
    match plan {
        WorkPlan::Agent { agent, prompt } => Work::Agent {
            agent: agent.clone(),
            prompt: prompt.render(values),
        },
        WorkPlan::Command { run } => Work::Command { run: run.clone() },
    }
}

/// The phase's own variables, and what it may want to know of its run. A value inside a command would be code:
/// there they are variables only.
fn environment(phase: &PhaseSpec, values: &Values<'_>) -> BTreeMap<String, String> {
    let mut env = phase.env.clone();
    let attempt = values.attempt.to_string();
    let comment = values.comment.unwrap_or_default();
    for (name, value) in [
        ("BULKHEAD_RUN_ID", values.run_id.as_str()),
        ("BULKHEAD_RUN_BRANCH", values.branch),
        ("BULKHEAD_PHASE_NAME", values.phase),
        ("BULKHEAD_PHASE_ATTEMPT", &attempt),
        ("BULKHEAD_COMMENT", comment),
    ] {
        env.insert(name.to_owned(), value.to_owned());
    }
    for (name, value) in values.inputs {
        env.insert(
            format!("BULKHEAD_INPUT_{}", name.to_ascii_uppercase()),
            value.clone(),
        );
    }
    env
}

async fn secret_values(
    plane: &Plane,
    phase: &PhaseSpec,
) -> Result<Vec<(SecretName, SecretString)>, Failure> {
    let mut values = Vec::new();
    for name in &phase.policy.secrets {
        let value = plane
            .store
            .secret(name)
            .await
            .map_err(|error| Failure::Refused {
                why: format!(
                    "{}; set it with: bulkhead secrets set {name}",
                    chain(&error)
                ),
            })?;
        values.push((name.clone(), value));
    }
    Ok(values)
}

async fn artifacts(
    plane: &Plane,
    dispatch: &Dispatch,
    phase: &PhaseSpec,
) -> Result<Vec<ArtifactFile>, Failure> {
    let mut files = Vec::new();
    for name in &phase.artifacts_in {
        let kept = plane.store.artifact(dispatch.run, name).await;
        let kept = kept.map_err(|error| refused(&error))?;
        files.push(ArtifactFile {
            name: name.clone(),
            kind: ArtifactKind::File,
            path: kept.path,
        });
    }
    Ok(files)
}

pub(super) fn refused(error: &dyn std::error::Error) -> Failure {
    Failure::Refused { why: chain(error) }
}
