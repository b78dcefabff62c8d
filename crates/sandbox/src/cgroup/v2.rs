//! The v2 layout: one group per sandbox does everything.

use std::{fs, path::PathBuf};

use bulkhead_init::wire::{Entry, Group, Kill, Setting};
use bulkhead_model::limits::Limits;

use super::{Counters, MemoryOnly, Mounted, Name, PARENT, control, keyed, make_parent, single};
use crate::error::Refusal;

const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
const HAND_DOWN: &str = "+cpu +memory +pids";
/// Where a delegated parent moves itself: a group with controllers for its children may hold no process itself.
pub(super) const OWN_LEAF: &str = "bulkhead-parent";
/// The length of one accounting period of the CPU limit.
const PERIOD_US: u64 = 100_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct V2 {
    /// The group that we may make groups in: the hierarchy's root, or what is delegated to us.
    base: PathBuf,
    delegated: bool,
}

impl V2 {
    /// None where v2 is not mounted or has none of the controllers (hybrid). With some but not all of them there is a
    /// refusal, because the missing ones can be neither here nor, being one hierarchy's, reliably elsewhere.
    pub(super) fn find(mounted: &Mounted) -> Result<Option<Self>, Refusal> {
        let Some(root) = &mounted.v2 else {
            return Ok(None);
        };
        let base = mounted
            .delegated
            .as_ref()
            .map_or_else(|| root.clone(), |own| root.join(own));
        let available = fs::read_to_string(base.join("cgroup.controllers")).unwrap_or_default();
        let has = |name: &&str| available.split_whitespace().any(|known| known == *name);
        let missing: Vec<&str> = CONTROLLERS.into_iter().filter(|name| !has(name)).collect();
        if missing.len() == CONTROLLERS.len()
            || missing
                .iter()
                .all(|name| mounted.controller(name).is_some())
                && !missing.is_empty()
        {
            return Ok(None);
        }
        if !missing.is_empty() {
            return Err(Refusal {
                boundary: format!("limits ({})", missing.join(", ")),
                seen: format!("{} offers only “{}”", base.join("cgroup.controllers").display(), available.trim()),
                remedy: "delegate the cpu, memory and pids controllers (systemd: `Delegate=cpu memory pids`), or enable them in \
                         the kernel (`cgroup_enable=memory` on the kernel's command line)"
                    .to_owned(),
            });
        }
        Ok(Some(Self {
            base,
            delegated: mounted.delegated.is_some(),
        }))
    }

    pub(super) fn parent(&self) -> PathBuf {
        self.base.join(PARENT)
    }

    pub(super) fn prepare(&self) -> Result<(), Refusal> {
        let boundary = "limits (cgroup v2)";
        make_parent(boundary, &self.parent())?;
        if self.delegated {
            self.leave_base()?;
        }
        let remedy = "a group that hands controllers down may hold no process itself: run Bulkhead at the root of the hierarchy \
                      or in a delegated group that holds nothing else; in a container, start it with its own cgroup namespace \
                      and an init that leaves the root group";
        for group in [self.base.clone(), self.parent()] {
            control(
                boundary,
                &group.join("cgroup.subtree_control"),
                HAND_DOWN,
                remedy,
            )?;
        }
        Ok(())
    }

    /// Moves this process, and only it, into a leaf beside the sandboxes' groups.
    fn leave_base(&self) -> Result<(), Refusal> {
        let leaf = self.base.join(OWN_LEAF);
        make_parent("limits (cgroup v2)", &leaf)?;
        let remedy = "start Bulkhead alone in its delegated group";
        control(
            "limits (cgroup v2)",
            &leaf.join("cgroup.procs"),
            "0",
            remedy,
        )
    }

    pub(super) fn memory_only(&self, limit_bytes: u64) -> MemoryOnly {
        MemoryOnly {
            parent: self.parent(),
            settings: memory_settings(limit_bytes),
            entrance: "cgroup.procs",
            events: "memory.events",
            peak: "memory.peak",
        }
    }

    pub(super) fn groups(&self, name: &Name, limits: &Limits) -> (Vec<Group>, Kill) {
        let setting = |file: &str, value: String| Setting {
            file: file.to_owned(),
            value,
        };
        let group = Group {
            path: self.parent().join(name.to_string()).display().to_string(),
            settings: memory_settings(limits.memory_bytes)
                .into_iter()
                .chain([
                    ("pids.max", limits.pids.to_string()),
                    ("cpu.max", format!("{} {PERIOD_US}", quota_us(limits))),
                ])
                .map(|(file, value)| setting(file, value))
                .collect(),
            entry: Entry::Birth {},
            readings: [
                "memory.events",
                "memory.peak",
                "pids.events",
                "pids.peak",
                "cpu.stat",
            ]
            .map(str::to_owned)
            .into(),
        };
        (vec![group], Kill::File { group: 0 })
    }
}

fn memory_settings(limit_bytes: u64) -> Vec<(&'static str, String)> {
    vec![
        ("memory.max", limit_bytes.to_string()),
        // The limit is memory with swap: what may not be in memory may not be in swap either.
        ("memory.swap.max", "0".to_owned()),
        // Only the process that is too large is killed; an agent whose tool died may go on (case 57).
        ("memory.oom.group", "0".to_owned()),
    ]
}

fn quota_us(limits: &Limits) -> u64 {
    u64::from(limits.cpu_milli) * PERIOD_US / 1000
}

pub(super) fn count(counters: &mut Counters, file: &str, text: &str) {
    match file {
        "memory.events" => counters.oom_kills = keyed(text, "oom_kill").unwrap_or(0),
        "memory.peak" => counters.memory_peak_bytes = single(text),
        "pids.events" => counters.refused_forks = keyed(text, "max").unwrap_or(0),
        "pids.peak" => counters.pids_peak = single(text),
        "cpu.stat" => counters.cpu_us = keyed(text, "usage_usec"),
        _ => {}
    }
}
