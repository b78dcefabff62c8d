//! Fetches: `git upload-pack` over what the request may see.

use std::{collections::HashSet, sync::Arc, time::Duration};

use axum::{body::Body, extract::Request, response::Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::io::ReaderStream;

use super::{Gateway, Refused, Target, answer, body, slots::Slot};
use crate::{
    command::{Git, Running},
    error::Error,
    names::Oid,
    pktline,
};

const ADVERTISEMENT: &str = "application/x-git-upload-pack-advertisement";
const RESULT: &str = "application/x-git-upload-pack-result";
/// A fetch that moved no byte for this long is given up.
const IDLE: Duration = Duration::from_secs(120);
const WANTS: usize = 1024;

pub(crate) async fn advertise(
    gateway: &Gateway,
    target: &Target,
    headers: &HeaderMap,
) -> Result<Response, Refused> {
    let _slot = gateway.slots.take(target.access.grant.run).await?;
    let git = upload_pack(target, headers)
        .await?
        .args(["--http-backend-info-refs"]);
    let refs = git
        .args([target.repository.trusted().git_dir()])
        .output()
        .await?;
    let mut out = Vec::new();
    pktline::push(&mut out, b"# service=git-upload-pack\n");
    pktline::flush(&mut out);
    out.extend(refs);
    Ok(answer(StatusCode::OK, ADVERTISEMENT, out))
}

pub(crate) async fn serve(
    gateway: &Arc<Gateway>,
    target: Target,
    request: Request,
) -> Result<Response, Refused> {
    let headers = request.headers().clone();
    let limits = &gateway.limits;
    let body = body::whole(request, limits.fetch_request_bytes, IDLE).await?;
    let head = pktline::fetch_head(&body)
        .map_err(|error| Refused::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    // Before the first git command: a sandbox could otherwise have any number of them at once.
    let slot = gateway.slots.take(target.access.grant.run).await?;
    check(&target, &head).await?;
    let git = upload_pack(&target, &headers)
        .await?
        .args([target.repository.trusted().git_dir()]);
    let running = git.spawn()?;
    let output = stream(running, body, slot);
    Ok(answer(StatusCode::OK, RESULT, output))
}

async fn upload_pack(target: &Target, headers: &HeaderMap) -> Result<Git, Refused> {
    let trusted = target.repository.trusted();
    let mut git = trusted.git();
    for rule in target.view.hide_refs() {
        git = git.config(&rule);
    }
    if let Some(rule) = target.view.hide_head(trusted).await? {
        git = git.config(rule);
    }
    for setting in [
        "uploadpack.allowTipSHA1InWant=false",
        "uploadpack.allowReachableSHA1InWant=false",
        "uploadpack.allowAnySHA1InWant=false",
        "uploadpack.allowFilter=false",
        "uploadpack.allowRefInWant=false",
        "uploadpack.advertiseBundleURIs=false",
        "transfer.advertiseObjectInfo=false",
        "uploadpack.keepAlive=5",
    ] {
        git = git.config(setting);
    }
    let asked = headers
        .get("git-protocol")
        .and_then(|value| value.to_str().ok());
    if asked.is_some_and(|value| value.split(':').any(|word| word == "version=2")) {
        git = git.env("GIT_PROTOCOL", "version=2");
    }
    Ok(git.args(["upload-pack", "--stateless-rpc", "--strict"]))
}

/// Protocol 2 lets a client want any object by id, so git's own settings do not suffice: each wanted id must be
/// the tip of a visible ref, or a commit that one leads to.
async fn check(target: &Target, head: &pktline::FetchHead) -> Result<(), Refused> {
    let refused = |words: &str| Err(Refused::new(StatusCode::FORBIDDEN, words));
    if !matches!(head.command.as_deref(), None | Some("fetch" | "ls-refs")) {
        return refused("this gateway serves ls-refs and fetch only");
    }
    if head.want_refs || head.filter {
        return refused(
            "partial clones and wants by name are not offered here: fetch the whole branch",
        );
    }
    if head.wants.len() > WANTS {
        return refused("too many wants in one request");
    }
    let tips = target.view.tips(target.repository.trusted()).await?;
    let others: Vec<&Oid> = head
        .wants
        .iter()
        .filter(|oid| !tips.contains(oid))
        .collect();
    if others.is_empty() || reachable(target, &others, &tips).await? {
        return Ok(());
    }
    let which = match others[..] {
        [one] => one.to_string(),
        _ => "one of the wanted ids".to_owned(),
    };
    refused(&format!(
        "{which} is not reachable from a branch or tag that this phase may see"
    ))
}

/// Whether all of these are commits that the tips lead to. Their kind is looked at first, because the walk passes
/// over files, directories and tags in silence.
async fn reachable(target: &Target, wants: &[&Oid], tips: &HashSet<Oid>) -> Result<bool, Error> {
    let git = || target.repository.trusted().git();
    let wanted = wants
        .iter()
        .fold(String::new(), |all, want| all + want.as_str() + "\n");
    let kinds = git().args(["cat-file", "--batch-check=%(objecttype)"]);
    let kinds = kinds.stdin(wanted.clone()).output().await?;
    let commits = kinds
        .split(|&byte| byte == b'\n')
        .filter(|kind| *kind == b"commit");
    if commits.count() != wants.len() {
        return Ok(false);
    }
    let input = tips
        .iter()
        .fold(wanted, |input, tip| input + &format!("^{tip}\n"));
    let walk = git().args(["rev-list", "--max-count=1", "--stdin"]);
    let ended = walk.stdin(input).run().await?;
    Ok(ended.code() == Some(0) && ended.stdout.is_empty())
}

/// Streams git's answer as it comes. Ending early (the client went away, or nothing moves) kills the command.
fn stream(mut running: Running, request: Bytes, slot: Slot) -> Body {
    let (reader, mut writer) = tokio::io::duplex(64 << 10);
    let copy = async move {
        let _slot = slot;
        let (Some(mut input), Some(mut output), Some(mut errors)) = (
            running.child.stdin.take(),
            running.child.stdout.take(),
            running.child.stderr.take(),
        ) else {
            return;
        };
        let feed = async {
            // A broken pipe is git's way to end early; its own answer says why.
            let _ = input.write_all(&request).await;
            drop(input);
        };
        let drain = async {
            let mut chunk = vec![0; 64 << 10];
            while let Ok(Ok(count @ 1..)) =
                tokio::time::timeout(IDLE, output.read(&mut chunk)).await
            {
                match tokio::time::timeout(IDLE, writer.write_all(&chunk[..count])).await {
                    Ok(Ok(())) => {}
                    _ => break,
                }
            }
        };
        // Standard error is drained so that git never waits for a reader of it.
        let mut nowhere = tokio::io::sink();
        let _ = tokio::join!(feed, drain, tokio::io::copy(&mut errors, &mut nowhere));
    };
    Body::from_stream(WithTask {
        task: Box::pin(copy),
        stream: ReaderStream::with_capacity(reader, 64 << 10),
        over: false,
    })
}

/// A stream together with the work that fills it: polled by whoever reads, dropped with it, so no task is left.
struct WithTask {
    task: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
    stream: ReaderStream<tokio::io::DuplexStream>,
    over: bool,
}

impl futures::Stream for WithTask {
    type Item = std::io::Result<Bytes>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        if !self.over && self.task.as_mut().poll(context).is_ready() {
            self.over = true;
            // The finished work's end of the pipe must go, or the reader would wait for more.
            self.task = Box::pin(std::future::ready(()));
        }
        std::pin::Pin::new(&mut self.stream).poll_next(context)
    }
}
