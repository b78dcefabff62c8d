//! Tokens: of phases (one attempt, one branch, gone with it) and of callers of the API.
//!
//! A token is 256 random bits, so its SHA-256 is as good as a slow hash; only that is stored.

use std::fmt::Write as _;

use aws_lc_rs::{digest, rand};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use bulkhead_model::Fence;
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::{
    error::{Doing, Error, Result, corrupt, encode},
    phase::{Held, PhaseKey},
    runs::page_size,
    store::{Store, require_held},
};

/// How long a caller's token may go unnoted between two uses, so that reads do not all become writes.
const LAST_USED_GRAIN_MS: i64 = 60_000;

/// What the bearer of a phase token may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseGrant {
    pub held: Held,
    /// The only ref it may push; none in a run without a repository.
    pub branch: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApiTokenId(Uuid);

impl std::fmt::Display for ApiTokenId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for ApiTokenId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        text.parse().map(Self).map_err(|_| Error::NotFound {
            kind: "token",
            name: text.to_owned(),
        })
    }
}

/// A caller's token as it may be shown: never the token itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiToken {
    pub id: ApiTokenId,
    pub name: String,
    pub scopes: Vec<String>,
    pub created_at_ms: i64,
    pub last_used_at_ms: Option<i64>,
    pub expires_at_ms: Option<i64>,
    pub revoked_at_ms: Option<i64>,
}

/// A caller's token to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewApiToken<'a> {
    pub name: &'a str,
    pub scopes: &'a [String],
    pub expires_at_ms: Option<i64>,
    pub now_ms: i64,
}

impl Store {
    /// Makes the token of one phase attempt. It is returned once and cannot be read back.
    pub async fn mint_phase_token(
        &self,
        held: &Held,
        branch: Option<&str>,
        now_ms: i64,
    ) -> Result<SecretString> {
        let token = random_token("bhp_")?;
        let mut tx = self.db().begin().await?;
        require_held(&mut tx, held, now_ms).await?;
        sqlx::query(
            "INSERT INTO phase_tokens (token_hash, run_id, phase, attempt, fence, branch, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(hash(&token))
        .bind(held.key.run.to_string())
        .bind(held.key.phase.as_str())
        .bind(i64::from(held.key.attempt))
        .bind(held.fence.0 as i64)
        .bind(branch)
        .bind(now_ms)
        .execute(&mut *tx)
        .await
        .doing("making a phase's token")?;
        tx.commit().await.doing("making a phase's token")?;
        Ok(token)
    }

    /// What a token grants now: nothing once it is revoked, its lease has moved on or has run out.
    pub async fn phase_grant(
        &self,
        token: &SecretString,
        now_ms: i64,
    ) -> Result<Option<PhaseGrant>> {
        let row: Option<(String, String, i64, i64, Option<String>)> = sqlx::query_as(
            "SELECT t.run_id, t.phase, t.attempt, t.fence, t.branch FROM phase_tokens t \
             JOIN leases l ON l.resource = 'run/' || t.run_id AND l.fence = t.fence \
             WHERE t.token_hash = $1 AND t.revoked_at IS NULL AND l.expires_at > $2",
        )
        .bind(hash(token))
        .bind(now_ms)
        .fetch_optional(self.db().read())
        .await
        .doing("looking up a phase's token")?;
        row.map(|(run, phase, attempt, fence, branch)| {
            Ok(PhaseGrant {
                held: Held {
                    key: PhaseKey::from_row(&run, &phase, attempt)?,
                    fence: Fence(fence as u64),
                },
                branch,
            })
        })
        .transpose()
    }

    /// Ends every token of an attempt.
    pub async fn revoke_phase_tokens(&self, key: &PhaseKey, now_ms: i64) -> Result<u64> {
        let revoked = sqlx::query(
            "UPDATE phase_tokens SET revoked_at = $4 \
             WHERE run_id = $1 AND phase = $2 AND attempt = $3 AND revoked_at IS NULL",
        )
        .bind(key.run.to_string())
        .bind(key.phase.as_str())
        .bind(i64::from(key.attempt))
        .bind(now_ms)
        .execute(self.db().write())
        .await
        .doing("revoking a phase's tokens")?;
        Ok(revoked.rows_affected())
    }

    /// Makes a caller's token. The token is returned once and cannot be read back.
    pub async fn create_api_token(
        &self,
        new: NewApiToken<'_>,
    ) -> Result<(ApiTokenId, SecretString)> {
        let id = ApiTokenId(Uuid::now_v7());
        let token = random_token("bht_")?;
        sqlx::query(
            "INSERT INTO api_tokens (id, token_hash, name, scopes, created_at, expires_at) \
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(id.to_string())
        .bind(hash(&token))
        .bind(new.name)
        .bind(serde_json::to_string(new.scopes).map_err(encode("a token's scopes"))?)
        .bind(new.now_ms)
        .bind(new.expires_at_ms)
        .execute(self.db().write())
        .await
        .doing("making a token")?;
        Ok((id, token))
    }

    /// The token's row, where it is known, not revoked and not expired; its use is noted.
    pub async fn api_token(&self, token: &SecretString, now_ms: i64) -> Result<Option<ApiToken>> {
        let row: Option<ApiTokenRow> = sqlx::query_as(
            "SELECT id, name, scopes, created_at, last_used_at, expires_at, revoked_at \
             FROM api_tokens WHERE token_hash = $1 AND revoked_at IS NULL \
             AND (expires_at IS NULL OR expires_at > $2)",
        )
        .bind(hash(token))
        .bind(now_ms)
        .fetch_optional(self.db().read())
        .await
        .doing("looking up a token")?;
        let Some(found) = row.map(api_token).transpose()? else {
            return Ok(None);
        };
        if found
            .last_used_at_ms
            .is_none_or(|last| now_ms - last >= LAST_USED_GRAIN_MS)
        {
            self.note_use(found.id, now_ms).await?;
        }
        Ok(Some(found))
    }

    pub async fn api_tokens(&self) -> Result<Vec<ApiToken>> {
        let rows: Vec<ApiTokenRow> = sqlx::query_as(
            "SELECT id, name, scopes, created_at, last_used_at, expires_at, revoked_at \
             FROM api_tokens ORDER BY created_at, id LIMIT $1",
        )
        .bind(page_size(1000))
        .fetch_all(self.db().read())
        .await
        .doing("listing tokens")?;
        rows.into_iter().map(api_token).collect()
    }

    pub async fn revoke_api_token(&self, id: ApiTokenId, now_ms: i64) -> Result<()> {
        let revoked = sqlx::query(
            "UPDATE api_tokens SET revoked_at = COALESCE(revoked_at, $2) WHERE id = $1",
        )
        .bind(id.to_string())
        .bind(now_ms)
        .execute(self.db().write())
        .await
        .doing("revoking a token")?;
        if revoked.rows_affected() == 1 {
            return Ok(());
        }
        Err(Error::NotFound {
            kind: "token",
            name: id.to_string(),
        })
    }

    async fn note_use(&self, id: ApiTokenId, now_ms: i64) -> Result<()> {
        sqlx::query("UPDATE api_tokens SET last_used_at = $2 WHERE id = $1")
            .bind(id.to_string())
            .bind(now_ms)
            .execute(self.db().write())
            .await
            .doing("noting the use of a token")?;
        Ok(())
    }
}

type ApiTokenRow = (
    String,
    String,
    String,
    i64,
    Option<i64>,
    Option<i64>,
    Option<i64>,
);

fn api_token(row: ApiTokenRow) -> Result<ApiToken> {
    let (id, name, scopes, created_at_ms, last_used_at_ms, expires_at_ms, revoked_at_ms) = row;
    Ok(ApiToken {
        id: ApiTokenId(id.parse().map_err(corrupt("a token's id"))?),
        name,
        scopes: serde_json::from_str(&scopes).map_err(corrupt("a token's scopes"))?,
        created_at_ms,
        last_used_at_ms,
        expires_at_ms,
        revoked_at_ms,
    })
}

/// 256 random bits, with a prefix by which people and scanners know what they found.
fn random_token(prefix: &str) -> Result<SecretString> {
    let mut bits = Zeroizing::new([0_u8; 32]);
    rand::fill(bits.as_mut_slice()).map_err(|_| Error::Random)?;
    let text = Zeroizing::new(BASE64_URL_SAFE_NO_PAD.encode(bits.as_slice()));
    Ok(SecretString::from(format!("{prefix}{}", text.as_str())))
}

fn hash(token: &SecretString) -> String {
    hex(digest::digest(&digest::SHA256, token.expose_secret().as_bytes()).as_ref())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
