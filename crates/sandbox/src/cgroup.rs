//! Control groups: one abstract layout over what the machine has mounted, with two implementations.
//!
//! | layout | limits | birth, kill, freeze |
//! |---|---|---|
//! | v2 | one v2 group | the same group |
//! | hybrid | v1 groups: memory, pids, cpu | a v2 group without controllers |
//! | v1 only | v1 groups: memory, pids, cpu | a v1 freezer group |
//!
//! A layout only says which directories and files there are and what goes into them; the launcher makes a sandbox's groups,
//! so that it can also remove them. All of a layout's paths hang below mount points that are handed in, so a test can give
//! it a tree of plain files. Every sandbox's groups lie directly under `bulkhead/` at each hierarchy's root, never below
//! whatever group the parent happens to sit in, and carry a name that says whose they are ([`Name`]).

mod mounted;
mod name;
mod v1;
mod v2;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bulkhead_init::wire::{Group, Kill, Reading};
use bulkhead_model::limits::Limits;

use crate::error::Refusal;

pub(crate) use mounted::{Mounted, mounted};
pub(crate) use name::{Name, Owner};
use v1::V1;
use v2::V2;

/// The directory at each hierarchy's root that holds all sandboxes' groups.
const PARENT: &str = "bulkhead";
/// How long removing a leftover group may take.
const REMOVAL_LIMIT: Duration = Duration::from_secs(5);
const REMOVAL_PAUSE: Duration = Duration::from_millis(2);

/// What the groups counted over a sandbox's life. None where this kernel does not count it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Processes that the kernel killed because the group was over its memory limit.
    pub(crate) oom_kills: u64,
    /// Forks refused because the group was at its limit of processes.
    pub(crate) refused_forks: u64,
    pub(crate) memory_peak_bytes: Option<u64>,
    pub(crate) pids_peak: Option<u64>,
    pub(crate) cpu_us: Option<u64>,
}

/// What groups that bound memory and nothing else are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemoryOnly {
    pub(crate) parent: PathBuf,
    /// Files and what is written to them, in this order.
    pub(crate) settings: Vec<(&'static str, String)>,
    /// The file by which a process moves itself in, writing `0`.
    pub(crate) entrance: &'static str,
    /// The file with a line `oom_kill N`.
    pub(crate) events: &'static str,
    /// The file with the largest use.
    pub(crate) peak: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Layout {
    V2(V2),
    V1(V1),
}

impl Layout {
    /// Chooses a layout for what is mounted, or says which limit could not be set.
    pub(crate) fn choose(mounted: &Mounted) -> Result<Self, Refusal> {
        if let Some(v2) = V2::find(mounted)? {
            return Ok(Self::V2(v2));
        }
        V1::find(mounted).map(Self::V1)
    }

    /// Makes the common parent groups and hands the controllers down to them. Repeating it is harmless.
    pub(crate) fn prepare(&self) -> Result<(), Refusal> {
        match self {
            Self::V2(v2) => v2.prepare(),
            Self::V1(v1) => v1.prepare(),
        }
    }

    /// The groups of one sandbox and how to kill all that is in them.
    pub(crate) fn groups(&self, name: &Name, limits: &Limits) -> (Vec<Group>, Kill) {
        match self {
            Self::V2(v2) => v2.groups(name, limits),
            Self::V1(v1) => v1.groups(name, limits),
        }
    }

    /// Groups that bound memory and nothing else.
    pub(crate) fn memory_only(&self, limit_bytes: u64) -> MemoryOnly {
        match self {
            Self::V2(v2) => v2.memory_only(limit_bytes),
            Self::V1(v1) => v1.memory_only(limit_bytes),
        }
    }

    pub(crate) fn count(&self, readings: &[Reading]) -> Counters {
        let mut counters = Counters::default();
        for reading in readings {
            match self {
                Self::V2(_) => v2::count(&mut counters, &reading.file, &reading.text),
                Self::V1(_) => v1::count(&mut counters, &reading.file, &reading.text),
            }
        }
        counters
    }

    /// In words, for people.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::V2(v2) => format!("cgroup v2 at {}", v2.parent().display()),
            Self::V1(v1) => v1.describe(),
        }
    }

    fn parents(&self) -> Vec<PathBuf> {
        match self {
            Self::V2(v2) => vec![v2.parent()],
            Self::V1(v1) => v1.parents(),
        }
    }

    /// Every group that is there now, by its name, with the directories it has.
    pub(crate) fn existing(&self) -> Vec<(String, Vec<PathBuf>)> {
        let mut found = std::collections::BTreeMap::<String, Vec<PathBuf>>::new();
        for parent in self.parents() {
            for entry in fs::read_dir(&parent).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let name = entry.file_name().to_string_lossy().into_owned();
                    found.entry(name).or_default().push(entry.path());
                }
            }
        }
        found.into_iter().collect()
    }
}

/// Kills everything in a leftover sandbox's groups and removes them. Blocks; bounded by [`REMOVAL_LIMIT`].
pub(crate) fn destroy(dirs: &[PathBuf]) -> io::Result<()> {
    let end = Instant::now() + REMOVAL_LIMIT;
    loop {
        for dir in dirs {
            kill_group(dir);
        }
        let left: io::Result<()> = dirs.iter().try_for_each(|dir| remove(dir));
        match left {
            Err(_) if Instant::now() < end => std::thread::sleep(REMOVAL_PAUSE),
            result => return result,
        }
    }
}

/// For groups whose launcher died: what they counted, then their end.
pub(crate) fn read_and_destroy(groups: &[Group]) -> (Vec<Reading>, io::Result<()>) {
    let mut readings = Vec::new();
    for (index, group) in (0..).zip(groups) {
        for file in &group.readings {
            if let Ok(text) = fs::read_to_string(Path::new(&group.path).join(file)) {
                readings.push(Reading {
                    group: index,
                    file: file.clone(),
                    text,
                });
            }
        }
    }
    let dirs: Vec<PathBuf> = groups
        .iter()
        .map(|group| PathBuf::from(&group.path))
        .collect();
    (readings, destroy(&dirs))
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// By `cgroup.kill` where the group has it, else one by one, again and again until none is left.
pub(crate) fn kill_group(dir: &Path) {
    let kill = dir.join("cgroup.kill");
    if kill.exists() && fs::write(kill, "1").is_ok() {
        return;
    }
    for pid in processes(dir) {
        let pid = rustix::process::Pid::from_raw(pid);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// The processes in one group.
pub(crate) fn processes(dir: &Path) -> Vec<i32> {
    let listed = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    listed
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect()
}

/// The number after `key ` in a file of such lines.
pub(crate) fn keyed(text: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .find(|(name, _)| *name == key)
        .and_then(|(_, value)| value.trim().parse().ok())
}

pub(crate) fn single(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Writes a control file of a parent group, with a refusal in words when the kernel says no.
fn control(boundary: &str, file: &Path, value: &str, remedy: &str) -> Result<(), Refusal> {
    fs::write(file, value).map_err(|error| Refusal {
        boundary: boundary.to_owned(),
        seen: format!("writing “{value}” to {}: {error}", file.display()),
        remedy: remedy.to_owned(),
    })
}

fn make_parent(boundary: &str, dir: &Path) -> Result<(), Refusal> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Refusal {
            boundary: boundary.to_owned(),
            seen: format!("making the cgroup {}: {error}", dir.display()),
            remedy: "run Bulkhead as root, or as a user to whom a cgroup v2 subtree is delegated (systemd: \
                     `systemd-run --user --scope -p Delegate=yes bulkhead …`); in a container, give it a writable cgroup \
                     file system"
                .to_owned(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests;
