//! One container, from the image to a holder in it, and away again.
//!
//! ```text
//! engine's architecture ─▶ image (pulled where that is allowed) ─▶ created ─▶ what was made is read back
//!        ─▶ helper put in ─▶ attached ─▶ started ─▶ the holder says that it is ready
//! ```
//! The container's name is known before it is asked for, so that whatever became of a request that failed in the middle
//! can be removed.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bollard::{
    Docker, body_full,
    container::{AttachContainerResults, LogOutput},
    models::ImageInspect,
    query_parameters::{
        AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, CreateImageOptionsBuilder,
        RemoveContainerOptionsBuilder, UploadToContainerOptionsBuilder,
    },
};
use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use tokio::time::{Instant, sleep};
use tokio_util::io::StreamReader;

use super::{
    archive::{self, DIR, Dir},
    check::differences,
    config::{DockerConfig, Pull, Root},
    error::{DockerError, is_conflict, is_missing},
    request::{Kind, create_body, lost_after},
};
use crate::holder::{Beat, Holder};

/// What a container that dies says may be this long.
const SAID_MAX: usize = 4096;
/// An engine that removes a container already may take this long for it.
const GONE_IN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Container {
    pub(super) holder: Holder,
    pub(super) facts: Facts,
}

/// What only the engine and the image know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    /// As whom processes run, as the description or the image says; empty is root.
    pub(super) user: String,
    pub(super) root_is: RootIs,
}

/// Whom the container's root is on the engine's machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RootIs {
    Root,
    /// The engine maps it to somebody without rights.
    Nobody,
}

/// Makes it. Whatever the outcome, the caller removes the container of that name in the end.
pub(super) async fn make(
    docker: &Docker,
    config: &DockerConfig,
    name: &str,
    host: String,
) -> Result<Container, DockerError> {
    let root_is = ask_engine(docker).await?;
    let image = find_image(docker, config).await?;
    check_architecture("the image", image.architecture.as_deref())?;
    let kind = kind(docker).await?;
    create(docker, config, kind, name).await?;
    let made = docker
        .inspect_container(name, None)
        .await
        .map_err(DockerError::engine("reading back the container"))?;
    let different = differences(config, &made);
    if !different.is_empty() {
        return Err(DockerError::NotAsAsked(different));
    }
    upload(docker, config, name).await?;
    let holder = start(docker, config, name, host).await?;
    let user = made.config.and_then(|config| config.user);
    let user = user.unwrap_or_default();
    Ok(Container {
        holder,
        facts: Facts { user, root_is },
    })
}

async fn ask_engine(docker: &Docker) -> Result<RootIs, DockerError> {
    let info = docker
        .info()
        .await
        .map_err(DockerError::engine("asking the engine what it is"))?;
    check_architecture("the engine's machine", info.architecture.as_deref())?;
    let options = info.security_options.unwrap_or_default();
    let mapped = options
        .iter()
        .any(|option| option.contains("rootless") || option.contains("userns"));
    Ok(if mapped { RootIs::Nobody } else { RootIs::Root })
}

async fn kind(docker: &Docker) -> Result<Kind, DockerError> {
    let version = docker
        .version()
        .await
        .map_err(DockerError::engine("asking the engine what it is"))?;
    let parts = version.components.unwrap_or_default();
    let is_podman = parts.iter().any(|part| part.name.contains("Podman"));
    Ok(if is_podman {
        Kind::Podman
    } else {
        Kind::Docker
    })
}

/// Go and the kernel have names of their own for the same architectures.
fn check_architecture(what: &'static str, has: Option<&str>) -> Result<(), DockerError> {
    let needs = std::env::consts::ARCH;
    let has = match has {
        None | Some("") => return Ok(()),
        Some("amd64") => "x86_64",
        Some("arm64") => "aarch64",
        Some(has) => has,
    };
    if has == needs {
        return Ok(());
    }
    Err(DockerError::Architecture {
        what,
        has: has.to_owned(),
        needs,
    })
}

async fn find_image(docker: &Docker, config: &DockerConfig) -> Result<ImageInspect, DockerError> {
    match docker.inspect_image(&config.image).await {
        Ok(image) => return Ok(image),
        Err(error) if !is_missing(&error) => {
            return Err(DockerError::engine("looking for the image")(error));
        }
        Err(_) => {}
    }
    let image = config.image.clone();
    match config.pull {
        Pull::Never => return Err(DockerError::NoImage { image }),
        Pull::IfMissing => pull(docker, &image).await?,
    }
    docker
        .inspect_image(&config.image)
        .await
        .map_err(DockerError::engine("looking for the image"))
}

async fn pull(docker: &Docker, image: &str) -> Result<(), DockerError> {
    let last = image.rsplit('/').next().unwrap_or_default();
    // Without a tag the engine would bring every tag that there is.
    let tag = if last.contains([':', '@']) {
        ""
    } else {
        "latest"
    };
    let options = CreateImageOptionsBuilder::default()
        .from_image(image)
        .tag(tag)
        .build();
    let steps = docker.create_image(Some(options), None, None);
    steps
        .try_for_each(|_| async { Ok(()) })
        .await
        .map_err(DockerError::engine("pulling the image"))
}

async fn create(
    docker: &Docker,
    config: &DockerConfig,
    kind: Kind,
    name: &str,
) -> Result<(), DockerError> {
    let options = CreateContainerOptionsBuilder::default().name(name).build();
    docker
        .create_container(Some(options), create_body(config, kind))
        .await
        .map(drop)
        .map_err(DockerError::engine("creating the container"))
}

async fn upload(docker: &Docker, config: &DockerConfig, name: &str) -> Result<(), DockerError> {
    let (path, dir) = match config.root {
        Root::Writable => ("/", Dir::Made),
        Root::ReadOnly => (DIR, Dir::Mounted),
    };
    let helper = bulkhead_sandbox::helper_program();
    let packed = archive::with_helper(helper, dir).map_err(DockerError::Pack)?;
    let options = UploadToContainerOptionsBuilder::default()
        .path(path)
        .build();
    docker
        .upload_to_container(name, Some(options), body_full(packed.into()))
        .await
        .map_err(DockerError::engine(
            "bringing the helper into the container",
        ))
}

async fn start(
    docker: &Docker,
    config: &DockerConfig,
    name: &str,
    host: String,
) -> Result<Holder, DockerError> {
    let options = AttachContainerOptionsBuilder::default()
        .stream(true)
        .stdin(true)
        .stdout(true)
        .stderr(true)
        .build();
    let AttachContainerResults { output, input } = docker
        .attach_container(name, Some(options))
        .await
        .map_err(DockerError::engine("attaching to the container"))?;
    docker
        .start_container(name, None)
        .await
        .map_err(DockerError::engine("starting the container"))?;
    let said = Arc::new(Mutex::new(String::new()));
    let from = StreamReader::new(Box::pin(only_output(output, Arc::clone(&said))));
    let holder = Holder::connect(host, from, input, Beat::for_loss_after(lost_after(config))).await;
    holder.map_err(|_| {
        let said = said.lock().unwrap_or_else(PoisonError::into_inner);
        DockerError::Died(said.clone())
    })
}

/// The holder's own stream; what it or the runtime says besides is kept for the error.
fn only_output(
    frames: impl Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send,
    said: Arc<Mutex<String>>,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    frames.filter_map(move |frame| {
        let bytes = match frame {
            Ok(LogOutput::StdOut { message }) => Some(Ok(message)),
            Ok(LogOutput::StdErr { message } | LogOutput::Console { message }) => {
                let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                if said.len() < SAID_MAX {
                    said.push_str(&String::from_utf8_lossy(&message));
                }
                None
            }
            Ok(LogOutput::StdIn { .. }) => None,
            Err(error) => Some(Err(io::Error::other(error))),
        };
        std::future::ready(bytes)
    })
}

/// Removes the container of that name with its volumes, whatever state it is in; one that is not there is fine.
pub(super) async fn remove(docker: &Docker, name: &str) -> Result<(), DockerError> {
    let options = RemoveContainerOptionsBuilder::default()
        .force(true)
        .v(true)
        .build();
    match docker.remove_container(name, Some(options)).await {
        Ok(()) => Ok(()),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) if is_conflict(&error) => await_removal(docker, name, error).await,
        Err(error) => Err(DockerError::engine("removing the container")(error)),
    }
}

/// Where the engine is removing it already, because it has ended.
async fn await_removal(
    docker: &Docker,
    name: &str,
    conflict: bollard::errors::Error,
) -> Result<(), DockerError> {
    let deadline = Instant::now() + GONE_IN;
    while Instant::now() < deadline {
        match docker.inspect_container(name, None).await {
            Err(error) if is_missing(&error) => return Ok(()),
            Err(error) => return Err(DockerError::engine("removing the container")(error)),
            Ok(_) => sleep(LOOK_EVERY).await,
        }
    }
    Err(DockerError::engine("removing the container")(conflict))
}
