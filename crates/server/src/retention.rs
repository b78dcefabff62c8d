//! What goes when its time is over.

use std::{sync::Arc, time::Duration};

use crate::plane::Plane;

const EVERY: Duration = Duration::from_secs(3600);

pub(crate) async fn on_timer(plane: Arc<Plane>) {
    tokio::select! {
        () = tokio::time::sleep(EVERY) => {}
        () = plane.closing.cancelled() => {}
    }
}
