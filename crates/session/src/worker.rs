//! The session process's main: from the order to the report.

use std::os::fd::OwnedFd;

use tokio::net::UnixStream;

use crate::wire::{
    Delivery, Failure, FailureKind, FromSession, Incoming, Outgoing, Report, ToSession, WireError,
};

/// The session could not even speak with its executor.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("taking over the socket to the executor")]
    Socket(#[source] std::io::Error),
    #[error("speaking with the executor")]
    Wire(#[from] WireError),
    #[error("the executor closed the socket before it sent an order")]
    NoOrder,
    #[error("the executor's first message is not an order")]
    NotAnOrder,
}

/// Carries out one phase: reads the order from `socket` (a connected Unix stream socket, which the
/// executor passes as the process's standard input), and returns when the report is sent and nothing of the
/// sandbox is left. An error of the phase is in the report; an error here means that nobody could be told.
pub async fn run_worker(socket: OwnedFd) -> Result<(), SessionError> {
    let socket = std::os::unix::net::UnixStream::from(socket);
    socket.set_nonblocking(true).map_err(SessionError::Socket)?;
    let socket = UnixStream::from_std(socket).map_err(SessionError::Socket)?;
    let (reader, writer) = socket.into_split();
    let mut incoming = Incoming::<_, ToSession>::new(reader);
    let mut outgoing = Outgoing::<_, FromSession>::new(writer);
    let delivery = read_order(&mut incoming).await?;
    let report = perform(&delivery);
    outgoing.send(FromSession::Report(Box::new(report))).await?;
    Ok(())
}

async fn read_order<R: tokio::io::AsyncRead + Unpin>(
    incoming: &mut Incoming<R, ToSession>,
) -> Result<Box<Delivery>, SessionError> {
    match incoming.next().await? {
        Some(ToSession::Order(delivery)) => Ok(delivery),
        Some(_) => Err(SessionError::NotAnOrder),
        None => Err(SessionError::NoOrder),
    }
}

fn perform(delivery: &Delivery) -> Report {
    Report {
        outcome: None,
        failure: Some(Failure {
            kind: FailureKind::Refused,
            message: format!(
                "phase {}: no sandbox engine is part of this build",
                delivery.order.phase
            ),
        }),
        head: None,
        usage: None,
        result: None,
        artifacts: vec![],
        dropped_log_bytes: 0,
    }
}
