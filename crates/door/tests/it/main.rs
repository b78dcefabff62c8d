//! The door and the model gateway against real clients, upstreams, name servers and TLS on loopback.
//! "Case" and N numbers are those of the project's tables of cases.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod dns;
mod forward;
mod gateway;
mod netns;
mod plain;
mod support;
mod tunnel;
