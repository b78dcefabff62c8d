//! The conversation with one session: the order in, everything it says out to the sink.

use bulkhead_model::{PhaseOrder, Stream};
use bulkhead_session::wire::{
    ArtifactChunk, Delivery, FromSession, Incoming, MAX_CHUNK, Outgoing, ToSession, WireError,
};
use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite},
    sync::watch,
};

use super::BuiltinConfig;
use crate::{ArtifactFile, PhaseReport, PhaseSecrets, PhaseSink, SinkError, StopReason};

pub(super) fn delivery(
    order: PhaseOrder,
    secrets: &PhaseSecrets,
    config: &BuiltinConfig,
) -> Box<Delivery> {
    Box::new(Delivery {
        order,
        secrets: secrets.values.clone(),
        phase_token: secrets.token.clone(),
        gateway_socket: secrets.gateway.clone(),
        program: config.offered_program.clone(),
        machine: config.machine.clone(),
    })
}

/// Why the conversation ended without a report.
#[derive(Debug, thiserror::Error)]
pub(super) enum RelayError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Sink(#[from] SinkError),
    #[error("reading the artifact {name} of an earlier phase")]
    Artifact {
        name: String,
        #[source]
        source: std::io::Error,
    },
}

/// Sends the order and its artifacts, then waits for a reason to stop and passes that on. It stays until
/// the caller drops it, because dropping it closes the executor's side.
pub(super) async fn speak<W: AsyncWrite + Unpin>(
    mut out: Outgoing<W, ToSession>,
    delivery: Box<Delivery>,
    artifacts: Vec<ArtifactFile>,
    mut stopped: watch::Receiver<Option<StopReason>>,
) -> Result<std::convert::Infallible, RelayError> {
    out.send(ToSession::Order(delivery)).await?;
    for artifact in artifacts {
        send_artifact(&mut out, artifact).await?;
    }
    // An error means that nobody can ask any more, not that somebody did.
    if stopped.wait_for(Option::is_some).await.is_ok() {
        out.send(ToSession::Cancel).await?;
    }
    std::future::pending().await
}

async fn send_artifact<W: AsyncWrite + Unpin>(
    out: &mut Outgoing<W, ToSession>,
    artifact: ArtifactFile,
) -> Result<(), RelayError> {
    let failed = |source| RelayError::Artifact {
        name: artifact.name.to_string(),
        source,
    };
    let mut file = tokio::fs::File::open(&artifact.path)
        .await
        .map_err(failed)?;
    loop {
        let data = read_chunk(&mut file).await.map_err(failed)?;
        let last = data.len() < MAX_CHUNK;
        out.send(ToSession::Artifact(ArtifactChunk {
            name: artifact.name.clone(),
            kind: artifact.kind,
            last,
            data,
        }))
        .await?;
        if last {
            return Ok(());
        }
    }
}

/// A whole chunk, or less only at the end of the file.
async fn read_chunk(file: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Bytes> {
    let mut data = BytesMut::with_capacity(MAX_CHUNK);
    let mut limited = file.take(MAX_CHUNK as u64);
    while limited.read_buf(&mut data).await? > 0 {}
    Ok(data.freeze())
}

/// Hands what the session says to the sink, in order, until its report; none where it ended without one.
pub(super) async fn listen<R: AsyncRead + Unpin>(
    mut incoming: Incoming<R, FromSession>,
    sink: &dyn PhaseSink,
) -> Result<Option<PhaseReport>, RelayError> {
    while let Some(message) = incoming.next().await? {
        match message {
            FromSession::Event(event) => sink.event(event).await?,
            FromSession::Log { stream, data } => sink.log(stream, data).await?,
            FromSession::Artifact(chunk) => sink.artifact(chunk).await?,
            FromSession::Summary(summary) => {
                let words = summary.to_string().into_bytes().into();
                sink.log(Stream::System, words).await?;
            }
            // Nobody speaks with a phase.
            FromSession::Awaiting => {}
            FromSession::Report(report) => return Ok(Some((*report).into())),
        }
    }
    Ok(None)
}
