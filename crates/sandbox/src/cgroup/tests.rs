//! The layouts on trees of plain files: which files are written, with what, in which order, and how the kernel's answers
//! are read. (v2 with its controllers was not seen on a real machine by these tests.)

use std::{fs, path::Path};

use bulkhead_init::wire::{Entry, Group, Kill, Reading};
use bulkhead_model::{ids::SandboxId, limits::Limits};

use super::*;

fn name() -> Name {
    let id: SandboxId = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b".parse().unwrap();
    Name {
        id,
        owner: "7-8-9".parse().unwrap(),
    }
}

const LIMITS: Limits = Limits {
    cpu_milli: 1_500,
    memory_bytes: 1 << 30,
    pids: 99,
    disk_bytes: 1 << 30,
    time_ms: 1,
    idle_ms: 1,
    log_bytes: 1,
};

fn settings(group: &Group) -> Vec<(&str, &str)> {
    group
        .settings
        .iter()
        .map(|one| (one.file.as_str(), one.value.as_str()))
        .collect()
}

fn v2_tree(controllers: &str) -> (tempfile::TempDir, Mounted) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("cgroup.controllers"), controllers).unwrap();
    let mounted = Mounted {
        v2: Some(dir.path().to_owned()),
        ..Mounted::default()
    };
    (dir, mounted)
}

fn v1_tree(names: &[&str]) -> (tempfile::TempDir, Mounted) {
    let dir = tempfile::tempdir().unwrap();
    let mut mounted = Mounted::default();
    for name in names {
        let root = dir.path().join(name);
        fs::create_dir(&root).unwrap();
        mounted.v1.push(((*name).to_owned(), root));
    }
    (dir, mounted)
}

fn reading(file: &str, text: &str) -> Reading {
    Reading {
        group: 0,
        file: file.to_owned(),
        text: text.to_owned(),
    }
}

/// R4: one v2 group with every limit, born into, killed by its own file.
#[test]
fn r4_v2_sets_every_limit() {
    let (dir, mounted) = v2_tree("cpuset cpu io memory hugetlb pids\n");
    let layout = Layout::choose(&mounted).unwrap();
    layout.prepare().unwrap();
    for group in [dir.path().to_owned(), dir.path().join("bulkhead")] {
        assert_eq!(
            fs::read_to_string(group.join("cgroup.subtree_control")).unwrap(),
            "+cpu +memory +pids"
        );
    }
    let (groups, kill) = layout.groups(&name(), &LIMITS);
    assert_eq!(kill, Kill::File { group: 0 });
    let [group] = &groups[..] else {
        panic!("{groups:?}")
    };
    assert_eq!(
        Path::new(&group.path),
        dir.path().join(format!("bulkhead/{}", name()))
    );
    assert_eq!(group.entry, Entry::Birth {});
    let expected = [
        ("memory.max", "1073741824"),
        ("memory.swap.max", "0"),
        ("memory.oom.group", "0"),
        ("pids.max", "99"),
        ("cpu.max", "150000 100000"),
    ];
    assert_eq!(settings(group), expected);
}

/// Cases 56 and 57: what the kernel counted in v2's files.
#[test]
fn case_57_v2_counters_are_read() {
    let (_dir, mounted) = v2_tree("cpu memory pids");
    let layout = Layout::choose(&mounted).unwrap();
    let counters = layout.count(&[
        reading(
            "memory.events",
            "low 0\nhigh 0\nmax 31\noom 4\noom_kill 3\noom_group_kill 0\n",
        ),
        reading("memory.peak", "4096\n"),
        reading("pids.events", "max 12\n"),
        reading("pids.peak", "7\n"),
        reading(
            "cpu.stat",
            "usage_usec 1234\nuser_usec 1000\nsystem_usec 234\n",
        ),
    ]);
    let expected = Counters {
        oom_kills: 3,
        refused_forks: 12,
        memory_peak_bytes: Some(4096),
        pids_peak: Some(7),
        cpu_us: Some(1234),
    };
    assert_eq!(counters, expected);
}

/// R3, case 54: a controller that is nowhere is a refusal that names it, never a sandbox without that limit.
#[test]
fn case_54_a_missing_controller_is_a_refusal() {
    let (_dir, mounted) = v2_tree("cpu pids");
    let refusal = Layout::choose(&mounted).unwrap_err();
    assert!(
        refusal.boundary.contains("memory") && !refusal.remedy.is_empty(),
        "{refusal}"
    );
    let (_dir, mounted) = v1_tree(&["cpu", "memory", "freezer"]);
    assert!(
        Layout::choose(&mounted)
            .unwrap_err()
            .boundary
            .contains("pids")
    );
    assert!(Layout::choose(&Mounted::default()).is_err());
}

/// The hybrid layout: limits in v1, life in v2; memory before memory with swap.
#[test]
fn r4_hybrid_sets_every_limit() {
    let (dir, mut mounted) = v1_tree(&["cpu", "memory", "pids", "freezer"]);
    fs::write(dir.path().join("memory/memory.memsw.limit_in_bytes"), "").unwrap();
    let unified = dir.path().join("unified");
    fs::create_dir(&unified).unwrap();
    fs::write(unified.join("cgroup.controllers"), "hugetlb\n").unwrap();
    mounted.v2 = Some(unified.clone());
    let layout = Layout::choose(&mounted).unwrap();
    layout.prepare().unwrap();
    let (groups, kill) = layout.groups(&name(), &LIMITS);
    assert_eq!(kill, Kill::File { group: 0 });
    assert!(Path::new(&groups[0].path).starts_with(&unified));
    assert_eq!(groups[0].entry, Entry::Birth {});
    let all: Vec<_> = groups.iter().flat_map(settings).collect();
    let expected = [
        ("memory.limit_in_bytes", "1073741824"),
        ("memory.memsw.limit_in_bytes", "1073741824"),
        ("pids.max", "99"),
        ("cpu.cfs_period_us", "100000"),
        ("cpu.cfs_quota_us", "150000"),
    ];
    assert_eq!(all, expected);
    assert!(
        groups[1..]
            .iter()
            .all(|group| group.entry == Entry::Tasks {})
    );
}

/// Without any v2 the freezer is what kills.
#[test]
fn r4_v1_alone_kills_by_the_freezer() {
    let (dir, mounted) = v1_tree(&["cpu", "memory", "pids", "freezer"]);
    let layout = Layout::choose(&mounted).unwrap();
    let (groups, kill) = layout.groups(&name(), &LIMITS);
    assert_eq!(kill, Kill::Freezer { group: 0 });
    assert!(Path::new(&groups[0].path).starts_with(dir.path().join("freezer")));
    let counters = layout.count(&[
        reading(
            "memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        ),
        reading("pids.events", "max 1\n"),
        reading("cpuacct.usage", "5000000\n"),
    ]);
    assert_eq!(
        (counters.oom_kills, counters.refused_forks, counters.cpu_us),
        (2, 1, Some(5000))
    );
}

/// A user with a delegated group works below it and first moves itself out of the way.
#[test]
fn r4_a_delegated_group_is_the_base() {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("user.slice/a.scope");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("cgroup.controllers"), "cpu memory pids").unwrap();
    let mounted = Mounted {
        v2: Some(dir.path().to_owned()),
        delegated: Some("user.slice/a.scope".into()),
        ..Mounted::default()
    };
    let layout = Layout::choose(&mounted).unwrap();
    layout.prepare().unwrap();
    assert_eq!(
        fs::read_to_string(own.join("bulkhead-parent/cgroup.procs")).unwrap(),
        "0"
    );
    let (groups, _) = layout.groups(&name(), &LIMITS);
    assert!(Path::new(&groups[0].path).starts_with(own.join("bulkhead")));
}

/// R14: what is there is found by name, over all hierarchies.
#[test]
fn r14_existing_groups_are_found() {
    let (_dir, mounted) = v1_tree(&["cpu", "memory", "pids", "freezer"]);
    let layout = Layout::choose(&mounted).unwrap();
    layout.prepare().unwrap();
    let (groups, _) = layout.groups(&name(), &LIMITS);
    groups
        .iter()
        .for_each(|group| fs::create_dir(&group.path).unwrap());
    let existing = layout.existing();
    let [(found, dirs)] = &existing[..] else {
        panic!("{existing:?}")
    };
    assert_eq!((found.parse(), dirs.len()), (Ok(name()), 4));
    destroy(dirs).unwrap();
    assert!(layout.existing().is_empty());
}
