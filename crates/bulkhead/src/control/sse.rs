//! Server-sent events, read as they come.

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

/// One event of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) name: String,
    pub(super) data: String,
}

/// More than any event may be: a server that sends more is not one of ours.
const MAX_EVENT: usize = 16 << 20;

/// Bytes in pieces, cut anywhere, in; events out.
#[derive(Debug, Default)]
struct Parser {
    line: Vec<u8>,
    event: Event,
}

impl Parser {
    fn push(&mut self, piece: &[u8]) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        for byte in piece {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = String::from_utf8(std::mem::take(&mut self.line))
                .context("the server's stream is not UTF-8")?;
            events.extend(self.take(line.trim_end_matches('\r')));
        }
        if self.line.len() + self.event.data.len() > MAX_EVENT {
            bail!("an event of the server's stream is larger than {MAX_EVENT} bytes");
        }
        Ok(events)
    }

    /// An empty line ends the event; a comment keeps the connection alive and says nothing.
    fn take(&mut self, line: &str) -> Option<Event> {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" if line.is_empty() => {
                let event = std::mem::take(&mut self.event);
                return (!event.name.is_empty() || !event.data.is_empty()).then_some(event);
            }
            "event" => self.event.name = value.to_owned(),
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            _ => {}
        }
        None
    }
}

/// The events of an answer's body.
pub(super) fn events(body: Incoming) -> impl Stream<Item = Result<Event>> + Send {
    let pieces = body
        .into_data_stream()
        .map(|piece| piece.context("reading the server's stream"));
    parse(pieces)
}

fn parse(
    pieces: impl Stream<Item = Result<Bytes>> + Send,
) -> impl Stream<Item = Result<Event>> + Send {
    let parsed = pieces.scan(Parser::default(), |parser, piece| {
        let events = piece.and_then(|piece| parser.push(&piece));
        std::future::ready(Some(match events {
            Ok(events) => events.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        }))
    });
    parsed.flat_map(stream::iter)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::{Event, Parser};

    const STREAM: &[u8] = b": hello\n\nevent: run\nid: 3\ndata: {\"a\":1}\n\nevent:line\r\ndata:x\r\ndata: y\r\n\r\nevent: end\ndata: {}\n\n";

    #[test]
    fn events_are_the_same_wherever_the_bytes_are_cut() {
        let event = |name: &str, data: &str| Event {
            name: name.into(),
            data: data.into(),
        };
        let expected = [
            event("run", "{\"a\":1}"),
            event("line", "x\ny"),
            event("end", "{}"),
        ];
        for at in 0..=STREAM.len() {
            let mut parser = Parser::default();
            let mut events = parser.push(&STREAM[..at]).unwrap();
            events.extend(parser.push(&STREAM[at..]).unwrap());
            assert_eq!(events, expected, "cut at {at}");
        }
    }

    #[test]
    fn case_63_an_endless_event_is_refused() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 1 << 20];
        let refused = (0..64).find_map(|_| parser.push(&piece).err());
        assert!(refused.unwrap().to_string().contains("larger than"));
    }
}
