//! One invocation over a pipe of this process: the test's own thread runs the plugin, another plays the broker.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod bare;
mod crypto;
mod escape;
mod faults;
mod invoke;
mod memory;
mod support;
mod values;
