//! A session that is no phase: its plugs are those of its file, in their order.

use std::{path::Path, sync::Arc, time::Duration};

use bulkhead_model::Work;

use crate::{
    agent::{Asked, Caps, Reason, Stops, Task},
    agents::for_session,
    outbox::Outbox,
    phase::carry_out,
    plug::{Ctx, Journal, NamedError, PlugError, Plugs, ScriptPlugs, SessionInfo},
    plugs,
    wire::{Failure, FailureKind, Report, SessionDelivery, SessionOrder},
    words::chain,
};

/// Carries out a session from its first plug to the last teardown. There is always a report.
pub(crate) async fn perform(
    delivery: SessionDelivery,
    scripts: &dyn ScriptPlugs,
    out: Outbox,
    asked: Asked,
    stops: &Stops,
) -> Report {
    let mut delivery = delivery;
    if let Work::Agent { agent, .. } = &mut delivery.order.work {
        *agent = for_session(agent.clone());
    }
    let delivery = Arc::new(delivery);
    let order = &delivery.order;
    let session = SessionInfo {
        id: order.id.clone(),
        dir: Some(order.dir.clone()),
        resumed: order.resume.is_some(),
    };
    let mut ctx = Ctx::new(session, out, stops.token().clone());
    match Journal::open(&order.dir) {
        Ok(journal) => ctx.keep_journal(journal),
        Err(error) => return not_begun(&NamedError::of("journal", error.into())),
    }
    let list = match plugs::of_session(&delivery, scripts, &mut ctx).await {
        Ok(list) => list,
        Err(error) => return not_begun(&error),
    };
    let task = |ctx: &Ctx| task(order, ctx);
    let work = carry_out(
        "the session",
        Plugs::new(list),
        &mut ctx,
        asked,
        stops,
        task,
    );
    let Some(limit) = order.timeout_ms.map(Duration::from_millis) else {
        return work.await;
    };
    tokio::pin!(work);
    tokio::select! {
        report = &mut work => report,
        () = tokio::time::sleep(limit) => {
            stops.stop(Reason::TimedOut(limit));
            work.await
        }
    }
}

fn task(order: &SessionOrder, ctx: &Ctx) -> Task {
    let mut work = order.work.clone();
    if let Work::Agent { agent, prompt } = &mut work {
        agent.argv.clone_from(&ctx.agent.argv);
        // What goes on was told its first prompt long ago.
        if order.resume.is_some() && order.prompts == crate::wire::PromptSource::Person {
            prompt.clear();
        }
    }
    Task {
        work,
        env: ctx.agent.env.clone(),
        cwd: ctx.agent.cwd.clone(),
        idle: order.idle_ms.map(Duration::from_millis),
        caps: Caps::new(order.max_turns, order.max_cost_usd_milli),
        mcp: ctx.agent.mcp.clone(),
        resume: order
            .resume
            .as_ref()
            .and_then(|resume| resume.conversation.clone()),
    }
}

/// Nothing was begun, so nothing has to be ended.
fn not_begun(error: &NamedError) -> Report {
    let kind = match &error.source {
        PlugError::Refused(_) => FailureKind::Refused,
        _ => FailureKind::Plug {
            plug: error.plug.clone(),
        },
    };
    Report {
        failure: Some(Failure {
            kind,
            message: chain(error),
        }),
        ..Report::default()
    }
}

/// A path of the session's file: relative ones start where the file is.
pub(crate) fn path(order: &SessionOrder, path: &str) -> std::path::PathBuf {
    order.base.join(Path::new(path))
}
