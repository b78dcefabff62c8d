//! Performing the journal of a session whose process was killed (H4). Its parent calls this, and whoever finds a
//! session without a living parent.

use std::path::Path;

use bulkhead_host::DockerHost;
use bulkhead_model::session::HostPlug;
use bulkhead_sandbox::{Engine, EngineConfig};

use crate::{
    Record,
    hosts::{self, Place},
    plug::{self, Undo},
    wire::Machine,
    words::chain,
};

/// One step that was performed.
#[derive(Debug, Clone, PartialEq)]
pub struct Undone {
    pub what: Undo,
    /// Why it still stands, where it could not be performed. It is tried again the next time.
    pub left: Option<String>,
}

/// Performs what stands in the journal of the session directory `dir`, the last step first. A session that was torn
/// down has nothing left there. The session's process must be gone.
pub async fn undo(dir: &Path) -> std::io::Result<Vec<Undone>> {
    let steps = plug::read_journal(dir)?;
    let mut undone = vec![];
    for (step, what) in steps.into_iter().rev() {
        let left = perform(dir, &what).await.err();
        if left.is_none() {
            plug::mark_done(dir, step)?;
        }
        undone.push(Undone { what, left });
    }
    Ok(undone)
}

async fn perform(dir: &Path, what: &Undo) -> Result<(), String> {
    match what {
        Undo::RemoveDirectory { path } => gone(tokio::fs::remove_dir_all(path).await),
        Undo::RemoveFile { path } => gone(tokio::fs::remove_file(path).await),
        Undo::Sandboxes { dir } => reap(dir).await,
        Undo::Container {
            name,
            socket,
            through,
        } => remove_container(dir, name, socket, through).await,
    }
}

/// The way to the engine is made anew, from what the session's record says of this machine.
async fn remove_container(
    dir: &Path,
    name: &str,
    socket: &Path,
    through: &[HostPlug],
) -> Result<(), String> {
    let record = Record::read(dir).map_err(|error| error.to_string())?;
    let order = record.order;
    let place = Place {
        machine: Machine::new(dir),
        base: order.base,
        local_env: order.local_env,
        ssh_env: order.ssh_env,
        program: None,
    };
    let id = format!("{}-undo", order.id);
    let hosts = hosts::chain(&place, through, &id).map_err(|error| chain(&error))?;
    let Some(outer) = hosts.last().cloned() else {
        return Ok(());
    };
    let removed = DockerHost::remove(outer, socket, name).await;
    for host in hosts.iter().rev() {
        // What was to be removed counts; the way to it ends with this process at the latest.
        drop(host.teardown().await);
    }
    drop(tokio::fs::remove_dir_all(hosts::short_directory(&id)).await);
    removed.map_err(|error| chain(&error))
}

fn gone(removed: std::io::Result<()>) -> Result<(), String> {
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
        _ => Ok(()),
    }
}

async fn reap(dir: &Path) -> Result<(), String> {
    let engine = Engine::open(EngineConfig::new(dir))
        .await
        .map_err(|refusal| refusal.to_string())?;
    let orphans = engine.reap_orphans().await;
    let left: Vec<_> = orphans
        .into_iter()
        .filter_map(|orphan| Some(format!("{}: {}", orphan.found, orphan.done.err()?)))
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    Err(left.join("; "))
}
