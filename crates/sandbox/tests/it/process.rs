//! Processes: streams, terminals, signals, many of them, and orphans.

use std::time::Duration;

use bulkhead_sandbox::{
    Cause, EndReason, ExitStatus, OUTPUT_GRACE, ProcessSpec, Stdio, Target, TerminalSize,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{PATIENCE, hear, place, plan, say, shell};

/// H1: standard input goes in, and its end of file too.
#[tokio::test]
async fn h1_input_goes_in_and_ends() {
    let place = place().await;
    let sandbox = place.engine.create(plan()).await.unwrap();
    let mut process = sandbox
        .spawn(ProcessSpec::new(["cat"]).stdio(Stdio::PIPES))
        .await
        .unwrap();
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(b"through and out").await.unwrap();
    drop(stdin);
    let said = hear(&mut process).await;
    assert_eq!(said.stdout, "through and out");
    assert_eq!(said.status, ExitStatus::Code(0));
}

/// Case 22: a process without input reads its end at once.
#[tokio::test]
async fn case_22_no_input_is_end_of_file() {
    let place = place().await;
    let sandbox = place.engine.create(plan()).await.unwrap();
    assert_eq!(
        say(&sandbox, shell("cat; echo over")).await.stdout,
        "over\n"
    );
}

/// Case 20: a descendant that holds the output open delays neither the process's end nor its output's.
#[tokio::test]
async fn case_20_orphans_do_not_hold_the_output() {
    let place = place().await;
    let sandbox = place.engine.create(plan()).await.unwrap();
    let started = std::time::Instant::now();
    let said = say(&sandbox, shell("echo early; sleep 1000 & exit 3")).await;
    assert_eq!(said.status, ExitStatus::Code(3));
    assert_eq!(said.stdout, "early\n");
    assert!(started.elapsed() >= OUTPUT_GRACE, "it was given its grace");
    // One that never stops writing is cut, too.
    let said = say(&sandbox, shell("(while :; do echo noise; done) & exit 0")).await;
    assert_eq!(said.status, ExitStatus::Code(0));
    assert!(said.stdout.contains("noise"));
    let outcome = tokio::time::timeout(PATIENCE, sandbox.end(Cause::Finished(said.status)))
        .await
        .unwrap();
    assert_eq!(outcome.reason, EndReason::Exit { code: 0 });
}

/// H1: a terminal: it is one, has the size that was asked for, changes it, and interrupts.
#[tokio::test]
async fn h1_a_terminal_is_a_terminal() {
    let place = place().await;
    let sandbox = place.engine.create(plan()).await.unwrap();
    let size = TerminalSize {
        rows: 33,
        columns: 101,
    };
    let spec = shell(
        "tty; stty size; stty -echo; read x; stty size; echo got $x; trap 'echo int; exit 5' INT; \
        echo ready; sleep 1000 & wait",
    )
    .stdio(Stdio::Terminal(size));
    let mut process = sandbox.spawn(spec).await.unwrap();
    let mut terminal = process.terminal.take().unwrap();
    let mut text = String::new();
    read_until(&mut terminal, &mut text, "33 101").await;
    assert!(text.contains("/dev/pts/0"), "{text}");
    process
        .resize(TerminalSize {
            rows: 40,
            columns: 120,
        })
        .await
        .unwrap();
    terminal.write_all(b"word\n").await.unwrap();
    read_until(&mut terminal, &mut text, "ready").await;
    assert!(
        text.contains("40 120") && text.contains("got word"),
        "{text}"
    );
    terminal.write_all(&[3]).await.unwrap();
    read_until(&mut terminal, &mut text, "int").await;
    assert_eq!(
        tokio::time::timeout(PATIENCE, process.wait())
            .await
            .unwrap(),
        ExitStatus::Code(5)
    );
    tokio::time::timeout(PATIENCE, terminal.read_to_string(&mut text))
        .await
        .unwrap()
        .unwrap();
}

async fn read_until(terminal: &mut bulkhead_sandbox::Terminal, text: &mut String, mark: &str) {
    let read = async {
        while !text.contains(mark) {
            let mut bytes = [0; 1024];
            let count = terminal.read(&mut bytes).await.unwrap();
            assert!(count > 0, "the terminal ended after {text:?}");
            text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    };
    tokio::time::timeout(PATIENCE, read).await.unwrap();
}

/// H1: signals reach the process or its whole group, and a death by one is told as one.
#[tokio::test]
async fn h1_signals_reach_process_and_group() {
    let place = place().await;
    let sandbox = place.engine.create(plan()).await.unwrap();
    let mut process = sandbox
        .spawn(shell(
            "trap 'echo caught; exit 4' USR1; echo up; while :; do sleep 0.05; done",
        ))
        .await
        .unwrap();
    let mut stdout = process.stdout.take().unwrap();
    let mut up = [0; 3];
    stdout.read_exact(&mut up).await.unwrap();
    process.signal(10, Target::Process).await.unwrap();
    assert_eq!(
        tokio::time::timeout(PATIENCE, process.wait())
            .await
            .unwrap(),
        ExitStatus::Code(4)
    );
    process.signal(9, Target::Process).await.unwrap();
    let group = sandbox
        .spawn(shell("sleep 1000 & sleep 1000"))
        .await
        .unwrap();
    group.signal(15, Target::Group).await.unwrap();
    assert_eq!(
        tokio::time::timeout(PATIENCE, group.wait()).await.unwrap(),
        ExitStatus::Signal(15)
    );
}

/// R4: many processes, one after the other and at once, in one sandbox.
#[tokio::test]
async fn r4_many_processes_in_one_sandbox() {
    let place = place().await;
    let sandbox = place.engine.create(plan()).await.unwrap();
    for round in 0..5 {
        let batch = (0..10).map(|index| {
            let sandbox = &sandbox;
            async move {
                say(
                    sandbox,
                    shell(&format!("echo {round} {index}; exit {index}")),
                )
                .await
            }
        });
        for (index, said) in futures::future::join_all(batch)
            .await
            .into_iter()
            .enumerate()
        {
            assert_eq!(said.status, ExitStatus::Code(i32::try_from(index).unwrap()));
            assert_eq!(said.stdout, format!("{round} {index}\n"));
        }
    }
}

/// An agent's prompt may be long: arguments and environment of a megabyte go through.
#[tokio::test]
async fn long_arguments_and_environments_go_through() {
    let place = place().await;
    let sandbox = place.engine.create(plan()).await.unwrap();
    let long = "x".repeat(100_000);
    let mut spec =
        ProcessSpec::new(["/bin/sh", "-c", "echo ${#1} ${#LONG}", "sh", &long]).env("LONG", &long);
    for index in 0..5 {
        spec = spec.env(format!("MORE{index}"), &long);
    }
    assert_eq!(say(&sandbox, spec).await.stdout, "100000 100000\n");
}

/// Secrets in a spec do not show in its debug form.
#[test]
fn d7_a_spec_s_debug_form_has_no_values() {
    let spec = ProcessSpec::new(["x"]).env("TOKEN", "s3cret");
    let shown = format!("{spec:?}");
    assert!(
        shown.contains("TOKEN") && !shown.contains("s3cret"),
        "{shown}"
    );
}

/// H1: output of any size comes whole, and in reasonable time.
#[tokio::test]
async fn h1_output_comes_whole() {
    let place = place().await;
    let sandbox = place.engine.create(plan()).await.unwrap();
    let said = say(
        &sandbox,
        shell("head -c 20000000 /dev/zero | tr '\\0' a; echo end >&2"),
    )
    .await;
    assert_eq!(said.stdout.len(), 20_000_000);
    assert_eq!(said.stderr, "end\n");
    tokio::time::sleep(Duration::from_millis(1)).await;
}
