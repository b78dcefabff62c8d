//! Who and what a process is inside.

use bulkhead_sandbox::{ExitStatus, ProcessSpec};

use crate::support::{one, place, plan, say, shell};

/// R4: not root, no groups, no Linux capability in any set, no new privileges, filtered.
#[tokio::test]
async fn r4_a_process_has_no_rights() {
    let place = place().await;
    let (said, _) = one(
        &place.engine,
        plan(),
        "cat /proc/self/status; ulimit -c; ulimit -Hn",
    )
    .await;
    let line = |name: &str| {
        let found = said
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found
            .unwrap()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(line("Uid"), "1000 1000 1000 1000");
    assert_eq!(line("Gid"), "1000 1000 1000 1000");
    assert_eq!(line("Groups"), "");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(line(set), "0000000000000000", "{set}");
    }
    assert_eq!(line("NoNewPrivs"), "1");
    assert_eq!(line("Seccomp"), "2");
    assert_eq!(line("SigIgn"), "0000000000000000");
    assert_eq!(line("SigBlk"), "0000000000000000");
    let tail: Vec<&str> = said.stdout.lines().rev().take(2).collect();
    assert!(
        tail[0].parse::<u64>().unwrap() <= 20_000,
        "open files: {tail:?}"
    );
    assert_eq!(tail[1], "0", "core files");
}

/// R6: the environment is exactly what the spec says, nothing of the host's.
#[tokio::test]
async fn r6_the_environment_is_the_specs() {
    let place = place().await;
    let sandbox = place.engine.create(plan()).await.unwrap();
    let mut spec = ProcessSpec::new(["/usr/bin/env"]);
    spec.env = vec![("ONLY".into(), "this".into())];
    let said = say(&sandbox, spec).await;
    assert_eq!(said.stdout, "ONLY=this\n");
}

/// R6: the system is read-only, `/etc` is made up, the host's own directories and data are not there.
#[tokio::test]
async fn r6_the_system_is_read_only_and_the_host_is_absent() {
    let place = place().await;
    let script = "
        for p in /usr/x /etc/x /x /dev/x /run/x /var/x /proc/sys/kernel/hostname; do
            (echo x > $p) 2>/dev/null && echo written $p; done
        for p in /sys /home/root /root/.bashrc /var/lib /var/log /boot /srv /etc/shadow /etc/ssh /etc/sudoers /work /data \
            /root/.cargo /run/docker.sock /proc/1/environ /proc/1/root /dev/kmsg /dev/mem /dev/loop0 /dev/sda /dev/kvm; do
            ls -d $p 2>/dev/null; done
        cat /etc/passwd | cut -d: -f1 | tr '\\n' ' '; cat /etc/resolv.conf | head -1; cat /etc/hostname
        for p in /proc/kcore /proc/keys /proc/timer_list /proc/interrupts /proc/cmdline; do
            [ -e $p ] && [ -n \"$(head -c 1 $p 2>/dev/null)\" ] && echo readable $p; done
        echo done";
    let (said, _) = one(&place.engine, plan(), script).await;
    assert_eq!(
        said.stdout, "root agent nobody nameserver 127.0.0.1\nsandbox\ndone\n",
        "{}",
        said.stderr
    );
}

/// R6: only the sandbox's own processes are there, and PID 1 cannot be touched.
#[tokio::test]
async fn r6_only_own_processes_are_seen() {
    let place = place().await;
    let script = "ls /proc | grep -c '^1$'; ls -d /proc/[0-9]* | wc -l; kill -9 1 2>/dev/null; kill -TERM 1 2>/dev/null; \
        sleep 0.1; echo alive; cat /proc/self/cgroup | grep -v ':/$' | head -1";
    let (said, _) = one(&place.engine, plan(), script).await;
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(lines[0], "0", "PID 1 is hidden");
    assert!(lines[1].trim().parse::<u32>().unwrap() <= 5);
    assert_eq!(lines[2], "alive");
}

/// R6: toolchains are seen where the operator lists them, read-only, also below a directory that only root may enter.
#[tokio::test]
async fn r6_listed_directories_are_bound_read_only() {
    let place = place().await;
    let closed = place.dir.path().join("closed");
    let tools = closed.join("tools");
    std::fs::create_dir_all(&tools).unwrap();
    std::fs::write(tools.join("hello"), "#!/bin/sh\necho hello from the tool\n").unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(tools.join("hello"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut plan = plan();
    plan.binds = vec![bulkhead_sandbox::Bind {
        purpose: bulkhead_sandbox::Purpose::Listed,
        source: tools,
        target: "/opt/tools".into(),
    }];
    let (said, _) = one(
        &place.engine,
        plan,
        "/opt/tools/hello; echo x > /opt/tools/y; ls /opt",
    )
    .await;
    assert_eq!(said.stdout, "hello from the tool\ntools\n");
    assert!(
        said.stderr.contains("Read-only file system"),
        "{}",
        said.stderr
    );
}

/// R4: set-user-id bits cannot be set: in a shared directory they would count outside.
#[tokio::test]
async fn r4_set_user_id_bits_cannot_be_set() {
    let place = place().await;
    let script = "touch f; chmod 755 f && echo plain; chmod u+s f 2>/dev/null || echo refused; \
        chmod 2755 f 2>/dev/null || echo refused; stat -c %a f";
    let (said, _) = one(&place.engine, plan(), script).await;
    assert_eq!(
        said.stdout, "plain\nrefused\nrefused\n755\n",
        "{}",
        said.stderr
    );
}

/// Exit codes of what cannot be started, as a shell's: 126 and 127.
#[tokio::test]
async fn what_cannot_start_is_said() {
    let place = place().await;
    let sandbox = place.engine.create(plan()).await.unwrap();
    let start = async |spec| sandbox.spawn(spec).await.map(|_| ()).unwrap_err();
    use bulkhead_sandbox::SpawnError;
    assert!(matches!(
        start(ProcessSpec::new(["no-such-program"])).await,
        SpawnError::NotFound(_)
    ));
    assert!(matches!(
        start(ProcessSpec::new(["/no/such"])).await,
        SpawnError::NotFound(_)
    ));
    assert!(matches!(
        start(ProcessSpec::new(["/etc/passwd"])).await,
        SpawnError::NotExecutable { .. }
    ));
    assert!(matches!(
        start(shell("true").cwd("/nowhere")).await,
        SpawnError::WorkingDirectory { .. }
    ));
    assert!(matches!(
        start(ProcessSpec::new([""])).await,
        SpawnError::Spec(_)
    ));
    let said = say(&sandbox, shell("echo still works")).await;
    assert_eq!(
        (said.status, said.stdout.as_str()),
        (ExitStatus::Code(0), "still works\n")
    );
}
