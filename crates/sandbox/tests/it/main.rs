//! Tests of the sandbox against the real kernel. They need root (or what `bulkhead doctor` asks for).
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod doctor;
mod identity;
mod life;
mod limits;
mod machine;
mod network;
mod process;
mod refusal;
mod support;
