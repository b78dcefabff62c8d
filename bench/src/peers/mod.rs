//! The peers: other ways to run one command in a container, each asked for the same limits.

mod docker;
mod group;
mod oci;

use std::{path::Path, process::Command};

use anyhow::{Result, bail};

pub(crate) use docker::Docker;

/// The limits of every contender.
pub(crate) const MEMORY_BYTES: u64 = 256 << 20;
pub(crate) const PIDS: u32 = 64;
pub(crate) const CPU_MILLI: u32 = 1_000;
/// What every contender runs.
pub(crate) const PAYLOAD: &str = "/usr/bin/true";

/// A contender that runs the payload once, from nothing until all of it is gone.
pub(crate) trait Peer {
    fn name(&self) -> String;
    fn run_once(&self) -> Result<()>;
}

/// The peers of one run.
pub(crate) struct Peers {
    pub(crate) installed: Vec<Box<dyn Peer>>,
    /// The others, named, so that a table says what it lacks.
    pub(crate) missing: Vec<String>,
}

pub(crate) fn find(scratch: &Path) -> Result<Peers> {
    let mut peers: Vec<Box<dyn Peer>> = Vec::new();
    let mut missing = Vec::new();
    for program in ["bwrap", "crun", "runc"] {
        if !on_path(program) {
            missing.push(format!("{program} is not installed"));
            continue;
        }
        peers.push(match program {
            "bwrap" => Box::new(group::Bubblewrap),
            _ => Box::new(oci::Runtime::new(program, scratch)?),
        });
    }
    if on_path("dockerd") && on_path("docker") {
        peers.push(Box::new(Docker::start(scratch)?));
    } else {
        missing.push("docker is not installed".to_owned());
    }
    Ok(Peers {
        installed: peers,
        missing,
    })
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Runs a command to its end; anything but success is an error with its own words.
pub(crate) fn must_succeed(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    if !output.status.success() {
        bail!(
            "{command:?}: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
