//! LFS of a remote repository: each request is asked anew of its own server, with a credential that stays here.
//!
//! The sandbox sees hrefs of the gateway only. An upload is taken in whole and checked against its name before the
//! first byte of it goes on.

use std::{collections::HashMap, sync::Arc};

use axum::{body::Body, extract::Request, response::Response};
use http::{Method, StatusCode, header};

use super::{
    Gateway, Refused, Target, answer,
    lfs::{self, BatchRequest, MEDIA, ObjectAnswer, ObjectRequest},
};
use crate::{
    error::Error,
    lfs::{Incoming, LfsOid},
    lfs_remote::{Actions, Offer, Operation, RemoteLfs, Wanted},
};

pub(super) async fn serve(
    gateway: &Arc<Gateway>,
    target: &Target,
    remote: &RemoteLfs,
    rest: &str,
    request: Request,
) -> Result<Response, Refused> {
    let missing = || Refused::new(StatusCode::NOT_FOUND, "the LFS server has nothing here");
    if (request.method(), rest) == (&Method::POST, "objects/batch") {
        let (asked, base) = lfs::read_batch(gateway, target, request).await?;
        return batch(gateway, remote, asked, &base).await;
    }
    let object = rest.strip_prefix("objects/").and_then(parse);
    let object = object.ok_or_else(missing)?;
    match *request.method() {
        Method::GET => download(remote, &object).await,
        Method::PUT => upload(gateway, target, remote, object, request).await,
        _ => Err(missing()),
    }
}

/// `OID/SIZE`: the server is asked for both.
fn parse(text: &str) -> Option<Wanted> {
    let (oid, size) = text.split_once('/')?;
    Some(Wanted {
        oid: LfsOid::parse(oid)?,
        size: size.parse().ok()?,
    })
}

async fn batch(
    gateway: &Gateway,
    remote: &RemoteLfs,
    asked: BatchRequest,
    base: &str,
) -> Result<Response, Refused> {
    let limit = match asked.operation {
        Operation::Upload => gateway.limits.lfs_object_bytes,
        Operation::Download => u64::MAX,
    };
    let wanted = |object: &ObjectRequest| {
        let (oid, size) = (LfsOid::parse(&object.oid)?, object.size);
        (size <= limit).then_some(Wanted { oid, size })
    };
    let wanted: Vec<Wanted> = asked.objects.iter().filter_map(wanted).collect();
    let offers = match wanted[..] {
        [] => Vec::new(),
        _ => remote
            .batch(asked.operation, &wanted)
            .await
            .map_err(upstream_failed)?,
    };
    let offers: HashMap<String, Offer> = offers
        .into_iter()
        .map(|offer| (offer.oid.clone(), offer))
        .collect();
    let each = |object: ObjectRequest| {
        let size = object.size;
        let offer = offers.get(&object.oid);
        let href = format!("{base}/info/lfs/objects/{}/{size}", object.oid);
        let answer = ObjectAnswer::new(object);
        match offer {
            _ if size > limit => {
                answer.refused(413, "the object is larger than this gateway takes")
            }
            None => answer.refused(422, "this is no object name"),
            Some(offer) => offered(answer, offer, asked.operation, &href),
        }
    };
    lfs::answer_batch(asked.objects.into_iter().map(each).collect())
}

fn offered(answer: ObjectAnswer, offer: &Offer, operation: Operation, href: &str) -> ObjectAnswer {
    let none = Actions::default();
    let actions = offer.actions.as_ref().unwrap_or(&none);
    match (&offer.error, operation) {
        (Some(error), _) => {
            answer.refused(error.code, "the remote repository's LFS server refused it")
        }
        (None, Operation::Download) if actions.download.is_some() => {
            answer.action("download", href)
        }
        (None, Operation::Download) => answer.refused(
            404,
            "the remote repository's LFS server does not have this object",
        ),
        (None, Operation::Upload) if actions.upload.is_some() => answer.action("upload", href),
        // It has the object already.
        (None, Operation::Upload) => answer,
    }
}

/// What the server offers for one object, asked now: places that it gave earlier may have expired.
async fn actions(
    remote: &RemoteLfs,
    operation: Operation,
    object: &Wanted,
) -> Result<Actions, Refused> {
    let offers = remote.batch(operation, std::slice::from_ref(object)).await;
    let offers = offers.map_err(upstream_failed)?;
    let offer = offers
        .into_iter()
        .find(|offer| offer.oid == object.oid.as_str());
    match offer {
        Some(Offer {
            error: None,
            actions,
            ..
        }) => Ok(actions.unwrap_or_default()),
        _ => Err(Refused::new(StatusCode::NOT_FOUND, "no such LFS object")),
    }
}

async fn download(remote: &RemoteLfs, object: &Wanted) -> Result<Response, Refused> {
    let actions = actions(remote, Operation::Download, object).await?;
    let action = actions
        .download
        .ok_or_else(|| Refused::new(StatusCode::NOT_FOUND, "no such LFS object"))?;
    let bytes = remote.download(&action, object.size).await;
    let bytes = Body::from_stream(bytes.map_err(upstream_failed)?);
    let mut response = answer(StatusCode::OK, "application/octet-stream", bytes);
    let length = object.size.into();
    response
        .headers_mut()
        .insert(header::CONTENT_LENGTH, length);
    Ok(response)
}

async fn upload(
    gateway: &Gateway,
    target: &Target,
    remote: &RemoteLfs,
    object: Wanted,
    request: Request,
) -> Result<Response, Refused> {
    let scratch = target.repository.scratch();
    let incoming = Incoming::below(scratch, &object.oid).map_err(lfs::not_kept)?;
    let incoming = lfs::receive(gateway, target, incoming, request).await?;
    let file = incoming.checked().ok_or_else(lfs::wrong_content)?;
    let length = file.as_file().metadata().map_err(lfs::not_kept)?.len();
    if length != object.size {
        return Err(lfs::wrong_content());
    }
    let actions = actions(remote, Operation::Upload, &object).await?;
    let file = file.reopen().map_err(lfs::not_kept)?;
    remote
        .upload(&actions, &object, file)
        .await
        .map_err(upstream_failed)?;
    Ok(answer(StatusCode::OK, MEDIA, "{}"))
}

fn upstream_failed(error: Error) -> Refused {
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        "the LFS server of a remote repository failed"
    );
    Refused::new(
        StatusCode::BAD_GATEWAY,
        "the remote repository's LFS server failed; the control plane's log says how",
    )
}
