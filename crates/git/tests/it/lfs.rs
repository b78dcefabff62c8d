//! LFS of a remote repository through the gateway, against a server that asks for a credential and gives another one
//! for each transfer (case 38, R6).

use std::{
    collections::HashMap,
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::Mutex,
};

use axum::body::{Body, Bytes};
use bulkhead_egress::{AllowPrivate, DnsResolver, Egress, EgressConfig, Tls};
use bulkhead_git::{
    GatewayLimits, GitProgram, Lookup, Preflight, Refusal, Repository, Served, Source, Upstream,
    UpstreamCredential,
};
use http::{Response, request::Parts};
use secrecy::SecretString;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    extras::{has_lfs, lfs_repo},
    remote::{Forge, PASSWORD},
    support::{TOKEN, World, branch, errors, git, user_repo},
};

const TRANSFER: &str = "transfer-canary";

/// The objects of a small LFS server, and every transfer and verification it saw.
#[derive(Default)]
pub(crate) struct Objects {
    kept: Mutex<HashMap<String, Vec<u8>>>,
    seen: Mutex<Vec<String>>,
}

impl Objects {
    pub(crate) fn answer(&self, parts: &Parts, body: &Bytes) -> Option<Response<Body>> {
        let path = parts.uri.path();
        if path == "/up.git/info/lfs/objects/batch" {
            return Some(self.batch(parts, body));
        }
        let oid = path.strip_prefix("/store/")?;
        let mine = parts
            .headers
            .get("x-transfer")
            .map(|value| value.as_bytes());
        if mine != Some(TRANSFER.as_bytes()) {
            return Some(plain(403, Vec::new()));
        }
        self.seen
            .lock()
            .unwrap()
            .push(format!("{} {oid}", parts.method));
        let mut kept = self.kept.lock().unwrap();
        Some(match parts.method.as_str() {
            "GET" => plain(200, kept[oid].clone()),
            "PUT" => {
                assert!(parts.headers.contains_key("content-length"));
                kept.insert(oid.to_owned(), body.to_vec());
                plain(200, Vec::new())
            }
            _ => plain(200, Vec::new()),
        })
    }

    fn batch(&self, parts: &Parts, body: &Bytes) -> Response<Body> {
        use base64::Engine as _;
        let basic = base64::engine::general_purpose::STANDARD.encode(format!("bot:{PASSWORD}"));
        if parts.headers["authorization"] != format!("Basic {basic}").as_str() {
            return plain(401, Vec::new());
        }
        let host = parts.headers["host"].to_str().unwrap();
        let asked: Value = serde_json::from_slice(body).unwrap();
        let kept = self.kept.lock().unwrap();
        let objects = asked["objects"].as_array().unwrap().iter().map(|object| {
            let oid = object["oid"].as_str().unwrap();
            let place = json!({
                "href": format!("http://{host}/store/{oid}"), "header": { "X-Transfer": TRANSFER },
            });
            let mut offer = json!({ "oid": oid, "size": object["size"] });
            match (asked["operation"].as_str().unwrap(), kept.contains_key(oid)) {
                ("download", true) => offer["actions"] = json!({ "download": place }),
                ("download", false) => offer["error"] = json!({ "code": 404, "message": "no" }),
                (_, true) => {}
                (_, false) => offer["actions"] = json!({ "upload": place, "verify": place }),
            }
            offer
        });
        let answer = json!({ "transfer": "basic", "objects": objects.collect::<Vec<_>>() });
        plain(200, serde_json::to_vec(&answer).unwrap())
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

fn plain(status: u16, body: Vec<u8>) -> Response<Body> {
    let answer = Response::builder().status(status);
    answer.body(Body::from(body)).unwrap()
}

fn source(url: &str, private: &[&str]) -> Source {
    let config = EgressConfig {
        allow_private: AllowPrivate::hosts(private).unwrap(),
        ..EgressConfig::default()
    };
    let egress = Egress::new(config, DnsResolver::system());
    let credential = UpstreamCredential {
        username: "bot".to_owned(),
        password: SecretString::from(PASSWORD),
    };
    let upstream = Upstream::new(url).unwrap();
    let upstream = upstream.with_credential(Some(credential));
    Source::Remote(Box::new(upstream.with_lfs(egress, Tls::system().unwrap())))
}

/// A remote repository with one file in LFS, whose object its server has.
async fn remote(dir: &TempDir) -> Forge {
    assert!(has_lfs());
    let work = dir.path().join("work");
    user_repo(&work);
    lfs_repo(&work);
    let oid = git(&work, &["show", "main:big.bin"]);
    let oid = oid
        .lines()
        .find_map(|line| line.strip_prefix("oid sha256:"));
    let up = dir.path().join("up.git");
    let (from, to) = (work.to_str().unwrap(), up.to_str().unwrap());
    git(dir.path(), &["clone", "-q", "--bare", from, to]);
    let forge = Forge::over(dir.path().to_owned()).await;
    let content = fs::read(work.join("big.bin")).unwrap();
    forge
        .lfs
        .kept
        .lock()
        .unwrap()
        .insert(oid.unwrap().to_owned(), content);
    forge
}

async fn preflight(
    repository: &Repository,
    data: &std::path::Path,
) -> bulkhead_git::Result<Preflight> {
    let lookup = Lookup {
        program: &GitProgram::default(),
        git_data: data,
        listed: &[],
    };
    let start = repository.resolve("main").await.unwrap();
    repository.preflight(&start, lookup).await
}

async fn serving(dir: TempDir, forge: &Forge, limits: GatewayLimits) -> World {
    let (program, data) = (GitProgram::default(), dir.path().join("data/git"));
    let source = source(&forge.url, &["127.0.0.1"]);
    let repository = Repository::open(&program, &source, &data).await.unwrap();
    let start = repository.resolve("main").await.unwrap();
    repository.create_branch(&branch(), &start).await.unwrap();
    let served = Served::new(repository.clone());
    World::bounded(dir, repository, served, start, limits).await
}

/// The head of a request to the gateway; the body is the caller's.
fn ask(world: &World, request: &str, length: usize) -> TcpStream {
    let host = world.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let (method, path) = request.split_once(' ').unwrap();
    let head = format!(
        "{method} /git/repo.git/info/lfs/{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
         Authorization: Bearer {TOKEN}\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

async fn answered(mut stream: TcpStream) -> String {
    let read = move || {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    tokio::task::spawn_blocking(read).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn case_38_a_remote_repositorys_lfs_objects_are_fetched_and_new_ones_pushed() {
    let dir = TempDir::new().unwrap();
    let forge = remote(&dir).await;
    let world = serving(dir, &forge, GatewayLimits::default()).await;
    let data = world.path("data/git");
    let mut order = world.order();
    order.extras = preflight(&world.repository, &data).await.unwrap().extras;
    assert!(order.extras.lfs);
    let ws = world.path("ws");
    fs::create_dir_all(&ws).unwrap();
    let output = world.clone_into(&ws, &order).await;
    assert!(output.status.success(), "{}", errors(&output));
    let content = fs::read_to_string(ws.join("big.bin")).unwrap();
    assert_eq!(content, "the real content\n");
    fs::write(ws.join("new.bin"), "made by the agent\n").unwrap();
    let output = world.finish(&ws, &order).await;
    assert!(output.status.success(), "{}", errors(&output));
    let kept = forge.lfs.kept.lock().unwrap().clone();
    let new = kept
        .iter()
        .find(|(_, bytes)| *bytes == b"made by the agent\n");
    let (oid, _) = new.expect("the new object did not reach the server");
    let seen = forge.lfs.seen();
    assert!(
        seen.contains(&format!("POST {oid}")),
        "not verified: {seen:?}"
    );
    let left = fs::read_dir(data.join("tmp")).unwrap().count();
    assert_eq!(left, 0, "an unfinished object was left behind");
}

/// R6: hrefs name the gateway, and neither the credential nor what the server gave for transfers comes through.
#[tokio::test(flavor = "multi_thread")]
async fn r6_no_credential_or_place_of_a_remote_lfs_server_reaches_the_sandbox() {
    let dir = TempDir::new().unwrap();
    let forge = remote(&dir).await;
    let world = serving(dir, &forge, GatewayLimits::default()).await;
    let oid = forge
        .lfs
        .kept
        .lock()
        .unwrap()
        .keys()
        .next()
        .unwrap()
        .clone();
    for operation in ["download", "upload"] {
        let other = "ab".repeat(32);
        let objects = json!([{ "oid": oid, "size": 17 }, { "oid": other, "size": 5 }, { "oid": "../x", "size": 1 }]);
        let asked = json!({ "operation": operation, "objects": objects }).to_string();
        let mut stream = ask(&world, "POST objects/batch", asked.len());
        stream.write_all(asked.as_bytes()).unwrap();
        let answer = answered(stream).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains(&world.url), "{answer}");
        let place = forge.url.trim_end_matches("/up.git");
        for hidden in [PASSWORD, TRANSFER, place, "/store/"] {
            assert!(!answer.contains(hidden), "{hidden} is in {answer}");
        }
    }
    let answer = answered(ask(&world, &format!("GET objects/{oid}/17"), 0)).await;
    assert!(answer.ends_with("the real content\n"), "{answer}");
    assert!(!answer.to_lowercase().contains(TRANSFER), "{answer}");
    // A size that is not the object's ends in a broken answer, not in other bytes.
    let answer = answered(ask(&world, &format!("GET objects/{oid}/5"), 0)).await;
    assert!(!answer.contains("the real content"), "{answer}");
}

/// R6: what is not what its name says never reaches the remote server; nor does what a phase completes after its end,
/// or more than an attempt may send.
#[tokio::test(flavor = "multi_thread")]
async fn r6_wrong_late_and_boundless_uploads_stay_out_of_the_remote() {
    let dir = TempDir::new().unwrap();
    let forge = remote(&dir).await;
    let limits = GatewayLimits {
        lfs_attempt_bytes: 1000,
        ..GatewayLimits::default()
    };
    let world = serving(dir, &forge, limits).await;
    let name = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
    let put = format!("PUT objects/{name}/6");
    let mut stream = ask(&world, &put, 6);
    stream.write_all(b"hollo\n").unwrap();
    let answer = answered(stream).await;
    assert!(answer.starts_with("HTTP/1.1 422"), "{answer}");
    let mut stream = ask(&world, &put, 2000);
    stream.write_all(&[b'x'; 2000]).unwrap();
    let answer = answered(stream).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let access = world.books.access.lock().unwrap()[TOKEN].clone();
    let mut next = access.clone();
    next.grant.attempt += 1;
    world
        .books
        .access
        .lock()
        .unwrap()
        .insert(TOKEN.to_owned(), next);
    let mut stream = ask(&world, &put, 6);
    stream.write_all(b"hel").unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    world.books.access.lock().unwrap().clear();
    stream.write_all(b"lo\n").unwrap();
    let answer = answered(stream).await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert_eq!(forge.lfs.seen(), Vec::<String>::new());
    world
        .books
        .access
        .lock()
        .unwrap()
        .insert(TOKEN.to_owned(), access);
    assert!(!forge.lfs.kept.lock().unwrap().contains_key(name));
}

#[tokio::test(flavor = "multi_thread")]
async fn case_38_a_remote_lfs_object_that_cannot_be_had_is_refused_before_the_phase() {
    let dir = TempDir::new().unwrap();
    let forge = remote(&dir).await;
    let (program, data) = (GitProgram::default(), dir.path().join("g"));
    // A private place that the operator did not permit is not asked.
    let closed = source(&forge.url, &[]);
    let repository = Repository::open(&program, &closed, &data).await.unwrap();
    let error = preflight(&repository, &data).await.unwrap_err();
    assert!(
        matches!(error, bulkhead_git::Error::Lfs { .. }),
        "{error:?}"
    );
    assert!(!format!("{error:?}").contains(PASSWORD));
    drop(repository);
    forge.lfs.kept.lock().unwrap().clear();
    let open = source(&forge.url, &["127.0.0.1"]);
    let repository = Repository::open(&program, &open, &data).await.unwrap();
    let error = preflight(&repository, &data).await.unwrap_err();
    let refusal = error.refusal();
    assert!(
        matches!(refusal, Some(Refusal::LfsObjectMissing { path, .. }) if path == "big.bin"),
        "{error:?}"
    );
}
