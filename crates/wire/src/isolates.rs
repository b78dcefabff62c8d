//! The plugin service: the calls of the platform to it, and their limits.

pub use crate::generated::isolates::v1::*;

/// The longest message to or from the service: an answer with a body as large as `host` gives, and room for its frame.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
