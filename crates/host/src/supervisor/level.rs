//! By which means an agent's processes are ended, and what each means is worth.

use std::fmt;

/// What a machine may be asked to use, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    ControlGroup,
    ProcessNamespace,
    ProcessTree,
    ProcessGroup,
}

impl Way {
    pub const ALL: [Self; 4] = [
        Self::ControlGroup,
        Self::ProcessNamespace,
        Self::ProcessTree,
        Self::ProcessGroup,
    ];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::ControlGroup => "cgroup",
            Self::ProcessNamespace => "namespace",
            Self::ProcessTree => "tree",
            Self::ProcessGroup => "group",
        }
    }
}

/// What a machine could do: the isolation summary shows it (H16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The kernel holds all processes together, and ends them at once.
    ControlGroup,
    /// A control group of version 1, frozen while its processes are ended.
    FrozenGroup,
    /// The end of the namespace's first process is the end of all; the agent sees its own processes only.
    ProcessNamespace,
    /// Processes are followed from parent to child; a mark in their environment finds those that got away.
    MarkedTree,
    /// The same without a mark: what forks twice into a session of its own between two looks is not found.
    Tree,
    /// The machine shows no processes: only those in the agent's own process group are ended.
    ProcessGroup,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ControlGroup => "by a control group",
            Self::FrozenGroup => "by a frozen control group",
            Self::ProcessNamespace => "by a process namespace",
            Self::MarkedTree => "by following the process tree and a mark in the environment",
            Self::Tree => {
                "by following the process tree; a process that leaves it within two seconds survives"
            }
            Self::ProcessGroup => {
                "by its process group; a process that leaves the group survives"
            }
        })
    }
}
