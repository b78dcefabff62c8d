#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeMap;

use bulkhead_model::{
    AgentEvent, EndReason, Evidence, Fence, Limits, NetworkPolicy, Outcome, PhaseEvent, PhaseOrder,
    ResourceUse, RunId, Stage, Stream, Work,
};
use proptest::prelude::*;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::{AsyncWriteExt as _, duplex};

use super::*;

fn order() -> PhaseOrder {
    PhaseOrder {
        run: RunId::from_uuid("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b".parse().unwrap()),
        phase: "plan".parse().unwrap(),
        phase_index: 0,
        attempt: 1,
        fence: Fence(3),
        work: Work::Command { run: "true".into() },
        git: None,
        models: vec![],
        limits: Limits::default(),
        network: NetworkPolicy::default(),
        toolchains: vec![],
        env: BTreeMap::new(),
        secrets: vec!["API_KEY".parse().unwrap()],
        artifacts_in: vec![],
        artifacts_out: BTreeMap::new(),
        max_turns: None,
        max_cost_usd_milli: None,
    }
}

pub(crate) fn delivery() -> Delivery {
    Delivery {
        order: order(),
        secrets: [(
            "API_KEY".parse().unwrap(),
            SecretString::from("canary-secret"),
        )]
        .into(),
        phase_token: "canary-token".into(),
        gateway_socket: "/run/gateway.sock".into(),
        program: None,
        machine: Machine::new("/run/bulkhead"),
    }
}

#[tokio::test]
async fn d7_a_delivery_arrives_whole_and_never_shows_its_secrets() {
    let (executor, session) = duplex(64);
    let mut out = Outgoing::<_, ToSession>::new(executor);
    let mut incoming = Incoming::<_, ToSession>::new(session);
    let sent = ToSession::Order(Box::new(delivery()));
    assert!(!format!("{sent:?}").contains("canary"));
    let (sent, received) = tokio::join!(out.send(sent), incoming.next());
    sent.unwrap();
    let Some(ToSession::Order(received)) = received.unwrap() else {
        panic!("not an order")
    };
    assert_eq!(received.order, order());
    assert_eq!(received.phase_token.expose_secret(), "canary-token");
    let secret = &received.secrets[&"API_KEY".parse().unwrap()];
    assert_eq!(secret.expose_secret(), "canary-secret");
    drop(out);
    assert!(incoming.next().await.unwrap().is_none());
}

#[tokio::test]
async fn every_message_of_a_session_comes_back_as_it_was() {
    let outcome = Outcome {
        reason: EndReason::Exit { code: 0 },
        evidence: vec![Evidence {
            source: "status".into(),
            detail: "0".into(),
        }],
        used: ResourceUse::default(),
    };
    let messages = [
        FromSession::Event(PhaseEvent::Stage {
            stage: Stage::AgentStarted,
            at_ms: 7,
        }),
        FromSession::Event(PhaseEvent::Agent {
            event: AgentEvent::Message {
                text: "hé\0".into(),
            },
        }),
        FromSession::Log {
            stream: Stream::Stderr,
            data: vec![0, 255, b'\n'].into(),
        },
        FromSession::Artifact(ArtifactChunk {
            name: "report".parse().unwrap(),
            kind: ArtifactKind::Directory,
            last: true,
            data: vec![1, 2, 3].into(),
        }),
        FromSession::Report(Box::new(Report {
            outcome: Some(outcome),
            failure: Some(Failure {
                kind: FailureKind::Plug {
                    plug: "workspace".into(),
                },
                message: "pushing failed".into(),
            }),
            head: Some("0".repeat(40)),
            usage: None,
            result: None,
            artifacts: vec![],
            dropped_log_bytes: 9,
            ..Report::default()
        })),
    ];
    let (session, executor) = duplex(16);
    let mut out = Outgoing::<_, FromSession>::new(session);
    let mut incoming = Incoming::<_, FromSession>::new(executor);
    for message in messages {
        let (sent, received) = tokio::join!(out.send(message.clone()), incoming.next());
        sent.unwrap();
        assert_eq!(received.unwrap().unwrap(), message);
    }
}

#[tokio::test]
async fn case_63_a_frame_over_the_limit_is_refused_before_its_bytes_are_read() {
    let (mut executor, session) = duplex(64);
    let mut incoming = Incoming::<_, ToSession>::new(session);
    executor.write_all(&[1, 1, 0, 16, 0]).await.unwrap();
    let error = incoming.next().await.unwrap_err();
    assert!(matches!(
        error,
        WireError::TooLarge {
            kind: 1,
            length: 1_048_577
        }
    ));
}

#[tokio::test]
async fn a_socket_that_closes_inside_a_frame_is_an_error_and_not_an_end() {
    let (mut executor, session) = duplex(64);
    let mut incoming = Incoming::<_, ToSession>::new(session);
    executor.write_all(&[2, 4, 0, 0, 0, 1]).await.unwrap();
    drop(executor);
    assert!(matches!(incoming.next().await, Err(WireError::CutOff)));
}

#[test]
fn a_message_of_the_other_direction_is_refused() {
    let frame = Frame {
        kind: 16,
        payload: b"{}".as_slice().into(),
    };
    let error = ToSession::try_from(frame).unwrap_err();
    assert!(matches!(error, WireError::UnexpectedKind(16)));
}

proptest! {
    /// Whatever bytes arrive, in whatever pieces: an error or messages, never a panic.
    #[test]
    fn no_input_makes_the_reader_panic(kind in any::<u8>(), payload in proptest::collection::vec(any::<u8>(), 0..64)) {
        let frame = Frame { kind, payload: payload.into() };
        let _ = ToSession::try_from(frame.clone());
        let _ = FromSession::try_from(frame);
    }
}
