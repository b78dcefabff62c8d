//! Plain text under the eyes of plugs: line by line, in both directions.
//!
//! A line that no plug changes goes on byte for byte, also where it is no text.

use bulkhead_host::Writer;
use bulkhead_model::Stream;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use super::{asked::Asked, streams::Watched, work::feed};
use crate::{
    outbox::Outbox,
    plug::{Direction, Message, NamedError, Passage},
    protocol::{Prompts as _, ProtocolError},
};

/// Longer lines are shown to plugs in pieces.
const PIECE: usize = 64 << 10;

/// Gives the agent its input and reads its output to the end.
pub(super) async fn plain(
    stdin: Option<Writer>,
    stdout: Watched,
    input: Option<String>,
    out: &Outbox,
    passage: &mut impl Passage,
    asked: &mut Asked,
) -> Result<(), ProtocolError> {
    if asked.goes_on() {
        return line_by_line(stdin, stdout, input, out, passage, asked).await;
    }
    let mut given = None;
    if let Some(input) = input {
        for message in passage.pass(Message::to_agent(input)).await? {
            match message.direction {
                Direction::ToAgent => given = Some(message.text),
                Direction::FromAgent => said(out, &message.text).await,
            }
        }
    }
    // Input and output at once: a program may write before it has read everything.
    let (fed, read) = tokio::join!(feed(stdin, given), read(stdout, out, passage));
    let () = fed;
    Ok(read?)
}

/// A program to which a person says one line after the other, until there is no more to say.
async fn line_by_line(
    stdin: Option<Writer>,
    stdout: Watched,
    input: Option<String>,
    out: &Outbox,
    passage: &mut impl Passage,
    asked: &mut Asked,
) -> Result<(), ProtocolError> {
    let mut stdin = stdin;
    let mut pieces = Pieces::of(stdout);
    let mut line = input.filter(|text| !text.is_empty());
    loop {
        if let Some(text) = line.take() {
            for message in passage.pass(Message::to_agent(text)).await? {
                match message.direction {
                    Direction::ToAgent => write(&mut stdin, &message.text).await,
                    Direction::FromAgent => said(out, &message.text).await,
                }
            }
        }
        tokio::select! {
            piece = pieces.next() => match piece {
                Some(piece) => show(&piece, out, passage).await?,
                None => return Ok(()),
            },
            prompt = asked.next(), if stdin.is_some() => match prompt {
                Some(prompt) => line = Some(prompt),
                // Dropping it is the end of file.
                None => stdin = None,
            },
        }
    }
}

/// A program that does not read any more says so by its exit.
async fn write(stdin: &mut Option<Writer>, text: &str) {
    if let Some(open) = stdin {
        let line = format!("{text}\n");
        let written = async {
            open.write_all(line.as_bytes()).await?;
            open.flush().await
        };
        if written.await.is_err() {
            *stdin = None;
        }
    }
}

async fn read(stdout: Watched, out: &Outbox, passage: &mut impl Passage) -> Result<(), NamedError> {
    let mut pieces = Pieces::of(stdout);
    while let Some(piece) = pieces.next().await {
        show(&piece, out, passage).await?;
    }
    Ok(())
}

async fn show(piece: &[u8], out: &Outbox, passage: &mut impl Passage) -> Result<(), NamedError> {
    out.first_word().await;
    let (line, end) = match piece.strip_suffix(b"\n") {
        Some(line) => (line, "\n"),
        None => (piece, ""),
    };
    let text = String::from_utf8_lossy(line).into_owned();
    let passed = passage.pass(Message::from_agent(text.clone())).await?;
    for message in passed {
        match message.direction {
            Direction::FromAgent if message.text == text => {
                out.log(Stream::Stdout, piece).await;
            }
            Direction::FromAgent => {
                let line = format!("{}{end}", message.text);
                out.log(Stream::Stdout, line.as_bytes()).await;
            }
            // Its input is closed by now: plain text is one question and one answer.
            Direction::ToAgent => {}
        }
    }
    Ok(())
}

async fn said(out: &Outbox, text: &str) {
    out.log(Stream::Stdout, format!("{text}\n").as_bytes())
        .await;
}

/// Lines with their line feeds; long ones in pieces.
struct Pieces<R> {
    reader: R,
    held: Vec<u8>,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Pieces<R> {
    const fn of(reader: R) -> Self {
        Self {
            reader,
            held: Vec::new(),
            ended: false,
        }
    }

    /// May be dropped while it waits: no byte is lost.
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let line = memchr::memchr(b'\n', &self.held).map(|at| at + 1);
            let length = match line {
                Some(length) => Some(length.min(PIECE)),
                None if self.held.len() >= PIECE => Some(PIECE),
                None if self.ended && !self.held.is_empty() => Some(self.held.len()),
                None => None,
            };
            if let Some(length) = length {
                let rest = self.held.split_off(length);
                return Some(std::mem::replace(&mut self.held, rest));
            }
            if self.ended {
                return None;
            }
            let mut room = (&mut self.reader).take(PIECE as u64);
            // An error is the end of the stream too: the process's exit says the rest.
            self.ended = !matches!(room.read_buf(&mut self.held).await, Ok(1..));
        }
    }
}
