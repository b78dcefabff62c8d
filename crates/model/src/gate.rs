//! Who may answer a gate, and what an answer is bound to.
//!
//! A decision counts only for what the person saw. The control plane computes a [`Binding`] when it
//! shows the gate and again when the answer comes; where they differ the answer is void, and the
//! refusal says what changed (case 62). Nothing that a phase holds can answer: the only way to an
//! [`Approver`] is [`Approver::of`], which refuses a phase's credential.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    ids::{CommitId, Fence, GateId, PhaseName, RunId},
};

/// What a caller's token may do.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// See runs, logs and diffs.
    Read,
    /// Start, pause, resume and cancel runs.
    Run,
    /// Answer gates and land results.
    Decide,
    /// Secrets, tokens, keys and stop-all.
    Admin,
}

/// A person, by the token that was shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    pub token: String,
    pub scopes: Vec<Scope>,
}

/// What one attempt at one phase holds: good for its git branch and its model gateways only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseCredential {
    pub run: RunId,
    pub phase: PhaseName,
    pub attempt: u32,
    pub fence: Fence,
}

/// Whoever showed a valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    Person(Person),
    Phase(PhaseCredential),
}

/// A person who may answer the gate in question. It cannot be read from outside: only
/// [`Approver::of`] makes one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Approver {
    name: String,
}

/// Why a principal may not answer a gate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnApprover {
    #[error("a phase's own credential can never answer a gate")]
    PhaseCredential,
    #[error("the token {token:?} lacks the scope `decide`; ask for a token that has it")]
    MissingScope { token: String },
    #[error("{token:?} is not one of this gate's approvers: {}", .approvers.join(", "))]
    NotListed {
        token: String,
        approvers: Vec<String>,
    },
}

impl Approver {
    /// Admits a person whose token has the scope and who is listed, where the gate lists anyone.
    ///
    /// # Errors
    /// For a phase's credential always; for a person without the scope or not on the list.
    pub fn of(principal: &Principal, policy: &GatePolicy) -> Result<Self, NotAnApprover> {
        let person = match principal {
            Principal::Person(person) => person,
            Principal::Phase(_) => return Err(NotAnApprover::PhaseCredential),
        };
        let token = person.token.clone();
        if !person.scopes.contains(&Scope::Decide) {
            return Err(NotAnApprover::MissingScope { token });
        }
        if !policy.approvers.is_empty() && !policy.approvers.contains(&token) {
            let approvers = policy.approvers.clone();
            return Err(NotAnApprover::NotListed { token, approvers });
        }
        Ok(Self { name: token })
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Whether a person looks at what a phase did before the run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnSuccess {
    /// The run waits for a person.
    Review,
    /// The run goes on at once. A failure parks at the gate all the same.
    GoOn,
}

/// What happens when nobody answers in time. Silence never approves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    Reject,
}

/// Where word of a waiting gate goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Notifier {
    /// An HTTP POST to this URL.
    Webhook(String),
    /// A command that the operator configured under this name. A workflow can never bring a command
    /// of its own to the control plane.
    Command(String),
}

/// The gate after one phase, with all defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatePolicy {
    pub on_success: OnSuccess,
    /// Names of tokens; empty means anyone with the scope `decide`.
    pub approvers: Vec<String>,
    pub expires_after_ms: Option<u64>,
    pub on_expiry: OnExpiry,
    pub notify: Vec<Notifier>,
}

impl Default for GatePolicy {
    fn default() -> Self {
        Self {
            on_success: OnSuccess::Review,
            approvers: Vec::new(),
            expires_after_ms: None,
            on_expiry: OnExpiry::Reject,
            notify: Vec::new(),
        }
    }
}

/// What a decision is about, as it was shown. Two bindings are equal only if all parts are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// The branch's commit; none where the run has no repository.
    pub commit: Option<CommitId>,
    /// The diff of the phase, as shown.
    pub diff: Digest,
    /// The specification of the phase that the answer would start; see [`Binding::next_of`].
    pub next: Digest,
    /// The effective policy of that phase: limits, network, secrets, toolchains.
    pub policy: Digest,
}

/// One part of a [`Binding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BindingPart {
    Commit,
    Diff,
    NextPhase,
    Policy,
}

impl fmt::Display for BindingPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Commit => "the commit",
            Self::Diff => "the diff",
            Self::NextPhase => "the next phase",
            Self::Policy => "the effective policy",
        })
    }
}

impl Binding {
    /// The parts in which two bindings differ.
    pub fn changed(&self, now: &Self) -> Vec<BindingPart> {
        let differs = [
            (self.commit != now.commit, BindingPart::Commit),
            (self.diff != now.diff, BindingPart::Diff),
            (self.next != now.next, BindingPart::NextPhase),
            (self.policy != now.policy, BindingPart::Policy),
        ];
        let changed = differs.into_iter().filter(|(differs, _)| *differs);
        changed.map(|(_, part)| part).collect()
    }

    /// One digest over all parts, for people and logs.
    pub fn digest(&self) -> Digest {
        let commit = self.commit.as_ref().map_or("", CommitId::as_str);
        let parts = [&self.diff, &self.next, &self.policy].map(|part| part.as_bytes().as_slice());
        Digest::of_fields(
            "gate-binding",
            &[commit.as_bytes(), parts[0], parts[1], parts[2]],
        )
    }
}

/// What a person says at a gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "decision", rename_all = "kebab-case")]
pub enum Answer {
    /// After a success: go on. At a parked phase: run it again.
    Approve,
    /// End the run here.
    Reject,
    /// Run the same phase again, with the comment in its prompt.
    SendBack { comment: String },
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Approve => "approve",
            Self::Reject => "reject",
            Self::SendBack { .. } => "send back",
        })
    }
}

/// An answer to one gate, by someone who may give it, bound to what was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    pub gate: GateId,
    pub answer: Answer,
    pub by: Approver,
    /// What the person saw.
    pub shown: Binding,
    /// The same facts, read again when the answer arrived.
    pub now: Binding,
}
