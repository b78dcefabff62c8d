//! From the output of one phase attempt to its log: masking, the limit, and bridging errors.
//!
//! The store may fail for a while. Then entries wait in a bounded buffer and are tried again; what no
//! longer fits is counted, and the count goes into the log as a marker at its place as soon as that can be
//! written (case 26). The phase is never held up by a full disk (case 48).

use std::{fmt, mem, sync::Arc};

use bulkhead_model::Stream;
use bytes::Bytes;
use futures::future::BoxFuture;

use super::{
    Body, GapReason, LogEnd, LogError, LogStore, MAX_BODY, Marker, NewEntry, Rejected, end_entry,
};
use crate::{
    Held, Store,
    leases::{Checked, Resource},
    mask::{Masker, StreamMasker},
};

/// How a sink behaves.
#[derive(Debug, Clone, Copy)]
pub struct SinkConfig {
    /// Output kept per attempt; `Limits::log_bytes`.
    pub keep_bytes: u64,
    /// What may wait while the store fails.
    pub buffer_bytes: usize,
    /// The pause between two tries while the store fails.
    pub retry_ms: i64,
}

impl Default for SinkConfig {
    fn default() -> Self {
        Self {
            keep_bytes: 64 << 20,
            buffer_bytes: 8 << 20,
            retry_ms: 200,
        }
    }
}

/// Bulkhead's own words come on top of the phase's limit, up to this much.
const SYSTEM_BYTES: u64 = 1 << 20;

/// What an entry takes in memory beside its output.
const ENTRY_BYTES: usize = 96;

/// Bytes and lines that are not in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Missing {
    bytes: u64,
    lines: u64,
}

/// The writer of one log. Its futures may be dropped at any moment (a caller that stops waiting): what they took is
/// not lost, and a write that had begun is driven to its end by the next call.
#[derive(Debug)]
pub struct LogSink {
    store: Store,
    logs: Arc<dyn LogStore>,
    held: Held,
    config: SinkConfig,
    masks: [StreamMasker; 3],
    /// Output and system words that may still be kept.
    room: u64,
    system_room: u64,
    truncated: Missing,
    limit_said: bool,
    waiting: Vec<NewEntry>,
    waiting_bytes: usize,
    writing: Option<Writing>,
    /// The log has its end.
    ended: bool,
    gap: Option<(GapReason, Missing)>,
    failing: Option<Failing>,
    last_seq: u64,
    checked: Option<Checked>,
    scratch: Vec<u8>,
}

/// An append under way. It lives here and not in the future of a call, which may be dropped.
struct Writing {
    append: BoxFuture<'static, Result<u64, Rejected>>,
    /// What the entries take in memory.
    bytes: usize,
    gap: Option<(GapReason, Missing)>,
    is_end: bool,
}

impl fmt::Debug for Writing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writing({} bytes)", self.bytes)
    }
}

#[derive(Debug, Clone, Copy)]
struct Failing {
    why: GapReason,
    retry_at_ms: i64,
}

impl Store {
    /// Begins the log of an attempt. Refused for a stale holder.
    pub async fn open_log(
        &self,
        logs: Arc<dyn LogStore>,
        held: &Held,
        masker: &Masker,
        config: SinkConfig,
        now_ms: i64,
    ) -> crate::Result<LogSink> {
        self.note_log(held, now_ms).await?;
        // So that it can be followed before there is output. Where it fails, the first output tries again.
        if let Err(error) = logs.append(&held.key, Vec::new()).await {
            tracing::warn!(log = %held.key, %error, "could not make a log yet");
        }
        Ok(LogSink {
            store: self.clone(),
            logs,
            held: held.clone(),
            config,
            masks: [masker.stream(), masker.stream(), masker.stream()],
            room: config.keep_bytes,
            system_room: SYSTEM_BYTES,
            truncated: Missing::default(),
            limit_said: false,
            waiting: Vec::new(),
            waiting_bytes: 0,
            writing: None,
            ended: false,
            gap: None,
            failing: None,
            last_seq: 0,
            checked: None,
            scratch: Vec::new(),
        })
    }
}

impl LogSink {
    /// Takes output as it comes. The only error is that of a writer whose fence no longer holds; while
    /// the store fails, output waits.
    pub async fn write(
        &mut self,
        stream: Stream,
        bytes: &[u8],
        now_ms: i64,
    ) -> Result<(), LogError> {
        let mut masked = mem::take(&mut self.scratch);
        masked.clear();
        if self.room_for(stream) > 0 {
            self.masks[slot(stream)].push(bytes, &mut masked);
            self.keep(stream, &masked, now_ms);
        } else {
            // Nobody will see it, so it need not be masked.
            self.truncated.add(bytes);
        }
        self.scratch = masked;
        self.flush(now_ms).await
    }

    /// Tries again what waits. To be called now and then while nothing is written.
    pub async fn tick(&mut self, now_ms: i64) -> Result<(), LogError> {
        self.flush(now_ms).await
    }

    /// The sequence of the last entry that is kept.
    pub const fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Whether something waits because the store fails.
    pub const fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// Writes what masking held back, the count of what was truncated, and the end; returns the last
    /// sequence. Where the store
    /// still fails the error is returned, and this may be called again.
    pub async fn finish(&mut self, now_ms: i64) -> Result<u64, LogError> {
        for stream in [Stream::Stdout, Stream::Stderr, Stream::System] {
            let mut rest = Vec::new();
            self.masks[slot(stream)].finish(&mut rest);
            self.keep(stream, &rest, now_ms);
        }
        if self.truncated != Missing::default() {
            let Missing { bytes, lines } = mem::take(&mut self.truncated);
            self.queue_marker(Marker::Truncated { bytes, lines }, now_ms);
        }
        self.failing = None;
        self.flush(now_ms).await?;
        self.close(now_ms).await
    }

    async fn close(&mut self, now_ms: i64) -> Result<u64, LogError> {
        if let Some(failing) = self.failing {
            return Err(self.unwritten(failing.why));
        }
        if !self.ended {
            self.begin(vec![end_entry(LogEnd::Closed, now_ms)], None);
            if let Some(writing) = &mut self.writing {
                writing.is_end = true;
            }
            self.complete(now_ms).await?;
        }
        // The file says that it is complete; the row follows, and is mended at a start if it cannot.
        let sealed = self.store.note_log_end(&self.held.key, now_ms).await;
        if let Err(error) = sealed {
            tracing::warn!(log = %self.held.key, %error, "could not note the end of a log");
        }
        Ok(self.last_seq)
    }

    fn unwritten(&self, why: GapReason) -> LogError {
        let key = self.held.key.clone();
        let source = std::io::Error::other(format!("{} entries still wait", self.waiting.len()));
        match why {
            GapReason::DiskFull => LogError::DiskFull { key, source },
            GapReason::Store => LogError::File {
                doing: "finish",
                key,
                source,
            },
        }
    }

    fn room_for(&self, stream: Stream) -> u64 {
        match stream {
            Stream::System => self.system_room,
            Stream::Stdout | Stream::Stderr => self.room,
        }
    }

    /// Queues masked output up to the limit and counts what is over.
    fn keep(&mut self, stream: Stream, masked: &[u8], now_ms: i64) {
        let room = usize::try_from(self.room_for(stream)).unwrap_or(usize::MAX);
        let (kept, over) = masked.split_at(masked.len().min(room));
        match stream {
            Stream::System => self.system_room -= kept.len() as u64,
            Stream::Stdout | Stream::Stderr => self.room -= kept.len() as u64,
        }
        for body in kept.chunks(MAX_BODY) {
            self.queue(NewEntry {
                at_ms: now_ms,
                stream,
                body: Body::Output(Bytes::copy_from_slice(body)),
            });
        }
        if !over.is_empty() {
            self.truncated.add(over);
        }
        if self.room == 0 && !self.limit_said {
            self.limit_said = true;
            let max_bytes = self.config.keep_bytes;
            self.queue_marker(Marker::Limit { max_bytes }, now_ms);
        }
    }

    fn queue_marker(&mut self, marker: Marker, now_ms: i64) {
        self.queue(NewEntry {
            at_ms: now_ms,
            stream: Stream::System,
            body: Body::Marker(marker),
        });
    }

    /// Puts an entry into the buffer; once that is full while the store fails, output only counts, until
    /// the gap is in the log.
    fn queue(&mut self, entry: NewEntry) {
        let size = match &entry.body {
            Body::Output(bytes) => bytes.len() + ENTRY_BYTES,
            Body::Marker(_) => 0,
        };
        let written = self.writing.as_ref().map(|writing| writing.bytes);
        let held = self.waiting_bytes + written.unwrap_or(0) + size;
        let stuck = match self.failing {
            Some(failing) => Some(failing.why),
            None => written.map(|_| GapReason::Store),
        };
        let full = held > self.config.buffer_bytes;
        match (&entry.body, stuck) {
            (Body::Output(bytes), Some(why)) if full || self.gap.is_some() => {
                let (_, missing) = self.gap.get_or_insert((why, Missing::default()));
                missing.add(bytes);
            }
            _ => {
                self.waiting_bytes += size;
                self.waiting.push(entry);
            }
        }
    }

    async fn flush(&mut self, now_ms: i64) -> Result<(), LogError> {
        self.complete(now_ms).await?;
        if self
            .failing
            .is_some_and(|failing| now_ms < failing.retry_at_ms)
        {
            return Ok(());
        }
        if self.waiting.is_empty() && self.gap.is_none() {
            return Ok(());
        }
        self.check_fence(now_ms).await?;
        let mut entries = mem::take(&mut self.waiting);
        let gap = self.gap.take();
        if let Some((why, Missing { bytes, lines })) = gap {
            entries.push(NewEntry {
                at_ms: now_ms,
                stream: Stream::System,
                body: Body::Marker(Marker::Gap { why, bytes, lines }),
            });
        }
        self.begin(entries, gap);
        self.complete(now_ms).await
    }

    fn begin(&mut self, entries: Vec<NewEntry>, gap: Option<(GapReason, Missing)>) {
        let (logs, key) = (Arc::clone(&self.logs), self.held.key.clone());
        self.writing = Some(Writing {
            append: Box::pin(async move { logs.append(&key, entries).await }),
            bytes: mem::take(&mut self.waiting_bytes),
            gap,
            is_end: false,
        });
    }

    /// Drives the append that is under way to its end, where there is one.
    async fn complete(&mut self, now_ms: i64) -> Result<(), LogError> {
        let Some(writing) = &mut self.writing else {
            return Ok(());
        };
        let result = writing.append.as_mut().await;
        let Some(writing) = self.writing.take() else {
            return Ok(());
        };
        match result {
            Ok(seq) => {
                self.last_seq = seq;
                self.ended |= writing.is_end;
                if self.failing.take().is_some() {
                    tracing::info!(log = %self.held.key, "the log is written again");
                }
                Ok(())
            }
            Err(rejected) if writing.is_end => Err(rejected.error),
            Err(rejected) => {
                self.take_back(rejected, &writing, now_ms);
                Ok(())
            }
        }
    }

    /// What was not kept waits again, before what came since. A gap goes back to being a count, which may grow, where
    /// nothing came since.
    fn take_back(&mut self, rejected: Rejected, writing: &Writing, now_ms: i64) {
        let Rejected { mut entries, error } = rejected;
        if self.waiting.is_empty()
            && let Some((why, missing)) = writing.gap
        {
            entries.pop();
            let (_, since) = self.gap.get_or_insert((why, Missing::default()));
            since.bytes += missing.bytes;
            since.lines += missing.lines;
        }
        entries.append(&mut self.waiting);
        self.waiting = entries;
        self.waiting_bytes += writing.bytes;
        if self.failing.is_none() {
            tracing::warn!(log = %self.held.key, %error, "the log cannot be written; its output waits");
        }
        self.failing = Some(Failing {
            why: match error {
                LogError::DiskFull { .. } => GapReason::DiskFull,
                _ => GapReason::Store,
            },
            retry_at_ms: now_ms + self.config.retry_ms,
        });
    }

    /// A stale writer stops. An answer that could not be had is not a refusal: the entries wait.
    async fn check_fence(&mut self, now_ms: i64) -> Result<(), LogError> {
        let run = Resource::run(self.held.key.run);
        let checked = self
            .store
            .recheck_fence(self.checked, &run, self.held.fence, now_ms);
        match checked.await {
            Ok(checked) => self.checked = Some(checked),
            Err(error @ crate::Error::Stale { .. }) => return Err(LogError::Stale(error)),
            Err(_) => self.checked = None,
        }
        Ok(())
    }
}

impl Missing {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.lines += memchr::memchr_iter(b'\n', bytes).count() as u64;
    }
}

const fn slot(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
        Stream::System => 2,
    }
}
