//! The one reason why a sandbox ended, from all that was seen. Pure: everything comes in as arguments.
//!
//! ```text
//! the first of: the time limit (launcher)   → Timeout
//!               the owner's other causes    → Timeout, Idle, Cancelled
//!               it died by itself           → Oom where the kernel killed for memory, else Lost
//!               the work finished, exit 0   → Exit{0}, with the counters as evidence only (case 57)
//!               it finished otherwise       → Oom, PidsLimit, DiskFull where a counter shows it, else Exit or Signal
//! ```

use bulkhead_model::outcome::{EndReason, Evidence, Outcome, ResourceUse};

use crate::{cgroup::Counters, process::ExitStatus, sandbox::Cause, shared::Over};

/// A file system is full below this share of its size: ext4 keeps room for its own books while data waits to be written,
/// so a write is refused before the last block is taken (seen: 256 MiB refused with more than 64 KiB free).
const FULL_BELOW_SHARE: u64 = 128;
/// The bounds of that share.
const FULL_BELOW_BYTES: std::ops::RangeInclusive<u64> = (64 << 10)..=(16 << 20);

/// How full one of the sandbox's file systems was at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiskUse {
    /// The directory inside.
    pub(crate) dir: String,
    pub(crate) size_bytes: u64,
    pub(crate) free_bytes: u64,
    pub(crate) files: u64,
    pub(crate) free_files: u64,
}

impl DiskUse {
    fn is_full(&self) -> bool {
        let (least, most) = FULL_BELOW_BYTES.into_inner();
        let margin = (self.size_bytes / FULL_BELOW_SHARE).clamp(least, most);
        self.free_bytes < margin || (self.files > 0 && self.free_files == 0)
    }

    fn evidence(&self) -> Evidence {
        let Self {
            dir,
            size_bytes,
            free_bytes,
            files,
            free_files,
        } = self;
        evidence(
            &format!("statfs {dir}"),
            format!("{free_bytes} of {size_bytes} bytes free, {free_files} of {files} files free"),
        )
    }
}

/// Why it stopped, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    TimeLimit {
        limit_ms: u64,
    },
    /// It added more to a shared directory than its disk limit allows.
    DiskWatch(Over),
    Asked(Cause),
    /// PID 1 ended before anybody asked it to.
    InitDied {
        status: i32,
    },
    LauncherDied,
}

/// Everything that was seen.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) stopped: Stopped,
    pub(crate) counters: Counters,
    pub(crate) disks: Vec<DiskUse>,
    pub(crate) wall_ms: u64,
    /// What the processes used, where the groups do not count it.
    pub(crate) reaped_cpu_us: u64,
    /// What could not be removed.
    pub(crate) remains: Vec<String>,
}

pub(crate) fn judge(seen: &Seen) -> Outcome {
    let reason = reason(seen);
    let mut all = vec![first_evidence(&seen.stopped)];
    let counters = &seen.counters;
    if counters.oom_kills > 0 {
        all.push(evidence(
            "cgroup memory, oom_kill",
            format!(
                "{} processes killed over the memory limit",
                counters.oom_kills
            ),
        ));
    }
    if counters.refused_forks > 0 {
        all.push(evidence(
            "cgroup pids.events, max",
            format!("{} times no process could be made", counters.refused_forks),
        ));
    }
    all.extend(
        seen.disks
            .iter()
            .filter(|disk| disk.is_full())
            .map(DiskUse::evidence),
    );
    all.extend(
        seen.remains
            .iter()
            .map(|what| evidence("not removed", what.clone())),
    );
    Outcome {
        reason,
        evidence: all,
        used: used(seen),
    }
}

fn reason(seen: &Seen) -> EndReason {
    match seen.stopped {
        Stopped::TimeLimit { .. } | Stopped::Asked(Cause::Timeout) => EndReason::Timeout,
        Stopped::DiskWatch(_) => EndReason::DiskFull,
        Stopped::Asked(Cause::Idle) => EndReason::Idle,
        Stopped::Asked(Cause::Cancelled) => EndReason::Cancelled,
        Stopped::Asked(Cause::Finished(ExitStatus::Code(0))) => EndReason::Exit { code: 0 },
        Stopped::Asked(Cause::Finished(ExitStatus::Code(code))) => {
            limit(seen).unwrap_or(EndReason::Exit { code })
        }
        Stopped::Asked(Cause::Finished(ExitStatus::Signal(signal))) => {
            limit(seen).unwrap_or(EndReason::Signal { signal })
        }
        Stopped::Asked(Cause::Finished(ExitStatus::SandboxEnded))
        | Stopped::InitDied { .. }
        | Stopped::LauncherDied => limit(seen)
            .filter(|reason| *reason == EndReason::Oom)
            .unwrap_or(EndReason::Lost),
    }
}

/// The limit that is behind a failure, where the kernel's counters show one.
fn limit(seen: &Seen) -> Option<EndReason> {
    let full = seen.disks.iter().any(DiskUse::is_full);
    match seen.counters {
        Counters { oom_kills: 1.., .. } => Some(EndReason::Oom),
        Counters {
            refused_forks: 1.., ..
        } => Some(EndReason::PidsLimit),
        _ if full => Some(EndReason::DiskFull),
        _ => None,
    }
}

fn first_evidence(stopped: &Stopped) -> Evidence {
    match stopped {
        Stopped::TimeLimit { limit_ms } => evidence(
            "launcher's clock",
            format!("the limit of {limit_ms} ms was over"),
        ),
        Stopped::DiskWatch(Over {
            added,
            allowed,
            unit,
        }) => evidence(
            "watched workspace",
            format!("{added} {unit} added, {allowed} allowed"),
        ),
        Stopped::Asked(Cause::Finished(ExitStatus::Code(code))) => {
            evidence("exit status", format!("code {code}"))
        }
        Stopped::Asked(Cause::Finished(ExitStatus::Signal(signal))) => {
            evidence("exit status", format!("signal {signal}"))
        }
        Stopped::Asked(Cause::Finished(ExitStatus::SandboxEnded)) => evidence(
            "exit status",
            "none: the process was gone with its sandbox".to_owned(),
        ),
        Stopped::Asked(cause) => evidence("owner", format!("ended it: {cause:?}")),
        Stopped::InitDied { status } => {
            evidence("PID 1", format!("ended by itself, wait status {status:#x}"))
        }
        Stopped::LauncherDied => evidence(
            "launcher",
            "ended by itself; the parent removed what was left".to_owned(),
        ),
    }
}

fn used(seen: &Seen) -> ResourceUse {
    ResourceUse {
        wall_ms: seen.wall_ms,
        cpu_ms: seen.counters.cpu_us.unwrap_or(seen.reaped_cpu_us) / 1000,
        memory_peak_bytes: seen.counters.memory_peak_bytes.unwrap_or(0),
        pids_peak: seen
            .counters
            .pids_peak
            .and_then(|peak| u32::try_from(peak).ok())
            .unwrap_or(0),
    }
}

fn evidence(source: &str, detail: String) -> Evidence {
    Evidence {
        source: source.to_owned(),
        detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(stopped: Stopped, oom_kills: u64, refused_forks: u64, free_bytes: u64) -> Seen {
        Seen {
            stopped,
            counters: Counters {
                oom_kills,
                refused_forks,
                ..Counters::default()
            },
            disks: vec![DiskUse {
                dir: "/workspace".to_owned(),
                size_bytes: 1 << 30,
                free_bytes,
                files: 9,
                free_files: 8,
            }],
            wall_ms: 1,
            reaped_cpu_us: 2_000,
            remains: vec![],
        }
    }

    const ROOM: u64 = 1 << 29;
    const FAILED: Stopped = Stopped::Asked(Cause::Finished(ExitStatus::Code(1)));
    const DONE: Stopped = Stopped::Asked(Cause::Finished(ExitStatus::Code(0)));
    const KILLED: Stopped = Stopped::Asked(Cause::Finished(ExitStatus::Signal(9)));

    #[test]
    fn case_57_memory_is_the_reason_only_of_a_failure() {
        assert_eq!(judge(&seen(KILLED, 1, 0, ROOM)).reason, EndReason::Oom);
        assert_eq!(judge(&seen(FAILED, 2, 1, 0)).reason, EndReason::Oom);
        let went_on = judge(&seen(DONE, 1, 0, ROOM));
        assert_eq!(went_on.reason, EndReason::Exit { code: 0 });
        assert!(
            went_on
                .evidence
                .iter()
                .any(|one| one.source.contains("oom_kill"))
        );
    }

    #[test]
    fn case_56_processes_are_the_reason_of_a_failure() {
        assert_eq!(
            judge(&seen(FAILED, 0, 3, ROOM)).reason,
            EndReason::PidsLimit
        );
        assert_eq!(
            judge(&seen(DONE, 0, 3, ROOM)).reason,
            EndReason::Exit { code: 0 }
        );
    }

    #[test]
    fn case_48_a_full_disk_is_the_reason_of_a_failure() {
        assert_eq!(judge(&seen(FAILED, 0, 0, 0)).reason, EndReason::DiskFull);
        let mut no_files = seen(FAILED, 0, 0, ROOM);
        no_files.disks[0].free_files = 0;
        assert_eq!(judge(&no_files).reason, EndReason::DiskFull);
    }

    #[test]
    fn the_owner_s_cause_and_the_clock_come_before_counters() {
        assert_eq!(
            judge(&seen(Stopped::TimeLimit { limit_ms: 5 }, 1, 1, 0)).reason,
            EndReason::Timeout
        );
        assert_eq!(
            judge(&seen(Stopped::Asked(Cause::Idle), 1, 0, 0)).reason,
            EndReason::Idle
        );
        assert_eq!(
            judge(&seen(Stopped::Asked(Cause::Cancelled), 0, 1, 0)).reason,
            EndReason::Cancelled
        );
    }

    #[test]
    fn what_nobody_saw_is_lost_and_plain_ends_stay_plain() {
        assert_eq!(
            judge(&seen(Stopped::LauncherDied, 0, 0, 0)).reason,
            EndReason::Lost
        );
        assert_eq!(
            judge(&seen(Stopped::InitDied { status: 9 }, 1, 0, ROOM)).reason,
            EndReason::Oom
        );
        assert_eq!(
            judge(&seen(FAILED, 0, 0, ROOM)).reason,
            EndReason::Exit { code: 1 }
        );
        assert_eq!(
            judge(&seen(KILLED, 0, 0, ROOM)).reason,
            EndReason::Signal { signal: 9 }
        );
        assert_eq!(judge(&seen(DONE, 0, 0, ROOM)).used.cpu_ms, 2);
    }
}
