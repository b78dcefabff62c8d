//! The messages that processes of Bulkhead send each other, and their frames.
//!
//! [`pipe`] is spoken between the broker of plugins and one invocation process.

pub mod methods;
pub mod pipe;
