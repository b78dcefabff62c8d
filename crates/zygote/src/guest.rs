//! What lives in an invocation process.

use std::os::fd::OwnedFd;

/// Something that serves one invocation. It is made once, in the zygote; every process has a copy of it by the fork.
pub trait Guest {
    /// Speaks the frames of `wire::pipe`, from `Ready` to `Done`. The process is locked down when this is called, and ends
    /// when it returns. Reads and writes block.
    fn serve(self: Box<Self>, pipe: Pipe);

    /// All that a broker would say in a call that is like most calls; none where it is not worth finding out which memory
    /// that takes. It is served once, before anything else, in a process of its own.
    fn rehearsal(&self) -> Option<Vec<u8>> {
        None
    }
}

/// The process's end of the pipe. No other descriptor is open, and none can be made.
#[derive(Debug)]
pub struct Pipe {
    pub stream: OwnedFd,
    /// The same stream once more, for a handler that writes a last frame while the process dies.
    pub last_words: OwnedFd,
}

/// Why a guest could not be made.
pub type LoadError = Box<dyn std::error::Error>;
