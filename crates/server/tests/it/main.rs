//! The control plane's API over real HTTP, with an executor that does nothing by itself.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod api;
mod document;
mod gates;
mod server;
mod workflow;
