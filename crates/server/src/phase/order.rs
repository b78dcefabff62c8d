//! From a dispatch to the order and what travels beside it.

use bulkhead_model::{
    GitExtras, PhaseOrder, SecretName,
    compose::{GitSurroundings, Surroundings, phase_order},
    run::{Failure, Run},
};
use bulkhead_runner::{ArtifactFile, ArtifactKind, PhaseSecrets};
use secrecy::SecretString;

use super::Dispatch;
use crate::{gateway, ledger, plane::Plane, problem::chain, spec::RunSpec};

/// Everything that [`bulkhead_runner::Executor::start`] needs, and what the log must never show.
pub(super) struct Prepared {
    pub(super) order: PhaseOrder,
    pub(super) secrets: PhaseSecrets,
}

pub(super) async fn prepare(plane: &Plane, dispatch: &Dispatch) -> Result<Prepared, Failure> {
    let spec = plane
        .spec(dispatch.run)
        .await
        .map_err(|error| refused(&error))?;
    let run = plane
        .store
        .run(dispatch.run)
        .await
        .map_err(|error| refused(&error))?;
    let extras = extras(plane, dispatch, &spec).await?;
    let order = order(plane, &run, &spec, dispatch, extras)?;
    let branch = spec.repo.as_ref().map(|repo| repo.branch.as_str());
    let values = secret_values(plane, &order.secrets).await?;
    let artifacts = artifacts(plane, &order).await?;
    plane.fail_point("token.before_minting");
    let token = plane
        .store
        .mint_phase_token(&dispatch.held(), branch, plane.now_ms())
        .await;
    plane.fail_point("token.after_minting");
    Ok(Prepared {
        secrets: PhaseSecrets {
            token: token.map_err(|error| refused(&error))?,
            gateway: gateway::socket(&plane.config.run_dir),
            values: values.into_iter().collect(),
            artifacts,
        },
        order,
    })
}

fn order(
    plane: &Plane,
    run: &Run,
    spec: &RunSpec,
    dispatch: &Dispatch,
    extras: GitExtras,
) -> Result<PhaseOrder, Failure> {
    let index = usize::try_from(dispatch.phase_index).unwrap_or(usize::MAX);
    let agent = spec.agents.get(index).cloned().flatten();
    let phase = spec.workflow.phases.get(index);
    let around = Surroundings {
        inputs: &spec.inputs,
        git: spec.repo.as_ref().map(|repo| GitSurroundings {
            branch: repo.branch.as_str(),
            author_name: &plane.config.author_name,
            author_email: &plane.config.author_email,
            extras,
        }),
        models: spec.models(index).to_vec(),
        agent: agent.map(|agent| agent.spec),
        // A toolchain's name is its directory, checked against the operator's list when the run was made.
        toolchains: phase
            .map(|phase| phase.toolchains.clone())
            .unwrap_or_default(),
    };
    let order = phase_order(&spec.workflow, run, around).map_err(|error| refused(&error))?;
    if order.fence == dispatch.fence {
        return Ok(order);
    }
    Err(Failure::Refused {
        why: format!("fence {} is no longer in flight", dispatch.fence),
    })
}

/// The look at the start commit before an agent starts: submodules and LFS are prepared, or refused by name.
async fn extras(plane: &Plane, dispatch: &Dispatch, spec: &RunSpec) -> Result<GitExtras, Failure> {
    let Some(repo) = &spec.repo else {
        return Ok(GitExtras::default());
    };
    let start = dispatch.start.as_ref().unwrap_or(&repo.base_commit);
    let commit = ledger::oid(start).map_err(|error| refused(&error))?;
    let looked = plane
        .repos
        .look(plane, dispatch.run, &repo.source, &commit)
        .await;
    looked.map_err(|error| Failure::Workspace {
        why: error.to_string(),
    })
}

async fn secret_values(
    plane: &Plane,
    names: &[SecretName],
) -> Result<Vec<(SecretName, SecretString)>, Failure> {
    let mut values = Vec::new();
    for name in names {
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

async fn artifacts(plane: &Plane, order: &PhaseOrder) -> Result<Vec<ArtifactFile>, Failure> {
    let mut files = Vec::new();
    for name in &order.artifacts_in {
        let kept = plane.store.artifact(order.run, name).await;
        let kept = kept.map_err(|error| refused(&error))?;
        files.push(ArtifactFile {
            name: name.clone(),
            kind: plane
                .artifact_kind(order.run, name)
                .await
                .unwrap_or(ArtifactKind::File),
            path: kept.path,
        });
    }
    Ok(files)
}

pub(super) fn refused(error: &dyn std::error::Error) -> Failure {
    Failure::Refused { why: chain(error) }
}
