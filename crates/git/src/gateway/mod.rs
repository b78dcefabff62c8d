//! The smart-HTTP gateway: the only way in which a sandbox reaches a repository (D6).
//!
//! ```text
//!  GET  /git/repo.git/info/refs?service=git-upload-pack     what there is to fetch
//!  POST /git/repo.git/git-upload-pack                       a fetch
//!  GET  /git/repo.git/info/refs?service=git-receive-pack    what there is to push to: one branch
//!  POST /git/repo.git/git-receive-pack                      the push that completes the phase
//!       /git/repo.git/info/lfs/…                            LFS objects
//!       /git/sub/N.git/…                                    a submodule, to fetch only
//! ```
//!
//! Every request carries the phase token, which is checked anew each time. A fetch is served by `git upload-pack`;
//! a push is never given to `git receive-pack`: the gateway parses its ref updates itself, indexes the pack in a
//! private directory, checks it there, and only then records it and touches the repository.

mod body;
mod fetch;
mod lfs;
mod lfs_remote;
mod push;
mod slots;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::Response,
};
use http::{HeaderMap, Method, StatusCode, header};
use secrecy::SecretString;
use tokio_util::task::TaskTracker;

use crate::{
    ledger::{Access, PhaseAuth, PushLedger},
    repository::Repository,
    serve::View,
};

/// Bounds of the gateway. The defaults are the documented ones.
#[derive(Debug, Clone, Copy)]
pub struct GatewayLimits {
    /// The largest pack that a push may send.
    pub push_bytes: u64,
    /// The largest body of a fetch request, unpacked.
    pub fetch_request_bytes: usize,
    /// The most objects that a push may hold.
    pub push_objects: u32,
    /// The largest LFS object that may be uploaded.
    pub lfs_object_bytes: u64,
    /// What one attempt at a phase may upload to LFS in all: it goes to a disk that is not the sandbox's.
    pub lfs_attempt_bytes: u64,
    /// Requests with git commands for sandboxes that are at work at once; others wait.
    pub at_once: usize,
    /// How many of them one run may have, so that none can make the others wait.
    pub at_once_per_run: usize,
    /// The longest that a client may leave a request's body standing still.
    pub idle: Duration,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            push_bytes: 2 << 30,
            fetch_request_bytes: 8 << 20,
            push_objects: 1_000_000,
            lfs_object_bytes: 2 << 30,
            lfs_attempt_bytes: 8 << 30,
            at_once: 16,
            at_once_per_run: 3,
            idle: Duration::from_secs(60),
        }
    }
}

/// The gateway's parts, shared by its requests.
pub(crate) struct Gateway {
    auth: Arc<dyn PhaseAuth>,
    ledger: Arc<dyn PushLedger>,
    limits: GatewayLimits,
    slots: slots::Slots,
    uploads: lfs::Uploads,
    /// Owns the part of a push that must not stop when its client goes away.
    tasks: TaskTracker,
}

/// The gateway as a router. Mount it at the root of the phase gateway: its paths begin with `/git/`.
///
/// What a push does after it was recorded runs in `tasks`: close and wait for the tracker to stop gracefully.
pub fn service(
    auth: Arc<dyn PhaseAuth>,
    ledger: Arc<dyn PushLedger>,
    limits: GatewayLimits,
    tasks: TaskTracker,
) -> Router {
    let slots = slots::Slots::new(limits.at_once, limits.at_once_per_run);
    let gateway = Gateway {
        auth,
        ledger,
        limits,
        slots,
        uploads: lfs::Uploads::default(),
        tasks,
    };
    Router::new()
        .route("/git/{*path}", axum::routing::any(handle))
        .with_state(Arc::new(gateway))
}

/// One authorised request's target.
pub(crate) struct Target {
    pub(crate) access: Access,
    pub(crate) repository: Repository,
    pub(crate) view: View,
    /// Below `/git/`, for URLs in answers: `repo.git` or `sub/N.git`.
    pub(crate) base: String,
    pub(crate) is_main: IsMain,
}

/// Whether a request is for the run's own repository, the only one that takes pushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IsMain {
    Yes,
    No,
}

/// An answer that ends a request early.
pub(crate) struct Refused(StatusCode, String);

impl Refused {
    pub(crate) fn new(status: StatusCode, words: impl Into<String>) -> Self {
        Self(status, words.into())
    }

    fn response(self) -> Response {
        let mut response = answer(self.0, "text/plain; charset=utf-8", self.1 + "\n");
        if self.0 == StatusCode::UNAUTHORIZED {
            let challenge = http::HeaderValue::from_static("Bearer realm=\"bulkhead\"");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

impl From<crate::error::Error> for Refused {
    /// A refusal by rule is told in words; what else went wrong on the host stays in the host's log.
    fn from(error: crate::error::Error) -> Self {
        if let Some(refusal) = error.refusal() {
            return Self::new(StatusCode::FORBIDDEN, refusal.to_string());
        }
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "a request of the git gateway failed"
        );
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the git gateway failed; its log says why",
        )
    }
}

pub(crate) fn answer(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Body>,
) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        http::HeaderValue::from_static(content_type),
    );
    headers.insert(
        header::CACHE_CONTROL,
        http::HeaderValue::from_static("no-store"),
    );
    response
}

async fn handle(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    match Box::pin(route(&gateway, request)).await {
        Ok(response) => response,
        Err(refused) => refused.response(),
    }
}

async fn route(gateway: &Arc<Gateway>, request: Request) -> Result<Response, Refused> {
    let access = authorise(gateway, request.headers()).await?;
    let path = request.uri().path().to_owned();
    let headers = request.headers().clone();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let (target, rest) = target(access, &path)?;
    match (request.method(), rest.as_str(), query.as_str()) {
        (&Method::GET, "info/refs", "service=git-upload-pack") => {
            fetch::advertise(gateway, &target, &headers).await
        }
        (&Method::POST, "git-upload-pack", "") => fetch::serve(gateway, target, request).await,
        (&Method::GET, "info/refs", "service=git-receive-pack") => {
            push::advertise(gateway, &main_only(target)?).await
        }
        (&Method::POST, "git-receive-pack", "") => {
            push::receive(gateway, main_only(target)?, request).await
        }
        (_, rest, "") if rest.starts_with("info/lfs/") => {
            lfs::serve(gateway, target, request).await
        }
        _ => Err(Refused::new(
            StatusCode::NOT_FOUND,
            "the git gateway has nothing here",
        )),
    }
}

fn main_only(target: Target) -> Result<Target, Refused> {
    match target.is_main {
        IsMain::Yes => Ok(target),
        IsMain::No => Err(Refused::new(
            StatusCode::FORBIDDEN,
            "submodules can be fetched, not pushed to",
        )),
    }
}

async fn authorise(gateway: &Gateway, headers: &HeaderMap) -> Result<Access, Refused> {
    let refused = || {
        Refused::new(
            StatusCode::UNAUTHORIZED,
            "this needs the token of a running phase",
        )
    };
    let value = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let token = value
        .and_then(|value| value.strip_prefix("Bearer "))
        .ok_or_else(refused)?;
    match gateway.auth.access(&SecretString::from(token)).await {
        Ok(Some(access)) => Ok(access),
        Ok(None) => Err(refused()),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a phase token could not be checked"
            );
            Err(Refused::new(
                StatusCode::SERVICE_UNAVAILABLE,
                error.to_string(),
            ))
        }
    }
}

fn target(access: Access, path: &str) -> Result<(Target, String), Refused> {
    let missing = || Refused::new(StatusCode::NOT_FOUND, "no such repository");
    let path = path.strip_prefix("/git/").ok_or_else(missing)?;
    if let Some(rest) = path.strip_prefix("repo.git/") {
        let view = View::of_run(&access.repo, &access.grant.branch);
        let repository = access.repo.repository.clone();
        let base = "repo.git".to_owned();
        return Ok((
            Target {
                access,
                repository,
                view,
                base,
                is_main: IsMain::Yes,
            },
            rest.to_owned(),
        ));
    }
    let (number, rest) = path
        .strip_prefix("sub/")
        .and_then(|path| path.split_once(".git/"))
        .ok_or_else(missing)?;
    let index: usize = number.parse().map_err(|_| missing())?;
    let submodule = access.repo.submodules.get(index).ok_or_else(missing)?;
    let (view, repository) = (View::of_submodule(submodule), submodule.repository.clone());
    let base = format!("sub/{index}.git");
    Ok((
        Target {
            access,
            repository,
            view,
            base,
            is_main: IsMain::No,
        },
        rest.to_owned(),
    ))
}
