//! Logs as they are shown: pages of text by sequence, or one stream of bytes.

use std::{collections::HashMap, io, sync::Arc};

use bulkhead_model::Stream;
use bulkhead_store::{
    PhaseKey,
    logs::{Body, Entry, LogError, LogStore},
};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream, stream::BoxStream};

use crate::{LogLine, Problem};

/// About how much of a log is read in one go.
pub(crate) const PAGE_BYTES: usize = 512 << 10;

/// A page after the entry `after`. A log that does not exist yet is empty.
pub(crate) async fn page(
    logs: &dyn LogStore,
    key: &PhaseKey,
    after: u64,
) -> Result<Vec<LogLine>, Problem> {
    match logs.read(key, after + 1, PAGE_BYTES).await {
        Ok(page) => Ok(lines(page.entries)),
        Err(LogError::NotFound { .. }) => Ok(Vec::new()),
        Err(error) => Err(Problem::internal(&error)),
    }
}

/// The whole log's bytes as they were kept, page by page.
pub(crate) fn bytes(
    logs: Arc<dyn LogStore>,
    key: PhaseKey,
) -> BoxStream<'static, io::Result<Bytes>> {
    let pages = stream::try_unfold(1, move |from| {
        let (logs, key) = (Arc::clone(&logs), key.clone());
        async move {
            let page = match logs.read(&key, from, PAGE_BYTES).await {
                Ok(page) => page,
                Err(LogError::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(io::Error::other(error)),
            };
            if page.entries.is_empty() {
                return Ok(None);
            }
            Ok(Some((stream::iter(page.entries).map(Ok), page.next_seq)))
        }
    });
    pages
        .try_flatten()
        .map_ok(|entry: Entry| plain(entry.body))
        .boxed()
}

fn plain(body: Body) -> Bytes {
    match body {
        Body::Output(bytes) => bytes,
        Body::Marker(marker) => Bytes::from(format!("[bulkhead: {marker}]\n")),
    }
}

/// Entries as text. A character that was cut between two entries of one stream is put together again.
fn lines(entries: Vec<Entry>) -> Vec<LogLine> {
    let mut cut: HashMap<Stream, Vec<u8>> = HashMap::new();
    let entries = entries.into_iter();
    entries
        .map(|entry| {
            let text = match entry.body {
                Body::Marker(marker) => format!("[bulkhead: {marker}]\n"),
                Body::Output(bytes) => text(cut.entry(entry.stream).or_default(), &bytes),
            };
            LogLine {
                seq: entry.seq,
                at_ms: entry.at_ms,
                stream: word(entry.stream).to_owned(),
                text,
            }
        })
        .collect()
}

fn text(cut: &mut Vec<u8>, bytes: &[u8]) -> String {
    cut.extend_from_slice(bytes);
    let whole = match std::str::from_utf8(cut) {
        Ok(_) => cut.len(),
        // Only the beginning of a character at the very end may still become one.
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Err(_) => cut.len(),
    };
    let text = String::from_utf8_lossy(&cut[..whole]).into_owned();
    cut.drain(..whole);
    text
}

const fn word(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
        Stream::System => "system",
    }
}
