//! A group's name says which sandbox it is and which process owns it, so that what a dead owner left can be found.

use std::{fmt, fs, str::FromStr};

use bulkhead_model::ids::SandboxId;

/// The process that a sandbox belongs to: the parent. A pid alone may have been given to somebody else since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pid: u32,
    /// When it started, in the kernel's ticks since boot.
    start: u64,
    /// The inode of its pid namespace: a pid means nothing in another one.
    namespace: u64,
}

/// `<sandbox id>.<pid>-<start>-<pid namespace>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) id: SandboxId,
    pub(crate) owner: Owner,
}

impl Owner {
    /// This process.
    pub(crate) fn this() -> Option<Self> {
        let pid = std::process::id();
        Some(Self {
            pid,
            start: start_of(pid)?,
            namespace: pid_namespace()?,
        })
    }

    /// Whether it is certainly gone. An owner in another pid namespace cannot be judged from here.
    pub(crate) fn is_dead(&self) -> bool {
        pid_namespace() == Some(self.namespace) && start_of(self.pid) != Some(self.start)
    }
}

/// The start time of a living process; none for one that is gone or only waits to be buried.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, also spaces and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn pid_namespace() -> Option<u64> {
    let link = fs::read_link("/proc/self/ns/pid").ok()?;
    let text = link.to_str()?;
    text.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.pid, self.start, self.namespace)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id, self.owner)
    }
}

/// Not a name of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotAName;

impl FromStr for Owner {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, NotAName> {
        let mut parts = text.splitn(3, '-');
        let mut next = || parts.next().ok_or(NotAName);
        Ok(Self {
            pid: next()?.parse().map_err(|_| NotAName)?,
            start: next()?.parse().map_err(|_| NotAName)?,
            namespace: next()?.parse().map_err(|_| NotAName)?,
        })
    }
}

impl FromStr for Name {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, NotAName> {
        let (id, owner) = text.split_once('.').ok_or(NotAName)?;
        Ok(Self {
            id: id.parse().map_err(|_| NotAName)?,
            owner: owner.parse()?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    #[test]
    fn names_survive_being_written() {
        let id = SandboxId::from_uuid(uuid::Uuid::now_v7());
        let name = Name {
            id,
            owner: Owner::this().unwrap(),
        };
        assert_eq!(name.to_string().parse(), Ok(name));
        assert!("user.slice".parse::<Name>().is_err());
    }

    /// R14: an owner is dead when its pid is gone or belongs to a process that started later.
    #[test]
    fn r14_an_owner_is_known_by_pid_and_start() {
        let this = Owner::this().unwrap();
        assert!(!this.is_dead());
        assert!(
            Owner {
                start: this.start + 1,
                ..this
            }
            .is_dead()
        );
        assert!(
            !Owner {
                namespace: 1,
                start: 1,
                ..this
            }
            .is_dead(),
            "another namespace is not judged"
        );
    }
}
