//! Connects a protocol to an agent's standard input and output.

use std::{collections::VecDeque, time::Duration};

use bulkhead_model::{AgentEvent, Usage};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::{AgentProtocol, Lines, ProtocolError, Step, text::bounded};
use crate::plug::{Direction, Message, Passage};

/// How long text is held back to be joined with more of it.
const QUIET: Duration = Duration::from_millis(100);

/// Where events go. The call waits while the receiver is busy, and so does the agent.
pub trait EventSink: Send {
    fn event(&mut self, event: AgentEvent) -> impl Future<Output = ()> + Send;
}

/// What the conversation came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Driven {
    /// The agent's own word that its turn is over: whether it went well, and its closing text.
    pub finished: Option<(bool, Option<String>)>,
    pub usage: Option<Usage>,
    /// The last message, for agents that close without words of their own.
    pub last_message: Option<String>,
}

struct Drive<'a, W, S, P> {
    protocol: &'a mut dyn AgentProtocol,
    stdin: Option<W>,
    sink: &'a mut S,
    passage: &'a mut P,
    driven: &'a mut Driven,
}

/// Holds the conversation until the agent has finished by its own word or its output has ended. `cancel`
/// makes it ask the agent to stop, and then goes on reading. Every line, in both directions, goes through
/// `passage`.
///
/// What it comes to is noted in `driven` as it happens. Standard input is closed when this returns; the agent may
/// still be running.
pub async fn drive<R, W, S, P>(
    protocol: &mut dyn AgentProtocol,
    stdin: W,
    lines: &mut Lines<R>,
    sink: &mut S,
    passage: &mut P,
    cancel: &CancellationToken,
    driven: &mut Driven,
) -> Result<(), ProtocolError>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
    S: EventSink,
    P: Passage,
{
    let stdin = protocol.reads_stdin().then_some(stdin);
    let mut drive = Drive {
        protocol,
        stdin,
        sink,
        passage,
        driven,
    };
    let step = drive.protocol.start();
    drive.apply(step).await?;
    let mut cancelled = false;
    while drive.driven.finished.is_none() {
        let step = tokio::select! {
            biased;
            () = cancel.cancelled(), if !cancelled => {
                cancelled = true;
                drive.protocol.cancel()
            }
            line = lines.next() => match line? {
                Some(line) => {
                    drive.heard(line).await?;
                    continue;
                }
                None => break,
            },
            () = tokio::time::sleep(QUIET) => drive.protocol.quiet(),
        };
        drive.apply(step).await?;
    }
    let rest = drive.protocol.quiet();
    drive.apply(rest).await
}

impl<W: AsyncWrite + Unpin + Send, S: EventSink, P: Passage> Drive<'_, W, S, P> {
    async fn heard(&mut self, line: String) -> Result<(), ProtocolError> {
        for message in self.passage.pass(Message::from_agent(line)).await? {
            match message.direction {
                Direction::FromAgent => {
                    let step = self.protocol.line(&message.text)?;
                    self.apply(step).await?;
                }
                Direction::ToAgent => self.write(message.text).await?,
            }
        }
        Ok(())
    }

    /// What a step leads to, and what answers to its lines lead to in turn.
    async fn apply(&mut self, step: Step) -> Result<(), ProtocolError> {
        let mut steps = VecDeque::from([step]);
        while let Some(step) = steps.pop_front() {
            self.tell(step.events).await;
            for line in step.write {
                for message in self.passage.pass(Message::to_agent(line)).await? {
                    match message.direction {
                        Direction::ToAgent => self.write(message.text).await?,
                        Direction::FromAgent => {
                            steps.push_back(self.protocol.line(&message.text)?);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    async fn tell(&mut self, events: Vec<AgentEvent>) {
        for event in events {
            self.note(&event);
            for event in bounded(event) {
                self.sink.event(event).await;
            }
        }
    }

    fn note(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::Finished { ok, text } => {
                self.driven.finished = Some((*ok, text.clone()));
            }
            AgentEvent::Usage { total } => self.driven.usage = Some(*total),
            AgentEvent::Message { text } => {
                let text = text.trim();
                if !text.is_empty() {
                    let closing = super::text::cut(text.to_owned(), 16 << 10);
                    self.driven.last_message = Some(closing);
                }
            }
            _ => {}
        }
    }

    /// An agent that does not read any more is on its way out: its exit tells the rest, not this write.
    async fn write(&mut self, mut line: String) -> Result<(), ProtocolError> {
        let Some(stdin) = &mut self.stdin else {
            return Ok(());
        };
        line.push('\n');
        let written = async {
            stdin.write_all(line.as_bytes()).await?;
            stdin.flush().await
        };
        match written.await {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                self.stdin = None;
                Ok(())
            }
            Err(error) => Err(ProtocolError::Write(error)),
        }
    }
}
