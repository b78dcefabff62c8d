//! `host.media`: what a plugin holds are tokens; where the media are stays outside (P6).

use bulkhead_wire::platform::{self, call::Call as Asked};
use serde::Deserialize;
use serde_json::Value;

use super::{Arguments, Encoding, Question, object, session::TOKEN_BYTES_MAX};
use crate::call_error::CallError;

const NAME_BYTES_MAX: usize = 255;
const MEDIA_TYPE_BYTES_MAX: usize = 127;
const CONTENT_BYTES_MAX: usize = 8 << 20;
const SIDE_PX_MAX: u32 = 8_192;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Upload {
    name: String,
    media_type: String,
    body: String,
    body_encoding: Option<Encoding>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Transcode {
    media_type: String,
    max_width: Option<u32>,
    max_height: Option<u32>,
    sample_rate: Option<u32>,
    channels: Option<u32>,
    bit_rate: Option<u32>,
}

fn check_media_type(arguments: &Arguments, text: &str) -> Result<(), CallError> {
    arguments.text("mediaType", text, 3, MEDIA_TYPE_BYTES_MAX)?;
    let is_token = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&b))
    };
    match text.split_once('/') {
        Some((kind, subtype)) if is_token(kind) && is_token(subtype) => Ok(()),
        _ => Err(arguments.bad(format_args!(
            "`mediaType` {text:?} is none; expected one such as \"audio/ogg\""
        ))),
    }
}

pub(super) fn upload(mut arguments: Arguments) -> Result<Question, CallError> {
    let upload: Upload = arguments.take("media")?;
    arguments.end()?;
    arguments.text("name", &upload.name, 1, NAME_BYTES_MAX)?;
    if upload.name.contains(['/', '\\']) || upload.name.chars().any(char::is_control) {
        return Err(arguments.bad("`name` is a file's name, without a path"));
    }
    check_media_type(&arguments, &upload.media_type)?;
    let encoding = upload.body_encoding.unwrap_or_default();
    let content = arguments.bytes("body", upload.body, encoding, CONTENT_BYTES_MAX)?;
    let asked = platform::MediaUpload {
        name: upload.name,
        media_type: upload.media_type,
        content,
    };
    Ok(Asked::MediaUpload(asked).into())
}

pub(super) fn transcode(mut arguments: Arguments) -> Result<Question, CallError> {
    let token: String = arguments.take("token")?;
    let to: Transcode = arguments.take("options")?;
    arguments.end()?;
    arguments.text("token", &token, 1, TOKEN_BYTES_MAX)?;
    check_media_type(&arguments, &to.media_type)?;
    let asked = platform::MediaTranscode {
        token,
        media_type: to.media_type,
        width_px_max: arguments.number("maxWidth", to.max_width, 1, SIDE_PX_MAX)?,
        height_px_max: arguments.number("maxHeight", to.max_height, 1, SIDE_PX_MAX)?,
        sample_rate_hz: arguments.number("sampleRate", to.sample_rate, 8_000, 192_000)?,
        channels: arguments.number("channels", to.channels, 1, 8)?,
        bits_per_second: arguments.number("bitRate", to.bit_rate, 1_000, 100_000_000)?,
    };
    Ok(Asked::MediaTranscode(asked).into())
}

pub(super) fn info(mut arguments: Arguments) -> Result<Question, CallError> {
    let token: String = arguments.take("token")?;
    arguments.end()?;
    arguments.text("token", &token, 1, TOKEN_BYTES_MAX)?;
    Ok(Asked::MediaInfo(platform::MediaInfo { token }).into())
}

pub(super) fn value(media: platform::Media) -> Value {
    object([
        ("token", Some(media.token.into())),
        ("name", Some(media.name.into())),
        ("mediaType", Some(media.media_type.into())),
        ("sizeBytes", Some(media.size_bytes.into())),
        ("durationMs", media.duration_ms.map(Value::from)),
        ("width", media.width_px.map(Value::from)),
        ("height", media.height_px.map(Value::from)),
    ])
}
