//! The way to the platform over the stream of an `Invoke`: questions down, answers up, by number.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use bulkhead_wire::{
    isolates::{self, FromService, PermitAnswer, from_service},
    platform,
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::platform_link::{NoPermit, PlatformLink};

/// How long a permit is waited for; after it, it is refused.
const PERMIT_MAX: Duration = Duration::from_secs(2);

pub(crate) struct StreamLink {
    frames: mpsc::Sender<Result<FromService, Status>>,
    token: SecretString,
    last_id: AtomicU32,
    asked: Mutex<Asked>,
    overrun: CancellationToken,
}

#[derive(Default)]
struct Asked {
    calls: HashMap<u32, oneshot::Sender<platform::answer::Answer>>,
    permits: HashMap<u32, oneshot::Sender<PermitAnswer>>,
}

impl StreamLink {
    pub(crate) fn new(
        frames: mpsc::Sender<Result<FromService, Status>>,
        token: SecretString,
    ) -> Self {
        Self {
            frames,
            token,
            last_id: AtomicU32::new(0),
            asked: Mutex::default(),
            overrun: CancellationToken::new(),
        }
    }

    /// Answers to questions that nobody waits for any more are dropped.
    pub(crate) fn answer(&self, answer: isolates::Answer) {
        let waiting = self.asked().calls.remove(&answer.id);
        let content = answer.answer.and_then(|answer| answer.answer);
        if let Some(waiting) = waiting {
            let content = content.unwrap_or_else(|| failed("the platform's answer is empty"));
            let _ = waiting.send(content);
        }
    }

    pub(crate) fn permit_answer(&self, answer: &PermitAnswer) {
        if let Some(waiting) = self.asked().permits.remove(&answer.id) {
            let _ = waiting.send(*answer);
        }
    }

    /// The caller does not read what it is sent.
    pub(crate) fn overrun(&self) {
        self.overrun.cancel();
    }

    pub(crate) async fn is_overrun(&self) {
        self.overrun.cancelled().await;
    }

    fn next_id(&self) -> u32 {
        self.last_id.fetch_add(1, Relaxed).wrapping_add(1)
    }

    async fn send(&self, frame: from_service::Frame) -> Result<(), ()> {
        let message = FromService { frame: Some(frame) };
        self.frames.send(Ok(message)).await.map_err(|_| ())
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl PlatformLink for StreamLink {
    async fn ask(&self, call: platform::call::Call) -> platform::answer::Answer {
        let (id, method) = (self.next_id(), call.method());
        let (sender, answered) = oneshot::channel();
        self.asked().calls.insert(id, sender);
        let _forget = Forget { link: self, id };
        let call = isolates::Call {
            id,
            token: self.token.expose_secret().to_owned(),
            call: Some(platform::Call { call: Some(call) }),
        };
        if self.send(from_service::Frame::Call(call)).await.is_err() {
            return unavailable();
        }
        match answered.await {
            Ok(answer) if fits(&answer, method) => answer,
            Ok(_) => failed("the platform answered another call"),
            Err(_) => unavailable(),
        }
    }

    async fn permit(&self) -> Result<(), NoPermit> {
        let id = self.next_id();
        let (sender, answered) = oneshot::channel();
        self.asked().permits.insert(id, sender);
        let _forget = Forget { link: self, id };
        let asked = async {
            let permit = from_service::Frame::Permit(isolates::Permit { id });
            self.send(permit).await.ok()?;
            answered.await.ok()
        };
        match timeout(PERMIT_MAX, asked).await {
            Ok(Some(answer)) if answer.granted => Ok(()),
            Ok(Some(answer)) => Err(NoPermit::UsedUp {
                retry_after: Duration::from_millis(answer.retry_after_ms),
            }),
            Ok(None) | Err(_) => Err(NoPermit::NoAnswer),
        }
    }
}

/// Whoever stops waiting leaves nothing behind.
struct Forget<'a> {
    link: &'a StreamLink,
    id: u32,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let mut asked = self.link.asked();
        asked.calls.remove(&self.id);
        asked.permits.remove(&self.id);
    }
}

fn fits(answer: &platform::answer::Answer, method: u32) -> bool {
    answer.method().is_none_or(|answered| answered == method)
}

fn failed(message: &str) -> platform::answer::Answer {
    let code = platform::error::Code::Failed;
    platform::answer::Answer::Error(platform::Error::new(code, message))
}

fn unavailable() -> platform::answer::Answer {
    let code = platform::error::Code::Unavailable;
    platform::answer::Answer::Error(platform::Error::new(
        code,
        "the platform is not there any more",
    ))
}
