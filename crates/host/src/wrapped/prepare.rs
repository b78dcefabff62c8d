//! From a host to walls on it with a holder inside.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::{
    config::WrapConfig,
    lost_after,
    walls::{Kind, NestedNamespaces, PREPARE, Prepared, START, arguments, text},
};
use crate::{
    Command, ExitStatus, Host, HostError, Process, ProcessControl, Signal, Stdio, Stream, Target,
    holder::{Beat, Holder},
};

/// A machine that answers at all has the helper in this time, however thin its line.
const PREPARED_IN: Duration = Duration::from_secs(120);
/// What a program that failed says may be this long.
const SAID_MAX: u64 = 4096;
const SAID_IN: Duration = Duration::from_secs(5);
const ENDED_IN: Duration = Duration::from_secs(10);

/// Standing walls.
pub(super) struct Walls {
    pub(super) holder: Holder,
    pub(super) nested: NestedNamespaces,
    bubblewrap: Arc<dyn ProcessControl>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum WrapError {
    #[error("preparing the sandbox failed there: {0}")]
    Prepare(String),
    #[error("sending the helper")]
    Send(#[source] io::Error),
    #[error("it did not answer in {} seconds", PREPARED_IN.as_secs())]
    Late,
}

impl Walls {
    pub(super) async fn build(
        outer: &Arc<dyn Host>,
        config: &WrapConfig,
        host: &str,
    ) -> Result<Self, HostError> {
        if let Some(path) = config.bad_path() {
            return Err(HostError::Refused(format!(
                "the sandbox's path {} is not an absolute path of text without ..",
                path.display()
            )));
        }
        let failed = |error: WrapError| HostError::Connect {
            host: host.to_owned(),
            source: Arc::new(error),
        };
        let report = match timeout(PREPARED_IN, prepare(outer, config)).await {
            Err(_) => return Err(failed(WrapError::Late)),
            Ok(report) => report?.map_err(failed)?,
        };
        let prepared = parse(&report, outer)?;
        start(outer, config, host, &prepared).await
    }

    /// Ends everything inside. Where the holder does not end in time, bubblewrap is killed, which takes it along.
    pub(super) async fn end(&self) {
        self.holder.end().await;
        if timeout(ENDED_IN, self.bubblewrap.wait()).await.is_err() {
            let _ = self.bubblewrap.signal(Signal::Kill, Target::Group).await;
        }
    }
}

impl std::fmt::Debug for Walls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walls")
            .field("holder", &self.holder)
            .finish_non_exhaustive()
    }
}

/// What the first program prints.
async fn prepare(
    outer: &Arc<dyn Host>,
    config: &WrapConfig,
) -> Result<Result<String, WrapError>, HostError> {
    let filter = bulkhead_sandbox::seccomp_filter();
    let fixed = ["/bin/sh", "-c", PREPARE, "sh"].map(str::to_owned);
    let sizes = [filter.len().to_string(), std::env::consts::ARCH.to_owned()];
    let hidden = config.hidden.iter().map(|path| text(path));
    let argv = fixed.into_iter().chain(sizes).chain(hidden);
    let mut process = outer.spawn(Command::new(argv).stdio(Stdio::PIPES)).await?;
    let sent = async {
        if let Some(mut stdin) = process.stdin.take() {
            stdin.write_all(bulkhead_sandbox::helper_program()).await?;
            stdin.write_all(&filter).await?;
            stdin.shutdown().await?;
        }
        Ok(())
    };
    let (sent, said, wrong) =
        tokio::join!(sent, all(process.stdout.take()), all(process.stderr.take()));
    let status = process.control.wait().await;
    if !status.success() {
        return Ok(Err(WrapError::Prepare(format!("{wrong} ({status})"))));
    }
    // A program that had nothing to do with the helper has ended without reading it.
    match sent {
        Err(error) if said.contains("ready ") => Ok(Err(WrapError::Send(error))),
        _ => Ok(Ok(said)),
    }
}

async fn all(from: Option<crate::Reader>) -> String {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        let _ = from.take(SAID_MAX * 4).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

fn parse(report: &str, outer: &Arc<dyn Host>) -> Result<Prepared, HostError> {
    let mut prepared = Prepared {
        dir: String::new(),
        nested: NestedNamespaces::Possible,
        kinds: Vec::new(),
    };
    let place = outer.describe();
    for line in report.lines() {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("machine", has) => {
                return Err(HostError::Refused(format!(
                    "the machine of {place} is {has}, and the sandbox's helper is for Linux {}: use a runner of that machine's kind",
                    std::env::consts::ARCH
                )));
            }
            ("missing", _) => {
                return Err(HostError::Refused(format!(
                    "a sandbox on {place} needs bubblewrap, and there is no bwrap in its PATH: install the package bubblewrap there"
                )));
            }
            ("userns", "closed") => prepared.nested = NestedNamespaces::Impossible,
            ("kind", "directory") => prepared.kinds.push(Kind::Directory),
            ("kind", "file") => prepared.kinds.push(Kind::File),
            ("kind", _) => prepared.kinds.push(Kind::None),
            ("ready", dir) => dir.clone_into(&mut prepared.dir),
            _ => {}
        }
    }
    Ok(prepared)
}

async fn start(
    outer: &Arc<dyn Host>,
    config: &WrapConfig,
    host: &str,
    prepared: &Prepared,
) -> Result<Walls, HostError> {
    let fixed = ["/bin/sh", "-c", START, "sh", &prepared.dir].map(str::to_owned);
    let argv = fixed.into_iter().chain(arguments(config, prepared));
    let stdio = Stdio::Streams {
        stdin: Stream::Pipe,
        stdout: Stream::Pipe,
        stderr: Stream::Pipe,
    };
    let Process {
        stdin,
        stdout,
        stderr,
        control,
    } = outer.spawn(Command::new(argv).stdio(stdio)).await?;
    let gone = || HostError::Gone {
        host: outer.describe(),
    };
    let (stdin, stdout) = (stdin.ok_or_else(gone)?, stdout.ok_or_else(gone)?);
    let beat = Beat::for_loss_after(lost_after(config));
    match Holder::connect(host.to_owned(), stdout, stdin, beat).await {
        Ok(holder) => Ok(Walls {
            holder,
            nested: prepared.nested,
            bubblewrap: control,
        }),
        Err(_) => {
            let said = timeout(SAID_IN, all(stderr)).await.unwrap_or_default();
            let status = timeout(SAID_IN, control.wait()).await.ok();
            Err(refused(outer, &said, status))
        }
    }
}

/// Bubblewrap could not build them: nothing ran.
fn refused(outer: &Arc<dyn Host>, said: &str, status: Option<ExitStatus>) -> HostError {
    let place = outer.describe();
    let status = status.map_or_else(|| "it hangs".to_owned(), |status| format!("it {status}"));
    HostError::Refused(format!(
        "the sandbox's walls do not stand on {place}: {said} ({status}). Bubblewrap needs user namespaces there: on a machine, \
         the kernel's setting for unprivileged ones; in a container, one whose system calls and system paths are not confined \
         (security: seccomp: unconfined, systemPaths: shown)"
    ))
}
