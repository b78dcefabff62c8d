//! What callers follow.

use std::{collections::BTreeMap, sync::Arc};

use bulkhead_model::{PhaseName, RunId};
use bulkhead_store::PhaseKey;
use futures::{StreamExt as _, stream::BoxStream};
use tokio::sync::Mutex;

use super::ControlPlane;
use crate::{
    EventView, LogLine, News, Problem, RunView,
    follow::{Batch, Item, Live, OFTEN, SELDOM, follow},
    logs,
    plane::Plane,
    show,
};

/// How much is read in one go.
const BATCH: u32 = 200;

impl ControlPlane {
    /// The run at each version after `after`, until it has ended.
    pub(crate) async fn watch(&self, run: RunId, after: u64) -> Result<Live<RunView>, Problem> {
        // An unknown run is an answer, not a stream that fails.
        self.run(run).await?;
        let watched = self.clone();
        Ok(follow(&self.plane, after, SELDOM, move |_, after| {
            let watched = watched.clone();
            async move {
                let view = watched.run(run).await?;
                let is_over = view.status.is_final();
                let version = view.version;
                let items = if version > after { vec![view] } else { vec![] };
                Ok(Batch {
                    items,
                    after: version.max(after),
                    is_over,
                })
            }
        }))
    }

    pub(crate) async fn follow_events(
        &self,
        run: RunId,
        phase: &PhaseName,
        attempt: u32,
        after: u64,
    ) -> Result<Live<EventView>, Problem> {
        let key = self.attempt(run, phase, attempt).await?;
        Ok(follow(&self.plane, after, SELDOM, move |plane, after| {
            let key = key.clone();
            async move {
                let is_over = is_over(&plane, &key).await?;
                let events = plane.store.events(&key, after, BATCH).await?;
                Ok(Batch {
                    after: events.last().map_or(after, |event| event.seq),
                    items: events
                        .into_iter()
                        .map(|event| show::event(&key, event))
                        .collect(),
                    is_over,
                })
            }
        }))
    }

    pub(crate) async fn follow_log(
        &self,
        run: RunId,
        phase: &PhaseName,
        attempt: u32,
        after: u64,
    ) -> Result<Live<LogLine>, Problem> {
        let key = self.attempt(run, phase, attempt).await?;
        Ok(follow(&self.plane, after, OFTEN, move |plane, after| {
            let key = key.clone();
            async move {
                let is_over = is_over(&plane, &key).await?;
                let items = logs::page(&*plane.logs, &key, after).await?;
                Ok(Batch {
                    after: items.last().map_or(after, |line| line.seq),
                    items,
                    is_over,
                })
            }
        }))
    }
}

/// Where a follower of a whole run has got to.
#[derive(Debug, Default)]
struct Cursor {
    version: u64,
    /// By phase and attempt: the last event and the last log entry that were told.
    told: BTreeMap<(PhaseName, u32), (u64, u64)>,
}

impl ControlPlane {
    /// Everything that happens to a run from now on, beginning with what it is now and what its phases said so
    /// far; ends after the news that it has ended.
    pub fn follow(&self, run: RunId) -> BoxStream<'static, Result<News, Problem>> {
        let plane = self.clone();
        let cursor = Arc::new(Mutex::new(Cursor::default()));
        let live = follow(&self.plane, 0, OFTEN, move |_, _| {
            let (plane, cursor) = (plane.clone(), Arc::clone(&cursor));
            async move {
                let mut cursor = cursor.lock().await;
                plane.news(run, &mut cursor).await
            }
        });
        live.filter_map(|item| async {
            match item {
                Item::New(news) => Some(Ok(news)),
                Item::Failed(problem) => Some(Err(problem)),
                Item::End | Item::Bye => None,
            }
        })
        .boxed()
    }

    async fn news(&self, run: RunId, cursor: &mut Cursor) -> Result<Batch<News>, Problem> {
        let view = self.run(run).await?;
        let mut items = Vec::new();
        for phase in &view.phases {
            let name: PhaseName = phase.name.parse()?;
            for attempt in 1..=phase.attempt {
                let key = PhaseKey {
                    run,
                    phase: name.clone(),
                    attempt,
                };
                self.said(&key, cursor, &mut items).await?;
            }
        }
        let is_over = view.status.is_final();
        if view.version > cursor.version {
            cursor.version = view.version;
            items.push(News::Run {
                run: Box::new(view),
            });
        }
        Ok(Batch {
            items,
            after: 0,
            is_over,
        })
    }

    async fn said(
        &self,
        key: &PhaseKey,
        cursor: &mut Cursor,
        items: &mut Vec<News>,
    ) -> Result<(), Problem> {
        let told = cursor
            .told
            .entry((key.phase.clone(), key.attempt))
            .or_default();
        let events = self.plane.store.events(key, told.0, BATCH).await?;
        told.0 = events.last().map_or(told.0, |event| event.seq);
        items.extend(events.into_iter().map(|event| News::Event {
            event: show::event(key, event),
        }));
        let lines = logs::page(&*self.plane.logs, key, told.1).await?;
        told.1 = lines.last().map_or(told.1, |line| line.seq);
        items.extend(lines.into_iter().map(|line| News::Log {
            phase: key.phase.to_string(),
            attempt: key.attempt,
            line,
        }));
        Ok(())
    }
}

/// Whether nothing can be said in this attempt any more.
pub(crate) async fn is_over(plane: &Arc<Plane>, key: &PhaseKey) -> Result<bool, Problem> {
    let run = plane.store.run(key.run).await?;
    let in_flight = run.in_flight().is_some_and(|(index, attempt)| {
        run.plan.phases()[index].name == key.phase && attempt.attempt == key.attempt
    });
    Ok(!in_flight)
}
