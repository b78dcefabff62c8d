//! What goes when its time is over, and what was left behind; each is said in the log.

use std::{sync::Arc, time::Duration};

use bulkhead_store::retention::{Mend, Policy};

use crate::{plane::Plane, problem::chain};

const EVERY: Duration = Duration::from_secs(3600);

/// Collects now and then. At the start as well: a crash may have left files without rows.
pub(crate) async fn on_timer(plane: Arc<Plane>) {
    loop {
        match collect(&plane).await {
            Ok(()) => {}
            Err(error) => tracing::error!(error = chain(&error), "collecting what is over failed"),
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = plane.closing.cancelled() => return,
        }
    }
}

async fn collect(plane: &Plane) -> Result<(), bulkhead_store::Error> {
    let policy = policy(plane);
    let report = plane
        .store
        .gc(&*plane.logs, &policy, Mend::Remove, plane.now_ms())
        .await?;
    for removed in &report.removed {
        tracing::info!(run = %removed.run, reason = %removed.reason, "removed a run");
    }
    for log in &report.logs {
        tracing::info!(log = %log.key, bytes = log.bytes, "removed a log");
    }
    Ok(())
}

fn policy(plane: &Plane) -> Policy {
    let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let retention = plane.config.retention;
    Policy {
        max_age_ms: retention.runs.map(ms),
        max_log_age_ms: retention.logs.map(ms),
        ..Policy::default()
    }
}
