//! The zygote and its processes, with a guest that is no JavaScript.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod attacker;
mod escape;
mod life;
mod refusal;
mod support;

/// A program that is a zygote.
const ZYGOTE: &str = env!("CARGO_BIN_EXE_bulkhead-zygote-trial");
