//! The service over gRPC.

mod listen;

use std::{pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use bulkhead_wire::isolates::{
    CheckRequest, CheckResponse, DrainRequest, DrainResponse, FromService, MESSAGE_BYTES_MAX,
    StatusRequest, StatusResponse, ToService,
    isolates_server::{Isolates, IsolatesServer},
    to_service,
};
use futures::Stream;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::{broker::Broker, caller::FRAMES_WAITING_MAX, order::Order};

pub use listen::{Listen, ListenError, MutualTls, serve};

/// How long a stream may stay without its `Start`.
const START_MAX: Duration = Duration::from_secs(10);
const DRAIN_MAX: Duration = Duration::from_secs(15 * 60);

struct Service {
    broker: Arc<Broker>,
}

/// The service, with the bounds of its messages.
fn service(broker: Arc<Broker>) -> IsolatesServer<impl Isolates> {
    IsolatesServer::new(Service { broker })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

#[async_trait]
impl Isolates for Service {
    type InvokeStream = Pin<Box<dyn Stream<Item = Result<FromService, Status>> + Send>>;

    async fn invoke(
        &self,
        request: Request<Streaming<ToService>>,
    ) -> Result<Response<Self::InvokeStream>, Status> {
        let mut inbound = request.into_inner();
        let first = timeout(START_MAX, inbound.message());
        let first = first
            .await
            .map_err(|_| Status::deadline_exceeded("no Start came"))??;
        let Some(to_service::Frame::Start(start)) = first.and_then(|message| message.frame) else {
            return Err(Status::invalid_argument(
                "the stream does not begin with a Start",
            ));
        };
        let order =
            Order::try_from(start).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let (sender, frames) = mpsc::channel(FRAMES_WAITING_MAX);
        self.broker.invoke(order, inbound, sender);
        Ok(Response::new(Box::pin(ReceiverStream::new(frames))))
    }

    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, Status> {
        self.broker
            .check(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        Ok(Response::new(self.broker.status()))
    }

    async fn drain(
        &self,
        request: Request<DrainRequest>,
    ) -> Result<Response<DrainResponse>, Status> {
        let wait = Duration::from_millis(request.into_inner().wait_ms).min(DRAIN_MAX);
        let running = self.broker.drain(wait).await;
        Ok(Response::new(DrainResponse { running }))
    }
}
