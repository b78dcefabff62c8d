//! Random numbers of the kernel's: those of V8 are the same in all copies of one process.

use std::cell::RefCell;

const POOL: usize = 512;

/// Some bytes ahead, each given once.
#[derive(Debug, Default)]
pub(crate) struct Random {
    left: RefCell<Vec<u8>>,
}

impl Random {
    /// Forgets what was got ahead: a copy of this process would give the same.
    pub(crate) fn forget(&self) {
        self.left.borrow_mut().clear();
    }

    pub(crate) fn fill(&self, bytes: &mut [u8]) -> Result<(), getrandom::Error> {
        if bytes.len() > POOL {
            return getrandom::fill(bytes);
        }
        let mut left = self.left.borrow_mut();
        if left.len() < bytes.len() {
            left.resize(POOL, 0);
            if let Err(error) = getrandom::fill(&mut left) {
                left.clear();
                return Err(error);
            }
        }
        let rest = left.len() - bytes.len();
        bytes.copy_from_slice(&left[rest..]);
        left.truncate(rest);
        Ok(())
    }

    /// At least 0 and less than 1, all 53 bits of it random.
    pub(crate) fn unit(&self) -> Result<f64, getrandom::Error> {
        let mut bytes = [0; 8];
        self.fill(&mut bytes)?;
        #[expect(clippy::cast_precision_loss, reason = "53 bits are held exactly")]
        let whole = (u64::from_le_bytes(bytes) >> 11) as f64;
        Ok(whole / (1u64 << 53) as f64)
    }
}
