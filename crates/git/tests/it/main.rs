//! Git against real git and a real server socket.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod extras;
mod gateway;
mod hostile;
mod inside;
mod killed;
mod landing;
mod lfs;
mod remote;
mod support;
mod vectors;
