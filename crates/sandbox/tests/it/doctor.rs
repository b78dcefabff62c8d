//! `bulkhead doctor`: each boundary is probed for real.

use bulkhead_sandbox::{EngineConfig, doctor};

/// R3, case 54: on this machine every boundary can be built, and each is named.
#[tokio::test]
async fn case_54_every_boundary_is_probed() {
    let dir = tempfile::tempdir().unwrap();
    let checks = doctor::checks(EngineConfig::new(dir.path().join("run"))).await;
    for check in &checks {
        assert!(check.ok, "{check:?}");
        assert_eq!(check.remedy, None);
    }
    let expected = [
        "user-namespace",
        "pid-namespace",
        "mount-namespace",
        "network-namespace",
        "ipc-namespace",
        "uts-namespace",
        "cgroup-namespace",
        "landlock",
        "seccomp",
        "cgroup-removal",
        "disk-limit",
        "sandbox",
        "egress-denied",
        "metadata-denied",
        "read-only-system",
        "init-protected",
        "system-calls-refused",
        "door-reachable",
        "workspace-writable",
        "no-rights",
        "listeners-passed",
        "no-survivors",
    ];
    for name in expected {
        assert!(
            checks.iter().any(|check| check.name == name),
            "{name} is missing in {checks:?}"
        );
    }
    assert!(
        checks
            .iter()
            .any(|check| check.name.starts_with("limit-pids.max"))
    );
}
