//! What one phase may use. Every limit is always set: there is no "unlimited".

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The limits of one sandbox. [`Limits::default`] holds the documented defaults of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Thousandths of one CPU.
    pub cpu_milli: u32,
    /// Memory with swap, in bytes.
    pub memory_bytes: u64,
    /// Processes and threads together.
    pub pids: u32,
    /// The workspace's file system, in bytes.
    pub disk_bytes: u64,
    /// Wall clock from the first process until the end, in milliseconds.
    pub time_ms: u64,
    /// Time without any output from the agent, in milliseconds.
    pub idle_ms: u64,
    /// Output kept per phase, in bytes. What comes after is drained and counted.
    pub log_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu_milli: 2_000,
            memory_bytes: 4 << 30,
            pids: 512,
            disk_bytes: 10 << 30,
            time_ms: 60 * 60 * 1000,
            idle_ms: 15 * 60 * 1000,
            log_bytes: 64 << 20,
        }
    }
}
