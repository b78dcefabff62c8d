//! The task of one attempt.

use std::{sync::Arc, time::Instant};

use bulkhead_model::run::{PhaseEnd, RunEvent, Spent};
use bulkhead_runner::{PhaseReport, Place, Running, StopReason};
use bulkhead_store::leases::{Lease, Resource};
use tokio::sync::watch;

use super::{
    Dispatch, order,
    settle::{self, End},
    sink::StoreSink,
};
use crate::{
    plane::{HOLDER, Plane},
    problem::chain,
};

type Stopped = watch::Receiver<Option<StopReason>>;

pub(super) async fn perform(plane: &Arc<Plane>, dispatch: &Dispatch, mut stopped: Stopped) {
    let Some(place) = wait_for_place(plane, &mut stopped).await else {
        return;
    };
    let asked = Instant::now();
    let Some(lease) = claim(plane, dispatch).await else {
        return;
    };
    let begun = plane.now_ms();
    let end = match begin(plane, dispatch, place, asked).await {
        Ok((running, sink)) => watch_over(plane, running, sink, stopped, begun).await,
        Err(failure) => Some(End {
            result: PhaseEnd::Failed(failure),
            spent: Spent::default(),
        }),
    };
    if let Some(end) = end {
        settle::end(plane, dispatch, end).await;
    }
    plane.fail_point("lease.before_release");
    if let Err(error) = plane.store.release_lease(&lease).await {
        tracing::debug!(
            error = chain(&error),
            "a lease could not be given back and runs out"
        );
    }
    plane.fail_point("lease.after_release");
}

/// None where the attempt is stopped, or this process closes, before it had a place.
async fn wait_for_place(plane: &Plane, stopped: &mut Stopped) -> Option<Place> {
    tokio::select! {
        biased;
        _ = stopped.wait_for(Option::is_some) => None,
        () = plane.closing.cancelled() => None,
        place = plane.executor.reserve() => Some(place),
    }
}

/// Takes the lease and tells the run; none where the run has moved on meanwhile.
async fn claim(plane: &Plane, dispatch: &Dispatch) -> Option<Lease> {
    let resource = Resource::run(dispatch.run);
    let ttl_ms = i64::try_from(plane.config.lease_ttl.as_millis()).unwrap_or(i64::MAX);
    plane.fail_point("lease.before_taking");
    let lease = plane
        .until_stored("taking a lease", || {
            let (resource, fence) = (&resource, dispatch.fence);
            Box::pin(async move {
                let store = &plane.store;
                store
                    .claim_lease(resource, HOLDER, fence, ttl_ms, plane.now_ms())
                    .await
            })
        })
        .await?;
    plane.fail_point("lease.after_taking");
    let claimed = RunEvent::Claimed {
        fence: dispatch.fence,
    };
    match plane.post_fact(dispatch.run, &claimed, "server").await? {
        Ok(_) => Some(lease),
        Err(refused) => {
            tracing::info!(run = %dispatch.run, %refused, "a dispatch came too late");
            drop(plane.store.release_lease(&lease).await);
            None
        }
    }
}

async fn begin(
    plane: &Arc<Plane>,
    dispatch: &Dispatch,
    place: Place,
    asked: Instant,
) -> Result<(Running, Arc<StoreSink>), bulkhead_model::run::Failure> {
    let prepared = order::prepare(plane, dispatch).await?;
    plane.fail_point("executor.before_start");
    let sink = StoreSink::open(plane, dispatch, &prepared, asked).await?;
    let started = plane
        .executor
        .start(
            place,
            prepared.order,
            prepared.secrets,
            Arc::clone(&sink) as _,
        )
        .await;
    plane.fail_point("executor.after_start");
    match started {
        Ok(running) => Ok((running, sink)),
        Err(error) => Err(bulkhead_model::run::Failure::Refused { why: chain(&error) }),
    }
}

/// Waits for the report. None where this process closes and the attempt is left to the next start.
async fn watch_over(
    plane: &Plane,
    mut running: Running,
    sink: Arc<StoreSink>,
    mut stopped: Stopped,
    begun: i64,
) -> Option<End> {
    let mut asked = None;
    let report = loop {
        tokio::select! {
            report = running.ended() => break report,
            never = sink.tick() => match never {},
            why = stopped.wait_for(Option::is_some), if asked.is_none() => {
                let why = why.ok().and_then(|why| *why).unwrap_or(StopReason::Cancelled);
                asked = Some(why);
                running.stop(why);
            }
            () = plane.closing.cancelled(), if asked.is_none() => {
                asked = Some(StopReason::ShuttingDown);
                running.stop(StopReason::ShuttingDown);
            }
        }
    };
    plane.fail_point("executor.reported");
    sink.close(&report).await;
    plane.fail_point("log.closed");
    if asked == Some(StopReason::ShuttingDown) && report.failure.is_some() {
        return None;
    }
    Some(concluded(&report, plane.now_ms().saturating_sub(begun)))
}

fn concluded(report: &PhaseReport, took_ms: i64) -> End {
    End {
        result: settle::result_of(report),
        spent: settle::spent(report, took_ms),
    }
}
