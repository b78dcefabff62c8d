//! What there is on the machine under test: processes by what they carry, files by their names.

use std::{
    fs,
    path::Path,
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

fn carries(pid: u32, word: &str) -> bool {
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
