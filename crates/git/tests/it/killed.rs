//! A control plane that is killed between the record of a push and the push itself (R14).

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use bulkhead_git::{GitProgram, Oid, Push, Recovery, Repository, Served, Source};
use tempfile::TempDir;

use crate::support::{BRANCH, TOKEN, World, branch, commit_all, errors, git, user_repo};

/// Names the fixture, in the working directory of the process that is to be killed.
const MARK: &str = "serve-until-killed";

async fn wait_for(path: &Path) -> String {
    let begun = Instant::now();
    loop {
        match fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => {}
        }
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "{} did not come",
            path.display()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Not a test by itself: the process that the test below starts and kills. Without its mark it has nothing to do.
#[tokio::test(flavor = "multi_thread")]
async fn r14_server_that_is_killed_after_the_record() {
    let Ok(root) = fs::read_to_string(MARK) else {
        return;
    };
    let root = PathBuf::from(root);
    let source = Source::Local(root.join("user"));
    let repository = Repository::open(&GitProgram::default(), &source, &root.join("data/git"))
        .await
        .unwrap();
    let start = repository.resolve("main").await.unwrap();
    let served = Served::new(repository.clone());
    let world = World::serving(TempDir::new_in(&root).unwrap(), repository, served, start).await;
    *world.books.hang_after_record.lock().unwrap() = true;
    fs::write(root.join("url"), format!("{}\n", world.url)).unwrap();
    let parent = std::os::unix::process::parent_id();
    let mut told = false;
    // A test that failed does not leave its server behind.
    while std::os::unix::process::parent_id() == parent {
        let recorded = world.books.recorded.lock().unwrap().first().cloned();
        if let Some(push) = recorded.filter(|_| !told) {
            fs::write(
                root.join("recorded"),
                serde_json::to_string(&push).unwrap() + "\n",
            )
            .unwrap();
            told = true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r14_a_kill_between_record_and_push_leaves_a_push_that_did_not_land() {
    let dir = TempDir::new().unwrap();
    let user = dir.path().join("user");
    user_repo(&user);
    let world = World::over(dir, Source::Local).await;
    fs::write(
        world.path(MARK),
        world.dir.path().as_os_str().as_encoded_bytes(),
    )
    .unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "killed::r14_server_that_is_killed_after_the_record",
        ])
        .current_dir(world.dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let url = wait_for(&world.path("url")).await;
    let ws = world.workspace("ws").await;
    fs::write(ws.join("work"), "work\n").unwrap();
    let new = commit_all(&ws, "work");
    git(
        &ws,
        &[
            "remote",
            "set-url",
            "origin",
            &format!("{url}/git/repo.git"),
        ],
    );
    let mut push = Command::new("git");
    push.arg("-C").arg(&ws).args([
        "-c",
        &format!("http.extraHeader=Authorization: Bearer {TOKEN}"),
    ]);
    push.args(["push", "-q", "origin", &format!("HEAD:{BRANCH}")]);
    let mut push = crate::support::plain(&mut push)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let recorded: Push = serde_json::from_str(&wait_for(&world.path("recorded")).await).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(
        !push.wait().unwrap().success(),
        "the sandbox heard of a success that was none"
    );

    assert_eq!(recorded.new, new);
    assert_eq!(
        world.repository.recover(&recorded).await.unwrap(),
        Recovery::NotLanded
    );
    assert_eq!(world.tip().await, world.start);
    git(&user_of(&world), &["fsck", "--strict"]);
    // The phase runs again, on a new server, from the branch as it is.
    let again = world.workspace("again").await;
    fs::write(again.join("work"), "work again\n").unwrap();
    let output = world.finish(&again, &world.order()).await;
    assert!(output.status.success(), "{}", errors(&output));
    let landed = world.books.recorded.lock().unwrap()[0].clone();
    assert_eq!(
        world.repository.recover(&landed).await.unwrap(),
        Recovery::Landed
    );
    let tip: Oid = world
        .repository
        .trusted()
        .tip(&branch())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        world.repository.recover(&recorded).await.unwrap(),
        Recovery::Foreign { at: Some(tip) }
    );
}

fn user_of(world: &World) -> PathBuf {
    world.path("user")
}
