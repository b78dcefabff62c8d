//! The coding `deflate`: a zlib stream (RFC 9110, section 8.4.1.2), or a bare one, as some servers send it.

use std::io::{self, Write};

use flate2::{Decompress, FlushDecompress, Status};

use super::{Sink, Stage, cut_short, goes_on};

pub(super) struct Deflate {
    inner: Box<dyn Stage>,
    /// The first two bytes tell the two kinds apart.
    beginning: Vec<u8>,
    decoder: Option<Decompress>,
    has_ended: bool,
}

impl Deflate {
    pub(super) fn new(inner: Box<dyn Stage>) -> Self {
        Self {
            inner,
            beginning: Vec::new(),
            decoder: None,
            has_ended: false,
        }
    }

    fn decode(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(decoder) = &mut self.decoder else {
            return Ok(());
        };
        let mut out = [0; 16 << 10];
        loop {
            if self.has_ended {
                return if bytes.is_empty() {
                    Ok(())
                } else {
                    Err(goes_on())
                };
            }
            let (read, written) = (decoder.total_in(), decoder.total_out());
            let status = decoder.decompress(bytes, &mut out, FlushDecompress::None);
            self.has_ended = matches!(status.map_err(io::Error::from)?, Status::StreamEnd);
            // Both are at most as long as the slices.
            let read = usize::try_from(decoder.total_in() - read).unwrap_or(bytes.len());
            let written = usize::try_from(decoder.total_out() - written).unwrap_or(out.len());
            bytes = bytes.get(read..).unwrap_or_default();
            self.inner
                .write_all(out.get(..written).unwrap_or_default())?;
            if read == 0 && written == 0 && !self.has_ended {
                return Ok(());
            }
        }
    }
}

/// RFC 1950, section 2.2.
fn is_zlib(first: u8, second: u8) -> bool {
    first & 0x0f == 8 && (u16::from(first) << 8 | u16::from(second)).is_multiple_of(31)
}

impl Write for Deflate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.decoder.is_some() {
            self.decode(bytes)?;
            return Ok(bytes.len());
        }
        self.beginning.extend_from_slice(bytes);
        if let [first, second, ..] = *self.beginning.as_slice() {
            self.decoder = Some(Decompress::new(is_zlib(first, second)));
            let beginning = std::mem::take(&mut self.beginning);
            self.decode(&beginning)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stage for Deflate {
    fn finish(self: Box<Self>) -> io::Result<Sink> {
        match self.has_ended {
            true => self.inner.finish(),
            false => Err(cut_short()),
        }
    }
}
