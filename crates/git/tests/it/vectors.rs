//! No host-side operation runs anything that an agent could have written (R16; cases 35, 36, 41, 42).

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use bulkhead_git::{
    GitProgram, LandRequest, LandStyle, Landed, LaterKind, Lookup, RefName, Repository, Source,
    documented_patterns,
};
use tempfile::TempDir;

use crate::support::{BRANCH, World, branch, commit_all, errors, git, try_git, user_repo};

fn executable(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Plants a program for each of the eight vectors into a repository: hooks, `core.hooksPath`, file-system monitor,
/// clean, smudge and process filters, external diff, text conversion, merge driver. Each leaves a marker.
fn plant(repo: &Path, markers: &Path) {
    fs::create_dir_all(markers).unwrap();
    let mark = |name: &str| format!("touch {}/{name}; cat", markers.display());
    for hook in [
        "pre-commit",
        "post-commit",
        "post-checkout",
        "post-merge",
        "post-index-change",
        "reference-transaction",
        "pre-push",
        "pre-receive",
        "update",
        "post-receive",
        "post-update",
        "pre-auto-gc",
        "post-rewrite",
        "proc-receive",
        "push-to-checkout",
        "fsmonitor-watchman",
        "sendemail-validate",
        "prepare-commit-msg",
        "commit-msg",
    ] {
        let text = format!("#!/bin/sh\ntouch {}/hook-{hook}\n", markers.display());
        executable(&repo.join(".git/hooks").join(hook), &text);
        executable(
            &repo.join("hooks-by-path").join(hook),
            &text.replace("hook-", "hookspath-"),
        );
    }
    for (key, value) in [
        ("core.fsmonitor", mark("fsmonitor")),
        ("filter.evil.clean", mark("clean")),
        ("filter.evil.smudge", mark("smudge")),
        ("filter.evilprocess.process", mark("process")),
        ("diff.external", mark("diff-external")),
        ("diff.evil.textconv", mark("textconv")),
        ("diff.evil.command", mark("diff-command")),
        ("merge.evil.driver", mark("merge-driver")),
        ("core.alternateRefsCommand", mark("alternate-refs")),
        ("core.sshCommand", mark("ssh")),
        ("uploadpack.packObjectsHook", mark("pack-objects-hook")),
        (
            "credential.helper",
            format!("!touch {}/credential", markers.display()),
        ),
        ("core.pager", mark("pager")),
        ("gpg.program", mark("gpg")),
        ("commit.gpgSign", "true".to_owned()),
    ] {
        git(repo, &["config", key, &value]);
    }
}

fn markers(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect()
}

/// A user's repository whose configuration *and* content want to run programs, and a run's branch that adds more.
async fn hostile(attributes: &str) -> (TempDir, Repository, bulkhead_git::Oid) {
    let dir = TempDir::new().unwrap();
    let user = dir.path().join("user");
    user_repo(&user);
    fs::write(user.join("shared.txt"), "1\n2\n3\n4\n5\n6\n7\n8\n9\n").unwrap();
    let base = commit_all(&user, "base");
    git(&user, &["checkout", "-q", "-b", "work"]);
    fs::write(user.join(".gitattributes"), attributes).unwrap();
    fs::write(user.join("shared.txt"), "one\n2\n3\n4\n5\n6\n7\n8\n9\n").unwrap();
    executable(&user.join(".husky/pre-commit"), "#!/bin/sh\nexit 1\n");
    fs::write(user.join(".gitconfig"), "[core]\n\tfsmonitor = false\n").unwrap();
    let tip = commit_all(&user, "agent");
    git(&user, &["update-ref", BRANCH, tip.as_str()]);
    git(&user, &["checkout", "-q", "main"]);
    fs::write(user.join("shared.txt"), "1\n2\n3\n4\n5\n6\n7\n8\nnine\n").unwrap();
    commit_all(&user, "moved");
    plant(&user, &dir.path().join("markers"));
    let program = GitProgram::default();
    let repository = Repository::open(&program, &Source::Local(user), &dir.path().join("data/git"))
        .await
        .unwrap();
    let operations = async {
        repository.resolve("main").await.unwrap();
        repository
            .create_branch(&RefName::from_branch("bulkhead/other").unwrap(), &base)
            .await
            .unwrap();
        repository
            .read_file(&tip, ".gitattributes", 1 << 20)
            .await
            .unwrap();
        let diff = repository.phase_diff(&base, &tip, 1 << 20).await.unwrap();
        repository
            .file_patch(&base, &tip, b"shared.txt", 1 << 20)
            .await
            .unwrap();
        repository.runs_later(&diff).await.unwrap();
        let lookup = Lookup {
            program: &program,
            git_data: &dir.path().join("data/git"),
            listed: &[],
        };
        repository.preflight(&tip, lookup).await.unwrap();
    };
    operations.await;
    (dir, repository, tip)
}

fn request(tip: &bulkhead_git::Oid, style: LandStyle) -> LandRequest {
    LandRequest {
        branch: branch(),
        expected: tip.clone(),
        into: RefName::from_branch("main").unwrap(),
        style,
        message: "Land".to_owned(),
        committer_name: "Ann".to_owned(),
        committer_email: "ann@example.org".to_owned(),
        now_s: 1_790_000_000,
    }
}

/// R16, case 35: whatever a repository configures, none of its programs runs on the host.
#[tokio::test]
async fn case_35_reading_diffing_and_landing_leave_no_marker() {
    for style in [LandStyle::Merge, LandStyle::Rebase] {
        let (dir, repository, tip) = hostile("* diff=evil merge=evil\n").await;
        git_marks_something(&dir);
        let landed = repository.land(&request(&tip, style)).await;
        let Ok(Landed::Moved {
            checkout_updated: true,
            ..
        }) = landed
        else {
            panic!("{landed:?}")
        };
        assert_eq!(markers(&dir.path().join("markers")), Vec::<PathBuf>::new());
    }
}

/// The fixture bites: git itself, run the plain way, leaves markers. They are removed again.
fn git_marks_something(dir: &TempDir) {
    let user = dir.path().join("user");
    assert_eq!(markers(&dir.path().join("markers")), Vec::<PathBuf>::new());
    try_git(&user, &["status"]);
    try_git(&user, &["diff", "main", BRANCH]);
    let found = markers(&dir.path().join("markers"));
    assert!(
        found.len() >= 2,
        "the fixture runs nothing even for plain git: {found:?}"
    );
    for path in found {
        fs::remove_file(path).unwrap();
    }
}

/// R16, case 35: a checkout that only a filter could do right is refused.
#[tokio::test]
async fn case_35_a_checkout_that_would_need_a_filter_is_refused_and_none_runs() {
    let (dir, repository, tip) = hostile("* filter=evil\n*.txt filter=evilprocess\n").await;
    let refused = repository
        .land(&request(&tip, LandStyle::Merge))
        .await
        .unwrap_err();
    assert_eq!(refused.refusal().unwrap().name(), "git_checkout_needs_more");
    git(
        &dir.path().join("user"),
        &[
            "-c",
            "core.fsmonitor=false",
            "-c",
            "core.hooksPath=/dev/null",
            "symbolic-ref",
            "HEAD",
            "refs/heads/else",
        ],
    );
    let landed = repository
        .land(&request(&tip, LandStyle::Merge))
        .await
        .unwrap();
    assert!(
        matches!(
            landed,
            Landed::Moved {
                checkout_updated: false,
                ..
            }
        ),
        "{landed:?}"
    );
    assert_eq!(markers(&dir.path().join("markers")), Vec::<PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn case_35_cloning_and_pushing_through_the_gateway_leave_no_marker_on_the_host() {
    let world = World::new().await;
    let markers_dir = world.path("markers");
    plant(&world.path("user"), &markers_dir);
    let dir = world.workspace("ws").await;
    fs::write(
        dir.join(".gitattributes"),
        "* filter=evil diff=evil merge=evil\n",
    )
    .unwrap();
    fs::write(dir.join("x"), "x").unwrap();
    let output = world.finish(&dir, &world.order()).await;
    assert!(output.status.success(), "{}", errors(&output));
    assert_ne!(world.tip().await, world.start);
    assert_eq!(markers(&markers_dir), Vec::<PathBuf>::new());
}

/// R16, case 36: a nested repository in the history is data.
#[tokio::test]
async fn case_36_a_gitlink_in_the_history_runs_nothing_and_shows_as_a_submodule() {
    let dir = TempDir::new().unwrap();
    let user = dir.path().join("user");
    let base = user_repo(&user);
    let nested = user.join("nested");
    user_repo(&nested);
    plant(&nested, &dir.path().join("markers"));
    git(&user, &["-c", "core.fsmonitor=false", "add", "nested"]);
    git(&user, &["commit", "-q", "-m", "gitlink"]);
    let tip = git(&user, &["rev-parse", "HEAD"]).parse().unwrap();
    for marker in markers(&dir.path().join("markers")) {
        fs::remove_file(marker).unwrap();
    }
    git(&user, &["update-ref", BRANCH, &format!("{tip}")]);
    git(&user, &["reset", "-q", "--soft", base.as_str()]);
    let source = Source::Local(user.clone());
    let repository = Repository::open(&GitProgram::default(), &source, &dir.path().join("git"))
        .await
        .unwrap();
    let diff = repository.phase_diff(&base, &tip, 1 << 20).await.unwrap();
    let later = repository.runs_later(&diff).await.unwrap();
    assert!(
        later
            .iter()
            .any(|item| item.kind == LaterKind::Submodule && item.path == b"nested"),
        "{later:?}"
    );
    git(&user, &["rm", "-q", "-f", "--cached", "nested"]);
    let _ = repository.land(&request(&tip, LandStyle::Merge)).await;
    assert_eq!(markers(&dir.path().join("markers")), Vec::<PathBuf>::new());
}

/// A link in a commit is text to the host: nothing is read or written through it.
#[tokio::test]
async fn case_41_links_that_leave_the_repository_are_named_and_never_followed() {
    let dir = TempDir::new().unwrap();
    let user = dir.path().join("user");
    let base = user_repo(&user);
    let outside = dir.path().join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("victim"), "untouched\n").unwrap();
    std::os::unix::fs::symlink(&outside, user.join("out")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", user.join("package.json")).unwrap();
    let link = commit_all(&user, "links");
    fs::remove_file(user.join("out")).unwrap();
    fs::create_dir_all(user.join("out")).unwrap();
    fs::write(user.join("out/victim"), "overwritten\n").unwrap();
    let tip = commit_all(&user, "a directory where the link was");
    git(&user, &["update-ref", BRANCH, tip.as_str()]);
    git(&user, &["reset", "-q", "--hard", link.as_str()]);
    let source = Source::Local(user.clone());
    let repository = Repository::open(&GitProgram::default(), &source, &dir.path().join("git"))
        .await
        .unwrap();
    let diff = repository.phase_diff(&base, &link, 1 << 20).await.unwrap();
    let later = repository.runs_later(&diff).await.unwrap();
    let outside_links = later
        .iter()
        .filter(|item| item.kind == LaterKind::LinkOutside)
        .count();
    assert_eq!(outside_links, 2, "{later:?}");
    assert!(!String::from_utf8_lossy(&diff.patch).contains("root:"));
    let landed = repository
        .land(&request(&tip, LandStyle::Merge))
        .await
        .unwrap();
    assert!(
        matches!(
            landed,
            Landed::Moved {
                checkout_updated: true,
                ..
            }
        ),
        "{landed:?}"
    );
    assert_eq!(
        fs::read_to_string(outside.join("victim")).unwrap(),
        "untouched\n"
    );
    assert_eq!(
        fs::read_to_string(user.join("out/victim")).unwrap(),
        "overwritten\n"
    );
}

#[tokio::test]
async fn case_42_what_would_run_later_is_listed_with_its_reason() {
    let dir = TempDir::new().unwrap();
    let user = dir.path().join("user");
    fs::create_dir_all(&user).unwrap();
    user_repo(&user);
    fs::write(
        user.join("package.json"),
        r#"{"name":"x","scripts":{"test":"jest"}}"#,
    )
    .unwrap();
    fs::write(user.join("web.json"), "{}").unwrap();
    let base = commit_all(&user, "base");
    for (path, text) in [
        (".claude/settings.json", "{}"),
        (".mcp.json", "{}"),
        (".codex/config.toml", ""),
        (".vscode/tasks.json", "{}"),
        (".github/workflows/ci.yml", "on: push"),
        (".husky/pre-commit", "x"),
        ("AGENTS.md", "x"),
        (".envrc", "x"),
        (
            "package.json",
            r#"{"name":"x","scripts":{"test":"jest","postinstall":"curl x"}}"#,
        ),
        ("src/lib.rs", "x"),
    ] {
        let path = user.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    executable(&user.join("tool"), "#!/bin/sh\n");
    let tip = commit_all(&user, "agent");
    let source = Source::Local(user);
    let repository = Repository::open(&GitProgram::default(), &source, &dir.path().join("git"))
        .await
        .unwrap();
    let diff = repository.phase_diff(&base, &tip, 1 << 20).await.unwrap();
    let later = repository.runs_later(&diff).await.unwrap();
    let mut found: Vec<(String, LaterKind)> = later
        .iter()
        .map(|item| (String::from_utf8_lossy(&item.path).into_owned(), item.kind))
        .collect();
    found.sort();
    let expected = [
        (".claude/settings.json", LaterKind::AgentSettings),
        (".codex/config.toml", LaterKind::AgentSettings),
        (".envrc", LaterKind::ShellEnvironment),
        (".github/workflows/ci.yml", LaterKind::Ci),
        (".husky/pre-commit", LaterKind::GitHook),
        (".mcp.json", LaterKind::AgentSettings),
        (".vscode/tasks.json", LaterKind::EditorSettings),
        ("AGENTS.md", LaterKind::AgentInstructions),
        ("package.json", LaterKind::PackageScript),
        ("tool", LaterKind::ExecutableBit),
    ];
    assert_eq!(found, expected.map(|(path, kind)| (path.to_owned(), kind)));
    let package = later
        .iter()
        .find(|item| item.kind == LaterKind::PackageScript)
        .unwrap();
    assert!(
        package.why.contains("scripts.postinstall") && !package.why.contains("scripts.test"),
        "{}",
        package.why
    );
    let other = repository.phase_diff(&tip, &base, 1 << 20).await.unwrap();
    assert_ne!(other.digest, diff.digest);
    let same = repository.diff_digest(&base, &tip).await.unwrap();
    assert_eq!(same, diff.digest);
    let (cut, complete) = {
        let cut = repository.phase_diff(&base, &tip, 10).await.unwrap();
        (cut.patch.len(), cut.patch_complete)
    };
    assert_eq!((cut, complete), (10, bulkhead_git::Complete::Cut));
}

#[test]
fn the_documentation_names_every_pattern_of_the_table() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/git.md");
    let text = fs::read_to_string(docs).unwrap();
    let missing: Vec<String> = documented_patterns()
        .into_iter()
        .filter(|pattern| !text.contains(&format!("`{pattern}`")))
        .collect();
    assert_eq!(
        missing,
        Vec::<String>::new(),
        "docs/git.md does not name them"
    );
}
