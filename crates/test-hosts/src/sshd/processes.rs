//! Finding what was started through a server: by a variable in its environment, which descendants inherit.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Rounds of killing: what forks meanwhile is found by the next one.
const ROUNDS: usize = 20;

pub(super) fn marked(mark: &str) -> Vec<u32> {
    let variable = format!("BULKHEAD_TEST_SSHD={mark}");
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|one| one == variable.as_bytes())
    })
    .collect()
}

pub(super) fn end(mark: &str) {
    for _ in 0..ROUNDS {
        let left = marked(mark);
        if left.is_empty() {
            return;
        }
        for pid in left {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            if let Some(pid) = pid {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}
