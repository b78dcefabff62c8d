//! Create → exit → all gone: one command in a container of its own, from the request until nothing is left.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bulkhead_sandbox::{
    Cause, Engine, EngineConfig, Limits, Plan, ProcessSpec, SandboxId, Workspace,
};

use tokio::task::JoinSet;

use crate::{
    peers::{self, CPU_MILLI, MEMORY_BYTES, PAYLOAD, PIDS, Peers},
    report::Report,
    stats::Samples,
};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How often each contender runs.
    #[arg(long, default_value_t = 100)]
    rounds: u32,
}

pub(crate) async fn measure(options: Options) -> Result<Report> {
    let scratch = tempfile::tempdir()?;
    let engine = Engine::probe(EngineConfig::new(scratch.path().join("engine"))).await?;
    let Peers {
        installed: peers,
        missing,
    } = peers::find(scratch.path())?;
    let mut ours = Samples::default();
    let mut theirs = vec![Samples::default(); peers.len()];
    for round in 0..options.rounds + 3 {
        // In a task, as executors do it: the main thread is not one that the runtime wakes by itself.
        let mut task = JoinSet::new();
        task.spawn(built_in(engine.clone()));
        let taken = task.join_next().await.context("the task is gone")???;
        // The first rounds fill the page cache; they are not counted for anyone.
        let counts = round >= 3;
        if counts {
            ours.add(taken);
        }
        for (peer, samples) in peers.iter().zip(&mut theirs) {
            let started = Instant::now();
            peer.run_once()
                .with_context(|| format!("running {}", peer.name()))?;
            if counts {
                samples.add(started.elapsed());
            }
        }
    }
    let mut rows = vec![row(
        "**Bulkhead, built-in sandbox**",
        &ours,
        ours.median_ms(),
    )];
    for (peer, samples) in peers.iter().zip(&theirs) {
        rows.push(row(&peer.name(), samples, ours.median_ms()));
    }
    Ok(Report {
        title: "Create → exit → all gone".to_owned(),
        command: format!("make bench ARGS='sandbox --rounds {}'", options.rounds),
        about: format!(
            "One `{PAYLOAD}` in a fresh container, from the request until no process, group or mount of it is left. \
             Every contender has 256 MiB, one CPU, 64 processes, no network, the machine's `/usr` read-only. Interleaved rounds."
        ),
        head: ["contender", "n", "median ms", "p95 ms", "min ms", "× Bulkhead's median"].map(str::to_owned).to_vec(),
        rows,
        notes: missing
            .into_iter()
            .chain([
                "Bulkhead's time is the library's, as an executor pays it (a launcher with an empty network stands ready from the engine's opening on); the others' includes starting their command line, as their users pay it.".to_owned(),
                "Only Bulkhead and docker filter system calls here; bubblewrap, runc and crun run without a filter, which is in their favour.".to_owned(),
                "Bulkhead's workspace is in memory here; the disk image of a phase is made ahead of need.".to_owned(),
            ])
            .collect(),
    })
}

async fn built_in(engine: Engine) -> Result<Duration> {
    let limits = Limits {
        cpu_milli: CPU_MILLI,
        memory_bytes: MEMORY_BYTES,
        pids: PIDS,
        disk_bytes: 64 << 20,
        ..Limits::default()
    };
    let id = SandboxId::from_uuid(uuid::Uuid::now_v7());
    let started = Instant::now();
    let sandbox = engine
        .create(Plan::new(id, limits, Workspace::Tmpfs))
        .await?;
    let process = sandbox.spawn(ProcessSpec::new([PAYLOAD])).await?;
    let status = process.wait().await;
    let outcome = sandbox.end(Cause::Finished(status)).await;
    let taken = started.elapsed();
    ensure!(
        outcome.reason.is_success(),
        "the payload {}",
        outcome.reason
    );
    Ok(taken)
}

fn row(name: &str, samples: &Samples, base_ms: f64) -> Vec<String> {
    vec![
        name.to_owned(),
        samples.len().to_string(),
        format!("{:.1}", samples.median_ms()),
        format!("{:.1}", samples.percentile_ms(0.95)),
        format!("{:.1}", samples.percentile_ms(0.0)),
        format!("{:.1}", samples.median_ms() / base_ms),
    ]
}
