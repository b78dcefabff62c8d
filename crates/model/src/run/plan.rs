//! What a run was started with and never changes.

use serde::{Deserialize, Serialize};

use crate::{gate::GatePolicy, ids::PhaseName};

/// Whether the phases share a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repository {
    /// Every phase starts from the run's branch and ends by a push to it.
    Branch,
    /// No repository: phases hand on named artifacts only.
    None,
}

/// What a whole run may spend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunCaps {
    /// Millionths of a US dollar.
    pub cost_micro_usd: Option<u64>,
    pub turns: Option<u64>,
    /// Time in flight, over all phases and attempts; waiting for people does not count.
    pub time_ms: Option<u64>,
}

/// What the machine needs to know about one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhasePlan {
    pub name: PhaseName,
    pub gate: GatePolicy,
    /// How often a failed attempt is repeated before the phase parks.
    pub retries: u32,
}

/// The phases of a run in their order, and its caps. There is at least one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawPlan", into = "RawPlan")]
pub struct Plan {
    phases: Vec<PhasePlan>,
    pub repository: Repository,
    pub caps: RunCaps,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPlan {
    phases: Vec<PhasePlan>,
    repository: Repository,
    caps: RunCaps,
}

/// A plan that no run can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("a run needs at least one phase")]
    NoPhases,
    #[error("two phases are called {0}")]
    SameName(PhaseName),
}

impl Plan {
    /// # Errors
    /// Without phases, or with two of the same name.
    pub fn new(
        phases: Vec<PhasePlan>,
        repository: Repository,
        caps: RunCaps,
    ) -> Result<Self, PlanError> {
        if phases.is_empty() {
            return Err(PlanError::NoPhases);
        }
        for (index, phase) in phases.iter().enumerate() {
            if phases[..index].iter().any(|other| other.name == phase.name) {
                return Err(PlanError::SameName(phase.name.clone()));
            }
        }
        Ok(Self {
            phases,
            repository,
            caps,
        })
    }

    pub fn phases(&self) -> &[PhasePlan] {
        &self.phases
    }
}

impl TryFrom<RawPlan> for Plan {
    type Error = PlanError;

    fn try_from(raw: RawPlan) -> Result<Self, PlanError> {
        Self::new(raw.phases, raw.repository, raw.caps)
    }
}

impl From<Plan> for RawPlan {
    fn from(plan: Plan) -> Self {
        Self {
            phases: plan.phases,
            repository: plan.repository,
            caps: plan.caps,
        }
    }
}
