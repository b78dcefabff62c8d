//! Masking what agents say. Their messages come in pieces, so a secret may be cut between two events as
//! it may between two writes.

use bulkhead_model::{AgentEvent, PhaseEvent};

use crate::{Masker, StreamMasker};

/// Masks the events of one phase attempt, in their order.
#[derive(Debug)]
pub struct EventMasker {
    masker: Masker,
    messages: StreamMasker,
    thoughts: StreamMasker,
}

impl EventMasker {
    pub fn new(masker: Masker) -> Self {
        Self {
            messages: masker.stream(),
            thoughts: masker.stream(),
            masker,
        }
    }

    /// Masks an event. The end of a message that could still become a secret waits for the next
    /// piece; what waits comes out, as an event of its own, before the event that ends a turn.
    pub fn push(&mut self, event: PhaseEvent) -> Vec<PhaseEvent> {
        match event {
            PhaseEvent::Agent {
                event: AgentEvent::Message { text },
            } => message(piece(&mut self.messages, &text)),
            PhaseEvent::Agent {
                event: AgentEvent::Thought { text },
            } => thought(piece(&mut self.thoughts, &text)),
            other => {
                let mut events = if ends_turn(&other) {
                    self.finish()
                } else {
                    Vec::new()
                };
                events.push(self.whole(other));
                events
            }
        }
    }

    /// What still waits; for the end of the phase.
    pub fn finish(&mut self) -> Vec<PhaseEvent> {
        let mut events = thought(rest(&mut self.thoughts));
        events.extend(message(rest(&mut self.messages)));
        events
    }

    /// Masks an event that comes in one piece, in whatever field.
    fn whole(&self, event: PhaseEvent) -> PhaseEvent {
        let Ok(mut value) = serde_json::to_value(&event) else {
            return unreadable(String::new());
        };
        let before = value.clone();
        self.masker.mask_json(&mut value);
        if value == before {
            return event;
        }
        let text = value.to_string();
        serde_json::from_value(value).unwrap_or_else(|_| unreadable(text))
    }
}

/// Where a secret is spelled like a word of the event itself, only its masked JSON is left.
fn unreadable(line: String) -> PhaseEvent {
    PhaseEvent::Agent {
        event: AgentEvent::Other { line },
    }
}

const fn ends_turn(event: &PhaseEvent) -> bool {
    matches!(
        event,
        PhaseEvent::Ended { .. }
            | PhaseEvent::Agent {
                event: AgentEvent::Finished { .. } | AgentEvent::Started { .. }
            }
    )
}

fn piece(stream: &mut StreamMasker, text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    stream.push(text.as_bytes(), &mut out);
    into_text(out)
}

fn rest(stream: &mut StreamMasker) -> String {
    let mut out = Vec::new();
    stream.finish(&mut out);
    into_text(out)
}

/// Forms begin and end between characters, and so do the pieces.
fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn message(text: String) -> Vec<PhaseEvent> {
    agent_text(text, |text| AgentEvent::Message { text })
}

fn thought(text: String) -> Vec<PhaseEvent> {
    agent_text(text, |text| AgentEvent::Thought { text })
}

fn agent_text(text: String, event: impl Fn(String) -> AgentEvent) -> Vec<PhaseEvent> {
    if text.is_empty() {
        return Vec::new();
    }
    vec![PhaseEvent::Agent { event: event(text) }]
}
