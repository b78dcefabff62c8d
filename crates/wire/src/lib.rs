//! The messages that processes of Bulkhead send each other, and their frames.
//!
//! [`pipe`] is spoken between the broker of plugins and one invocation process, [`isolates`] between the platform and
//! that broker, and [`platform`] is what plugins ask of the platform on the way.

mod generated;
pub mod isolates;
pub mod methods;
pub mod pipe;
pub mod platform;
