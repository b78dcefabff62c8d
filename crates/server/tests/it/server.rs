//! A server on loopback, and a client.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use bulkhead_model::{PhaseOrder, Work};
use bulkhead_runner::{
    Executor, FailureKind, Orphan, PhaseKey, PhaseReport, PhaseSecrets, PhaseSink, Place, Running,
    StartError, StopReason,
};
use bulkhead_server::{Config, ControlPlane, NotifyCommand};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

/// Keeps the secrets that it was handed, and runs until it is stopped.
#[derive(Default)]
pub(crate) struct IdleExecutor {
    pub(crate) handed: std::sync::Mutex<Vec<PhaseSecrets>>,
}

#[async_trait]
impl Executor for IdleExecutor {
    async fn reserve(&self) -> Place {
        Place::unbounded()
    }

    async fn start(
        &self,
        _place: Place,
        order: PhaseOrder,
        secrets: PhaseSecrets,
        _sink: Arc<dyn PhaseSink>,
    ) -> Result<Running, StartError> {
        self.handed.lock().unwrap().push(secrets);
        let (stop, mut stopped) = watch::channel(None::<StopReason>);
        let report = match &order.work {
            Work::Command { run } if run == "exit 0" => Some(succeeded()),
            Work::Command { run } if run == "exit 1" => Some(PhaseReport::without_outcome(
                FailureKind::Failed,
                "it failed",
            )),
            _ => None,
        };
        if let Some(report) = report {
            return Ok(Running::new(PhaseKey::of(&order), stop, async { report }));
        }
        Ok(Running::new(PhaseKey::of(&order), stop, async move {
            drop(stopped.wait_for(Option::is_some).await);
            PhaseReport::without_outcome(FailureKind::Cancelled, "stopped")
        }))
    }

    async fn sweep(&self, _alive: &[PhaseKey]) -> Vec<Orphan> {
        Vec::new()
    }

    async fn shutdown(&self) {}
}

fn succeeded() -> PhaseReport {
    let mut report = PhaseReport::without_outcome(FailureKind::Failed, "");
    report.failure = None;
    report
}

pub(crate) struct Server {
    pub(crate) plane: ControlPlane,
    pub(crate) executor: Arc<IdleExecutor>,
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    pub(crate) stop: CancellationToken,
    serving: JoinSet<()>,
    pub(crate) dir: tempfile::TempDir,
}

/// An answer: status, content type, body.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(configure: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let executor = Arc::new(IdleExecutor::default());
        let mut config = Config::new(dir.path().join("data"), dir.path().join("run"));
        let told = dir.path().join("told").display().to_string();
        let tell = NotifyCommand {
            argv: vec![
                "sh".to_owned(),
                "-c".to_owned(),
                "cat > \"$0\"".to_owned(),
                told,
            ],
            time_limit: Duration::from_secs(10),
        };
        config.notify.commands.insert("tell".to_owned(), tell);
        configure(&mut config);
        let plane = ControlPlane::open(config, Arc::clone(&executor) as _)
            .await
            .unwrap();
        plane.start().await.unwrap();
        let token = plane.first_token().await.unwrap().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        let (served, stopped) = (plane.clone(), stop.clone());
        serving.spawn(async move { served.serve(listener, stopped).await.unwrap() });
        Self {
            plane,
            executor,
            address,
            token: token.expose_secret().to_owned(),
            stop,
            serving,
            dir,
        }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> http::request::Builder {
        let url = format!("http://{}{path}", self.address);
        Request::builder()
            .method(method)
            .uri(url)
            .header("authorization", format!("Bearer {}", self.token))
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let response = client.request(request).await.unwrap();
        let (parts, body) = response.into_parts();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        let request = self
            .request(Method::GET, path)
            .body(Full::default())
            .unwrap();
        self.send(request).await
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: &Value) -> Answer {
        let request = self
            .request(method, path)
            .header("content-type", "application/json");
        self.send(request.body(Full::from(body.to_string())).unwrap())
            .await
    }

    /// Asks again until the answer is as wanted.
    pub(crate) async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..1200 {
            let answer = self.get(path).await.json();
            if wanted(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!(
            "{path} never became as wanted: {}",
            self.get(path).await.json()
        );
    }

    /// A run of one command that waits in the executor until it is stopped.
    pub(crate) async fn run(&self) -> String {
        self.run_of("name: Wait\nphases:\n  - name: wait\n    run: sleep 1000\n")
            .await
    }

    pub(crate) async fn run_of(&self, workflow: &str) -> String {
        let new = serde_json::json!({"workflow": {"text": workflow}});
        let made = self.call(Method::POST, "/api/v1/runs", &new).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.json());
        made.json()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn shutdown(mut self) {
        self.stop.cancel();
        self.plane.shutdown().await;
        self.serving.join_next().await;
    }
}
