//! The LFS batch API and its basic transfer, over the store of a local repository.

use std::sync::Arc;

use axum::{body::Body, extract::Request, response::Response};
use http::{HeaderMap, Method, StatusCode, header};
use serde::{Deserialize, Serialize};
use tokio_util::io::ReaderStream;

use super::{Gateway, IsMain, Refused, Target, answer, body};
use crate::lfs::{LfsOid, LfsStore};

const MEDIA: &str = "application/vnd.git-lfs+json";
const OBJECTS_AT_ONCE: usize = 1000;

#[derive(Deserialize)]
struct BatchRequest {
    operation: Operation,
    objects: Vec<ObjectRequest>,
    #[serde(default)]
    hash_algo: Option<String>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Operation {
    Download,
    Upload,
}

#[derive(Deserialize)]
struct ObjectRequest {
    oid: String,
    size: u64,
}

#[derive(Serialize)]
struct BatchAnswer {
    transfer: &'static str,
    objects: Vec<ObjectAnswer>,
    hash_algo: &'static str,
}

#[derive(Serialize)]
struct ObjectAnswer {
    oid: String,
    size: u64,
    authenticated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    actions: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<serde_json::Value>,
}

pub(crate) async fn serve(
    gateway: &Arc<Gateway>,
    target: Target,
    request: Request,
) -> Result<Response, Refused> {
    let missing = || Refused::new(StatusCode::NOT_FOUND, "the LFS server has nothing here");
    if target.repository.is_remote() || target.is_main == IsMain::No {
        return Err(Refused::new(
            StatusCode::NOT_FOUND,
            "LFS is served for local repositories only",
        ));
    }
    let path = request.uri().path().to_owned();
    let rest = path
        .split_once("/info/lfs/")
        .map(|(_, rest)| rest.to_owned())
        .ok_or_else(missing)?;
    match (request.method(), rest.as_str()) {
        (&Method::POST, "objects/batch") => batch(gateway, &target, request).await,
        (&Method::POST, "locks/verify") => {
            Ok(answer(StatusCode::OK, MEDIA, r#"{"ours":[],"theirs":[]}"#))
        }
        (method, rest) => {
            let oid = rest
                .strip_prefix("objects/")
                .and_then(LfsOid::parse)
                .ok_or_else(missing)?;
            match *method {
                Method::GET => download(&target, &oid),
                Method::PUT => upload(gateway, &target, &oid, request).await,
                _ => Err(missing()),
            }
        }
    }
}

async fn batch(gateway: &Gateway, target: &Target, request: Request) -> Result<Response, Refused> {
    let bad = |words: &str| Refused::new(StatusCode::UNPROCESSABLE_ENTITY, words);
    let base = base_url(request.headers(), target).ok_or_else(|| bad("the request has no host"))?;
    let body = body::whole(request, 4 << 20).await?;
    let asked: BatchRequest =
        serde_json::from_slice(&body).map_err(|_| bad("this is not a batch request"))?;
    if asked
        .hash_algo
        .as_deref()
        .is_some_and(|name| name != "sha256")
        || asked.objects.len() > OBJECTS_AT_ONCE
    {
        return Err(bad(
            "at most 1000 objects with sha256 names can be asked for at once",
        ));
    }
    let store = LfsStore::of(target.repository.trusted());
    let objects = asked.objects.into_iter();
    let objects = objects.map(|object| {
        one(
            &store,
            &base,
            asked.operation,
            object,
            gateway.limits.lfs_object_bytes,
        )
    });
    let batch = BatchAnswer {
        transfer: "basic",
        objects: objects.collect(),
        hash_algo: "sha256",
    };
    let json = serde_json::to_vec(&batch).map_err(|_| bad("the answer cannot be written"))?;
    Ok(answer(StatusCode::OK, MEDIA, json))
}

fn one(
    store: &LfsStore,
    base: &str,
    operation: Operation,
    object: ObjectRequest,
    limit: u64,
) -> ObjectAnswer {
    let ObjectRequest { oid, size } = object;
    let error =
        |code: u16, message: &str| Some(serde_json::json!({ "code": code, "message": message }));
    let mut answer = ObjectAnswer {
        oid,
        size,
        authenticated: true,
        actions: None,
        error: None,
    };
    let Some(oid) = LfsOid::parse(&answer.oid) else {
        answer.error = error(422, "this is no object name");
        return answer;
    };
    let here = store.open(&oid).is_some_and(|(_, length)| length == size);
    let href = serde_json::json!({ "href": format!("{base}/info/lfs/objects/{}", oid.as_str()) });
    match operation {
        Operation::Download if here => {
            answer.actions = Some(serde_json::json!({ "download": href }))
        }
        Operation::Download => {
            answer.error = error(
                404,
                "the repository's LFS store does not have this object: run `git lfs fetch --all` in it",
            );
        }
        Operation::Upload if here => {}
        Operation::Upload if size > limit => {
            answer.error = error(413, "the object is larger than this gateway takes")
        }
        Operation::Upload => answer.actions = Some(serde_json::json!({ "upload": href })),
    }
    answer
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
    let failed = |error: std::io::Error| {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "an LFS object could not be kept"
        );
        Refused::new(
            StatusCode::INSUFFICIENT_STORAGE,
            "the object could not be kept; the gateway's log says why",
        )
    };
    let mut incoming = LfsStore::of(trusted).receive(oid).map_err(failed)?;
    let mut stream = body::Streamed::new(request.into_body(), gateway.limits.lfs_object_bytes);
    while let Some(piece) = stream.next().await? {
        incoming = tokio::task::spawn_blocking(move || incoming.write(&piece).map(|()| incoming))
            .await
            .map_err(|error| failed(std::io::Error::other(error)))?
            .map_err(failed)?;
    }
    let kept = tokio::task::spawn_blocking(move || incoming.keep())
        .await
        .map_err(|error| failed(std::io::Error::other(error)))?;
    match kept.map_err(failed)? {
        true => Ok(answer(StatusCode::OK, MEDIA, "{}")),
        false => Err(Refused::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "the content is not what its name says",
        )),
    }
}
