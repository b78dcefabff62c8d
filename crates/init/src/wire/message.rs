//! What is said while a sandbox lives.

use super::{
    codec::{choice, record},
    plan::Plan,
};

choice!(
    #[expect(clippy::large_enum_variant, reason = "one such message is made per sandbox, and it is the large one")]
    /// From the parent to the launcher. Its end of file means the same as [`Control::End`].
    Control {
        /// First and once. The open files that [`super::Source::Passed`] counts come with it.
        1 => Build { plan: Plan },
        /// The first process was started: the time limit counts from now.
        2 => StartClock {},
        3 => End {},
        /// Instead of the first message: only say what this kernel offers.
        4 => Probe {},
        /// From the launcher to PID 1, twice: its user ids are mapped; then, with the files through which it enters them, its
        /// control groups are made.
        6 => Go {},
        /// To the nursery, with the far ends of a launcher's two links: fork one.
        5 => Fork {},
    }
);

choice!(
    /// From the launcher to the parent.
    Report {
        /// PID 1 exists. What follows comes from it, over its own link.
        1 => Started { launcher: u32 },
        /// Nothing was built, and nothing is left.
        2 => Failed { failure: Failure },
        /// Everything is dead; the groups are gone, or `remains` says what could not be removed.
        3 => Ended { stop: Stop, usage: Use, readings: Vec<Reading>, remains: Vec<String> },
        4 => Probed { found: Vec<Probed> },
    }
);

record!(
    /// One thing that was tried: 0, or the kernel's error number.
    Probed { name: String, value: i32, errno: i32 }
);

record!(
    /// A step that failed, with the kernel's error number.
    Failure { step: String, errno: i32 }
);

choice!(
    /// Why the launcher ended the sandbox.
    Stop {
        1 => Asked {},
        2 => TimeLimit {},
        /// PID 1 was gone first, with this wait status.
        3 => InitDied { status: i32 },
    }
);

record!(
    /// What PID 1 and all that it reaped used, from its `wait4`.
    Use { cpu_us: u64 }
);

record!(
    /// A file of a group as it read at the end.
    Reading { group: u8, file: String, text: String }
);

choice!(
    /// From the parent to PID 1.
    Request {
        /// Open files beside it: those of the three streams that are [`IoKind::Passed`], in order.
        1 => Spawn {
            token: u32,
            argv: Vec<Vec<u8>>,
            env: Vec<Vec<u8>>,
            cwd: Vec<u8>,
            search_path: Vec<u8>,
            io: Vec<IoKind>,
            rows: u16,
            columns: u16,
        },
        /// A negative pid is a process group, as for `kill`.
        2 => Signal { token: u32, group: u8, signal: i32 },
        /// A process like any other, but one that looks around and writes what it sees to the one file beside this.
        3 => Examine { token: u32 },
        /// Kills every process but PID 1. What is asked for after it finds nobody alive who could hinder it.
        4 => Clear {},
        /// A further mode of the program itself, as the agent. Two files beside it: its input and its output.
        5 => Helper { token: u32, arguments: Vec<Vec<u8>>, cwd: Vec<u8> },
    }
);

choice!(
    /// What one of the three streams is.
    IoKind {
        1 => Null {},
        2 => Passed {},
        /// All three or none: a new terminal, whose other end comes back with [`Event::Spawned`].
        3 => Terminal {},
    }
);

choice!(
    /// From PID 1 to the parent.
    Event {
        /// Every wall stands. Beside it: the listeners, then the watched directories.
        1 => Ready {},
        2 => Failed { failure: Failure },
        3 => Spawned { token: u32, pid: u32 },
        4 => SpawnFailed { token: u32, stage: SpawnStage, errno: i32 },
        /// A process that the parent had started ended, with this wait status.
        5 => Exited { token: u32, status: i32 },
    }
);

choice!(
    /// How far the start of a process had come.
    SpawnStage { 1 => Fork {}, 2 => Setup {}, 3 => WorkingDirectory {}, 4 => Execute {}, 5 => Terminal {} }
);
