//! Landing onto a base that stands still, moved, conflicts, is checked out, or is dirty (R15).

use std::{fs, path::Path};

use bulkhead_git::{
    Error, GitProgram, LandRequest, LandStyle, Landed, Oid, RefName, Refusal, Repository, Source,
};
use tempfile::TempDir;

use crate::support::{BRANCH, branch, commit_all, git, try_git, user_repo};

struct Run {
    dir: TempDir,
    repository: Repository,
    tip: Oid,
}

impl Run {
    /// A user repository on `main` and a run's branch with two commits that add and change files.
    async fn new(program: &GitProgram) -> Self {
        let dir = TempDir::new().unwrap();
        let user = dir.path().join("user");
        user_repo(&user);
        fs::write(user.join("shared.txt"), "1\n2\n3\n4\n5\n6\n7\n8\n9\n").unwrap();
        commit_all(&user, "base");
        git(&user, &["checkout", "-q", "-b", "work"]);
        fs::write(user.join("added.txt"), "added\n").unwrap();
        commit_all(&user, "run: add");
        fs::write(user.join("shared.txt"), "one\n2\n3\n4\n5\n6\n7\n8\n9\n").unwrap();
        let tip = commit_all(&user, "run: change");
        git(&user, &["update-ref", BRANCH, tip.as_str()]);
        git(&user, &["checkout", "-q", "main"]);
        git(&user, &["branch", "-q", "-D", "work"]);
        let repository =
            Repository::open(program, &Source::Local(user), &dir.path().join("data/git"))
                .await
                .unwrap();
        Self {
            dir,
            repository,
            tip,
        }
    }

    fn user(&self) -> std::path::PathBuf {
        self.dir.path().join("user")
    }

    /// A commit on `main` that the run has not seen.
    fn move_base(&self, file: &str, content: &str) -> Oid {
        fs::write(self.user().join(file), content).unwrap();
        commit_all(&self.user(), "moved base")
    }

    fn request(&self, style: LandStyle) -> LandRequest {
        LandRequest {
            branch: branch(),
            expected: self.tip.clone(),
            into: RefName::from_branch("main").unwrap(),
            style,
            message: "Land the run".to_owned(),
            committer_name: "Ann".to_owned(),
            committer_email: "ann@example.org".to_owned(),
            now_s: 1_790_000_000,
        }
    }

    async fn land(&self, style: LandStyle) -> Result<Landed, Error> {
        self.repository.land(&self.request(style)).await
    }
}

fn moved(landed: Landed) -> (Oid, bool) {
    match landed {
        Landed::Moved {
            commit,
            checkout_updated,
        } => (commit, checkout_updated),
        other => panic!("{other:?}"),
    }
}

fn clean(user: &Path) -> bool {
    git(user, &["status", "--porcelain"]).is_empty()
}

#[tokio::test]
async fn r15_a_base_that_stood_still_is_fast_forwarded_with_its_clean_checkout() {
    let run = Run::new(&GitProgram::default()).await;
    let (commit, updated) = moved(run.land(LandStyle::Merge).await.unwrap());
    assert_eq!((&commit, updated), (&run.tip, true));
    assert_eq!(
        fs::read_to_string(run.user().join("added.txt")).unwrap(),
        "added\n"
    );
    assert!(clean(&run.user()));
    let again = run.land(LandStyle::Merge).await.unwrap();
    assert_eq!(again, Landed::AlreadyThere { commit });
}

#[tokio::test]
async fn r15_a_moved_base_gets_a_merge_commit_without_any_checkout() {
    let run = Run::new(&GitProgram::default()).await;
    run.move_base("other.txt", "other\n");
    let base = run.move_base("shared.txt", "1\n2\n3\n4\n5\n6\n7\n8\nnine\n");
    git(&run.user(), &["checkout", "-q", "-b", "elsewhere"]);
    let (commit, updated) = moved(run.land(LandStyle::Merge).await.unwrap());
    assert!(!updated);
    let user = run.user();
    let parents = git(&user, &["log", "-1", "--format=%P %s", commit.as_str()]);
    assert_eq!(parents, format!("{base} {} Land the run", run.tip));
    assert_eq!(
        git(&user, &["show", "main:shared.txt"]),
        "one\n2\n3\n4\n5\n6\n7\n8\nnine"
    );
    assert!(clean(&user) && !user.join("added.txt").exists());
    git(&user, &["fsck", "--strict"]);
}

#[tokio::test]
async fn r15_a_rebase_keeps_authors_and_messages_and_needs_no_work_tree() {
    for program in ["/usr/bin/git", "git"] {
        let run = Run::new(&GitProgram::at(program)).await;
        let base = run.move_base("shared.txt", "1\n2\n3\n4\n5\n6\n7\n8\nnine\n");
        let (commit, updated) = moved(run.land(LandStyle::Rebase).await.unwrap());
        assert!(updated);
        let log = git(
            &run.user(),
            &["log", "--format=%s|%an|%cn", &format!("{base}..{commit}")],
        );
        assert_eq!(log, "run: change|Ann|Ann\nrun: add|Ann|Ann");
        assert_eq!(
            fs::read_to_string(run.user().join("shared.txt")).unwrap(),
            "one\n2\n3\n4\n5\n6\n7\n8\nnine\n"
        );
        assert!(clean(&run.user()));
    }
}

#[tokio::test]
async fn r15_conflicts_are_named_and_nothing_changes() {
    let run = Run::new(&GitProgram::default()).await;
    let base = run.move_base("shared.txt", "uno\n2\n3\n4\n5\n6\n7\n8\n9\n");
    for style in [LandStyle::Merge, LandStyle::Rebase] {
        let landed = run.land(style).await.unwrap();
        assert_eq!(
            landed,
            Landed::Conflicts {
                paths: vec!["shared.txt".to_owned()]
            }
        );
        assert_eq!(git(&run.user(), &["rev-parse", "main"]), base.as_str());
        assert!(clean(&run.user()));
    }
}

#[tokio::test]
async fn r15_a_dirty_checkout_is_refused_with_its_paths() {
    let run = Run::new(&GitProgram::default()).await;
    let user = run.user();
    fs::write(user.join("README.md"), "edited\n").unwrap();
    fs::write(user.join("staged.txt"), "s\n").unwrap();
    git(&user, &["add", "staged.txt"]);
    let error = run.land(LandStyle::Merge).await.unwrap_err();
    let Some(Refusal::DirtyCheckout { paths, .. }) = error.refusal() else {
        panic!("{error}")
    };
    assert_eq!(paths, &["README.md", "staged.txt"]);
    git(&user, &["reset", "-q", "--hard"]);
    fs::write(user.join("added.txt"), "mine, untracked\n").unwrap();
    let error = run.land(LandStyle::Merge).await.unwrap_err();
    let Some(Refusal::DirtyCheckout { paths, .. }) = error.refusal() else {
        panic!("{error}")
    };
    assert_eq!(paths, &["added.txt"]);
    assert_eq!(
        fs::read_to_string(user.join("added.txt")).unwrap(),
        "mine, untracked\n"
    );
    fs::write(user.join(".git/info/exclude"), "added.txt\n").unwrap();
    assert!(
        run.land(LandStyle::Merge).await.is_err(),
        "an ignored file of the user was overwritten"
    );
    fs::remove_file(user.join("added.txt")).unwrap();
    fs::write(user.join("unrelated"), "stays\n").unwrap();
    moved(run.land(LandStyle::Merge).await.unwrap());
    assert_eq!(
        fs::read_to_string(user.join("unrelated")).unwrap(),
        "stays\n"
    );
}

#[tokio::test]
async fn r15_a_linked_worktree_counts_as_a_checkout() {
    let run = Run::new(&GitProgram::default()).await;
    let user = run.user();
    git(&user, &["checkout", "-q", "-b", "elsewhere"]);
    let linked = run.dir.path().join("linked");
    git(
        &user,
        &["worktree", "add", "-q", linked.to_str().unwrap(), "main"],
    );
    let (_, updated) = moved(run.land(LandStyle::Merge).await.unwrap());
    assert!(updated && linked.join("added.txt").exists() && clean(&linked));
    assert!(!user.join("added.txt").exists() && clean(&user));
}

#[tokio::test]
async fn r15_a_busy_checkout_and_a_branch_that_moved_are_refused() {
    let run = Run::new(&GitProgram::default()).await;
    fs::write(run.user().join(".git/index.lock"), "").unwrap();
    let error = run.land(LandStyle::Merge).await.unwrap_err();
    assert!(
        matches!(error.refusal(), Some(Refusal::CheckoutNeedsMore { .. })),
        "{error}"
    );
    fs::remove_file(run.user().join(".git/index.lock")).unwrap();
    let mut request = run.request(LandStyle::Merge);
    request.expected = git(&run.user(), &["rev-parse", "main"]).parse().unwrap();
    let error = run.repository.land(&request).await.unwrap_err();
    assert!(
        matches!(error.refusal(), Some(Refusal::RefMoved { .. })),
        "{error}"
    );
}

/// A rebase takes `HEAD` off its branch and moves the branch at its end: landing must not move it meanwhile.
#[tokio::test]
async fn r15_a_branch_that_is_being_rebased_is_left_alone() {
    let run = Run::new(&GitProgram::default()).await;
    let user = run.user();
    git(&user, &["branch", "-q", "other"]);
    let base = run.move_base("shared.txt", "mine\n");
    git(&user, &["checkout", "-q", "other"]);
    fs::write(user.join("shared.txt"), "theirs\n").unwrap();
    commit_all(&user, "theirs");
    git(&user, &["checkout", "-q", "main"]);
    assert!(!try_git(&user, &["rebase", "-q", "other"]).status.success());
    let error = run.land(LandStyle::Merge).await.unwrap_err();
    assert!(
        matches!(error.refusal(), Some(Refusal::CheckoutNeedsMore { .. })),
        "{error}"
    );
    assert_eq!(git(&user, &["rev-parse", "main"]), base.as_str());
}

/// Root lands for a user: what it writes belongs to that user, who can go on working (and needs no trust setting).
#[tokio::test]
async fn root_acts_on_another_users_repository_as_that_user() {
    use std::os::unix::fs::MetadataExt as _;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let run = Run::new(&GitProgram::default()).await;
    let chown = |path: &Path| {
        std::process::Command::new("chown")
            .args(["-R", "65534:65534"])
            .arg(path)
            .status()
            .unwrap()
            .success()
    };
    run.move_base("other.txt", "other\n");
    assert!(chown(&run.user()));
    let open = std::process::Command::new("chmod")
        .arg("755")
        .arg(run.dir.path())
        .status()
        .unwrap();
    assert!(open.success());
    let source = Source::Local(run.user());
    let repository = Repository::open(
        &GitProgram::default(),
        &source,
        &run.dir.path().join("data/git"),
    )
    .await
    .unwrap();
    let (_, updated) = moved(
        repository
            .land(&run.request(LandStyle::Merge))
            .await
            .unwrap(),
    );
    assert!(updated);
    let mut open = vec![run.user()];
    while let Some(path) = open.pop() {
        let meta = path.symlink_metadata().unwrap();
        assert_eq!(
            meta.uid(),
            65534,
            "{} does not belong to its user",
            path.display()
        );
        if meta.is_dir() {
            open.extend(
                fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
}
