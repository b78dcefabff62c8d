//! The plugin service's broker (SPEC P1–P9, DESIGN D8 and D9): untrusted code, one process per invocation.
//!
//! ```text
//! server ─▶ broker: admit ─▶ invocation: drive one process, purely by life ─▶ fault: whose fault ─▶ result
//!              │                  │ calls
//!              │                  ▼
//!              │             host_calls: fetch, and the platform over the caller's own stream (stream_link)
//!              ▼
//!         process: from zygotes, forked ahead of need
//! ```
//!
//! The broker believes nothing that an invocation's process sends: it counts, bounds and checks every frame. It keeps
//! nothing either: no database, no account; what an invocation may do comes with it, as its [`context`]. There is no V8
//! here.

pub mod broker;
pub mod bundles;
pub mod call_error;
mod caller;
pub mod calls;
pub mod client;
pub mod context;
pub mod fault;
pub mod fetch;
pub mod hold;
pub mod host_calls;
pub mod invocation;
pub mod logs;
pub mod order;
pub mod platform_link;
pub mod process;
pub mod server;
pub mod settings;
pub mod slots;
mod stream_link;
pub mod usage;
pub mod zygotes;
