//! The egress decision against real sockets, a real name server on loopback, and real TLS.
//! Ids such as N12 are the rows of the project's table of hostile addresses and URLs.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod addresses;
mod connector;
mod names;
mod netns;
mod redirects;
mod support;
mod upstream;
