//! A script as a plug of a session.

use std::{path::Path, time::Duration};

use async_trait::async_trait;
use bulkhead_engine::{Compilation, Language, Options, StartError, Threads, Value};
use bulkhead_host::ExitStatus;
use bulkhead_session::plug::{
    AgentDraft, Ctx, Direction, Ended, McpServer, Message, Plug, PlugError, ScriptPlugs,
    ScriptSpec, TimeLimits, Verdict,
};
use serde_json::json;

use crate::{
    actor::{self, Actor, BEYOND_LIMIT, Failure, Offer, StartFailure},
    runtime_files::{RuntimeFilesError, icu_data},
};

#[derive(Debug, thiserror::Error)]
pub enum JsPlugsError {
    #[error("looking for the files of V8")]
    Files(#[from] RuntimeFilesError),
    #[error("starting V8")]
    Start(#[from] StartError),
}

/// Runs a session's script plugs. V8 is started with the first of these in a process.
#[derive(Debug, Clone, Copy)]
pub struct JsPlugs {
    limits: TimeLimits,
}

impl JsPlugs {
    pub fn new() -> Result<Self, JsPlugsError> {
        Self::with_limits(TimeLimits::default())
    }

    /// With other limits for the handlers than the usual ones; a plug's own `timeouts` go first.
    pub fn with_limits(limits: TimeLimits) -> Result<Self, JsPlugsError> {
        let options = Options {
            compilation: Compilation::Jit,
            threads: Threads::Own,
            language: Language::Newest,
            icu_data: Some(icu_data()?),
        };
        bulkhead_engine::start(&options)?;
        Ok(Self { limits })
    }
}

#[async_trait]
impl ScriptPlugs for JsPlugs {
    async fn load(&self, spec: ScriptSpec) -> Result<Box<dyn Plug>, PlugError> {
        let started = actor::start(spec.file.clone(), self.limits.on_session).await;
        let (actor, offer) = started.map_err(|error| match error {
            StartFailure::Failure(failure) => failed(failure),
            error @ StartFailure::Thread(_) => PlugError::because("loading it", error),
        })?;
        let limits = TimeLimits {
            on_session: offer.limits.on_session.unwrap_or(self.limits.on_session),
            on_message: offer.limits.on_message.unwrap_or(self.limits.on_message),
            teardown: offer.limits.teardown.unwrap_or(self.limits.teardown),
            ..self.limits
        };
        Ok(Box::new(ScriptPlug {
            spec,
            actor: Some(actor),
            offer,
            limits,
        }))
    }
}

/// The place is in the message already: `Error: no (/plugs/a.ts:3:9)`.
fn failed(failure: Failure) -> PlugError {
    PlugError::words(failure.to_string())
}

struct ScriptPlug {
    spec: ScriptSpec,
    /// Gone after the teardown.
    actor: Option<Actor>,
    offer: Offer,
    limits: TimeLimits,
}

impl ScriptPlug {
    fn actor(&self) -> Result<&Actor, PlugError> {
        self.actor.as_ref().ok_or_else(|| failed(Failure::Gone))
    }
}

#[async_trait]
impl Plug for ScriptPlug {
    fn name(&self) -> &str {
        &self.spec.name
    }

    /// Longer than the limits that the plug itself keeps, whose errors say where it was.
    fn limits(&self) -> TimeLimits {
        let longer = |limit: Duration| limit + BEYOND_LIMIT;
        TimeLimits {
            on_session: longer(self.limits.on_session),
            on_message: longer(self.limits.on_message),
            finish: longer(self.limits.finish),
            teardown: longer(self.limits.teardown),
        }
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        let actor = self.actor()?;
        actor.log.listen(ctx.log(), actor.outside());
        let host = ctx.host().ok();
        let given = given(&self.spec, ctx, host.is_some());
        actor.enter(host).await.map_err(failed)?;
        let (signal, aborts) = (ctx.signal().clone(), actor.aborts.clone());
        actor.outside().aside(async move {
            signal.cancelled().await;
            // The plug may be gone.
            let _ = aborts.send("the session is to end".to_owned());
        });
        let env = env_value(&ctx.agent);
        let arguments = vec![Value::String(given), env];
        let draft = actor.call("onSession", arguments, self.limits.on_session);
        take_draft(&draft.await.map_err(failed)?, &mut ctx.agent)
    }

    fn wants_messages(&self) -> bool {
        self.offer.on_message
    }

    async fn on_message(
        &mut self,
        _ctx: &mut Ctx,
        message: &Message,
    ) -> Result<Verdict, PlugError> {
        let direction = match message.direction {
            Direction::ToAgent => "toAgent",
            Direction::FromAgent => "fromAgent",
        };
        let arguments = vec![direction.into(), message.text.as_str().into()];
        let verdict = self
            .actor()?
            .call("onMessage", arguments, self.limits.on_message);
        verdict_of(&verdict.await.map_err(failed)?)
    }

    async fn teardown(&mut self, _ctx: &mut Ctx, ended: Ended) -> Result<(), PlugError> {
        let Some(actor) = self.actor.take() else {
            return Ok(());
        };
        let arguments = vec![Value::String(ended_json(ended).to_string())];
        let down = actor
            .call("teardown", arguments, self.limits.teardown)
            .await;
        actor.end().await;
        down.map(drop).map_err(failed)
    }
}

/// What `onSession` is told, but for the environment: secrets are in no text that could be kept.
fn given(spec: &ScriptSpec, ctx: &Ctx, has_host: bool) -> String {
    let session = &ctx.session;
    json!({
        "plug": {"name": spec.name, "file": spec.file, "dir": spec.file.parent().unwrap_or(Path::new("/"))},
        "config": spec.config,
        "session": {"id": session.id, "dir": session.dir, "resumed": session.resumed},
        "agent": {"argv": ctx.agent.argv, "cwd": ctx.agent.cwd, "mcp": ctx.agent.mcp},
        "hasHost": has_host,
    })
    .to_string()
}

fn env_value(agent: &AgentDraft) -> Value {
    let pairs = agent.env.iter();
    Value::List(
        pairs
            .map(|(name, value)| Value::List(vec![name.as_str().into(), value.as_str().into()]))
            .collect(),
    )
}

fn take_draft(value: &Value, agent: &mut AgentDraft) -> Result<(), PlugError> {
    let malformed = || PlugError::words("ctx.agent is malformed");
    let texts = |value: &Value| match value {
        Value::List(items) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(malformed))
            .collect::<Result<Vec<_>, _>>(),
        _ => Err(malformed()),
    };
    let Value::List(env) = value.get("env") else {
        return Err(malformed());
    };
    let pair = |pair: &Value| match texts(pair)?.as_slice() {
        [name, value] => Ok((name.clone(), value.clone())),
        _ => Err(malformed()),
    };
    let mcp = value.get("mcp").as_str().ok_or_else(malformed)?;
    let mcp: Vec<McpServer> = serde_json::from_str(mcp)
        .map_err(|error| PlugError::because("reading ctx.agent.mcp", error))?;
    *agent = AgentDraft {
        env: env.iter().map(pair).collect::<Result<_, _>>()?,
        cwd: value.get("cwd").as_str().map(str::to_owned),
        argv: texts(value.get("argv"))?,
        mcp,
    };
    Ok(())
}

fn verdict_of(value: &Value) -> Result<Verdict, PlugError> {
    let lines = || match value.get("lines") {
        Value::List(lines) => lines
            .iter()
            .filter_map(|line| line.as_str().map(str::to_owned))
            .collect(),
        _ => vec![],
    };
    match value.get("kind").as_str() {
        Some("pass") => Ok(Verdict::Pass),
        Some("drop") => Ok(Verdict::Drop),
        Some("answer") => Ok(Verdict::Answer(lines())),
        Some("change") => Ok(lines().pop().map_or(Verdict::Drop, Verdict::Change)),
        _ => Err(PlugError::words("onMessage gave no verdict")),
    }
}

fn ended_json(ended: Ended) -> serde_json::Value {
    match ended {
        Ended::Finished(ExitStatus::Code(code)) => json!({"kind": "finished", "code": code}),
        Ended::Finished(ExitStatus::Signal(signal)) => {
            json!({"kind": "finished", "signal": signal})
        }
        Ended::Finished(ExitStatus::HostEnded) => json!({"kind": "finished", "hostEnded": true}),
        Ended::Idle => json!({"kind": "idle"}),
        Ended::Cancelled => json!({"kind": "cancelled"}),
        Ended::Paused => json!({"kind": "paused"}),
    }
}
