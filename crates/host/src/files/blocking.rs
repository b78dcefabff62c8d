//! The synchronous twins of Node's methods (H9).
//!
//! They exist because Node has them; prefer the asynchronous ones. Each call here stops the calling thread until the
//! host has answered, which on a far host is a round trip or several, one call after the other, and it needs a second
//! connection: while the caller's thread stands still nothing else on it could serve the first one.

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::SystemTime,
};

use bytes::Bytes;
use futures::{FutureExt as _, future::LocalBoxFuture};
use rustix::io::Errno;

use super::{
    Access, CopyOptions, Dir, Dirent, FileHandle, FileSystem, Flags, FsError, RmOptions, Stat,
    WriteOptions, whole::Replace,
};
use crate::Host;

/// Calls that wait for the worker.
const QUEUE: usize = 64;

/// Describes the host once more.
type Describe = Box<dyn FnOnce() -> Arc<dyn Host> + Send>;
type Call = Box<dyn FnOnce(FileSystem) -> LocalBoxFuture<'static, ()> + Send>;

enum Job {
    Call(Call),
    /// Said once, because files that are still open hold the queue open too.
    End,
}

/// A host's file system for callers that cannot wait asynchronously. It has a thread of its own with a connection of
/// its own; both begin with the first call, and end with [`BlockingFileSystem::teardown`] or when it is dropped.
///
/// Never call it on a thread of an asynchronous runtime: that thread would stand still.
pub struct BlockingFileSystem {
    state: Mutex<State>,
}

enum State {
    Described(Describe),
    Running(Worker, JoinHandle<()>),
    Ended,
}

/// The way to the thread.
#[derive(Clone)]
struct Worker(SyncSender<Job>);

impl Worker {
    fn start(describe: Describe) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (jobs, asked) = sync_channel(QUEUE);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new().name("blocking files".to_owned());
        let thread = thread.spawn(move || runtime.block_on(serve(describe, asked)))?;
        Ok((Self(jobs), thread))
    }

    fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(FileSystem) -> LocalBoxFuture<'static, Result<T, FsError>> + Send + 'static,
    ) -> Result<T, FsError> {
        let (answers, answer) = sync_channel(1);
        let call: Call = Box::new(move |files| {
            // A caller is always there: it waits.
            async move { drop(answers.send(call(files).await)) }.boxed_local()
        });
        self.0.send(Job::Call(call)).map_err(|_| ended())?;
        answer.recv().unwrap_or_else(|_| Err(ended()))
    }
}

/// Nothing else runs in this runtime while the thread waits for the next call, but for what has threads of its own.
async fn serve(describe: Describe, asked: Receiver<Job>) {
    let host = describe();
    let files = FileSystem::new(host.files());
    let asked = Arc::new(Mutex::new(asked));
    loop {
        let waits = Arc::clone(&asked);
        let next = tokio::task::spawn_blocking(move || {
            waits.lock().unwrap_or_else(PoisonError::into_inner).recv()
        });
        match next.await {
            Ok(Ok(Job::Call(call))) => call(files.clone()).await,
            Ok(Ok(Job::End) | Err(_)) | Err(_) => break,
        }
    }
    if let Err(error) = host.teardown().await {
        tracing::warn!(%error, "ending the second connection");
    }
}

fn ended() -> FsError {
    FsError::of_file(Errno::IO, "connect")
        .detail("the thread of the blocking file system has ended")
}

impl BlockingFileSystem {
    /// Describes a second connection to a host; nothing begins yet.
    pub fn new(describe: impl FnOnce() -> Arc<dyn Host> + Send + 'static) -> Self {
        Self {
            state: Mutex::new(State::Described(Box::new(describe))),
        }
    }

    /// Ends the connection, where there is one, and waits for that. No call works after it.
    pub fn teardown(&self) {
        let state = std::mem::replace(&mut *self.state(), State::Ended);
        if let State::Running(worker, thread) = state {
            // A thread that panicked has told its callers by not answering.
            let _ = worker.0.send(Job::End);
            let _ = thread.join();
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn worker(&self) -> Result<Worker, FsError> {
        let mut state = self.state();
        if let State::Running(worker, _) = &*state {
            return Ok(worker.clone());
        }
        match std::mem::replace(&mut *state, State::Ended) {
            State::Described(describe) => {
                let started = Worker::start(describe);
                let (worker, thread) =
                    started.map_err(|error| ended().detail(error.to_string()))?;
                *state = State::Running(worker.clone(), thread);
                Ok(worker)
            }
            _ => Err(ended()),
        }
    }

    fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(FileSystem) -> LocalBoxFuture<'static, Result<T, FsError>> + Send + 'static,
    ) -> Result<T, FsError> {
        self.worker()?.call(call)
    }

    pub fn exists(&self, path: &Path) -> bool {
        self.access(path, Access::default()).is_ok()
    }

    pub fn open(
        &self,
        path: &Path,
        flags: impl Into<Flags>,
        permissions: u32,
    ) -> Result<BlockingFile, FsError> {
        let (worker, path, flags) = (self.worker()?, path.to_owned(), flags.into());
        let opened = worker.call(move |files| {
            async move { files.open(&path, flags, permissions).await }.boxed_local()
        });
        Ok(BlockingFile {
            handle: Arc::new(opened?),
            worker,
        })
    }
}

macro_rules! twins {
    ($($name:ident($($path:ident),+ $(; $($value:ident: $kind:ty),+)?) -> $answer:ty;)+) => {
        /// Each as its asynchronous twin in [`FileSystem`].
        impl BlockingFileSystem {
            $(pub fn $name(&self, $($path: &Path,)+ $($($value: $kind),+)?) -> Result<$answer, FsError> {
                $(let $path = $path.to_owned();)+
                self.call(move |files| {
                    async move { files.$name($(&$path,)+ $($($value),+)?).await }.boxed_local()
                })
            })+
        }
    };
}

twins! {
    read_file(path) -> Vec<u8>;
    write_file(path; data: Bytes, options: WriteOptions) -> ();
    append_file(path; data: Bytes) -> ();
    stat(path) -> Stat;
    lstat(path) -> Stat;
    readdir(path) -> Vec<OsString>;
    readdir_with_types(path) -> Vec<Dirent>;
    readdir_recursive(path) -> Vec<PathBuf>;
    readdir_recursive_with_types(path) -> Vec<Dirent>;
    opendir(path) -> Dir;
    mkdir(path; permissions: u32) -> ();
    mkdir_recursive(path; permissions: u32) -> Option<PathBuf>;
    rmdir(path) -> ();
    unlink(path) -> ();
    rename(from, to) -> ();
    copy_file(from, to; replace: Replace) -> ();
    cp(from, to; options: CopyOptions) -> ();
    realpath(path) -> PathBuf;
    readlink(path) -> PathBuf;
    symlink(target, path) -> ();
    link(existing, new) -> ();
    access(path; access: Access) -> ();
    rm(path; options: RmOptions) -> ();
    truncate(path; len: u64) -> ();
    mkdtemp(prefix) -> PathBuf;
    chmod(path; permissions: u32) -> ();
    chown(path; uid: u32, gid: u32) -> ();
    lchown(path; uid: u32, gid: u32) -> ();
    utimes(path; accessed: SystemTime, modified: SystemTime) -> ();
    lutimes(path; accessed: SystemTime, modified: SystemTime) -> ();
}

impl fmt::Debug for BlockingFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingFileSystem").finish_non_exhaustive()
    }
}

/// An open file of a [`BlockingFileSystem`]: Node's methods with a file descriptor.
pub struct BlockingFile {
    handle: Arc<FileHandle>,
    worker: Worker,
}

macro_rules! handle_twins {
    ($($name:ident($($value:ident: $kind:ty),*) -> $answer:ty;)+) => {
        /// Each as its asynchronous twin in [`FileHandle`].
        impl BlockingFile {
            $(pub fn $name(&self, $($value: $kind),*) -> Result<$answer, FsError> {
                let handle = Arc::clone(&self.handle);
                self.worker.call(move |_| {
                    async move { handle.$name($($value),*).await }.boxed_local()
                })
            })+
        }
    };
}

handle_twins! {
    read(len: usize, position: Option<u64>) -> Bytes;
    write(data: Bytes, position: Option<u64>) -> usize;
    stat() -> Stat;
    truncate(len: u64) -> ();
    chmod(permissions: u32) -> ();
    chown(uid: u32, gid: u32) -> ();
    utimes(accessed: SystemTime, modified: SystemTime) -> ();
    sync() -> ();
    datasync() -> ();
}

impl BlockingFile {
    pub fn close(self) -> Result<(), FsError> {
        let Self { handle, worker } = self;
        worker.call(move |_| {
            async move {
                match Arc::try_unwrap(handle) {
                    Ok(handle) => handle.close().await,
                    // No other holder outlives its own call.
                    Err(_) => Ok(()),
                }
            }
            .boxed_local()
        })
    }
}

impl fmt::Debug for BlockingFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingFile").finish_non_exhaustive()
    }
}
