//! The messages that frames carry.

use std::{collections::BTreeMap, path::PathBuf};

use bulkhead_model::{ArtifactName, PhaseEvent, PhaseOrder, SecretName, Stream};
use bytes::{BufMut as _, Bytes, BytesMut};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    frame::{Frame, MAX_PAYLOAD, WireError},
    report::{ArtifactKind, Report},
    session::{SessionDelivery, WireSession},
};
use crate::summary::IsolationSummary;

const ORDER: u8 = 1;
const CANCEL: u8 = 2;
const ARTIFACT_IN: u8 = 3;
const SESSION: u8 = 4;
const PROMPT: u8 = 5;
const GIVE_UP_TURN: u8 = 6;
const PAUSE: u8 = 7;
const EVENT: u8 = 16;
const LOG: u8 = 17;
const ARTIFACT_OUT: u8 = 18;
const REPORT: u8 = 19;
const SUMMARY: u8 = 20;
const AWAITING: u8 = 21;

/// The most bytes of a log or an artifact that one message carries; room for the header is left.
pub const MAX_CHUNK: usize = MAX_PAYLOAD / 2;

/// Everything a session needs: the order, and what must never be written down.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub order: PhaseOrder,
    /// The values of the order's secrets, by the environment variable that carries each.
    pub secrets: BTreeMap<SecretName, SecretString>,
    /// What the sandbox shows at the phase gateway, for git and for models.
    pub phase_token: SecretString,
    /// The Unix socket of the control plane's phase gateway.
    pub gateway_socket: PathBuf,
    /// The program to offer inside the sandbox as `bulkhead` (the scripted agent is a part of it).
    pub program: Option<PathBuf>,
    pub machine: Machine,
}

/// What the operator configured for the machine on which the session runs.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The sandbox engine's own directory, shared by all sessions of the machine.
    pub sandbox_dir: PathBuf,
    /// The operator's certificate authority, in PEM: trusted inside sandboxes beside the system's.
    pub extra_ca_pem: Option<String>,
    /// The operator's upstream proxy, as a URL that may hold a password.
    pub proxy: Option<SecretString>,
    /// Hosts that may be reached although their addresses are private.
    pub allow_private: Vec<String>,
}

impl Machine {
    pub fn new(sandbox_dir: impl Into<PathBuf>) -> Self {
        Self {
            sandbox_dir: sandbox_dir.into(),
            extra_ca_pem: None,
            proxy: None,
            allow_private: vec![],
        }
    }
}

/// A piece of one artifact. A file is its own bytes; a directory is an archive that only sandboxes open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactChunk {
    pub name: ArtifactName,
    pub kind: ArtifactKind,
    /// Nothing of this artifact follows.
    pub last: bool,
    pub data: Bytes,
}

/// What the executor says.
#[derive(Debug, Clone)]
pub enum ToSession {
    Order(Box<Delivery>),
    Session(Box<SessionDelivery>),
    Cancel,
    Artifact(ArtifactChunk),
    /// A person's next words to the agent.
    Prompt(String),
    /// Give up the turn that is under way; the session goes on.
    GiveUpTurn,
    /// End the agent and the connections, and leave what outlives the session (H15).
    Pause,
}

/// What the session says.
#[derive(Debug, Clone, PartialEq)]
pub enum FromSession {
    Event(PhaseEvent),
    /// Raw bytes of output, not yet masked: that is the log sink's duty, in one place.
    Log {
        stream: Stream,
        data: Bytes,
    },
    Artifact(ArtifactChunk),
    /// What the agent can reach (H16).
    Summary(Box<IsolationSummary>),
    /// The agent waits for a prompt.
    Awaiting,
    Report(Box<Report>),
}

/// The order's form on the wire; the only place where the secrets of a delivery are exposed.
#[derive(Serialize, Deserialize)]
struct WireDelivery {
    order: PhaseOrder,
    secrets: BTreeMap<SecretName, String>,
    phase_token: String,
    gateway_socket: PathBuf,
    program: Option<PathBuf>,
    sandbox_dir: PathBuf,
    extra_ca_pem: Option<String>,
    proxy: Option<String>,
    allow_private: Vec<String>,
}

impl From<&Delivery> for WireDelivery {
    fn from(delivery: &Delivery) -> Self {
        let secrets = delivery.secrets.iter();
        Self {
            order: delivery.order.clone(),
            secrets: secrets
                .map(|(name, value)| (name.clone(), value.expose_secret().to_owned()))
                .collect(),
            phase_token: delivery.phase_token.expose_secret().to_owned(),
            gateway_socket: delivery.gateway_socket.clone(),
            program: delivery.program.clone(),
            sandbox_dir: delivery.machine.sandbox_dir.clone(),
            extra_ca_pem: delivery.machine.extra_ca_pem.clone(),
            proxy: delivery
                .machine
                .proxy
                .as_ref()
                .map(|proxy| proxy.expose_secret().to_owned()),
            allow_private: delivery.machine.allow_private.clone(),
        }
    }
}

impl From<WireDelivery> for Delivery {
    fn from(wire: WireDelivery) -> Self {
        let secrets = wire.secrets.into_iter();
        Self {
            order: wire.order,
            secrets: secrets.map(|(name, value)| (name, value.into())).collect(),
            phase_token: wire.phase_token.into(),
            gateway_socket: wire.gateway_socket,
            program: wire.program,
            machine: Machine {
                sandbox_dir: wire.sandbox_dir,
                extra_ca_pem: wire.extra_ca_pem,
                proxy: wire.proxy.map(SecretString::from),
                allow_private: wire.allow_private,
            },
        }
    }
}

impl TryFrom<ToSession> for Frame {
    type Error = WireError;

    fn try_from(message: ToSession) -> Result<Self, WireError> {
        match message {
            ToSession::Order(delivery) => json_frame(ORDER, &WireDelivery::from(&*delivery)),
            ToSession::Session(delivery) => json_frame(SESSION, &WireSession::from(&*delivery)),
            ToSession::Cancel => Ok(empty(CANCEL)),
            ToSession::GiveUpTurn => Ok(empty(GIVE_UP_TURN)),
            ToSession::Pause => Ok(empty(PAUSE)),
            ToSession::Prompt(text) => json_frame(PROMPT, &text),
            ToSession::Artifact(chunk) => artifact_frame(ARTIFACT_IN, &chunk),
        }
    }
}

impl TryFrom<Frame> for ToSession {
    type Error = WireError;

    fn try_from(frame: Frame) -> Result<Self, WireError> {
        match frame.kind {
            ORDER => {
                let wire: WireDelivery = from_json(&frame)?;
                Ok(Self::Order(Box::new(wire.into())))
            }
            SESSION => {
                let wire: WireSession = from_json(&frame)?;
                Ok(Self::Session(Box::new(wire.into())))
            }
            CANCEL => Ok(Self::Cancel),
            GIVE_UP_TURN => Ok(Self::GiveUpTurn),
            PAUSE => Ok(Self::Pause),
            PROMPT => from_json(&frame).map(Self::Prompt),
            ARTIFACT_IN => artifact_chunk(&frame).map(Self::Artifact),
            other => Err(WireError::UnexpectedKind(other)),
        }
    }
}

impl TryFrom<FromSession> for Frame {
    type Error = WireError;

    fn try_from(message: FromSession) -> Result<Self, WireError> {
        match message {
            FromSession::Event(event) => json_frame(EVENT, &event),
            FromSession::Log { stream, data } => Ok(log_frame(stream, &data)),
            FromSession::Artifact(chunk) => artifact_frame(ARTIFACT_OUT, &chunk),
            FromSession::Summary(summary) => json_frame(SUMMARY, &*summary),
            FromSession::Awaiting => Ok(empty(AWAITING)),
            FromSession::Report(report) => json_frame(REPORT, &*report),
        }
    }
}

impl TryFrom<Frame> for FromSession {
    type Error = WireError;

    fn try_from(frame: Frame) -> Result<Self, WireError> {
        match frame.kind {
            EVENT => from_json(&frame).map(Self::Event),
            LOG => log_message(&frame),
            ARTIFACT_OUT => artifact_chunk(&frame).map(Self::Artifact),
            SUMMARY => from_json(&frame).map(|summary| Self::Summary(Box::new(summary))),
            AWAITING => Ok(Self::Awaiting),
            REPORT => from_json(&frame).map(|report| Self::Report(Box::new(report))),
            other => Err(WireError::UnexpectedKind(other)),
        }
    }
}

fn empty(kind: u8) -> Frame {
    Frame {
        kind,
        payload: Bytes::new(),
    }
}

fn json_frame(kind: u8, value: &impl Serialize) -> Result<Frame, WireError> {
    match serde_json::to_vec(value) {
        Ok(json) => Ok(Frame {
            kind,
            payload: json.into(),
        }),
        Err(source) => Err(WireError::Json { kind, source }),
    }
}

fn from_json<T: DeserializeOwned>(frame: &Frame) -> Result<T, WireError> {
    serde_json::from_slice(&frame.payload).map_err(|source| WireError::Json {
        kind: frame.kind,
        source,
    })
}

const STREAMS: [Stream; 3] = [Stream::Stdout, Stream::Stderr, Stream::System];

fn log_frame(stream: Stream, data: &[u8]) -> Frame {
    let index = match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
        Stream::System => 2,
    };
    let mut payload = BytesMut::with_capacity(data.len() + 1);
    payload.put_u8(index);
    payload.put_slice(data);
    Frame {
        kind: LOG,
        payload: payload.freeze(),
    }
}

fn log_message(frame: &Frame) -> Result<FromSession, WireError> {
    let stream = frame
        .payload
        .first()
        .and_then(|&i| STREAMS.get(usize::from(i)));
    let stream = *stream.ok_or(WireError::Malformed {
        kind: frame.kind,
        what: "its first byte names no stream",
    })?;
    Ok(FromSession::Log {
        stream,
        data: frame.payload.slice(1..),
    })
}

/// An artifact's payload is `[name length u8][name][kind u8][last u8][data]`.
fn artifact_frame(kind: u8, chunk: &ArtifactChunk) -> Result<Frame, WireError> {
    let name = chunk.name.as_str().as_bytes();
    let length = u8::try_from(name.len()).map_err(|_| WireError::Malformed {
        kind,
        what: "the artifact's name is too long",
    })?;
    let mut payload = BytesMut::with_capacity(name.len() + chunk.data.len() + 3);
    payload.put_u8(length);
    payload.put_slice(name);
    payload.put_u8(match chunk.kind {
        ArtifactKind::File => 0,
        ArtifactKind::Directory => 1,
    });
    payload.put_u8(u8::from(chunk.last));
    payload.put_slice(&chunk.data);
    Ok(Frame {
        kind,
        payload: payload.freeze(),
    })
}

fn artifact_chunk(frame: &Frame) -> Result<ArtifactChunk, WireError> {
    parse_artifact(&frame.payload).ok_or(WireError::Malformed {
        kind: frame.kind,
        what: "it is not an artifact's name, kind and data",
    })
}

fn parse_artifact(payload: &Bytes) -> Option<ArtifactChunk> {
    let (&length, rest) = payload.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(length))?;
    let (&[kind, last], data) = rest.split_first_chunk::<2>()?;
    Some(ArtifactChunk {
        name: std::str::from_utf8(name).ok()?.parse().ok()?,
        kind: match kind {
            0 => ArtifactKind::File,
            1 => ArtifactKind::Directory,
            _ => return None,
        },
        last: match last {
            0 => false,
            1 => true,
            _ => return None,
        },
        data: payload.slice_ref(data),
    })
}
