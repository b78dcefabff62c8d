//! Lines of bounded length from a byte stream (case 63).
//!
//! Memory stays below the limit plus one read whatever arrives: a line that grows past the limit is an
//! error before it is whole, and the buffer of a long line is given back when the line is done.

use std::io;

use memchr::memchr;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The longest line that is read from an agent, in bytes, its line feed not counted.
pub const MAX_LINE: usize = 10 << 20;

const READ: usize = 64 << 10;

/// A stream of lines broke a bound or the reading failed. Lines count from 1.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("reading the agent's output")]
    Io(#[source] io::Error),
    #[error("line {line} of the agent's output is longer than the limit of {limit} bytes")]
    TooLong { line: u64, limit: usize },
    #[error("line {line} of the agent's output is not UTF-8 at byte {offset}")]
    NotUtf8 { line: u64, offset: usize },
    #[error("line {line} of the agent's output holds a NUL byte at byte {offset}")]
    Nul { line: u64, offset: usize },
}

/// Cuts a stream into lines. A last line without a line feed is a line too.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    limit: usize,
    buffer: Vec<u8>,
    /// Where the unread bytes begin, and how many of them are known to hold no line feed.
    start: usize,
    searched: usize,
    ended: bool,
    line: u64,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub fn new(reader: R) -> Self {
        Self::with_limit(reader, MAX_LINE)
    }

    pub fn with_limit(reader: R, limit: usize) -> Self {
        Self {
            reader,
            limit,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            ended: false,
            line: 0,
        }
    }

    /// The next line without its line end, or `None` at the end of the stream. May be dropped while it
    /// waits: no byte is lost.
    pub async fn next(&mut self) -> Result<Option<String>, LineError> {
        loop {
            if let Some(line) = self.take_line()? {
                return Ok(Some(line));
            }
            if self.ended {
                return Ok(None);
            }
            self.fill().await?;
        }
    }

    /// The stream behind the lines; what was read of a line that is not whole is given up.
    pub fn into_reader(self) -> R {
        self.reader
    }

    fn take_line(&mut self) -> Result<Option<String>, LineError> {
        let unread = self.buffer.get(self.start..).unwrap_or_default();
        let fresh = unread.get(self.searched..).unwrap_or_default();
        let (length, whole) = match memchr(b'\n', fresh) {
            Some(at) => (self.searched + at, true),
            None => (unread.len(), self.ended && !unread.is_empty()),
        };
        if length > self.limit {
            return Err(LineError::TooLong {
                line: self.line + 1,
                limit: self.limit,
            });
        }
        if !whole {
            self.searched = length;
            return Ok(None);
        }
        self.line += 1;
        let bytes = unread.get(..length).unwrap_or_default();
        let text = check(bytes.strip_suffix(b"\r").unwrap_or(bytes), self.line)?.to_owned();
        self.start += (length + 1).min(unread.len());
        self.searched = 0;
        Ok(Some(text))
    }

    async fn fill(&mut self) -> Result<(), LineError> {
        self.buffer.drain(..self.start);
        self.start = 0;
        if self.buffer.len() < READ {
            self.buffer.shrink_to(2 * READ);
        }
        self.buffer.reserve(READ);
        let mut room = (&mut self.reader).take(READ as u64);
        let count = room
            .read_buf(&mut self.buffer)
            .await
            .map_err(LineError::Io)?;
        self.ended = count == 0;
        Ok(())
    }
}

fn check(bytes: &[u8], line: u64) -> Result<&str, LineError> {
    let text = std::str::from_utf8(bytes).map_err(|error| LineError::NotUtf8 {
        line,
        offset: error.valid_up_to(),
    })?;
    match memchr(0, bytes) {
        Some(offset) => Err(LineError::Nul { line, offset }),
        None => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    async fn all(input: &[u8], limit: usize) -> Result<Vec<String>, LineError> {
        let mut lines = Lines::with_limit(input, limit);
        let mut out = vec![];
        while let Some(line) = lines.next().await? {
            out.push(line);
        }
        Ok(out)
    }

    #[tokio::test]
    async fn case_63_lines_of_every_length_up_to_the_limit_arrive_whole() {
        for length in [1, 65_535, 65_536, 65_537, MAX_LINE] {
            let mut input = vec![b'x'; length];
            input.extend_from_slice(b"\nnext\n");
            let lines = all(&input, MAX_LINE).await.unwrap();
            assert_eq!(lines.len(), 2, "{length}");
            assert_eq!((lines[0].len(), lines[1].as_str()), (length, "next"));
        }
    }

    #[tokio::test]
    async fn case_63_one_byte_over_the_limit_is_an_error_that_names_line_and_limit() {
        let mut input = b"first\n".to_vec();
        input.resize(input.len() + MAX_LINE + 1, b'x');
        let error = all(&input, MAX_LINE).await.unwrap_err();
        insta::assert_snapshot!(error, @"line 2 of the agent's output is longer than the limit of 10485760 bytes");
    }

    #[tokio::test]
    async fn case_63_a_line_without_end_is_refused_with_bounded_memory() {
        let mut lines = Lines::new(tokio::io::repeat(b'x').take(1 << 30));
        let error = lines.next().await.unwrap_err();
        assert!(matches!(error, LineError::TooLong { line: 1, .. }));
        assert!(lines.buffer.capacity() <= 2 * MAX_LINE + 2 * READ);
        assert!(lines.buffer.len() <= MAX_LINE + READ);
    }

    #[tokio::test]
    async fn case_63_bytes_that_are_no_text_are_named() {
        let error = all(b"ok\nab\xff\n", 100).await.unwrap_err();
        insta::assert_snapshot!(error, @"line 2 of the agent's output is not UTF-8 at byte 2");
        let error = all(b"a\0b\n", 100).await.unwrap_err();
        insta::assert_snapshot!(error, @"line 1 of the agent's output holds a NUL byte at byte 1");
    }

    #[tokio::test]
    async fn a_line_arrives_as_soon_as_it_is_whole() {
        let (mut writer, reader) = tokio::io::duplex(64);
        let mut lines = Lines::new(reader);
        writer.write_all(b"one\ntw").await.unwrap();
        assert_eq!(lines.next().await.unwrap().unwrap(), "one");
        writer.write_all(b"o\r\nlast").await.unwrap();
        drop(writer);
        assert_eq!(lines.next().await.unwrap().unwrap(), "two");
        assert_eq!(lines.next().await.unwrap().unwrap(), "last");
        assert_eq!(lines.next().await.unwrap(), None);
    }

    proptest! {
        /// The cuts of the stream do not matter: the same lines come out as from the whole.
        #[test]
        fn any_cuts_give_the_same_lines(text in "[a-c\n]{0,60}", cuts in proptest::collection::vec(1usize..8, 1..20)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let got = runtime.block_on(async {
                let (mut writer, reader) = tokio::io::duplex(1024);
                let (mut rest, mut cuts) = (text.as_bytes(), cuts.iter().cycle());
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                    writer.write_all(piece).await.unwrap();
                    rest = after;
                }
                drop(writer);
                let mut lines = Lines::new(reader);
                let mut out = vec![];
                while let Some(line) = lines.next().await.unwrap() { out.push(line); }
                out
            });
            let expected: Vec<_> = text.lines().map(str::to_owned).collect();
            prop_assert_eq!(got, expected);
        }
    }
}
