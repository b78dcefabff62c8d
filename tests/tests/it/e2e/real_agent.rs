//! A real agent's command line through the whole product: control plane, executor, session, sandbox, git gateway, and
//! the model gateway that adds the credential on the way out.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use bulkhead_fake_model::{FakeModel, Script};
use bulkhead_server::{ModelUpstream, RunStatus};

use super::machine::Machine;
use crate::{repo, toolchain};

/// Cut in two, so that no file of the test's own holds it whole.
const CANARY: [&str; 2] = ["upstream-credential-", "canary-5d1f0c77aa"];

/// What stands before the agent in the sandbox and looks for the credential in everything that the agent could reach.
const LOOKER: &str = r#"#!/bin/sh
word=@HEAD@; word=${word}@TAIL@
{
    env
    cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\0' '\n'
    printf '%s\n' "$word" | grep -rlFf - /workspace /home /root /etc /run /tmp /var | sed 's/^/found: /'
    echo looked
} >/workspace/inside.txt 2>/dev/null
exec @REAL@ "$@"
"#;

/// A toolchain whose `claude` looks around first and then becomes the real one.
fn looker(dir: &Path, real: &Path) -> PathBuf {
    let real = real.join("node_modules/.bin/claude");
    let text = LOOKER
        .replace("@HEAD@", CANARY[0])
        .replace("@TAIL@", CANARY[1])
        .replace("@REAL@", &real.display().to_string());
    let program = dir.join("bin/claude");
    fs::create_dir_all(dir.join("bin")).unwrap();
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    dir.to_owned()
}

/// The files below a directory that hold this word, whatever they are. Left out are the blank images that workspaces are
/// copied from: no sandbox has written to them, and they are gigabytes of nothing.
fn files_with(word: &str, dir: &Path) -> String {
    let grep = [
        "-rlaF",
        "--devices=skip",
        "--exclude-dir=images",
        "-e",
        word,
    ];
    let found = Command::new("grep").args(grep).arg(dir).output().unwrap();
    String::from_utf8(found.stdout).unwrap()
}

fn holds(bytes: &[u8], word: &str) -> bool {
    bytes
        .windows(word.len())
        .any(|window| window == word.as_bytes())
}

/// D7, D13, R6, R17: the run completes with the agent's edit on its branch; the model saw the operator's credential and
/// nothing else, and the credential is nowhere else: not in the sandbox, the logs, the events or the repository.
#[tokio::test]
async fn d13_claude_does_a_run_through_the_whole_product_and_never_holds_the_credential() {
    let canary = CANARY.concat();
    let text = "hello from the model\n".to_owned();
    let path = "/workspace/greeting.txt".to_owned();
    let model = FakeModel::start(Script::Edit { path, text }).await.unwrap();
    let real = toolchain::installed("claude");
    // Beside the cache: a place that sandboxes may show.
    let own = tempfile::Builder::new()
        .prefix("looker-")
        .tempdir_in(real.parent().unwrap())
        .unwrap();
    fs::set_permissions(own.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let toolchains = [looker(own.path(), &real), real];
    let workflow = format!(
        "name: Agent\nphases:\n  - name: greet\n    agent: claude\n    prompt: Write a greeting into greeting.txt\n    toolchains: [{}, {}]\n    gate: none\n",
        toolchains[0].display(),
        toolchains[1].display()
    );
    let upstream = ModelUpstream {
        base_url: format!("http://{}", model.address()).parse().unwrap(),
        header: "x-api-key".to_owned(),
        credential: Some(canary.clone().into()),
        allow_private: true,
    };
    let machine = Machine::start_with(&workflow, |config| {
        config.toolchains = toolchains.to_vec();
        config.models.insert("anthropic".to_owned(), upstream);
    })
    .await;
    let run = machine.run().await;
    let ended = machine
        .until(&run, |run| run.status.is_final() || run.gate.is_some())
        .await;
    let log = machine.log(&run, "greet").await;
    assert_eq!(ended.status, RunStatus::Completed, "{ended:#?}\n{log}");
    let (repository, branch) = (machine.repository(), ended.branch.unwrap());
    let show = |file| repo::git(&repository, &["show", &format!("{branch}:{file}")]);
    assert_eq!(show("greeting.txt"), "hello from the model");

    let inside = show("inside.txt");
    assert!(inside.contains("ANTHROPIC_API_KEY="), "{inside}");
    assert!(
        inside.ends_with("looked") && !inside.contains("found: "),
        "{inside}"
    );
    assert!(!inside.contains(&canary), "{inside}");

    let seen = model.seen();
    assert!(!seen.is_empty());
    for request in &seen {
        let keys: Vec<_> = request.headers.get_all("x-api-key").iter().collect();
        assert_eq!(keys, [canary.as_str()], "{request:?}");
        assert!(
            !request.headers.contains_key("authorization"),
            "{request:?}"
        );
        assert!(!holds(&request.body, &canary));
    }

    machine.plane.shutdown().await;
    let objects = ["cat-file", "--batch-all-objects", "--batch", "--buffer"];
    let output = repo::command(&repository).args(objects).output().unwrap();
    assert!(output.status.success() && holds(&output.stdout, "hello from the model"));
    assert!(!holds(&output.stdout, &canary));
    assert!(files_with("greet", machine.root()).contains("/data/"));
    assert_eq!(files_with(&canary, machine.root()), "");
}
