//! Bytes as text, strictly, and random ones.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bulkhead_engine::{Thrown, Value};

use super::{
    arguments::{Arguments, Form},
    failed, limit,
};
use crate::drive::Shared;

/// As in browsers.
const RANDOM_BYTES_MAX: u32 = 65_536;

pub(super) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

pub(super) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(super) fn to_base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Base64 of URLs without padding, as tokens have it. Nothing else is taken, not even bits that mean nothing.
pub(super) fn from_base64url(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs
        .iter()
        .map(|[high, low]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok())
        .collect()
}

/// `encode(data, alphabet?)`.
pub(super) fn base64_encode(arguments: &Arguments) -> Result<Value, Thrown> {
    let data = arguments.data(0, "data")?;
    Ok(match is_url(arguments, 1)? {
        true => to_base64url(&data).into(),
        false => to_base64(&data).into(),
    })
}

/// `decode(text, alphabet?, encoding?)`.
pub(super) fn base64_decode(arguments: &Arguments) -> Result<Value, Thrown> {
    let text = arguments.text(0, "text")?;
    let (bytes, kind) = match is_url(arguments, 1)? {
        true => (from_base64url(text), "base64url, without padding"),
        false => (from_base64(text), "base64, with its padding"),
    };
    let form = arguments.form(2, Form::Bytes)?;
    let bytes = bytes.ok_or_else(|| arguments.wrong("text", &format!("strict {kind}")))?;
    arguments.give(bytes, form)
}

fn is_url(arguments: &Arguments, index: usize) -> Result<bool, Thrown> {
    match arguments.get(index) {
        Value::Undefined => Ok(false),
        Value::String(name) if name == "standard" => Ok(false),
        Value::String(name) if name == "url" => Ok(true),
        _ => Err(arguments.wrong("alphabet", "\"standard\" or \"url\"")),
    }
}

/// `encode(data)`.
pub(super) fn hex_encode(arguments: &Arguments) -> Result<Value, Thrown> {
    Ok(to_hex(&arguments.data(0, "data")?).into())
}

/// `decode(text, encoding?)`.
pub(super) fn hex_decode(arguments: &Arguments) -> Result<Value, Thrown> {
    let text = arguments.text(0, "text")?;
    let form = arguments.form(1, Form::Bytes)?;
    let bytes = from_hex(text);
    let bytes = bytes.ok_or_else(|| arguments.wrong("text", "pairs of hexadecimal digits"))?;
    arguments.give(bytes, form)
}

/// `randomBytes(size, encoding?)`.
pub(super) fn random_bytes(shared: &Shared, arguments: &Arguments) -> Result<Value, Thrown> {
    let wanted = format!("a whole number from 0 to {RANDOM_BYTES_MAX}");
    let size = arguments
        .get(0)
        .as_number()
        .filter(|size| *size >= 0.0 && size.fract() == 0.0);
    let Some(size) = size else {
        return Err(arguments.wrong("size", &wanted));
    };
    if size > f64::from(RANDOM_BYTES_MAX) {
        return Err(limit(format!(
            "host.{}: size must be {wanted}",
            arguments.path
        )));
    }
    let form = arguments.form(1, Form::Bytes)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "looked at just above"
    )]
    let mut bytes = vec![0; size as usize];
    fill(shared, &mut bytes)?;
    arguments.give(bytes, form)
}

/// A random UUID, version 4.
pub(super) fn random_uuid(shared: &Shared) -> Result<Value, Thrown> {
    let mut bytes = [0; 16];
    fill(shared, &mut bytes)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = to_hex(&bytes);
    let (a, rest) = hex.split_at(8);
    let (b, rest) = rest.split_at(4);
    let (c, rest) = rest.split_at(4);
    let (d, e) = rest.split_at(4);
    Ok(format!("{a}-{b}-{c}-{d}-{e}").into())
}

fn fill(shared: &Shared, bytes: &mut [u8]) -> Result<(), Thrown> {
    shared
        .random
        .fill(bytes)
        .map_err(|_| failed("the kernel gives no random numbers"))
}
