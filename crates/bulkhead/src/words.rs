//! Small things said the same way everywhere.

use bulkhead_server::{PhaseStatus, RunStatus, RunView};

/// The first characters of a commit, as people quote it.
pub(crate) fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

/// The first characters of a run's id: the millisecond in which it was made.
pub(crate) fn run_id(id: &str) -> &str {
    id.get(..13).unwrap_or(id)
}

/// A time span with one unit of its size.
pub(crate) fn span(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", millis / 60_000, millis % 60_000 / 1_000),
        _ => format!(
            "{} h {} min",
            millis / 3_600_000,
            millis % 3_600_000 / 60_000
        ),
    }
}

/// The clock of the one process that may read it: libraries are told the time.
pub(crate) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// A moment in this machine's own time zone.
pub(crate) fn moment(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(
        |_| ms.to_string(),
        |moment| {
            moment
                .to_zoned(jiff::tz::TimeZone::system())
                .strftime("%Y-%m-%d %H:%M:%S")
                .to_string()
        },
    )
}

/// Where a run stands, in a few words.
pub(crate) fn standing(run: &RunView) -> String {
    match (&run.gate, run.status) {
        (Some(gate), RunStatus::Waiting) => format!("waits at the gate after {}", gate.phase),
        (_, RunStatus::Running) => match run
            .phases
            .iter()
            .find(|phase| phase.status == PhaseStatus::Running)
        {
            Some(phase) => format!("runs {}", phase.name),
            None => "runs".to_owned(),
        },
        (_, status) => status.as_str().to_owned(),
    }
}

pub(crate) const fn phase_status(status: PhaseStatus) -> &'static str {
    match status {
        PhaseStatus::Waiting => "not begun",
        PhaseStatus::Held => "held",
        PhaseStatus::Queued => "queued",
        PhaseStatus::Running => "running",
        PhaseStatus::AtGate => "at its gate",
        PhaseStatus::Done => "done",
        PhaseStatus::Dropped => "dropped",
    }
}

#[cfg(test)]
mod tests {
    use super::{short, span};

    #[test]
    fn spans_and_ids_are_short() {
        assert_eq!(span(12), "12 ms");
        assert_eq!(span(2_345), "2.3 s");
        assert_eq!(span(62_000), "1 min 2 s");
        assert_eq!(span(3_720_000), "1 h 2 min");
        assert_eq!(short("0123456789abcdef"), "0123456789ab");
        assert_eq!(short("ab"), "ab");
    }
}
