//! What a plug's code holds by numbers: processes, streams, open files.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bulkhead_engine::Thrown;

/// A plug that holds more of one kind than this has forgotten to close them.
const MAX_ENTRIES: usize = 10_000;

pub(crate) struct Table<T> {
    what: &'static str,
    entries: Mutex<Entries<T>>,
}

struct Entries<T> {
    next: u32,
    by_number: HashMap<u32, T>,
}

impl<T> Table<T> {
    pub(crate) fn new(what: &'static str) -> Self {
        let entries = Entries {
            // Node's first free descriptor is never one of the standard streams either.
            next: 3,
            by_number: HashMap::new(),
        };
        Self {
            what,
            entries: Mutex::new(entries),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries<T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, entry: T) -> Result<u32, Thrown> {
        let mut entries = self.lock();
        if entries.by_number.len() >= MAX_ENTRIES {
            let what = self.what;
            return Err(Thrown::new(format!(
                "the plug holds {MAX_ENTRIES} {what} already: close those that are done with"
            )));
        }
        let number = entries.next;
        entries.next += 1;
        entries.by_number.insert(number, entry);
        Ok(number)
    }

    pub(crate) fn get(&self, number: u32) -> Result<T, Thrown>
    where
        T: Clone,
    {
        let found = self.lock().by_number.get(&number).cloned();
        found.ok_or_else(|| self.missing())
    }

    pub(crate) fn remove(&self, number: u32) -> Option<T> {
        self.lock().by_number.remove(&number)
    }

    pub(crate) fn take(&self, number: u32) -> Result<T, Thrown> {
        self.remove(number).ok_or_else(|| self.missing())
    }

    pub(crate) fn clear(&self) {
        self.lock().by_number.clear();
    }

    fn missing(&self) -> Thrown {
        let what = self.what;
        Thrown::new(format!(
            "EBADF: bad file descriptor: it is none of the open {what}"
        ))
        .with("code", "EBADF".into())
        .with("errno", bulkhead_engine::Value::Number(-9.0))
    }
}
