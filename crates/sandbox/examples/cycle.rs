//! How long create → exit → all gone takes: `cycle COUNT [tmpfs|image] [AT ONCE]`.
#![expect(clippy::print_stdout, reason = "its purpose is to print a measurement")]

use std::time::Instant;

use bulkhead_sandbox::{
    Cause, Engine, EngineConfig, Limits, Plan, ProcessSpec, SandboxId, Stdio, Stream, Workspace,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let workspace = if arguments.next().as_deref() == Some("image") {
        Workspace::Image
    } else {
        Workspace::Tmpfs
    };
    let at_once: usize = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let dir = std::env::temp_dir().join(format!("bulkhead-cycle-{}", std::process::id()));
    let mut config = EngineConfig::new(&dir);
    let limits = Limits {
        disk_bytes: 1 << 30,
        ..Limits::default()
    };
    if workspace == Workspace::Image {
        config.image_pool = bulkhead_sandbox::ImagePool {
            count: 4,
            size_bytes: limits.disk_bytes,
        };
    }
    let started = Instant::now();
    let engine = Engine::probe(config).await?;
    println!(
        "probe {:.1} ms; {}",
        started.elapsed().as_secs_f64() * 1e3,
        engine.describe()
    );
    let mut all = Vec::new();
    let began = Instant::now();
    while all.len() < count {
        // In tasks, as executors do it.
        let mut batch = tokio::task::JoinSet::new();
        for _ in 0..at_once {
            batch.spawn(one(engine.clone(), limits, workspace.clone()));
        }
        while let Some(taken) = batch.join_next().await {
            all.push(taken??);
        }
    }
    let wall = began.elapsed().as_secs_f64() * 1e3;
    for (index, name) in ["create", "spawn+exit", "end", "whole"].iter().enumerate() {
        let mut column: Vec<f64> = all.iter().map(|taken| taken[index]).collect();
        column.sort_by(f64::total_cmp);
        println!(
            "{name:11} median {:.2} min {:.2} max {:.2} ms",
            column[column.len() / 2],
            column[0],
            column[column.len() - 1]
        );
    }
    println!("{count} in {wall:.0} ms");
    drop(engine);
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

async fn one(engine: Engine, limits: Limits, workspace: Workspace) -> Result<[f64; 4], Failed> {
    let start = Instant::now();
    let plan = Plan::new(
        SandboxId::from_uuid(uuid::Uuid::now_v7()),
        limits,
        workspace,
    );
    let sandbox = engine.create(plan).await?;
    let created = start.elapsed();
    let streams = Stdio::Streams {
        stdin: Stream::Null,
        stdout: Stream::Null,
        stderr: Stream::Null,
    };
    let process = sandbox
        .spawn(ProcessSpec::new(["/bin/true"]).stdio(streams))
        .await?;
    let status = process.wait().await;
    let exited = start.elapsed();
    let outcome = sandbox.end(Cause::Finished(status)).await;
    let whole = start.elapsed();
    if !outcome.reason.is_success() {
        return Err(format!("{outcome:?}").into());
    }
    Ok([created, exited - created, whole - exited, whole].map(|part| part.as_secs_f64() * 1e3))
}
