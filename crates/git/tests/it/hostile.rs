//! Clients that follow no protocol: what they may not learn, and whom they may not keep waiting.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bulkhead_git::{Access, GitProgram, Recovery, Repository, Served, Source, Upstream};
use tempfile::TempDir;

use crate::support::{BRANCH, TOKEN, World, branch, errors, git, grant, try_git};

const OTHER: &str = "phase-token-of-another-run";
const SOON: Duration = Duration::from_secs(30);

/// Sends the beginning of a POST and leaves the connection open.
fn begin(world: &World, service: &str, length: usize, body: &[u8]) -> TcpStream {
    let host = world.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let head = format!(
        "POST /git/repo.git/{service} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
         Authorization: Bearer {TOKEN}\r\nGit-Protocol: version=2\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    stream
}

fn packets(lines: &[&str]) -> Vec<u8> {
    let framed = lines.iter().map(|line| match *line {
        "" => "0001".to_owned(),
        line => format!("{:04x}{line}", line.len() + 4),
    });
    (framed.collect::<String>() + "0000").into_bytes()
}

/// Knowing the id of a hidden file or directory is not enough to read it: only commits can be wanted by id.
#[tokio::test(flavor = "multi_thread")]
async fn r6_hidden_files_directories_and_tags_cannot_be_wanted_by_id() {
    let world = World::new().await;
    let user = world.path("user");
    fs::write(user.join("README.md"), "a secret in a stash\n").unwrap();
    let blob = git(&user, &["hash-object", "README.md"]);
    git(&user, &["stash", "-q"]);
    let tree = git(&user, &["rev-parse", "refs/stash^{tree}"]);
    git(&user, &["tag", "-a", "-m", "hidden words", "gone", "main"]);
    let tag = git(&user, &["rev-parse", "gone"]);
    git(&user, &["update-ref", "refs/notes/kept", &tag]);
    git(&user, &["tag", "-d", "gone"]);
    for hidden in [blob, tree, tag] {
        let want = format!("want {hidden}\n");
        let body = packets(&["command=fetch", "object-format=sha1", "", &want, "done\n"]);
        let mut stream = begin(&world, "git-upload-pack", body.len(), &body);
        let answer = tokio::task::spawn_blocking(move || {
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            String::from_utf8_lossy(&answer).into_owned()
        });
        let answer = answer.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{hidden}: {answer}");
    }
}

/// A phase that stalls its pushes holds up no other run.
#[tokio::test(flavor = "multi_thread")]
async fn r6_stalled_pushes_of_one_run_do_not_hold_up_another() {
    let world = World::new().await;
    let repo = std::sync::Arc::new(Served::new(world.repository.clone()));
    let access = Access {
        grant: grant(7),
        repo,
    };
    world
        .books
        .access
        .lock()
        .unwrap()
        .insert(OTHER.to_owned(), access);
    let update = format!(
        "{} {} {BRANCH}\0 report-status",
        world.start,
        "1".repeat(40)
    );
    let head = [packets(&[&update]), b"PACK\0\0\0\x02".to_vec()].concat();
    let stalled: Vec<TcpStream> = (0..24)
        .map(|_| begin(&world, "git-receive-pack", 1 << 20, &head))
        .collect();
    // So that each of them has come as far as it gets.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let ws = world.path("ws");
    fs::create_dir_all(&ws).unwrap();
    let url = format!("{}/git/repo.git", world.url);
    let args = ["ls-remote", &url];
    let listing = world.sandbox_git_as(OTHER, &ws, &args);
    let listed = tokio::time::timeout(SOON, listing).await;
    let listed = listed.expect("another run's stalled pushes held this run up");
    assert!(listed.status.success(), "{}", errors(&listed));
    drop(stalled);
}

/// R14: recovery that runs beside the push itself waits for it, and does not call it off.
#[tokio::test(flavor = "multi_thread")]
async fn r14_recovery_beside_a_running_push_waits_for_its_end() {
    let world = World::new().await;
    *world.books.pause_after_record.lock().unwrap() = Duration::from_secs(2);
    let ws = world.workspace("ws").await;
    fs::write(ws.join("work"), "work\n").unwrap();
    let order = world.order();
    let recovering = async {
        let begun = Instant::now();
        let push = loop {
            if let Some(push) = world.books.recorded.lock().unwrap().first().cloned() {
                break push;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(120),
                "nothing was pushed"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        world.repository.recover(&push).await.unwrap()
    };
    let (finished, recovered) = tokio::join!(world.finish(&ws, &order), recovering);
    assert!(finished.status.success(), "{}", errors(&finished));
    assert_eq!(recovered, Recovery::Landed);
}

/// A program in git's place that does something before it becomes git.
fn wrapped(dir: &Path, before: &str) -> GitProgram {
    let path = dir.join("git-wrapped");
    fs::write(&path, format!("#!/bin/sh\n{before}\nexec git \"$@\"\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    GitProgram::at(path)
}

fn bare_upstream(dir: &Path) -> PathBuf {
    let work = dir.join("work");
    crate::support::user_repo(&work);
    let (work, up) = (work.to_str().unwrap().to_owned(), dir.join("up.git"));
    git(dir, &["clone", "-q", "--bare", &work, up.to_str().unwrap()]);
    up
}

/// An operator's proxy may ask for a password, which arguments would show to every user of the machine.
#[tokio::test(flavor = "multi_thread")]
async fn r6_the_password_of_an_operators_proxy_is_in_no_argument() {
    let dir = TempDir::new().unwrap();
    let log = dir.path().join("arguments");
    let program = wrapped(dir.path(), &format!("echo \"$@\" >>{}", log.display()));
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let proxy = format!("http://me:proxy-canary@{closed}").parse().unwrap();
    let upstream = Upstream::new("https://forge.invalid/x.git").unwrap();
    let upstream = upstream.with_proxy(Some(&proxy));
    assert!(!format!("{upstream:?}").contains("proxy-canary"));
    let source = Source::Remote(Box::new(upstream));
    let repository = Repository::open(&program, &source, &dir.path().join("g"))
        .await
        .unwrap();
    let error = repository.resolve("main").await.unwrap_err();
    // It was the proxy that was asked, and nobody repeats its password.
    let text = format!("{error} {error:?}");
    assert!(text.contains(&closed.port().to_string()), "{text}");
    assert!(!text.contains("proxy-canary"), "{text}");
    let arguments = fs::read_to_string(log).unwrap();
    assert!(arguments.contains("fetch"), "{arguments}");
    assert!(!arguments.contains("proxy-canary"), "{arguments}");
}

/// R14: a `git push` to an upstream that outlives its killed server keeps the mirror locked, so no recovery can
/// judge the branch before that push has ended.
#[tokio::test(flavor = "multi_thread")]
async fn r14_a_push_that_outlives_its_server_keeps_the_next_server_waiting() {
    let dir = TempDir::new().unwrap();
    let up = bare_upstream(dir.path());
    let begun = dir.path().join("begun");
    let ended = dir.path().join("ended");
    let forge = crate::remote::Forge::over(dir.path().to_owned()).await;
    // Stands for a push whose parent is gone: it leaves the group that is killed with its owner.
    let survivor = format!(
        "for a in \"$@\"; do if [ \"$a\" = push ]; then \
           exec 3<&0; setsid sh -c 'touch {0}; sleep 3; touch {1}' <&3 >/dev/null 2>&1 & exit 1; fi; done",
        begun.display(),
        ended.display()
    );
    let source = crate::remote::source(&forge.url, crate::remote::PASSWORD);
    let data = dir.path().join("g");
    let program = wrapped(dir.path(), &survivor);
    let repository = Repository::open(&program, &source, &data).await.unwrap();
    let start = repository.resolve("main").await.unwrap();
    repository
        .create_branch(&branch(), &start)
        .await
        .unwrap_err();
    drop(repository);
    let waited = Instant::now();
    while !begun.exists() {
        assert!(waited.elapsed() < SOON, "the push did not begin");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let repository = Repository::open(&GitProgram::default(), &source, &data)
        .await
        .unwrap();
    assert!(
        ended.exists(),
        "the mirror was opened while a push was under way"
    );
    drop(repository);
    assert!(
        try_git(&up, &["rev-parse", "--verify", BRANCH])
            .status
            .code()
            != Some(0)
    );
}

/// Lists of a push's objects are held in memory, so a pack that claims too many is turned away by its header.
#[tokio::test(flavor = "multi_thread")]
async fn r6_a_push_of_too_many_objects_is_refused_by_its_header() {
    let world = World::new().await;
    let update = format!(
        "{} {} {BRANCH}\0 report-status",
        world.start,
        "1".repeat(40)
    );
    let pack = [&b"PACK\0\0\0\x02"[..], &2_000_000_u32.to_be_bytes()].concat();
    let body = [packets(&[&update]), pack].concat();
    let mut stream = begin(&world, "git-receive-pack", body.len(), &body);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("1000000 objects at most"), "{answer}");
    assert!(world.books.recorded.lock().unwrap().is_empty());
}

/// A process that was killed leaves private directories for another user's commands; a start removes them, and only
/// them.
#[test]
fn private_directories_of_killed_processes_are_removed_at_a_start() {
    let mut dead = std::process::Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    let make = |pid: u32| {
        let dir = PathBuf::from(format!(
            "/tmp/bulkhead-objects-{pid}-{}",
            uuid::Uuid::now_v7()
        ));
        fs::create_dir_all(dir.join("objects")).unwrap();
        dir
    };
    let (left, live) = (make(dead.id()), make(std::process::id()));
    let data = TempDir::new().unwrap();
    Repository::clear_scratch(data.path()).unwrap();
    let (left, kept) = (left.exists(), live.exists());
    fs::remove_dir_all(live).unwrap();
    assert!(!left, "a dead process's directory is left");
    assert!(kept, "a live process's directory is gone");
}
