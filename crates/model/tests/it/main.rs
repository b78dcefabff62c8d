//! The rules of the model, tested from outside.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod composing;
mod leases;
mod plugin_manifest;
mod run_cases;
mod run_random;
mod run_recovery;
mod run_rules;
mod run_support;
mod run_walk;
mod session_file;
mod workflow_errors;
mod workflow_schema;
mod workflow_support;
mod workflow_values;
