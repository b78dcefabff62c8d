//! Masking a stream whose chunks are cut anywhere (case 29).
//!
//! After each chunk everything is written out except an end that could still become a secret: the longest
//! tail that is the beginning of one of its forms, which is shorter than the longest form. Since hardly any
//! text ends like that, output is rarely late; since it is only ever written out when the next bytes, or
//! the end of the stream, decide, a secret in two writes is masked however long the pause between them.

use crate::Masker;

/// The masker's state on one stream.
#[derive(Debug)]
pub struct StreamMasker {
    masker: Masker,
    held: Vec<u8>,
}

impl StreamMasker {
    pub(crate) fn new(masker: Masker) -> Self {
        Self {
            masker,
            held: Vec::new(),
        }
    }

    /// Takes a chunk and appends to `out` what is decided.
    pub fn push(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        if self.held.is_empty() {
            let decided = self.masker.mask_decided(chunk, out);
            self.held.extend_from_slice(&chunk[decided..]);
            return;
        }
        self.held.extend_from_slice(chunk);
        let decided = self.masker.mask_decided(&self.held, out);
        self.held.drain(..decided);
    }

    /// The stream is over, or will be silent for so long that its end is wanted now: appends the rest.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.masker.mask_into(&self.held, out);
        self.held.clear();
    }

    /// How many bytes wait for the next chunk.
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }
}
