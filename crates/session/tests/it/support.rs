//! What several tests share.

use std::path::Path;

use bulkhead_model::AgentEvent;
use bulkhead_session::{
    plug::Straight,
    protocol::{
        Acp, AgentProtocol, Around, Driven, EventSink, Lines, OnePrompt, ProtocolError, drive,
    },
    scripted::{self, ScriptedError},
};
use tokio_util::sync::CancellationToken;

/// Keeps every event.
#[derive(Debug, Default)]
pub(crate) struct Events(pub(crate) Vec<AgentEvent>);

impl EventSink for Events {
    async fn event(&mut self, event: AgentEvent) {
        self.0.push(event);
    }
}

impl Events {
    /// One event a line, as JSON.
    pub(crate) fn json(&self) -> String {
        let lines = self
            .0
            .iter()
            .map(|event| serde_json::to_string(event).unwrap());
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Reads `transcript` as an agent's whole output.
pub(crate) async fn read(
    protocol: &mut dyn AgentProtocol,
    transcript: &[u8],
) -> (Result<Driven, ProtocolError>, Events) {
    let mut events = Events::default();
    let cancel = CancellationToken::new();
    let mut lines = Lines::new(transcript);
    let (mut driven, mut straight, mut one) = (Driven::default(), Straight, OnePrompt);
    let nobody = tokio::io::sink();
    let driving = drive(
        protocol,
        nobody,
        &mut lines,
        Around {
            sink: &mut events,
            passage: &mut straight,
            prompts: &mut one,
        },
        &cancel,
        &mut driven,
    );
    let result = driving.await;
    (result.map(|()| driven), events)
}

/// A whole session between the scripted agent and the client, in memory.
pub(crate) async fn play(
    steps: &str,
    cwd: &Path,
    prompt: &str,
    cancel: &CancellationToken,
) -> (
    Result<Driven, ProtocolError>,
    Events,
    Result<u8, ScriptedError>,
) {
    let file = cwd.join("steps.yaml");
    std::fs::write(&file, steps).unwrap();
    let (agent_in, client_out) = tokio::io::duplex(64 << 10);
    let (client_in, agent_out) = tokio::io::duplex(64 << 10);
    let client = async {
        let mut acp = Acp::new(cwd.to_str().unwrap(), prompt);
        let mut events = Events::default();
        let mut lines = Lines::new(client_in);
        let (mut driven, mut straight, mut one) = (Driven::default(), Straight, OnePrompt);
        let drive = drive(
            &mut acp,
            client_out,
            &mut lines,
            Around {
                sink: &mut events,
                passage: &mut straight,
                prompts: &mut one,
            },
            cancel,
            &mut driven,
        );
        let result = drive.await;
        (result.map(|()| driven), events)
    };
    let ((driven, events), code) = tokio::join!(client, scripted::run(&file, agent_in, agent_out));
    (driven, events, code)
}
