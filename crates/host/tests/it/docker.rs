//! Containers as hosts, on real engines of the tests' own.

use std::{path::Path, sync::Arc};

use bulkhead_host::{
    Command, ContainerLimits, DockerConfig, DockerHost, ExitStatus, Host, HostError, LocalConfig,
    LocalHost, Mount, MountAccess, NoNewPrivileges, Process, Root, Security, Signal, Stdio, Target,
    TerminalSize,
};
use bulkhead_test_hosts::ContainerEngine;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn local() -> Arc<dyn Host> {
    Arc::new(LocalHost::new(LocalConfig::new("/tmp")))
}

/// A container that has the machine's programs, and nothing else of it.
pub(crate) fn config(engine: &ContainerEngine) -> DockerConfig {
    let mut config = DockerConfig::new(ContainerEngine::IMAGE);
    config.socket = engine.socket();
    config.user = Some("1000:1000".to_owned());
    config.mounts = vec![Mount::Bind {
        source: "/usr".into(),
        target: "/usr".into(),
        access: MountAccess::Read,
    }];
    config
}

fn hardened(engine: &ContainerEngine) -> DockerConfig {
    let mut config = config(engine);
    config.root = Root::ReadOnly;
    config.limits = ContainerLimits {
        memory_bytes: Some(256 << 20),
        cpu_millis: Some(1000),
        processes: Some(64),
    };
    config.security = Security {
        no_new_privileges: NoNewPrivileges::Yes,
        drop_capabilities: vec!["ALL".to_owned()],
        ..Security::default()
    };
    config.mounts.push(Mount::Tmpfs {
        target: "/tmp".into(),
        size_bytes: 16 << 20,
    });
    config
}

async fn output(host: &dyn Host, line: &str) -> String {
    let mut process = host.spawn(Command::shell(line)).await.unwrap();
    said(&mut process).await
}

async fn said(process: &mut Process) -> String {
    let mut text = String::new();
    let stdout = process.stdout.as_mut().unwrap();
    stdout.read_to_string(&mut text).await.unwrap();
    text
}

fn engines() -> [ContainerEngine; 2] {
    [ContainerEngine::docker(), ContainerEngine::podman()]
}

#[tokio::test]
async fn h2_h3_an_unused_container_is_never_asked_for() {
    let mut config = DockerConfig::new("nothing");
    config.socket = "/no/such/engine.sock".into();
    let host = DockerHost::new(local(), config);
    assert!(!host.is_connected());
    host.isolation();
    host.files();
    host.teardown().await.unwrap();
}

#[tokio::test]
async fn h12_first_uses_make_one_container_and_the_teardown_leaves_none() {
    for engine in engines() {
        let host = DockerHost::new(local(), config(&engine));
        let uses = (0..8).map(|n| {
            let command = Command::shell(&format!("echo {n} >> /tmp/seen; exit {n}"));
            let host = &host;
            async move { host.spawn(command).await.unwrap().control.wait().await }
        });
        let statuses = futures::future::join_all(uses).await;
        let expected: Vec<_> = (0..8).map(ExitStatus::Code).collect();
        assert_eq!(statuses, expected);
        assert_eq!(
            output(&host, "sort -n /tmp/seen | tr '\\n' ' '").await,
            "0 1 2 3 4 5 6 7 "
        );
        let name = host.container_name().to_owned();
        assert!(engine.containers().contains(&name));
        let mut sleeps = host
            .spawn(Command::shell("setsid sleep 1000 & echo on; sleep 1000"))
            .await
            .unwrap();
        sleeps
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut [0; 3])
            .await
            .unwrap();
        host.teardown().await.unwrap();
        assert_eq!(sleeps.control.wait().await, ExitStatus::HostEnded);
        assert!(!engine.containers().contains(&name));
        assert!(!host.is_connected());
        let after = host.spawn(Command::new(["true"])).await;
        assert!(matches!(after, Err(HostError::Gone { .. })), "{after:?}");
        host.teardown().await.unwrap();
    }
}

#[tokio::test]
async fn h12_every_limit_and_right_is_the_one_that_was_asked_for() {
    for engine in engines() {
        let host = DockerHost::new(local(), hardened(&engine));
        let status = output(&host, "cat /proc/self/status").await;
        for line in [
            "Uid:\t1000\t1000\t1000\t1000",
            "CapBnd:\t0000000000000000",
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
        ] {
            assert!(status.contains(line), "{line} is not in {status}");
        }
        assert_eq!(output(&host, "ls /sys/class/net").await, "lo\n");
        let written = output(
            &host,
            "touch /x 2>&1; touch /usr/x 2>&1; echo yes > /tmp/x; cat /tmp/x",
        )
        .await;
        assert_eq!(
            written.matches("Read-only file system").count(),
            2,
            "{written}"
        );
        assert!(written.ends_with("yes\n"), "{written}");
        let forks = "import os\ncount = 0\ntry:\n    while count < 200:\n        if os.fork() == 0: os.pause() if hasattr(os, 'pause') else __import__('signal').pause()\n        count += 1\nexcept BlockingIOError: print('held at', count < 64)\nos.killpg(0, 9)";
        let mut process = host
            .spawn(Command::new(["python3", "-c", forks]).env("PYTHONUNBUFFERED", "1"))
            .await
            .unwrap();
        assert_eq!(said(&mut process).await, "held at True\n");
        let hog = Command::new(["python3", "-c", "x = bytearray(1 << 30)"]);
        let process = host.spawn(hog).await.unwrap();
        assert_eq!(process.control.wait().await, ExitStatus::Signal(9));
        assert_eq!(
            host.isolation().last().unwrap().weakened,
            Vec::<String>::new()
        );
        host.teardown().await.unwrap();
    }
}

#[tokio::test]
async fn h12_an_image_that_is_not_there_is_an_error_with_a_remedy_and_leaves_nothing() {
    for engine in engines() {
        let mut config = config(&engine);
        config.image = "bulkhead-no-such-image:1".to_owned();
        let host = DockerHost::new(local(), config);
        let refused = host.spawn(Command::new(["true"])).await;
        let error = std::error::Error::source(&refused.unwrap_err())
            .unwrap()
            .to_string();
        assert!(
            error.contains("bulkhead-no-such-image:1") && error.contains("pull"),
            "{error}"
        );
        assert!(!host.is_connected());
        assert!(
            !engine
                .containers()
                .contains(&host.container_name().to_owned())
        );
    }
}

#[tokio::test]
async fn h12_a_container_that_cannot_start_leaves_nothing() {
    for engine in engines() {
        let mut config = config(&engine);
        config.mounts.push(Mount::Bind {
            source: "/usr/bin/true".into(),
            target: "/usr".into(),
            access: MountAccess::Read,
        });
        config.workdir = Some("/etc/passwd".to_owned());
        let host = DockerHost::new(local(), config);
        let refused = host.spawn(Command::new(["true"])).await;
        assert!(
            matches!(refused, Err(HostError::Connect { .. })),
            "{refused:?}"
        );
        assert!(!host.is_connected());
        assert!(
            !engine
                .containers()
                .contains(&host.container_name().to_owned())
        );
    }
}

#[tokio::test]
async fn h4_whoever_knows_the_name_can_remove_a_container_whose_session_is_gone() {
    for engine in engines() {
        let host = DockerHost::new(local(), config(&engine));
        output(&host, "true").await;
        let name = host.container_name().to_owned();
        DockerHost::remove(local(), Path::new(&engine.socket()), &name)
            .await
            .unwrap();
        assert!(!engine.containers().contains(&name));
        DockerHost::remove(local(), Path::new(&engine.socket()), &name)
            .await
            .unwrap();
        host.teardown().await.unwrap();
    }
}

#[tokio::test]
async fn h14_a_container_ends_with_its_connection() {
    for engine in engines() {
        let host = DockerHost::new(local(), config(&engine));
        host.spawn(Command::shell("trap '' TERM HUP; sleep 1000"))
            .await
            .unwrap();
        let name = host.container_name().to_owned();
        assert!(engine.containers().contains(&name));
        drop(host);
        let gone = async {
            while engine.containers().contains(&name) {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), gone)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn h12_a_container_may_have_another_kernel() {
    let engine = ContainerEngine::docker();
    let mut config = config(&engine);
    config.runtime = Some("runsc".to_owned());
    config.limits.processes = Some(1024);
    let host = DockerHost::new(local(), config);
    // gVisor's kernel has a version of its own.
    assert_eq!(
        output(&host, "cat /proc/version | cut -d' ' -f3").await,
        "4.4.0\n"
    );
    let command = Command::shell("cat; echo wrong >&2; exit 7").stdio(Stdio::PIPES);
    let mut process = host.spawn(command).await.unwrap();
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(b"typed").await.unwrap();
    stdin.shutdown().await.unwrap();
    drop(stdin);
    assert_eq!(said(&mut process).await, "typed");
    assert_eq!(process.control.wait().await, ExitStatus::Code(7));
    let sleeps = host.spawn(Command::new(["sleep", "1000"])).await.unwrap();
    sleeps
        .control
        .signal(Signal::Kill, Target::Group)
        .await
        .unwrap();
    assert_eq!(sleeps.control.wait().await, ExitStatus::Signal(9));
    let size = TerminalSize {
        rows: 24,
        columns: 80,
    };
    let terminal = Command::shell("stty size").stdio(Stdio::Terminal(size));
    let mut process = host.spawn(terminal).await.unwrap();
    assert_eq!(said(&mut process).await, "24 80\r\n");
    host.teardown().await.unwrap();
}
