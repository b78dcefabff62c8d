//! Images made ahead of need.

use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use tokio_util::task::TaskTracker;

use crate::{
    engine::ImagePool,
    image::{self, Image},
};

/// Ready images of one size. An image that is taken is replaced in the background.
#[derive(Debug)]
pub(crate) struct Images {
    dir: PathBuf,
    wanted: ImagePool,
    ready: Arc<Mutex<VecDeque<Image>>>,
    tasks: TaskTracker,
}

impl Images {
    pub(crate) fn new(dir: PathBuf, wanted: ImagePool, tasks: TaskTracker) -> Self {
        Self {
            dir,
            wanted,
            ready: Arc::default(),
            tasks,
        }
    }

    /// Makes in the background what is missing.
    pub(crate) fn fill(&self) {
        let (dir, wanted, ready) = (self.dir.clone(), self.wanted, Arc::clone(&self.ready));
        if lock(&ready).len() >= wanted.count {
            return;
        }
        self.tasks.spawn_blocking(move || {
            while lock(&ready).len() < wanted.count {
                match image::make(&dir, wanted.size_bytes) {
                    Ok(image) => lock(&ready).push_back(image),
                    Err(error) => {
                        // Whoever needs one meets the same error and reports it.
                        tracing::warn!(%error, "making a workspace image ahead of need");
                        return;
                    }
                }
            }
        });
    }

    /// A ready one where the size is right, else one made now.
    pub(crate) async fn take(&self, size_bytes: u64) -> io::Result<Image> {
        let fits = |image: &Image| image.size_bytes == size_bytes.next_multiple_of(4096);
        let found = {
            let mut ready = lock(&self.ready);
            let position = ready.iter().position(fits);
            position.and_then(|position| ready.remove(position))
        };
        self.fill();
        if let Some(image) = found {
            return Ok(image);
        }
        let dir = self.dir.clone();
        tokio::task::spawn_blocking(move || image::make(&dir, size_bytes))
            .await
            .map_err(io::Error::other)?
    }
}

fn lock(ready: &Mutex<VecDeque<Image>>) -> std::sync::MutexGuard<'_, VecDeque<Image>> {
    ready.lock().unwrap_or_else(PoisonError::into_inner)
}
