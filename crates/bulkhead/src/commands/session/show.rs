//! What a session says, for people and for programs, with its secrets masked.

use std::io::Write as _;

use bulkhead_model::{AgentEvent, PhaseEvent, Stream};
use bulkhead_session::{
    summary::IsolationSummary,
    wire::{FromSession, SessionDelivery},
};
use bulkhead_store::mask::{EventMasker, Masker, StreamMasker};
use serde_json::json;

use crate::{output::Output, plain};

pub(super) struct Show {
    output: Output,
    events: EventMasker,
    streams: [StreamMasker; 3],
    pub(super) summary: Option<IsolationSummary>,
}

impl Show {
    pub(super) fn new(delivery: &SessionDelivery, output: Output) -> anyhow::Result<Self> {
        let secrets = delivery.secrets.iter();
        let masker = Masker::new(secrets.map(|(name, value)| (name.as_str(), value)))?;
        Ok(Self {
            output,
            events: EventMasker::new(masker.clone()),
            streams: std::array::from_fn(|_| masker.stream()),
            summary: None,
        })
    }

    pub(super) fn message(&mut self, message: FromSession) -> anyhow::Result<()> {
        match message {
            FromSession::Event(event) => {
                for event in self.events.push(event) {
                    self.event(&event)?;
                }
            }
            FromSession::Log { stream, data } => self.log(stream, &data)?,
            FromSession::Summary(summary) => {
                self.output.note(&*summary);
                self.output.json_object(&json!({"isolation": &*summary}))?;
                self.summary = Some(*summary);
            }
            FromSession::Awaiting => {
                for event in self.events.finish() {
                    self.event(&event)?;
                }
                self.output.note_part("> ");
            }
            FromSession::Artifact(_) | FromSession::Report(_) => {}
        }
        Ok(())
    }

    /// What a masker still holds back.
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        for event in self.events.finish() {
            self.event(&event)?;
        }
        for stream in [Stream::Stdout, Stream::Stderr, Stream::System] {
            let mut rest = vec![];
            self.streams[index(stream)].finish(&mut rest);
            self.write(stream, &rest)?;
        }
        Ok(())
    }

    fn event(&self, event: &PhaseEvent) -> anyhow::Result<()> {
        self.output.json_object(&json!({"event": event}))?;
        if self.output.is_json() {
            return Ok(());
        }
        match event {
            PhaseEvent::Agent { event } => self.agent(event)?,
            PhaseEvent::Egress {
                allowed: false,
                host,
                port,
                why,
            } => self
                .output
                .note(format_args!("network: refused {host}:{port}: {why}")),
            PhaseEvent::Egress { .. } | PhaseEvent::Stage { .. } | PhaseEvent::Ended { .. } => {}
        }
        Ok(())
    }

    fn agent(&self, event: &AgentEvent) -> std::io::Result<()> {
        match event {
            AgentEvent::Message { text } => self.output.words(plain::text(text).trim_end())?,
            AgentEvent::ToolStarted { title, .. } => {
                self.output.note(format_args!("→ {}", plain::text(title)));
            }
            AgentEvent::ToolEnded {
                ok: false, output, ..
            } => {
                let why: String = output
                    .as_deref()
                    .unwrap_or("no reason given")
                    .chars()
                    .take(400)
                    .collect();
                self.output
                    .note(format_args!("→ failed: {}", plain::text(&why)));
            }
            AgentEvent::Plan { entries } => {
                for entry in entries {
                    self.output
                        .note(format_args!("plan: {}", plain::text(entry)));
                }
            }
            AgentEvent::Permission { title, answer } => {
                self.output
                    .note(format_args!("permission: {}: {answer}", plain::text(title)));
            }
            _ => {}
        }
        Ok(())
    }

    fn log(&mut self, stream: Stream, data: &[u8]) -> std::io::Result<()> {
        let mut masked = Vec::with_capacity(data.len());
        self.streams[index(stream)].push(data, &mut masked);
        self.write(stream, &masked)
    }

    /// A command's own output is the session's: its standard output is ours.
    fn write(&self, stream: Stream, bytes: &[u8]) -> std::io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.output.is_json() {
            let text = String::from_utf8_lossy(bytes);
            return self
                .output
                .json_object(&json!({"log": {"stream": stream, "text": text}}));
        }
        match stream {
            Stream::Stdout => {
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(bytes)?;
                stdout.flush()
            }
            Stream::Stderr | Stream::System => {
                let mut stderr = std::io::stderr().lock();
                // Whether anybody reads it does not matter to the work.
                let _ = stderr.write_all(bytes);
                let _ = stderr.flush();
                Ok(())
            }
        }
    }
}

const fn index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
        Stream::System => 2,
    }
}
