//! A machine over ssh for the suite: a server of the suite's own.

use std::{path::PathBuf, sync::Arc};

use bulkhead_host::{Host, SshHost};
use bulkhead_test_hosts::Sshd;

use super::{Ends, Maker};

pub(crate) struct Ssh {
    sshd: Sshd,
}

impl Ssh {
    pub(crate) fn new() -> Self {
        Self {
            sshd: Sshd::start(),
        }
    }
}

impl Maker for Ssh {
    fn describe(&self) -> Box<dyn Fn() -> Arc<dyn Host> + Send + Sync> {
        let config = crate::ssh::config(&self.sshd);
        Box::new(move || Arc::new(SshHost::new(config.clone())))
    }

    fn scratch(&self) -> PathBuf {
        self.sshd.home()
    }

    fn connections(&self) -> Option<u64> {
        u64::try_from(self.sshd.accepted()).ok()
    }

    /// `ssh` keeps to itself which signal it was.
    fn tells_signals(&self) -> bool {
        false
    }

    fn ends(&self) -> Ends {
        Ends::Connection
    }
}
