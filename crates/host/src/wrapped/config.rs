//! What the walls of a wrapped sandbox leave open, as its user writes it.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Component, Path, PathBuf},
};

use serde::Deserialize;

/// A sandbox on a host that is not the runner's own machine. What is not said is closed: without any of it, processes
/// see the machine's programs and libraries, read only, a home and a `/tmp` of their own, and no network.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct WrapConfig {
    /// Directories and files of the machine that processes may change. They must be there.
    pub writable: Vec<PathBuf>,
    /// Directories and files of the machine that they may read. They must be there.
    pub readable: Vec<PathBuf>,
    /// What stays hidden inside of those; what is not there is hidden already.
    pub hidden: Vec<PathBuf>,
    pub network: WrapNetwork,
    /// Given to every process.
    pub env: BTreeMap<String, String>,
    /// Where processes start that name no directory; none is the home inside.
    pub workdir: Option<PathBuf>,
    /// A persistent host (H14): the sandbox ends when it has heard nothing from the session for so long.
    pub lost_after_seconds: Option<u16>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WrapNetwork {
    /// Loopback only, and only the sandbox's own.
    #[default]
    None,
    /// That of the host.
    Host,
}

/// Names of variables only: their values may be secrets.
impl fmt::Debug for WrapConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrapConfig")
            .field("writable", &self.writable)
            .field("readable", &self.readable)
            .field("hidden", &self.hidden)
            .field("network", &self.network)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("workdir", &self.workdir)
            .finish_non_exhaustive()
    }
}

impl WrapConfig {
    /// The first path that cannot be meant: one that depends on where one is, or is no text for a command line.
    pub(super) fn bad_path(&self) -> Option<&Path> {
        let lists = [&self.writable, &self.readable, &self.hidden];
        let all = lists.into_iter().flatten().chain(&self.workdir);
        all.map(PathBuf::as_path).find(|path| {
            let climbs = path.components().any(|part| part == Component::ParentDir);
            !path.is_absolute() || climbs || path.to_str().is_none()
        })
    }
}
