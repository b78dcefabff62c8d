//! Submodules and LFS: the right content, or a refusal by name before the phase starts (cases 38, 45).

use std::{fs, path::Path, process::Command};

use bulkhead_git::{
    GitProgram, ListedSubmodule, Lookup, Oid, Preflight, Refusal, Repository, Result, Served,
    Source,
};
use bulkhead_model::GitOrder;
use tempfile::TempDir;

use crate::support::{BRANCH, World, branch, commit_all, errors, git, plain, user_repo};

struct Fixture {
    dir: TempDir,
    repository: Repository,
    start: Oid,
}

impl Fixture {
    /// Makes the user's repository, lets `prepare` commit to it, and opens it.
    async fn new(prepare: impl FnOnce(&Path, &Path)) -> Self {
        let dir = TempDir::new().unwrap();
        let user = dir.path().join("user");
        user_repo(&user);
        prepare(dir.path(), &user);
        let source = Source::Local(user);
        let repository = Repository::open(
            &GitProgram::default(),
            &source,
            &dir.path().join("data/git"),
        )
        .await
        .unwrap();
        let start = repository.resolve("main").await.unwrap();
        repository.create_branch(&branch(), &start).await.unwrap();
        Self {
            dir,
            repository,
            start,
        }
    }

    async fn preflight(&self, listed: &[ListedSubmodule]) -> Result<Preflight> {
        let git_data = self.dir.path().join("data/git");
        let lookup = Lookup {
            program: &GitProgram::default(),
            git_data: &git_data,
            listed,
        };
        self.repository.preflight(&self.start, lookup).await
    }

    async fn refusal(&self, listed: &[ListedSubmodule]) -> Refusal {
        let error = self.preflight(listed).await.unwrap_err();
        error.refusal().unwrap_or_else(|| panic!("{error}")).clone()
    }

    async fn serve(self, preflight: Preflight) -> (World, GitOrder) {
        let Self {
            dir,
            repository,
            start,
        } = self;
        let mut served = Served::new(repository.clone());
        served.submodules = preflight.submodules;
        let world = World::serving(dir, repository, served, start).await;
        let mut order = world.order();
        order.extras = preflight.extras;
        (world, order)
    }
}

fn add_submodule(user: &Path, url: &str, path: &str) {
    git(
        user,
        &[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "-q",
            "add",
            url,
            path,
        ],
    );
    commit_all(user, "submodule");
}

fn library(dir: &Path, name: &str) -> Oid {
    let path = dir.join(name);
    user_repo(&path);
    fs::write(path.join("lib.txt"), "library\n").unwrap();
    commit_all(&path, "library")
}

#[tokio::test(flavor = "multi_thread")]
async fn case_38_submodules_are_served_listed_or_from_the_parents_own_store_and_nested() {
    let fixture = Fixture::new(|dir, user| {
        library(dir, "deep");
        library(dir, "lib");
        add_submodule(&dir.join("lib"), "../deep", "vendor/deep");
        add_submodule(user, "../lib", "vendor/lib");
    })
    .await;
    let listed = |name: &str| {
        let path = fixture.dir.path().join(name);
        ListedSubmodule {
            url: path.display().to_string(),
            source: Source::Local(path),
        }
    };
    let preflight = fixture
        .preflight(&[listed("lib"), listed("deep")])
        .await
        .unwrap();
    assert_eq!(preflight.submodules.len(), 2);
    let (world, order) = fixture.serve(preflight).await;
    let dir = world.path("ws");
    fs::create_dir_all(&dir).unwrap();
    let output = world.clone_into(&dir, &order).await;
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(
        fs::read_to_string(dir.join("vendor/lib/lib.txt")).unwrap(),
        "library\n"
    );
    assert_eq!(
        fs::read_to_string(dir.join("vendor/lib/vendor/deep/lib.txt")).unwrap(),
        "library\n"
    );
    fs::write(dir.join("work"), "work").unwrap();
    let output = world.finish(&dir, &order).await;
    assert!(output.status.success(), "{}", errors(&output));
    let lib = dir.join("vendor/lib");
    commit_all(&lib, "agent");
    let push = world
        .in_sandbox(push_command(&lib), crate::support::TOKEN, &order)
        .await;
    assert!(!push.status.success(), "a submodule was pushed to");
}

fn push_command(dir: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(dir)
        .args(["push", "origin", "HEAD:refs/heads/x"]);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn case_38_a_pinned_commit_that_no_branch_holds_comes_from_the_parents_own_store() {
    let fixture = Fixture::new(|dir, user| {
        library(dir, "lib");
        add_submodule(user, dir.join("lib").to_str().unwrap(), "vendor/lib");
        commit_all(&user.join("vendor/lib"), "only here");
        commit_all(user, "pins it");
        fs::remove_dir_all(dir.join("lib")).unwrap();
    })
    .await;
    let preflight = fixture.preflight(&[]).await.unwrap();
    let (world, order) = fixture.serve(preflight).await;
    let dir = world.path("ws");
    fs::create_dir_all(&dir).unwrap();
    let output = world.clone_into(&dir, &order).await;
    assert!(output.status.success(), "{}", errors(&output));
    let pinned = git(&dir, &["rev-parse", "HEAD:vendor/lib"]);
    assert_eq!(git(&dir.join("vendor/lib"), &["rev-parse", "HEAD"]), pinned);
}

#[tokio::test]
async fn case_38_submodules_that_cannot_be_served_are_refused_by_name() {
    let unlisted = Fixture::new(|dir, user| {
        library(dir, "lib");
        add_submodule(user, dir.join("lib").to_str().unwrap(), "vendor/lib");
        fs::remove_dir_all(user.join(".git/modules")).unwrap();
    })
    .await;
    let refusal = unlisted.refusal(&[]).await;
    assert!(
        matches!(&refusal, Refusal::SubmoduleNotListed { path, .. } if path == "vendor/lib"),
        "{refusal}"
    );
    let stray = Fixture::new(|_, user| {
        user_repo(&user.join("stray"));
        commit_all(user, "a repository that is no submodule");
    })
    .await;
    let refusal = stray.refusal(&[]).await;
    assert!(
        matches!(&refusal, Refusal::SubmoduleWithoutUrl { path } if path == "stray"),
        "{refusal}"
    );
    let lost = Fixture::new(|dir, user| {
        library(dir, "lib");
        add_submodule(user, dir.join("lib").to_str().unwrap(), "vendor/lib");
        commit_all(&user.join("vendor/lib"), "never pushed");
        commit_all(user, "pins it");
    })
    .await;
    let path = lost.dir.path().join("lib");
    let listed = ListedSubmodule {
        url: path.display().to_string(),
        source: Source::Local(path),
    };
    let refusal = lost.refusal(&[listed]).await;
    assert!(
        matches!(refusal, Refusal::SubmoduleCommitMissing { .. }),
        "{refusal}"
    );
}

/// Fails closed with the path and the remedy, and only where a link leads out (case 45).
#[tokio::test]
async fn case_45_settings_that_link_out_are_refused_with_the_path_and_inner_links_are_fine() {
    let fixture = Fixture::new(|_, user| {
        fs::create_dir_all(user.join(".agents/skills")).unwrap();
        fs::write(user.join(".agents/skills/a.md"), "a").unwrap();
        std::os::unix::fs::symlink(".agents", user.join(".claude")).unwrap();
        commit_all(user, "inner link");
    })
    .await;
    fixture.preflight(&[]).await.unwrap();
    let fixture = Fixture::new(|_, user| {
        std::os::unix::fs::symlink("/home/someone/.codex", user.join(".codex")).unwrap();
        commit_all(user, "outer link");
    })
    .await;
    let refusal = fixture.refusal(&[]).await;
    assert_eq!(
        refusal,
        Refusal::SymlinkedSettings {
            path: ".codex".to_owned()
        }
    );
    assert!(refusal.to_string().contains("make it a plain file"));
}

/// The user's own `.git` may be a link or a file: such repositories work.
/// A linked `.git` is legitimate (case 45).
#[tokio::test]
async fn case_45_a_linked_git_directory_is_a_repository_like_any_other() {
    let dir = TempDir::new().unwrap();
    let user = dir.path().join("user");
    let start = user_repo(&user);
    fs::rename(user.join(".git"), dir.path().join("elsewhere.git")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("elsewhere.git"), user.join(".git")).unwrap();
    let open = |path: std::path::PathBuf| async move {
        Repository::open(
            &GitProgram::default(),
            &Source::Local(path),
            &std::env::temp_dir().join("unused-git"),
        )
        .await
    };
    assert_eq!(
        open(user.clone())
            .await
            .unwrap()
            .resolve("main")
            .await
            .unwrap(),
        start
    );
    fs::remove_file(user.join(".git")).unwrap();
    let target = dir.path().join("elsewhere.git");
    fs::write(user.join(".git"), format!("gitdir: {}\n", target.display())).unwrap();
    assert_eq!(
        open(user).await.unwrap().resolve("main").await.unwrap(),
        start
    );
    let error = open(dir.path().join("nothing")).await.unwrap_err();
    assert!(
        matches!(error.refusal(), Some(Refusal::NotARepository { .. })),
        "{error}"
    );
}

pub(crate) fn lfs_repo(user: &Path) {
    for (key, value) in [
        ("filter.lfs.clean", "git-lfs clean -- %f"),
        ("filter.lfs.smudge", "git-lfs smudge -- %f"),
        ("filter.lfs.process", "git-lfs filter-process"),
        ("filter.lfs.required", "true"),
    ] {
        git(user, &["config", key, value]);
    }
    fs::write(
        user.join(".gitattributes"),
        "*.bin filter=lfs diff=lfs merge=lfs -text\n",
    )
    .unwrap();
    fs::write(user.join("big.bin"), "the real content\n").unwrap();
    commit_all(user, "lfs");
}

pub(crate) fn has_lfs() -> bool {
    let found = plain(Command::new("git").args(["lfs", "version"]))
        .output()
        .unwrap()
        .status
        .success();
    assert!(found, "git-lfs is not installed: scripts/setup installs it");
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn case_38_lfs_objects_are_fetched_and_new_ones_pushed() {
    assert!(has_lfs());
    let fixture = Fixture::new(|_, user| lfs_repo(user)).await;
    let preflight = fixture.preflight(&[]).await.unwrap();
    assert!(preflight.extras.lfs);
    let (world, order) = fixture.serve(preflight).await;
    let dir = world.path("ws");
    fs::create_dir_all(&dir).unwrap();
    let output = world.clone_into(&dir, &order).await;
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(
        fs::read_to_string(dir.join("big.bin")).unwrap(),
        "the real content\n"
    );
    fs::write(dir.join("new.bin"), "made by the agent\n").unwrap();
    let output = world.finish(&dir, &order).await;
    assert!(output.status.success(), "{}", errors(&output));
    let user = world.path("user");
    let pointer = git(&user, &["show", &format!("{BRANCH}:new.bin")]);
    assert!(pointer.starts_with("version https://git-lfs"), "{pointer}");
    let again = world.path("again");
    fs::create_dir_all(&again).unwrap();
    let mut next = order.clone();
    next.start = world.tip().await.to_string();
    fs::remove_dir_all(&dir).unwrap();
    let output = world.clone_into(&again, &next).await;
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(
        fs::read_to_string(again.join("new.bin")).unwrap(),
        "made by the agent\n"
    );
}

#[tokio::test]
async fn case_38_a_missing_lfs_object_is_refused_by_name_before_the_phase() {
    assert!(has_lfs());
    let fixture = Fixture::new(|_, user| {
        lfs_repo(user);
        fs::remove_dir_all(user.join(".git/lfs/objects")).unwrap();
    })
    .await;
    let refusal = fixture.refusal(&[]).await;
    assert!(
        matches!(&refusal, Refusal::LfsObjectMissing { path, .. } if path == "big.bin"),
        "{refusal}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn case_38_a_sandbox_without_git_lfs_fails_by_name_and_shows_no_pointer() {
    let fixture = Fixture::new(|_, user| lfs_repo(user)).await;
    let preflight = fixture.preflight(&[]).await.unwrap();
    let (world, order) = fixture.serve(preflight).await;
    let dir = world.path("ws");
    fs::create_dir_all(&dir).unwrap();
    let bin = world.path("bin");
    fs::create_dir_all(&bin).unwrap();
    for tool in ["sh", "git", "find", "rm", "chmod", "env"] {
        let found = plain(Command::new("sh").args(["-c", &format!("command -v {tool}")]))
            .output()
            .unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        std::os::unix::fs::symlink(found.trim(), bin.join(tool)).unwrap();
    }
    let step = &bulkhead_git::inside::clone_steps(&order, &world.url, dir.to_str().unwrap())[0];
    let mut command = Command::new("env");
    command
        .arg(format!("PATH={}", bin.display()))
        .args(&step.argv)
        .current_dir(&dir);
    command.envs(step.env.iter().cloned());
    let output = world
        .in_sandbox(command, crate::support::TOKEN, &order)
        .await;
    assert_eq!(output.status.code(), Some(68), "{}", errors(&output));
    assert!(step.explain(68).contains("install git-lfs"));
    assert!(!dir.join("big.bin").exists());
}
