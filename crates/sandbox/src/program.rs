//! The embedded `bulkhead-init`, ready to be executed.

use std::{
    fs::File,
    io::{self, Write as _},
    os::fd::{AsRawFd as _, OwnedFd},
    process::Stdio,
};

use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    io::Errno,
};

static PROGRAM: &[u8] = include_bytes!(env!("BULKHEAD_INIT"));

/// The program in a memory file that nobody can change any more, shared by all launchers of this process.
#[derive(Debug)]
pub(crate) struct Program(File);

impl Program {
    pub(crate) fn load() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 do not know the flag, and need none to execute such a file.
        let memory = match memfd_create("bulkhead-init", flags | MemfdFlags::EXEC) {
            Err(Errno::INVAL) => memfd_create("bulkhead-init", flags),
            other => other,
        }?;
        let mut file = File::from(memory);
        file.write_all(PROGRAM)?;
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        fcntl_add_seals(&file, seals)?;
        Ok(Self(file))
    }

    /// Starts a launcher, whose descriptors 0 and 1 are the two links. The standard library uses `posix_spawn` for this, so
    /// the many-threaded parent is never forked. The path is opened in the child, before its descriptors close.
    pub(crate) fn start(
        &self,
        control: OwnedFd,
        requests: OwnedFd,
    ) -> io::Result<tokio::process::Child> {
        tokio::process::Command::new(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
            .arg0("bulkhead-init")
            .env_clear()
            .stdin(Stdio::from(control))
            .stdout(Stdio::from(requests))
            .stderr(Stdio::null())
            .spawn()
    }
}
