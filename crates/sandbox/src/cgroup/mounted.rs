//! Which cgroup hierarchies are mounted where.

use std::path::PathBuf;

use super::v2::OWN_LEAF;

/// The mount points of the hierarchies that this process sees, and where it stands in the v2 one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mounted {
    /// The v2 hierarchy, whether it has controllers or not.
    pub(crate) v2: Option<PathBuf>,
    /// Controller name and mount point of each v1 hierarchy; one mount may carry several controllers.
    pub(crate) v1: Vec<(String, PathBuf)>,
    /// Our own group in v2, relative to its mount, where we may only work below it: not root, but delegated to.
    pub(crate) delegated: Option<PathBuf>,
}

impl Mounted {
    pub(crate) fn controller(&self, name: &str) -> Option<&PathBuf> {
        self.v1
            .iter()
            .find(|(controller, _)| controller == name)
            .map(|(_, path)| path)
    }
}

/// Reads the text of `/proc/self/mountinfo` and, for who is not root, of `/proc/self/cgroup`.
pub(crate) fn mounted(mountinfo: &str, own_groups: Option<&str>) -> Mounted {
    let mut found = Mounted::default();
    for line in mountinfo.lines() {
        let Some((front, back)) = line.split_once(" - ") else {
            continue;
        };
        let Some(point) = front.split(' ').nth(4).map(unescape) else {
            continue;
        };
        let mut back = back.split(' ');
        match (back.next(), back.nth(1)) {
            (Some("cgroup2"), _) => found.v2 = found.v2.or(Some(point)),
            (Some("cgroup"), Some(options)) => {
                let names = options
                    .split(',')
                    .filter(|name| !name.starts_with("name=") && *name != "rw");
                found
                    .v1
                    .extend(names.map(|name| (name.to_owned(), point.clone())));
            }
            _ => {}
        }
    }
    let own = own_groups.and_then(|text| text.lines().find_map(|line| line.strip_prefix("0::/")));
    found.delegated = own.map(|own| {
        let own = PathBuf::from(own);
        // A process that one of us has started stands in the leaf of that one, and may work where that one works.
        match own.parent() {
            Some(group) if own.ends_with(OWN_LEAF) => group.to_owned(),
            _ => own,
        }
    });
    found
}

/// The kernel writes space, tab, newline and backslash of a path as octal numbers.
fn unescape(field: &str) -> PathBuf {
    let plain = field
        .replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n");
    PathBuf::from(plain.replace("\\134", "\\"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
24 1 0:22 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
25 24 0:23 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:5 - cgroup cgroup rw,cpu,cpuacct
26 24 0:24 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory
27 24 0:25 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
28 24 0:26 / /sys/fs/cgroup/a\\040b rw - cgroup2 cgroup2 rw,nsdelegate
";

    /// A session process is started by a process that has moved into its leaf; both make sandboxes in the same group.
    #[test]
    fn the_leaf_of_a_parent_is_not_a_place_of_its_own() {
        let delegated = |own| mounted(HYBRID, Some(own)).delegated;
        let group = Some(PathBuf::from("user.slice/a.scope"));
        assert_eq!(delegated("0::/user.slice/a.scope\n"), group);
        assert_eq!(delegated("0::/user.slice/a.scope/bulkhead-parent\n"), group);
    }

    #[test]
    fn hierarchies_are_read_from_mountinfo() {
        let found = mounted(HYBRID, Some("1:name=systemd:/x\n0::/user.slice/a.scope\n"));
        assert_eq!(found.v2, Some(PathBuf::from("/sys/fs/cgroup/a b")));
        assert_eq!(
            found.controller("cpuacct"),
            Some(&PathBuf::from("/sys/fs/cgroup/cpu,cpuacct"))
        );
        assert_eq!(
            found.controller("memory"),
            Some(&PathBuf::from("/sys/fs/cgroup/memory"))
        );
        assert_eq!(found.controller("pids"), None);
        assert_eq!(found.delegated, Some(PathBuf::from("user.slice/a.scope")));
    }

    #[test]
    fn nothing_mounted_is_nothing_found() {
        assert_eq!(mounted("", None), Mounted::default());
    }
}
