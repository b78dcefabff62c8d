//! Secrets at rest (D7, R17): set, listed by name, rotated and removed; values are sealed, and are read back
//! only to be handed to a phase that names them.

mod keyring;
mod seal;
mod weak;

use bulkhead_model::SecretName;
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

pub(crate) use keyring::Keyring;
pub use keyring::MasterKey;

use crate::{
    db::{Connection, Tx},
    error::{Doing, Error, Result, corrupt},
    store::Store,
};
use seal::{Envelope, Key, Place};

/// The largest value of a secret.
pub const MAX_SECRET_BYTES: usize = 64 << 10;

/// A secret as it may be shown: never its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretInfo {
    pub name: SecretName,
    /// Grows with each new value.
    pub version: u64,
    /// The master key under which it is sealed.
    pub key_id: String,
    pub updated_at_ms: i64,
}

impl Store {
    /// Sets a secret that does not exist yet, or gives an existing one a new value. Returns its version.
    /// Refuses values that could not be masked without making logs unreadable (case 30).
    pub async fn set_secret(
        &self,
        name: &SecretName,
        value: &SecretString,
        now_ms: i64,
    ) -> Result<u64> {
        check_value(name, value)?;
        let mut tx = self.db().begin().await?;
        let version = 1 + version_of(&mut tx, name).await?.unwrap_or(0);
        self.put_secret(&mut tx, name, version, value, now_ms)
            .await?;
        tx.commit().await.doing("setting a secret")?;
        Ok(version)
    }

    /// Gives an existing secret a new value; one that does not exist is an error.
    pub async fn rotate_secret(
        &self,
        name: &SecretName,
        value: &SecretString,
        now_ms: i64,
    ) -> Result<u64> {
        check_value(name, value)?;
        let mut tx = self.db().begin().await?;
        let version = 1 + version_of(&mut tx, name)
            .await?
            .ok_or_else(|| unknown(name))?;
        self.put_secret(&mut tx, name, version, value, now_ms)
            .await?;
        tx.commit().await.doing("rotating a secret")?;
        Ok(version)
    }

    pub async fn remove_secret(&self, name: &SecretName) -> Result<()> {
        let removed = sqlx::query("DELETE FROM secrets WHERE name = $1")
            .bind(name.as_str())
            .execute(self.db().write())
            .await
            .doing("removing a secret")?;
        match removed.rows_affected() {
            0 => Err(unknown(name)),
            _ => Ok(()),
        }
    }

    pub async fn secrets(&self) -> Result<Vec<SecretInfo>> {
        let rows: Vec<(String, i64, String, i64)> = sqlx::query_as(
            "SELECT name, version, key_id, updated_at FROM secrets ORDER BY name LIMIT 10000",
        )
        .fetch_all(self.db().read())
        .await
        .doing("listing secrets")?;
        rows.into_iter()
            .map(|(name, version, key_id, updated_at_ms)| {
                Ok(SecretInfo {
                    name: name.parse().map_err(corrupt("a secret's name"))?,
                    version: version as u64,
                    key_id,
                    updated_at_ms,
                })
            })
            .collect()
    }

    /// The value, for a phase that names it.
    pub async fn secret(&self, name: &SecretName) -> Result<SecretString> {
        let mut connection = self.db().read().acquire().await.doing("reading a secret")?;
        let (version, envelope) = read(&mut connection, name)
            .await?
            .ok_or_else(|| unknown(name))?;
        let master = self.keyring().key(self.dir(), &envelope.key_id)?;
        let place = Place {
            name: name.as_str(),
            version,
        };
        let plain = envelope.open(&master, place)?;
        let text = String::from_utf8(plain.to_vec())
            .map(Zeroizing::new)
            .map_err(|_| Error::Unseal {
                name: name.to_string(),
            })?;
        Ok(SecretString::from(text.as_str()))
    }

    /// Seals every secret under another master key: a new random one in the key file, or the one that
    /// is handed in (where keys are handed in, the caller's next start must bring the new one). Returns
    /// the new key's id and how many secrets were sealed anew.
    pub async fn rotate_master_key(&self, new: MasterKey, now_ms: i64) -> Result<(String, usize)> {
        let new = match (new, self.keyring().is_file()) {
            (MasterKey::File, true) => Key::random()?,
            (MasterKey::Given(text), false) => keyring::parse_key(text.expose_secret())?,
            _ => return Err(Error::MasterKeyPlace),
        };
        let _alone = self.keyring().add(self.dir(), &new)?;
        let mut tx = self.db().begin().await?;
        let count = self.reseal_all(&mut tx, &new).await?;
        Keyring::activate(&mut tx, &new, now_ms).await?;
        tx.commit().await.doing("rotating the master key")?;
        self.keyring().keep_only(self.dir(), &new)?;
        Ok((new.id().to_owned(), count))
    }

    async fn put_secret(
        &self,
        tx: &mut Tx,
        name: &SecretName,
        version: u64,
        value: &SecretString,
        now_ms: i64,
    ) -> Result<()> {
        let master = self.keyring().active(self.dir(), &mut *tx).await?;
        let place = Place {
            name: name.as_str(),
            version,
        };
        let envelope = Envelope::seal(&master, place, value.expose_secret().as_bytes())?;
        sqlx::query(
            "INSERT INTO secrets (name, version, key_id, sealed_key, sealed, updated_at) \
             VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (name) DO UPDATE SET version = excluded.version, key_id = excluded.key_id, \
             sealed_key = excluded.sealed_key, sealed = excluded.sealed, \
             updated_at = excluded.updated_at",
        )
        .bind(name.as_str())
        .bind(version as i64)
        .bind(&envelope.key_id)
        .bind(&envelope.sealed_key)
        .bind(&envelope.sealed)
        .bind(now_ms)
        .execute(&mut **tx)
        .await
        .doing("writing a secret")?;
        Ok(())
    }

    async fn reseal_all(&self, tx: &mut Tx, new: &Key) -> Result<usize> {
        let names: Vec<String> = sqlx::query_scalar("SELECT name FROM secrets")
            .fetch_all(&mut **tx)
            .await
            .doing("listing secrets")?;
        for name in &names {
            let name: SecretName = name.parse().map_err(corrupt("a secret's name"))?;
            let (version, envelope) = read(&mut *tx, &name).await?.ok_or_else(|| unknown(&name))?;
            let old = self.keyring().key(self.dir(), &envelope.key_id)?;
            let place = Place {
                name: name.as_str(),
                version,
            };
            let resealed = envelope.reseal(&old, new, place)?;
            sqlx::query("UPDATE secrets SET key_id = $2, sealed_key = $3 WHERE name = $1")
                .bind(name.as_str())
                .bind(&resealed.key_id)
                .bind(&resealed.sealed_key)
                .execute(&mut **tx)
                .await
                .doing("sealing a secret anew")?;
        }
        Ok(names.len())
    }
}

fn check_value(name: &SecretName, value: &SecretString) -> Result<()> {
    let size = value.expose_secret().len();
    if size > MAX_SECRET_BYTES {
        return Err(Error::TooLarge {
            what: "the secret's value",
            size: size as u64,
            max: MAX_SECRET_BYTES as u64,
        });
    }
    match weak::weakness(value.expose_secret()) {
        Some(why) => Err(Error::WeakSecret {
            name: name.clone(),
            why,
        }),
        None => Ok(()),
    }
}

fn unknown(name: &SecretName) -> Error {
    Error::NotFound {
        kind: "secret",
        name: name.to_string(),
    }
}

async fn version_of(tx: &mut Connection, name: &SecretName) -> Result<Option<u64>> {
    let version: Option<i64> = sqlx::query_scalar("SELECT version FROM secrets WHERE name = $1")
        .bind(name.as_str())
        .fetch_optional(tx)
        .await
        .doing("looking for a secret")?;
    Ok(version.map(|version| version as u64))
}

async fn read(connection: &mut Connection, name: &SecretName) -> Result<Option<(u64, Envelope)>> {
    let row: Option<(i64, String, Vec<u8>, Vec<u8>)> =
        sqlx::query_as("SELECT version, key_id, sealed_key, sealed FROM secrets WHERE name = $1")
            .bind(name.as_str())
            .fetch_optional(connection)
            .await
            .doing("reading a secret")?;
    Ok(row.map(|(version, key_id, sealed_key, sealed)| {
        (
            version as u64,
            Envelope {
                key_id,
                sealed_key,
                sealed,
            },
        )
    }))
}
