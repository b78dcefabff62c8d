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
        kill(&left);
    }
}

pub(super) fn kill(pids: &[u32]) {
    let pids = pids
        .iter()
        .filter_map(|pid| Pid::from_raw(pid.cast_signed()));
    for pid in pids {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// A server and the servers that it has forked, but not what these have started.
pub(super) fn with_children(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let children = children
        .split_whitespace()
        .filter_map(|child| child.parse().ok());
    let is_server = |child: &u32| {
        let name = fs::read_to_string(format!("/proc/{child}/comm"));
        name.is_ok_and(|name| name.trim() == "sshd")
    };
    std::iter::once(pid)
        .chain(children.filter(is_server))
        .collect()
}
