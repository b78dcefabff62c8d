//! What a person says to the agent after the first prompt.

use std::sync::Arc;

use tokio::sync::{Notify, mpsc};

use super::streams::Activity;
use crate::{outbox::Outbox, protocol::Prompts};

/// Prompts that wait for the agent.
pub(crate) const PROMPTS: usize = 16;

/// The further prompts of a session. A phase has none.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    more: Option<mpsc::Receiver<String>>,
    give_up: Arc<Notify>,
    out: Option<Outbox>,
    activity: Option<Activity>,
    /// Whether it was told already that a prompt is waited for.
    told: bool,
}

impl Asked {
    /// Nobody says anything.
    pub(crate) fn nothing() -> Self {
        Self::default()
    }

    /// Prompts come from `more`; `give_up` gives up the turn that is under way.
    pub(crate) fn by(more: mpsc::Receiver<String>, give_up: Arc<Notify>, out: Outbox) -> Self {
        Self {
            more: Some(more),
            give_up,
            out: Some(out),
            activity: None,
            told: false,
        }
    }

    /// Whether anybody may still say something.
    pub(crate) const fn goes_on(&self) -> bool {
        self.more.is_some()
    }

    /// Whose silence does not count while a prompt is waited for.
    pub(super) fn watch(&mut self, activity: Activity) {
        self.activity = Some(activity);
    }
}

impl Prompts for Asked {
    async fn next(&mut self) -> Option<String> {
        let more = self.more.as_mut()?;
        if let (Some(out), false) = (&self.out, self.told) {
            self.told = true;
            out.awaiting().await;
        }
        if let Some(activity) = &self.activity {
            activity.pause();
        }
        let prompt = more.recv().await;
        if let Some(activity) = &self.activity {
            activity.go_on();
        }
        self.told = false;
        if prompt.is_none() {
            self.more = None;
        }
        prompt
    }

    async fn turn_cancelled(&mut self) {
        self.give_up.notified().await;
    }
}
