//! R3, case 54: where a boundary cannot be built nothing runs, the code is 3, and the words name the boundary and the remedy.

use std::{ffi::OsString, process::Output};

use crate::program::World;

/// The program on a machine without control groups: a mount namespace in which their tree is empty.
fn without_cgroups(world: &World, arguments: &[&str]) -> Output {
    let inner = world.command(arguments);
    let mut command = world.command([""; 0]);
    let program = inner.get_program().to_owned();
    let hide = "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"";
    let words = [
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        hide,
        "sh",
    ]
    .map(OsString::from);
    let mut outer = std::process::Command::new("unshare");
    outer
        .args(words)
        .arg(program)
        .args(arguments)
        .current_dir(world.path())
        .env_clear();
    for (name, value) in command.stdin(std::process::Stdio::null()).get_envs() {
        outer.env(name, value.unwrap_or_default());
    }
    outer.output().unwrap()
}

#[test]
fn r3_case_54_without_a_boundary_nothing_runs_and_the_code_is_3() {
    let world = World::new();
    std::fs::write(
        world.path().join("w.yaml"),
        "name: x\nphases:\n  - name: a\n    run: touch ran\n    gate: none\n",
    )
    .unwrap();
    for arguments in [
        &["run", "w.yaml", "--yes", "--json"][..],
        &["demo", "--yes", "--json"],
        &["doctor", "--json"],
    ] {
        let ended = without_cgroups(&world, arguments);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(3), "{arguments:?}: {said}");
        let object: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
        if arguments[0] == "doctor" {
            assert_eq!(object["isolates"], false);
            let missing = object["checks"]
                .as_array()
                .unwrap()
                .iter()
                .find(|check| check["ok"] == false);
            assert!(missing.unwrap()["remedy"].is_string(), "{object}");
        } else {
            assert_eq!(object["error"]["kind"], "refused");
            assert!(
                said.contains("cgroup") && said.contains("What to do"),
                "{said}"
            );
        }
    }
}

#[test]
fn r3_section_6_sandbox_exec_refuses_with_125_and_runs_nothing() {
    let world = World::new();
    let ended = without_cgroups(&world, &["sandbox", "exec", "--", "echo", "ran"]);
    assert_eq!(ended.status.code(), Some(125));
    assert_eq!(ended.stdout, b"");
}
