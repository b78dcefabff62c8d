//! The plug that writes a transcript: every message in both directions, one JSON object a line, secrets masked.

use std::{path::PathBuf, sync::Arc, time::SystemTime};

use async_trait::async_trait;
use bulkhead_mask::Masker;
use bulkhead_model::session::RecordConfig;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::{
    plug::{Ctx, Direction, Ended, Message, Plug, PlugError, Verdict},
    session,
    wire::SessionDelivery,
};

pub(super) struct RecordPlug {
    path: PathBuf,
    delivery: Arc<SessionDelivery>,
    open: Option<(tokio::fs::File, Masker)>,
}

impl RecordPlug {
    pub(super) fn new(config: &RecordConfig, delivery: Arc<SessionDelivery>) -> Self {
        let order = &delivery.order;
        let path = match &config.file {
            Some(file) => session::path(order, file),
            None => order.dir.join("transcript.jsonl"),
        };
        Self {
            path,
            delivery,
            open: None,
        }
    }

    fn failed(&self) -> impl FnOnce(std::io::Error) -> PlugError + use<> {
        let what = format!("writing the transcript {}", self.path.display());
        move |error| PlugError::because(what, error)
    }
}

#[async_trait]
impl Plug for RecordPlug {
    fn name(&self) -> &str {
        "record"
    }

    async fn on_session(&mut self, _: &mut Ctx) -> Result<(), PlugError> {
        let secrets = self.delivery.secrets.iter();
        let masker = Masker::new(secrets.map(|(name, value)| (name.as_str(), value)))
            .map_err(|error| PlugError::because("preparing to mask secrets", error))?;
        let mut options = tokio::fs::OpenOptions::new();
        // Appended to, so that a session that goes on after a pause keeps its transcript.
        options.create(true).append(true).mode(0o600);
        let file = options.open(&self.path).await.map_err(self.failed())?;
        self.open = Some((file, masker));
        Ok(())
    }

    fn wants_messages(&self) -> bool {
        true
    }

    async fn on_message(&mut self, _: &mut Ctx, message: &Message) -> Result<Verdict, PlugError> {
        let failed = self.failed();
        if let Some((file, masker)) = &mut self.open {
            let line = line(masker, message);
            file.write_all(line.as_bytes()).await.map_err(failed)?;
        }
        Ok(Verdict::Pass)
    }

    async fn teardown(&mut self, _: &mut Ctx, _: Ended) -> Result<(), PlugError> {
        let failed = self.failed();
        match self.open.take() {
            Some((mut file, _)) => file.flush().await.map_err(failed),
            None => Ok(()),
        }
    }
}

fn line(masker: &Masker, message: &Message) -> String {
    let direction = match message.direction {
        Direction::ToAgent => "to-agent",
        Direction::FromAgent => "from-agent",
    };
    let mut body = message
        .json()
        .unwrap_or_else(|| json!(message.text.as_str()));
    masker.mask_json(&mut body);
    let at_ms = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis());
    let at_ms = u64::try_from(at_ms).unwrap_or(u64::MAX);
    let line = json!({"atMs": at_ms, "direction": direction, "message": body});
    format!("{line}\n")
}
