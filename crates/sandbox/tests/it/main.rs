//! Tests of the sandbox against the real kernel. They need root (or what `bulkhead doctor` asks for).
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a failed step fails the test, and says what it saw"
)]

mod life;
mod support;
