//! The LFS batch API and its basic transfer: over the store of a local repository, or, in `lfs_remote`, through the
//! server of a remote one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{body::Body, extract::Request, response::Response};
use bulkhead_model::{PhaseName, RunId};
use http::{HeaderMap, Method, StatusCode, header};
use serde::{Deserialize, Serialize};
use tokio_util::io::ReaderStream;

use super::{Gateway, IsMain, Refused, Target, answer, authorise, body, lfs_remote};
use crate::{
    lfs::{Incoming, LfsOid, LfsStore},
    lfs_remote::Operation,
};

pub(super) const MEDIA: &str = "application/vnd.git-lfs+json";
const OBJECTS_AT_ONCE: usize = 1000;
/// Runs whose uploads are counted at one time.
const COUNTED_RUNS: usize = 10_000;

/// What each run's present attempt has uploaded.
#[derive(Default)]
pub(crate) struct Uploads(Mutex<HashMap<RunId, Uploaded>>);

struct Uploaded {
    phase: PhaseName,
    attempt: u32,
    bytes: u64,
}

impl Uploads {
    /// Counts bytes as they come. `false` where they are more than an attempt may send.
    fn count(&self, target: &Target, bytes: u64, limit: u64) -> bool {
        let grant = &target.access.grant;
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() >= COUNTED_RUNS && !runs.contains_key(&grant.run) {
            let some = runs.keys().next().copied();
            some.and_then(|run| runs.remove(&run));
        }
        let fresh = || Uploaded {
            phase: grant.phase.clone(),
            attempt: grant.attempt,
            bytes: 0,
        };
        let counted = runs.entry(grant.run).or_insert_with(fresh);
        if (&counted.phase, counted.attempt) != (&grant.phase, grant.attempt) {
            *counted = fresh();
        }
        counted.bytes = counted.bytes.saturating_add(bytes);
        counted.bytes <= limit
    }
}

#[derive(Deserialize)]
pub(super) struct BatchRequest {
    pub(super) operation: Operation,
    pub(super) objects: Vec<ObjectRequest>,
    #[serde(default)]
    hash_algo: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct ObjectRequest {
    pub(super) oid: String,
    pub(super) size: u64,
}

#[derive(Serialize)]
struct BatchAnswer {
    transfer: &'static str,
    objects: Vec<ObjectAnswer>,
    hash_algo: &'static str,
}

#[derive(Serialize)]
pub(super) struct ObjectAnswer {
    oid: String,
    size: u64,
    authenticated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    actions: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<serde_json::Value>,
}

impl ObjectAnswer {
    /// Nothing to do for this object.
    pub(super) fn new(asked: ObjectRequest) -> Self {
        Self {
            oid: asked.oid,
            size: asked.size,
            authenticated: true,
            actions: None,
            error: None,
        }
    }

    pub(super) fn action(mut self, name: &str, href: &str) -> Self {
        self.actions = Some(serde_json::json!({ name: { "href": href } }));
        self
    }

    pub(super) fn refused(mut self, code: u16, message: &str) -> Self {
        self.error = Some(serde_json::json!({ "code": code, "message": message }));
        self
    }
}

pub(crate) async fn serve(
    gateway: &Arc<Gateway>,
    target: Target,
    request: Request,
) -> Result<Response, Refused> {
    let missing = || Refused::new(StatusCode::NOT_FOUND, "the LFS server has nothing here");
    let path = request.uri().path().to_owned();
    let (_, rest) = path.split_once("/info/lfs/").ok_or_else(missing)?;
    let remote = target.repository.upstream().map(|upstream| upstream.lfs());
    if target.is_main == IsMain::No || matches!(remote, Some(None)) {
        let words = "LFS objects of this repository are not served";
        return Err(Refused::new(StatusCode::NOT_FOUND, words));
    }
    if (request.method(), rest) == (&Method::POST, "locks/verify") {
        return Ok(answer(StatusCode::OK, MEDIA, r#"{"ours":[],"theirs":[]}"#));
    }
    if let Some(Some(lfs)) = remote {
        return lfs_remote::serve(gateway, &target, &lfs, rest, request).await;
    }
    if (request.method(), rest) == (&Method::POST, "objects/batch") {
        return batch(gateway, &target, request).await;
    }
    let oid = rest.strip_prefix("objects/").and_then(LfsOid::parse);
    let oid = oid.ok_or_else(missing)?;
    match *request.method() {
        Method::GET => download(&target, &oid),
        Method::PUT => upload(gateway, &target, &oid, request).await,
        _ => Err(missing()),
    }
}

async fn batch(gateway: &Gateway, target: &Target, request: Request) -> Result<Response, Refused> {
    let (asked, base) = read_batch(gateway, target, request).await?;
    let store = LfsStore::of(target.repository.trusted());
    let limit = gateway.limits.lfs_object_bytes;
    let each = |object| one(&store, &base, asked.operation, object, limit);
    answer_batch(asked.objects.into_iter().map(each).collect())
}

/// A batch request, within bounds, and the gateway's address for hrefs.
pub(super) async fn read_batch(
    gateway: &Gateway,
    target: &Target,
    request: Request,
) -> Result<(BatchRequest, String), Refused> {
    let bad = |words: &str| Refused::new(StatusCode::UNPROCESSABLE_ENTITY, words);
    let base = base_url(request.headers(), target).ok_or_else(|| bad("the request has no host"))?;
    let body = body::whole(request, 4 << 20, gateway.limits.idle).await?;
    let asked: BatchRequest =
        serde_json::from_slice(&body).map_err(|_| bad("this is not a batch request"))?;
    let hash = asked.hash_algo.as_deref().unwrap_or("sha256");
    if hash != "sha256" || asked.objects.len() > OBJECTS_AT_ONCE {
        return Err(bad(
            "at most 1000 objects with sha256 names can be asked for at once",
        ));
    }
    Ok((asked, base))
}

pub(super) fn answer_batch(objects: Vec<ObjectAnswer>) -> Result<Response, Refused> {
    let batch = BatchAnswer {
        transfer: "basic",
        objects,
        hash_algo: "sha256",
    };
    let bad = |_| {
        let words = "the answer cannot be written";
        Refused::new(StatusCode::INTERNAL_SERVER_ERROR, words)
    };
    let json = serde_json::to_vec(&batch).map_err(bad)?;
    Ok(answer(StatusCode::OK, MEDIA, json))
}

fn one(
    store: &LfsStore,
    base: &str,
    operation: Operation,
    object: ObjectRequest,
    limit: u64,
) -> ObjectAnswer {
    let Some(oid) = LfsOid::parse(&object.oid) else {
        return ObjectAnswer::new(object).refused(422, "this is no object name");
    };
    let size = object.size;
    let answer = ObjectAnswer::new(object);
    let here = store.open(&oid).is_some_and(|(_, length)| length == size);
    let href = format!("{base}/info/lfs/objects/{}", oid.as_str());
    match operation {
        Operation::Download if here => answer.action("download", &href),
        Operation::Download => answer.refused(
            404,
            "the repository's LFS store does not have this object: run `git lfs fetch --all` in it",
        ),
        Operation::Upload if here => answer,
        Operation::Upload if size > limit => {
            answer.refused(413, "the object is larger than this gateway takes")
        }
        Operation::Upload => answer.action("upload", &href),
    }
}

/// The gateway's address as this client knows it; the client carries its token there by itself.
fn base_url(headers: &HeaderMap, target: &Target) -> Option<String> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    Some(format!("http://{host}/git/{}", target.base))
}

fn download(target: &Target, oid: &LfsOid) -> Result<Response, Refused> {
    let found = LfsStore::of(target.repository.trusted()).open(oid);
    let (file, length) =
        found.ok_or_else(|| Refused::new(StatusCode::NOT_FOUND, "no such LFS object"))?;
    let stream = ReaderStream::with_capacity(tokio::fs::File::from_std(file), 64 << 10);
    let mut response = answer(
        StatusCode::OK,
        "application/octet-stream",
        Body::from_stream(stream),
    );
    response
        .headers_mut()
        .insert(header::CONTENT_LENGTH, length.into());
    Ok(response)
}

async fn upload(
    gateway: &Gateway,
    target: &Target,
    oid: &LfsOid,
    request: Request,
) -> Result<Response, Refused> {
    let trusted = target.repository.trusted();
    if trusted.identity().is_some() {
        let words = "LFS uploads need Bulkhead to run as the repository's owner";
        return Err(Refused::new(StatusCode::FORBIDDEN, words));
    }
    let incoming = LfsStore::of(trusted).receive(oid).map_err(not_kept)?;
    let incoming = receive(gateway, target, incoming, request).await?;
    let kept = tokio::task::spawn_blocking(move || incoming.keep()).await;
    let kept = kept.map_err(|error| not_kept(std::io::Error::other(error)))?;
    match kept.map_err(not_kept)? {
        true => Ok(answer(StatusCode::OK, MEDIA, "{}")),
        false => Err(wrong_content()),
    }
}

pub(super) fn wrong_content() -> Refused {
    Refused::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "the content is not what its name says",
    )
}

pub(super) fn not_kept(error: std::io::Error) -> Refused {
    tracing::error!(
        error = &error as &dyn std::error::Error,
        "an LFS object could not be kept"
    );
    Refused::new(
        StatusCode::INSUFFICIENT_STORAGE,
        "the object could not be kept; the gateway's log says why",
    )
}

/// Takes in an object's bytes. The token is looked at once more when they are all there: what a phase began to send
/// it may not bring in after its end.
pub(super) async fn receive(
    gateway: &Gateway,
    target: &Target,
    mut incoming: Incoming,
    request: Request,
) -> Result<Incoming, Refused> {
    let limits = &gateway.limits;
    let (parts, body) = request.into_parts();
    let mut stream = body::Streamed::new(body, limits.lfs_object_bytes, limits.idle);
    while let Some(piece) = stream.next().await? {
        let bytes = piece.len() as u64;
        if !gateway
            .uploads
            .count(target, bytes, limits.lfs_attempt_bytes)
        {
            return Err(Refused::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "this phase has sent as much to LFS as one attempt may",
            ));
        }
        incoming = tokio::task::spawn_blocking(move || incoming.write(&piece).map(|()| incoming))
            .await
            .map_err(|error| not_kept(std::io::Error::other(error)))?
            .map_err(not_kept)?;
    }
    let access = authorise(gateway, &parts.headers).await?;
    if access.grant != target.access.grant {
        let words = "this token now stands for another phase";
        return Err(Refused::new(StatusCode::FORBIDDEN, words));
    }
    Ok(incoming)
}
