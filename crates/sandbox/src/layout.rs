//! From a [`Plan`] to the steps that launcher and PID 1 carry out: what is mounted where, and what is covered.

use std::path::{Component, Path};

use bulkhead_init::wire::{
    self, Listener as WireListener, Mode, Rlimit, Source, Step, Tree, TreeIds,
};

use rustix::process::Resource;

use crate::{
    AGENT_ID, HOME_DIR, WORKSPACE_DIR,
    plan::{Bind, Listener, Plan, Transport},
    store::System,
    system::{DEVICES, MountPoint},
};

const READ_ONLY: u64 = 1;
const NO_SETUID: u64 = 2;
const NO_DEVICES: u64 = 4;
const SHARED_SYSTEM: u64 = READ_ONLY | NO_SETUID | NO_DEVICES;

/// Where the writable file system lies while its directories are bound to their places.
const DISK: &str = "mnt";
/// The most that `/tmp` and `/dev/shm` each may hold: memory is what they are made of, and its limit counts them too.
const TMP_LARGEST_BYTES: u64 = 4 << 30;
const TMP_FILES: u64 = 1_000_000;
/// A directory's file system in memory has a file for so many bytes, as ext4 has.
const BYTES_PER_FILE: u64 = 16 << 10;
/// Root here may lack the right to go above its own hard limit, so the smaller one counts.
const OPEN_FILES: u64 = 20_000;
/// What the kernel takes for "no core dump, whatever the machine does with them". With 0 there is no file, but a machine
/// that pipes core dumps to a program (systemd-coredump, apport) would still start it, as root and outside, on memory that
/// may hold secrets. The system-call filter keeps the number as it is.
const NO_CORE: u64 = 1;
/// Signals and timers that wait, and bytes in POSIX message queues. The kernel counts them for the user who made the
/// namespaces too, so without a small share one sandbox could take all that this user has.
const PENDING_SIGNALS: u64 = 1024;
const QUEUED_BYTES: u64 = 256 << 10;
/// The same holds for watches of files. New user namespaces there are none, and without one nobody inside can get the Linux
/// capability that every other namespace needs: the bounding set is empty. (The system-call filter refuses all of them too.)
const COUNTED: [(&str, u64); 3] = [
    ("max_inotify_instances", 32),
    ("max_inotify_watches", 65_536),
    ("max_user_namespaces", 0),
];

/// Files of `/proc` that tell about the machine or its kernel rather than about the sandbox; container runtimes cover the
/// same ones. Those that a kernel does not have are skipped.
const MASKED: [&str; 16] = [
    // Memory of the kernel, and where its parts lie.
    "proc/kcore",
    "proc/kallsyms",
    "proc/kmsg",
    "proc/vmallocinfo",
    // Key names of other users, timers with names of other processes, load of the machine's devices.
    "proc/keys",
    "proc/key-users",
    "proc/timer_list",
    "proc/timer_stats",
    "proc/interrupts",
    "proc/sched_debug",
    "proc/latency_stats",
    // Controls of hardware.
    "proc/acpi",
    "proc/asound",
    "proc/scsi",
    "proc/sysrq-trigger",
    // May carry whatever an installer was told at boot.
    "proc/cmdline",
];
/// Directories whose files are settings of the kernel.
const UNWRITABLE: [&str; 4] = ["proc/bus", "proc/fs", "proc/irq", "proc/sys"];
/// A bind may not cover what the sandbox itself is made of.
const RESERVED: [&str; 11] = [
    "/proc", "/dev", "/etc", "/tmp", "/usr", "/mnt", "/bin", "/sbin", "/lib", "/lib64", "/var",
];

/// What the workspace and home are on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Disk {
    /// The parent's detached file system, passed as its first file; the agent's in the sandbox's own numbers.
    Image,
    Memory {
        size_bytes: u64,
    },
}

/// A host directory as the workspace; the home stays on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shared {
    pub(crate) path: String,
    pub(crate) ids: TreeIds,
}

/// The trees and steps of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    pub(crate) trees: Vec<Tree>,
    pub(crate) steps: Vec<Step>,
}

impl Mounts {
    pub(crate) fn new(
        root: &Path,
        system: &System,
        plan: &Plan,
        disk: &Disk,
        shared: Option<&Shared>,
    ) -> Self {
        let mut mounts = Self::default();
        mounts.attach(root, "", Mode::Single {});
        mounts.attach(Path::new("/usr"), "usr", Mode::Recursive {});
        for name in &system.real_dirs {
            mounts.attach(&Path::new("/").join(name), name, Mode::Recursive {});
        }
        mounts.attach(&system.etc(), "etc", Mode::Single {});
        for bind in &plan.binds {
            mounts.attach(&bind.source, &inside(&bind.target), Mode::Recursive {});
        }
        mounts.devices();
        mounts.steps.push(Step::Proc {
            target: "proc".to_owned(),
        });
        mounts.steps.extend(COUNTED.map(|(name, most)| Step::Bound {
            file: format!("proc/sys/user/{name}"),
            most,
        }));
        mounts.steps.extend(MASKED.map(|target| Step::Mask {
            target: target.to_owned(),
        }));
        mounts.steps.extend(UNWRITABLE.map(|target| Step::ReadOnly {
            target: target.to_owned(),
        }));
        let tmp = (plan.limits.memory_bytes / 2).min(TMP_LARGEST_BYTES);
        mounts.memory("tmp", tmp, TMP_FILES, "1777");
        mounts.memory("dev/shm", tmp, TMP_FILES, "1777");
        mounts.disk(disk, shared);
        mounts
    }

    fn tree(&mut self, tree: Tree) -> u8 {
        self.trees.push(tree);
        // `check` bounds a plan's binds far below 255.
        u8::try_from(self.trees.len() - 1).unwrap_or(u8::MAX)
    }

    fn attach(&mut self, path: &Path, target: &str, mode: Mode) {
        let source = Source::Path {
            path: path.display().to_string(),
        };
        let tree = self.tree(Tree {
            source,
            attributes: SHARED_SYSTEM,
            mode,
            ids: TreeIds::AsIs {},
        });
        self.steps.push(Step::Attach {
            tree,
            target: target.to_owned(),
        });
    }

    fn devices(&mut self) {
        self.steps.extend(DEVICES.map(|name| Step::Device {
            name: name.to_owned(),
        }));
        self.steps.push(Step::Terminals {
            target: "dev/pts".to_owned(),
        });
    }

    fn memory(&mut self, target: &str, size_bytes: u64, files: u64, mode: &str) {
        let options = format!("size={size_bytes},nr_inodes={files},mode={mode}");
        self.steps.push(Step::Tmpfs {
            target: target.to_owned(),
            options,
        });
    }

    fn disk(&mut self, disk: &Disk, shared: Option<&Shared>) {
        match disk {
            Disk::Image => {
                let source = Source::Passed { index: 0 };
                let tree = self.tree(Tree {
                    source,
                    attributes: 0,
                    mode: Mode::Single {},
                    ids: TreeIds::Sandbox {},
                });
                self.steps.push(Step::Attach {
                    tree,
                    target: DISK.to_owned(),
                });
            }
            Disk::Memory { size_bytes } => {
                self.memory(
                    DISK,
                    *size_bytes,
                    (size_bytes / BYTES_PER_FILE).max(1024),
                    "755",
                );
            }
        }
        self.bind_from_disk("home", HOME_DIR);
        match shared {
            None => self.bind_from_disk("workspace", WORKSPACE_DIR),
            Some(shared) => {
                let source = Source::Path {
                    path: shared.path.clone(),
                };
                let attributes = NO_SETUID | NO_DEVICES;
                let tree = self.tree(Tree {
                    source,
                    attributes,
                    mode: Mode::Single {},
                    ids: shared.ids.clone(),
                });
                self.steps.push(Step::Attach {
                    tree,
                    target: inside(Path::new(WORKSPACE_DIR)),
                });
            }
        }
        self.steps.push(Step::Discard {
            target: DISK.to_owned(),
        });
    }

    fn bind_from_disk(&mut self, name: &str, target: &str) {
        let from = format!("{DISK}/{name}");
        self.steps.push(Step::Directory {
            path: from.clone(),
            mode: 0o755,
        });
        self.steps.push(Step::Bind {
            from,
            to: inside(Path::new(target)),
        });
    }
}

/// The path below the new root.
fn inside(path: &Path) -> String {
    path.strip_prefix("/").unwrap_or(path).display().to_string()
}

fn hard_limit(resource: Resource) -> u64 {
    rustix::process::getrlimit(resource)
        .maximum
        .unwrap_or(u64::MAX)
}

fn at_most(resource: u32, hard: u64, wanted: u64) -> Rlimit {
    let limit = hard.min(wanted);
    Rlimit {
        resource,
        soft: limit,
        hard: limit,
    }
}

/// `largest_file` is for workspaces whose file system does not end where the disk limit is.
pub(crate) fn rlimits(largest_file: Option<u64>) -> Vec<Rlimit> {
    let hard = hard_limit(Resource::Nofile);
    let mut all = vec![
        Rlimit {
            resource: libc::RLIMIT_CORE,
            soft: NO_CORE,
            hard: NO_CORE,
        },
        at_most(libc::RLIMIT_NOFILE, hard, OPEN_FILES),
        at_most(
            libc::RLIMIT_SIGPENDING,
            hard_limit(Resource::Sigpending),
            PENDING_SIGNALS,
        ),
        at_most(
            libc::RLIMIT_MSGQUEUE,
            hard_limit(Resource::Msgqueue),
            QUEUED_BYTES,
        ),
        Rlimit {
            resource: libc::RLIMIT_NICE,
            soft: 0,
            hard: 0,
        },
        Rlimit {
            resource: libc::RLIMIT_RTPRIO,
            soft: 0,
            hard: 0,
        },
    ];
    all.extend(largest_file.map(|bytes| Rlimit {
        resource: libc::RLIMIT_FSIZE,
        soft: bytes,
        hard: bytes,
    }));
    all
}

pub(crate) fn listeners(plan: &Plan) -> Vec<WireListener> {
    let listener = |listener: &Listener| WireListener {
        protocol: match listener.transport {
            Transport::Tcp => 6,
            Transport::Udp => 17,
        },
        address: match listener.address.ip() {
            std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
            std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
        },
        port: listener.address.port(),
    };
    plan.listeners.iter().map(listener).collect()
}

/// The most of each that one plan holds.
const MOST_LISTENERS: usize = 32;
const MOST_BINDS: usize = 64;

/// Says what is impossible about a plan before anything is made.
pub(crate) fn check(plan: &Plan) -> Result<(), String> {
    let limits = &plan.limits;
    if plan.listeners.len() > MOST_LISTENERS || plan.binds.len() > MOST_BINDS {
        return Err(format!(
            "at most {MOST_LISTENERS} listeners and {MOST_BINDS} binds are possible"
        ));
    }
    if let Some(listener) = plan
        .listeners
        .iter()
        .find(|one| !one.address.ip().is_loopback())
    {
        return Err(format!(
            "a sandbox has only loopback, it cannot listen on {}",
            listener.address
        ));
    }
    let smallest = [
        (u64::from(limits.cpu_milli), 10, "cpu_milli"),
        (limits.memory_bytes, 4 << 20, "memory_bytes"),
        (u64::from(limits.pids), 2, "pids"),
        (limits.disk_bytes, 1 << 20, "disk_bytes"),
        (limits.time_ms, 1, "time_ms"),
    ];
    if let Some((_, least, name)) = smallest.iter().find(|(value, least, _)| value < least) {
        return Err(format!("limit {name} must be at least {least}"));
    }
    plan.binds.iter().try_for_each(check_bind)?;
    overlapping(&plan.binds)
}

fn check_bind(bind: &Bind) -> Result<(), String> {
    let target = &bind.target;
    let is_plain = target.is_absolute()
        && target
            .components()
            .skip(1)
            .all(|part| matches!(part, Component::Normal(_)));
    let reserved = RESERVED
        .iter()
        .chain([&WORKSPACE_DIR, &HOME_DIR])
        .find(|dir| target.starts_with(dir));
    if !is_plain
        || target.components().count() < 2
        || target.to_str().is_none()
        || bind.source.to_str().is_none()
    {
        return Err(format!(
            "{} is not a plain absolute path to bind to",
            target.display()
        ));
    }
    if let Some(dir) = reserved {
        return Err(format!(
            "{} lies in {dir}, which the sandbox itself provides",
            target.display()
        ));
    }
    Ok(())
}

fn overlapping(binds: &[Bind]) -> Result<(), String> {
    for (index, one) in binds.iter().enumerate() {
        let others = binds
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != index);
        if let Some((_, other)) = others
            .into_iter()
            .find(|(_, other)| one.target.starts_with(&other.target))
        {
            return Err(format!(
                "{} lies in {}, which is bound too",
                one.target.display(),
                other.target.display()
            ));
        }
    }
    Ok(())
}

/// The mount points that a plan's binds need at the root. Reads the host: a bind's source must be there.
pub(crate) fn mount_points(plan: &Plan) -> std::io::Result<Vec<MountPoint>> {
    let point = |bind: &Bind| {
        let is_dir = std::fs::metadata(&bind.source)?.is_dir();
        let make = if is_dir {
            MountPoint::Dir
        } else {
            MountPoint::File
        };
        Ok(make(bind.target.clone()))
    };
    let mut points: Vec<_> = plan
        .binds
        .iter()
        .map(point)
        .collect::<std::io::Result<_>>()?;
    points.sort();
    Ok(points)
}

/// Directories whose fullness tells about a failure.
pub(crate) fn watched() -> Vec<String> {
    [WORKSPACE_DIR, HOME_DIR, "/tmp"].map(str::to_owned).into()
}

/// Who the agent is outside: two ids for each launcher's pid, in a range that the usual allocators leave free.
pub(crate) const PRIVATE_IDS: wire::Ids = wire::Ids::Private {
    first: 0x7000_0000,
    stride: 16,
};

const _: () = assert!(AGENT_ID == 1000, "PID 1 maps and becomes this very id");

#[cfg(test)]
mod tests {
    use bulkhead_model::{ids::SandboxId, limits::Limits};

    use super::*;
    use crate::plan::Workspace;

    fn plan(binds: Vec<Bind>) -> Plan {
        let id = SandboxId::from_uuid(uuid::Uuid::nil());
        Plan {
            binds,
            ..Plan::new(id, Limits::default(), Workspace::Tmpfs)
        }
    }

    /// R6: no bind can cover the sandbox's own parts or climb out of where it is put.
    #[test]
    fn r6_binds_stay_in_their_place() {
        for target in [
            "/etc/x",
            "/proc",
            "/workspace/a",
            "/home/agent/.cargo",
            "relative",
            "/a/../etc",
            "/",
            "/usr/local",
        ] {
            let bind = Bind {
                purpose: crate::plan::Purpose::Listed,
                source: "/opt".into(),
                target: target.into(),
            };
            assert!(check(&plan(vec![bind])).is_err(), "{target}");
        }
        assert_eq!(
            check(&plan(vec![
                Bind::same_path("/root/.cargo"),
                Bind::same_path("/opt/x")
            ])),
            Ok(())
        );
        assert!(
            check(&plan(vec![
                Bind::same_path("/opt/x"),
                Bind::same_path("/opt/x/y")
            ]))
            .is_err()
        );
    }

    /// D5: a sandbox listens on loopback only.
    #[test]
    fn d5_listeners_are_loopback() {
        let mut outside = plan(vec![]);
        outside
            .listeners
            .push(Listener::tcp(([0, 0, 0, 0], 80).into()));
        assert!(check(&outside).is_err());
    }

    /// R4: there is no plan without limits.
    #[test]
    fn r4_every_limit_is_set() {
        let mut unlimited = plan(vec![]);
        unlimited.limits.pids = 0;
        assert!(check(&unlimited).is_err());
    }
}
