//! The sandbox's control groups: made, set, read, killed, removed, exactly as the plan lists them.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bulkhead_init::wire::{Entry, Group, Kill, Reading};

use crate::sys::{Context, Outcome, open};

/// A dead process leaves its group a moment after its parent has been told.
const EMPTY_DEADLINE: Duration = Duration::from_secs(20);
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The groups of one sandbox. What was made is known at every moment, so that a failure half way leaves nothing.
pub(crate) struct Groups<'plan> {
    groups: &'plan [Group],
    kill: &'plan Kill,
    made: usize,
    /// Where PID 1 is born.
    pub(crate) birth: Option<OwnedFd>,
    /// `tasks` files that PID 1 writes itself into.
    pub(crate) tasks: Vec<OwnedFd>,
}

impl<'plan> Groups<'plan> {
    pub(crate) const fn new(groups: &'plan [Group], kill: &'plan Kill) -> Self {
        Self {
            groups,
            kill,
            made: 0,
            birth: None,
            tasks: Vec::new(),
        }
    }

    /// Makes and limits the group that PID 1 is born in, which is the first where there is one.
    pub(crate) fn make_birthplace(&mut self) -> Outcome<()> {
        let births = |group: &Group| matches!(group.entry, Entry::Birth {});
        let first = self.groups.first().is_some_and(births);
        self.make(usize::from(first))
    }

    /// Makes and limits the other groups.
    pub(crate) fn make_rest(&mut self) -> Outcome<()> {
        self.make(self.groups.len())
    }

    /// Makes groups until there are `count`. A limit that cannot be set is a failure: there is no sandbox without it.
    fn make(&mut self, count: usize) -> Outcome<()> {
        for group in self.groups.iter().take(count).skip(self.made) {
            fs::create_dir(&group.path).during(|| format!("making the cgroup {}", group.path))?;
            self.made += 1;
            for setting in &group.settings {
                let file = format!("{}/{}", group.path, setting.file);
                fs::write(&file, &setting.value)
                    .during(|| format!("writing {} to {file}", setting.value))?;
            }
            match group.entry {
                Entry::Birth {} => {
                    let dir = open(&group.path, libc::O_DIRECTORY | libc::O_RDONLY);
                    self.birth = Some(dir.during(|| format!("opening {}", group.path))?);
                }
                Entry::Tasks {} => {
                    let file = format!("{}/tasks", group.path);
                    self.tasks
                        .push(open(&file, libc::O_WRONLY).during(|| format!("opening {file}"))?);
                }
            }
        }
        Ok(())
    }

    /// Kills all that is inside. It is called again until everything is dead, so a lost race is no matter.
    pub(crate) fn kill_all(&self) -> io::Result<()> {
        match *self.kill {
            Kill::File { group } => fs::write(self.path(group).join("cgroup.kill"), "1"),
            Kill::Freezer { group } => kill_frozen(&self.path(group)),
        }
    }

    fn path(&self, group: u8) -> PathBuf {
        self.groups
            .get(usize::from(group))
            .map(|found| PathBuf::from(&found.path))
            .unwrap_or_default()
    }

    /// What the kernel counted. A file that is not there (an older kernel) is left out.
    pub(crate) fn read(&self) -> Vec<Reading> {
        let mut all = Vec::new();
        for (index, group) in self.groups.iter().enumerate().take(self.made) {
            for file in &group.readings {
                if let Ok(text) = fs::read_to_string(format!("{}/{file}", group.path)) {
                    all.push(Reading {
                        group: u8::try_from(index).unwrap_or(u8::MAX),
                        file: file.clone(),
                        text,
                    });
                }
            }
        }
        all
    }

    /// Removes the groups, waiting until each is empty; returns what would not go, and why.
    pub(crate) fn remove(&mut self) -> Vec<String> {
        self.birth = None;
        self.tasks.clear();
        let end = Instant::now() + EMPTY_DEADLINE;
        let made = std::mem::take(&mut self.made);
        let failed = self
            .groups
            .iter()
            .take(made)
            .rev()
            .filter_map(|group| self.remove_one(&group.path, end));
        failed.collect()
    }

    fn remove_one(&self, path: &str, end: Instant) -> Option<String> {
        let mut pause = FIRST_PAUSE;
        loop {
            match fs::remove_dir(path) {
                Ok(()) => return None,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
                Err(error) if Instant::now() > end => {
                    return Some(format!("cgroup {path}: {error}"));
                }
                Err(_) => {
                    let _ = self.kill_all();
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }
}

/// Moves the calling process, which has one thread, into the groups that it was not born in.
pub(crate) fn enter(tasks: &[OwnedFd]) -> Outcome<()> {
    for file in tasks {
        crate::sys::write_all(file.as_fd(), b"0").during(|| "entering a cgroup".to_owned())?;
    }
    Ok(())
}

/// Freezing first means that nothing can fork away between reading the list and signalling it.
fn kill_frozen(group: &Path) -> io::Result<()> {
    fs::write(group.join("freezer.state"), "FROZEN")?;
    let listed = fs::read_to_string(group.join("cgroup.procs"));
    for pid in listed
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| line.parse::<i32>().ok())
    {
        // SAFETY: `kill` takes numbers only; the pid was read from the sandbox's own, frozen group.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    fs::write(group.join("freezer.state"), "THAWED")
}

/// The directory of a group, for messages.
impl std::fmt::Debug for Groups<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let birth = self.birth.as_ref().map(AsRawFd::as_raw_fd);
        f.debug_struct("Groups")
            .field("made", &self.made)
            .field("birth", &birth)
            .finish()
    }
}
