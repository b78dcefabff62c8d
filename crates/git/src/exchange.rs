//! Commits as packs, for a clone that lives where this machine's git cannot reach it: in a container, on another
//! machine. Both directions are bytes. What comes back was written by an agent: it is checked as it is stored, and
//! a branch only ever moves forward.

use std::{fs::File, time::Duration};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Error, Oid, RefName, Refusal, Result, TrustedRepo, command::Running};

const TIME: Duration = Duration::from_secs(15 * 60);

/// What became of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// Nothing new: the branch, where there is one, stays as it is.
    Unchanged,
    Moved {
        branch: RefName,
        commit: Oid,
    },
}

impl TrustedRepo {
    /// Writes everything that `commit` reaches to `out`, as one pack.
    pub async fn write_pack(
        &self,
        commit: &Oid,
        out: &mut (impl AsyncWrite + Unpin),
    ) -> Result<()> {
        let git = self.git().args([
            "pack-objects",
            "--revs",
            "--stdout",
            "-q",
            "--delta-base-offset",
        ]);
        let mut running = git.spawn()?;
        if let Some(mut stdin) = running.child.stdin.take() {
            let line = format!("{commit}\n");
            // A command that does not read says why in its status.
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stdin, line.as_bytes()).await;
        }
        copy_out(&mut running, out).await?;
        running.finish(TIME).await.map(drop)
    }

    /// Stores a pack that holds `commit` on top of what is here, and moves `branch` to it.
    pub async fn take_pack(&self, pack: File, commit: &Oid, branch: &RefName) -> Result<Taken> {
        let before = self.tip(branch).await?;
        if before.as_ref() == Some(commit) {
            return Ok(Taken::Unchanged);
        }
        self.refuse_checked_out(branch).await?;
        let store = self
            .git()
            .args(["index-pack", "--strict", "--fix-thin", "--stdin"])
            .input(pack)
            .time(TIME);
        store.output().await?;
        // Everything that the commit reaches has to be here, or the branch would be broken.
        let reach = [
            "rev-list",
            "--objects",
            "--quiet",
            commit.as_str(),
            "--not",
            "--all",
        ];
        self.git().args(reach).time(TIME).output().await?;
        if let Some(before) = &before {
            let args = [
                "merge-base",
                "--is-ancestor",
                before.as_str(),
                commit.as_str(),
            ];
            let ended = self.git().args(args).run().await?;
            if ended.code() != Some(0) {
                return Err(Refusal::NotForward {
                    branch: branch.as_str().to_owned(),
                }
                .into());
            }
        }
        let old = before.as_ref().map_or(self.zero(), Oid::to_string);
        let update = ["update-ref", branch.as_str(), commit.as_str(), &old];
        self.git().args(update).output().await?;
        Ok(Taken::Moved {
            branch: branch.clone(),
            commit: commit.clone(),
        })
    }

    async fn refuse_checked_out(&self, branch: &RefName) -> Result<()> {
        let listed = self
            .git()
            .args(["worktree", "list", "--porcelain", "-z"])
            .output()
            .await?;
        let mut path = String::new();
        for field in String::from_utf8_lossy(&listed).split('\0') {
            match field.split_once(' ') {
                Some(("worktree", at)) => at.clone_into(&mut path),
                Some(("branch", at)) if at == branch.as_str() => {
                    return Err(Refusal::CheckedOut {
                        reference: branch.as_str().to_owned(),
                        path: path.into(),
                    }
                    .into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn zero(&self) -> String {
        "0".repeat(match self.format() {
            crate::ObjectFormat::Sha1 => 40,
            crate::ObjectFormat::Sha256 => 64,
        })
    }
}

async fn copy_out(running: &mut Running, out: &mut (impl AsyncWrite + Unpin)) -> Result<()> {
    let Some(mut stdout) = running.child.stdout.take() else {
        return Ok(());
    };
    copy(&mut stdout, out).await
}

async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> Result<()> {
    let copied = tokio::time::timeout(TIME, tokio::io::copy(from, to)).await;
    let failed = Error::io("hand over a pack".to_owned());
    match copied {
        Ok(copied) => copied.map(drop).map_err(failed),
        Err(_elapsed) => Err(failed(std::io::ErrorKind::TimedOut.into())),
    }
}
