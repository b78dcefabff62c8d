//! Tests of the sandbox against the real kernel. They need root (or what `bulkhead doctor` asks for).
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod doctor;
mod identity;
mod life;
mod limits;
mod machine;
mod network;
mod process;
#[expect(clippy::print_stderr, reason = "what was left out is said")]
mod programs;
mod refusal;
mod support;
