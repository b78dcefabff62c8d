//! The other end of an `Invoke`: what goes to the platform, what comes from it, and the moment it goes away.

use std::sync::Arc;

use bulkhead_wire::isolates::{Bundle, FromService, ToService, from_service, to_service};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use crate::stream_link::StreamLink;

/// What may wait for the platform to read it: more than the lines of a log and the calls that are under way.
pub(crate) const FRAMES_WAITING_MAX: usize = 1024;

/// Who asked for an invocation.
pub(crate) enum Caller {
    Stream(Box<StreamCaller>),
    /// Nobody reads along, and nobody cancels: a check, whose own call ends with it.
    Nobody,
}

pub(crate) struct StreamCaller {
    frames: mpsc::Sender<Result<FromService, Status>>,
    inbound: Streaming<ToService>,
    link: Arc<StreamLink>,
}

/// The caller is not there any more, or not as one could go on with.
#[derive(Debug, Clone)]
pub(crate) enum Gone {
    Closed,
    /// It sent what it must not.
    Broke(Status),
}

impl Caller {
    /// Waits until the caller goes away, and hands on its answers meanwhile. May be dropped at any time.
    pub(crate) async fn gone(&mut self) -> Gone {
        match self {
            Self::Stream(caller) => caller.gone().await,
            Self::Nobody => std::future::pending().await,
        }
    }

    /// Sends without waiting. A caller that does not read is noticed as one that is gone.
    pub(crate) fn send(&self, frame: from_service::Frame) {
        if let Self::Stream(caller) = self {
            // Full or closed: the link sees to it.
            let _ = caller
                .frames
                .try_send(Ok(FromService { frame: Some(frame) }))
                .inspect_err(|_| caller.link.overrun());
        }
    }
}

impl StreamCaller {
    pub(crate) fn new(
        frames: mpsc::Sender<Result<FromService, Status>>,
        inbound: Streaming<ToService>,
        link: Arc<StreamLink>,
    ) -> Self {
        Self {
            frames,
            inbound,
            link,
        }
    }

    /// The bundle that was asked for.
    pub(crate) async fn bundle(&mut self) -> Result<Bundle, Gone> {
        loop {
            match self.next().await? {
                to_service::Frame::Bundle(bundle) => return Ok(bundle),
                other => self.take(other)?,
            }
        }
    }

    async fn gone(&mut self) -> Gone {
        loop {
            let taken = match self.next().await {
                Ok(frame) => self.take(frame),
                Err(gone) => return gone,
            };
            if let Err(gone) = taken {
                return gone;
            }
        }
    }

    async fn next(&mut self) -> Result<to_service::Frame, Gone> {
        let message = tokio::select! {
            message = self.inbound.message() => message,
            () = self.frames.closed() => return Err(Gone::Closed),
            () = self.link.is_overrun() => return Err(Gone::Broke(Status::resource_exhausted(
                "the stream's frames are not read",
            ))),
        };
        match message {
            Ok(Some(message)) => message.frame.ok_or_else(|| broke("an empty frame")),
            Ok(None) => Err(Gone::Closed),
            Err(status) if status.code() == tonic::Code::OutOfRange => Err(Gone::Broke(status)),
            Err(_) => Err(Gone::Closed),
        }
    }

    fn take(&self, frame: to_service::Frame) -> Result<(), Gone> {
        match frame {
            to_service::Frame::Answer(answer) => self.link.answer(answer),
            to_service::Frame::PermitAnswer(answer) => self.link.permit_answer(&answer),
            to_service::Frame::Start(_) => return Err(broke("a second Start")),
            to_service::Frame::Bundle(_) => return Err(broke("a Bundle that was not asked for")),
        }
        Ok(())
    }
}

fn broke(what: &str) -> Gone {
    Gone::Broke(Status::invalid_argument(format!(
        "the stream carried {what}"
    )))
}
