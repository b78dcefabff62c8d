//! The keeper: starts processes on the runner's own machine, and ends every one of them when the runner goes.
//!
//! It builds no wall. It is there because somebody must be the parent who adopts what processes leave behind: as a
//! subreaper it is given every orphan among its descendants, also those that made a session of their own or forked
//! twice, so following the tree of processes misses none. Where the kernel lets it make a v2 control group below its
//! own, its processes are in that too, and all of them die by one write.
//!
//! ```text
//! runner ──exec──▶ keeper ──fork+exec──▶ processes          fd 0 of the keeper: Request / Event
//!    └ gone: end of file ──▶ kill all, bury all, remove the group, exit
//! ```
//!
//! What its processes can do against it, having the same rights: kill it. Its children die with it then, and the
//! runner empties the group, which it has been given; without a group, what these children had left runs on.

use std::{
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bulkhead_init::wire::Event;

use crate::{
    link::Link,
    nursery,
    serve::{self, Place},
    sys::{self, exit_now, prctl},
};

/// How long killing goes on against processes that make new ones all the time, or that may not be killed.
const KILL_LIMIT: Duration = Duration::from_secs(5);
const LOOK_EVERY_MS: i32 = 5;

/// What holds the processes together.
pub(crate) struct Kept {
    group: Option<Group>,
}

struct Group {
    path: PathBuf,
    dir: OwnedFd,
}

pub(crate) fn run(parent: &Link) -> io::Result<()> {
    // SAFETY: no preconditions. It fails only for a process that leads a group already, which changes nothing here.
    unsafe { libc::setsid() };
    sys::block_all_signals()?;
    std::env::set_current_dir("/")?;
    nursery::name_process()?;
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1)?;
    let group = Group::make();
    let beside: Vec<_> = group.iter().map(|group| group.dir.as_fd()).collect();
    // Where the runner is gone already there is nothing to serve, but still a group to remove.
    let told = parent.send(&Event::Ready {}, &beside);
    let place = Place::Machine(Kept { group });
    if told.is_ok() {
        serve::run(parent, &place);
    }
    if let Place::Machine(kept) = place {
        kept.kill_all(bury);
        if let Some(group) = kept.group {
            group.remove();
        }
    }
    told
}

impl Kept {
    /// In a child, before its program: it belongs to the group, and dies with the keeper.
    pub(crate) fn take_in(&self) -> io::Result<()> {
        prctl(
            libc::PR_SET_PDEATHSIG,
            u64::from(libc::SIGKILL.cast_unsigned()),
        )?;
        self.group.as_ref().map_or(Ok(()), Group::enter)
    }

    /// Kills until nothing is left, burying by `reap`, which says whether there is still a child. Only direct
    /// children are killed by pid, because nobody else can have theirs; their own become direct ones by that.
    pub(crate) fn kill_all(&self, mut reap: impl FnMut() -> bool) {
        let until = Instant::now() + KILL_LIMIT;
        while Instant::now() < until {
            if let Some(group) = &self.group {
                // Where it fails, the tree is still followed.
                let _ = group.write(c"cgroup.kill", b"1");
            }
            for pid in children() {
                // SAFETY: `kill` takes numbers only.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            if !reap() {
                return;
            }
            // SAFETY: no descriptors are given; this only waits.
            unsafe { libc::poll(std::ptr::null_mut(), 0, LOOK_EVERY_MS) };
        }
    }
}

impl Group {
    /// A group below the keeper's own, so that whatever limits the runner limits its processes too.
    fn make() -> Option<Self> {
        // SAFETY: no preconditions.
        let name = format!("bulkhead-local-{}", unsafe { libc::getpid() });
        let path = own_group()?.join(name);
        // One that is there is a dead keeper's with the same pid; it goes only if it is empty.
        let _ = fs::remove_dir(&path);
        fs::create_dir(&path).ok()?;
        let opened = sys::open(path.to_str()?, libc::O_RDONLY | libc::O_DIRECTORY);
        let works = |dir: OwnedFd| {
            let group = Self {
                path: path.clone(),
                dir,
            };
            group.is_usable().then_some(group)
        };
        let made = opened.ok().and_then(works);
        if made.is_none() {
            let _ = fs::remove_dir(&path);
        }
        made
    }

    /// Whether a process can enter it, and whether it can be killed as a whole (Linux 5.14).
    fn is_usable(&self) -> bool {
        // SAFETY: this process has one thread, so the child, a copy, may run any code.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            exit_now(i32::from(self.enter().is_err()));
        }
        let mut status = -1;
        // SAFETY: the status pointer is valid.
        let entered = unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid && status == 0;
        entered && self.write(c"cgroup.kill", b"1").is_ok()
    }

    fn enter(&self) -> io::Result<()> {
        self.write(c"cgroup.procs", b"0")
    }

    fn write(&self, file: &std::ffi::CStr, text: &[u8]) -> io::Result<()> {
        let flags = libc::O_WRONLY | libc::O_CLOEXEC;
        // SAFETY: the name is a C string that outlives the call.
        let opened = unsafe { libc::openat(self.dir.as_raw_fd(), file.as_ptr(), flags) };
        sys::write_all(sys::owned(opened)?.as_fd(), text)
    }

    /// Its processes are dead but may not be gone from it yet.
    fn remove(self) {
        let until = Instant::now() + KILL_LIMIT;
        while fs::remove_dir(&self.path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
            && Instant::now() < until
        {
            // SAFETY: no descriptors are given; this only waits.
            unsafe { libc::poll(std::ptr::null_mut(), 0, LOOK_EVERY_MS) };
        }
    }
}

/// Buries the dead; false when no child is left.
fn bury() -> bool {
    loop {
        // SAFETY: a null status pointer is allowed.
        let pid = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
        if pid <= 0 {
            return pid == 0;
        }
    }
}

/// The pids whose parent this process is.
fn children() -> Vec<i32> {
    // SAFETY: no preconditions.
    let own = unsafe { libc::getpid() };
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pid = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let pids = processes.filter_map(pid);
    pids.filter(|pid: &i32| parent_of(*pid) == Some(own))
        .collect()
}

/// The fourth field of `stat`; the second one, the name, may hold anything and ends with the last parenthesis.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(&stat[after..]).ok()?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The directory of the keeper's own v2 group, where that hierarchy is mounted and shows it.
fn own_group() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let mounted = mounts.split(|byte| *byte == b'\n').find_map(v2_mount)?;
    let (root, point) = mounted;
    let below = Path::new(own).strip_prefix(root).ok()?;
    Some(point.join(below))
}

/// A line of `mountinfo`: where a mount of the v2 hierarchy begins in it, and where it is. Names with the few characters
/// that the kernel writes as escapes are passed over.
fn v2_mount(line: &[u8]) -> Option<(&Path, &Path)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let root = fields.nth(3)?;
    let point = fields.next()?;
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    let is_plain = !root.contains(&b'\\') && !point.contains(&b'\\');
    let path = |bytes| Path::new(OsStr::from_bytes(bytes));
    (kind == b"cgroup2" && is_plain).then(|| (path(root), path(point)))
}
