//! Files as streams: bounded memory, and several pieces under way so that a far host's distance costs once.

use std::{
    fmt,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{
    FutureExt as _, Stream, StreamExt as _,
    future::BoxFuture,
    stream::{BoxStream, FuturesOrdered, try_unfold},
};

use super::{
    FileSystem, FsError, OpenFile,
    flags::{Flags, Sync},
    options::{ReadStreamOptions, WriteStreamOptions},
};

/// All pieces of one stream that are under way are together no longer than this.
const UNDER_WAY_BYTES: usize = 4 << 20;
/// The longest piece of a write.
const WRITE_BYTES: usize = 256 << 10;
/// Pieces under way, however short they are.
const UNDER_WAY_MAX: usize = 64;

/// The pieces of a file, in order. Its file is closed when it has ended or is dropped.
pub struct ReadStream(BoxStream<'static, Result<Bytes, FsError>>);

impl FileSystem {
    /// Opens a file for reading in pieces.
    pub async fn create_read_stream(
        &self,
        path: &Path,
        options: ReadStreamOptions,
    ) -> Result<ReadStream, FsError> {
        let file = self.provider().open(path, Flags::READ.open, 0).await?;
        let reading = Reading::new(file, options).await?;
        let pieces = try_unfold(reading, async |mut reading| {
            let piece = reading.next().await?;
            Ok(piece.map(|piece| (piece, reading)))
        });
        Ok(ReadStream(pieces.boxed()))
    }

    /// Opens a file for writing in pieces.
    pub async fn create_write_stream(
        &self,
        path: &Path,
        options: WriteStreamOptions,
    ) -> Result<WriteStream, FsError> {
        let flags = options.flags;
        let file = self.provider().open(path, flags.open, options.permissions);
        WriteStream::new(file.await?, options).await
    }
}

impl ReadStream {
    /// The same bytes for code that reads.
    pub fn into_reader(self) -> impl tokio::io::AsyncRead + Send + Unpin {
        tokio_util::io::StreamReader::new(self.0.map(|piece| piece.map_err(std::io::Error::from)))
    }
}

impl Stream for ReadStream {
    type Item = Result<Bytes, FsError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl fmt::Debug for ReadStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadStream").finish_non_exhaustive()
    }
}

/// Reading ahead in an open file.
pub(super) struct Reading {
    file: Arc<Box<dyn OpenFile>>,
    ahead: FuturesOrdered<BoxFuture<'static, Result<Piece, FsError>>>,
    /// Where the next request begins, and where what was handed out ends.
    asked: u64,
    given: u64,
    /// Where reading ends, where that is before the end of the file.
    end: u64,
    /// How long the file was. Behind that, and where there are no offsets, only one request is under way.
    size: u64,
    piece_bytes: usize,
    is_over: bool,
}

struct Piece {
    asked: usize,
    bytes: Bytes,
}

impl Reading {
    pub(super) async fn new(
        file: Box<dyn OpenFile>,
        options: ReadStreamOptions,
    ) -> Result<Self, FsError> {
        let stat = file.stat().await?;
        let start = options.start.unwrap_or(0);
        Ok(Self {
            file: Arc::new(file),
            ahead: FuturesOrdered::new(),
            asked: start,
            given: start,
            end: options.end.map_or(u64::MAX, |last| last.saturating_add(1)),
            size: if stat.is_file() { stat.size } else { 0 },
            piece_bytes: options.high_water_mark_bytes.clamp(1, UNDER_WAY_BYTES),
            is_over: false,
        })
    }

    /// The next piece; none at the end, when the file is closed too.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, FsError> {
        self.ask();
        let Some(piece) = self.ahead.next().await else {
            return Ok(None);
        };
        let Piece { asked, bytes } = piece?;
        if bytes.is_empty() {
            self.is_over = true;
            self.ahead.clear();
            return Ok(None);
        }
        self.given += bytes.len() as u64;
        if bytes.len() < asked {
            // What was asked for behind a piece that came short begins at the wrong place.
            self.ahead.clear();
            self.asked = self.given;
        }
        Ok(Some(bytes))
    }

    fn ask(&mut self) {
        while !self.is_over && self.asked < self.end && self.ahead.len() < self.depth() {
            let rest = usize::try_from(self.end - self.asked).unwrap_or(usize::MAX);
            let asked = self.piece_bytes.min(rest);
            let (file, offset) = (Arc::clone(&self.file), self.asked);
            let read = async move {
                let bytes = file.read_at(offset, asked).await?;
                Ok(Piece { asked, bytes })
            };
            self.ahead.push_back(read.boxed());
            self.asked += asked as u64;
        }
    }

    fn depth(&self) -> usize {
        if self.asked < self.size {
            (UNDER_WAY_BYTES / self.piece_bytes).clamp(1, UNDER_WAY_MAX)
        } else {
            1
        }
    }
}

/// Writes a file in pieces. It is complete only once [`WriteStream::finish`] has said so.
pub struct WriteStream {
    file: Arc<Box<dyn OpenFile>>,
    options: WriteStreamOptions,
    under_way: FuturesOrdered<BoxFuture<'static, Result<(), FsError>>>,
    offset: u64,
    written: u64,
    depth: usize,
    /// The first failure; everything after it fails with the same.
    failed: Option<FsError>,
}

impl WriteStream {
    pub(super) async fn new(
        file: Box<dyn OpenFile>,
        options: WriteStreamOptions,
    ) -> Result<Self, FsError> {
        // Where there are no offsets, or the host makes them, the order of writes is all that there is.
        let in_order = options.flags.open.append || !file.stat().await?.is_file();
        Ok(Self {
            file: Arc::new(file),
            options,
            under_way: FuturesOrdered::new(),
            offset: options.start.unwrap_or(0),
            written: 0,
            depth: if in_order {
                1
            } else {
                UNDER_WAY_BYTES / WRITE_BYTES
            },
            failed: None,
        })
    }

    /// How much was given to it.
    pub const fn bytes_written(&self) -> u64 {
        self.written
    }

    /// Takes the data, waiting where too much is under way already.
    pub async fn write(&mut self, mut data: Bytes) -> Result<(), FsError> {
        self.check()?;
        while !data.is_empty() {
            self.wait_for(self.depth - 1).await?;
            let piece = data.split_to(data.len().min(WRITE_BYTES));
            let (file, offset, len) = (Arc::clone(&self.file), self.offset, piece.len());
            let sync = self.options.flags.sync;
            let write = async move {
                file.write_at(offset, piece).await?;
                match sync {
                    Sync::EachWrite => file.sync().await,
                    Sync::Later => Ok(()),
                }
            };
            self.under_way.push_back(write.boxed());
            self.offset += len as u64;
            self.written += len as u64;
            // So that it begins now and not only when somebody waits.
            if let Some(Some(done)) = self.under_way.next().now_or_never() {
                self.note(done)?;
            }
        }
        Ok(())
    }

    /// Waits for everything and closes the file; says how much was written.
    pub async fn finish(mut self) -> Result<u64, FsError> {
        self.check()?;
        self.wait_for(0).await?;
        if self.options.flush {
            self.file.sync().await?;
        }
        if let Ok(file) = Arc::try_unwrap(self.file) {
            file.close().await?;
        }
        Ok(self.written)
    }

    async fn wait_for(&mut self, at_most: usize) -> Result<(), FsError> {
        while self.under_way.len() > at_most {
            if let Some(done) = self.under_way.next().await {
                self.note(done)?;
            }
        }
        Ok(())
    }

    fn note(&mut self, done: Result<(), FsError>) -> Result<(), FsError> {
        if let Err(error) = &done {
            self.failed = Some(error.clone());
        }
        done
    }

    fn check(&self) -> Result<(), FsError> {
        self.failed.clone().map_or(Ok(()), Err)
    }
}

impl fmt::Debug for WriteStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteStream")
            .field("options", &self.options)
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}
