//! The service of plugins from outside: the program `bulkhead isolates`, gRPC over its socket, real zygotes and processes.
//! A row of `cases/isolates.md` is a plugin and its right answer; while it runs, a neighbour runs too and must end well.

mod memory;
mod operations;
mod storm;
mod termination;
mod values;

use std::{
    path::PathBuf,
    process::{Child, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use bulkhead_isolates::client::Client;
use bulkhead_test_isolates::platform::FakePlatform;
use bulkhead_wire::isolates::{
    Kind, Lower, Reason, Result as Ended, Start, fault::Class, result::Outcome,
};

use crate::program::World;

const PATIENCE: Duration = Duration::from_secs(60);
/// The clock of rows that are to run into it.
const WALL_MS: u64 = 300;
/// A kill may come so much later than the limit (D8).
const GRACE_MS: u64 = 100;
/// What a normal invocation's group may hold, and what a measurement may be off.
const GROUP_BYTES: u64 = (160 + 32) << 20;

pub(super) struct Service {
    pub(super) client: Client,
    pub(super) platform: Arc<FakePlatform>,
    child: Child,
    _world: World,
}

/// A plugin that the service has checked.
#[derive(Clone)]
pub(super) struct Plugin {
    javascript: Arc<str>,
    sha256: Vec<u8>,
    pub(super) start: Start,
}

impl Plugin {
    pub(super) fn wall(mut self, wall_ms: u64) -> Self {
        self.start.lower = Some(Lower {
            wall_ms,
            ..Lower::default()
        });
        self
    }

    pub(super) fn installed_as(mut self, installation: &str) -> Self {
        installation.clone_into(&mut self.start.installation);
        self
    }
}

/// A module whose one tool is this body.
pub(super) fn tool(body: &str) -> String {
    format!("export const tools = {{ async run(input) {{ {body} }} }};")
}

impl Service {
    pub(super) async fn start(more: &[&str]) -> Self {
        let world = World::new();
        let socket: PathBuf = world.path().join("run/isolates.sock");
        let listen = format!("unix:{}", socket.display());
        let arguments = ["isolates", "--listen", &listen, "--drain", "1s"];
        let child = world
            .command(arguments.iter().chain(more))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + PATIENCE;
        let client = loop {
            match Client::unix(&socket).await {
                Ok(client) => break client,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let platform = FakePlatform::new();
        platform.bind("key", "s3cret-of-the-user");
        Self {
            client,
            platform,
            child,
            _world: world,
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A plugin as it is written, which is not loaded before its first call.
    pub(super) fn unchecked(&self, source: &str) -> Plugin {
        use sha2::Digest as _;
        Plugin {
            javascript: source.into(),
            sha256: sha2::Sha256::digest(source).to_vec(),
            start: Start {
                invocation: "row".to_owned(),
                installation: "row".to_owned(),
                kind: Kind::Tool.into(),
                handler: vec!["tools".to_owned(), "run".to_owned()],
                input_json: "{}".to_owned(),
                settings_json: "{}".to_owned(),
                secrets: vec!["key".to_owned()],
                file: "row.js".to_owned(),
                token: "token-of-the-account".to_owned(),
                ..Start::default()
            },
        }
    }

    pub(super) async fn call(&self, plugin: &Plugin) -> Ended {
        let mut start = plugin.start.clone();
        start.bundle_sha256.clone_from(&plugin.sha256);
        let platform = Arc::clone(&self.platform) as _;
        let source = Arc::clone(&plugin.javascript);
        let called = self.client.invoke(start, source, platform);
        tokio::time::timeout(PATIENCE, called)
            .await
            .unwrap()
            .unwrap()
    }

    /// Calls it while a neighbour is in flight, whose result must be right.
    pub(super) async fn beside_a_neighbour(&self, plugin: &Plugin) -> Ended {
        let (ended, ()) = tokio::join!(self.call(plugin), self.neighbour());
        ended
    }

    pub(super) async fn neighbour(&self) {
        let source = tool(
            "const secret = await host.settings.getSecret('key');
             let sum = 0;
             for (let i = 0; i < 1000; i++) sum += i;
             return { sum, secret: secret.length, hash: host.crypto.hash('sha256', secret).length };",
        );
        let plugin = self.unchecked(&source).installed_as("neighbour");
        let ended = self.call(&plugin).await;
        let value = value(&ended);
        assert!(
            value.contains(r#""sum":499500"#) && value.contains(r#""secret":18"#),
            "{value}"
        );
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn value(ended: &Ended) -> &str {
    match &ended.outcome {
        Some(Outcome::ValueJson(value)) => value,
        other => panic!("no value, but {other:?}"),
    }
}

/// The class, the reason and the words of a fault.
pub(super) fn fault(ended: &Ended) -> (Class, Reason, &str) {
    match &ended.outcome {
        Some(Outcome::Fault(fault)) => (fault.class(), fault.reason(), &fault.message),
        other => panic!("no fault, but {other:?}"),
    }
}

/// It ran into its clock, and was killed in time by the service's own clock.
pub(super) fn timed_out(row: &str, ended: &Ended, wall_ms: u64) {
    let Some(Outcome::Fault(fault)) = &ended.outcome else {
        panic!("{row}: {:?}", ended.outcome);
    };
    assert_eq!(fault.class(), Class::Timeout, "{row}: {fault:?}");
    let evidence = fault.evidence.as_ref().unwrap();
    let killed = evidence.killed_after_ms.unwrap();
    assert!(
        (wall_ms..=wall_ms + GRACE_MS).contains(&killed),
        "{row}: killed after {killed} ms of {wall_ms}"
    );
}
