//! What the parent and `bulkhead-init` say to each other, and the system calls of which walls are made. The program itself is
//! this package's binary; the crate `sandbox` embeds it and speaks these messages with it. The crate `zygote` builds its
//! walls of the same calls.
#![expect(
    unsafe_code,
    reason = "system calls that no safe wrapper without dependencies has"
)]

pub mod landlock;
pub mod rights;
pub mod root;
pub mod sys;
pub mod wire;
