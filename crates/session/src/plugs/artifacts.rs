//! The plug that brings artifacts of earlier phases in and takes this phase's out.
//!
//! Both ways the bytes go through a process inside, so the host never follows a path that an agent wrote
//! (case 41). A directory travels as an archive that is made and opened inside only.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bulkhead_host::{Command, Host, Stdio};
use bulkhead_model::ArtifactName;
use bulkhead_sandbox::WORKSPACE_DIR;
use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::mpsc,
};

use super::inside::{RunError, collect};
use crate::{
    plug::{Ctx, Plug, PlugError, TimeLimits},
    wire::{ArtifactChunk, ArtifactKind, Delivery, FinishedArtifact, MAX_CHUNK},
};

/// Where artifacts of earlier phases are, inside. `/run/bulkhead/artifacts` is a link to it, and the variable
/// `BULKHEAD_ARTIFACTS` says the same.
pub(crate) const ARTIFACTS_DIR: &str = "/home/agent/artifacts";

/// The most bytes of one artifact.
pub(crate) const MAX_ARTIFACT: u64 = 512 << 20;

const PUT: &str = r#"mkdir -p "$1" && case $3 in
directory) mkdir "$1/$2" && tar -xf - -C "$1/$2" ;;
*) cat > "$1/$2" ;;
esac"#;

/// The first line says what the artifact is; its bytes follow.
const TAKE: &str = r#"if [ -d "$1" ]; then echo directory && tar -cf - -C "$1" .
elif [ -f "$1" ]; then echo file && cat "$1"
else echo "there is no file or directory $1" >&2; exit 1; fi"#;

pub(super) struct ArtifactsPlug {
    delivery: Arc<Delivery>,
    /// The artifacts of earlier phases, as they arrive.
    incoming: Option<mpsc::Receiver<ArtifactChunk>>,
}

impl ArtifactsPlug {
    pub(super) const fn new(
        delivery: Arc<Delivery>,
        incoming: mpsc::Receiver<ArtifactChunk>,
    ) -> Self {
        Self {
            delivery,
            incoming: Some(incoming),
        }
    }
}

#[async_trait]
impl Plug for ArtifactsPlug {
    fn name(&self) -> &str {
        "artifacts"
    }

    fn limits(&self) -> TimeLimits {
        TimeLimits::of(Duration::from_secs(10 * 60))
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        let expected = self.delivery.order.artifacts_in.len();
        let Some(mut chunks) = self.incoming.take() else {
            return Ok(());
        };
        let host = ctx.host()?;
        for _ in 0..expected {
            put(&*host, &mut chunks).await?;
        }
        let dir = ARTIFACTS_DIR.to_owned();
        ctx.agent.env.insert("BULKHEAD_ARTIFACTS".to_owned(), dir);
        Ok(())
    }

    async fn finish(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        let host = ctx.host()?;
        for (name, path) in self.delivery.order.artifacts_out.clone() {
            let artifact = take(ctx, &*host, &name, &path).await?;
            ctx.results.artifacts.push(artifact);
        }
        Ok(())
    }
}

/// Writes the next artifact that arrives.
async fn put(host: &dyn Host, chunks: &mut mpsc::Receiver<ArtifactChunk>) -> Result<(), PlugError> {
    let gone = || PlugError::Words("the executor sent fewer artifacts than it promised".to_owned());
    let mut chunk = chunks.recv().await.ok_or_else(gone)?;
    let kind = match chunk.kind {
        ArtifactKind::File => "file",
        ArtifactKind::Directory => "directory",
    };
    let argv = [
        "sh",
        "-c",
        PUT,
        "bulkhead-artifact",
        ARTIFACTS_DIR,
        chunk.name.as_str(),
        kind,
    ];
    let command = Command::new(argv).stdio(Stdio::PIPES);
    let mut process = host.spawn(command).await?;
    let what = format!("writing the artifact {}", chunk.name);
    if let Some(stdin) = &mut process.stdin {
        loop {
            // A process that ended early says why on its standard error.
            let written = stdin.write_all(&chunk.data).await;
            if chunk.last || written.is_err() {
                break;
            }
            chunk = chunks.recv().await.ok_or_else(gone)?;
        }
    }
    collect(process).await.check(&what)?;
    Ok(())
}

/// Reads one artifact and sends it on.
async fn take(
    ctx: &Ctx,
    host: &dyn Host,
    name: &ArtifactName,
    path: &str,
) -> Result<FinishedArtifact, PlugError> {
    if !is_inside(path) {
        return Err(PlugError::Words(format!(
            "the artifact {name} is at {path:?}, which is not a path in the workspace: use a relative one \
             without `..`"
        )));
    }
    let what = format!("reading the artifact {name}");
    let path = format!("./{path}");
    let command = Command::new(["sh", "-c", TAKE, "bulkhead-artifact", &path]).cwd(WORKSPACE_DIR);
    let mut process = host.spawn(command).await?;
    let sent = match process.stdout.take() {
        Some(stdout) => send(ctx, name, stdout).await,
        None => Ok(None),
    };
    let helper = collect(process).await;
    let sent = sent.map_err(|source| RunError::Io {
        what: what.clone(),
        source,
    })?;
    helper.check(&what)?;
    sent.ok_or_else(|| PlugError::Words(format!("{what}: it ended early")))
}

async fn send(
    ctx: &Ctx,
    name: &ArtifactName,
    mut stdout: bulkhead_host::Reader,
) -> std::io::Result<Option<FinishedArtifact>> {
    let Some((kind, mut rest)) = first_line(&mut stdout).await? else {
        return Ok(None);
    };
    let mut size_bytes = 0;
    loop {
        while rest.len() < MAX_CHUNK {
            rest.reserve(64 << 10);
            if stdout.read_buf(&mut rest).await? == 0 {
                break;
            }
        }
        let data = rest.split_to(rest.len().min(MAX_CHUNK)).freeze();
        size_bytes += data.len() as u64;
        if size_bytes > MAX_ARTIFACT {
            let words = format!("it is larger than the limit of {MAX_ARTIFACT} bytes");
            return Err(std::io::Error::other(words));
        }
        let last = data.is_empty();
        let name = name.clone();
        ctx.out
            .artifact(ArtifactChunk {
                name,
                kind,
                last,
                data,
            })
            .await;
        if last {
            break;
        }
    }
    Ok(Some(FinishedArtifact {
        name: name.clone(),
        kind,
        size_bytes,
    }))
}

/// What the artifact is, and the bytes that came with that line. None where the process said nothing.
async fn first_line(
    stdout: &mut bulkhead_host::Reader,
) -> std::io::Result<Option<(ArtifactKind, BytesMut)>> {
    let mut start = BytesMut::new();
    loop {
        for (word, kind) in [
            (b"file\n".as_slice(), ArtifactKind::File),
            (b"directory\n", ArtifactKind::Directory),
        ] {
            if start.starts_with(word) {
                return Ok(Some((kind, start.split_off(word.len()))));
            }
        }
        if start.len() > 16 || stdout.read_buf(&mut start).await? == 0 {
            return Ok(None);
        }
    }
}

/// A relative path that does not climb. What links inside lead to is the agent's own view of things.
fn is_inside(path: &str) -> bool {
    use std::path::{Component, Path};
    let mut parts = Path::new(path).components();
    !path.is_empty()
        && !path.contains('\0')
        && parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}
