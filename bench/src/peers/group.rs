//! Bubblewrap, with the cgroups that it does not make itself: version 1 groups, made before and removed after.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result};

use super::{CPU_MILLI, MEMORY_BYTES, PAYLOAD, PIDS, Peer, must_succeed};

static NEXT: AtomicU32 = AtomicU32::new(0);

pub(super) struct Bubblewrap;

impl Peer for Bubblewrap {
    fn name(&self) -> String {
        "bubblewrap + cgroups".to_owned()
    }

    fn run_once(&self) -> Result<()> {
        let groups = Groups::make()?;
        let mut command = Command::new("bwrap");
        command
            .args([
                "--unshare-all",
                "--die-with-parent",
                "--new-session",
                "--cap-drop",
                "ALL",
            ])
            .args(["--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"])
            .args([
                "--symlink",
                "usr/lib",
                "/lib",
                "--symlink",
                "usr/lib64",
                "/lib64",
            ])
            .args([
                "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", PAYLOAD,
            ]);
        groups.inside(|| must_succeed(&mut command))
    }
}

struct Groups(Vec<PathBuf>);

impl Groups {
    fn make() -> Result<Self> {
        let name = format!(
            "bulkhead-bench-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let groups: Vec<PathBuf> = ["memory", "pids", "cpu"]
            .iter()
            .map(|controller| Path::new("/sys/fs/cgroup").join(controller).join(&name))
            .collect();
        for group in &groups {
            fs::create_dir(group)
                .with_context(|| format!("making {} (cgroup v1 is needed)", group.display()))?;
        }
        fs::write(
            groups[0].join("memory.limit_in_bytes"),
            MEMORY_BYTES.to_string(),
        )?;
        fs::write(groups[1].join("pids.max"), PIDS.to_string())?;
        fs::write(
            groups[2].join("cpu.cfs_quota_us"),
            (CPU_MILLI * 100).to_string(),
        )?;
        Ok(Self(groups))
    }

    /// Runs with this thread in the groups, so that what it starts is born there and all of it is counted.
    fn inside<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.0
            .iter()
            .try_for_each(|group| fs::write(group.join("tasks"), "0"))?;
        let done = work();
        let parents = self.0.iter().filter_map(|group| group.parent());
        for parent in parents {
            fs::write(parent.join("tasks"), "0")?;
        }
        done
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in &self.0 {
            while fs::remove_dir(group).is_err() && group.exists() {
                std::thread::yield_now();
            }
        }
    }
}
