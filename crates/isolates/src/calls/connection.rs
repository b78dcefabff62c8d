//! `host.connection.send`, in invocations of a live connection.

use bulkhead_wire::platform::{self, call::Call as Asked, frame::Frame as WireFrame};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Arguments, Encoding, Question, Reading, failed};
use crate::call_error::CallError;

const FRAMES_MAX: usize = 20;
const FRAMES_BYTES_MAX: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text, or an object with `base64`")]
enum Frame {
    Text(String),
    Binary(Binary),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Binary {
    base64: String,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a list of frames, or one")]
enum Frames {
    Several(Vec<Frame>),
    One(Frame),
}

pub(super) fn send(mut arguments: Arguments) -> Result<Question, CallError> {
    let frames = match arguments.take("frames")? {
        Frames::Several(frames) => frames,
        Frames::One(frame) => vec![frame],
    };
    arguments.end()?;
    arguments.count("frames", frames.len(), 1, FRAMES_MAX)?;
    let mut bytes = 0;
    let mut sent = Vec::with_capacity(frames.len());
    for (index, frame) in frames.into_iter().enumerate() {
        let name = format!("frames[{index}]");
        let frame = match frame {
            Frame::Text(text) => WireFrame::Text(text),
            Frame::Binary(Binary { base64 }) => WireFrame::Binary(arguments.bytes(
                &name,
                base64,
                Encoding::Base64,
                FRAMES_BYTES_MAX,
            )?),
        };
        bytes += match &frame {
            WireFrame::Text(text) => text.len(),
            WireFrame::Binary(bytes) => bytes.len(),
        };
        sent.push(platform::Frame { frame: Some(frame) });
    }
    if bytes > FRAMES_BYTES_MAX {
        let what = format_args!(
            "the frames have {bytes} bytes; at most {FRAMES_BYTES_MAX} are sent at once"
        );
        return Err(arguments.bad(what));
    }
    let reading = Reading::Frames(sent.len());
    Ok(Question::reading(
        Asked::ConnectionSend(platform::ConnectionSend { frames: sent }),
        reading,
    ))
}

pub(super) fn value(sent: &platform::Sent, reading: &Reading) -> Result<Value, CallError> {
    match reading {
        Reading::Frames(frames) if sent.frames as usize <= *frames => {
            Ok(json!({ "frames": sent.frames }))
        }
        _ => Err(failed(
            "the platform says that more frames were sent than there are",
        )),
    }
}
