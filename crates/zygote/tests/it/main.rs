//! The zygote and its processes, with a guest that is no JavaScript.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod escape;
mod life;
mod refusal;
mod support;
