//! The run of an agent against real processes of this machine, which stand in for those of a sandbox.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt as _,
    process,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bulkhead_host::{
    Command, DuplexStream, Endpoint, ExitStatus, Host, HostError, Layer, Listener, Process,
    ProcessControl, Provider, Signal, Stdio, Target, TerminalSize,
};
use bulkhead_model::{AgentSpec, PhaseOrder, Protocol, Stream, Work};
use rustix::process::{Pid, kill_process_group};
use tokio::sync::{mpsc, watch};

use super::{Asked, Reason, Run, Stops, Task, work};
use crate::{
    outbox::Outbox,
    plug::Straight,
    wire::{FromSession, test_delivery},
};

#[derive(Debug)]
struct Here;

struct Control {
    pid: Pid,
    status: watch::Receiver<Option<ExitStatus>>,
}

#[async_trait]
impl ProcessControl for Control {
    async fn wait(&self) -> ExitStatus {
        let mut status = self.status.clone();
        let ended = status.wait_for(Option::is_some).await.unwrap();
        ended.unwrap()
    }

    async fn signal(&self, signal: Signal, _: Target) -> Result<(), HostError> {
        let signal = match signal {
            Signal::Kill => rustix::process::Signal::KILL,
            _ => rustix::process::Signal::TERM,
        };
        let _ = kill_process_group(self.pid, signal);
        Ok(())
    }

    async fn resize(&self, _: TerminalSize) -> Result<(), HostError> {
        Ok(())
    }
}

#[async_trait]
impl Host for Here {
    fn describe(&self) -> String {
        "this machine, in a test".to_owned()
    }

    fn is_connected(&self) -> bool {
        true
    }

    async fn spawn(&self, command: Command) -> Result<Process, HostError> {
        let piped = command.stdio == Stdio::PIPES;
        let mut child = tokio::process::Command::new(&command.argv[0])
            .args(&command.argv[1..])
            .stdin(if piped {
                process::Stdio::piped()
            } else {
                process::Stdio::null()
            })
            .stdout(process::Stdio::piped())
            .stderr(process::Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
        let (ended, status) = watch::channel(None);
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        #[expect(
            clippy::disallowed_methods,
            reason = "the test owns the process by its group"
        )]
        tokio::spawn(async move {
            let status = child.wait().await.unwrap();
            let ending = match status.code() {
                Some(code) => ExitStatus::Code(code),
                None => ExitStatus::Signal(status.signal().unwrap()),
            };
            let _ = ended.send(Some(ending));
        });
        Ok(Process {
            stdin: stdin.map(|stream| Box::new(stream) as _),
            stdout: stdout.map(|stream| Box::new(stream) as _),
            stderr: stderr.map(|stream| Box::new(stream) as _),
            control: Arc::new(Control { pid, status }),
        })
    }

    fn files(&self) -> Arc<dyn Provider> {
        unreachable!("an agent is only started")
    }

    async fn connect(&self, _: Endpoint) -> Result<DuplexStream, HostError> {
        unreachable!("an agent is only started")
    }

    async fn listen(&self, _: Endpoint) -> Result<Box<dyn Listener>, HostError> {
        unreachable!("an agent is only started")
    }

    fn isolation(&self) -> Vec<Layer> {
        vec![]
    }

    async fn teardown(&self) -> Result<(), HostError> {
        Ok(())
    }
}

fn order(work: Work) -> PhaseOrder {
    let mut order = test_delivery().order;
    order.work = work;
    order
}

fn agent(protocol: Protocol, script: &str, prompt: &str) -> PhaseOrder {
    let argv = ["/bin/sh", "-c", script, "agent"]
        .map(str::to_owned)
        .to_vec();
    order(Work::Agent {
        agent: AgentSpec {
            name: "test".to_owned(),
            argv,
            protocol,
            env: BTreeMap::new(),
            home_files: BTreeMap::new(),
        },
        prompt: prompt.to_owned(),
    })
}

fn command(run: &str) -> PhaseOrder {
    order(Work::Command {
        run: run.to_owned(),
    })
}

/// The run, what was said, and how long it took.
async fn run_with(order: &PhaseOrder, stops: &Stops) -> (Run, Vec<FromSession>, Duration) {
    let (out, mut queue): (Outbox, mpsc::Receiver<_>) = Outbox::new(order.limits.log_bytes);
    let begun = Instant::now();
    let task = Task::of(order, &BTreeMap::new());
    let working = async {
        let run = work(
            &task,
            &Here,
            &out,
            &mut Straight,
            &mut Asked::nothing(),
            stops,
        )
        .await
        .unwrap();
        drop(out);
        run
    };
    let hearing = async {
        let mut heard = vec![];
        while let Some(message) = queue.recv().await {
            heard.push(message);
        }
        heard
    };
    let (run, heard) = tokio::join!(working, hearing);
    (run, heard, begun.elapsed())
}

async fn run(order: &PhaseOrder) -> (Run, Vec<FromSession>, Duration) {
    run_with(order, &Stops::default()).await
}

fn output(heard: &[FromSession], wanted: Stream) -> String {
    let pieces = heard.iter().filter_map(|message| match message {
        FromSession::Log { stream, data } if *stream == wanted => Some(data.to_vec()),
        _ => None,
    });
    String::from_utf8(pieces.flatten().collect()).unwrap()
}

#[tokio::test]
async fn a_commands_output_and_exit_code_arrive() {
    let (run, heard, _) = run(&command("echo out; echo err >&2; exit 3")).await;
    assert_eq!(run.status, ExitStatus::Code(3));
    assert_eq!(output(&heard, Stream::Stdout), "out\n");
    assert_eq!(output(&heard, Stream::Stderr), "err\n");
}

#[tokio::test]
async fn case_20_a_grandchild_that_holds_the_output_open_does_not_hold_the_phase() {
    let (run, heard, took) = run(&command("sleep 60 & echo $!; exit 0")).await;
    assert_eq!(run.status, ExitStatus::Code(0));
    assert!(took < Duration::from_secs(30), "{took:?}");
    let orphan = output(&heard, Stream::Stdout).trim().parse().unwrap();
    let _ = rustix::process::kill_process(
        Pid::from_raw(orphan).unwrap(),
        rustix::process::Signal::KILL,
    );
}

#[tokio::test]
async fn case_22_an_agent_that_reads_its_input_gets_an_end_of_file() {
    for order in [
        command("cat; echo done"),
        agent(Protocol::Plain, "cat; echo done", "the prompt\n"),
        agent(Protocol::CodexJson, "cat >/dev/null; echo done", "x"),
    ] {
        let (run, _, took) = run(&order).await;
        assert_eq!(run.status, ExitStatus::Code(0));
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
}

#[tokio::test]
async fn a_prompt_comes_on_standard_input_or_where_the_command_line_says() {
    let (_, heard, _) = run(&agent(Protocol::Plain, "cat", "the prompt")).await;
    assert_eq!(output(&heard, Stream::Stdout), "the prompt");
    let (_, heard, _) = run(&agent(
        Protocol::Plain,
        "echo '{prompt}'; cat",
        "the prompt",
    ))
    .await;
    assert_eq!(output(&heard, Stream::Stdout), "the prompt\n");
}

/// The session has its result; the process ignores its end of file and its polite signal.
const OVERSTAYS: &str = r#"trap '' TERM
read -r a; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}'
read -r a; echo '{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}'
read -r a; echo '{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}'
while :; do sleep 0.1; done"#;

#[tokio::test]
async fn case_23_an_acp_agent_that_outlives_its_result_is_shown_the_door() {
    let (run, _, took) = run(&agent(Protocol::Acp, OVERSTAYS, "go")).await;
    assert!(run.overstayed);
    assert_eq!(run.driven.finished, Some((true, None)));
    assert_eq!(run.status, ExitStatus::Signal(9));
    // One second after the end of file, half a second after the signal.
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[tokio::test]
async fn a_silent_agent_is_stopped_with_idle_as_the_reason() {
    let mut order = command("sleep 60");
    order.limits.idle_ms = 300;
    let stops = Stops::default();
    let (run, _, took) = run_with(&order, &stops).await;
    assert_eq!(stops.reason(), Some(&Reason::Idle));
    assert!(!run.status.success());
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[tokio::test]
async fn a_talking_agent_is_not_idle() {
    let mut order = command("for i in 1 2 3 4 5 6; do echo $i; sleep 0.3; done");
    order.limits.idle_ms = 1_500;
    let stops = Stops::default();
    let (run, ..) = run_with(&order, &stops).await;
    assert_eq!((run.status, stops.reason()), (ExitStatus::Code(0), None));
}

#[tokio::test]
async fn case_17_a_cancel_ends_the_whole_group_before_it_does_more() {
    let dir = tempfile::tempdir().unwrap();
    let proof = dir.path().join("PROOF");
    let script = format!(
        "trap '' TERM; (sleep 4; touch {}) & wait; wait",
        proof.display()
    );
    let stops = Stops::default();
    let later = stops.clone();
    let order = command(&script);
    let ((run, _, took), ()) = tokio::join!(run_with(&order, &stops), async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        later.stop(Reason::Cancelled);
    });
    assert_eq!(run.status, ExitStatus::Signal(9));
    assert!(took < Duration::from_secs(4), "{took:?}");
    tokio::time::sleep(Duration::from_millis(4_500).saturating_sub(took)).await;
    assert!(!proof.exists());
}

#[tokio::test]
async fn case_63_a_bad_line_ends_the_agent_at_once() {
    let script = r"printf 'a\0b\n'; sleep 60";
    let (run, _, took) = run(&agent(Protocol::ClaudeStreamJson, script, "")).await;
    let broken = run.broken.unwrap().to_string();
    assert_eq!(
        broken,
        "line 1 of the agent's output holds a NUL byte at byte 1"
    );
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test]
async fn r15_a_cap_stops_the_agent() {
    let line = r#"{"type":"assistant","message":{"id":"m'$i'","content":[]}}"#;
    let script = format!("i=0; while :; do i=$((i+1)); echo '{line}'; sleep 0.05; done");
    let mut order = agent(Protocol::ClaudeStreamJson, &script, "");
    order.max_turns = Some(3);
    let stops = Stops::default();
    let (_, _, took) = run_with(&order, &stops).await;
    assert!(matches!(stops.reason(), Some(Reason::Cap(words)) if words.contains("4 turns")));
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[tokio::test]
async fn a_log_bomb_is_drained_and_counted() {
    let mut order = command("head -c 3000000 /dev/zero | tr '\\0' x");
    order.limits.log_bytes = 100_000;
    let (out, mut queue) = Outbox::new(order.limits.log_bytes);
    let (task, stops) = (Task::of(&order, &BTreeMap::new()), Stops::default());
    let working = async {
        let run = work(
            &task,
            &Here,
            &out,
            &mut Straight,
            &mut Asked::nothing(),
            &stops,
        )
        .await
        .unwrap();
        let dropped = out.dropped_bytes();
        drop(out);
        (run.status, dropped)
    };
    let counting = async {
        let mut kept = 0;
        while let Some(message) = queue.recv().await {
            if let FromSession::Log { data, .. } = message {
                kept += data.len();
            }
        }
        kept
    };
    let ((status, dropped), kept) = tokio::join!(working, counting);
    assert_eq!(
        (status, dropped, kept),
        (ExitStatus::Code(0), 2_900_000, 100_000)
    );
}
