//! The program from outside: what it prints, what it returns, and what is left when it has ended.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod demo;
mod environment;
mod gate;
mod isolates;
mod plugin;
mod program;
mod refusal;
mod run;
mod sandbox_exec;
mod secrets;
mod session_hosts;
mod sessions;
mod terminal;
mod usage;
