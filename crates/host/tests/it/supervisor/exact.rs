//! A supervised process is the host's own: its streams, its end, its signals and its terminal (H1, H14), at every level.

use std::{path::Path, sync::Arc, time::Duration};

use bulkhead_host::{
    Command, ExitStatus, HostError, LocalConfig, LocalHost, Process, Signal, Stdio, Target,
    TerminalSize,
    supervisor::{Level, Options, Supervisor, Way},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::machine::{carrying, left_in, until};

const LIMIT: Duration = Duration::from_secs(30);

/// Every level that the tests' own machine has, with what brings it about.
const LEVELS: [(Way, &[Level]); 4] = [
    (
        Way::ControlGroup,
        &[Level::ControlGroup, Level::FrozenGroup],
    ),
    (Way::ProcessNamespace, &[Level::ProcessNamespace]),
    (Way::ProcessTree, &[Level::MarkedTree]),
    (Way::ProcessGroup, &[Level::ProcessGroup]),
];

fn supervisor(dir: &Path, way: Way) -> Supervisor {
    let config = LocalConfig::new(dir).env("TMPDIR", dir.display().to_string());
    let options = Options {
        ways: vec![way],
        ..Options::default()
    };
    Supervisor::new(Arc::new(LocalHost::new(config)), options)
}

async fn read(process: &mut Process) -> Vec<u8> {
    let mut bytes = Vec::new();
    process
        .stdout
        .as_mut()
        .unwrap()
        .read_to_end(&mut bytes)
        .await
        .unwrap();
    bytes
}

#[tokio::test]
async fn h14_streams_are_the_agents_to_the_byte_at_every_level() {
    for (way, levels) in LEVELS {
        let dir = tempfile::tempdir().unwrap();
        let supervisor = supervisor(dir.path(), way);
        let command = Command::shell("cat; echo end >&2").stdio(Stdio::PIPES);
        let (mut process, level) = supervisor.start(command).await.unwrap();
        assert!(levels.contains(&level), "{way:?}: {level}");
        assert_eq!(supervisor.level(), Some(level));
        let sent: Vec<u8> = (0..1_000_003_u32)
            .map(|n| (n * 7 % 256).to_le_bytes()[0])
            .collect();
        let mut stdin = process.stdin.take().unwrap();
        let writing = async {
            stdin.write_all(&sent).await.unwrap();
            drop(stdin);
        };
        let ((), seen) = tokio::join!(writing, read(&mut process));
        assert!(seen == sent, "{way:?}: {} bytes", seen.len());
        let mut complaint = String::new();
        process
            .stderr
            .as_mut()
            .unwrap()
            .read_to_string(&mut complaint)
            .await
            .unwrap();
        assert_eq!(complaint, "end\n");
        assert_eq!(process.control.wait().await, ExitStatus::Code(0));
        supervisor.teardown().await.unwrap();
        assert_eq!(left_in(dir.path()), Vec::<String>::new());
    }
}

#[tokio::test]
async fn h14_the_end_is_told_exactly_at_every_level() {
    for (way, _) in LEVELS {
        let dir = tempfile::tempdir().unwrap();
        let supervisor = supervisor(dir.path(), way);
        for (line, expected) in [
            ("exit 3", ExitStatus::Code(3)),
            ("exit 143", ExitStatus::Code(143)),
            ("kill -TERM $$", ExitStatus::Signal(15)),
            ("kill -KILL $$", ExitStatus::Signal(9)),
        ] {
            let (process, _) = supervisor.start(Command::shell(line)).await.unwrap();
            assert_eq!(process.control.wait().await, expected, "{way:?}: {line}");
        }
        let missing = supervisor.start(Command::new(["no-such-program"])).await;
        assert!(
            matches!(&missing, Err(HostError::NotFound { program, .. }) if program == "no-such-program"),
            "{missing:?}"
        );
        supervisor.teardown().await.unwrap();
        assert_eq!(left_in(dir.path()), Vec::<String>::new());
    }
}

#[tokio::test]
async fn h14_directory_environment_arguments_and_signals_are_the_agents() {
    for (way, _) in LEVELS {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("a b");
        std::fs::create_dir(&inside).unwrap();
        let supervisor = supervisor(dir.path(), way);
        let script = "pwd; printf '[%s]' \"$@\" \"$go\" \"$SECRET\"; echo; trap 'echo one' USR1; trap 'exit 5' TERM
            echo set; while :; do sleep 0.05; done";
        let argv = [
            "/bin/sh",
            "-c",
            script,
            "name",
            "it's",
            "",
            "two\nlines",
            "-e \\n",
        ];
        let command = Command::new(argv)
            .cwd(inside.display().to_string())
            .env("go", "kept")
            .env("SECRET", "canary");
        let (mut process, _) = supervisor.start(command).await.unwrap();
        let expected = format!(
            "{}\n[it's][][two\nlines][-e \\n][kept][canary]\nset\n",
            inside.display()
        );
        let mut seen = vec![0; expected.len()];
        process
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut seen)
            .await
            .unwrap();
        assert_eq!(String::from_utf8(seen).unwrap(), expected);
        process
            .control
            .signal(Signal::User1, Target::Process)
            .await
            .unwrap();
        let mut seen = vec![0; 4];
        process
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut seen)
            .await
            .unwrap();
        assert_eq!(seen, b"one\n");
        process
            .control
            .signal(Signal::Terminate, Target::Group)
            .await
            .unwrap();
        assert_eq!(process.control.wait().await, ExitStatus::Code(5), "{way:?}");
        supervisor.teardown().await.unwrap();
    }
}

/// Control-C reaches the foreground job only; the shell that runs it goes on, and so does its supervisor.
#[tokio::test]
async fn h14_a_terminals_jobs_and_signals_work_at_every_level() {
    futures::future::join_all(LEVELS.map(|(way, _)| terminal(way))).await;
}

async fn terminal(way: Way) {
    let dir = tempfile::tempdir().unwrap();
    let supervisor = supervisor(dir.path(), way);
    let size = TerminalSize {
        rows: 33,
        columns: 101,
    };
    let command = Command::new(["/bin/bash", "--norc", "--noprofile", "-i"])
        .env("PS1", "> ")
        .env("TERM", "dumb")
        .stdio(Stdio::Terminal(size));
    let (mut process, _) = supervisor.start(command).await.unwrap();
    let mut stdin = process.stdin.take().unwrap();
    let mut stdout = process.stdout.take().unwrap();
    let mut seen = String::new();
    for (typed, awaited) in [
        ("stty size; tty >/dev/null && echo a-$((1+1))\n", "a-2"),
        ("sleep 1000\n", "sleep 1000"),
        ("\u{3}", "^C"),
        ("echo b-$((1+2))\n", "b-3"),
        (
            "sh -c 'trap \"echo c-4\" INT; while :; do sleep 0.1; done'\n",
            "done",
        ),
        ("\u{3}", "c-4"),
        ("\u{1c}", "Quit"),
        ("sleep 1001\n", "sleep 1001"),
        ("\u{1a}", "Stopped"),
        ("kill -KILL %1; wait %1; echo d-$((1+4))\n", "d-5"),
        ("exit 6\n", "exit"),
    ] {
        // A shell that sets its job up discards what was typed too early, and a job that just starts is not yet hit.
        tokio::time::sleep(Duration::from_millis(300)).await;
        stdin.write_all(typed.as_bytes()).await.unwrap();
        seen.clear();
        let answered = async {
            let mut bytes = [0; 1024];
            while !seen.contains(awaited) {
                let n = stdout.read(&mut bytes).await.unwrap_or(0);
                assert!(n > 0, "{way:?}: after {typed:?} the end: {seen:?}");
                seen.push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        };
        let answered = tokio::time::timeout(LIMIT, answered).await.is_ok();
        assert!(answered, "{way:?}: {typed:?} was answered by {seen:?}");
        assert!(!seen.contains("no job control"), "{way:?}: {seen:?}");
    }
    assert_eq!(process.control.wait().await, ExitStatus::Code(6), "{way:?}");
    supervisor.teardown().await.unwrap();
}

/// What an agent leaves behind ends with it, at every level that can find it.
#[tokio::test]
async fn h14_what_an_ended_agent_leaves_behind_is_ended() {
    for (way, _) in &LEVELS[..3] {
        let dir = tempfile::tempdir().unwrap();
        let word = format!("cell={}", uuid::Uuid::now_v7().simple());
        let supervisor = supervisor(dir.path(), *way);
        let line = "(setsid sh -c 'trap \"\" TERM HUP; (while :; do sleep 1; done) & exit' >/dev/null 2>&1 &); exit 4";
        let command = Command::shell(line).env("CELL", &word);
        let (process, _) = supervisor.start(command).await.unwrap();
        assert_eq!(process.control.wait().await, ExitStatus::Code(4));
        until("nothing is left", LIMIT, || carrying(&word).is_empty()).await;
        supervisor.teardown().await.unwrap();
        assert_eq!(left_in(dir.path()), Vec::<String>::new());
    }
}
