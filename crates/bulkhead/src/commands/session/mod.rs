//! `bulkhead session`: an agent on a machine of a person's choice.

mod control;
mod list;
mod order;
mod show;
mod supervise;

use std::{io::IsTerminal as _, path::Path};

use anyhow::{Context as _, Result, anyhow};
use bulkhead_session::{
    Record, Sessions, State, undo,
    wire::{PromptSource, Report, Resume, SessionDelivery, SessionOrder},
};

pub(super) use self::order::{base, local_env, machine, read as read_file, ssh_env};
use self::{order::Wanted, supervise::Supervised};
use super::data_dir;
use crate::{
    cli::{Global, Session, SessionCommand},
    config::OperatorConfig,
    environment::{self, Environment},
    failure::{Exit, Misuse},
    output::Output,
    words::now_ms,
};

pub(crate) async fn run(
    args: Session,
    global: &Global,
    environment: &Environment,
    output: Output,
) -> Result<Exit> {
    let sessions = Sessions::at(&data_dir(global)?);
    let context = Context {
        sessions,
        global,
        environment,
        output,
    };
    match args.command {
        SessionCommand::Run(args) => {
            let wanted = Wanted::read(&args.file, args.prompt)?;
            context.begin(wanted).await
        }
        SessionCommand::List => list::list(&context.sessions, output).await,
        SessionCommand::Pause { id } => {
            let (dir, record) = context.find(&id)?;
            control::pause(&dir, &record, output).await
        }
        SessionCommand::Resume { id, prompt } => context.resume(&id, prompt).await,
    }
}

struct Context<'a> {
    sessions: Sessions,
    global: &'a Global,
    environment: &'a Environment,
    output: Output,
}

/// Whether a person sits in front of us and speaks with the agent.
fn prompts(output: Output) -> PromptSource {
    let person = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    match person && !output.is_json() {
        true => PromptSource::Person,
        false => PromptSource::None,
    }
}

impl Context<'_> {
    fn find(&self, id: &str) -> Result<(std::path::PathBuf, Record)> {
        let found = self
            .sessions
            .find(id)
            .map_err(|error| Misuse::usage(error.to_string()))?;
        let Some(dir) = found else {
            let what = format!("there is no session {id}");
            return Err(Misuse::usage_hint(what, "`bulkhead session list` shows them").into());
        };
        let record = Record::read(&dir).context("reading what is known of the session")?;
        Ok((dir, record))
    }

    async fn begin(&self, wanted: Wanted) -> Result<Exit> {
        list::mend(&self.sessions, self.output).await;
        let id = uuid::Uuid::new_v4().simple().to_string();
        let id = id.get(..8).unwrap_or(&id).to_owned();
        let dir = self
            .sessions
            .make(&id)
            .context("making the session's directory")?;
        let prompts = prompts(self.output);
        let file = wanted.file.display().to_string();
        let order = match wanted.order(id, &dir, prompts, self.environment) {
            Ok(order) => order,
            Err(error) => {
                drop(std::fs::remove_dir_all(&dir));
                return Err(error);
            }
        };
        let record = Record {
            file,
            started_ms: now_ms(),
            state: State::running_here(),
            order,
        };
        self.carry_out(&dir, record).await
    }

    async fn resume(&self, id: &str, prompt: Option<String>) -> Result<Exit> {
        let (dir, mut record) = self.find(id)?;
        let State::Paused { conversation, .. } = record.state.clone() else {
            let what = format!("the session {} is not paused", record.order.id);
            return Err(Misuse::usage(what).into());
        };
        record.order.prompts = prompts(self.output);
        record.order.resume = Some(Resume { conversation });
        record.order.local_env = local_env();
        record.order.ssh_env = ssh_env(self.environment);
        if let bulkhead_model::Work::Agent { prompt: first, .. } = &mut record.order.work {
            match (prompt, record.order.prompts) {
                (Some(prompt), _) => *first = prompt,
                (None, PromptSource::Person) => first.clear(),
                (None, PromptSource::None) => {
                    let what = "nothing is said to the agent".to_owned();
                    return Err(Misuse::usage_hint(
                        what,
                        "give --prompt TEXT, or resume on a terminal",
                    )
                    .into());
                }
            }
        }
        record.state = State::running_here();
        self.carry_out(&dir, record).await
    }

    async fn carry_out(&self, dir: &Path, record: Record) -> Result<Exit> {
        let operator = OperatorConfig::load(self.global)?;
        let secrets = order::secrets(&record.order, self.global, self.environment).await?;
        record.write(dir).context("noting the session")?;
        let delivery = SessionDelivery {
            order: record.order.clone(),
            secrets,
            program: Some(environment::own_program()?),
            machine: machine(self.global, &operator)?,
        };
        let launch = order::launch(&record.order)?;
        let supervised = Supervised::begin(launch, delivery, dir, self.output)?;
        let (report, summary) = supervised.run().await;
        let conclusion = self.conclude(dir, record, report, summary).await;
        self.sessions.forget_old();
        conclusion
    }

    /// Undoes what the session left, and notes and says how it ended.
    async fn conclude(
        &self,
        dir: &Path,
        mut record: Record,
        report: Result<Report>,
        summary: Option<bulkhead_session::summary::IsolationSummary>,
    ) -> Result<Exit> {
        for step in undo(dir).await.context("reading the session's journal")? {
            if let Some(left) = step.left {
                self.output.note(format_args!(
                    "bulkhead: not undone: {:?}: {left}",
                    step.what
                ));
            }
        }
        record.state = match &report {
            Ok(report) if report.paused => State::Paused {
                conversation: report.conversation.clone(),
                lost: lost_machines(summary.as_ref()),
            },
            Ok(report) => State::Ended {
                ok: report.failure.is_none(),
                words: report
                    .failure
                    .as_ref()
                    .map(|failure| failure.message.clone()),
            },
            Err(error) => State::Ended {
                ok: false,
                words: Some(format!("{error:#}")),
            },
        };
        record.write(dir).context("noting how the session ended")?;
        say(&record.order, report?, summary, self.output)
    }
}

fn say(
    order: &SessionOrder,
    report: Report,
    summary: Option<bulkhead_session::summary::IsolationSummary>,
    output: Output,
) -> Result<Exit> {
    use bulkhead_session::wire::FailureKind;
    let exit = match report.failure.as_ref().map(|failure| &failure.kind) {
        None => Exit::Done,
        Some(FailureKind::Refused) => Exit::Refused,
        Some(_) => Exit::Failed,
    };
    output.json_object(&serde_json::json!({
        "session": order.id,
        "ended": {
            "ok": report.failure.is_none(),
            "paused": report.paused,
            "failure": report.failure,
            "result": report.result,
            "usage": report.usage,
            "conversation": report.conversation,
        },
        "isolation": summary,
        "exit_code": exit.code(),
    }))?;
    match &report.failure {
        Some(failure) => output.note(format_args!("bulkhead: {}", failure.message)),
        None if report.paused => {
            output.note(format_args!(
                "Paused. `bulkhead session resume {}` goes on.",
                order.id
            ));
        }
        None => {}
    }
    Ok(exit)
}

/// What goes with a pause: sandboxes and containers.
fn lost_machines(summary: Option<&bulkhead_session::summary::IsolationSummary>) -> Vec<String> {
    let layers = summary.map_or(&[][..], |summary| &summary.layers);
    let lost = layers
        .iter()
        .filter(|layer| matches!(layer.kind.as_str(), "sandbox" | "docker"));
    lost.map(|layer| layer.host.clone()).collect()
}

/// The session's process went away without a report.
fn lost(words: &str) -> anyhow::Error {
    match words {
        "" => anyhow!("the session's process ended without a report"),
        words => anyhow!("the session's process ended without a report; its last words: {words}"),
    }
}
