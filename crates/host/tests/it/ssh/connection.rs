//! When it connects, to whom it refuses to, and what is left of it.

use std::{error::Error as _, path::Path, sync::Arc};

use bulkhead_host::{
    Command, FileSystem, Follow, Host, HostError, SshError, SshHost, WriteOptions,
};
use bulkhead_test_hosts::{Account, Sshd, SshdOptions};

use super::{config, host, output};

#[tokio::test]
async fn h2_h3_describing_asking_and_tearing_down_send_no_packet() {
    let sshd = Sshd::start();
    let host = host(&sshd);
    assert_eq!(host.describe(), "ssh target");
    let _files = host.files();
    let layers = host.isolation();
    assert_eq!(layers[0].kind, "ssh");
    assert!(layers[0].host.contains("127.0.0.1"), "{}", layers[0].host);
    host.teardown().await.unwrap();
    assert!(!host.is_connected());
    assert_eq!(sshd.accepted(), 0);
    let after = host.spawn(Command::new(["true"])).await;
    assert!(matches!(after, Err(HostError::Gone { .. })));
    assert_eq!(sshd.accepted(), 0);
}

#[tokio::test]
async fn h3_fifty_first_uses_at_once_open_one_connection() {
    let sshd = Sshd::start();
    let host = host(&sshd);
    let uses = (0..50).map(|n| {
        let host = &host;
        async move {
            match n % 3 {
                0 => output(host, Command::new(["echo", "x"])).await,
                1 => {
                    let files = host.files();
                    files.stat(Path::new("."), Follow::Yes).await.unwrap();
                    "x\n".to_owned()
                }
                _ => output(host, Command::shell("echo x")).await,
            }
        }
    });
    let all = futures::future::join_all(uses).await;
    assert!(all.iter().all(|text| text == "x\n"));
    assert_eq!(sshd.accepted(), 1);
    host.teardown().await.unwrap();
    assert_eq!(sshd.accepted(), 1);
}

/// The server's limit is 10 by default and 3 here; neither is told to anybody.
#[tokio::test]
async fn h13_a_thousand_processes_at_once_beyond_max_sessions_all_run_heavy() {
    for max_sessions in [10, 3] {
        let sshd = Sshd::start_with(SshdOptions {
            max_sessions,
            ..SshdOptions::default()
        });
        let host = host(&sshd);
        let count = if max_sessions == 10 { 1000 } else { 100 };
        let all = (0..count)
            .map(|n: u32| output(&host, Command::new(["echo".to_owned(), n.to_string()])));
        let all = futures::future::join_all(all).await;
        let expected: Vec<_> = (0..count).map(|n| format!("{n}\n")).collect();
        assert_eq!(all, expected);
        assert_eq!(sshd.accepted(), 1);
        host.teardown().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_lets_open_nothing_more_is_named_with_the_remedy() {
    let sshd = Sshd::start_with(SshdOptions {
        max_sessions: 1,
        ..SshdOptions::default()
    });
    let error = host(&sshd).spawn(Command::new(["true"])).await.unwrap_err();
    let words = error.source().unwrap().to_string();
    assert!(words.contains("MaxSessions"), "{words}");
}

async fn refusal(host: &SshHost) -> Arc<dyn std::error::Error + Send + Sync> {
    match host.spawn(Command::new(["true"])).await {
        Err(HostError::Connect { source, .. }) => source,
        other => panic!("it was not refused: {other:?}"),
    }
}

#[tokio::test]
async fn h13_unknown_and_changed_host_keys_are_refused_whatever_the_configuration_says() {
    let sshd = Sshd::start();
    sshd.configure_client("  StrictHostKeyChecking no");
    let known = std::fs::read_to_string(sshd.known_hosts()).unwrap();
    std::fs::write(sshd.known_hosts(), "").unwrap();
    let unknown = refusal(&host(&sshd)).await;
    let unknown = unknown.downcast_ref::<SshError>().unwrap();
    assert!(matches!(unknown, SshError::UnknownKey { .. }), "{unknown}");
    assert_eq!(std::fs::read_to_string(sshd.known_hosts()).unwrap(), "");
    let other = std::fs::read_to_string(sshd.dir().join("user_key.pub")).unwrap();
    let place = known.split(' ').next().unwrap();
    std::fs::write(sshd.known_hosts(), format!("{place} {other}")).unwrap();
    let changed = refusal(&host(&sshd)).await;
    let changed = changed.downcast_ref::<SshError>().unwrap();
    assert!(matches!(changed, SshError::ChangedKey { .. }), "{changed}");
}

#[tokio::test]
async fn a_key_that_is_not_accepted_and_a_port_without_a_server_are_said() {
    let sshd = Sshd::start();
    std::fs::write(sshd.dir().join("authorized_keys"), "").unwrap();
    let denied = refusal(&host(&sshd)).await;
    assert!(
        matches!(denied.downcast_ref(), Some(SshError::Denied { .. })),
        "{denied}"
    );
    let address = sshd.address();
    let closed = config(&sshd);
    drop(sshd);
    let nobody = refusal(&SshHost::new(closed)).await;
    // The configuration went with the server, or the port answers nobody: ssh says which.
    assert!(
        matches!(nobody.downcast_ref(), Some(SshError::Ssh(_))),
        "{nobody} {address}"
    );
}

#[tokio::test]
async fn a_name_that_ssh_would_take_for_an_option_is_refused() {
    for name in ["-oProxyCommand=touch /tmp/x", "", "a b", "$(x)", "x;y"] {
        let refused = refusal(&SshHost::new(bulkhead_host::SshConfig::new(name))).await;
        assert!(
            matches!(refused.downcast_ref(), Some(SshError::Name(_))),
            "{name}"
        );
    }
}

#[tokio::test]
async fn an_account_that_may_run_nothing_is_said() {
    let sshd = Sshd::start_with(SshdOptions {
        shell: "/usr/sbin/nologin".into(),
        ..SshdOptions::default()
    });
    if sshd.user() != "tester" {
        return;
    }
    let refused = refusal(&host(&sshd)).await;
    assert!(
        matches!(refused.downcast_ref(), Some(SshError::NoShell(_))),
        "{refused}"
    );
}

#[tokio::test]
async fn h4_teardown_ends_the_connection_its_processes_and_its_directory() {
    let sshd = Sshd::start();
    let run_dir = tempfile::tempdir().unwrap();
    let mut config = config(&sshd);
    config.run_dir = run_dir.path().to_owned();
    let host = SshHost::new(config);
    let sleep = host.spawn(Command::new(["sleep", "1000"])).await.unwrap();
    let _files = host
        .files()
        .stat(Path::new("."), Follow::Yes)
        .await
        .unwrap();
    assert_eq!(run_dir.path().read_dir().unwrap().count(), 1);
    host.teardown().await.unwrap();
    host.teardown().await.unwrap();
    assert_eq!(run_dir.path().read_dir().unwrap().count(), 0);
    sleep.control.wait().await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !sshd.servers().is_empty() || !sshd.processes().is_empty() {
        assert!(
            std::time::Instant::now() < deadline,
            "{:?}",
            sshd.processes()
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_connection_that_breaks_ends_its_processes_here_too() {
    let sshd = Sshd::start();
    let host = host(&sshd);
    let sleep = host.spawn(Command::new(["sleep", "1000"])).await.unwrap();
    let files = host.files();
    files.stat(Path::new("."), Follow::Yes).await.unwrap();
    for server in sshd.servers() {
        let pid = rustix::process::Pid::from_raw(server.cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    assert_eq!(
        sleep.control.wait().await,
        bulkhead_host::ExitStatus::HostEnded
    );
    let error = files.stat(Path::new("."), Follow::Yes).await.unwrap_err();
    assert!(
        ["ECONNRESET", "ECONNREFUSED"].contains(&error.code.name()),
        "{error}"
    );
    host.spawn(Command::new(["true"])).await.unwrap_err();
    host.teardown().await.unwrap();
}

#[tokio::test]
async fn h16_agent_forwarding_of_the_users_configuration_is_a_weakening() {
    let sshd = Sshd::start();
    assert_eq!(host(&sshd).isolation()[0].weakened, Vec::<String>::new());
    sshd.configure_client("  ForwardAgent yes");
    let weakened = &host(&sshd).isolation()[0].weakened;
    assert!(weakened[0].contains("ForwardAgent"), "{weakened:?}");
    assert_eq!(sshd.accepted(), 0);
}

/// Every login shell starts the same `/bin/sh`, and what a start-up file prints is not the program's output.
#[tokio::test]
async fn h13_the_accounts_login_shell_does_not_matter() {
    for shell in [
        "/bin/bash",
        "/usr/bin/zsh",
        "/usr/bin/mksh",
        "/bin/csh",
        "/usr/bin/fish",
    ] {
        if !Path::new(shell).exists() {
            continue;
        }
        let sshd = Sshd::start_with(SshdOptions {
            shell: shell.into(),
            account: Account::Unprivileged,
            ..SshdOptions::default()
        });
        for file in [".bashrc", ".zshenv", ".mkshrc", ".cshrc"] {
            std::fs::write(sshd.home().join(file), "echo Welcome\n").unwrap();
        }
        let host = host(&sshd);
        let command = Command::new(["printf", "%s|", "a b", "'", "$HOME", "\n\n", "!x", "\\n"]);
        assert_eq!(
            output(&host, command).await,
            "a b|'|$HOME|\n\n|!x|\\n|",
            "{shell}"
        );
        host.files()
            .stat(Path::new("."), Follow::Yes)
            .await
            .unwrap();
        host.teardown().await.unwrap();
    }
}

/// H4: the host before it makes the connection, lazily; the keys stay here.
#[tokio::test]
async fn h4_a_machine_is_reached_from_the_host_before_it() {
    let (first, second) = (Sshd::start(), Sshd::start());
    let outer: Arc<dyn Host> = Arc::new(host(&first));
    let inner = SshHost::new(config(&second).through(Arc::clone(&outer)));
    assert_eq!(inner.isolation().len(), 2);
    assert!(!outer.is_connected(), "describing connects nothing");
    let line = "echo $SSH_CONNECTION";
    let said = output(&inner, Command::shell(line)).await;
    assert!(outer.is_connected());
    assert!(said.starts_with("127.0.0.1 "), "{said}");
    assert_eq!((first.accepted(), second.accepted()), (1, 1));
    let text = FileSystem::new(inner.files());
    let file = second.home().join("written");
    text.write_file(&file, "there", WriteOptions::WRITE)
        .await
        .unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "there");
    inner.teardown().await.unwrap();
    outer.teardown().await.unwrap();
}

/// H4, H2: what the host before it says is the error; a way of the configuration's own is refused.
#[tokio::test]
async fn h4_a_machine_that_the_host_before_it_cannot_reach_is_said_by_that_host() {
    let (first, second) = (Sshd::start(), Sshd::start());
    let outer: Arc<dyn Host> = Arc::new(host(&first));
    let mut closed = config(&second).through(Arc::clone(&outer));
    closed.port = Some(1);
    let error = SshHost::new(closed)
        .spawn(Command::new(["true"]))
        .await
        .unwrap_err();
    let words = chain(&error);
    assert!(words.contains("from the host before it"), "{words}");
    second.configure_client("ProxyJump elsewhere.invalid");
    let jumps = config(&second).through(Arc::clone(&outer));
    let error = SshHost::new(jumps)
        .spawn(Command::new(["true"]))
        .await
        .unwrap_err();
    let words = chain(&error);
    assert!(words.contains("ProxyJump"), "{words}");
    outer.teardown().await.unwrap();
}

fn chain(error: &HostError) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        words.push_str(&format!(": {inner}"));
        source = inner.source();
    }
    words
}
