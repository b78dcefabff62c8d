//! How a sandbox ended: one reason, and what shows it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The one reason why a sandbox's main process is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EndReason {
    Exit {
        code: i32,
    },
    Signal {
        signal: i32,
    },
    Oom,
    PidsLimit,
    DiskFull,
    Timeout,
    Idle,
    Cancelled,
    /// Nobody saw the end: the process that watched was itself killed, or its machine went away.
    Lost,
}

impl EndReason {
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Exit { code: 0 })
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit { code } => write!(f, "exited with code {code}"),
            Self::Signal { signal } => write!(f, "was ended by signal {signal}"),
            Self::Oom => f.write_str("went over its memory limit"),
            Self::PidsLimit => f.write_str("went over its limit of processes"),
            Self::DiskFull => f.write_str("filled its disk"),
            Self::Timeout => f.write_str("ran out of time"),
            Self::Idle => f.write_str("was silent for too long"),
            Self::Cancelled => f.write_str("was cancelled"),
            Self::Lost => f.write_str("was lost: nobody saw how it ended"),
        }
    }
}

/// One observation behind a reason, for example the counter that moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Where it was read: a kernel file, a timer, the exit status.
    pub source: String,
    /// What was read there, with its unit.
    pub detail: String,
}

/// What a sandbox used, as the kernel counted it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceUse {
    pub wall_ms: u64,
    pub cpu_ms: u64,
    pub memory_peak_bytes: u64,
    pub pids_peak: u32,
}

/// The end of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    pub reason: EndReason,
    pub evidence: Vec<Evidence>,
    pub used: ResourceUse,
}
