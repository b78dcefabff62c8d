//! A run's news as lines for a person, on standard error.

use std::collections::BTreeMap;

use bulkhead_model::{AgentEvent, PhaseEvent};
use bulkhead_server::{News, PhaseStatus, RunView};

use crate::{
    output::Output,
    plain::{self, Plain},
    words::{short, span},
};

/// What a log says last; a phase's end says the same.
const END_OF_LOG: &str = "[bulkhead: end of the log]";

/// What was shown last, so that only what is new is said.
pub(super) struct Progress {
    output: Output,
    phases: BTreeMap<String, (PhaseStatus, u32)>,
    logs: BTreeMap<(String, String), Plain>,
}

impl Progress {
    pub(super) fn new(output: Output) -> Self {
        Self {
            output,
            phases: BTreeMap::new(),
            logs: BTreeMap::new(),
        }
    }

    pub(super) fn run(&mut self, run: &RunView) {
        for phase in &run.phases {
            let now = (phase.status, phase.attempt);
            let before = self.phases.insert(phase.name.clone(), now);
            if before == Some(now) {
                continue;
            }
            let name = &phase.name;
            match phase.status {
                PhaseStatus::Queued => self.output.note(format_args!("· {name} is queued")),
                PhaseStatus::Running if phase.attempt > 1 => {
                    self.output
                        .note(format_args!("▶ {name}, attempt {}", phase.attempt));
                }
                PhaseStatus::Running => self.output.note(format_args!("▶ {name}")),
                PhaseStatus::Done => {
                    self.flush(name);
                    let commit = phase
                        .commit
                        .as_deref()
                        .map(|commit| format!(", commit {}", short(commit)));
                    let spent = span(phase.spent.time_ms);
                    self.output.note(format_args!(
                        "✓ {name} is done in {spent}{}",
                        commit.unwrap_or_default()
                    ));
                }
                PhaseStatus::AtGate => self.flush(name),
                PhaseStatus::Waiting | PhaseStatus::Held | PhaseStatus::Dropped => {}
            }
        }
    }

    pub(super) fn show(&mut self, news: &News) {
        match news {
            News::Run { .. } => {}
            News::Event { event } => {
                if let Ok(said) = serde_json::from_value::<PhaseEvent>(event.event.clone()) {
                    self.event(&event.phase, &said);
                }
            }
            News::Log { phase, line, .. } => self.log(phase, &line.stream, &line.text),
        }
    }

    fn event(&self, phase: &str, event: &PhaseEvent) {
        match event {
            PhaseEvent::Agent { event } => self.agent(phase, event),
            PhaseEvent::Egress {
                allowed: false,
                host,
                port,
                why,
            } => {
                self.say(phase, &format!("network: refused {host}:{port}: {why}"));
            }
            PhaseEvent::Egress { .. } | PhaseEvent::Stage { .. } | PhaseEvent::Ended { .. } => {}
        }
    }

    fn agent(&self, phase: &str, event: &AgentEvent) {
        match event {
            AgentEvent::Message { text } => self.say(phase, text),
            AgentEvent::ToolStarted { title, .. } => self.say(phase, &format!("→ {title}")),
            AgentEvent::ToolEnded {
                ok: false, output, ..
            } => {
                let why = output.as_deref().unwrap_or("no reason given");
                self.say(
                    phase,
                    &format!("→ failed: {}", why.chars().take(200).collect::<String>()),
                );
            }
            AgentEvent::Plan { entries } => {
                for entry in entries {
                    self.say(phase, &format!("plan: {entry}"));
                }
            }
            _ => {}
        }
    }

    fn say(&self, phase: &str, text: &str) {
        for line in plain::text(text).lines() {
            self.output.note(format_args!("  {phase} │ {line}"));
        }
    }

    fn log(&mut self, phase: &str, stream: &str, text: &str) {
        let key = (phase.to_owned(), stream.to_owned());
        let lines = self.logs.entry(key).or_default().push(text);
        for line in lines.iter().filter(|line| *line != END_OF_LOG) {
            self.output.note(format_args!("  {phase} │ {line}"));
        }
    }

    /// Lines that never ended are shown when their phase does.
    fn flush(&mut self, phase: &str) {
        let (output, ours) = (self.output, |(name, _): &&(String, String)| name == phase);
        let keys: Vec<_> = self.logs.keys().filter(ours).cloned().collect();
        for key in keys {
            if let Some(line) = self.logs.remove(&key).and_then(|mut plain| plain.finish()) {
                output.note(format_args!("  {phase} │ {line}"));
            }
        }
    }
}
