//! Text, base64, URLs and random bytes: what V8 has no function for.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bulkhead_engine::{Function, Thrown, Value, now};
use url::Url;

use super::arguments::Arguments;

/// Padding may be there or not, and so may bits that mean nothing, as in Node.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_allow_trailing_bits(true)
    .with_decode_padding_mode(DecodePaddingMode::Indifferent);
const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const BASE64_URL: GeneralPurpose =
    GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT.with_encode_padding(false));
/// The most random bytes that are asked for at once.
const MAX_RANDOM: usize = 65_536;

type Outcome = Result<Value, Thrown>;

pub(super) fn functions() -> Vec<(&'static str, Function)> {
    let function = |run: fn(Arguments) -> Outcome| now(move |values| run(Arguments::new(values)));
    vec![
        ("utf8Encode", function(utf8_encode)),
        ("utf8Decode", function(utf8_decode)),
        ("base64Encode", function(base64_encode)),
        ("base64Decode", function(base64_decode)),
        ("random", function(random)),
        ("urlParse", function(url_parse)),
        ("urlSet", function(url_set)),
        ("urlEncode", function(url_encode)),
        ("urlDecode", function(url_decode)),
    ]
}

fn utf8_encode(mut arguments: Arguments) -> Outcome {
    Ok(Value::Bytes(arguments.text()?.into_bytes().into()))
}

/// Null where the bytes are no UTF-8 and that matters.
fn utf8_decode(mut arguments: Arguments) -> Outcome {
    let (bytes, is_fatal) = (arguments.bytes()?, arguments.flag()?);
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(text.into()),
        Err(_) if is_fatal => Ok(Value::Null),
        Err(_) => Ok(String::from_utf8_lossy(&bytes).into_owned().into()),
    }
}

fn base64_encode(mut arguments: Arguments) -> Outcome {
    let (bytes, is_for_urls) = (arguments.bytes()?, arguments.flag()?);
    let engine = if is_for_urls { &BASE64_URL } else { &BASE64 };
    Ok(engine.encode(bytes).into())
}

/// Both alphabets; what belongs to neither is passed over, and padding ends the text.
fn base64_decode(mut arguments: Arguments) -> Outcome {
    let text = arguments.text()?;
    let mut clean: Vec<u8> = text
        .bytes()
        .take_while(|byte| *byte != b'=')
        .filter_map(|byte| match byte {
            b'-' => Some(b'+'),
            b'_' => Some(b'/'),
            byte if byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/' => Some(byte),
            _ => None,
        })
        .collect();
    if clean.len() % 4 == 1 {
        clean.pop();
    }
    let bytes = BASE64
        .decode(clean)
        .map_err(|error| Thrown::type_error(error.to_string()))?;
    Ok(Value::Bytes(bytes.into()))
}

fn random(mut arguments: Arguments) -> Outcome {
    let len = arguments.usize()?.min(MAX_RANDOM);
    let mut bytes = vec![0; len];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|error| Thrown::new(format!("asking for random bytes: {error}")))?;
    Ok(Value::Bytes(bytes.into()))
}

/// Null where the text is no URL.
fn url_parse(mut arguments: Arguments) -> Outcome {
    let (text, base) = (arguments.text()?, arguments.value());
    let url = match base.as_str() {
        Some(base) => Url::parse(base).and_then(|base| base.join(&text)),
        None => Url::parse(&text),
    };
    Ok(url.map_or(Value::Null, |url| parts(&url)))
}

/// The URL with one piece changed; null where it cannot be changed so.
fn url_set(mut arguments: Arguments) -> Outcome {
    let (href, piece, value) = (arguments.text()?, arguments.text()?, arguments.text()?);
    let Ok(mut url) = Url::parse(&href) else {
        return Ok(Value::Null);
    };
    let is_done = match piece.as_str() {
        "href" => match Url::parse(&value) {
            Ok(new) => {
                url = new;
                true
            }
            Err(_) => false,
        },
        "protocol" => url::quirks::set_protocol(&mut url, &value).is_ok(),
        "username" => url::quirks::set_username(&mut url, &value).is_ok(),
        "password" => url::quirks::set_password(&mut url, &value).is_ok(),
        "host" => url::quirks::set_host(&mut url, &value).is_ok(),
        "hostname" => url::quirks::set_hostname(&mut url, &value).is_ok(),
        "port" => url::quirks::set_port(&mut url, &value).is_ok(),
        "pathname" => {
            url::quirks::set_pathname(&mut url, &value);
            true
        }
        "search" | "parameters" => {
            url::quirks::set_search(&mut url, &value);
            true
        }
        "hash" => {
            url::quirks::set_hash(&mut url, &value);
            true
        }
        _ => false,
    };
    Ok(if is_done { parts(&url) } else { Value::Null })
}

fn parts(url: &Url) -> Value {
    use url::quirks;
    let text = |text: &str| Value::String(text.to_owned());
    Value::object([
        ("href", text(quirks::href(url))),
        ("origin", Value::String(quirks::origin(url))),
        ("protocol", text(quirks::protocol(url))),
        ("username", text(quirks::username(url))),
        ("password", text(quirks::password(url))),
        ("host", text(quirks::host(url))),
        ("hostname", text(quirks::hostname(url))),
        ("port", text(quirks::port(url))),
        ("pathname", text(quirks::pathname(url))),
        ("search", text(quirks::search(url))),
        ("hash", text(quirks::hash(url))),
    ])
}

/// As a form's name or value.
fn url_encode(mut arguments: Arguments) -> Outcome {
    let text = arguments.text()?;
    Ok(url::form_urlencoded::byte_serialize(text.as_bytes())
        .collect::<String>()
        .into())
}

/// What percent signs stand for, as UTF-8.
fn url_decode(mut arguments: Arguments) -> Outcome {
    let text = arguments.text()?;
    let bytes: Vec<u8> = percent_encoding::percent_decode_str(&text).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned().into())
}
