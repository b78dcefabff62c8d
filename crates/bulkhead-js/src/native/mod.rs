//! The functions that the prelude calls, and what they share.

mod arguments;
mod fetch;
mod file_values;
mod files;
mod forward;
mod open_files;
mod processes;
mod streams;
mod text;
mod time;

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc};

use bulkhead_engine::{Function, Thrown};
use bulkhead_host::{FileHandle, FileSystem, Host, Listener, ProcessControl, Watcher, WriteStream};
use tokio::sync::{Mutex, oneshot};

use self::streams::{ReadEnd, WriteEnd};
use crate::{logger::Logger, outside::Outside, table::Table};

type Shared<T> = Arc<Mutex<T>>;

/// What a plug's code holds.
pub(crate) struct Held {
    readers: Table<ReadEnd>,
    writers: Table<WriteEnd>,
    processes: Table<Arc<dyn ProcessControl>>,
    listeners: Table<Shared<Box<dyn Listener>>>,
    files: Table<Arc<FileHandle>>,
    file_streams: Table<Shared<Option<WriteStream>>>,
    watchers: Table<Shared<Box<dyn Watcher>>>,
}

impl Held {
    fn new() -> Self {
        Self {
            readers: Table::new("streams"),
            writers: Table::new("streams"),
            processes: Table::new("processes"),
            listeners: Table::new("listeners"),
            files: Table::new("files"),
            file_streams: Table::new("file streams"),
            watchers: Table::new("watchers"),
        }
    }

    fn clear(&self) {
        self.readers.clear();
        self.writers.clear();
        self.processes.clear();
        self.listeners.clear();
        self.files.clear();
        self.file_streams.clear();
        self.watchers.clear();
    }
}

/// The two ways in which an operation on files is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Promise,
    Synchronous,
}

/// One plug's side of the native functions.
pub(crate) struct Native {
    pub(crate) outside: Outside,
    pub(crate) log: Logger,
    pub(crate) held: Arc<Held>,
    host: RefCell<Option<Arc<dyn Host>>>,
    /// The host's file system, once for the methods with promises and once for their synchronous twins: each has a conversation of
    /// its own with the machine, which its first use opens (H9).
    file_systems: RefCell<[Option<FileSystem>; 2]>,
    /// Timers and requests that are under way, with what stops them.
    timers: RefCell<HashMap<u32, oneshot::Sender<()>>>,
    fetches: RefCell<HashMap<u32, oneshot::Sender<()>>>,
    started: std::time::Instant,
}

impl Native {
    pub(crate) fn new(outside: Outside, log: Logger) -> Rc<Self> {
        Rc::new(Self {
            outside,
            log,
            held: Arc::new(Held::new()),
            host: RefCell::default(),
            file_systems: RefCell::default(),
            timers: RefCell::default(),
            fetches: RefCell::default(),
            started: std::time::Instant::now(),
        })
    }

    pub(crate) fn set_host(&self, host: Option<Arc<dyn Host>>) {
        *self.host.borrow_mut() = host;
        self.file_systems.take();
    }

    fn host(&self) -> Result<Arc<dyn Host>, Thrown> {
        let host = self.host.borrow().clone();
        host.ok_or_else(|| Thrown::new("no host comes before this plug"))
    }

    fn file_system(&self, whose: Style) -> Result<FileSystem, Thrown> {
        let host = self.host()?;
        let [with_promise, at_once] = &mut *self.file_systems.borrow_mut();
        let place = match whose {
            Style::Promise => with_promise,
            Style::Synchronous => at_once,
        };
        let files = place.get_or_insert_with(|| FileSystem::new(host.files()));
        Ok(files.clone())
    }

    /// Lets go of all that the plug's code held, and ends what is under way.
    pub(crate) fn end(&self) {
        self.outside.end();
        self.held.clear();
        self.host.take();
        self.file_systems.take();
    }
}

/// All functions, by the names that the prelude knows them by.
pub(crate) fn functions(native: &Rc<Native>) -> Vec<(&'static str, Function)> {
    let mut functions = text::functions();
    functions.extend(time::functions(native));
    functions.extend(streams::functions(native));
    functions.extend(processes::functions(native));
    functions.extend(forward::functions(native));
    functions.extend(files::functions(native));
    functions.extend(fetch::functions(native));
    functions
}
