//! The coding `zstd` (RFC 8878): frames of blocks. A block is decoded when all of it is there.

use std::io::{self, Write};

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::{Sink, Stage, cut_short};

/// RFC 9659, section 3: content-encodings use no more.
const WINDOW_BYTES_MAX: u64 = 8 << 20;
const MAGIC: u32 = 0xfd2f_b528;
/// The last four bits are the writer's choice.
const SKIPPABLE: u32 = 0x184d_2a50;
const BLOCK_BYTES_MAX: usize = 128 << 10;
const BLOCK_HEADER_BYTES: usize = 3;
const CHECKSUM_BYTES: usize = 4;

pub(super) struct Zstd {
    inner: Box<dyn Stage>,
    decoder: FrameDecoder,
    /// What came and is not decoded yet: less than a block with its header.
    pending: Vec<u8>,
    state: State,
}

enum State {
    /// Before a frame; there may be none any more.
    Between,
    Blocks {
        has_checksum: bool,
    },
    Skipping {
        bytes: u32,
    },
}

impl Zstd {
    pub(super) fn new(inner: Box<dyn Stage>) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_BYTES_MAX);
        Self {
            inner,
            decoder,
            pending: Vec::new(),
            state: State::Between,
        }
    }

    /// Decodes one step of what is there, and says how many bytes it took. None where more has to come first.
    fn step(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        match &mut self.state {
            State::Between => self.begin(bytes),
            State::Blocks { has_checksum } => {
                let has_checksum = *has_checksum;
                self.block(bytes, has_checksum)
            }
            State::Skipping { bytes: 0 } => {
                self.state = State::Between;
                Ok(Some(0))
            }
            State::Skipping { bytes: left } => {
                let there = u32::try_from(bytes.len()).unwrap_or(u32::MAX).min(*left);
                *left -= there;
                Ok((there > 0).then_some(there as usize))
            }
        }
    }

    fn begin(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let Some((magic, rest)) = bytes.split_first_chunk() else {
            return Ok(None);
        };
        let magic = u32::from_le_bytes(*magic);
        if magic & !0xf == SKIPPABLE {
            let Some((length, _)) = rest.split_first_chunk() else {
                return Ok(None);
            };
            let bytes = u32::from_le_bytes(*length);
            self.state = State::Skipping { bytes };
            return Ok(Some(8));
        }
        if magic != MAGIC {
            return Err(broken("it is no frame"));
        }
        let Some(descriptor) = rest.first() else {
            return Ok(None);
        };
        let len = 5 + header_bytes(*descriptor);
        let Some(mut header) = bytes.get(..len) else {
            return Ok(None);
        };
        self.decoder
            .reset(&mut header)
            .map_err(|error| broken(&error.to_string()))?;
        let has_checksum = descriptor & 0b100 != 0;
        self.state = State::Blocks { has_checksum };
        Ok(Some(len))
    }

    fn block(&mut self, bytes: &[u8], has_checksum: bool) -> io::Result<Option<usize>> {
        let Some((header, _)) = bytes.split_first_chunk::<BLOCK_HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        let (is_last, kind, size) = (header & 1 == 1, header >> 1 & 0b11, (header >> 3) as usize);
        if kind == 3 || size > BLOCK_BYTES_MAX {
            return Err(broken("a block is of no kind, or too large"));
        }
        // A run has one byte, whatever its size.
        let content = if kind == 1 { 1 } else { size };
        let tail = if is_last && has_checksum {
            CHECKSUM_BYTES
        } else {
            0
        };
        let Some(mut block) = bytes.get(..BLOCK_HEADER_BYTES + content + tail) else {
            return Ok(None);
        };
        let len = block.len();
        let decoded = self
            .decoder
            .decode_blocks(&mut block, BlockDecodingStrategy::UptoBlocks(1));
        decoded.map_err(|error| broken(&error.to_string()))?;
        self.decoder.collect_to_writer(&mut self.inner)?;
        if is_last {
            self.state = State::Between;
        }
        Ok(Some(len))
    }
}

/// How many bytes follow a frame header's descriptor (RFC 8878, section 3.1.1.1).
fn header_bytes(descriptor: u8) -> usize {
    let is_single_segment = descriptor & 0b10_0000 != 0;
    let window = usize::from(!is_single_segment);
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 0b11)];
    let content_size = match descriptor >> 6 {
        0 => usize::from(is_single_segment),
        1 => 2,
        2 => 4,
        _ => 8,
    };
    window + dictionary + content_size
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl Write for Zstd {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(taken) = self.step(pending.get(at..).unwrap_or_default())? {
            at += taken;
        }
        pending.drain(..at);
        self.pending = pending;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stage for Zstd {
    fn finish(self: Box<Self>) -> io::Result<Sink> {
        let is_between = matches!(self.state, State::Between | State::Skipping { bytes: 0 });
        match is_between && self.pending.is_empty() {
            true => self.inner.finish(),
            false => Err(cut_short()),
        }
    }
}
