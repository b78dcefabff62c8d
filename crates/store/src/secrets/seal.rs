//! Envelope encryption: each secret has a data key of its own, which the master key seals.
//!
//! AES-256-GCM with a random 96-bit nonce before the sealed bytes. A data key seals one value and a master
//! key a few thousand data keys, so nonces cannot meet by chance. What is authenticated with each
//! (purpose, name, version) ties the bytes to their row: a row moved, renamed or rolled back does not
//! open.

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey},
    digest, rand,
};
use zeroize::Zeroizing;

use crate::{
    error::{Error, Result},
    tokens::hex,
};

pub(crate) const KEY_LEN: usize = 32;

/// A 256-bit key with the name by which rows refer to it. The name is derived from the key and tells
/// nothing about it.
#[derive(Clone)]
pub(crate) struct Key {
    bytes: Zeroizing<[u8; KEY_LEN]>,
    id: String,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.id)
    }
}

/// What a sealed blob is, and of which row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    DataKey,
    Value,
}

/// The row that a sealed blob belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: u64,
}

impl Key {
    pub(crate) fn new(bytes: Zeroizing<[u8; KEY_LEN]>) -> Self {
        let mut hash = digest::Context::new(&digest::SHA256);
        hash.update(b"bulkhead key id\0");
        hash.update(bytes.as_slice());
        let id = hex(&hash.finish().as_ref()[..8]);
        Self { bytes, id }
    }

    pub(crate) fn random() -> Result<Self> {
        let mut bytes = Zeroizing::new([0; KEY_LEN]);
        rand::fill(bytes.as_mut_slice()).map_err(|_| Error::Random)?;
        Ok(Self::new(bytes))
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_LEN] {
        &self.bytes
    }

    pub(crate) fn seal(&self, purpose: Purpose, place: Place<'_>, plain: &[u8]) -> Result<Vec<u8>> {
        let mut body = Zeroizing::new(plain.to_vec());
        let nonce = self
            .cipher()?
            .seal_in_place_append_tag(Aad::from(aad(purpose, place)), &mut *body)
            .map_err(|_| Error::Random)?;
        let mut sealed = nonce.as_ref().to_vec();
        sealed.extend_from_slice(&body);
        Ok(sealed)
    }

    pub(crate) fn open(
        &self,
        purpose: Purpose,
        place: Place<'_>,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>> {
        let failed = || Error::Unseal {
            name: place.name.to_owned(),
        };
        let (nonce, body) = sealed.split_at_checked(NONCE_LEN).ok_or_else(failed)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| failed())?;
        let mut body = Zeroizing::new(body.to_vec());
        let plain_len = self
            .cipher()?
            .open_in_place(nonce, Aad::from(aad(purpose, place)), &mut body)
            .map_err(|_| failed())?
            .len();
        body.truncate(plain_len);
        Ok(body)
    }

    fn cipher(&self) -> Result<RandomizedNonceKey> {
        RandomizedNonceKey::new(&AES_256_GCM, self.bytes.as_slice()).map_err(|_| Error::Random)
    }
}

/// A sealed value with its sealed data key: what a row holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) key_id: String,
    pub(crate) sealed_key: Vec<u8>,
    pub(crate) sealed: Vec<u8>,
}

impl Envelope {
    pub(crate) fn seal(master: &Key, place: Place<'_>, value: &[u8]) -> Result<Self> {
        let data = Key::random()?;
        Ok(Self {
            key_id: master.id().to_owned(),
            sealed_key: master.seal(Purpose::DataKey, place, data.bytes())?,
            sealed: data.seal(Purpose::Value, place, value)?,
        })
    }

    pub(crate) fn open(&self, master: &Key, place: Place<'_>) -> Result<Zeroizing<Vec<u8>>> {
        self.data_key(master, place)?
            .open(Purpose::Value, place, &self.sealed)
    }

    /// The same envelope under another master key; the value itself is not touched.
    pub(crate) fn reseal(&self, old: &Key, new: &Key, place: Place<'_>) -> Result<Self> {
        let data = self.data_key(old, place)?;
        Ok(Self {
            key_id: new.id().to_owned(),
            sealed_key: new.seal(Purpose::DataKey, place, data.bytes())?,
            sealed: self.sealed.clone(),
        })
    }

    fn data_key(&self, master: &Key, place: Place<'_>) -> Result<Key> {
        let plain = master.open(Purpose::DataKey, place, &self.sealed_key)?;
        let mut bytes = Zeroizing::new([0; KEY_LEN]);
        if plain.len() != KEY_LEN {
            return Err(Error::Unseal {
                name: place.name.to_owned(),
            });
        }
        bytes.copy_from_slice(&plain);
        Ok(Key::new(bytes))
    }
}

fn aad(purpose: Purpose, place: Place<'_>) -> Vec<u8> {
    let purpose: &[u8] = match purpose {
        Purpose::DataKey => b"bulkhead/data-key/1\0",
        Purpose::Value => b"bulkhead/value/1\0",
    };
    let mut aad = purpose.to_vec();
    aad.extend_from_slice(&place.version.to_le_bytes());
    aad.extend_from_slice(place.name.as_bytes());
    aad
}
