//! The messages that processes of Bulkhead send each other, and their frames.
//!
//! [`pipe`] is spoken between the broker of plugins and one invocation process; [`platform`] is what the broker asks
//! the platform on a plugin's behalf.

pub mod methods;
pub mod pipe;
pub mod platform;
