//! A repository elsewhere: mirrored, pushed through with a lease, its credential in one process only (D6, R14).

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};

use axum::{body::Bytes, extract::Request, response::Response};
use bulkhead_git::{
    GitProgram, LandRequest, LandStyle, Landed, Recovery, RefName, Refusal, Repository, Source,
    Upstream, UpstreamCredential,
};
use secrecy::SecretString;
use tempfile::TempDir;

use crate::support::{BRANCH, World, branch, commit_all, errors, git, plain, user_repo};

pub(crate) const PASSWORD: &str = "upstream-secret-canary";

/// A forge: git's own CGI program behind HTTP basic authentication. Looks for the password in arguments as it serves.
pub(crate) struct Forge {
    pub(crate) url: String,
    seen_in_arguments: Arc<Mutex<bool>>,
    pub(crate) lfs: Arc<crate::lfs::Objects>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Forge {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Forge {
    pub(crate) async fn over(root: PathBuf) -> Self {
        let seen_in_arguments = Arc::new(Mutex::new(false));
        let seen = Arc::clone(&seen_in_arguments);
        let lfs = Arc::new(crate::lfs::Objects::default());
        let objects = Arc::clone(&lfs);
        let app = axum::Router::new().fallback(move |request: Request| {
            let (root, seen) = (root.clone(), Arc::clone(&seen));
            let objects = Arc::clone(&objects);
            async move {
                let (parts, body) = request.into_parts();
                let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
                if let Some(answer) = objects.answer(&parts, &body) {
                    return answer;
                }
                let work = move || answer(&root, &parts, &body, &seen);
                tokio::task::spawn_blocking(work).await.unwrap()
            }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/up.git", listener.local_addr().unwrap());
        #[expect(
            clippy::disallowed_methods,
            reason = "the test owns the server through its handle"
        )]
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            url,
            seen_in_arguments,
            lfs,
            server,
        }
    }
}

fn answer(
    root: &std::path::Path,
    parts: &http::request::Parts,
    body: &Bytes,
    seen: &Mutex<bool>,
) -> Response {
    use base64::Engine as _;
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("bot:{PASSWORD}"));
    let given = parts
        .headers
        .get("authorization")
        .map(|value| value.to_str().unwrap().to_owned());
    if given != Some(format!("Basic {basic}")) {
        let refused = http::Response::builder()
            .status(401)
            .header("www-authenticate", "Basic realm=\"x\"");
        return refused.body(axum::body::Body::empty()).unwrap();
    }
    let found = Command::new("sh")
        .args(["-c", "cat /proc/[0-9]*/cmdline 2>/dev/null"])
        .output()
        .unwrap();
    if String::from_utf8_lossy(&found.stdout).contains(PASSWORD) {
        *seen.lock().unwrap() = true;
    }
    let header = |name: &str| {
        parts
            .headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
            .to_owned()
    };
    let mut child = plain(Command::new("git").arg("http-backend"))
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REMOTE_USER", "bot")
        .env("PATH_INFO", parts.uri.path())
        .env("QUERY_STRING", parts.uri.query().unwrap_or(""))
        .env("REQUEST_METHOD", parts.method.as_str())
        .env("CONTENT_TYPE", header("content-type"))
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let body = body.clone();
    let feed = std::thread::spawn(move || input.write_all(&body));
    let output = child.wait_with_output().unwrap().stdout;
    let _ = feed.join().unwrap();
    let split = output
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap();
    let mut response = http::Response::builder();
    for line in String::from_utf8_lossy(&output[..split]).lines() {
        let (name, value) = line.split_once(": ").unwrap();
        response = match name {
            "Status" => response.status(value.split(' ').next().unwrap().parse::<u16>().unwrap()),
            _ => response.header(name, value),
        };
    }
    response
        .body(axum::body::Body::from(output[split + 4..].to_vec()))
        .unwrap()
}

pub(crate) fn upstream_repo(dir: &TempDir) {
    let work = dir.path().join("work");
    user_repo(&work);
    let (work, up) = (work.to_str().unwrap().to_owned(), dir.path().join("up.git"));
    git(
        dir.path(),
        &["clone", "-q", "--bare", &work, up.to_str().unwrap()],
    );
}

pub(crate) fn source(url: &str, password: &str) -> Source {
    let credential = UpstreamCredential {
        username: "bot".to_owned(),
        password: SecretString::from(password.to_owned()),
    };
    Source::Remote(Box::new(
        Upstream::new(url)
            .unwrap()
            .with_credential(Some(credential)),
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn r14_a_push_reaches_the_upstream_before_the_sandbox_hears_of_success() {
    let dir = TempDir::new().unwrap();
    upstream_repo(&dir);
    let forge = Forge::over(dir.path().to_owned()).await;
    let world = World::over(dir, |_| source(&forge.url, PASSWORD)).await;
    let up = world.path("up.git");
    assert_eq!(git(&up, &["rev-parse", BRANCH]), world.start.as_str());
    assert_eq!(world.repository.resolve("HEAD").await.unwrap(), world.start);
    let ws = world.workspace("ws").await;
    fs::write(ws.join("work"), "work").unwrap();
    let output = world.finish(&ws, &world.order()).await;
    assert!(output.status.success(), "{}", errors(&output));
    let tip = world.tip().await;
    assert_eq!(git(&up, &["rev-parse", BRANCH]), tip.as_str());
    let push = world.books.recorded.lock().unwrap()[0].clone();
    assert_eq!(
        world.repository.recover(&push).await.unwrap(),
        Recovery::Landed
    );
    let request = LandRequest {
        branch: branch(),
        expected: tip.clone(),
        into: RefName::from_branch("main").unwrap(),
        style: LandStyle::Merge,
        message: "Land".to_owned(),
        committer_name: "Ann".to_owned(),
        committer_email: "ann@example.org".to_owned(),
        now_s: 1_790_000_000,
    };
    let landed = world.repository.land(&request).await.unwrap();
    assert_eq!(
        landed,
        Landed::Moved {
            commit: tip.clone(),
            checkout_updated: false
        }
    );
    assert_eq!(git(&up, &["rev-parse", "main"]), tip.as_str());
    assert!(
        !*forge.seen_in_arguments.lock().unwrap(),
        "the credential was in a process's arguments"
    );
    let stored = plain(
        Command::new("grep")
            .args(["-rl", PASSWORD])
            .arg(world.path("data")),
    )
    .output()
    .unwrap();
    assert!(stored.stdout.is_empty(), "the credential was written down");
}

#[tokio::test(flavor = "multi_thread")]
async fn r14_an_upstream_that_moved_refuses_the_push_and_recovery_says_foreign() {
    let dir = TempDir::new().unwrap();
    upstream_repo(&dir);
    let forge = Forge::over(dir.path().to_owned()).await;
    let world = World::over(dir, |_| source(&forge.url, PASSWORD)).await;
    let ws = world.workspace("ws").await;
    let work = world.path("work");
    let other = commit_all(&work, "somebody else");
    git(
        &work,
        &[
            "push",
            "-q",
            world.path("up.git").to_str().unwrap(),
            &format!("HEAD:{BRANCH}"),
        ],
    );
    fs::write(ws.join("work"), "work").unwrap();
    let output = world.finish(&ws, &world.order()).await;
    assert_eq!(output.status.code(), Some(74), "{}", errors(&output));
    assert_eq!(
        git(&world.path("up.git"), &["rev-parse", BRANCH]),
        other.as_str()
    );
    let push = world.books.recorded.lock().unwrap()[0].clone();
    assert!(world.books.done.lock().unwrap().is_empty());
    assert_eq!(
        world.repository.recover(&push).await.unwrap(),
        Recovery::Foreign { at: Some(other) }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_credential_fails_soon_and_is_not_repeated_in_the_error() {
    let dir = TempDir::new().unwrap();
    upstream_repo(&dir);
    let forge = Forge::over(dir.path().to_owned()).await;
    let (program, source) = (GitProgram::default(), source(&forge.url, "wrong-password"));
    let repository = Repository::open(&program, &source, &dir.path().join("g"))
        .await
        .unwrap();
    let error = repository.resolve("main").await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("wrong-password"));
    let error = Upstream::new("ssh://git@example.org/x").unwrap_err();
    assert!(matches!(error.refusal(), Some(Refusal::Scheme { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn case_39_locks_of_a_killed_git_in_the_mirror_are_removed() {
    let dir = TempDir::new().unwrap();
    upstream_repo(&dir);
    let forge = Forge::over(dir.path().to_owned()).await;
    let data = dir.path().join("g");
    let (program, source) = (GitProgram::default(), source(&forge.url, PASSWORD));
    let repository = Repository::open(&program, &source, &data).await.unwrap();
    let commit = repository.resolve("main").await.unwrap();
    let mirror = repository.trusted().git_dir().to_owned();
    drop(repository);
    fs::write(mirror.join("packed-refs.lock"), "").unwrap();
    fs::create_dir_all(mirror.join("refs/heads/bulkhead")).unwrap();
    fs::write(mirror.join("refs/heads/bulkhead/run-1.lock"), "").unwrap();
    let repository = Repository::open(&program, &source, &data).await.unwrap();
    repository.create_branch(&branch(), &commit).await.unwrap();
    assert_eq!(
        repository.trusted().tip(&branch()).await.unwrap(),
        Some(commit)
    );
}
