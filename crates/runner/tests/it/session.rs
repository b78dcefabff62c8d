//! A session process for tests: this test binary started again. It does what the order's command says.

use std::{os::fd::AsFd as _, time::Duration};

use bulkhead_model::{Outcome, Stream, Work, outcome::EndReason};
use bulkhead_runner::ArtifactKind;
use bulkhead_session::wire::{
    ArtifactChunk, Delivery, FinishedArtifact, FromSession, Incoming, Outgoing, Report, ToSession,
};
use secrecy::ExposeSecret as _;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// The arguments that turn this binary into a session process.
pub(crate) const ARGS: [&str; 4] = ["--exact", "session::process", "--ignored", "--nocapture"];

/// Not a test: the executor under test starts it.
#[test]
#[ignore = "the body of the session process that other tests start"]
fn process() {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let socket = std::os::unix::net::UnixStream::from(socket);
    socket.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let socket = tokio::net::UnixStream::from_std(socket).unwrap();
        let (read, write) = socket.into_split();
        let mut session = Session {
            incoming: Incoming::new(read),
            out: Outgoing::new(write),
        };
        let Some(ToSession::Order(delivery)) = session.incoming.next().await.unwrap() else {
            panic!("no order");
        };
        session.perform(&delivery).await;
    });
}

struct Session {
    incoming: Incoming<OwnedReadHalf, ToSession>,
    out: Outgoing<OwnedWriteHalf, FromSession>,
}

impl Session {
    async fn perform(&mut self, delivery: &Delivery) {
        let Work::Command { run } = &delivery.order.work else {
            panic!("only commands");
        };
        self.log(b"begun\n").await;
        match run.as_str() {
            "succeed" => self.report().await,
            "crash" => panic!("the session's dying words"),
            "spin" => std::thread::sleep(Duration::from_secs(600)),
            "environment" => {
                let environment = std::fs::read("/proc/self/environ").unwrap();
                self.log(&environment).await;
                let arguments = std::fs::read("/proc/self/cmdline").unwrap();
                self.log(&arguments).await;
                let token = delivery.phase_token.expose_secret().len();
                self.log(format!("token of {token}").as_bytes()).await;
                self.report().await;
            }
            "artifacts" => self.echo_artifacts().await,
            // Waits for the executor to ask, and then reports.
            _ => {
                while let Some(message) = self.incoming.next().await.unwrap() {
                    if matches!(message, ToSession::Cancel) {
                        self.log(b"asked to stop\n").await;
                        return self.report().await;
                    }
                }
            }
        }
    }

    async fn log(&mut self, data: &[u8]) {
        let data = data.to_vec().into();
        let stream = Stream::Stdout;
        self.out
            .send(FromSession::Log { stream, data })
            .await
            .unwrap();
    }

    async fn echo_artifacts(&mut self) {
        while let Some(message) = self.incoming.next().await.unwrap() {
            let ToSession::Artifact(chunk) = message else {
                break;
            };
            let last = chunk.last;
            self.out
                .send(FromSession::Artifact(ArtifactChunk { ..chunk }))
                .await
                .unwrap();
            if last {
                break;
            }
        }
        self.report().await;
    }

    async fn report(&mut self) {
        let report = Report {
            outcome: Some(Outcome {
                reason: EndReason::Exit { code: 0 },
                evidence: vec![],
                used: Default::default(),
            }),
            failure: None,
            head: Some("0".repeat(40)),
            usage: None,
            result: None,
            artifacts: vec![FinishedArtifact {
                name: "out".parse().unwrap(),
                kind: ArtifactKind::File,
                size_bytes: 0,
            }],
            dropped_log_bytes: 0,
            ..Report::default()
        };
        self.out
            .send(FromSession::Report(Box::new(report)))
            .await
            .unwrap();
    }
}
