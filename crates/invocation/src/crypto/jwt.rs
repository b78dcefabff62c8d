//! Tokens signed with RS256 (RFC 7515, 7519), checked by hand and strictly.
//!
//! The algorithm is pinned: what the token's header says is compared with it and never followed. So is no address and
//! no key that a token brings along. Claims of a wrong type are refused even where nobody asks for them.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey};
use bulkhead_engine::{Json, JsonLimits, Thrown, Value};
use serde_json::{Map, Value as JsonValue};

use super::{arguments::Arguments, failed, keys::key_bytes, text};

const ALGORITHM: &str = "RS256";
/// A clock that is further off is no clock.
const TOLERANCE_MAX_SECONDS: u64 = 600;
/// The largest number that is surely the one which was written.
const SAFE_INTEGER: u64 = (1 << 53) - 1;

type Object = Map<String, JsonValue>;

enum Key {
    Der(Vec<u8>),
    Components { n: Vec<u8>, e: Vec<u8> },
}

#[derive(Default)]
struct Wanted {
    issuer: Option<String>,
    audience: Option<String>,
    tolerance_seconds: u64,
}

/// `jwtVerify(token, key, options?)`: the header and the payload of a token that is to be believed.
pub(super) fn verify(arguments: &Arguments) -> Result<Value, Thrown> {
    let token = arguments.text(0, "token")?;
    let key = key(arguments)?;
    let wanted = wanted(arguments)?;
    let now_seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.as_secs());
    let (header, payload) = check(token, &key, &wanted, now_seconds)
        .map_err(|reason| failed(format!("host.crypto.jwtVerify: {reason}")))?;
    let text = format!(r#"{{"header":{header},"payload":{payload}}}"#);
    Ok(Value::Json(Json {
        text,
        body: None,
        limits: JsonLimits::of_bytes(4 << 20),
    }))
}

/// The texts of header and payload.
fn check(
    token: &str,
    key: &Key,
    wanted: &Wanted,
    now_seconds: u64,
) -> Result<(String, String), String> {
    let [header, payload, signature] = parts(token)?;
    let header_text = decode(header, "header")?;
    check_header(&object(&header_text, "header")?)?;
    let signature = text::from_base64url(signature)
        .filter(|signature| !signature.is_empty())
        .ok_or("its signature is no base64url")?;
    let signed = &token[..header.len() + 1 + payload.len()];
    if !is_signed(key, signed.as_bytes(), &signature) {
        return Err("its signature is not right for this key".into());
    }
    let payload_text = decode(payload, "payload")?;
    check_claims(&object(&payload_text, "payload")?, wanted, now_seconds)?;
    Ok((header_text, payload_text))
}

fn parts(token: &str) -> Result<[&str; 3], String> {
    let parts: Vec<&str> = token.splitn(5, '.').collect();
    parts
        .try_into()
        .map_err(|_| "it has not exactly three parts".into())
}

fn decode(part: &str, name: &str) -> Result<String, String> {
    let bytes = text::from_base64url(part).ok_or_else(|| format!("its {name} is no base64url"))?;
    String::from_utf8(bytes).map_err(|_| format!("its {name} is no UTF-8"))
}

fn object(text: &str, name: &str) -> Result<Object, String> {
    let fits = bulkhead_engine::check_json(text, &JsonLimits::of_bytes(1 << 20));
    fits.map_err(|(_, reason)| format!("its {name} {reason}"))?;
    match serde_json::from_str(text) {
        Ok(JsonValue::Object(object)) => Ok(object),
        _ => Err(format!("its {name} is no JSON object")),
    }
}

fn check_header(header: &Object) -> Result<(), String> {
    if header.get("alg").and_then(JsonValue::as_str) != Some(ALGORITHM) {
        return Err(format!("its alg is not {ALGORITHM}"));
    }
    // Nothing that a header may call critical is known here, and `b64` changes what is signed.
    for name in ["crit", "b64"] {
        if header.contains_key(name) {
            return Err(format!("its header has {name}, which is not known here"));
        }
    }
    Ok(())
}

fn is_signed(key: &Key, signed: &[u8], signature: &[u8]) -> bool {
    let parameters = &RSA_PKCS1_2048_8192_SHA256;
    match key {
        Key::Der(der) => UnparsedPublicKey::new(parameters, der)
            .verify(signed, signature)
            .is_ok(),
        Key::Components { n, e } => RsaPublicKeyComponents { n, e }
            .verify(parameters, signed, signature)
            .is_ok(),
    }
}

fn check_claims(claims: &Object, wanted: &Wanted, now_seconds: u64) -> Result<(), String> {
    let time = |name: &str| -> Result<Option<u64>, String> {
        match claims.get(name) {
            None => Ok(None),
            Some(value) => match value.as_u64().filter(|time| *time <= SAFE_INTEGER) {
                Some(time) => Ok(Some(time)),
                None => Err(format!("its {name} is no whole number of seconds")),
            },
        }
    };
    let tolerance = wanted.tolerance_seconds;
    if time("exp")?.is_some_and(|exp| now_seconds >= exp + tolerance) {
        return Err("it has expired (exp)".into());
    }
    for name in ["nbf", "iat"] {
        if time(name)?.is_some_and(|time| time > now_seconds + tolerance) {
            return Err(format!("it is not valid yet ({name})"));
        }
    }
    check_names(claims, wanted)
}

fn check_names(claims: &Object, wanted: &Wanted) -> Result<(), String> {
    for name in ["iss", "sub", "jti"] {
        if claims.get(name).is_some_and(|value| !value.is_string()) {
            return Err(format!("its {name} is no string"));
        }
    }
    let audiences: Vec<&JsonValue> = match claims.get("aud") {
        None => Vec::new(),
        Some(JsonValue::Array(list)) => list.iter().collect(),
        Some(one) => vec![one],
    };
    if !audiences.iter().all(|audience| audience.is_string()) {
        return Err("its aud is neither a string nor a list of strings".into());
    }
    if let Some(issuer) = &wanted.issuer
        && claims.get("iss").and_then(JsonValue::as_str) != Some(issuer)
    {
        return Err("it is from another issuer (iss)".into());
    }
    if let Some(audience) = &wanted.audience
        && !audiences.iter().any(|one| one.as_str() == Some(audience))
    {
        return Err("it is for another audience (aud)".into());
    }
    Ok(())
}

/// A public RSA key of 2048 to 8192 bits: PEM, DER, or a JWK.
fn key(arguments: &Arguments) -> Result<Key, Thrown> {
    let wrong = || {
        arguments.wrong(
            "key",
            "a public RSA key of 2048 to 8192 bits: PEM, its bytes (DER), or a JWK for RS256 signatures",
        )
    };
    match arguments.get(1) {
        Value::Json(json) => from_jwk(&json.text).ok_or_else(wrong),
        value => key_bytes(value, &["PUBLIC KEY", "RSA PUBLIC KEY"])
            .map(Key::Der)
            .ok_or_else(wrong),
    }
}

/// None where the key says that it is for something else.
fn from_jwk(text: &str) -> Option<Key> {
    let JsonValue::Object(jwk) = serde_json::from_str(text).ok()? else {
        return None;
    };
    let is = |name: &str, value: &str| jwk.get(name).is_none_or(|found| found == value);
    let verifies = match jwk.get("key_ops") {
        None => true,
        Some(JsonValue::Array(operations)) => operations.iter().any(|one| one == "verify"),
        Some(_) => false,
    };
    if jwk.get("kty")? != "RSA" || !is("alg", ALGORITHM) || !is("use", "sig") || !verifies {
        return None;
    }
    let number = |name: &str| text::from_base64url(jwk.get(name)?.as_str()?);
    let (n, e) = (number("n")?, number("e")?);
    Some(Key::Components { n, e })
}

fn wanted(arguments: &Arguments) -> Result<Wanted, Thrown> {
    let wrong = || {
        arguments.wrong(
            "options",
            "{ issuer?: string, audience?: string, clockToleranceSeconds?: number up to 600 }",
        )
    };
    let json = match arguments.get(2) {
        Value::Undefined => return Ok(Wanted::default()),
        Value::Json(json) => json,
        _ => return Err(wrong()),
    };
    let Ok(JsonValue::Object(options)) = serde_json::from_str(&json.text) else {
        return Err(wrong());
    };
    let mut wanted = Wanted::default();
    for (name, value) in options {
        match (name.as_str(), value) {
            ("issuer", JsonValue::String(issuer)) => wanted.issuer = Some(issuer),
            ("audience", JsonValue::String(audience)) => wanted.audience = Some(audience),
            ("clockToleranceSeconds", value) => {
                let seconds = value.as_u64().filter(|it| *it <= TOLERANCE_MAX_SECONDS);
                wanted.tolerance_seconds = seconds.ok_or_else(wrong)?;
            }
            _ => return Err(wrong()),
        }
    }
    Ok(wanted)
}
