//! What there is on the machine under test: processes by what they carry, files by their names.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Waits for a condition, and says how long it took.
pub(super) async fn until(
    what: &str,
    limit: Duration,
    mut holds: impl FnMut() -> bool,
) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < limit, "in {limit:?} not: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    start.elapsed()
}

/// The pids of the processes that carry a word in their arguments or environment and are not being buried.
pub(super) fn carrying(word: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap();
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let own = std::process::id();
    pids.filter(|pid| *pid != own && carries(*pid, word))
        .collect()
}

/// The clients' own processes have an agent's words in their arguments.
fn is_client(process: &Path) -> bool {
    let cmdline = fs::read(process.join("cmdline")).unwrap_or_default();
    cmdline.starts_with(b"ssh\0")
}

fn carries(pid: u32, word: &str) -> bool {
    if is_client(Path::new(&format!("/proc/{pid}"))) {
        return false;
    }
    ["cmdline", "environ"].iter().any(|file| {
        let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        bytes
            .windows(word.len())
            .any(|part| part == word.as_bytes())
    })
}

/// What a supervisor would leave in its directory.
pub(super) fn left_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

/// What a cell's word begins with.
pub(super) const WORD: &str = "bulkhead-cell-";
/// The digits that follow.
const DIGITS: usize = 32;

/// How many processes carry each word of a cell.
pub(super) fn cells() -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        if is_client(&entry.path()) {
            continue;
        }
        let words = ["cmdline", "environ"].map(|file| {
            let bytes = fs::read(entry.path().join(file)).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let start = text.find(WORD)?;
            text.get(start..start + WORD.len() + DIGITS)
                .map(str::to_owned)
        });
        if let Some(word) = words.into_iter().flatten().next() {
            *counts.entry(word).or_default() += 1;
        }
    }
    counts
}

/// The control groups of Bulkhead's in which processes that carry a word are.
pub(super) fn groups_of(word: &str) -> BTreeSet<PathBuf> {
    let mut groups = BTreeSet::new();
    for pid in carrying(word) {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let names = text
            .lines()
            .filter_map(|line| line.split("/bulkhead-").nth(1));
        let roots = [
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/unified",
            "/sys/fs/cgroup/freezer",
        ];
        for name in names {
            groups.extend(roots.map(|root| Path::new(root).join(format!("bulkhead-{name}"))));
        }
    }
    groups.retain(|group| group.exists());
    groups
}

/// The process of a connection that starts its sessions: a child of the server's where it gave up root's rights.
pub(super) fn session_server(server: u32) -> u32 {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let child = pids.find(|pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.starts_with("Name:\tsshd") && status.contains(&format!("\nPPid:\t{server}\n"))
    });
    child.unwrap_or(server)
}
