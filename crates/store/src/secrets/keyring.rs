//! The master key: from the file `key` in the data directory, or handed in by the caller.
//!
//! Which key is in use is a row of the database, so that a rotation takes effect in the very transaction
//! that seals everything anew:
//!
//! ```text
//!   file: old ──▶ file: old, new ──▶ commit: all rows and the active id are new ──▶ file: new
//! ```
//!
//! A crash at any arrow leaves a file that opens what the database holds; the next server start drops
//! what is no longer needed. The file `key.lock` keeps two rotations, or a rotation and that clean-up,
//! from meeting.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    sync::{Mutex, PoisonError},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use super::seal::{KEY_LEN, Key};
use crate::{
    db::{Connection, Db},
    dir::{DataDir, private_file, require_private},
    error::{Doing, Error, Result, file},
    settings,
};

/// Where the master key comes from.
#[derive(Debug, Clone, Default)]
pub enum MasterKey {
    /// The file `key` in the data directory, made on first use.
    #[default]
    File,
    /// Handed in: 32 bytes in base64 or hex. The caller has it from its environment or a secret manager.
    Given(SecretString),
}

const ACTIVE: &str = "master-key";

/// The master keys that this process knows.
#[derive(Debug)]
pub(crate) struct Keyring {
    from_file: bool,
    keys: Mutex<Vec<Key>>,
}

impl Keyring {
    pub(crate) async fn open(dir: &DataDir, db: &Db, master: MasterKey) -> Result<Self> {
        let _alone = lock(dir)?;
        let mut writer = db.write().acquire().await.doing("reading the active key")?;
        let active: Option<String> = settings::read(&mut writer, ACTIVE).await?;
        let (from_file, keys) = match master {
            MasterKey::Given(text) => (false, vec![parse_key(text.expose_secret())?]),
            MasterKey::File => (true, file_keys(dir, active.as_deref())?),
        };
        let keyring = Self {
            from_file,
            keys: Mutex::new(keys),
        };
        match active {
            None => {
                let first = keyring.first()?;
                settings::write(&mut writer, ACTIVE, &first.id(), 0).await?;
            }
            Some(active) => keyring.settle(dir, &active)?,
        }
        Ok(keyring)
    }

    /// Whether the keys are in the data directory's file.
    pub(crate) const fn is_file(&self) -> bool {
        self.from_file
    }

    /// The key that seals now, as the transaction sees it.
    pub(crate) async fn active(&self, dir: &DataDir, tx: &mut Connection) -> Result<Key> {
        let id: Option<String> = settings::read(tx, ACTIVE).await?;
        match id {
            Some(id) => self.key(dir, &id),
            None => self.first(),
        }
    }

    /// Makes a key the active one, together with whatever else the transaction does.
    pub(crate) async fn activate(tx: &mut Connection, key: &Key, now_ms: i64) -> Result<()> {
        settings::write(tx, ACTIVE, &key.id(), now_ms).await
    }

    /// A key by its id. Another process may have rotated, so an unknown one is looked for in the file.
    pub(crate) fn key(&self, dir: &DataDir, id: &str) -> Result<Key> {
        if let Some(key) = self.known(id) {
            return Ok(key);
        }
        if self.from_file {
            self.replace(read_file(dir)?);
        }
        self.known(id).ok_or_else(|| Error::MasterKeyMissing {
            wanted: id.to_owned(),
        })
    }

    /// The first step of a rotation: the new key is durable beside the old one. Returns with the lock
    /// that must be held until the last step.
    pub(crate) fn add(&self, dir: &DataDir, key: &Key) -> Result<File> {
        let alone = lock(dir)?;
        if self.from_file {
            let mut keys = read_file(dir)?;
            keys.push(key.clone());
            write_file(dir, &keys)?;
            self.replace(keys);
        } else {
            self.guard().push(key.clone());
        }
        Ok(alone)
    }

    /// The last step of a rotation: only the new key is left.
    pub(crate) fn keep_only(&self, dir: &DataDir, key: &Key) -> Result<()> {
        if self.from_file {
            write_file(dir, std::slice::from_ref(key))?;
        }
        self.replace(vec![key.clone()]);
        Ok(())
    }

    /// At a start: the active key must be here, and what a broken-off rotation left is dropped.
    fn settle(&self, dir: &DataDir, active: &str) -> Result<()> {
        let key = self.known(active).ok_or_else(|| Error::MasterKeyMissing {
            wanted: active.to_owned(),
        })?;
        if self.from_file && self.guard().len() > 1 {
            tracing::warn!(
                active,
                "dropping the master keys that an unfinished rotation left"
            );
            self.keep_only(dir, &key)?;
        }
        Ok(())
    }

    fn first(&self) -> Result<Key> {
        self.guard().first().cloned().ok_or(Error::MasterKeyForm)
    }

    fn known(&self, id: &str) -> Option<Key> {
        self.guard().iter().find(|key| key.id() == id).cloned()
    }

    fn replace(&self, keys: Vec<Key>) {
        *self.guard() = keys;
    }

    fn guard(&self) -> std::sync::MutexGuard<'_, Vec<Key>> {
        // The list is replaced in one step, so a panic elsewhere cannot have left it half-made.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock(dir: &DataDir) -> Result<File> {
    let path = dir.root().join("key.lock");
    let held = private_file(&path)?;
    held.lock().map_err(file("lock", path))?;
    Ok(held)
}

/// The keys of the file; a first one is made only where the database does not ask for any yet.
fn file_keys(dir: &DataDir, active: Option<&str>) -> Result<Vec<Key>> {
    match (dir.key().exists(), active) {
        (true, _) => read_file(dir),
        (false, None) => {
            let keys = vec![Key::random()?];
            write_file(dir, &keys)?;
            Ok(keys)
        }
        (false, Some(active)) => Err(Error::MasterKeyMissing {
            wanted: active.to_owned(),
        }),
    }
}

fn read_file(dir: &DataDir) -> Result<Vec<Key>> {
    let path = dir.key();
    let mode = fs::metadata(&path)
        .map_err(file("look at", &path))?
        .permissions()
        .mode();
    require_private(&path, mode, 0o600)?;
    let text = Zeroizing::new(fs::read_to_string(&path).map_err(file("read", &path))?);
    let keys = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(parse_key)
        .collect::<Result<Vec<_>>>()?;
    if keys.is_empty() {
        return Err(Error::MasterKeyForm);
    }
    Ok(keys)
}

/// Replaces the file in one step; it is on disk when this returns.
fn write_file(dir: &DataDir, keys: &[Key]) -> Result<()> {
    let path = dir.key();
    let beside = dir.root().join("key.new");
    let mut text = Zeroizing::new(String::from(
        "# Bulkhead's master key. Whoever has this file and the database has every secret; without it \
         they are lost.\n# Keep a copy of it apart from the copies of the database.\n",
    ));
    for key in keys {
        text.push_str(&Zeroizing::new(BASE64_STANDARD.encode(key.bytes())));
        text.push('\n');
    }
    // A file that a crash left behind may have any mode: it is made anew.
    let _ = fs::remove_file(&beside);
    let mut target = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .map_err(file("make", &beside))?;
    target
        .write_all(text.as_bytes())
        .and_then(|()| target.sync_all())
        .and_then(|()| fs::rename(&beside, &path))
        .and_then(|()| File::open(dir.root())?.sync_all())
        .map_err(file("write", &path))
}

/// A key in base64 or hex.
pub(crate) fn parse_key(text: &str) -> Result<Key> {
    let text = text.trim();
    let bytes = match text.len() {
        64 => Zeroizing::new(from_hex(text)),
        _ => Zeroizing::new(BASE64_STANDARD.decode(text).ok()),
    };
    let bytes = bytes.as_deref().ok_or(Error::MasterKeyForm)?;
    let bytes: [u8; KEY_LEN] = bytes.try_into().map_err(|_| Error::MasterKeyForm)?;
    Ok(Key::new(Zeroizing::new(bytes)))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::try_from(digit(&pair[0])? * 16 + digit(pair.get(1)?)?).ok())
        .collect()
}
