//! Sandboxes on hosts that are not the runner's own machine: here in a container, and on the machine as if it were another.

use std::sync::Arc;

use bulkhead_host::{
    Command, DockerConfig, DockerHost, ExitStatus, Host, HostError, LocalConfig, LocalHost,
    NoNewPrivileges, Process, Seccomp, Security, SystemPaths, WrapConfig, WrappedSandboxHost,
};
use bulkhead_test_hosts::ContainerEngine;
use tokio::io::AsyncReadExt as _;

use crate::docker;

fn local() -> Arc<dyn Host> {
    Arc::new(LocalHost::new(LocalConfig::new("/tmp")))
}

/// The least that lets bubblewrap build its walls in a container.
pub(crate) fn open_container(engine: &ContainerEngine) -> DockerConfig {
    let mut config = docker::config(engine);
    config.security = Security {
        seccomp: Seccomp::Unconfined,
        system_paths: SystemPaths::Shown,
        no_new_privileges: NoNewPrivileges::Yes,
        drop_capabilities: vec!["ALL".to_owned()],
        ..Security::default()
    };
    config
}

async fn said(process: &mut Process) -> String {
    let mut text = String::new();
    let stdout = process.stdout.as_mut().unwrap();
    stdout.read_to_string(&mut text).await.unwrap();
    text
}

async fn output(host: &dyn Host, line: &str) -> String {
    let mut process = host.spawn(Command::shell(line)).await.unwrap();
    said(&mut process).await
}

async fn walls_stand(host: &dyn Host) {
    let status = output(host, "cat /proc/self/status; cat /proc/1/comm").await;
    for line in [
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "\ninit\n",
    ] {
        assert!(status.contains(line), "{line} is not in {status}");
    }
    assert_eq!(
        output(
            host,
            "ls /sys/class/net 2>/dev/null; cut -d: -f1 -s /proc/net/dev | grep -v face | tr -d ' '"
        )
        .await,
        "lo\n"
    );
    assert_eq!(
        output(
            host,
            "ls -A /root /etc/shadow /etc/ssh 2>/dev/null; pwd; echo x > /tmp/y; cat /tmp/y"
        )
        .await,
        "/home/agent\nx\n"
    );
    let tried = output(
        host,
        "touch /usr/x 2>&1; touch /x 2>&1; unshare -U true 2>&1; echo",
    )
    .await;
    assert_eq!(tried.matches("Read-only file system").count(), 2, "{tried}");
    assert!(tried.contains("unshare: "), "{tried}");
}

#[tokio::test]
async fn h2_h3_an_unused_sandbox_uses_nothing_of_the_host_before_it() {
    let outer = local();
    let host = WrappedSandboxHost::new(Arc::clone(&outer), WrapConfig::default());
    host.isolation();
    host.files();
    host.teardown().await.unwrap();
    assert!(!host.is_connected() && !outer.is_connected());
}

#[tokio::test]
async fn h11_the_walls_of_bubblewrap_stand_and_end_with_everything_in_them() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["work", "data", "data/secret"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    std::fs::write(dir.path().join("data/open"), "open").unwrap();
    std::fs::write(dir.path().join("data/closed"), "closed").unwrap();
    std::fs::write(dir.path().join("data/secret/key"), "key").unwrap();
    let path = |name: &str| dir.path().join(name);
    let config = WrapConfig {
        writable: vec![path("work")],
        readable: vec![path("data")],
        hidden: vec![path("data/secret"), path("data/closed"), path("none")],
        workdir: Some(path("work")),
        env: [("WORD".to_owned(), "a b\n'".to_owned())].into(),
        ..WrapConfig::default()
    };
    let outer = local();
    let host = WrappedSandboxHost::new(Arc::clone(&outer), config);
    let line = "echo made > made; cat ../data/open ../data/closed; ls ../data/secret; touch ../data/x ../data/secret/x 2>&1 | grep -c Read-only; printf %s \"$WORD\"";
    assert_eq!(output(&host, line).await, "open2\na b\n'");
    assert_eq!(
        std::fs::read_to_string(path("work/made")).unwrap(),
        "made\n"
    );
    assert_eq!(output(&host, "ls /tmp").await, "");
    let mut sleeps = host
        .spawn(Command::shell("setsid sleep 1234 & echo on; sleep 1234"))
        .await
        .unwrap();
    sleeps
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut [0; 3])
        .await
        .unwrap();
    // Processes see one another: it is one sandbox.
    let both = "until [ $(cat /proc/[0-9]*/comm | grep -c sleep) = 2 ]; do :; done; echo both";
    assert_eq!(output(&host, both).await, "both\n");
    host.teardown().await.unwrap();
    assert_eq!(sleeps.control.wait().await, ExitStatus::HostEnded);
    let left = output(
        &*outer,
        "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 123[4]'",
    )
    .await;
    assert_eq!(left, "0\n");
    assert!(matches!(
        host.spawn(Command::new(["true"])).await,
        Err(HostError::Gone { .. })
    ));
    outer.teardown().await.unwrap();
}

#[tokio::test]
async fn h4_h11_a_sandbox_in_a_container_has_walls_of_its_own() {
    for engine in [ContainerEngine::docker(), ContainerEngine::podman()] {
        let outer = Arc::new(DockerHost::new(local(), open_container(&engine)));
        let host = WrappedSandboxHost::new(outer.clone() as Arc<dyn Host>, WrapConfig::default());
        walls_stand(&host).await;
        let layers = host.isolation();
        let kinds: Vec<_> = layers.iter().map(|layer| layer.kind).collect();
        assert_eq!(kinds, ["local", "docker", "sandbox"]);
        assert_eq!(layers[1].weakened.len(), 2, "{layers:?}");
        host.teardown().await.unwrap();
        let line = "for name in init bwrap; do cat /proc/[0-9]*/comm | grep -c -x $name; done";
        assert_eq!(output(&*outer, line).await, "1\n0\n");
        assert_eq!(output(&*outer, "ls -A /tmp").await, "");
        outer.teardown().await.unwrap();
    }
}

#[tokio::test]
async fn h11_where_the_walls_cannot_stand_nothing_runs_and_the_remedy_is_said() {
    let engine = ContainerEngine::docker();
    let outer = Arc::new(DockerHost::new(local(), docker::config(&engine)));
    let host = WrappedSandboxHost::new(outer.clone() as Arc<dyn Host>, WrapConfig::default());
    let refused = host.spawn(Command::new(["true"])).await;
    let Err(HostError::Refused(words)) = refused else {
        panic!("{refused:?}")
    };
    assert!(
        words.contains("seccomp: unconfined") && words.contains("bwrap:"),
        "{words}"
    );
    assert_eq!(output(&*outer, "ls -A /tmp").await, "");
    outer.teardown().await.unwrap();
}

#[tokio::test]
async fn h11_without_bubblewrap_nothing_runs_and_the_package_is_named() {
    let outer: Arc<dyn Host> = {
        let mut config = LocalConfig::new("/tmp");
        config.env.insert("PATH".to_owned(), "/no/such".to_owned());
        Arc::new(LocalHost::new(config))
    };
    let host = WrappedSandboxHost::new(outer, WrapConfig::default());
    let refused = host.spawn(Command::new(["true"])).await;
    assert!(
        matches!(
            &refused,
            Err(HostError::Refused(_) | HostError::Connect { .. })
        ),
        "{refused:?}"
    );
}

#[tokio::test]
async fn h11_a_path_that_climbs_is_refused() {
    let config = WrapConfig {
        readable: vec!["/srv/../etc".into()],
        ..WrapConfig::default()
    };
    let host = WrappedSandboxHost::new(local(), config);
    let refused = host.spawn(Command::new(["true"])).await;
    assert!(matches!(refused, Err(HostError::Refused(_))));
}
