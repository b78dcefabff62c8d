//! The v1 layout, and the hybrid one: limits in v1 groups, life in a v2 group where there is one.

use std::path::PathBuf;

use bulkhead_init::wire::{Entry, Group, Kill, Setting};
use bulkhead_model::limits::Limits;

use super::{Counters, MemoryOnly, Mounted, Name, PARENT, keyed, make_parent, single};
use crate::error::Refusal;

const PERIOD_US: u64 = 100_000;
const SOCKETS_LARGEST_BYTES: u64 = 64 << 20;

/// The hierarchy that a sandbox is killed by.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Life {
    /// A v2 group without controllers: birth in it, and an atomic kill.
    V2(PathBuf),
    Freezer(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct V1 {
    life: Life,
    memory: PathBuf,
    pids: PathBuf,
    cpu: PathBuf,
    /// Whether the kernel counts swap. Where it does not, there must be no swap (see [`V1::prepare`]).
    counts_swap: bool,
    counts_sockets: bool,
}

impl V1 {
    pub(super) fn find(mounted: &Mounted) -> Result<Self, Refusal> {
        let controller = |name: &str| {
            mounted.controller(name).cloned().ok_or_else(|| Refusal {
                boundary: format!("{name} limit"),
                seen: format!("no mounted cgroup hierarchy has the {name} controller"),
                remedy: "mount cgroup v2 at /sys/fs/cgroup (`mount -t cgroup2 none /sys/fs/cgroup`) or the v1 hierarchies cpu, \
                         memory and pids; in a container, pass the host's cgroup file system in"
                    .to_owned(),
            })
        };
        let life = match (&mounted.v2, mounted.controller("freezer")) {
            (Some(root), _) => Life::V2(root.clone()),
            (None, Some(root)) => Life::Freezer(root.clone()),
            (None, None) => controller("freezer").map(Life::Freezer)?,
        };
        let memory = controller("memory")?;
        let has =
            |file: &str| memory.join(file).exists() || memory.join(PARENT).join(file).exists();
        let counts_swap = has("memory.memsw.limit_in_bytes");
        let counts_sockets = has("memory.kmem.tcp.limit_in_bytes");
        Ok(Self {
            life,
            memory,
            pids: controller("pids")?,
            cpu: controller("cpu")?,
            counts_swap,
            counts_sockets,
        })
    }

    pub(super) fn parents(&self) -> Vec<PathBuf> {
        let (Life::V2(life) | Life::Freezer(life)) = &self.life;
        [life, &self.memory, &self.pids, &self.cpu]
            .map(|root| root.join(PARENT))
            .into()
    }

    pub(super) fn describe(&self) -> String {
        match &self.life {
            Life::V2(root) => format!(
                "hybrid cgroups: limits in v1, kill by v2 at {}",
                root.join(PARENT).display()
            ),
            Life::Freezer(root) => format!(
                "cgroup v1, kill by the freezer at {}",
                root.join(PARENT).display()
            ),
        }
    }

    pub(super) fn prepare(&self) -> Result<(), Refusal> {
        self.parents()
            .iter()
            .try_for_each(|parent| make_parent("limits (cgroup v1)", parent))?;
        let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
        if !self.counts_swap && swaps.lines().count() > 1 {
            return Err(Refusal {
                boundary: "memory limit".to_owned(),
                seen: "the kernel does not count swap (no memory.memsw.limit_in_bytes), and swap is on".to_owned(),
                remedy: "boot with `swapaccount=1`, or switch swap off (`swapoff -a`)".to_owned(),
            });
        }
        Ok(())
    }

    pub(super) fn groups(&self, name: &Name, limits: &Limits) -> (Vec<Group>, Kill) {
        let name = name.to_string();
        let group =
            |root: &PathBuf, entry, settings: Vec<(&str, String)>, readings: &[&str]| Group {
                path: root.join(PARENT).join(&name).display().to_string(),
                settings: settings
                    .into_iter()
                    .map(|(file, value)| Setting {
                        file: file.to_owned(),
                        value,
                    })
                    .collect(),
                entry,
                readings: readings.iter().map(|file| (*file).to_owned()).collect(),
            };
        let (life, kill) = match &self.life {
            Life::V2(root) => (
                group(root, Entry::Birth {}, vec![], &[]),
                Kill::File { group: 0 },
            ),
            Life::Freezer(root) => (
                group(root, Entry::Tasks {}, vec![], &[]),
                Kill::Freezer { group: 0 },
            ),
        };
        let quota = u64::from(limits.cpu_milli) * PERIOD_US / 1000;
        let groups = vec![
            life,
            group(
                &self.memory,
                Entry::Tasks {},
                self.memory_settings(limits.memory_bytes),
                &["memory.oom_control", "memory.max_usage_in_bytes"],
            ),
            group(
                &self.pids,
                Entry::Tasks {},
                vec![("pids.max", limits.pids.to_string())],
                &["pids.events", "pids.peak"],
            ),
            group(
                &self.cpu,
                Entry::Tasks {},
                vec![
                    ("cpu.cfs_period_us", PERIOD_US.to_string()),
                    ("cpu.cfs_quota_us", quota.to_string()),
                ],
                // There where the cpuacct controller is mounted together with this one.
                &["cpuacct.usage"],
            ),
        ];
        (groups, kill)
    }

    /// A group for memory alone. A process that moves itself writes to `tasks`, because for a single thread that is its
    /// own the kernel takes no global lock: by `cgroup.procs`, or for another, one move in twenty took 16 ms.
    pub(super) fn memory_only(&self, limit_bytes: u64) -> MemoryOnly {
        MemoryOnly {
            parent: self.memory.join(PARENT),
            settings: self.memory_settings(limit_bytes),
            entrance: "tasks",
            events: "memory.oom_control",
            peak: "memory.max_usage_in_bytes",
        }
    }

    /// Memory alone before memory with swap: the kernel wants the second never below the first.
    fn memory_settings(&self, limit_bytes: u64) -> Vec<(&'static str, String)> {
        let bytes = limit_bytes.to_string();
        let mut settings = vec![("memory.limit_in_bytes", bytes.clone())];
        if self.counts_swap {
            settings.push(("memory.memsw.limit_in_bytes", bytes));
        }
        // Here what lies in sockets is counted apart, and only where it has a limit; else one sandbox, talking to itself,
        // could fill what the whole machine has for TCP.
        if self.counts_sockets {
            let share = (limit_bytes / 8).min(SOCKETS_LARGEST_BYTES);
            settings.push(("memory.kmem.tcp.limit_in_bytes", share.to_string()));
        }
        settings
    }
}

pub(super) fn count(counters: &mut Counters, file: &str, text: &str) {
    match file {
        "memory.oom_control" => counters.oom_kills = keyed(text, "oom_kill").unwrap_or(0),
        "memory.max_usage_in_bytes" => counters.memory_peak_bytes = single(text),
        "pids.events" => counters.refused_forks = keyed(text, "max").unwrap_or(0),
        "pids.peak" => counters.pids_peak = single(text),
        "cpuacct.usage" => counters.cpu_us = single(text).map(|nanoseconds| nanoseconds / 1000),
        _ => {}
    }
}
