//! Leases with fencing (D2): who may act on a resource, until when, and under which number.
//!
//! ```text
//!   (none) ──claim──▶ held ──renew──▶ held            only the holder, only before it runs out
//!                      │ └──claim with a greater fence──▶ held by another
//!                      ├──time────▶ run out  ──claim with a greater fence──▶ held
//!                      └──release─▶ free     ──claim with a greater fence──▶ held
//! ```
//!
//! These are the rules of `bulkhead_model::lease`, each as one statement guarded by the fence. Fences come
//! from the run's machine, a greater one with each dispatch. The row of a resource is never deleted while
//! its run lives, so a number that was once refused is refused for ever.

use std::{fmt, sync::atomic::Ordering};

use bulkhead_model::{Fence, RunId};

use crate::{
    db::Connection,
    error::{Doing, Error, Result},
    store::Store,
};

/// What a lease is on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resource(String);

impl Resource {
    /// A run: its phases are performed one at a time, so each new dispatch fences off all before it.
    pub fn run(run: RunId) -> Self {
        Self(format!("run/{run}"))
    }

    pub fn named(name: &str) -> Self {
        Self(format!("named/{name}"))
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A lease as its holder keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub resource: Resource,
    pub holder: String,
    pub fence: Fence,
    pub expires_at_ms: i64,
}

impl Store {
    /// Claims a lease under the fence that the run's machine has given out. A greater fence takes it
    /// over, also from a living holder; the same one again is only its holder's repetition, while it
    /// still holds; a smaller one is refused for ever.
    pub async fn claim_lease(
        &self,
        resource: &Resource,
        holder: &str,
        fence: Fence,
        ttl_ms: i64,
        now_ms: i64,
    ) -> Result<Lease> {
        let until: Option<i64> = sqlx::query_scalar(
            "INSERT INTO leases (resource, holder, fence, expires_at) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (resource) DO UPDATE SET holder = excluded.holder, fence = excluded.fence, \
             expires_at = CASE WHEN leases.fence = excluded.fence THEN leases.expires_at \
                          ELSE excluded.expires_at END \
             WHERE leases.fence < excluded.fence OR (leases.fence = excluded.fence \
             AND leases.holder = excluded.holder AND leases.expires_at > $5) \
             RETURNING expires_at",
        )
        .bind(&resource.0)
        .bind(holder)
        .bind(fence.0 as i64)
        .bind(now_ms + ttl_ms)
        .bind(now_ms)
        .fetch_optional(self.db().write())
        .await
        .doing("claiming a lease")?;
        self.lease_moved();
        match until {
            Some(until) => Ok(lease(resource, holder, fence.0 as i64, until)),
            None => Err(stale(resource, fence)),
        }
    }

    /// Lengthens a lease that still holds. One that has run out is not renewed, even if nobody took
    /// it: the run may have been told already that its holder is lost.
    pub async fn renew_lease(&self, lease: &Lease, ttl_ms: i64, now_ms: i64) -> Result<Lease> {
        let until: Option<i64> = sqlx::query_scalar(
            "UPDATE leases SET expires_at = CASE WHEN expires_at > $4 THEN expires_at ELSE $4 END \
             WHERE resource = $1 AND holder = $2 AND fence = $3 AND expires_at > $5 \
             RETURNING expires_at",
        )
        .bind(&lease.resource.0)
        .bind(&lease.holder)
        .bind(lease.fence.0 as i64)
        .bind(now_ms + ttl_ms)
        .bind(now_ms)
        .fetch_optional(self.db().write())
        .await
        .doing("renewing a lease")?;
        match until {
            Some(expires_at_ms) => Ok(Lease {
                expires_at_ms,
                ..lease.clone()
            }),
            None => Err(stale(&lease.resource, lease.fence)),
        }
    }

    /// Gives a lease back. It is no error when it is no longer one's own.
    pub async fn release_lease(&self, lease: &Lease) -> Result<()> {
        sqlx::query(
            "UPDATE leases SET expires_at = 0 WHERE resource = $1 AND holder = $2 AND fence = $3",
        )
        .bind(&lease.resource.0)
        .bind(&lease.holder)
        .bind(lease.fence.0 as i64)
        .execute(self.db().write())
        .await
        .doing("giving back a lease")?;
        self.lease_moved();
        Ok(())
    }

    /// Ends every lease of a holder that is known to be gone, for example this server's own of
    /// before its restart. Fences stay, so whatever it left behind is refused.
    pub async fn expire_leases_of(&self, holder: &str) -> Result<u64> {
        let ended =
            sqlx::query("UPDATE leases SET expires_at = 0 WHERE holder = $1 AND expires_at > 0")
                .bind(holder)
                .execute(self.db().write())
                .await
                .doing("ending leases")?;
        self.lease_moved();
        Ok(ended.rows_affected())
    }

    /// The leases that have run out without having been given back.
    pub async fn expired_leases(&self, now_ms: i64) -> Result<Vec<Lease>> {
        let rows: Vec<(String, String, i64, i64)> = sqlx::query_as(
            "SELECT resource, holder, fence, expires_at FROM leases \
             WHERE expires_at > 0 AND expires_at <= $1 ORDER BY expires_at LIMIT 1000",
        )
        .bind(now_ms)
        .fetch_all(self.db().read())
        .await
        .doing("looking for leases that ran out")?;
        Ok(rows
            .into_iter()
            .map(|(resource, holder, fence, until)| {
                lease(&Resource(resource), &holder, fence, until)
            })
            .collect())
    }

    /// Refuses a fence that is not the resource's newest, or whose lease has run out.
    pub async fn check_fence(&self, resource: &Resource, fence: Fence, now_ms: i64) -> Result<()> {
        let mut connection = self.db().read().acquire().await.doing("checking a fence")?;
        require(&mut connection, resource, fence, now_ms).await
    }
}

/// A check that held, for as long as it must hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checked {
    moves: u64,
    until_ms: i64,
}

impl Store {
    /// As [`Store::check_fence`], for those who ask very often: an earlier check counts until the lease
    /// that it saw runs out, or any lease was claimed or given back. All claims on a data directory go
    /// through its one server, which is this process.
    pub(crate) async fn recheck_fence(
        &self,
        before: Option<Checked>,
        resource: &Resource,
        fence: Fence,
        now_ms: i64,
    ) -> Result<Checked> {
        let moves = self.lease_moves().load(Ordering::SeqCst);
        if let Some(checked) = before.filter(|it| it.moves == moves && now_ms < it.until_ms) {
            return Ok(checked);
        }
        let mut connection = self.db().read().acquire().await.doing("checking a fence")?;
        let until_ms = held_until(&mut connection, resource, fence, now_ms).await?;
        Ok(Checked { moves, until_ms })
    }

    fn lease_moved(&self) {
        self.lease_moves().fetch_add(1, Ordering::SeqCst);
    }
}

/// The same check inside a caller's transaction.
pub(crate) async fn require(
    tx: &mut Connection,
    resource: &Resource,
    fence: Fence,
    now_ms: i64,
) -> Result<()> {
    held_until(tx, resource, fence, now_ms).await.map(|_| ())
}

async fn held_until(
    tx: &mut Connection,
    resource: &Resource,
    fence: Fence,
    now_ms: i64,
) -> Result<i64> {
    let until: Option<i64> = sqlx::query_scalar(
        "SELECT expires_at FROM leases WHERE resource = $1 AND fence = $2 AND expires_at > $3",
    )
    .bind(&resource.0)
    .bind(fence.0 as i64)
    .bind(now_ms)
    .fetch_optional(tx)
    .await
    .doing("checking a fence")?;
    until.ok_or_else(|| stale(resource, fence))
}

fn lease(resource: &Resource, holder: &str, fence: i64, expires_at_ms: i64) -> Lease {
    Lease {
        resource: resource.clone(),
        holder: holder.to_owned(),
        fence: Fence(fence as u64),
        expires_at_ms,
    }
}

fn stale(resource: &Resource, fence: Fence) -> Error {
    Error::Stale {
        resource: resource.0.clone(),
        fence,
    }
}
