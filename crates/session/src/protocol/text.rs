//! Bounds on what an agent's text may take up in one event, so that every event fits in one frame.

use bulkhead_model::AgentEvent;

/// The most bytes of one message. JSON escapes can make six of one byte, and a frame holds 1 MiB.
const MESSAGE: usize = 128 << 10;
/// The most bytes of a tool's input or output, or of a line that was not understood.
const DETAIL: usize = 32 << 10;
/// The most bytes of a title or a plan's entry.
const TITLE: usize = 1 << 10;
/// The most entries of a plan.
const ENTRIES: usize = 100;

/// Long messages become several; everything else is cut, with a mark that says how much is missing.
pub(super) fn bounded(event: AgentEvent) -> Vec<AgentEvent> {
    match event {
        AgentEvent::Message { text } => split(&text, |text| AgentEvent::Message { text }),
        AgentEvent::Thought { text } => split(&text, |text| AgentEvent::Thought { text }),
        other => vec![cut_fields(other)],
    }
}

fn split(text: &str, event: impl Fn(String) -> AgentEvent) -> Vec<AgentEvent> {
    let mut events = vec![];
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(MESSAGE));
        events.push(event(piece.to_owned()));
        rest = after;
    }
    events
}

fn cut_fields(event: AgentEvent) -> AgentEvent {
    match event {
        AgentEvent::Started {
            agent,
            model,
            session,
        } => AgentEvent::Started {
            agent: agent.map(|text| cut(text, TITLE)),
            model: model.map(|text| cut(text, TITLE)),
            session: session.map(|text| cut(text, TITLE)),
        },
        AgentEvent::ToolStarted { id, title, input } => AgentEvent::ToolStarted {
            id: cut(id, TITLE),
            title: cut(title, TITLE),
            input: input.map(|text| cut(text, DETAIL)),
        },
        AgentEvent::ToolEnded { id, ok, output } => AgentEvent::ToolEnded {
            id: cut(id, TITLE),
            ok,
            output: output.map(|text| cut(text, DETAIL)),
        },
        AgentEvent::Plan { entries } => AgentEvent::Plan {
            entries: entries
                .into_iter()
                .take(ENTRIES)
                .map(|text| cut(text, TITLE))
                .collect(),
        },
        AgentEvent::Permission { title, answer } => AgentEvent::Permission {
            title: cut(title, TITLE),
            answer: cut(answer, TITLE),
        },
        AgentEvent::Finished { ok, text } => AgentEvent::Finished {
            ok,
            text: text.map(|text| cut(text, MESSAGE)),
        },
        AgentEvent::Other { line } => AgentEvent::Other {
            line: cut(line, DETAIL),
        },
        same @ (AgentEvent::Message { .. }
        | AgentEvent::Thought { .. }
        | AgentEvent::Usage { .. }) => same,
    }
}

/// `text` with at most `limit` bytes of it, and a mark where something is missing.
pub(crate) fn cut(text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let kept = text.floor_char_boundary(limit);
    let missing = text.len() - kept;
    let mut text = text;
    text.truncate(kept);
    text.push_str(&format!("… [{missing} bytes left out]"));
    text
}
