//! What is missing is refused, in words, with the remedy (R3, case 54).

use std::process::Command;

use bulkhead_sandbox::{CreateError, Engine, EngineConfig, Plan, Workspace};

/// A user to whom nothing is delegated.
const NOBODY: u32 = 65_534;

/// Runs as an ordinary user, for the test below.
#[tokio::test]
#[ignore = "started by the test below, as a process of its own"]
async fn helper_unprivileged() {
    let dir = std::env::var_os("BULKHEAD_TEST_DIR").unwrap();
    let refusal = Engine::probe(EngineConfig::new(dir)).await.unwrap_err();
    assert!(refusal.to_string().starts_with("refused"), "{refusal}");
    assert!(refusal.boundary.contains("limit"), "{refusal}");
    assert!(refusal.remedy.contains("Delegate"), "{refusal}");
}

/// R3, case 54: not as root and without a delegated cgroup subtree there is a refusal with its remedy, and no sandbox.
#[test]
fn case_54_an_unprivileged_user_is_refused() {
    use std::os::unix::{fs::PermissionsExt as _, process::CommandExt as _};
    let dir = tempfile::tempdir().unwrap();
    // The test binary lies where only root may go.
    let program = dir.path().join("it");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let output = Command::new(&program)
        .args(["--ignored", "--exact", "refusal::helper_unprivileged"])
        .env("BULKHEAD_TEST_DIR", dir.path().join("run"))
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// R3: variables that other tools take as a switch change nothing.
#[tokio::test]
async fn r3_no_variable_weakens_it() {
    let place = crate::support::place().await;
    let script = "grep -E '^(Seccomp|NoNewPrivs|CapBnd)' /proc/self/status | tr -d '\\n\\t '";
    let sandbox = place.engine.create(crate::support::plan()).await.unwrap();
    let spec = crate::support::shell(script)
        .env("BULKHEAD_SANDBOX", "off")
        .env("IS_SANDBOX", "0")
        .env("LD_PRELOAD", "/tmp/x.so");
    let said = crate::support::say(&sandbox, spec).await;
    assert_eq!(
        said.stdout,
        "CapBnd:0000000000000000NoNewPrivs:1Seccomp:2Seccomp_filters:1"
    );
}

/// Runs in a mount namespace with an overlay at `OVERLAY`, for the test below.
#[tokio::test]
#[ignore = "started by the test below, as a process of its own"]
async fn helper_overlay() {
    let place = crate::support::place().await;
    let dir = std::path::PathBuf::from(std::env::var_os("OVERLAY").unwrap());
    let plan = Plan {
        workspace: Workspace::Directory(dir.clone()),
        ..crate::support::plan()
    };
    let error = place.engine.create(plan).await.unwrap_err();
    let CreateError::Refused(refusal) = error else {
        panic!("{error:?}");
    };
    assert_eq!(refusal.boundary, "workspace");
    assert!(refusal.seen.contains(dir.to_str().unwrap()), "{refusal}");
    assert!(refusal.remedy.contains("overlayfs"), "{refusal}");
}

/// R3: a shared directory whose files' owner cannot be mapped is refused with the remedy, and nothing of the sandbox is left.
#[test]
fn r3_a_directory_on_an_overlay_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let script = "cd \"$1\" && mkdir lower upper work all && \
        mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work all && \
        OVERLAY=\"$1/all\" exec \"$0\" --ignored --exact refusal::helper_overlay";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg(dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
