//! The phase gateway: what sandboxes reach of the control plane, on a private Unix socket. Git under `/git/`,
//! models under `/model/`; every request carries a phase token, and nothing else of the API is here.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{body::Body, extract::Request, routing::any};
use bulkhead_door::model::ModelGateway;
use bulkhead_git::{GatewayLimits, gateway};
use tokio::net::UnixListener;

use crate::{ledger::Ledger, plane::Plane};

/// How long requests to models may go on when the gateway stops.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Where the gateway listens.
pub(crate) fn socket(run_dir: &Path) -> PathBuf {
    run_dir.join("gateway").join("phase.sock")
}

/// Binds the socket in a directory of its own that only this user may enter.
pub(crate) fn bind(run_dir: &Path) -> io::Result<UnixListener> {
    let path = socket(run_dir);
    if let Some(dir) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)?;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    }
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(&path)
}

pub(crate) async fn serve(plane: Arc<Plane>, listener: UnixListener, models: ModelGateway) {
    let git = gateway::service(
        Arc::new(Ledger(Arc::clone(&plane))),
        Arc::new(Ledger(Arc::clone(&plane))),
        GatewayLimits::default(),
        plane.tasks.clone(),
    );
    let answering = models.clone();
    let answer = move |request: Request| {
        let models = answering.clone();
        async move { models.handle(request).await.map(Body::new) }
    };
    let router = git.route("/model/{*rest}", any(answer));
    let closing = plane.closing.clone();
    let served = axum::serve(listener, router)
        .with_graceful_shutdown(async move { closing.cancelled().await })
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "the phase gateway failed");
    }
    models.stop(STOP_GRACE).await;
}
