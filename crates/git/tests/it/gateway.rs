//! Clone and push through the gateway with the real git client, and everything it must refuse (R6, R14).

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Command, Output},
};

use bulkhead_git::{
    Error, GitProgram, LandRequest, LandStyle, Landed, Oid, Push, Recovery, RefName, Refusal,
    Repository, Served, Source, inside,
};

use crate::support::{
    BRANCH, TOKEN, World, branch, commit_all, errors, git, plain, try_git, user_repo,
};

/// A raw push of one packet line, for what a well-behaved client would not send.
fn raw_push(url: &str, token: &str, lines: &[String]) -> (String, String) {
    let mut body = Vec::new();
    for line in lines {
        body.extend(format!("{:04x}{line}", line.len() + 4).bytes());
    }
    body.extend(b"0000");
    body.extend(b"PACK\0\0\0\x02\0\0\0\0\x02\x9d\x08\x82\x3b\xd8\xa8\xea\xb5\x10\xad\x6a\xc7\x5c\x82\x3c\xfd\x3e\xd3\x1e");
    post(
        &format!("{url}/git/repo.git/git-receive-pack"),
        token,
        &body,
    )
}

fn post(url: &str, token: &str, body: &[u8]) -> (String, String) {
    post_with(url, token, body, "")
}

/// Sends one request by hand. Returns the status code, and the body with whatever frames its chunks.
fn post_with(url: &str, token: &str, body: &[u8], headers: &str) -> (String, String) {
    let (host, path) = url
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let head = format!(
        "POST /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let text = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
}

async fn push(world: &World, dir: &Path, specs: &[&str]) -> Output {
    let mut args = vec!["push", "--quiet", "origin"];
    args.extend(specs);
    world.sandbox_git(dir, &args).await
}

fn refused(output: &Output, words: &str) {
    assert!(!output.status.success(), "the push went through");
    assert!(errors(output).contains(words), "{}", errors(output));
}

#[tokio::test(flavor = "multi_thread")]
async fn r14_a_phase_clones_commits_and_pushes_and_the_push_is_recorded_then_done() {
    let world = World::new().await;
    let dir = world.workspace("ws").await;
    fs::write(dir.join("new.txt"), "work\n").unwrap();
    let output = world.finish(&dir, &world.order()).await;
    assert!(output.status.success(), "{}", errors(&output));
    let finish = inside::parse_finish(&output.stdout).unwrap();
    assert_eq!(finish.changed, inside::Changed::Pushed);
    assert_eq!(world.tip().await, finish.commit);
    let recorded = world.books.recorded.lock().unwrap().clone();
    assert_eq!(recorded.len(), 1);
    assert_eq!(
        (&recorded[0].old, &recorded[0].new),
        (&world.start, &finish.commit)
    );
    assert_eq!(*world.books.done.lock().unwrap(), recorded);
    git(&world.path("user"), &["fsck", "--strict"]);
    let status = git(&world.path("user"), &["status", "--porcelain"]);
    assert_eq!(status, "", "the user's checkout was touched");
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_a_wrong_or_missing_token_gets_nothing() {
    let world = World::new().await;
    let dir = world.workspace("ws").await;
    let output = world
        .sandbox_git_as("not-the-token", &dir, &["ls-remote", "origin"])
        .await;
    assert!(!output.status.success());
    let bare = try_git(&dir, &["ls-remote", "origin"]);
    assert!(!bare.status.success());
    let (code, body) = post(
        &format!("{}/git/repo.git/git-upload-pack", world.url),
        "",
        b"0000",
    );
    assert_eq!(code, "401");
    assert!(!body.contains(TOKEN));
    world.books.access.lock().unwrap().clear();
    let output = world.sandbox_git(&dir, &["ls-remote", "origin"]).await;
    assert!(!output.status.success(), "a withdrawn token still works");
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_only_the_grants_branch_can_be_pushed() {
    let world = World::new().await;
    let dir = world.workspace("ws").await;
    commit_all(&dir, "work");
    for target in [
        "refs/heads/main",
        "refs/heads/bulkhead/run-2",
        "refs/tags/v1",
        "refs/heads/bulkhead/run-1/x",
    ] {
        refused(
            &push(&world, &dir, &[&format!("HEAD:{target}")]).await,
            BRANCH,
        );
    }
    let two = push(
        &world,
        &dir,
        &[&format!("HEAD:{BRANCH}"), "HEAD:refs/heads/other"],
    )
    .await;
    refused(&two, "pushes one ref");
    assert_eq!(world.tip().await, world.start);
    assert!(
        world.books.recorded.lock().unwrap().is_empty(),
        "a refused push was recorded"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_deletions_rewrites_options_and_certificates_are_refused() {
    let world = World::new().await;
    let dir = world.workspace("ws").await;
    let zero = "0".repeat(40);
    let (code, body) = raw_push(
        &world.url,
        TOKEN,
        &[format!("{} {zero} {BRANCH}\0report-status\n", world.start)],
    );
    assert_eq!(code, "200");
    assert!(body.contains("cannot be deleted"), "{body}");
    let (_, body) = raw_push(
        &world.url,
        TOKEN,
        &[format!(
            "{} {} {BRANCH}\0report-status push-options\n",
            world.start, world.start
        )],
    );
    assert!(body.contains("push options"), "{body}");
    let (code, _) = raw_push(
        &world.url,
        TOKEN,
        &["push-cert\0report-status\n".to_owned()],
    );
    assert_eq!(code, "400");
    git(&dir, &["checkout", "-q", "--orphan", "fresh"]);
    commit_all(&dir, "rewritten");
    refused(
        &push(&world, &dir, &["--force", &format!("HEAD:{BRANCH}")]).await,
        "not a fast-forward",
    );
    assert_eq!(world.tip().await, world.start);
    assert!(world.books.recorded.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn r6_other_runs_branches_stashes_and_unreachable_commits_stay_hidden() {
    let world = World::new().await;
    let user = world.path("user");
    git(&user, &["checkout", "-q", "-b", "bulkhead/run-2"]);
    fs::write(user.join("secret.txt"), "other run\n").unwrap();
    let other = commit_all(&user, "other run's work");
    git(&user, &["checkout", "-q", "main"]);
    fs::write(user.join("README.md"), "stashed\n").unwrap();
    git(&user, &["stash", "-q"]);
    let stash: Oid = git(&user, &["rev-parse", "refs/stash"]).parse().unwrap();
    let dir = world.workspace("ws").await;
    let listed = world.sandbox_git(&dir, &["ls-remote", "origin"]).await;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains(BRANCH) && listed.contains("refs/heads/main"),
        "{listed}"
    );
    assert!(
        !listed.contains("run-2") && !listed.contains("stash"),
        "{listed}"
    );
    for version in ["0", "2"] {
        for hidden in [&other, &stash] {
            let version = format!("protocol.version={version}");
            let output = world
                .sandbox_git(&dir, &["-c", &version, "fetch", "origin", hidden.as_str()])
                .await;
            assert!(!output.status.success(), "{hidden} was fetched by its id");
        }
    }
    git(&user, &["checkout", "-q", "bulkhead/run-2"]);
    let listed = world.sandbox_git(&dir, &["ls-remote", "origin"]).await;
    assert!(
        !String::from_utf8_lossy(&listed.stdout).contains(other.as_str()),
        "HEAD tells where another run is"
    );
    let reachable = world
        .sandbox_git(&dir, &["fetch", "-q", "origin", world.start.as_str()])
        .await;
    assert!(reachable.status.success(), "{}", errors(&reachable));
}

/// A push whose tree only names an object of a stash must not make that object readable.
#[tokio::test(flavor = "multi_thread")]
async fn r6_a_push_cannot_reach_for_hidden_objects() {
    let world = World::new().await;
    let user = world.path("user");
    fs::write(user.join("README.md"), "a secret in a stash\n").unwrap();
    let blob = git(&user, &["hash-object", "-w", "README.md"]);
    git(&user, &["stash", "-q"]);
    let dir = world.workspace("ws").await;
    fs::create_dir_all(dir.join(".git/objects/info")).unwrap();
    fs::write(dir.join("README.md"), "a secret in a stash\n").unwrap();
    git(&dir, &["add", "-A"]);
    git(&dir, &["commit", "-q", "-m", "names it"]);
    // The client leaves the blob out of the pack, as if it knew that the server has it.
    let commit = git(&dir, &["rev-parse", "HEAD"]);
    let tree = git(&dir, &["rev-parse", "HEAD^{tree}"]);
    let mut child =
        plain(
            Command::new("git")
                .arg("-C")
                .arg(&dir)
                .args(["pack-objects", "--stdout", "-q"]),
        )
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(format!("{commit}\n{tree}\n").as_bytes())
        .unwrap();
    let pack = child.wait_with_output().unwrap().stdout;
    let line = format!("{} {commit} {BRANCH}\0report-status\n", world.start);
    let mut body = format!("{:04x}{line}0000", line.len() + 4).into_bytes();
    body.extend(pack);
    let (_, answer) = post(
        &format!("{}/git/repo.git/git-receive-pack", world.url),
        TOKEN,
        &body,
    );
    assert!(answer.contains(&blob) && answer.contains("ng "), "{answer}");
    assert_eq!(world.tip().await, world.start);
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_a_stale_fence_cannot_push() {
    let world = World::new().await;
    let dir = world.workspace("ws").await;
    commit_all(&dir, "work");
    *world.books.current_fence.lock().unwrap() = 8;
    refused(
        &push(&world, &dir, &[&format!("HEAD:{BRANCH}")]).await,
        "fence 8 is newer than 7",
    );
    assert_eq!(world.tip().await, world.start);
}

#[tokio::test(flavor = "multi_thread")]
async fn r14_one_push_completes_a_phase_and_only_its_repeat_is_welcome() {
    let world = World::new().await;
    let dir = world.workspace("ws").await;
    let first = commit_all(&dir, "work");
    let spec = format!("HEAD:{BRANCH}");
    assert!(push(&world, &dir, &[&spec]).await.status.success());
    assert!(
        push(&world, &dir, &[&spec]).await.status.success(),
        "the client's repeat was refused"
    );
    let again = raw_push(
        &world.url,
        TOKEN,
        &[format!("{} {first} {BRANCH}\0report-status\n", world.start)],
    )
    .1;
    assert!(again.contains(&format!("ok {BRANCH}")), "{again}");
    commit_all(&dir, "more");
    refused(&push(&world, &dir, &[&spec]).await, "already complete");
    assert_eq!(world.tip().await, first);
    assert_eq!(world.books.recorded.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn r14_recovery_tells_landed_not_landed_and_foreign_apart() {
    let world = World::new().await;
    let user = world.path("user");
    let dir = world.workspace("ws").await;
    let new = commit_all(&dir, "work");
    // As a killed server leaves it (`killed` kills one).
    let recorded = Push {
        grant: crate::support::grant(7),
        old: world.start.clone(),
        new: new.clone(),
    };
    assert_eq!(
        world.repository.recover(&recorded).await.unwrap(),
        Recovery::NotLanded
    );
    git(&user, &["fetch", "-q", dir.to_str().unwrap(), "HEAD"]);
    git(&user, &["update-ref", BRANCH, new.as_str()]);
    assert_eq!(
        world.repository.recover(&recorded).await.unwrap(),
        Recovery::Landed
    );
    let other = commit_all(&user, "somebody else");
    git(&user, &["update-ref", BRANCH, other.as_str()]);
    assert_eq!(
        world.repository.recover(&recorded).await.unwrap(),
        Recovery::Foreign { at: Some(other) }
    );
    git(&user, &["update-ref", "-d", BRANCH]);
    assert_eq!(
        world.repository.recover(&recorded).await.unwrap(),
        Recovery::Foreign { at: None }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r16_trees_with_a_git_directory_in_them_are_refused() {
    let world = World::new().await;
    let dir = world.workspace("ws").await;
    let blob = git(&dir, &["hash-object", "-w", "README.md"]);
    for name in [".git", ".GIT", "git~1"] {
        let mut child = plain(Command::new("git").arg("-C").arg(&dir).args(["mktree"]))
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let line = format!("100644 blob {blob}\t{name}\n");
        child
            .stdin
            .take()
            .unwrap()
            .write_all(line.as_bytes())
            .unwrap();
        let tree = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        let commit = git(
            &dir,
            &["commit-tree", tree.trim(), "-p", "HEAD", "-m", "trick"],
        );
        refused(
            &push(&world, &dir, &[&format!("{commit}:{BRANCH}")]).await,
            "refused",
        );
    }
    assert_eq!(world.tip().await, world.start);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_megabytes_are_pushed_and_cloned_with_bounded_memory() {
    let world = World::new().await;
    let dir = world.workspace("ws").await;
    let noise = fs::File::open("/dev/urandom").unwrap();
    let mut file = fs::File::create(dir.join("big.bin")).unwrap();
    std::io::copy(&mut noise.take(100 << 20), &mut file).unwrap();
    let output = world.finish(&dir, &world.order()).await;
    assert!(output.status.success(), "{}", errors(&output));
    let again = world.path("again");
    fs::create_dir_all(&again).unwrap();
    let mut order = world.order();
    order.start = world.tip().await.to_string();
    let output = world.clone_into(&again, &order).await;
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(
        fs::metadata(again.join("big.bin")).unwrap().len(),
        100 << 20
    );
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(
        peak_kib < 96 << 10,
        "the gateway's process took {peak_kib} KiB"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn names_with_newlines_quotes_dashes_and_bytes_survive_the_whole_way() {
    use std::os::unix::ffi::OsStrExt as _;
    let world = World::new().await;
    let dir = world.workspace("ws").await;
    let names: [&[u8]; 6] = [
        b"new\nline",
        b"qu\"ote'",
        b"-rf",
        b"--help",
        b"\xff\xfe.bin",
        b"tab\tand\\back",
    ];
    for name in names {
        fs::write(dir.join(std::ffi::OsStr::from_bytes(name)), "x\n").unwrap();
    }
    let output = world.finish(&dir, &world.order()).await;
    assert!(output.status.success(), "{}", errors(&output));
    let diff = world
        .repository
        .phase_diff(&world.start, &world.tip().await, 1 << 20)
        .await
        .unwrap();
    let mut paths: Vec<&[u8]> = diff.files.iter().map(|file| &file.path[..]).collect();
    paths.sort_unstable();
    let mut expected = names.to_vec();
    expected.sort_unstable();
    assert_eq!(paths, expected);
    assert!(
        diff.files.iter().all(|file| file.added == Some(1)),
        "{:?}",
        diff.files
    );
    assert!(
        diff.files
            .iter()
            .all(|file| !file.shown().contains(['\n', '\t']))
    );
    for name in names {
        let (patch, _) = world
            .repository
            .file_patch(&diff.from, &diff.to, name, 1 << 20)
            .await
            .unwrap();
        assert!(patch.ends_with(b"+x\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_requests_are_unpacked_within_bounds() {
    let world = World::new().await;
    let user = world.path("user");
    // Enough distinct refs that git compresses its request.
    for index in 0..40 {
        git(
            &user,
            &[
                "commit",
                "-q",
                "--allow-empty",
                "-m",
                &format!("step {index}"),
            ],
        );
        git(&user, &["branch", &format!("b{index}")]);
    }
    let trace = world.path("trace");
    let mut command = Command::new("env");
    command
        .arg(format!("GIT_TRACE_CURL={}", trace.display()))
        .args(["git", "clone", "-q"]);
    command
        .arg(format!("{}/git/repo.git", world.url))
        .arg(world.path("clone"));
    let output = world.in_sandbox(command, TOKEN, &world.order()).await;
    assert!(output.status.success(), "{}", errors(&output));
    assert!(
        fs::read_to_string(trace)
            .unwrap()
            .to_lowercase()
            .contains("content-encoding: gzip")
    );
    let bomb = plain(Command::new("sh").args(["-c", "head -c 64M /dev/zero | gzip"]))
        .output()
        .unwrap()
        .stdout;
    let url = format!("{}/git/repo.git/git-upload-pack", world.url);
    let (code, _) = post_with(&url, TOKEN, &bomb, "Content-Encoding: gzip\r\n");
    assert_eq!(code, "413");
}

#[tokio::test]
async fn the_run_branch_is_made_once_and_never_over_another_or_a_checkout() {
    let dir = tempfile::TempDir::new().unwrap();
    let user = dir.path().join("user");
    let start = user_repo(&user);
    let repository = Repository::open(
        &GitProgram::default(),
        &Source::Local(user.clone()),
        &dir.path().join("git"),
    )
    .await
    .unwrap();
    repository.create_branch(&branch(), &start).await.unwrap();
    repository.create_branch(&branch(), &start).await.unwrap();
    let next = commit_all(&user, "next");
    let error = repository
        .create_branch(&branch(), &next)
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::Refused(Refusal::RefMoved { .. })),
        "{error}"
    );
    let main = RefName::from_branch("main").unwrap();
    let error = repository.create_branch(&main, &next).await.unwrap_err();
    assert!(
        matches!(error, Error::Refused(Refusal::CheckedOut { .. })),
        "{error}"
    );
    let served = Served::new(repository);
    assert!(served.submodules.is_empty());
}

#[tokio::test]
async fn r1_the_workflow_is_read_from_the_commit_and_never_through_a_link() {
    let dir = tempfile::TempDir::new().unwrap();
    let user = dir.path().join("user");
    user_repo(&user);
    fs::create_dir_all(user.join(".bulkhead")).unwrap();
    fs::write(user.join(".bulkhead/workflow.yaml"), "name: a\n").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", user.join("link.yaml")).unwrap();
    let commit = commit_all(&user, "workflow");
    fs::write(
        user.join(".bulkhead/workflow.yaml"),
        "name: changed later\n",
    )
    .unwrap();
    let repository = Repository::open(
        &GitProgram::default(),
        &Source::Local(user),
        &dir.path().join("git"),
    )
    .await
    .unwrap();
    let read = |path: &'static str| repository.read_file(&commit, path, 1 << 20);
    assert_eq!(
        read(".bulkhead/workflow.yaml").await.unwrap().unwrap(),
        b"name: a\n"
    );
    assert_eq!(read("missing.yaml").await.unwrap(), None);
    assert_eq!(read(".bulkhead").await.unwrap(), None);
    assert!(read("link.yaml").await.is_err());
    let limited = repository
        .read_file(&commit, ".bulkhead/workflow.yaml", 3)
        .await
        .unwrap_err();
    assert!(matches!(limited, Error::TooLarge { .. }), "{limited}");
}

/// SHA-256 objects, and where git knows them, refs in tables: cloning, pushing and landing in the checkout work.
#[tokio::test(flavor = "multi_thread")]
async fn r15_other_object_and_ref_formats_work_from_clone_to_landing() {
    for format in ["--object-format=sha256", "--ref-format=reftable"] {
        let dir = tempfile::TempDir::new().unwrap();
        let user = dir.path().join("user");
        fs::create_dir_all(&user).unwrap();
        if !try_git(&user, &["init", "-q", "-b", "main", format])
            .status
            .success()
        {
            assert_eq!(
                format, "--ref-format=reftable",
                "only old versions of git lack a format, and only this one"
            );
            continue;
        }
        user_repo(&user);
        let world = World::over(dir, Source::Local).await;
        let ws = world.workspace("ws").await;
        fs::write(ws.join("work"), "work\n").unwrap();
        let output = world.finish(&ws, &world.order()).await;
        assert!(output.status.success(), "{format}: {}", errors(&output));
        let request = LandRequest {
            branch: branch(),
            expected: world.tip().await,
            into: RefName::from_branch("main").unwrap(),
            style: LandStyle::Merge,
            message: "Land".to_owned(),
            committer_name: "Ann".to_owned(),
            committer_email: "ann@example.org".to_owned(),
            now_s: 1_790_000_000,
        };
        let landed = world.repository.land(&request).await.unwrap();
        assert!(
            matches!(
                landed,
                Landed::Moved {
                    checkout_updated: true,
                    ..
                }
            ),
            "{format}: {landed:?}"
        );
        assert_eq!(
            fs::read_to_string(world.path("user/work")).unwrap(),
            "work\n"
        );
        assert_eq!(git(&world.path("user"), &["status", "--porcelain"]), "");
    }
}
