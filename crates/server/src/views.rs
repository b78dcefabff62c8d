//! What the API says and takes: types of its own, so that neither the stored state nor the model's types are a
//! promise to callers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Where the workflow of a new run comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowSource {
    /// A path in the repository, read from the base commit and nowhere else (R1).
    Path(String),
    /// The text itself: only where the run has no repository, or for the caller's own machine.
    Text(String),
}

/// A request for a new run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRun {
    /// A path on the server's machine or a URL; none for a run without a repository.
    #[serde(default)]
    pub repo: Option<String>,
    /// The trusted base: a branch, tag or commit. Default: the repository's own HEAD.
    #[serde(default)]
    pub base: Option<String>,
    /// The run's own branch. Default: `bulkhead/RUN`.
    #[serde(default)]
    pub branch: Option<String>,
    /// Default: `.bulkhead/workflow.yaml` at the base.
    #[serde(default)]
    pub workflow: Option<WorkflowSource>,
    #[serde(default)]
    pub inputs: BTreeMap<String, String>,
    /// An agent to use in place of the workflow's own, by name.
    #[serde(default)]
    pub agent: Option<String>,
    /// Two requests with the same key are one run.
    #[serde(default)]
    pub idempotency_key: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    Created,
    Running,
    /// A gate waits for a person.
    Waiting,
    Paused,
    Stopping,
    Completed,
    Rejected,
    Cancelled,
    Failed,
}

impl RunStatus {
    pub const fn is_final(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Rejected | Self::Cancelled | Self::Failed
        )
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
            Self::Stopping => "stopping",
            Self::Completed => "completed",
            Self::Rejected => "rejected",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

/// A run as it is now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunView {
    pub id: String,
    /// Grows with every change of the run.
    pub version: u64,
    pub name: String,
    pub status: RunStatus,
    /// Why it is so, in words, where there is more to say than the status.
    pub reason: Option<String>,
    pub repo: Option<String>,
    pub base: Option<String>,
    pub base_commit: Option<String>,
    pub branch: Option<String>,
    /// The branch's commit as last seen.
    pub head: Option<String>,
    pub phases: Vec<PhaseView>,
    /// The gate that waits for an answer.
    pub gate: Option<GateView>,
    pub spent: SpentView,
    pub created_by: String,
    pub created_at_ms: i64,
    pub updated_at_ms: i64,
    pub ended_at_ms: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PhaseStatus {
    Waiting,
    Held,
    Queued,
    Running,
    AtGate,
    Done,
    /// The run ended before it was done.
    Dropped,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PhaseView {
    pub name: String,
    pub status: PhaseStatus,
    /// The attempt that runs, or ran last; zero where none began.
    pub attempt: u32,
    /// The commit with which it was done.
    pub commit: Option<String>,
    /// The comment with which it was last sent back.
    pub comment: Option<String>,
    pub spent: SpentView,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SpentView {
    pub cost_usd: f64,
    pub turns: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub time_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum GateWhyView {
    /// The phase succeeded and a person looks at it.
    Review,
    /// The phase did not succeed; approve runs it again.
    Parked { failure: String },
}

/// A gate that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GateView {
    pub id: String,
    pub phase: String,
    pub attempt: u32,
    #[serde(flatten)]
    pub why: GateWhyView,
    /// Names of tokens that may answer; empty means every token with the scope `decide`.
    pub approvers: Vec<String>,
    pub opened_at_ms: i64,
    pub expires_at_ms: Option<i64>,
    /// What an answer is bound to. Absent in lists: ask for the gate itself.
    pub binding: Option<BindingView>,
}

/// What a decision is about, as it was shown. Hand it back unchanged with the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BindingView {
    pub commit: Option<String>,
    pub diff: String,
    pub next: String,
    pub policy: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "decision", rename_all = "kebab-case")]
pub enum Answer {
    Approve,
    Reject,
    SendBack { comment: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DecisionRequest {
    #[serde(flatten)]
    pub answer: Answer,
    /// The binding of the gate as it was shown.
    pub binding: BindingView,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PauseRequest {
    /// Stop the phase in flight as well; what it did not push is discarded. Else it ends by itself.
    pub stop: bool,
}

/// Which runs to list, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RunQuery {
    pub status: Option<String>,
    /// Only runs that have not ended.
    pub live: Option<bool>,
    /// `next` of the page before.
    pub cursor: Option<String>,
    /// At most 1,000; default 100.
    pub limit: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Hand this back as `cursor` for the next page; absent on the last.
    pub next: Option<String>,
}

/// One thing that a phase said or that happened to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// Contiguous within one attempt at one phase.
    pub seq: u64,
    pub phase: String,
    pub attempt: u32,
    pub at_ms: i64,
    #[schema(value_type = Object)]
    pub event: serde_json::Value,
}

/// One piece of a phase's masked log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// Contiguous within one attempt at one phase; a gap is said, never hidden.
    pub seq: u64,
    pub at_ms: i64,
    /// `stdout`, `stderr` or `system`.
    pub stream: String,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffView {
    pub from: Option<String>,
    pub to: Option<String>,
    pub files: Vec<FileChangeView>,
    /// Files that would run something on a person's machine later: hooks, CI files, editor and agent settings.
    pub runs_later: Vec<String>,
    pub patch: String,
    /// The patch was cut at the server's limit.
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileChangeView {
    pub path: String,
    /// `added`, `changed`, `deleted`, `renamed`.
    pub change: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LandMode {
    #[default]
    Merge,
    Rebase,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LandRequest {
    /// The branch to land into. Default: the base that the run started from.
    pub into: Option<String>,
    pub mode: LandMode,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum LandOutcome {
    Landed {
        commit: String,
    },
    /// There was nothing to land.
    UpToDate,
    Conflicts {
        files: Vec<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LandView {
    pub into: String,
    #[serde(flatten)]
    pub outcome: LandOutcome,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StopAllView {
    /// The runs that were cancelled.
    pub runs: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecretView {
    pub name: String,
    pub version: u64,
    pub updated_at_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    pub id: String,
    pub name: String,
    pub scopes: Vec<String>,
    pub created_at_ms: i64,
    pub last_used_at_ms: Option<i64>,
    pub expires_at_ms: Option<i64>,
    pub revoked_at_ms: Option<i64>,
    /// The token itself, only in the answer to its creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// One piece of news of a run, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "news", rename_all = "snake_case")]
pub enum News {
    /// The run changed; this is all of it.
    Run { run: Box<RunView> },
    /// A phase said something.
    Event { event: EventView },
    /// A phase wrote something.
    Log {
        phase: String,
        attempt: u32,
        line: LogLine,
    },
}

/// A named file that a phase handed on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArtifactView {
    pub name: String,
    pub phase: String,
    pub attempt: u32,
    pub size_bytes: u64,
    pub sha256: String,
    pub created_at_ms: i64,
}
