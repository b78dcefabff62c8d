//! The push that completes a phase. In order: parse, index the pack apart, check it, record it, change the
//! repository, note it as done, tell the sandbox.

use std::{collections::HashSet, fs::File, sync::Arc};

use axum::{extract::Request, response::Response};
use bytes::Bytes;
use http::{StatusCode, header};
use tokio::io::AsyncWriteExt as _;

use super::{Gateway, GatewayLimits, Refused, Target, answer, body::Streamed};
use crate::{
    error::{Error, Refusal, Result as GitResult},
    ledger::{Push, PushLedger},
    names::Oid,
    objects::Objects,
    pktline::{self, PushHead, RefUpdate},
    repository::Repository,
    trusted::PACK_TIME,
};

const ADVERTISEMENT: &str = "application/x-git-receive-pack-advertisement";
const RESULT: &str = "application/x-git-receive-pack-result";
/// Ref updates are few: one. More than this much before the pack is no push of ours.
const HEAD_BYTES: usize = 64 << 10;
/// Object lists of one push, as text.
const LIST_BYTES: u64 = 512 << 20;

/// Offers the grant's branch and nothing else. `no-thin` keeps each pack complete in itself, so that no delta can
/// be based on (and so reveal) an object that the sandbox may not read.
pub(crate) async fn advertise(gateway: &Gateway, target: &Target) -> Result<Response, Refused> {
    let _slot = gateway.slots.take(target.access.grant.run).await?;
    let (branch, trusted) = (&target.access.grant.branch, target.repository.trusted());
    let format = trusted.format().name();
    let capabilities = format!(
        "report-status side-band-64k ofs-delta no-thin quiet object-format={format} agent=bulkhead"
    );
    let mut out = Vec::new();
    pktline::push(&mut out, b"# service=git-receive-pack\n");
    pktline::flush(&mut out);
    let Some(tip) = trusted.tip(branch).await? else {
        return Err(Refused::new(
            StatusCode::NOT_FOUND,
            "the run's branch is gone",
        ));
    };
    pktline::push(
        &mut out,
        format!("{tip} {branch}\0{capabilities}\n").as_bytes(),
    );
    pktline::flush(&mut out);
    Ok(answer(StatusCode::OK, ADVERTISEMENT, out))
}

pub(crate) async fn receive(
    gateway: &Arc<Gateway>,
    target: Target,
    request: Request,
) -> Result<Response, Refused> {
    if request.headers().contains_key(header::CONTENT_ENCODING) {
        return Err(Refused::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "a push is not compressed again",
        ));
    }
    let limits = &gateway.limits;
    let mut stream = Streamed::new(request.into_body(), limits.push_bytes, limits.idle);
    let (head, rest) = read_head(&mut stream).await?;
    if head.updates.is_empty() {
        // Git asks so whether it is let in, before it sends a large pack.
        return Ok(answer(StatusCode::OK, RESULT, Vec::new()));
    }
    let outcome = match legal(&head, &target) {
        Err(words) => Err(words),
        Ok(update) => Box::pin(take(gateway, &target, update, rest, &mut stream)).await?,
    };
    if outcome.is_err() {
        // The client reads the reason only after it could send all of its pack.
        while stream.next().await?.is_some() {}
    }
    Ok(answer(
        StatusCode::OK,
        RESULT,
        report(&head, outcome.as_ref().err()),
    ))
}

async fn read_head(stream: &mut Streamed) -> Result<(PushHead, Bytes), Refused> {
    let bad = |words: &str| Refused::new(StatusCode::BAD_REQUEST, words);
    let mut buffer: Vec<u8> = Vec::new();
    loop {
        match pktline::push_head(&buffer).map_err(|error| bad(&error.to_string()))? {
            Some(head) => {
                let rest = buffer.split_off(head.length);
                return Ok((head, rest.into()));
            }
            None if buffer.len() > HEAD_BYTES => return Err(bad("too many ref updates")),
            None => {}
        }
        let piece = stream
            .next()
            .await?
            .ok_or_else(|| bad("the push broke off"))?;
        buffer.extend_from_slice(&piece);
    }
}

/// The one update that this grant allows, judged before anything is written.
fn legal(head: &PushHead, target: &Target) -> Result<RefUpdate, String> {
    let branch = &target.access.grant.branch;
    let [update] = &head.updates[..] else {
        return Err(format!(
            "a phase pushes one ref, {branch}, and this push has {}",
            head.updates.len()
        ));
    };
    if head
        .capabilities
        .iter()
        .any(|word| word.starts_with("push-options") || word.starts_with("push-cert"))
    {
        return Err("push options and signed pushes are not accepted".to_owned());
    }
    if update.name != *branch {
        return Err(format!("this phase may push {branch} only"));
    }
    if update.new.is_zero() {
        return Err("the run's branch cannot be deleted".to_owned());
    }
    if update.old.is_zero() {
        return Err("the run's branch exists already: fetch it first".to_owned());
    }
    Ok(update.clone())
}

/// From a legal update to its end. The inner error is told to the client as the ref's fate.
async fn take(
    gateway: &Arc<Gateway>,
    target: &Target,
    update: RefUpdate,
    rest: Bytes,
    stream: &mut Streamed,
) -> Result<Result<(), String>, Refused> {
    let _slot = gateway.slots.take(target.access.grant.run).await?;
    let objects = target.repository.objects()?;
    let count = match index(&objects, &gateway.limits, rest, stream).await? {
        Ok(count) => count,
        Err(words) => return Ok(Err(words)),
    };
    if let Err(words) = check(target, &objects, &update, count).await? {
        return Ok(Err(words));
    }
    let push = Push {
        grant: target.access.grant.clone(),
        old: update.old,
        new: update.new,
    };
    let (ledger, repository) = (Arc::clone(&gateway.ledger), target.repository.clone());
    let work = gateway
        .tasks
        .spawn(async move { settle(&*ledger, &repository, &push, objects, count).await });
    work.await.map_err(|_| {
        Refused::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the push was not completed",
        )
    })
}

/// Streams the pack into a private directory, where git checks every object in it (no `.git` in trees, no
/// dangerous `.gitmodules`, no broken links). Returns how many objects it holds.
async fn index(
    objects: &Objects,
    limits: &GatewayLimits,
    rest: Bytes,
    stream: &mut Streamed,
) -> Result<Result<u32, String>, Refused> {
    let max = format!("--max-input-size={}", limits.push_bytes);
    let git = objects
        .git()
        .args(["index-pack", "--stdin", "--strict", "--threads=2", &max]);
    let mut running = git.spawn()?;
    let Some(mut input) = running.child.stdin.take() else {
        return Err(Refused::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "git has no input",
        ));
    };
    let (mut header, mut piece) = (Vec::with_capacity(12), Some(rest));
    while let Some(bytes) = piece {
        header.extend(bytes.iter().take(12 - header.len()));
        // Lists of a push's objects are held in memory.
        if count(&header).is_some_and(|count| count > limits.push_objects) {
            let most = limits.push_objects;
            return Ok(Err(format!("a push may hold {most} objects at most")));
        }
        if input.write_all(&bytes).await.is_err() {
            break;
        }
        piece = stream.next().await?;
    }
    drop(input);
    match running.finish(PACK_TIME).await {
        Ok(_) => Ok(Ok(count(&header).unwrap_or(0))),
        Err(Error::Failed { stderr, .. }) => {
            let why = stderr
                .lines()
                .next_back()
                .unwrap_or("the pack is damaged")
                .trim_start_matches("fatal: ");
            Ok(Err(format!("the pushed objects were refused: {why}")))
        }
        Err(error) => Err(error.into()),
    }
}

/// How many objects a pack says it holds, as soon as its header is there.
fn count(header: &[u8]) -> Option<u32> {
    let bytes = header.get(8..12)?.try_into().ok()?;
    Some(u32::from_be_bytes(bytes))
}

async fn check(
    target: &Target,
    objects: &Objects,
    update: &RefUpdate,
    count: u32,
) -> GitResult<Result<(), String>> {
    let trusted = target.repository.trusted();
    let tip = trusted.tip(&update.name).await?;
    let repeated = tip.as_ref() == Some(&update.new);
    if !repeated && tip.as_ref() != Some(&update.old) {
        return Ok(Err(
            "the run's branch moved meanwhile: fetch it first".to_owned()
        ));
    }
    if !objects.has_commit(&update.new).await? {
        return Ok(Err("the pushed id is not a commit".to_owned()));
    }
    if !objects.is_ancestor(&update.old, &update.new).await? {
        return Ok(Err(
            "not a fast-forward: a phase adds commits and never rewrites them".to_owned(),
        ));
    }
    let tips = target.view.tips(trusted).await?;
    if count > 0 || !tips.contains(&update.new) {
        return connected(objects, &update.new, &tips).await;
    }
    Ok(Ok(()))
}

/// Whatever the new commit leads to must have come in its pack or be reachable from refs that the sandbox may see.
/// Else a push that only names a hidden object (of a stash, say) would make it readable.
async fn connected(
    objects: &Objects,
    new: &Oid,
    tips: &HashSet<Oid>,
) -> GitResult<Result<(), String>> {
    let without = tips.iter().fold(format!("{new}\n"), |input, tip| {
        input + &format!("^{tip}\n")
    });
    let named = list(objects, without).await?;
    let sent = sent(objects).await?;
    let mut foreign = named.difference(&sent).peekable();
    if foreign.peek().is_none() {
        return Ok(Ok(()));
    }
    let seen = list(
        objects,
        tips.iter()
            .fold(String::new(), |input, tip| input + &format!("{tip}\n")),
    )
    .await?;
    match foreign.find(|oid| !seen.contains(*oid)) {
        Some(oid) => Ok(Err(format!(
            "object {oid} was neither sent nor may this phase read it"
        ))),
        None => Ok(Ok(())),
    }
}

async fn list(objects: &Objects, input: String) -> GitResult<HashSet<String>> {
    let git = objects
        .git()
        .args(["rev-list", "--objects", "--no-object-names", "--stdin"]);
    let out = git
        .stdin(input)
        .output_bytes(LIST_BYTES)
        .time(PACK_TIME)
        .output()
        .await?;
    Ok(String::from_utf8_lossy(&out)
        .lines()
        .map(str::to_owned)
        .collect())
}

async fn sent(objects: &Objects) -> GitResult<HashSet<String>> {
    let Some(pack) = objects.pack()? else {
        return Ok(HashSet::new());
    };
    let index =
        File::open(pack.with_extension("idx")).map_err(Error::io("open the pack's index"))?;
    let format = format!("--object-format={}", objects.format().name());
    let out = objects
        .git()
        .args(["show-index", &format])
        .input(index)
        .output_bytes(LIST_BYTES)
        .output()
        .await?;
    let text = String::from_utf8_lossy(&out);
    Ok(text
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .map(str::to_owned)
        .collect())
}

/// Record, change, done: the part that goes on even when the client goes away. What is recorded and not done is
/// settled by [`Repository::recover`].
async fn settle(
    ledger: &dyn PushLedger,
    repository: &Repository,
    push: &Push,
    objects: Objects,
    count: u32,
) -> Result<(), String> {
    let _changing = repository.publish_lock().await;
    ledger
        .record(push)
        .await
        .map_err(|error| error.to_string())?;
    let published = publish(repository, push, &objects, count).await;
    published.map_err(|error| told(&error))?;
    ledger.done(push).await.map_err(|error| error.to_string())
}

async fn publish(
    repository: &Repository,
    push: &Push,
    objects: &Objects,
    count: u32,
) -> GitResult<()> {
    let branch = &push.grant.branch;
    if repository.trusted().tip(branch).await?.as_ref() == Some(&push.new) {
        return Ok(());
    }
    let pack = match objects.pack()? {
        Some(path) if count > 0 => Some((
            File::open(path).map_err(Error::io("open the pushed pack"))?,
            count,
        )),
        _ => None,
    };
    repository.publish(branch, &push.old, &push.new, pack).await
}

fn told(error: &Error) -> String {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "a recorded push was not completed"
    );
    match error.refusal() {
        Some(refusal @ Refusal::RefMoved { .. }) => refusal.to_string(),
        _ => "the push was recorded, but the repository could not be changed; the control plane's log says why".to_owned(),
    }
}

/// The report that git shows: per ref `ok`, or `ng` with the reason.
fn report(head: &PushHead, refused: Option<&String>) -> Vec<u8> {
    let mut report = Vec::new();
    pktline::push(&mut report, b"unpack ok\n");
    for update in head.updates.iter().take(64) {
        let line = match refused {
            None => format!("ok {}\n", update.name),
            Some(words) => format!("ng {} {}\n", update.name, words.replace('\n', " ")),
        };
        pktline::push(&mut report, line.as_bytes());
    }
    pktline::flush(&mut report);
    if !head.capabilities.iter().any(|word| word == "side-band-64k") {
        return report;
    }
    let mut out = Vec::new();
    for piece in report.chunks(32 << 10) {
        pktline::push(&mut out, &[&[1], piece].concat());
    }
    pktline::flush(&mut out);
    out
}
