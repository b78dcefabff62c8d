//! One run of an agent or a command.

use std::time::Duration;

use bulkhead_host::{ExitStatus, Host, HostError, Process, ProcessControl, Signal, Target, Writer};
use bulkhead_model::{Protocol, Stage, Stream};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::{
    asked::Asked,
    plain::plain,
    sink::Sink,
    stop::{Reason, Stops},
    streams::{Activity, Watched, pump},
    task::{Start, Task, Turn, start},
};
use crate::{
    outbox::Outbox,
    plug::Passage,
    protocol::{self, Driven, Lines, Opening, Prompts as _, ProtocolError, conversation, drive},
};

/// How long an agent may stay after its result. One that was given its end of file on top is only waited
/// for briefly: some never leave (case 23).
const LEAVE_AFTER_RESULT: Duration = Duration::from_secs(10);
const LEAVE_AFTER_EOF: Duration = Duration::from_secs(1);
/// How long an agent that was asked to stop may take before it is killed.
const LEAVE_AFTER_STOP: Duration = Duration::from_secs(2);
/// Between a polite signal and a kill, for an agent that overstayed.
const LEAVE_AFTER_TERM: Duration = Duration::from_millis(500);
/// How long output is read after the exit. The host itself ends the output of a process whose descendants hold
/// it open (case 20), so this only bounds how long a slow executor may take for the rest.
const LINGER: Duration = Duration::from_secs(10);

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: ExitStatus,
    pub(crate) driven: Driven,
    /// The protocol's own trouble; the agent was ended for it.
    pub(crate) broken: Option<ProtocolError>,
    /// The agent said that it was done and then had to be killed: its exit status is ours, not its.
    pub(crate) overstayed: bool,
}

/// Does the task on `host` until it ends or is stopped.
pub(crate) async fn work(
    task: &Task,
    host: &dyn Host,
    out: &Outbox,
    passage: &mut impl Passage,
    asked: &mut Asked,
    stops: &Stops,
) -> Result<Run, HostError> {
    let mut turn = first_turn(task, asked, stops).await;
    loop {
        let start = start(task, &turn, asked.goes_on(), host)?;
        let run = begin(task, host, start, out, passage, asked, stops).await?;
        // Command lines that end with each turn are started again for the next, by the conversation's name.
        if !task.ends_with_each_turn() || stops.reason().is_some() || run.broken.is_some() {
            return Ok(run);
        }
        let Some(conversation) = run.driven.conversation.clone() else {
            return Ok(run);
        };
        tokio::select! {
            prompt = asked.next() => match prompt {
                Some(prompt) => turn = Turn { prompt: Some(prompt), resume: Some(conversation) },
                None => return Ok(run),
            },
            () = stops.stopped() => return Ok(run),
        }
    }
}

/// What the task says, or what a person says where it says nothing and its agent could not wait for it.
async fn first_turn(task: &Task, asked: &mut Asked, stops: &Stops) -> Turn {
    let resume = task.resume.clone();
    let mut prompt = task.prompt().map(str::to_owned);
    if prompt.is_none() && task.ends_with_each_turn() {
        tokio::select! {
            said = asked.next() => prompt = said,
            () = stops.stopped() => {}
        }
    }
    Turn { prompt, resume }
}

async fn begin(
    task: &Task,
    host: &dyn Host,
    start: Start,
    out: &Outbox,
    passage: &mut impl Passage,
    asked: &mut Asked,
    stops: &Stops,
) -> Result<Run, HostError> {
    let process = host.spawn(start.command.clone()).await?;
    out.stage(Stage::AgentStarted).await;
    let sink = Sink {
        out: out.clone(),
        caps: task.caps,
        stops: stops.clone(),
    };
    let around = Around {
        sink,
        passage,
        asked,
    };
    let run = accompany(process, start, around, task.idle, stops).await;
    out.stage(Stage::AgentEnded).await;
    Ok(run)
}

/// What stands around one process.
struct Around<'a, P> {
    sink: Sink,
    passage: &'a mut P,
    asked: &'a mut Asked,
}

/// What the conversation left behind; filled as it goes, so that an end in the middle loses nothing.
#[derive(Default)]
struct Talk {
    driven: Driven,
    broken: Option<ProtocolError>,
    overstayed: bool,
}

async fn accompany(
    mut process: Process,
    start: Start,
    around: Around<'_, impl Passage>,
    idle: Option<Duration>,
    stops: &Stops,
) -> Run {
    let activity = Activity::new();
    around.asked.watch(activity.clone());
    let watched = |reader| Watched {
        reader,
        activity: activity.clone(),
    };
    let (stdin, stdout) = (process.stdin.take(), process.stdout.take().map(watched));
    let stderr = process.stderr.take().map(watched);
    let control = &*process.control;
    let (out, polite) = (around.sink.out.clone(), start.protocol == Protocol::Acp);
    let mut talk = Talk::default();
    let status = {
        let conversation = converse(stdin, stdout, start, around, control, &mut talk);
        let reading = async { tokio::join!(conversation, log(stderr, &out)) };
        let silence = async {
            if let Some(idle) = idle {
                activity.silent_for(idle).await;
                stops.stop(Reason::Idle);
            }
            std::future::pending::<()>().await;
        };
        let stopping = stop_when_asked(control, stops, polite);
        tokio::pin!(reading, silence, stopping);
        let mut read = false;
        let status = loop {
            tokio::select! {
                status = control.wait() => break status,
                () = &mut stopping => break ExitStatus::HostEnded,
                () = &mut silence => {}
                _ = &mut reading, if !read => read = true,
            }
        };
        // What the process wrote before its end may still be on its way.
        if !read {
            let _ = timeout(LINGER, reading).await;
        }
        status
    };
    Run {
        status,
        driven: talk.driven,
        broken: talk.broken,
        overstayed: talk.overstayed,
    }
}

async fn log(stderr: Option<Watched>, out: &Outbox) {
    if let Some(stderr) = stderr {
        pump(stderr, Stream::Stderr, out).await;
    }
}

/// Speaks with the agent until it is done, and sees to it that it leaves.
async fn converse(
    stdin: Option<Writer>,
    stdout: Option<Watched>,
    start: Start,
    around: Around<'_, impl Passage>,
    control: &dyn ProcessControl,
    talk: &mut Talk,
) {
    let Some(stdout) = stdout else { return };
    let Around {
        mut sink,
        passage,
        asked,
    } = around;
    let opening = Opening {
        cwd: &start.cwd,
        prompt: start.prompt.as_deref(),
        mcp: &start.mcp,
        resume: start.resume,
    };
    let Some(mut protocol) = conversation(start.protocol, opening) else {
        let out = sink.out.clone();
        talk.broken = match passage.looks() || asked.goes_on() {
            true => plain(stdin, stdout, start.input, &out, passage, asked)
                .await
                .err(),
            false => {
                tokio::join!(feed(stdin, start.input), pump(stdout, Stream::Stdout, &out));
                None
            }
        };
        if talk.broken.is_some() {
            end(control).await;
        }
        return;
    };
    let mut lines = Lines::new(stdout);
    let stops = sink.stops.clone();
    let driven = match stdin {
        Some(stdin) if protocol.reads_stdin() => {
            let (driven, cancel) = (&mut talk.driven, stops.token());
            let around = protocol::Around {
                sink: &mut sink,
                passage,
                prompts: asked,
            };
            drive(&mut *protocol, stdin, &mut lines, around, cancel, driven).await
        }
        stdin => {
            let (driven, cancel) = (&mut talk.driven, stops.token());
            let nobody = tokio::io::sink();
            let around = protocol::Around {
                sink: &mut sink,
                passage,
                prompts: asked,
            };
            let drive = drive(&mut *protocol, nobody, &mut lines, around, cancel, driven);
            tokio::join!(feed(stdin, start.input), drive).1
        }
    };
    talk.broken = driven.err();
    let leave = match (&talk.broken, &talk.driven.finished) {
        (Some(_), _) => Some(Duration::ZERO),
        (None, Some(_)) if protocol.reads_stdin() => Some(LEAVE_AFTER_EOF),
        (None, Some(_)) => Some(LEAVE_AFTER_RESULT),
        // It closed its output without a result: its exit will tell, or its silence.
        (None, None) => None,
    };
    let leaving = async {
        let Some(leave) = leave else { return };
        if timeout(leave, control.wait()).await.is_err() {
            talk.overstayed = talk.broken.is_none();
            end(control).await;
        }
    };
    tokio::join!(leaving, discard(lines.into_reader()));
}

/// Writes the prompt and closes the input, so that no agent waits for more (case 22).
pub(super) async fn feed(stdin: Option<Writer>, input: Option<String>) {
    if let (Some(mut stdin), Some(input)) = (stdin, input) {
        // An agent that does not read its input says so by its exit.
        drop(stdin.write_all(input.as_bytes()).await);
        drop(stdin.shutdown().await);
    }
}

/// Reads what nobody needs any more, so that the process is not held up by it.
async fn discard(mut reader: Watched) {
    let mut piece = vec![0; 64 << 10];
    while let Ok(1..) = reader.read(&mut piece).await {}
}

/// Waits to be asked to stop, then sees the process off. Returns when not even a kill ended it.
async fn stop_when_asked(control: &dyn ProcessControl, stops: &Stops, polite: bool) {
    stops.stopped().await;
    match stops.reason() {
        Some(Reason::ExecutorGone) => {}
        // The protocol asks; the process gets its signal only after the grace time.
        _ if polite => tokio::time::sleep(LEAVE_AFTER_STOP).await,
        _ => {
            signal(control, Signal::Terminate).await;
            tokio::time::sleep(LEAVE_AFTER_STOP).await;
        }
    }
    signal(control, Signal::Kill).await;
    tokio::time::sleep(LEAVE_AFTER_STOP).await;
}

async fn end(control: &dyn ProcessControl) {
    signal(control, Signal::Terminate).await;
    if timeout(LEAVE_AFTER_TERM, control.wait()).await.is_err() {
        signal(control, Signal::Kill).await;
    }
}

/// A process that cannot be signalled is gone, or goes down with its host.
async fn signal(control: &dyn ProcessControl, signal: Signal) {
    if let Err(error) = control.signal(signal, Target::Group).await {
        tracing::debug!(?signal, %error, "signalling the agent");
    }
}
