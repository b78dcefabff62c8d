//! The bundles that this service knows, by the hash of their source, with what it compiled of them itself.
//!
//! What was compiled never comes from outside: V8 believes it. It is made by an invocation process that loads this very
//! source, and used only by processes that load the same one, so whoever could make a wrong one deceives nobody else.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sha2::{Digest as _, Sha256};

/// The longest source, in bytes.
pub const SOURCE_BYTES_MAX: usize = 8 << 20;
/// The longest that is kept of what V8 compiled.
const CODE_CACHE_BYTES_MAX: usize = 16 << 20;

/// SHA-256 of a source.
pub type BundleHash = [u8; 32];

/// One module, ready to be given to processes.
#[derive(Debug)]
pub struct Bundle {
    pub hash: BundleHash,
    pub source: String,
    code_cache: Mutex<CodeCache>,
}

#[derive(Debug, Default)]
enum CodeCache {
    #[default]
    Unasked,
    /// Somebody makes it, or it cannot be made.
    Asked,
    Made(Arc<Vec<u8>>),
}

impl Bundle {
    pub fn new(source: String) -> Self {
        Self {
            hash: Sha256::digest(source.as_bytes()).into(),
            source,
            code_cache: Mutex::default(),
        }
    }

    pub fn code_cache(&self) -> Option<Arc<Vec<u8>>> {
        match &*self.cache() {
            CodeCache::Made(code) => Some(Arc::clone(code)),
            CodeCache::Unasked | CodeCache::Asked => None,
        }
    }

    /// Whether the caller is the one to have it compiled: true once.
    pub fn claims_code_cache(&self) -> bool {
        let mut cache = self.cache();
        let is_first = matches!(*cache, CodeCache::Unasked);
        if is_first {
            *cache = CodeCache::Asked;
        }
        is_first
    }

    pub fn keep_code_cache(&self, code: Vec<u8>) {
        if !code.is_empty() && code.len() <= CODE_CACHE_BYTES_MAX {
            *self.cache() = CodeCache::Made(Arc::new(code));
        }
    }

    fn bytes(&self) -> usize {
        let code = match &*self.cache() {
            CodeCache::Made(code) => code.len(),
            CodeCache::Unasked | CodeCache::Asked => 0,
        };
        self.source.len() + code
    }

    fn cache(&self) -> MutexGuard<'_, CodeCache> {
        self.code_cache
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bundles that were used last, up to a number of bytes.
#[derive(Debug)]
pub struct Bundles {
    kept: Mutex<Kept>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Kept {
    /// With when each was used, by a count of uses.
    bundles: HashMap<BundleHash, (u64, Arc<Bundle>)>,
    uses: u64,
}

impl Bundles {
    pub fn new(bytes_max: usize) -> Self {
        Self {
            kept: Mutex::default(),
            bytes_max,
        }
    }

    pub fn get(&self, hash: &BundleHash) -> Option<Arc<Bundle>> {
        let mut kept = self.kept();
        kept.uses += 1;
        let now = kept.uses;
        let (used, bundle) = kept.bundles.get_mut(hash)?;
        *used = now;
        Some(Arc::clone(bundle))
    }

    /// Keeps a bundle, and gives back the one that is kept: where two callers brought the same, it is one.
    pub fn insert(&self, bundle: Bundle) -> Arc<Bundle> {
        let mut kept = self.kept();
        kept.uses += 1;
        let (now, hash) = (kept.uses, bundle.hash);
        let (used, bundle) = kept
            .bundles
            .entry(hash)
            .or_insert_with(|| (now, Arc::new(bundle)));
        *used = now;
        let bundle = Arc::clone(bundle);
        self.forget(&mut kept, &hash);
        bundle
    }

    pub fn count(&self) -> usize {
        self.kept().bundles.len()
    }

    /// Makes room; the newest one stays even where it alone is too large.
    fn forget(&self, kept: &mut Kept, newest: &BundleHash) {
        let mut bytes: usize = kept
            .bundles
            .values()
            .map(|(_, bundle)| bundle.bytes())
            .sum();
        while bytes > self.bytes_max {
            let others = kept.bundles.iter().filter(|(hash, _)| *hash != newest);
            let Some((&oldest, _)) = others.min_by_key(|(_, (used, _))| *used) else {
                return;
            };
            let forgotten = kept.bundles.remove(&oldest);
            bytes -= forgotten.map_or(0, |(_, bundle)| bundle.bytes());
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    #[test]
    fn the_bundles_used_last_are_kept_within_the_bytes() {
        let bundles = Bundles::new(100);
        let sources = ["a", "b", "c"].map(|letter| letter.repeat(40));
        let hashes = sources.clone().map(|source| Bundle::new(source).hash);
        bundles.insert(Bundle::new(sources[0].clone()));
        bundles.insert(Bundle::new(sources[1].clone()));
        bundles.get(&hashes[0]).unwrap();
        bundles.insert(Bundle::new(sources[2].clone()));
        assert_eq!(bundles.count(), 2);
        assert!(bundles.get(&hashes[1]).is_none(), "the one not used");
        let large = bundles.insert(Bundle::new("d".repeat(1_000)));
        assert_eq!(bundles.count(), 1);
        let same = bundles.insert(Bundle::new("d".repeat(1_000)));
        assert!(Arc::ptr_eq(&large, &same));
    }

    #[test]
    fn what_was_compiled_is_asked_for_once_and_counts() {
        let bundles = Bundles::new(100);
        let bundle = bundles.insert(Bundle::new("a".repeat(40)));
        assert!(bundle.claims_code_cache());
        assert!(!bundle.claims_code_cache());
        assert!(bundle.code_cache().is_none());
        bundle.keep_code_cache(vec![1; 50]);
        assert_eq!(bundle.code_cache().unwrap().len(), 50);
        bundles.insert(Bundle::new("b".repeat(40)));
        assert_eq!(bundles.count(), 1);
    }
}
