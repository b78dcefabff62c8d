//! Bulkhead's own service, `bulkhead isolates`, as the platform uses it.

use std::{
    path::Path,
    process::Stdio,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use async_trait::async_trait;
use bulkhead_wire::{
    isolates::{
        Answer, Bundle, CheckRequest, FromService, Kind, NotRun, Start, ToService, check_response,
        from_service, isolates_client::IsolatesClient, not_run, result, to_service,
    },
    platform,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::UnixStream,
    process::{Child, Command},
    sync::mpsc,
    task::JoinSet,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Streaming,
    transport::{Channel, Endpoint},
};

use super::{Contender, INPUT};

const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Service {
    client: IsolatesClient<Channel>,
    bundle_sha256: Vec<u8>,
    javascript: String,
    next: AtomicU64,
    shed: AtomicU64,
    child: Child,
}

impl Service {
    pub(super) async fn start(dir: &Path, plugin: &str) -> Result<Self> {
        // The service makes the directory, for this user alone.
        let socket = dir.join("service/isolates.sock");
        let program = std::env::current_exe()?.with_file_name("bulkhead");
        let child = Command::new(&program)
            .args(["isolates", "--listen"])
            .arg(format!("unix:{}", socket.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let channel = connect(&socket).await?;
        let mut client = IsolatesClient::new(channel);
        let request = CheckRequest {
            file: "plugin.js".to_owned(),
            source: plugin.to_owned(),
            handlers: vec![],
        };
        let checked = match client.check(request).await?.into_inner().outcome {
            Some(check_response::Outcome::Checked(checked)) => checked,
            other => bail!("the plugin was refused: {other:?}"),
        };
        Ok(Self {
            client,
            bundle_sha256: checked.bundle_sha256,
            javascript: checked.javascript,
            next: AtomicU64::new(0),
            shed: AtomicU64::new(0),
            child,
        })
    }

    fn frame(&self, handler: &str, input_json: String) -> ToService {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let start = Start {
            invocation: format!("call-{number}"),
            installation: "bench".to_owned(),
            kind: Kind::Tool.into(),
            handler: vec!["tools".to_owned(), handler.to_owned()],
            input_json,
            settings_json: "{}".to_owned(),
            secrets: vec!["key".to_owned()],
            bundle_sha256: self.bundle_sha256.clone(),
            file: "plugin.js".to_owned(),
            token: "bench".to_owned(),
            ..Start::default()
        };
        ToService {
            frame: Some(to_service::Frame::Start(start)),
        }
    }

    async fn begin(&self, handler: &str, input_json: String) -> Result<Invocation> {
        let (to, frames) = mpsc::channel(4);
        to.send(self.frame(handler, input_json)).await?;
        let mut client = self.client.clone();
        let from = client
            .invoke(ReceiverStream::new(frames))
            .await?
            .into_inner();
        Ok(Invocation {
            to,
            from,
            javascript: self.javascript.clone(),
        })
    }

    /// Of the service and all that it started, each page shared by several counted in parts.
    pub(super) fn memory_bytes(&self) -> Result<u64> {
        let mut open = vec![self.child.id().context("the service has ended")?];
        let mut bytes = 0;
        while let Some(pid) = open.pop() {
            // A process that has just ended holds nothing.
            let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
            bytes += pss_bytes(&rollup.unwrap_or_default());
            let children = std::fs::read_dir(format!("/proc/{pid}/task"));
            for task in children.into_iter().flatten().flatten() {
                let list = std::fs::read_to_string(task.path().join("children"));
                let list = list.unwrap_or_default();
                open.extend(
                    list.split_whitespace()
                        .filter_map(|pid| pid.parse::<u32>().ok()),
                );
            }
        }
        Ok(bytes)
    }

    /// Calls that have all come as far as to ask for a secret.
    pub(super) async fn crowd(&self, calls: u32) -> Result<Crowd> {
        let mut begun = Vec::new();
        for _ in 0..calls {
            let mut invocation = self.begin("wait", r#"{"name":"key"}"#.to_owned()).await?;
            let id = invocation.asked().await?;
            begun.push((invocation, id));
        }
        Ok(Crowd(begun))
    }
}

fn pss_bytes(rollup: &str) -> u64 {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() << 10
}

async fn connect(socket: &Path) -> Result<Channel> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let path = socket.to_owned();
        let connector = tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://isolates");
        match endpoint.connect_with_connector(connector).await {
            Ok(channel) => return Ok(channel),
            Err(error) => ensure!(
                Instant::now() < deadline,
                "the service does not come: {error}"
            ),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// One call, from the platform's side.
struct Invocation {
    to: mpsc::Sender<ToService>,
    from: Streaming<FromService>,
    javascript: String,
}

impl Invocation {
    /// The next frame that is not about the bundle.
    async fn next(&mut self) -> Result<from_service::Frame> {
        loop {
            let frame = self.from.message().await?.and_then(|message| message.frame);
            match frame.context("the stream ended without a result")? {
                from_service::Frame::NeedBundle(_) => {
                    let bundle = Bundle {
                        source: self.javascript.clone(),
                    };
                    self.send(to_service::Frame::Bundle(bundle)).await?;
                }
                frame => return Ok(frame),
            }
        }
    }

    async fn send(&self, frame: to_service::Frame) -> Result<()> {
        Ok(self.to.send(ToService { frame: Some(frame) }).await?)
    }

    /// The number of the call that it waits for.
    async fn asked(&mut self) -> Result<u32> {
        match self.next().await? {
            from_service::Frame::Call(call) => Ok(call.id),
            other => bail!("no call, but {other:?}"),
        }
    }

    /// None where the service shed it: nothing of it ran.
    async fn value(&mut self) -> Result<Option<String>> {
        match self.next().await? {
            from_service::Frame::Result(result) => match result.outcome {
                Some(result::Outcome::ValueJson(value)) => Ok(Some(value)),
                Some(result::Outcome::NotRun(not_run))
                    if not_run.reason() == not_run::Reason::Shed =>
                {
                    Ok(None)
                }
                Some(result::Outcome::NotRun(NotRun { message, .. })) => {
                    bail!("it was not run: {message}")
                }
                other => bail!("it failed: {other:?}"),
            },
            other => bail!("no result, but {other:?}"),
        }
    }
}

/// Calls that wait.
pub(super) struct Crowd(Vec<(Invocation, u32)>);

impl Crowd {
    /// Answers all of them, and counts those that end well.
    pub(super) async fn release(self) -> Result<u32> {
        let mut ending = JoinSet::new();
        for (mut invocation, id) in self.0 {
            ending.spawn(async move {
                let secret = platform::Secret {
                    value: "a secret".to_owned(),
                };
                let answer = Answer {
                    id,
                    answer: Some(platform::Answer {
                        answer: Some(platform::answer::Answer::GetSecret(secret)),
                    }),
                };
                invocation.send(to_service::Frame::Answer(answer)).await?;
                invocation.value().await
            });
        }
        let mut well = 0;
        while let Some(ended) = ending.join_next().await {
            well += u32::from(ended??.as_deref() == Some(r#"{"secret":8}"#));
        }
        Ok(well)
    }
}

#[async_trait]
impl Contender for Service {
    fn name(&self) -> &'static str {
        "**Bulkhead**"
    }

    /// A call that was shed is made again, as the service asks for; its time goes on.
    async fn call(&self) -> Result<String> {
        loop {
            let mut invocation = self.begin("order", INPUT.to_owned()).await?;
            match invocation.value().await? {
                Some(value) => return Ok(value),
                None => self.shed.fetch_add(1, Ordering::Relaxed),
            };
        }
    }

    fn shed(&self) -> u64 {
        self.shed.load(Ordering::Relaxed)
    }
}
