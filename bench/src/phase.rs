//! Phases through the whole product: the way to an agent's first event, split by stage, and the speed of a phase's log.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail, ensure};
use bulkhead_model::{PhaseEvent, Stage};
use bulkhead_runner::{BuiltinConfig, BuiltinExecutor};
use bulkhead_server::{Caller, Config, ControlPlane, NewRun, RunStatus, RunView};
use bulkhead_session::wire::Machine;

use crate::{peers::must_succeed, report::Report, stats::Samples};

const PATIENCE: Duration = Duration::from_secs(300);

#[derive(clap::Args)]
pub(crate) struct FirstEventOptions {
    /// How many phases are measured, one after another.
    #[arg(long, default_value_t = 30)]
    rounds: u32,
}

#[derive(clap::Args)]
pub(crate) struct LogOptions {
    /// How much one phase prints, in MiB. All of it is kept.
    #[arg(long, default_value_t = 1024)]
    mebibytes: u64,
    /// How many phases are measured.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

/// The stages on the way, in order, and what each name's time is spent on.
const WAY: [(Stage, &str); 5] = [
    (Stage::SessionStarted, "queued → session process started"),
    (Stage::SandboxReady, "→ sandbox ready"),
    (Stage::WorkspaceReady, "→ repository cloned and checked"),
    (Stage::AgentStarted, "→ agent started"),
    (Stage::AgentFirstEvent, "→ agent's first event"),
];

pub(crate) async fn first_event(options: FirstEventOptions) -> Result<Report> {
    let bench = Bench::open(FIRST_EVENT_WORKFLOW).await?;
    let mut stages = vec![Samples::default(); WAY.len()];
    let (mut whole, mut own) = (Samples::default(), Samples::default());
    for round in 0..options.rounds + 2 {
        let queued_ms = now_ms()?;
        let run = bench.run(BTreeMap::new()).await?;
        let at = bench.stages(&run).await?;
        if round < 2 {
            continue; // The first rounds fill the page cache.
        }
        let mut before = queued_ms;
        let mut spent = [Duration::ZERO; WAY.len()];
        for (index, (stage, _)) in WAY.iter().enumerate() {
            let reached = *at
                .get(stage)
                .with_context(|| format!("no event for {stage:?}"))?;
            spent[index] = Duration::from_millis(u64::try_from(reached - before).unwrap_or(0));
            stages[index].add(spent[index]);
            before = reached;
        }
        whole.add(spent.iter().sum());
        // Git's clone and the agent's own start are not Bulkhead's.
        own.add(spent[0] + spent[1] + spent[3]);
    }
    let clone = bench.clone_by_hand(options.rounds)?;
    bench.plane.shutdown().await;
    let row = |name: &str, samples: &Samples| {
        vec![
            name.to_owned(),
            samples.len().to_string(),
            format!("{:.0}", samples.median_ms()),
            format!("{:.0}", samples.percentile_ms(0.95)),
        ]
    };
    let mut rows: Vec<_> = WAY
        .iter()
        .zip(&stages)
        .map(|((_, name), samples)| row(name, samples))
        .collect();
    rows.push(row("all of it", &whole));
    rows.push(row(
        "**Bulkhead's own share** (without clone and agent's start)",
        &own,
    ));
    rows.push(row(
        "for comparison: `git clone` of the same repository by hand",
        &clone,
    ));
    Ok(Report {
        title: "Queue → agent's first event".to_owned(),
        command: format!("make bench ARGS='first-event --rounds {}'", options.rounds),
        about: "A run of one phase with an agent over ACP, from the request for the run until the agent's first event. The workspace is a disk image.".to_owned(),
        head: ["stage", "n", "median ms", "p95 ms"].map(str::to_owned).to_vec(),
        rows,
        notes: vec!["Stages are stamped in whole milliseconds where they happen.".to_owned()],
    })
}

pub(crate) async fn log(options: LogOptions) -> Result<Report> {
    let bytes = options.mebibytes << 20;
    let bench = Bench::open(&log_workflow(options.mebibytes)).await?;
    bench
        .plane
        .set_secret(
            &Caller::local(),
            &"BENCH_SECRET".parse()?,
            "a-secret-that-must-be-masked-everywhere".to_owned().into(),
        )
        .await?;
    let mut rates = Vec::new();
    for _ in 0..options.rounds {
        let run = bench.run(BTreeMap::new()).await?;
        let at = bench.stages(&run).await?;
        let started = at
            .get(&Stage::AgentStarted)
            .context("the command did not start")?;
        let ended = at
            .get(&Stage::AgentEnded)
            .context("the command did not end")?;
        let seconds = (ended - started) as f64 / 1e3;
        rates.push(bytes as f64 / 1e6 / seconds);
    }
    bench.plane.shutdown().await;
    rates.sort_by(f64::total_cmp);
    let middle = rates[rates.len() / 2];
    Ok(Report {
        title: "Sandbox output → stored and masked log".to_owned(),
        command: format!(
            "make bench ARGS='log --mebibytes {} --rounds {}'",
            options.mebibytes, options.rounds
        ),
        about: "One phase prints lines of 100 bytes, some with a secret, as fast as it can; all of them are masked and kept. Measured from the command's start to its end, which its output's readers hold back.".to_owned(),
        head: ["n", "median MB/s", "slowest MB/s", "fastest MB/s"].map(str::to_owned).to_vec(),
        rows: vec![vec![
            rates.len().to_string(),
            format!("{middle:.0}"),
            format!("{:.0}", rates.first().copied().unwrap_or_default()),
            format!("{:.0}", rates.last().copied().unwrap_or_default()),
        ]],
        notes: Vec::new(),
    })
}

const FIRST_EVENT_WORKFLOW: &str = "
name: bench
phases:
  - name: work
    agent:
      name: scripted
      command: [/run/bulkhead/bin/bulkhead, agent, scripted, agent.yaml]
      protocol: acp
    prompt: Say that you are there.
    gate: none
";

fn log_workflow(mebibytes: u64) -> String {
    let lines = (mebibytes << 20) / 100;
    // 999 lines in a thousand are plain; `yes` would be faster, but every line the same.
    let line = "l".repeat(99);
    format!(
        "
name: bench
secrets: [BENCH_SECRET]
phases:
  - name: work
    run: |
      awk -v n={lines} -v s=\"$BENCH_SECRET\" 'BEGIN {{ for (i = 0; i < n; i++) if (i % 1000) print \"{line}\"; else print s }}'
    secrets: [BENCH_SECRET]
    resources: {{ log: {}MiB, memory: 1GiB }}
    gate: none
",
        mebibytes + 64
    )
}

/// A control plane of the benchmark's own, with the release program beside this one as its session worker.
struct Bench {
    plane: ControlPlane,
    dir: tempfile::TempDir,
}

impl Bench {
    async fn open(workflow: &str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        make_repository(&dir.path().join("repo"), workflow)?;
        let program = std::env::current_exe()?.with_file_name("bulkhead");
        ensure!(
            program.is_file(),
            "{} is missing: build it first",
            program.display()
        );
        let root = dir.path();
        let executor = BuiltinExecutor::new(BuiltinConfig {
            program: program.clone(),
            args: vec!["session-worker".into()],
            offered_program: Some(program),
            places: 2,
            run_dir: root.join("run"),
            machine: Machine::new(root.join("sandbox")),
        })?;
        let config = Config::new(root.join("data"), root.join("run"));
        let plane = ControlPlane::open(config, Arc::new(executor)).await?;
        plane.start().await?;
        Ok(Self { plane, dir })
    }

    fn repository(&self) -> PathBuf {
        self.dir.path().join("repo")
    }

    async fn run(&self, inputs: BTreeMap<String, String>) -> Result<RunView> {
        let asked = NewRun {
            repo: Some(self.repository().display().to_string()),
            base: Some("main".to_owned()),
            branch: None,
            workflow: None,
            inputs,
            agent: None,
            idempotency_key: None,
        };
        let mut run = self.plane.create_run(&Caller::local(), asked).await?;
        let deadline = Instant::now() + PATIENCE;
        while !run.status.is_final() {
            if Instant::now() > deadline || run.status == RunStatus::Waiting {
                bail!("the run did not complete: {run:?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            run = self.plane.run(run.id.parse()?).await?;
        }
        ensure!(
            run.status == RunStatus::Completed,
            "the run ended as {run:?}"
        );
        Ok(run)
    }

    async fn stages(&self, run: &RunView) -> Result<BTreeMap<Stage, i64>> {
        let events = self
            .plane
            .events(run.id.parse()?, &"work".parse()?, 0, 0)
            .await?;
        let mut at = BTreeMap::new();
        for event in events {
            if let Ok(PhaseEvent::Stage { stage, at_ms }) = serde_json::from_value(event.event) {
                at.entry(stage).or_insert(at_ms);
            }
        }
        Ok(at)
    }

    fn clone_by_hand(&self, rounds: u32) -> Result<Samples> {
        let mut samples = Samples::default();
        for round in 0..rounds {
            let into = self.dir.path().join(format!("clone-{round}"));
            let started = Instant::now();
            let url = format!("file://{}", self.repository().display());
            must_succeed(Command::new("git").args(["clone", "-q", &url]).arg(&into))?;
            samples.add(started.elapsed());
        }
        Ok(samples)
    }
}

fn make_repository(dir: &Path, workflow: &str) -> Result<()> {
    fs::create_dir_all(dir.join(".bulkhead"))?;
    fs::write(dir.join(".bulkhead/workflow.yaml"), workflow)?;
    fs::write(dir.join("agent.yaml"), "steps:\n  - say: I am here.\n")?;
    for number in 0..200 {
        fs::write(
            dir.join(format!("file-{number}.txt")),
            format!("file {number}\n").repeat(50),
        )?;
    }
    let git = |words: &[&str]| {
        must_succeed(
            Command::new("git")
                .arg("-C")
                .arg(dir)
                .args(["-c", "user.name=bench", "-c", "user.email=bench@localhost"])
                .args(words),
        )
    };
    git(&["init", "-q", "-b", "main"])?;
    git(&["add", "-A"])?;
    git(&["commit", "-q", "-m", "A repository of 200 files"])
}

fn now_ms() -> Result<i64> {
    Ok(i64::try_from(
        SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis(),
    )?)
}
