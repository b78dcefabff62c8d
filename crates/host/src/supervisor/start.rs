//! Bringing a supervisor up on a machine, and an agent under it.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, copy, sink},
    sync::{mpsc, watch},
    time::timeout,
};

use super::{
    Guard, Level, Supervisor,
    agent::{Agent, Owner},
    channel::{Ask, Channel, End, Progress, REQUESTS},
    protocol::Ready,
};
use crate::{Command, ExitStatus, Host, HostError, Process, ProcessControl, Signal, Stdio, Target};

pub(super) const SCRIPT: &str = include_str!("supervisor.sh");
pub(super) const SHELL: &str = "/bin/sh";
/// Until the machine has found out what it can do; it takes tenths of a second when nothing else runs.
const PREPARING: Duration = Duration::from_secs(60);
/// Until the agent's session, which runs by then, has joined.
const JOINING: Duration = Duration::from_secs(60);
/// A report's way here, at most.
const REPORTING: Duration = Duration::from_secs(10);
/// How much of a failed supervisor's complaint is told.
const COMPLAINT_BYTES: u64 = 1024;

/// A supervisor that is ready for its agent.
pub(super) struct Standing {
    pub(super) asks: mpsc::Sender<Ask>,
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) ready: Ready,
    /// Names everything of this supervisor on the machine.
    pub(super) token: String,
}

/// What became of an agent's session.
enum Joined {
    Running(String),
    Missing,
    Over(ExitStatus),
    Alone,
    Late,
}

pub(super) async fn agent(
    supervisor: &Supervisor,
    command: Command,
) -> Result<(Process, Level), HostError> {
    let host = &supervisor.host;
    let program = command.argv.first().cloned().unwrap_or_default();
    let mut standing = stand(supervisor, &supervisor.options.words()).await?;
    let level = standing.ready.level.ok_or_else(|| unclear(host))?;
    let mut process = match host.spawn(under(&standing.ready, command)).await {
        Ok(process) => process,
        Err(error) => {
            standing.end().await;
            return Err(error);
        }
    };
    let agent = match joined(&mut standing, &*process.control).await {
        Joined::Running(agent) => agent,
        other => {
            standing.end().await;
            // Where it hangs, nobody else would end it.
            let _ = process.control.signal(Signal::Kill, Target::Group).await;
            return Err(other.error(host, program));
        }
    };
    process.control = Arc::new(Agent {
        host: host.describe(),
        process: process.control,
        asks: standing.asks.clone(),
    });
    let owner = Owner {
        host: Arc::clone(host),
        process: Arc::clone(&process.control),
        agent,
        standing,
        lost: supervisor.lost.clone(),
    };
    supervisor
        .tasks
        .spawn(owner.follow(supervisor.ending.clone()));
    Ok((process, level))
}

pub(super) async fn guard(supervisor: &Supervisor) -> Result<Guard, HostError> {
    let standing = stand(supervisor, "none").await?;
    let guard = Guard {
        asks: standing.asks.clone(),
        progress: standing.progress.clone(),
    };
    let ending = supervisor.ending.clone();
    supervisor.tasks.spawn(async move {
        tokio::select! {
            () = ending.cancelled() => {
                standing.end().await;
                standing.ended().await;
            }
            _ = standing.ended() => {}
        }
    });
    Ok(guard)
}

impl Standing {
    pub(super) async fn end(&self) {
        // One that is gone needs no telling.
        let _ = self.asks.send(Ask::End).await;
    }

    pub(super) async fn ended(&self) -> Option<End> {
        let mut progress = self.progress.clone();
        let ended = progress.wait_for(|so_far| so_far.ended.is_some()).await;
        ended.ok().and_then(|so_far| so_far.ended)
    }
}

/// Sends the supervisor over, and beats from then on.
async fn stand(supervisor: &Supervisor, ways: &str) -> Result<Standing, HostError> {
    let token = uuid::Uuid::now_v7().simple().to_string();
    let looks = supervisor.options.looks().to_string();
    let argv = [SHELL, "-c", SCRIPT, SHELL, &token, &looks, ways];
    let host = &supervisor.host;
    let mut process = host.spawn(Command::new(argv).stdio(Stdio::PIPES)).await?;
    let (asks, asked) = mpsc::channel(REQUESTS);
    let (told, mut progress) = watch::channel(Progress::default());
    let channel =
        Channel::new(token.clone(), &mut process, asked, told).ok_or_else(|| unclear(host))?;
    let complaint = supervisor.tasks.spawn(complaint(process));
    let on_loss = supervisor.options.on_loss.clone();
    let beating = channel.run(on_loss, supervisor.lost.clone());
    supervisor.tasks.spawn(beating);
    let answered = async {
        let answers = |so_far: &Progress| {
            so_far.ready.is_some() || so_far.refused.is_some() || so_far.ended.is_some()
        };
        let answer = progress.wait_for(answers).await;
        answer.map(|so_far| so_far.clone()).unwrap_or_default()
    };
    let Ok(answer) = timeout(PREPARING, answered).await else {
        let _ = asks.send(Ask::End).await;
        return Err(refused(host, "it did not answer"));
    };
    match (answer.ready, answer.refused) {
        (Some(ready), _) => Ok(Standing {
            asks,
            progress,
            ready,
            token,
        }),
        (None, Some(why)) => Err(refused(host, &why)),
        (None, None) => Err(refused(host, &complaint.await.unwrap_or_default())),
    }
}

/// The agent's command, by way of the start script, which becomes the agent.
fn under(ready: &Ready, mut command: Command) -> Command {
    let script = format!("{}/agent", ready.directory);
    let before = [
        SHELL.to_owned(),
        "-c".to_owned(),
        ". \"$0\"".to_owned(),
        script,
    ];
    command.argv.splice(0..0, before);
    command
}

async fn joined(standing: &mut Standing, control: &dyn ProcessControl) -> Joined {
    let told = async {
        let known = |so_far: &Progress| {
            so_far.started.is_some() || so_far.missing || so_far.ended.is_some()
        };
        let progress = standing.progress.wait_for(known).await;
        match progress.as_deref() {
            Ok(Progress {
                started: Some(agent),
                ..
            }) => Joined::Running(agent.clone()),
            Ok(Progress { missing: true, .. }) => Joined::Missing,
            _ => Joined::Alone,
        }
    };
    tokio::pin!(told);
    let over = async {
        let status = control.wait().await;
        // What was reported before the end may arrive after it.
        tokio::time::sleep(REPORTING).await;
        Joined::Over(status)
    };
    let joined = async {
        tokio::select! {
            told = &mut told => told,
            over = over => over,
        }
    };
    timeout(JOINING, joined).await.unwrap_or(Joined::Late)
}

impl Joined {
    fn error(self, host: &Arc<dyn Host>, program: String) -> HostError {
        match self {
            Self::Missing => HostError::NotFound {
                host: host.describe(),
                program,
            },
            Self::Over(status) => refused(host, &format!("the agent's start {status}")),
            Self::Late => refused(host, "the agent's session did not reach it"),
            Self::Running(_) | Self::Alone => refused(host, "it ended before the agent started"),
        }
    }
}

/// What the supervisor's shell complained of, once it has ended. Read all along, so that it never waits for a reader.
async fn complaint(process: Process) -> String {
    let Some(mut stderr) = process.stderr else {
        return String::new();
    };
    let mut text = Vec::new();
    let mut first = (&mut stderr).take(COMPLAINT_BYTES);
    // A connection that breaks has no complaint to tell.
    let _ = first.read_to_end(&mut text).await;
    let _ = copy(&mut stderr, &mut sink()).await;
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    if text.is_empty() {
        return "it ended without a word".to_owned();
    }
    text
}

fn refused(host: &Arc<dyn Host>, why: &str) -> HostError {
    let host = host.describe();
    HostError::Refused(format!("no agent can be supervised on {host}: {why}"))
}

fn unclear(host: &Arc<dyn Host>) -> HostError {
    refused(host, "it answered what was not asked")
}
