//! Something that is made at its first use, once.

use tokio::sync::OnceCell;

/// A connection that comes into being at its first use (H2). Everybody who asks at the same time waits for the
/// same attempt and gets the same answer; a failure is remembered, so that one session tries once.
#[derive(Debug)]
pub struct Lazy<T, E> {
    cell: OnceCell<Result<T, E>>,
}

impl<T, E: Clone> Lazy<T, E> {
    pub const fn new() -> Self {
        Self {
            cell: OnceCell::const_new(),
        }
    }

    /// The connection, made by `connect` where there is none yet. Where the caller that makes it goes away
    /// in the middle, the next one makes it anew.
    pub async fn get<F>(&self, connect: impl FnOnce() -> F) -> Result<&T, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        self.cell
            .get_or_init(connect)
            .await
            .as_ref()
            .map_err(E::clone)
    }

    /// The connection, where there is one.
    pub fn made(&self) -> Option<&T> {
        self.cell.get()?.as_ref().ok()
    }
}

impl<T, E: Clone> Default for Lazy<T, E> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn h2_concurrent_first_uses_connect_once() {
        let (lazy, count) = (Lazy::<u32, String>::new(), AtomicU32::new(0));
        assert!(lazy.made().is_none());
        let connect = || async {
            tokio::task::yield_now().await;
            Ok(count.fetch_add(1, Ordering::SeqCst))
        };
        let uses = (0..100).map(|_| lazy.get(connect));
        let got = futures::future::join_all(uses).await;
        assert!(got.iter().all(|got| *got == Ok(&0)));
        assert_eq!((count.load(Ordering::SeqCst), lazy.made()), (1, Some(&0)));
    }

    #[tokio::test]
    async fn h2_a_failed_first_use_is_everybodys_and_is_not_repeated() {
        let (lazy, count) = (Lazy::<u32, String>::new(), AtomicU32::new(0));
        for _ in 0..3 {
            let got = lazy.get(|| async {
                count.fetch_add(1, Ordering::SeqCst);
                Err("no".to_owned())
            });
            assert_eq!(got.await, Err("no".to_owned()));
        }
        assert_eq!((count.load(Ordering::SeqCst), lazy.made()), (1, None));
    }
}
