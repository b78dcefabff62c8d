//! The benchmarks: Bulkhead beside its peers, in one run, on the same limits.
//!
//! Each command prints a table and, with `--write`, puts it into `bench/RESULTS.md` under its heading, with the machine,
//! the date and the command that makes it again. Rounds are interleaved: every contender runs once a round, so that
//! what disturbs the machine disturbs all of them alike, and the ratios hold where the figures do not.

mod hosts;
mod isolates;
mod memory;
mod peers;
mod phase;
mod raw_engine;
mod report;
mod sandbox;
mod stats;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Measure Bulkhead beside its peers", version)]
struct Arguments {
    /// Put the tables into bench/RESULTS.md as well.
    #[arg(long, global = true)]
    write: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Create → exit → all gone, against bwrap, crun, runc and docker.
    Sandbox(sandbox::Options),
    /// 200 sandboxes at once: errors, time, and memory per idle sandbox.
    Many(memory::Options),
    /// From the queue to an agent's first event, split by stage.
    FirstEvent(phase::FirstEventOptions),
    /// From a phase's output to its stored and masked log.
    Log(phase::LogOptions),
    /// A process on a warm local, ssh and docker host, beside the same by hand.
    HostProcesses(hosts::ProcessOptions),
    /// Small operations and a large file on an ssh host, against sftp and scp.
    HostFiles(hosts::FileOptions),
    /// 1,000 short processes at once on one ssh host.
    HostCrowd(hosts::CrowdOptions),
    /// A plugin call in a fresh isolate, against isolated-vm and workerd.
    IsolateCalls(isolates::CallOptions),
    /// 1,000 plugin calls that wait: the memory they hold.
    IsolateWaiting(isolates::WaitingOptions),
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let report = match arguments.what {
        What::Sandbox(options) => sandbox::measure(options).await?,
        What::Many(options) => memory::measure(options).await?,
        What::FirstEvent(options) => phase::first_event(options).await?,
        What::Log(options) => phase::log(options).await?,
        What::HostProcesses(options) => hosts::processes(options).await?,
        What::HostFiles(options) => hosts::files(options).await?,
        What::HostCrowd(options) => hosts::crowd(options).await?,
        What::IsolateCalls(options) => isolates::calls(options).await?,
        What::IsolateWaiting(options) => isolates::waiting(options).await?,
    };
    report.publish(arguments.write)
}
