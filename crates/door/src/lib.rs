//! The sandbox's network door (D5): what a sandbox with nothing but loopback can reach, and how.
//!
//! The listeners are made inside the sandbox's network namespace and handed in; everything else runs
//! outside of it, with no process and no address in between. A [`Door`] serves
//!
//! - an HTTP proxy ([`http_proxy`](self)): CONNECT tunnels and plain HTTP, to what the phase's
//!   allow-list names;
//! - a DNS stub over UDP and TCP, for tools that resolve before they use the proxy;
//! - forwards from a TCP port to a Unix socket outside, byte for byte (the phase's gateway).
//!
//! Every decision is `bulkhead-egress`'s; each one is counted and reported ([`DecisionRecord`]).
//!
//! The [`model`] gateway belongs to the other end of that forward, in the control plane: it replaces the
//! phase's token by the upstream's real credential, which therefore never enters the session or the sandbox.

mod body;
mod dns;
mod door;
mod forward;
mod headers;
mod http_proxy;
mod log;
pub mod model;
mod relay;

pub use door::{Door, DoorConfig, DoorError, DoorLimits, DoorListeners, Forward};
pub use log::{Asked, DecisionRecord, LogStats};
