//! One phase's own process. It is not dumpable from its first moment, and everything it needs comes over the socket that is
//! its standard input (H5, H7).

use std::{os::fd::AsFd as _, sync::Arc};

use anyhow::{Context as _, Result};
use bulkhead_session::plug::NoScripts;

use crate::{environment, failure::Exit};

pub(crate) async fn run() -> Result<Exit> {
    environment::hide()?;
    let socket = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .context("taking over standard input")?;
    bulkhead_session::run_worker(socket, Arc::new(NoScripts)).await?;
    Ok(Exit::Done)
}
