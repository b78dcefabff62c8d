//! Keys as authors have them (raw, DER or PEM), and signatures with Ed25519.

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use bulkhead_engine::{Thrown, Value};

use super::{
    arguments::{Arguments, Form},
    text,
};

const SEED_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 64;
/// What stands before the 32 bytes of a public key in its DER form (RFC 8410).
const SPKI_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// `ed25519Sign(privateKey, data, encoding?)`. There is no parameter for the public key: one that does not belong to
/// the private key would give that away.
pub(super) fn sign(arguments: &Arguments) -> Result<Value, Thrown> {
    let wrong = || {
        arguments.wrong(
            "privateKey",
            "a seed of 32 bytes, or an Ed25519 key in PKCS #8, as PEM or its bytes",
        )
    };
    let key = key_bytes(arguments.get(0), &["PRIVATE KEY"]).ok_or_else(wrong)?;
    let pair = match key.len() {
        SEED_BYTES => Ed25519KeyPair::from_seed_unchecked(&key),
        // Where the file has the public key too, it must be the right one.
        _ => Ed25519KeyPair::from_pkcs8_maybe_unchecked(&key),
    };
    let pair = pair.map_err(|_| wrong())?;
    let data = arguments.data(1, "data")?;
    let form = arguments.form(2, Form::Bytes)?;
    arguments.give(pair.sign(&data).as_ref().to_vec(), form)
}

/// `ed25519Verify(publicKey, signature, data)`.
pub(super) fn verify(arguments: &Arguments) -> Result<Value, Thrown> {
    let key = key_bytes(arguments.get(0), &["PUBLIC KEY"]);
    let key = key.as_deref().and_then(public_key).ok_or_else(|| {
        arguments.wrong(
            "publicKey",
            "32 bytes, or an Ed25519 key in SPKI, as PEM or its bytes",
        )
    })?;
    let signature = arguments.only_bytes(1, "signature")?;
    let data = arguments.data(2, "data")?;
    let is_right = signature.len() == SIGNATURE_BYTES
        && UnparsedPublicKey::new(&ED25519, key)
            .verify(&data, &signature)
            .is_ok();
    Ok(Value::Bool(is_right))
}

fn public_key(bytes: &[u8]) -> Option<&[u8]> {
    let raw = bytes.strip_prefix(&SPKI_PREFIX).unwrap_or(bytes);
    (raw.len() == SEED_BYTES).then_some(raw)
}

/// The bytes of a key that is given as bytes, or as PEM with one of these labels.
pub(super) fn key_bytes(value: &Value, labels: &[&str]) -> Option<Vec<u8>> {
    match value {
        Value::Bytes(bytes) => Some(bytes.to_vec()),
        Value::String(pem) => labels.iter().find_map(|label| from_pem(pem, label)),
        _ => None,
    }
}

/// The one block of a PEM text.
fn from_pem(pem: &str, label: &str) -> Option<Vec<u8>> {
    let inside = pem
        .trim()
        .strip_prefix(&format!("-----BEGIN {label}-----"))?
        .strip_suffix(&format!("-----END {label}-----"))?;
    let base64: String = inside.split_ascii_whitespace().collect();
    text::from_base64(&base64)
}
