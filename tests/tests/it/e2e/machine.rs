//! A machine with the control plane in this process, the real executor, and a sample repository.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use bulkhead_model::RunId;
use bulkhead_runner::{BuiltinConfig, BuiltinExecutor};
use bulkhead_server::{
    Answer, Caller, Config, ControlPlane, DecisionRequest, ModelUpstream, NewRun, Recovered,
    RunView,
};
use bulkhead_session::wire::Machine as SessionMachine;

use crate::repo;

const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Machine {
    pub(crate) plane: ControlPlane,
    dir: tempfile::TempDir,
}

/// The `bulkhead` program of this build, beside the test binaries.
fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let program = own.parent().unwrap().parent().unwrap().join("bulkhead");
    assert!(
        program.exists(),
        "build the program first: cargo build -p bulkhead"
    );
    program
}

/// Opens a control plane on `root` and lets it mend and work.
pub(crate) async fn open(root: &Path) -> (ControlPlane, Recovered) {
    open_with(root, |_| {}).await
}

pub(crate) async fn open_with(
    root: &Path,
    configure: impl FnOnce(&mut Config),
) -> (ControlPlane, Recovered) {
    let executor = BuiltinExecutor::new(BuiltinConfig {
        program: program(),
        args: vec!["session-worker".into()],
        offered_program: Some(program()),
        places: 2,
        run_dir: root.join("run"),
        machine: SessionMachine::new(root.join("sandbox")),
    })
    .unwrap();
    let mut config = Config::new(root.join("data"), root.join("run"));
    configure(&mut config);
    let plane = ControlPlane::open(config, Arc::new(executor))
        .await
        .unwrap();
    let recovered = plane.start().await.unwrap();
    (plane, recovered)
}

/// A phase `half` whose agent commits and pushes by itself with the token that it holds in the place of a key, and
/// then does `next`; its second attempt finds that and adds a file.
pub(crate) fn pushes_by_itself(next: &str) -> String {
    format!(
        r#"
name: Pushes
phases:
  - name: half
    agent:
      name: claude
      protocol: plain
      command:
        - sh
        - -ec
        - |
          if test "$BULKHEAD_PHASE_ATTEMPT" = 2; then test -f half.txt; echo done > done.txt; exit 0; fi
          echo half > half.txt
          git add half.txt
          git commit -qm half
          git -c http.extraHeader="Authorization: Bearer $ANTHROPIC_API_KEY" push -q origin "HEAD:$BULKHEAD_RUN_BRANCH"
          echo begun
          {next}
    prompt: go
    gate: none
"#
    )
}

/// An operator's configuration in which the agents' model APIs are known; nobody asks them.
pub(crate) fn some_model(config: &mut Config) {
    let nowhere = ModelUpstream {
        base_url: "https://model.invalid".parse().unwrap(),
        header: "x-api-key".to_owned(),
        credential: None,
        allow_private: false,
    };
    config.models.insert("anthropic".to_owned(), nowhere);
}

pub(crate) fn new_run(root: &Path) -> NewRun {
    NewRun {
        repo: Some(root.join("repo").display().to_string()),
        base: Some("main".to_owned()),
        branch: None,
        workflow: None,
        inputs: Default::default(),
        agent: None,
        idempotency_key: None,
    }
}

impl Machine {
    pub(crate) async fn start(workflow: &str) -> Self {
        Self::start_with(workflow, |_| {}).await
    }

    pub(crate) async fn start_with(workflow: &str, configure: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        repo::with_workflow(&dir.path().join("repo"), workflow);
        let (plane, _) = open_with(dir.path(), configure).await;
        Self { plane, dir }
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn repository(&self) -> PathBuf {
        self.dir.path().join("repo")
    }

    pub(crate) async fn run(&self) -> RunId {
        let run = self
            .plane
            .create_run(&Caller::local(), new_run(self.dir.path()))
            .await;
        run.unwrap().id.parse().unwrap()
    }

    pub(crate) async fn until(&self, run: &RunId, wanted: impl Fn(&RunView) -> bool) -> RunView {
        until(&self.plane, run, wanted).await
    }

    pub(crate) async fn log(&self, run: &RunId, phase: &str) -> String {
        log(&self.plane, run, phase).await
    }

    pub(crate) async fn until_log(&self, run: &RunId, phase: &str, words: &str) {
        until_log(&self.plane, run, phase, words).await;
    }

    pub(crate) async fn answer(&self, run: &RunId, answer: Answer) {
        let gate = self
            .plane
            .run(*run)
            .await
            .unwrap()
            .gate
            .unwrap()
            .id
            .parse()
            .unwrap();
        let binding = self.plane.gate(*run, gate).await.unwrap().binding.unwrap();
        let request = DecisionRequest { answer, binding };
        self.plane
            .decide(&Caller::local(), *run, gate, request)
            .await
            .unwrap();
    }

    pub(crate) async fn stop(self) {
        self.plane.shutdown().await;
    }
}

pub(crate) async fn until(
    plane: &ControlPlane,
    run: &RunId,
    wanted: impl Fn(&RunView) -> bool,
) -> RunView {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let view = plane.run(*run).await.unwrap();
        if wanted(&view) {
            return view;
        }
        assert!(
            Instant::now() < deadline,
            "the run never became as wanted: {view:#?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn log(plane: &ControlPlane, run: &RunId, phase: &str) -> String {
    let lines = plane
        .logs(*run, &phase.parse().unwrap(), 0, 0)
        .await
        .unwrap_or_default();
    lines.into_iter().map(|line| line.text).collect()
}

pub(crate) async fn until_log(plane: &ControlPlane, run: &RunId, phase: &str, words: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !log(plane, run, phase).await.contains(words) {
        let view = plane.run(*run).await.unwrap();
        assert!(
            Instant::now() < deadline && !view.status.is_final(),
            "{words:?} was never said: {view:#?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The command lines of living processes that hold this word.
pub(crate) fn processes_with(word: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(word)).collect()
}
