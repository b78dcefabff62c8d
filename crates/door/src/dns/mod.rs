//! The DNS stub inside the sandbox: names of the allow-list get their (filtered) addresses, everything
//! else does not exist. A refused name is never sent to any name server, so questions carry nothing out.

mod message;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bulkhead_egress::{EgressError, ResolveError};
use bulkhead_model::network::HostName;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    sync::Semaphore,
    time,
};
use tracing::debug;

use crate::{door::Shared, log::Asked};
use message::{Answer, Question, Transport};

/// No query of one question is longer; what is cut off no longer parses.
const MAX_QUERY: usize = 1_024;
/// How long a TCP connection may be silent.
const TCP_IDLE: Duration = Duration::from_secs(10);

pub(crate) async fn serve_udp(socket: UdpSocket, shared: Arc<Shared>) {
    let socket = Arc::new(socket);
    let room = Arc::new(Semaphore::new(shared.limits.dns_questions));
    let mut packet = vec![0; MAX_QUERY];
    loop {
        let (size, asker) = match socket.recv_from(&mut packet).await {
            Ok(received) => received,
            Err(error) => {
                debug!(%error, "receiving a DNS question failed");
                time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let Some(question) = Question::parse(&packet[..size]) else {
            continue;
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            continue;
        };
        let (socket, task_shared) = (Arc::clone(&socket), Arc::clone(&shared));
        shared.spawn(async move {
            answer_udp(&socket, asker, &question, &task_shared).await;
            drop(place);
        });
    }
}

async fn answer_udp(socket: &UdpSocket, asker: SocketAddr, question: &Question, shared: &Shared) {
    let answer = question.answer(&decide(question, shared).await, Transport::Udp);
    if let Err(error) = socket.send_to(&answer, asker).await {
        debug!(%error, "answering a DNS question failed");
    }
}

/// Answers the questions of one connection, one after the other.
pub(crate) async fn serve_tcp(mut stream: TcpStream, shared: Arc<Shared>) {
    while let Ok(Some(question)) = time::timeout(TCP_IDLE, read_question(&mut stream)).await {
        let answer = question.answer(&decide(&question, &shared).await, Transport::Tcp);
        let Ok(length) = u16::try_from(answer.len()) else {
            return;
        };
        let framed = [&length.to_be_bytes()[..], &answer].concat();
        let writing = time::timeout(TCP_IDLE, stream.write_all(&framed));
        if !matches!(writing.await, Ok(Ok(()))) {
            return;
        }
    }
}

async fn read_question(stream: &mut TcpStream) -> Option<Question> {
    let length = usize::from(stream.read_u16().await.ok()?);
    if length > MAX_QUERY {
        return None;
    }
    let mut packet = vec![0; length];
    stream.read_exact(&mut packet).await.ok()?;
    Question::parse(&packet)
}

async fn decide(question: &Question, shared: &Shared) -> Answer {
    if let Some(answer) = question.unusual() {
        return answer;
    }
    let name: Option<HostName> = question.name.as_deref().and_then(|name| name.parse().ok());
    let Some(name) = name else {
        return Answer::NoSuchName;
    };
    match shared.egress.addresses(&shared.grant, &name).await {
        Ok((decision, addresses)) => {
            shared.log.record(Asked::Name, &decision);
            Answer::Addresses(addresses)
        }
        Err(EgressError::Refused(decision)) => {
            shared.log.record(Asked::Name, &decision);
            Answer::NoSuchName
        }
        Err(EgressError::Resolve {
            source: ResolveError::NotFound,
            ..
        }) => Answer::NoSuchName,
        // The proxy still reaches the name; it only cannot be resolved on this side of the operator's proxy.
        Err(EgressError::ResolvedUpstream(_)) => Answer::Refused,
        Err(error) => {
            debug!(%error, "resolving for the sandbox failed");
            Answer::Failed
        }
    }
}
