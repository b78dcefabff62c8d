//! What runs in the sandbox: cloning that mends what a kill left, and finishing whatever the agent left behind.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use bulkhead_git::inside::{self, Changed, Finish};
use secrecy::{ExposeSecret as _, SecretString};

use crate::support::{BRANCH, TOKEN, World, commit_all, errors, git, plain};

async fn finished(world: &World, dir: &Path) -> Finish {
    let output = world.finish(dir, &world.order()).await;
    assert!(output.status.success(), "{}", errors(&output));
    inside::parse_finish(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_is_in_the_environment_only() {
    let world = World::new().await;
    let order = world.order();
    let mut steps = inside::clone_steps(&order, &world.url, "/workspace");
    steps.extend(inside::finish_steps(&order, &world.url, "/workspace"));
    assert!(!format!("{steps:?}").contains(TOKEN));
    let env = inside::environment(&order, &world.url, &SecretString::from(TOKEN));
    let holders: Vec<_> = env
        .iter()
        .filter(|(_, value)| value.expose_secret().contains(TOKEN))
        .collect();
    assert_eq!(holders.len(), 1);
    assert!(holders[0].0.starts_with("GIT_CONFIG_VALUE_"));
    let dir = world.workspace("ws").await;
    fs::write(dir.join("x"), "x").unwrap();
    finished(&world, &dir).await;
    let found = plain(
        Command::new("grep")
            .args(["-rl", TOKEN])
            .arg(&dir)
            .arg(world.path("user")),
    )
    .output()
    .unwrap();
    assert!(
        found.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&found.stdout)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn case_39_a_clone_that_was_killed_is_mended_and_checked() {
    let world = World::new().await;
    let user = world.path("user");
    for index in 0..400 {
        fs::write(user.join(format!("f{index}")), vec![b'x'; 20_000]).unwrap();
    }
    let start = commit_all(&user, "many files");
    git(&user, &["update-ref", BRANCH, start.as_str()]);
    let mut order = world.order();
    order.start = start.to_string();
    let dir = world.path("ws");
    fs::create_dir_all(&dir).unwrap();
    for delay_ms in [20, 60, 120] {
        let step = &inside::clone_steps(&order, &world.url, dir.to_str().unwrap())[0];
        let mut command = Command::new("timeout");
        command
            .args(["-s", "KILL", &format!("0.{delay_ms:03}")])
            .args(&step.argv)
            .current_dir(&dir);
        command.envs(step.env.iter().cloned());
        world.in_sandbox(command, TOKEN, &order).await;
    }
    fs::create_dir_all(dir.join(".git")).unwrap();
    fs::write(dir.join(".git/index.lock"), "").unwrap();
    let output = world.clone_into(&dir, &order).await;
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(git(&dir, &["rev-parse", "HEAD"]), order.start);
    assert_eq!(git(&dir, &["status", "--porcelain"]), "");
    assert_eq!(git(&dir, &["symbolic-ref", "HEAD"]), BRANCH);
}

#[tokio::test(flavor = "multi_thread")]
async fn case_39_a_branch_that_is_elsewhere_stops_the_phase_before_it_starts() {
    let world = World::new().await;
    let user = world.path("user");
    let other = commit_all(&user, "moved");
    git(&user, &["update-ref", BRANCH, other.as_str()]);
    let dir = world.path("ws");
    fs::create_dir_all(&dir).unwrap();
    let output = world.clone_into(&dir, &world.order()).await;
    assert_eq!(output.status.code(), Some(66), "{}", errors(&output));
    let step = &inside::clone_steps(&world.order(), &world.url, "/workspace")[0];
    assert!(step.explain(66).contains("not at the commit"));
}

/// R12, case 46: nothing that an earlier phase left decides what the next one starts from.
#[tokio::test(flavor = "multi_thread")]
async fn case_46_a_dirty_workspace_is_cleaned_at_the_start() {
    let world = World::new().await;
    let user = world.path("user");
    fs::write(user.join(".gitignore"), "node_modules/\n").unwrap();
    let start = commit_all(&user, "ignore");
    git(&user, &["update-ref", BRANCH, start.as_str()]);
    let mut order = world.order();
    order.start = start.to_string();
    let dir = world.path("ws");
    fs::create_dir_all(dir.join("locked/deep")).unwrap();
    fs::create_dir_all(dir.join("node_modules")).unwrap();
    fs::create_dir_all(dir.join("README.md/in-the-way")).unwrap();
    fs::write(dir.join("node_modules/kept"), "kept").unwrap();
    fs::write(dir.join("locked/deep/file"), "x").unwrap();
    fs::set_permissions(dir.join("locked/deep"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(dir.join("locked"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::write(dir.join(".git"), "gitdir: /nonexistent\n").unwrap();
    // As an unprivileged user, whom permissions stop.
    let step = &inside::clone_steps(&order, &world.url, dir.to_str().unwrap())[0];
    assert!(
        plain(Command::new("chown").args(["-R", "65534:65534"]).arg(&dir))
            .status()
            .unwrap()
            .success()
    );
    assert!(
        plain(Command::new("chmod").arg("755").arg(world.dir.path()))
            .status()
            .unwrap()
            .success()
    );
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .args(&step.argv)
        .current_dir(&dir);
    command.envs(step.env.iter().cloned());
    let output = world.in_sandbox(command, TOKEN, &order).await;
    assert!(output.status.success(), "{}", errors(&output));
    assert!(!dir.join("locked").exists());
    assert_eq!(
        fs::read_to_string(dir.join("node_modules/kept")).unwrap(),
        "kept"
    );
    assert_eq!(
        fs::read_to_string(dir.join("README.md")).unwrap(),
        "hello\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_changed_makes_no_commit_and_no_push() {
    let world = World::new().await;
    let dir = world.workspace("ws").await;
    let finish = finished(&world, &dir).await;
    assert_eq!(
        (finish.changed, &finish.commit),
        (Changed::Nothing, &world.start)
    );
    assert!(world.books.recorded.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_hooks_and_filters_that_the_agent_left_do_not_stop_the_commit() {
    let world = World::new().await;
    let dir = world.workspace("ws").await;
    fs::write(dir.join(".git/index.lock"), "").unwrap();
    fs::write(dir.join(".git/HEAD.lock"), "").unwrap();
    for hook in ["pre-commit", "pre-push", "reference-transaction"] {
        let path = dir.join(".git/hooks").join(hook);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "#!/bin/sh\nexit 1\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    git(&dir, &["config", "filter.bad.clean", "false"]);
    git(&dir, &["config", "filter.bad.required", "true"]);
    git(&dir, &["config", "core.fsmonitor", "false; sleep 100"]);
    fs::write(dir.join(".gitattributes"), "* filter=bad\n").unwrap();
    fs::write(dir.join("unreadable"), "x").unwrap();
    fs::set_permissions(dir.join("unreadable"), fs::Permissions::from_mode(0o000)).unwrap();
    let finish = finished(&world, &dir).await;
    assert_eq!(finish.changed, Changed::Pushed);
    let files = git(
        &world.path("user"),
        &["ls-tree", "--name-only", finish.commit.as_str()],
    );
    assert_eq!(
        files.lines().collect::<Vec<_>>(),
        [".gitattributes", "README.md", "unreadable"]
    );
    let subject = git(
        &world.path("user"),
        &["log", "-1", "--format=%s <%ae>", finish.commit.as_str()],
    );
    assert_eq!(subject, "Phase implement <bulkhead@example.org>");
}

#[tokio::test(flavor = "multi_thread")]
async fn own_commits_other_branches_and_a_detached_head_end_on_the_runs_branch() {
    let world = World::new().await;
    let dir = world.workspace("ws").await;
    git(&dir, &["checkout", "-q", "-b", "agents-own"]);
    fs::write(dir.join("one"), "1").unwrap();
    let own = commit_all(&dir, "agent's commit");
    git(&dir, &["checkout", "-q", "--detach"]);
    fs::write(dir.join("two"), "2").unwrap();
    let finish = finished(&world, &dir).await;
    let user = world.path("user");
    assert_eq!(
        git(&user, &["rev-parse", &format!("{}^", finish.commit)]),
        own.as_str()
    );
    assert_eq!(git(&user, &["show", &format!("{BRANCH}:two")]), "2");
}

/// R14: an agent that commits everything itself is completed by a commit that bears the mark too, so that a crash after the push
/// does not run its phase a second time.
#[tokio::test(flavor = "multi_thread")]
async fn r14_a_phase_that_committed_everything_itself_is_marked_as_complete() {
    let world = World::new().await;
    let dir = world.workspace("ws").await;
    fs::write(dir.join("f"), "f").unwrap();
    commit_all(&dir, "mine");
    let own = git(&dir, &["rev-parse", "HEAD"]);
    let finish = finished(&world, &dir).await;
    assert_eq!(finish.changed, Changed::Pushed);
    let user = world.path("user");
    let shown = |what: &str| {
        git(
            &user,
            &[
                "log",
                "-1",
                &format!("--format={what}"),
                finish.commit.as_str(),
            ],
        )
    };
    assert_eq!(shown("%P"), own);
    assert_eq!(shown("%T"), git(&dir, &["rev-parse", "HEAD^{tree}"]));
    assert_eq!(
        shown("%B").trim_end(),
        world.order().commit_message.trim_end()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rewritten_history_is_refused_by_name() {
    let world = World::new().await;
    let dir = world.workspace("ws").await;
    git(
        &dir,
        &[
            "commit",
            "-q",
            "--amend",
            "-m",
            "rewritten",
            "--allow-empty",
            "--date=2001-01-01T00:00:00Z",
        ],
    );
    let output = world.finish(&dir, &world.order()).await;
    assert_eq!(output.status.code(), Some(70), "{}", errors(&output));
    assert!(
        inside::finish_steps(&world.order(), &world.url, "/w")[0]
            .explain(70)
            .contains("rewrote")
    );
    assert_eq!(world.tip().await, world.start);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_or_broken_git_directory_loses_no_work() {
    let world = World::new().await;
    let dir = world.workspace("ws").await;
    fs::remove_dir_all(dir.join(".git")).unwrap();
    fs::write(dir.join("kept"), "kept").unwrap();
    let finish = finished(&world, &dir).await;
    let user = world.path("user");
    assert_eq!(
        git(&user, &["show", &format!("{}:kept", finish.commit)]),
        "kept"
    );
    assert_eq!(
        git(&user, &["rev-parse", &format!("{}^", finish.commit)]),
        world.start.as_str()
    );
}

/// R16, case 36: a nested repository that the agent planted is left out, and said.
#[tokio::test(flavor = "multi_thread")]
async fn case_36_a_nested_repository_is_left_out_and_named() {
    let world = World::new().await;
    let dir = world.workspace("ws").await;
    let nested = dir.join("vendor/nested");
    fs::create_dir_all(&nested).unwrap();
    git(&nested, &["init", "-q"]);
    fs::write(nested.join("f"), "f").unwrap();
    commit_all(&nested, "nested");
    fs::write(dir.join("beside"), "beside").unwrap();
    let finish = finished(&world, &dir).await;
    assert_eq!(finish.left_out, ["vendor/nested"]);
    let files = git(
        &world.path("user"),
        &["ls-tree", "-r", "--name-only", finish.commit.as_str()],
    );
    assert_eq!(files.lines().collect::<Vec<_>>(), ["README.md", "beside"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn finishing_ends_soon_even_with_a_fifo_and_a_socket_in_the_tree() {
    let world = World::new().await;
    let dir = world.workspace("ws").await;
    assert!(
        plain(Command::new("mkfifo").arg(dir.join("pipe")))
            .status()
            .unwrap()
            .success()
    );
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
    fs::write(dir.join("f"), "f").unwrap();
    let begun = Instant::now();
    assert_eq!(finished(&world, &dir).await.changed, Changed::Pushed);
    assert!(begun.elapsed() < Duration::from_secs(60));
}
