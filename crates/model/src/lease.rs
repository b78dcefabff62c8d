//! Who may work on one thing until when (D2): a pure lease with fencing.
//!
//! The fence comes from the run's machine, which gives every dispatch a greater one. A lease is
//! claimed with the fence of its dispatch and never twice with the same one, so that two holders can
//! never show the same number. All times are the server's; a holder's clock counts for nothing.
//!
//! ```text
//!   (none) ──claim──▶ held ──renew──▶ held          only the holder, only before it expires
//!                      │  └─claim with a greater fence──▶ held by another   (take over)
//!                      ├──time──▶ expired ──claim with a greater fence──▶ held
//!                      └──release──▶ released
//! ```
//! An expired lease is not renewed: whoever was silent for so long has been declared lost, and its
//! work may already run elsewhere.

use serde::{Deserialize, Serialize};

use crate::ids::Fence;

/// One claim on one piece of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub holder: String,
    pub fence: Fence,
    pub expires_ms: i64,
    pub released: bool,
}

/// Why a lease was not given or not kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseRefused {
    #[error("fence {shown} is stale: fence {current} holds the lease")]
    Stale { shown: Fence, current: Fence },
    #[error("the lease with fence {fence} was claimed before by {holder}")]
    Claimed { fence: Fence, holder: String },
    #[error("the lease with fence {fence} expired {late_ms} ms ago")]
    Expired { fence: Fence, late_ms: i64 },
    #[error("the lease with fence {fence} was given back")]
    Released { fence: Fence },
}

impl Lease {
    /// Claims the lease, taking it over where `fence` is greater than the one that holds it.
    ///
    /// Claiming again as the same holder with the same fence returns the lease unchanged, so a claim
    /// whose answer was lost can be repeated.
    ///
    /// # Errors
    /// With a fence that is not greater than the one that holds the lease.
    pub fn claim(
        current: Option<&Self>,
        holder: &str,
        fence: Fence,
        now_ms: i64,
        ttl_ms: i64,
    ) -> Result<Self, LeaseRefused> {
        if let Some(lease) = current {
            if fence < lease.fence {
                return Err(LeaseRefused::Stale {
                    shown: fence,
                    current: lease.fence,
                });
            }
            if fence == lease.fence {
                lease.check(holder, fence, now_ms)?;
                return Ok(lease.clone());
            }
        }
        Ok(Self {
            holder: holder.to_owned(),
            fence,
            expires_ms: now_ms.saturating_add(ttl_ms.max(0)),
            released: false,
        })
    }

    /// Extends the lease. It never grows shorter, whatever the clock did.
    ///
    /// # Errors
    /// For anyone but the holder, with another fence, or after it expired or was given back.
    pub fn renew(
        &self,
        holder: &str,
        fence: Fence,
        now_ms: i64,
        ttl_ms: i64,
    ) -> Result<Self, LeaseRefused> {
        self.check(holder, fence, now_ms)?;
        let expires_ms = now_ms.saturating_add(ttl_ms.max(0)).max(self.expires_ms);
        Ok(Self {
            expires_ms,
            ..self.clone()
        })
    }

    /// Gives the lease back; its fence stays as the floor for the next claim.
    ///
    /// # Errors
    /// As [`Lease::renew`], but giving back twice is the same as once.
    pub fn release(&self, holder: &str, fence: Fence, now_ms: i64) -> Result<Self, LeaseRefused> {
        if !(self.released && self.fence == fence && self.holder == holder) {
            self.check(holder, fence, now_ms)?;
        }
        Ok(Self {
            released: true,
            ..self.clone()
        })
    }

    /// Whether the holder may still act on it.
    pub const fn is_live(&self, now_ms: i64) -> bool {
        !self.released && now_ms < self.expires_ms
    }

    /// Whether its holder was silent for too long: the moment for `RunEvent::LeaseLost`.
    pub const fn is_expired(&self, now_ms: i64) -> bool {
        !self.released && now_ms >= self.expires_ms
    }

    fn check(&self, holder: &str, fence: Fence, now_ms: i64) -> Result<(), LeaseRefused> {
        if fence != self.fence {
            return Err(LeaseRefused::Stale {
                shown: fence,
                current: self.fence,
            });
        }
        if holder != self.holder {
            return Err(LeaseRefused::Claimed {
                fence,
                holder: self.holder.clone(),
            });
        }
        if self.released {
            return Err(LeaseRefused::Released { fence });
        }
        if self.is_expired(now_ms) {
            return Err(LeaseRefused::Expired {
                fence,
                late_ms: now_ms.saturating_sub(self.expires_ms),
            });
        }
        Ok(())
    }
}
