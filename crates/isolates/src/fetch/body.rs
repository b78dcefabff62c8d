//! A body as it comes in, decompressed on the way. What comes out is counted as it comes out: a bomb ends the call
//! when it passes the limit, not when it has gone off (HT6).

mod deflate;
mod zstd;

use std::io::{self, Write};

use brotli_decompressor::{BrotliDecoderParameter, DecompressorWriter};
use flate2::write::MultiGzDecoder;
use http::{HeaderMap, header};

use super::exchange::too_large;
use crate::call_error::{CallError, Code};
use deflate::Deflate;
use zstd::Zstd;

/// Compressed twice is seen in the wild; more is nobody's intention.
const CODINGS_MAX: usize = 2;
/// What a compressed form may have beyond the body itself. Without it, blocks that hold nothing could come for ever.
const OVERHEAD_BYTES_MAX: usize = 64 << 10;
const BROTLI_BUFFER_BYTES: usize = 16 << 10;

pub(super) struct Decoding {
    /// The coding that was applied last comes first. None where nothing came yet.
    first: Box<dyn Stage>,
    received: usize,
    bytes_max: usize,
    is_plain: bool,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("more than {0} bytes")]
    TooLarge(usize),
    #[error("its content-encoding is {0:?}; gzip, deflate, br and zstd are understood")]
    UnknownCoding(String),
    #[error("its content-encoding names more than {CODINGS_MAX} codings")]
    TooManyCodings,
    #[error("the body is not what its content-encoding says: {0}")]
    Broken(io::Error),
}

impl BodyError {
    pub(super) fn into_call_error(self, target: &str) -> CallError {
        match self {
            Self::TooLarge(bytes_max) => too_large(target, bytes_max),
            error => CallError::new(Code::Failed, format!("host.fetch of {target}: {error}")),
        }
    }
}

/// Takes bytes, and hands on what they stand for.
trait Stage: Write + Send {
    /// Nothing more comes. An error where something was still expected.
    fn finish(self: Box<Self>) -> io::Result<Sink>;
}

impl Decoding {
    pub(super) fn new(headers: &HeaderMap, bytes_max: usize) -> Result<Self, BodyError> {
        let mut stage: Box<dyn Stage> = Box::new(Sink {
            bytes: Vec::new(),
            bytes_max,
        });
        let codings = codings(headers);
        if codings.len() > CODINGS_MAX {
            return Err(BodyError::TooManyCodings);
        }
        for coding in &codings {
            stage = match coding.as_str() {
                "gzip" | "x-gzip" => Box::new(Gzip(MultiGzDecoder::new(stage))),
                "deflate" => Box::new(Deflate::new(stage)),
                "br" => Box::new(Brotli::new(stage)),
                "zstd" => Box::new(Zstd::new(stage)),
                _ => return Err(BodyError::UnknownCoding(coding.chars().take(40).collect())),
            };
        }
        Ok(Self {
            first: stage,
            received: 0,
            bytes_max,
            is_plain: codings.is_empty(),
        })
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        self.received += bytes.len();
        if self.received > self.bytes_max.saturating_add(OVERHEAD_BYTES_MAX) {
            return Err(BodyError::TooLarge(self.bytes_max));
        }
        let result = self.first.write_all(bytes);
        result.map_err(|error| self.error(error))
    }

    pub(super) fn finish(self) -> Result<Vec<u8>, BodyError> {
        // Servers that compress nothing send nothing, whatever their header says.
        if self.received == 0 && !self.is_plain {
            return Ok(Vec::new());
        }
        let bytes_max = self.bytes_max;
        let result = self.first.finish();
        result
            .map(|sink| sink.bytes)
            .map_err(|error| broken_or_large(error, bytes_max))
    }

    fn error(&self, error: io::Error) -> BodyError {
        broken_or_large(error, self.bytes_max)
    }
}

fn broken_or_large(error: io::Error, bytes_max: usize) -> BodyError {
    match error.get_ref().is_some_and(|inner| inner.is::<TooLarge>()) {
        true => BodyError::TooLarge(bytes_max),
        false => BodyError::Broken(error),
    }
}

/// In the order in which they were applied.
fn codings(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(header::CONTENT_ENCODING).iter();
    let texts = values.map(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase());
    let names: Vec<_> = texts.collect();
    let names = names.iter().flat_map(|text| text.split(',')).map(str::trim);
    names
        .filter(|name| !name.is_empty() && *name != "identity")
        .map(ToOwned::to_owned)
        .collect()
}

/// What was decoded.
#[derive(Default)]
struct Sink {
    bytes: Vec<u8>,
    bytes_max: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("it is too large")]
struct TooLarge;

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.bytes_max - self.bytes.len() {
            return Err(io::Error::other(TooLarge));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stage for Sink {
    fn finish(self: Box<Self>) -> io::Result<Sink> {
        Ok(*self)
    }
}

fn cut_short() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it ends too early")
}

fn goes_on() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "bytes come after its end")
}

struct Gzip(MultiGzDecoder<Box<dyn Stage>>);

impl Write for Gzip {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Stage for Gzip {
    fn finish(self: Box<Self>) -> io::Result<Sink> {
        self.0.finish()?.finish()
    }
}

struct Brotli(DecompressorWriter<Box<dyn Stage>>);

impl Brotli {
    fn new(inner: Box<dyn Stage>) -> Self {
        let mut decoder = DecompressorWriter::new(inner, BROTLI_BUFFER_BYTES);
        // The extension for windows of up to a gigabyte is not part of the content-encoding (RFC 7932, section 9.1).
        decoder.set_parameter(BrotliDecoderParameter::BROTLI_DECODER_PARAM_LARGE_WINDOW, 0);
        Self(decoder)
    }
}

impl Write for Brotli {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes)? {
            0 if !bytes.is_empty() => Err(goes_on()),
            written => Ok(written),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Stage for Brotli {
    fn finish(mut self: Box<Self>) -> io::Result<Sink> {
        self.0.close()?;
        match self.0.into_inner() {
            Ok(inner) | Err(inner) => inner.finish(),
        }
    }
}

#[cfg(test)]
mod tests;
