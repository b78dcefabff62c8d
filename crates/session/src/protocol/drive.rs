//! Connects a protocol to an agent's standard input and output.

use std::{collections::VecDeque, time::Duration};

use bulkhead_model::{AgentEvent, Usage};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::{AgentProtocol, Conversation, Lines, ProtocolError, Step, text::bounded};
use crate::plug::{Direction, Message, Passage};

/// How long text is held back to be joined with more of it.
const QUIET: Duration = Duration::from_millis(100);

/// Where events go. The call waits while the receiver is busy, and so does the agent.
pub trait EventSink: Send {
    fn event(&mut self, event: AgentEvent) -> impl Future<Output = ()> + Send;
}

/// Where prompts after the first come from.
pub trait Prompts: Send {
    /// The next prompt; none where there is no other. May be dropped while it waits.
    fn next(&mut self) -> impl Future<Output = Option<String>> + Send;

    /// Returns when the turn that is under way is to be given up. May be dropped while it waits.
    fn turn_cancelled(&mut self) -> impl Future<Output = ()> + Send;
}

/// There is one prompt only.
#[derive(Debug, Clone, Copy, Default)]
pub struct OnePrompt;

impl Prompts for OnePrompt {
    async fn next(&mut self) -> Option<String> {
        None
    }

    async fn turn_cancelled(&mut self) {
        std::future::pending().await
    }
}

/// What stands around a conversation.
#[derive(Debug)]
pub struct Around<'a, S, P, Q> {
    pub sink: &'a mut S,
    /// Every line, in both directions, goes through it.
    pub passage: &'a mut P,
    pub prompts: &'a mut Q,
}

/// What the conversation came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Driven {
    /// The agent's own word that its turn is over: whether it went well, and its closing text.
    pub finished: Option<(bool, Option<String>)>,
    pub usage: Option<Usage>,
    /// The last message, for agents that close without words of their own.
    pub last_message: Option<String>,
    /// By what the agent knows the conversation.
    pub conversation: Option<Conversation>,
    /// Whether an earlier conversation was taken up again.
    pub resumed: bool,
}

struct Drive<'a, W, S, P, Q> {
    protocol: &'a mut dyn AgentProtocol,
    stdin: Option<W>,
    around: Around<'a, S, P, Q>,
    driven: &'a mut Driven,
}

/// Holds the conversation until the agent has finished by its own word or its output has ended. `cancel`
/// makes it ask the agent to stop, and then goes on reading. A finished turn is followed by the
/// next prompt, where there is one.
///
/// What it comes to is noted in `driven` as it happens. Standard input is closed when this returns; the agent may
/// still be running.
pub async fn drive<R, W, S, P, Q>(
    protocol: &mut dyn AgentProtocol,
    stdin: W,
    lines: &mut Lines<R>,
    around: Around<'_, S, P, Q>,
    cancel: &CancellationToken,
    driven: &mut Driven,
) -> Result<(), ProtocolError>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
    S: EventSink,
    P: Passage,
    Q: Prompts,
{
    let stdin = protocol.reads_stdin().then_some(stdin);
    let mut drive = Drive {
        protocol,
        stdin,
        around,
        driven,
    };
    let step = drive.protocol.start();
    drive.apply(step).await?;
    let mut cancelled = false;
    loop {
        if drive.turn_is_over() {
            match drive.next_prompt(lines, cancel).await? {
                Some(step) => drive.apply(step).await?,
                None => break,
            }
        }
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
            () = drive.around.prompts.turn_cancelled() => drive.protocol.cancel(),
            () = tokio::time::sleep(QUIET) => drive.protocol.quiet(),
        };
        drive.apply(step).await?;
    }
    let rest = drive.protocol.quiet();
    drive.apply(rest).await
}

/// What a wait for a prompt can bring.
enum Heard {
    Prompt(Option<String>),
    Line(Option<String>),
}

impl<W: AsyncWrite + Unpin + Send, S: EventSink, P: Passage, Q: Prompts> Drive<'_, W, S, P, Q> {
    /// By the agent's own word, or because nothing was asked yet.
    fn turn_is_over(&self) -> bool {
        self.driven.finished.is_some() || self.protocol.waits_for_prompt()
    }

    /// Waits for the next prompt and begins its turn. The agent may go on speaking meanwhile.
    async fn next_prompt<R: AsyncRead + Unpin + Send>(
        &mut self,
        lines: &mut Lines<R>,
        cancel: &CancellationToken,
    ) -> Result<Option<Step>, ProtocolError> {
        let rest = self.protocol.quiet();
        self.apply(rest).await?;
        if !self.protocol.waits_for_prompt() {
            return Ok(None);
        }
        loop {
            let heard = tokio::select! {
                biased;
                prompt = self.around.prompts.next() => Heard::Prompt(prompt),
                () = cancel.cancelled() => Heard::Prompt(None),
                line = lines.next() => Heard::Line(line?),
            };
            match heard {
                Heard::Prompt(Some(text)) => {
                    self.driven.finished = None;
                    return Ok(Some(self.protocol.prompt(&text)));
                }
                Heard::Prompt(None) | Heard::Line(None) => return Ok(None),
                Heard::Line(Some(line)) => self.heard(line).await?,
            }
        }
    }

    async fn heard(&mut self, line: String) -> Result<(), ProtocolError> {
        for message in self.around.passage.pass(Message::from_agent(line)).await? {
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
                for message in self.around.passage.pass(Message::to_agent(line)).await? {
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
        self.driven.conversation = self
            .protocol
            .conversation()
            .or(self.driven.conversation.take());
        self.driven.resumed |= self.protocol.resumed();
        for event in events {
            self.note(&event);
            for event in bounded(event) {
                self.around.sink.event(event).await;
            }
        }
    }

    fn note(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::Finished { ok, text } => {
                self.driven.finished = Some((*ok, text.clone()));
            }
            AgentEvent::Started {
                session: Some(session),
                ..
            } if self.driven.conversation.is_none() => {
                self.driven.conversation = Some(Conversation {
                    id: session.clone(),
                    mode: None,
                    loads: true,
                });
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
