//! Many at once: whether every sandbox is made, how long that takes, and what an idle one costs.

use std::{fs, time::Instant};

use anyhow::{Context, Result};
use bulkhead_sandbox::{
    Cause, Engine, EngineConfig, ExitStatus, Limits, Plan, Process, ProcessSpec, Sandbox,
    SandboxId, Workspace,
};
use tokio::task::JoinSet;

use crate::report::Report;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many sandboxes stand at once.
    #[arg(long, default_value_t = 200)]
    count: u32,
}

pub(crate) async fn measure(options: Options) -> Result<Report> {
    let scratch = tempfile::tempdir()?;
    let engine = Engine::probe(EngineConfig::new(scratch.path())).await?;
    let available_before = available_kib()?;
    let started = Instant::now();
    let mut making = JoinSet::new();
    for _ in 0..options.count {
        making.spawn(idle(engine.clone()));
    }
    let mut standing = Vec::new();
    let mut errors = Vec::new();
    while let Some(made) = making.join_next().await {
        match made? {
            Ok(sandbox) => standing.push(sandbox),
            Err(error) => errors.push(format!("{error:#}")),
        }
    }
    let made_in = started.elapsed();
    let available_with = available_kib()?;
    let supervisors = pss_of_supervisors_kib()?;
    let payloads = pss_of("sleep")?;
    let count = standing.len().max(1) as u64;
    let started = Instant::now();
    let mut ending = JoinSet::new();
    for (sandbox, process) in standing {
        ending.spawn(async move {
            sandbox.end(Cause::Finished(ExitStatus::Code(0))).await;
            drop(process);
        });
    }
    while let Some(ended) = ending.join_next().await {
        ended?;
    }
    let rows = vec![
        vec!["sandboxes that stood at once".to_owned(), count.to_string()],
        vec!["errors".to_owned(), errors.len().to_string()],
        vec![
            "all made in".to_owned(),
            format!("{:.2} s", made_in.as_secs_f64()),
        ],
        vec![
            "all gone in".to_owned(),
            format!("{:.2} s", started.elapsed().as_secs_f64()),
        ],
        vec![
            "launcher and init, each sandbox (PSS)".to_owned(),
            mib(supervisors / count),
        ],
        vec![
            "the payload itself, each sandbox (PSS)".to_owned(),
            mib(payloads / count),
        ],
        vec![
            "machine's available memory less, each sandbox, payload included".to_owned(),
            mib(available_before.saturating_sub(available_with) / count),
        ],
    ];
    Ok(Report {
        title: "Many sandboxes at once".to_owned(),
        command: format!("make bench ARGS='many --count {}'", options.count),
        about: "Sandboxes asked for at the same moment, each with a `sleep` inside, all standing together.".to_owned(),
        head: ["what", "value"].map(str::to_owned).to_vec(),
        rows,
        notes: errors,
    })
}

async fn idle(engine: Engine) -> Result<(Sandbox, Process)> {
    let limits = Limits {
        memory_bytes: 64 << 20,
        pids: 16,
        disk_bytes: 16 << 20,
        ..Limits::default()
    };
    let id = SandboxId::from_uuid(uuid::Uuid::now_v7());
    let sandbox = engine
        .create(Plan::new(id, limits, Workspace::Tmpfs))
        .await?;
    let process = sandbox
        .spawn(ProcessSpec::new(["/usr/bin/sleep", "600"]))
        .await?;
    Ok((sandbox, process))
}

fn available_kib() -> Result<u64> {
    let info = fs::read_to_string("/proc/meminfo")?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .context("no MemAvailable")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// The proportional share of memory of all processes that are Bulkhead's own part of a sandbox.
fn pss_of_supervisors_kib() -> Result<u64> {
    pss_of("bulkhead-init")
}

fn pss_of(name: &str) -> Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir("/proc")?.flatten() {
        let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if comm.trim() != name {
            continue;
        }
        let rollup = fs::read_to_string(entry.path().join("smaps_rollup")).unwrap_or_default();
        let pss = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
        total += pss
            .and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok())
            .unwrap_or(0);
    }
    Ok(total)
}

fn mib(kib: u64) -> String {
    format!("{:.2} MiB", kib as f64 / 1024.0)
}
