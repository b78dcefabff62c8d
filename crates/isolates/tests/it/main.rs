//! The plugin service against real parts.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod calls;
mod fetch;
