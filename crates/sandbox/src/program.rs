//! The embedded `bulkhead-init`, ready to be executed, and its nursery, which forks a launcher for each sandbox.

use std::{
    fs::File,
    io::{self, Write as _},
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    process::Stdio,
    sync::PoisonError,
};

use bulkhead_init::wire::Control;
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    io::Errno,
};
use tokio::{process::Child, sync::Mutex};

use crate::{driver::Links, link::Link};

static PROGRAM: &[u8] = include_bytes!(env!("BULKHEAD_INIT"));

/// The program in a memory file that nobody can change any more.
#[derive(Debug)]
pub(crate) struct Program {
    file: File,
    nursery: Mutex<Option<Nursery>>,
    /// A launcher that waits for its plan: a process that holds nothing yet, so that a sandbox does not wait for a fork.
    spare: std::sync::Mutex<Option<Links>>,
}

/// A running nursery. It ends when its link is closed.
#[derive(Debug)]
struct Nursery {
    link: Link,
    /// Held so that the runtime buries it.
    _process: Child,
}

impl Program {
    pub(crate) fn load() -> io::Result<Self> {
        Ok(Self {
            file: in_memory()?,
            nursery: Mutex::default(),
            spare: std::sync::Mutex::default(),
        })
    }

    /// Sends the first message to a launcher: to the one that waits, or else, and where somebody has killed that one, to a new
    /// one.
    pub(crate) async fn launch(
        &self,
        first: &Control,
        passed: &[BorrowedFd<'_>],
    ) -> io::Result<Links> {
        let spare = self.spare().take();
        if let Some(links) = spare
            && links.control.send(first, passed).await.is_ok()
        {
            return Ok(links);
        }
        let links = self.fork().await?;
        links.control.send(first, passed).await?;
        Ok(links)
    }

    /// Makes a launcher that waits, where there is none. A failure shows when the next sandbox is made.
    pub(crate) async fn make_ready(&self) {
        if self.spare().is_none()
            && let Ok(links) = self.fork().await
        {
            *self.spare() = Some(links);
        }
    }

    fn spare(&self) -> std::sync::MutexGuard<'_, Option<Links>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn fork(&self) -> io::Result<Links> {
        let (control, control_end) = Link::pair()?;
        let (requests, requests_end) = Link::pair()?;
        self.start(control_end, requests_end).await?;
        Ok(Links {
            control,
            requests,
            launcher: None,
        })
    }

    /// Starts a launcher with these two ends of its links. A nursery that somebody has killed is replaced.
    async fn start(&self, control: OwnedFd, requests: OwnedFd) -> io::Result<()> {
        let mut nursery = self.nursery.lock().await;
        let ends = [control.as_fd(), requests.as_fd()];
        if let Some(running) = &*nursery
            && running.link.send(&Control::Fork {}, &ends).await.is_ok()
        {
            return Ok(());
        }
        let fresh = self.open_nursery()?;
        fresh.link.send(&Control::Fork {}, &ends).await?;
        *nursery = Some(fresh);
        Ok(())
    }

    /// The standard library uses `posix_spawn` for this, so the many-threaded parent is never forked. The path is opened in
    /// the child, before its descriptors close.
    fn open_nursery(&self) -> io::Result<Nursery> {
        let (link, end) = Link::pair()?;
        let process = command(&self.file).stdin(Stdio::from(end)).spawn()?;
        Ok(Nursery {
            link,
            _process: process,
        })
    }
}

/// The static program `bulkhead-init`, for whoever needs another of its modes on this machine or another one.
pub const fn bytes() -> &'static [u8] {
    PROGRAM
}

/// The program in a memory file that nobody can change any more.
pub(crate) fn in_memory() -> io::Result<File> {
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
    Ok(file)
}

/// Executes the program from its memory file, with an empty environment and no streams.
pub(crate) fn command(file: &File) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
    command
        .arg0("bulkhead-init")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}
