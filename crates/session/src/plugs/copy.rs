//! The plug that brings the agent's files to its host and takes the result back.
//!
//! Everything travels as bytes through processes on the host, so the same works on all hosts. No git of the runner
//! ever looks at what an agent wrote: commits are made on the host, with the host's rights, and come back as a pack
//! that is checked as it is stored (R16). A directory comes back as an archive whose names the kernel keeps inside
//! the target.

use std::{
    path::{Path, PathBuf},
    process::Stdio as Streams,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bulkhead_git::{GitProgram, Oid, RefName, Taken, TrustedRepo};
use bulkhead_host::{Command, Host, Process, Stdio};
use bulkhead_model::session::{WorkspaceConfig, WorkspaceOut, WorkspaceSource};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use super::{
    inside::{Helper, collect, run},
    unpack::unpack,
};
use crate::{
    plug::{Ctx, Ended, Plug, PlugError, TimeLimits},
    session,
    wire::SessionDelivery,
};

/// The most bytes of a result.
const MAX_RESULT: u64 = 8 << 30;

/// Makes the directory and says whether it was there, and with something in it.
const PREPARE: &str = r#"if [ -d "$1" ]; then [ -z "$(ls -A -- "$1")" ] && echo empty || echo full; else mkdir -p -- "$1" && echo made; fi"#;
const OPEN_ARCHIVE: &str = r#"cd -- "$1" && tar -xf -"#;
const MAKE_ARCHIVE: &str = r#"cd -- "$1" && tar -cf - ."#;
/// Reads a pack, and checks its commit out on a branch.
const CLONE: &str = r#"cd -- "$1" && git init -q && git index-pack --stdin >/dev/null && git update-ref "refs/heads/$2" "$3" && git symbolic-ref HEAD "refs/heads/$2" && git reset -q --hard"#;
/// Commits what there is to commit, without hooks, and says which commit it is.
const COMMIT: &str = r#"cd -- "$1" && git add -A && { git diff --cached --quiet || git -c core.hooksPath=/dev/null -c commit.gpgSign=false -c user.name="$3" -c user.email="$4" commit -q -m "$2"; } && git rev-parse HEAD"#;
const PACK: &str =
    r#"cd -- "$1" && printf '%s\n^%s\n' "$2" "$3" | git pack-objects --revs --stdout -q --thin"#;
const BRANCH_INSIDE: &str = "session";

pub(super) struct CopyPlug {
    config: WorkspaceConfig,
    delivery: Arc<SessionDelivery>,
    /// What was cloned.
    repository: Option<(TrustedRepo, Oid)>,
    target: Option<String>,
    /// Removed at the end, because this plug made it on a host that outlives the session.
    made: bool,
}

impl CopyPlug {
    pub(super) const fn new(config: WorkspaceConfig, delivery: Arc<SessionDelivery>) -> Self {
        Self {
            config,
            delivery,
            repository: None,
            target: None,
            made: false,
        }
    }

    /// The configured place, or the host's usual one, or one below the account's own directory.
    async fn place(&self, ctx: &Ctx, host: &dyn Host) -> Result<String, PlugError> {
        if let Some(place) = self.config.target.clone().or(ctx.agent.cwd.clone()) {
            return Ok(place);
        }
        let helper = run(host, Command::new(["pwd"]))
            .await?
            .check("asking where the account is")?;
        let home = String::from_utf8_lossy(&helper.stdout)
            .trim_end()
            .to_owned();
        Ok(format!(
            "{}/bulkhead-{}",
            home.trim_end_matches('/'),
            ctx.session.id
        ))
    }

    async fn bring_in(&mut self, host: &dyn Host, target: &str) -> Result<(), PlugError> {
        match self.config.source.clone() {
            WorkspaceSource::Empty => Ok(()),
            WorkspaceSource::Directory(directory) => {
                let directory = session::path(&self.delivery.order, &directory);
                copy_in(host, &directory, target).await
            }
            WorkspaceSource::Git { revision, .. } => self.clone_in(host, target, revision).await,
        }
    }

    async fn clone_in(
        &mut self,
        host: &dyn Host,
        target: &str,
        revision: Option<String>,
    ) -> Result<(), PlugError> {
        let (repo, commit) = self.open(revision.as_deref().unwrap_or("HEAD")).await?;
        let argv = [
            "sh",
            "-c",
            CLONE,
            "bulkhead-clone",
            target,
            BRANCH_INSIDE,
            commit.as_str(),
        ];
        let mut process = host.spawn(Command::new(argv).stdio(Stdio::PIPES)).await?;
        let written = match &mut process.stdin {
            Some(stdin) => repo.write_pack(&commit, stdin).await,
            None => Ok(()),
        };
        let helper = close(process).await;
        helper.check(&format!(
            "cloning on {} (which needs git there)",
            host.describe()
        ))?;
        written.map_err(|error| PlugError::because("reading the repository", error))?;
        self.repository = Some((repo, commit));
        Ok(())
    }

    async fn open(&self, revision: &str) -> Result<(TrustedRepo, Oid), PlugError> {
        let WorkspaceSource::Git { repository, .. } = &self.config.source else {
            return Err(PlugError::words("there is no repository"));
        };
        let path = session::path(&self.delivery.order, repository);
        let failed = |error| PlugError::because(format!("opening {}", path.display()), error);
        let repo = TrustedRepo::open(&GitProgram::default(), &path)
            .await
            .map_err(failed)?;
        let commit = repo.resolve(revision).await.map_err(failed)?;
        Ok((repo, commit))
    }

    async fn take_branch(
        &mut self,
        ctx: &Ctx,
        host: &dyn Host,
        branch: &str,
    ) -> Result<(), PlugError> {
        let Some(target) = self.target.clone() else {
            return Ok(());
        };
        let base = self.base(ctx).await?;
        let (repo, start) = match self.repository.take() {
            Some(cloned) => cloned,
            None => self.open(&base).await?,
        };
        let name = self.delivery.order.name.clone();
        let message = name.unwrap_or_else(|| format!("Session {}", ctx.session.id));
        let argv = [
            "sh",
            "-c",
            COMMIT,
            "bulkhead-commit",
            &target,
            &message,
            "Bulkhead",
            "bulkhead@localhost",
        ];
        let helper = run(host, Command::new(argv))
            .await?
            .check("committing the result")?;
        let commit = String::from_utf8_lossy(&helper.stdout).trim().to_owned();
        let commit: Oid = commit
            .parse()
            .map_err(|error| PlugError::because("reading which commit was made", error))?;
        if commit == start {
            ctx.log()
                .say("nothing was changed, so no branch was moved")
                .await;
            return Ok(());
        }
        let argv = [
            "sh",
            "-c",
            PACK,
            "bulkhead-pack",
            &target,
            commit.as_str(),
            start.as_str(),
        ];
        let mut process = host.spawn(Command::new(argv)).await?;
        let mut pack = tempfile_in(&self.delivery.order.dir)
            .map_err(|error| PlugError::because("keeping the result", error))?;
        let copied = match process.stdout.take() {
            Some(stdout) => spool(stdout, &mut pack).await,
            None => Ok(()),
        };
        close(process).await.check("handing the result over")?;
        copied.map_err(|error| PlugError::because("keeping the result", error))?;
        let name = RefName::from_branch(branch)
            .map_err(|error| PlugError::because("reading the branch's name", error))?;
        let taken = repo
            .take_pack(pack, &commit, &name)
            .await
            .map_err(|error| PlugError::because(format!("moving the branch {branch}"), error))?;
        if let Taken::Moved { commit, .. } = taken {
            ctx.log().say(&format!("{branch} is at {commit}")).await;
        }
        Ok(())
    }

    /// Where the clone began; a session that goes on after a pause remembers it in its directory.
    async fn base(&self, ctx: &Ctx) -> Result<String, PlugError> {
        if let Some((_, start)) = &self.repository {
            return Ok(start.to_string());
        }
        let path = self.base_file();
        tokio::fs::read_to_string(&path).await.map_err(|error| {
            let what = format!("reading where the session {} began", ctx.session.id);
            PlugError::because(what, error)
        })
    }

    fn base_file(&self) -> PathBuf {
        self.delivery.order.dir.join("base-commit")
    }
}

#[async_trait]
impl Plug for CopyPlug {
    fn name(&self) -> &str {
        "workspace"
    }

    fn limits(&self) -> TimeLimits {
        TimeLimits::of(Duration::from_secs(30 * 60))
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        if let Some(WorkspaceOut::Directory(out)) = &self.config.out {
            refuse_full(&session::path(&self.delivery.order, out)).await?;
        }
        let host = ctx.host()?;
        let target = self.place(ctx, &*host).await?;
        let prepare = Command::new(["sh", "-c", PREPARE, "bulkhead-workspace", &target]);
        let what = format!("making {target} on {}", host.describe());
        let helper = run(&*host, prepare).await?.check(&what)?;
        let found = String::from_utf8_lossy(&helper.stdout).trim().to_owned();
        self.target = Some(target.clone());
        ctx.agent.cwd = Some(target.clone());
        self.made = (found == "made" || ctx.session.resumed) && outlives(&*host);
        if ctx.session.resumed && found == "full" {
            return Ok(());
        }
        if ctx.session.resumed {
            ctx.log()
                .say("the host did not outlive the pause, so the workspace begins anew")
                .await;
        }
        if found == "full" && self.config.source != WorkspaceSource::Empty {
            return Err(PlugError::Words(format!(
                "{target} on {} is not empty: name another `target`",
                host.describe()
            )));
        }
        self.bring_in(&*host, &target).await?;
        if let Some((_, start)) = &self.repository {
            let written = tokio::fs::write(self.base_file(), start.as_str()).await;
            written.map_err(|error| PlugError::because("noting where the clone began", error))?;
        }
        Ok(())
    }

    async fn finish(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        let host = ctx.host()?;
        match self.config.out.clone() {
            None => Ok(()),
            Some(WorkspaceOut::Branch(branch)) => self.take_branch(ctx, &*host, &branch).await,
            Some(WorkspaceOut::Directory(out)) => {
                let Some(target) = &self.target else {
                    return Ok(());
                };
                let out = session::path(&self.delivery.order, &out);
                copy_out(&*host, target, &out).await
            }
        }
    }

    async fn teardown(&mut self, ctx: &mut Ctx, ended: Ended) -> Result<(), PlugError> {
        let target = self
            .target
            .take()
            .filter(|_| self.made && ended != Ended::Paused);
        let (Some(target), Ok(host)) = (target, ctx.host()) else {
            return Ok(());
        };
        let what = format!("removing {target} on {}", host.describe());
        let command = Command::new(["rm", "-rf", "--", &target]);
        run(&*host, command).await?.check(&what)?;
        Ok(())
    }
}

/// Whether what is written on the host is still there when the session has ended.
fn outlives(host: &dyn Host) -> bool {
    let layers = host.isolation();
    layers
        .last()
        .is_some_and(|layer| matches!(layer.kind, "ssh" | "local"))
}

async fn copy_in(host: &dyn Host, directory: &Path, target: &str) -> Result<(), PlugError> {
    let what = format!("copying {} in", directory.display());
    let failed = |error| PlugError::because(what.clone(), error);
    let mut tar = tokio::process::Command::new("tar")
        .args(["-cf", "-", "-C"])
        .arg(directory)
        .arg(".")
        .env_clear()
        .env("PATH", bulkhead_sandbox::DEFAULT_PATH)
        .stdin(Streams::null())
        .stdout(Streams::piped())
        .stderr(Streams::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let argv = ["sh", "-c", OPEN_ARCHIVE, "bulkhead-copy", target];
    let mut process = host.spawn(Command::new(argv).stdio(Stdio::PIPES)).await?;
    let copied = match (tar.stdout.take(), &mut process.stdin) {
        (Some(mut from), Some(to)) => tokio::io::copy(&mut from, to).await.map(drop),
        _ => Ok(()),
    };
    close(process)
        .await
        .check(&format!("{what} to {}", host.describe()))?;
    copied.map_err(failed)?;
    let output = tar.wait_with_output().await.map_err(failed)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(PlugError::Words(format!("{what}: {}", said.trim())));
    }
    Ok(())
}

async fn copy_out(host: &dyn Host, target: &str, out: &Path) -> Result<(), PlugError> {
    let what = format!("copying the result to {}", out.display());
    refuse_full(out).await?;
    let made = tokio::fs::create_dir_all(out).await;
    made.map_err(|error| PlugError::because(what.clone(), error))?;
    let argv = ["sh", "-c", MAKE_ARCHIVE, "bulkhead-copy", target];
    let mut process = host.spawn(Command::new(argv)).await?;
    let unpacked = match process.stdout.take() {
        Some(stdout) => unpack(stdout.take(MAX_RESULT), out).await,
        None => Ok(()),
    };
    let helper = close(process).await;
    unpacked.map_err(|error| PlugError::because(what.clone(), error))?;
    helper.check(&what)?;
    Ok(())
}

/// A result never overwrites anything.
async fn refuse_full(out: &Path) -> Result<(), PlugError> {
    let Ok(mut entries) = tokio::fs::read_dir(out).await else {
        return Ok(());
    };
    match entries.next_entry().await {
        Ok(None) => Ok(()),
        _ => Err(PlugError::Words(format!(
            "{} is not empty: name a directory for the result that holds nothing yet",
            out.display()
        ))),
    }
}

async fn close(mut process: Process) -> Helper {
    if let Some(stdin) = &mut process.stdin {
        drop(stdin.shutdown().await);
    }
    collect(process).await
}

/// A file without a name, so that nothing is left of it.
fn tempfile_in(dir: &Path) -> std::io::Result<std::fs::File> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(open(dir, flags, Mode::RUSR | Mode::WUSR)?.into())
}

async fn spool(from: impl AsyncRead + Unpin, pack: &mut std::fs::File) -> std::io::Result<()> {
    use std::io::Seek as _;
    let mut file = tokio::fs::File::from_std(pack.try_clone()?);
    let mut limited = from.take(MAX_RESULT);
    tokio::io::copy(&mut limited, &mut file).await?;
    file.flush().await?;
    pack.rewind()
}
