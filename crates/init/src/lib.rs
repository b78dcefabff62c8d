//! What the parent and `bulkhead-init` say to each other. The program itself is this package's binary; the crate `sandbox`
//! embeds it and speaks these messages with it.

pub mod wire;
