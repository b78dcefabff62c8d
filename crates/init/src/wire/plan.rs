//! What the launcher and PID 1 are to build. The parent decides all of it; they only carry it out.

use super::codec::{choice, record};

record!(
    /// One sandbox, down to each file written and each mount made.
    Plan {
        groups: Vec<Group>,
        kill: Kill,
        ids: Ids,
        trees: Vec<Tree>,
        steps: Vec<Step>,
        hostname: String,
        listeners: Vec<Listener>,
        /// Landlock: what is not below one of these paths cannot be touched.
        access: Vec<Access>,
        /// Compiled seccomp programs, installed in this order.
        filters: Vec<Vec<u8>>,
        rlimits: Vec<Rlimit>,
        /// From the first process on; 0 only in tests of the wire.
        time_ms: u64,
        /// Directories inside, handed out with [`super::Event::Ready`] for the parent to see how full they are.
        watched: Vec<String>,
    }
);

record!(
    /// One control group: made, set, entered, read at the end, removed.
    Group { path: String, settings: Vec<Setting>, entry: Entry, readings: Vec<String> }
);

record!(
    /// One value for one file of a group.
    Setting { file: String, value: String }
);

choice!(
    /// How PID 1 gets into a group.
    Entry {
        /// Born in it (`CLONE_INTO_CGROUP`; one v2 group at most).
        1 => Birth {},
        /// By writing `0` to `tasks` (v1). A thread that moves itself skips the kernel's global lock, which costs up to
        /// 14 ms after idle time when somebody else moves it through `cgroup.procs`.
        2 => Tasks {},
    }
);

choice!(
    /// How everything in the sandbox is killed at once.
    Kill {
        /// `cgroup.kill` of that group (v2).
        1 => File { group: u8 },
        /// Freeze, signal each, thaw, until that group is empty (v1 without any v2).
        2 => Freezer { group: u8 },
    }
);

choice!(
    /// Which users there are inside.
    Ids {
        /// Root (PID 1) and the agent, on two host ids that no other living sandbox has: `first + stride × launcher's pid`.
        1 => Private { first: u32, stride: u32 },
        /// Only the agent, who is the launcher's own user outside: all that an unprivileged launcher may map.
        2 => Own {},
    }
);

record!(
    /// A piece of some file system, detached, ready to be attached inside.
    Tree { source: Source, attributes: u64, mode: Mode, ids: TreeIds }
);

choice!(Source { 1 => Path { path: String }, 2 => Passed { index: u8 } });

choice!(
    /// Whether what is mounted below comes along.
    Mode { 1 => Single {}, 2 => Recursive {} }
);

choice!(
    /// Whose files these are, seen from inside.
    TreeIds {
        /// As the kernel shows them: the host's users are "nobody".
        1 => AsIs {},
        /// The numbers on disk are the sandbox's own.
        2 => Sandbox {},
        /// This owner's files are the agent's.
        3 => Owner { uid: u32, gid: u32 },
    }
);

choice!(
    /// One step of building the mount tree. Targets are relative to the new root.
    Step {
        /// Attaches a tree. The first step is always one, to `""`: the new root.
        1 => Attach { tree: u8, target: String },
        2 => Device { name: String },
        3 => Tmpfs { target: String, options: String },
        4 => Proc { target: String },
        5 => Terminals { target: String },
        /// A directory of the agent's, in a file system that an earlier step made.
        6 => Directory { path: String, mode: u32 },
        7 => Bind { from: String, to: String },
        /// Takes a mount out of the new tree. Its binds stay.
        8 => Discard { target: String },
        /// Covers a file or directory so that it reads as empty; what is not there needs no cover.
        9 => Mask { target: String },
        10 => ReadOnly { target: String },
        /// Writes a number to a file of the sandbox's own `/proc`, while PID 1 still may.
        11 => Bound { file: String, most: u64 },
    }
);

record!(
    /// A socket: 6 for TCP, 17 for UDP, as the protocol's number is.
    Listener { protocol: u8, address: Vec<u8>, port: u16 }
);

record!(
    /// What may be done below a path: Landlock's bits, cut to what the kernel knows.
    Access { path: String, rights: u64 }
);

record!(Rlimit {
    resource: u32,
    soft: u64,
    hard: u64
});
