//! Processes: arguments, environment, streams, signals, ends.

use bulkhead_host::{Access, Command, ExitStatus, Host, HostError, Signal, Stdio, Target};
use bulkhead_test_hosts::Sshd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{finish, host, output};

#[tokio::test]
async fn h1_arguments_environment_and_directory_are_exact() {
    let sshd = Sshd::start();
    let host = host(&sshd);
    let dir = sshd.home().join("it's a\ndir");
    std::fs::create_dir(&dir).unwrap();
    let odd = "'\"\\ $x `y` !z\n\ttab\u{81}\u{88}Áā€😀\n";
    let command = Command::new([
        "/bin/sh",
        "-c",
        "printf '%s|' \"$PWD\" \"$ODD\" \"$@\"",
        "x",
        odd,
        "",
        "-n",
        "*",
    ])
    .cwd(dir.display().to_string())
    .env("ODD", odd);
    let dir = dir.canonicalize().unwrap();
    let expected = format!("{}|{odd}|{odd}||-n|*|", dir.display());
    assert_eq!(output(&host, command).await, expected);
    let relative = Command::new(["pwd"]).cwd("it's a\ndir");
    assert_eq!(
        output(&host, relative).await,
        format!("{}\n", dir.display())
    );
    let home = sshd.home().canonicalize().unwrap();
    assert_eq!(
        output(&host, Command::new(["pwd"])).await,
        format!("{}\n", home.display())
    );
    host.teardown().await.unwrap();
}

#[tokio::test]
async fn h7_what_is_in_the_environment_shows_in_no_list_of_processes() {
    let sshd = Sshd::start();
    let host = host(&sshd);
    let secret = "canary-4711-of-the-environment";
    let command =
        Command::shell("read x; cat /proc/[0-9]*/cmdline 2>/dev/null; echo; printf %s \"$SECRET\"")
            .env("SECRET", secret)
            .stdio(Stdio::PIPES);
    let mut process = host.spawn(command).await.unwrap();
    let shown: Vec<_> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
        .filter(|line| {
            line.windows(secret.len())
                .any(|part| part == secret.as_bytes())
        })
        .collect();
    assert_eq!(shown, Vec::<Vec<u8>>::new());
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(b"\n").await.unwrap();
    let (out, _, _) = finish(process).await;
    let (lines, end) = out.rsplit_once('\n').unwrap();
    assert!(!lines.contains(secret));
    assert_eq!(end, secret);
    host.teardown().await.unwrap();
}

#[tokio::test]
async fn h1_input_and_output_are_byte_exact_and_end_by_themselves() {
    let sshd = Sshd::start();
    let host = host(&sshd);
    let mut process = host
        .spawn(Command::new(["cat"]).stdio(Stdio::PIPES))
        .await
        .unwrap();
    let data: Vec<u8> = (0..3_000_000_u32)
        .map(|n| n.wrapping_mul(31).to_le_bytes()[1])
        .collect();
    let mut stdin = process.stdin.take().unwrap();
    let mut stdout = process.stdout.take().unwrap();
    let write = async {
        stdin.write_all(&data).await.unwrap();
        drop(stdin);
    };
    let mut read = Vec::new();
    let ((), _) = tokio::join!(write, stdout.read_to_end(&mut read));
    assert!(read == data);
    assert_eq!(process.control.wait().await, ExitStatus::Code(0));
    let split = Command::shell("echo out; echo err >&2; cat; exit 7");
    let (out, err, status) = finish(host.spawn(split).await.unwrap()).await;
    assert_eq!(
        (out.as_str(), err.as_str(), status),
        ("out\n", "err\n", ExitStatus::Code(7))
    );
    host.teardown().await.unwrap();
}

/// A reader that does not read holds the writer back, and not the connection.
#[tokio::test]
async fn h1_output_that_nobody_reads_is_held_back_and_disturbs_nobody() {
    let sshd = Sshd::start();
    let host = host(&sshd);
    let mark = sshd.home().join("written");
    let line = format!("head -c 50000000 /dev/zero; touch '{}'", mark.display());
    let mut silent = host.spawn(Command::shell(&line)).await.unwrap();
    for _ in 0..20 {
        assert_eq!(output(&host, Command::new(["echo", "x"])).await, "x\n");
    }
    assert!(!mark.exists());
    let mut read = Vec::new();
    silent
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut read)
        .await
        .unwrap();
    assert_eq!(
        (read.len(), silent.control.wait().await),
        (50_000_000, ExitStatus::Code(0))
    );
    assert!(mark.exists());
    host.teardown().await.unwrap();
}

#[tokio::test]
async fn h1_exits_by_code_and_by_signal_are_told_apart() {
    let sshd = Sshd::start();
    let host = host(&sshd);
    for code in [0, 1, 127, 137, 255] {
        let process = host
            .spawn(Command::shell(&format!("exit {code}")))
            .await
            .unwrap();
        assert_eq!(process.control.wait().await, ExitStatus::Code(code));
    }
    let process = host.spawn(Command::shell("kill -KILL $$")).await.unwrap();
    // `ssh` does not say which signal it was.
    assert_eq!(process.control.wait().await, ExitStatus::Code(255));
    for (signal, number) in [
        (Signal::Terminate, 15),
        (Signal::Kill, 9),
        (Signal::Interrupt, 2),
        (Signal::User1, 10),
    ] {
        let process = host.spawn(Command::new(["sleep", "1000"])).await.unwrap();
        process
            .control
            .signal(signal, Target::Process)
            .await
            .unwrap();
        assert_eq!(process.control.wait().await, ExitStatus::Signal(number));
        process
            .control
            .signal(signal, Target::Process)
            .await
            .unwrap();
    }
    host.teardown().await.unwrap();
}

#[tokio::test]
async fn h1_a_group_is_signalled_as_a_whole() {
    let sshd = Sshd::start();
    let host = host(&sshd);
    let line = "sleep 1000 & sleep 1000 & echo ready; wait";
    let mut process = host.spawn(Command::shell(line)).await.unwrap();
    let mut ready = [0; 6];
    process
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut ready)
        .await
        .unwrap();
    process
        .control
        .signal(Signal::Stop, Target::Group)
        .await
        .unwrap();
    process
        .control
        .signal(Signal::Continue, Target::Group)
        .await
        .unwrap();
    process
        .control
        .signal(Signal::Terminate, Target::Group)
        .await
        .unwrap();
    // The end of the output says that nobody holds it any more.
    let (_, _, status) = finish(process).await;
    assert_eq!(status, ExitStatus::Signal(15));
    host.teardown().await.unwrap();
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let sshd = Sshd::start();
    let host = host(&sshd);
    std::fs::write(sshd.home().join("text"), "x").unwrap();
    for program in ["no-such-program", "/no/such/program", "./absent", "cd"] {
        let missing = host.spawn(Command::new([program])).await;
        assert!(
            matches!(missing, Err(HostError::NotFound { .. })),
            "{program}: {missing:?}"
        );
    }
    for (command, words) in [
        (Command::new(["./text"]), "may not be executed"),
        (Command::new(["/"]), "may not be executed"),
        (Command::new(["true"]).cwd("absent"), "directory"),
        (Command::new(["true"]).env("A-B", "x"), "A-B"),
    ] {
        let error = host.spawn(command).await.unwrap_err();
        let mut all = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(inner) = source {
            all.push_str(&inner.to_string());
            source = inner.source();
        }
        assert!(all.contains(words), "{all}");
    }
    let found =
        Command::new(["mine"]).env("PATH", format!("{}:/usr/bin:/bin", sshd.home().display()));
    std::fs::write(sshd.home().join("mine"), "#!/bin/sh\necho mine\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(sshd.home().join("mine"), executable).unwrap();
    assert_eq!(output(&host, found).await, "mine\n");
    host.teardown().await.unwrap();
}

#[tokio::test]
async fn h9_rights_are_those_of_the_account() {
    let sshd = Sshd::start();
    if sshd.user() != "tester" {
        return;
    }
    let host = host(&sshd);
    let files = host.files();
    let path = sshd.home().join("it's\nmine");
    output(
        &host,
        Command::new(["touch".to_owned(), path.display().to_string()]),
    )
    .await;
    let (read, write, execute) = (
        Access {
            read: true,
            ..Access::default()
        },
        Access {
            write: true,
            ..Access::default()
        },
        Access {
            execute: true,
            ..Access::default()
        },
    );
    for (access, expected) in [(read, Ok(())), (write, Ok(())), (execute, Err("EACCES"))] {
        let got = files
            .access(&path, access)
            .await
            .map_err(|error| error.code.name());
        assert_eq!(got, expected, "{access:?}");
    }
    let shadow = files
        .access(std::path::Path::new("/etc/passwd"), write)
        .await;
    assert_eq!(
        shadow.unwrap_err().to_string(),
        "EACCES: permission denied, access '/etc/passwd'"
    );
    host.teardown().await.unwrap();
}
