//! Hashes, message authentication, and comparing without telling by the time it takes.

use aws_lc_rs::{constant_time, digest, hmac};
use bulkhead_engine::{Thrown, Value};

use super::arguments::{Arguments, Form};

const ALGORITHMS: &str = "\"sha1\", \"sha256\", \"sha384\" or \"sha512\"";

/// `hash(algorithm, data, encoding?)`.
pub(super) fn hash(arguments: &Arguments) -> Result<Value, Thrown> {
    let algorithm = match arguments.text(0, "algorithm")? {
        "sha1" => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        "sha256" => &digest::SHA256,
        "sha384" => &digest::SHA384,
        "sha512" => &digest::SHA512,
        _ => return Err(arguments.wrong("algorithm", ALGORITHMS)),
    };
    let data = arguments.data(1, "data")?;
    let form = arguments.form(2, Form::Hex)?;
    let digest = digest::digest(algorithm, &data);
    arguments.give(digest.as_ref().to_vec(), form)
}

/// `hmac(algorithm, key, data, encoding?)`.
pub(super) fn hmac(arguments: &Arguments) -> Result<Value, Thrown> {
    let algorithm = match arguments.text(0, "algorithm")? {
        "sha1" => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        "sha256" => hmac::HMAC_SHA256,
        "sha384" => hmac::HMAC_SHA384,
        "sha512" => hmac::HMAC_SHA512,
        _ => return Err(arguments.wrong("algorithm", ALGORITHMS)),
    };
    let key = arguments.data(1, "key")?;
    if key.is_empty() {
        // Whoever has no secret yet would sign what anybody can sign.
        return Err(arguments.wrong("key", "not empty; is the secret set?"));
    }
    let data = arguments.data(2, "data")?;
    let form = arguments.form(3, Form::Hex)?;
    let tag = hmac::sign(&hmac::Key::new(algorithm, &key), &data);
    arguments.give(tag.as_ref().to_vec(), form)
}

/// `timingSafeEqual(a, b)`: whether two are the same. Only their lengths show in the time that it takes.
pub(super) fn timing_safe_equal(arguments: &Arguments) -> Result<Value, Thrown> {
    let (a, b) = (arguments.data(0, "a")?, arguments.data(1, "b")?);
    let is_equal = constant_time::verify_slices_are_equal(&a, &b).is_ok();
    Ok(Value::Bool(is_equal))
}
