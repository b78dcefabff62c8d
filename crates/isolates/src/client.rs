//! The other end of the service: what a platform does with it.

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use bulkhead_wire::{
    isolates::{
        self, Bundle, CheckRequest, CheckResponse, DrainRequest, Log, MESSAGE_BYTES_MAX,
        PermitAnswer, Start, StatusRequest, StatusResponse, ToService, from_service::Frame,
        isolates_client::IsolatesClient, to_service,
    },
    platform,
};
use hyper_util::rt::TokioIo;
use tokio::{net::UnixStream, sync::mpsc, task::JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Uri},
};

/// Frames to the service that wait to be sent.
const FRAMES_WAITING_MAX: usize = 64;
/// No file is this name: the socket's path is in the connector.
const NO_URI: &str = "http://isolates.invalid";

/// What a plugin asks while it runs. One value serves one invocation, or all of one installation.
#[async_trait]
pub trait Platform: Send + Sync + 'static {
    async fn answer(&self, token: &str, call: platform::Call) -> platform::Answer;

    /// Whether a request of `host.fetch` may be made now; else when.
    async fn permit(&self) -> Result<(), Duration>;

    async fn log(&self, line: Log);
}

/// A connection to one service. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    isolates: IsolatesClient<Channel>,
}

/// PEM: the platform's certificate and key, and the authority whose services it believes.
pub struct ClientTls {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
    pub service_authority: Vec<u8>,
    /// The name in the service's certificate.
    pub service_name: String,
}

impl Client {
    /// Over the service's Unix socket.
    pub async fn unix(socket: &Path) -> Result<Self, tonic::transport::Error> {
        let socket = Arc::<Path>::from(socket);
        let connect = tower::service_fn(move |_: Uri| {
            let socket = Arc::clone(&socket);
            async move { UnixStream::connect(&*socket).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static(NO_URI);
        Ok(Self::over(endpoint.connect_with_connector(connect).await?))
    }

    /// Over TCP, with both sides' certificates. `uri` is `https://HOST:PORT`.
    pub async fn mutual_tls(uri: String, tls: ClientTls) -> Result<Self, tonic::transport::Error> {
        let config = ClientTlsConfig::new()
            .identity(Identity::from_pem(tls.certificate, tls.key))
            .ca_certificate(Certificate::from_pem(tls.service_authority))
            .domain_name(tls.service_name);
        let endpoint = Endpoint::from_shared(uri)?.tls_config(config)?;
        Ok(Self::over(endpoint.connect().await?))
    }

    fn over(channel: Channel) -> Self {
        let isolates = IsolatesClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Self { isolates }
    }

    pub async fn check(&self, request: CheckRequest) -> Result<CheckResponse, Status> {
        let mut isolates = self.isolates.clone();
        isolates
            .check(request)
            .await
            .map(tonic::Response::into_inner)
    }

    pub async fn status(&self) -> Result<StatusResponse, Status> {
        let mut isolates = self.isolates.clone();
        isolates
            .status(StatusRequest {})
            .await
            .map(tonic::Response::into_inner)
    }

    /// Takes nothing new any more, and waits so long for what runs. Says how much still does.
    pub async fn drain(&self, wait: Duration) -> Result<u32, Status> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let mut isolates = self.isolates.clone();
        let response = isolates.drain(DrainRequest { wait_ms }).await?;
        Ok(response.into_inner().running)
    }

    /// Runs one invocation to its end. Dropping the future cancels it.
    ///
    /// # Errors
    /// Where the service cannot be reached, or one of the two sides broke the protocol.
    pub async fn invoke(
        &self,
        start: Start,
        source: Arc<str>,
        platform: Arc<dyn Platform>,
    ) -> Result<isolates::Result, Status> {
        let (to_service, frames) = mpsc::channel(FRAMES_WAITING_MAX);
        send(&to_service, to_service::Frame::Start(start)).await;
        let mut client = self.isolates.clone();
        let mut inbound = client
            .invoke(ReceiverStream::new(frames))
            .await?
            .into_inner();
        // Questions are answered side by side; when the invocation ends, nobody waits for those that are left.
        let mut answering = JoinSet::new();
        while let Some(message) = inbound.message().await? {
            while answering.try_join_next().is_some() {}
            match message.frame {
                Some(Frame::Result(result)) => return Ok(result),
                Some(Frame::NeedBundle(_)) => {
                    let source = source.to_string();
                    send(&to_service, to_service::Frame::Bundle(Bundle { source })).await;
                }
                Some(Frame::Log(line)) => platform.log(line).await,
                Some(Frame::Call(call)) => {
                    answering.spawn(answer(Arc::clone(&platform), to_service.clone(), call));
                }
                Some(Frame::Permit(permit)) => {
                    answering.spawn(grant(Arc::clone(&platform), to_service.clone(), permit.id));
                }
                None => {
                    return Err(Status::internal(
                        "the service sent a frame that this platform does not know",
                    ));
                }
            }
        }
        Err(Status::internal(
            "the service ended the stream without a result",
        ))
    }
}

async fn send(to_service: &mpsc::Sender<ToService>, frame: to_service::Frame) {
    // Where nobody reads any more, the other direction says why.
    let _ = to_service.send(ToService { frame: Some(frame) }).await;
}

async fn answer(
    platform: Arc<dyn Platform>,
    to_service: mpsc::Sender<ToService>,
    call: isolates::Call,
) {
    let answer = match call.call {
        Some(asked) => platform.answer(&call.token, asked).await,
        None => {
            let code = platform::error::Code::Unavailable;
            platform::Error::new(code, "this platform does not know the function").into()
        }
    };
    let answer = isolates::Answer {
        id: call.id,
        answer: Some(answer),
    };
    send(&to_service, to_service::Frame::Answer(answer)).await;
}

async fn grant(platform: Arc<dyn Platform>, to_service: mpsc::Sender<ToService>, id: u32) {
    let permit = platform.permit().await;
    let retry_after = permit.err();
    let answer = PermitAnswer {
        id,
        granted: retry_after.is_none(),
        retry_after_ms: retry_after.map_or(0, |wait| {
            u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
        }),
    };
    send(&to_service, to_service::Frame::PermitAnswer(answer)).await;
}
