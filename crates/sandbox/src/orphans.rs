//! What dead owners left: found by the owner in each name, ended, removed, reported.
//!
//! Images, loop devices and mounts cannot be left: they have no names (see `image`). Groups can, when a launcher was killed,
//! and half-made directories can, when the process that made them was.

use std::path::{Path, PathBuf};

use crate::{
    cgroup::{self, Layout, Name, Owner},
    engine::Orphan,
    store,
};

/// Blocks. Repeating it is harmless.
pub(crate) fn reap(cgroups: &Layout, systems: &Path, owner: Owner) -> Vec<Orphan> {
    let mut orphans = reap_groups(cgroups);
    let removed = store::tidy(systems, owner);
    orphans.extend(removed.into_iter().map(|(path, removed)| {
        Orphan {
            id: None,
            found: format!("directory {} of a dead process", path.display()),
            done: removed
                .map(|()| "removed".to_owned())
                .map_err(|error| error.to_string()),
        }
    }));
    orphans
}

fn reap_groups(cgroups: &Layout) -> Vec<Orphan> {
    let dead = |(text, dirs): (String, Vec<PathBuf>)| {
        let name: Name = text.parse().ok()?;
        name.owner.is_dead().then_some((name, dirs))
    };
    cgroups
        .existing()
        .into_iter()
        .filter_map(dead)
        .map(|(name, dirs)| end_groups(name, &dirs))
        .collect()
}

fn end_groups(name: Name, dirs: &[PathBuf]) -> Orphan {
    let count = dirs
        .iter()
        .map(|dir| cgroup::processes(dir).len())
        .max()
        .unwrap_or(0);
    let places: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    let ended = cgroup::destroy(dirs);
    Orphan {
        id: Some(name.id),
        found: format!(
            "sandbox {} of a dead process, {count} processes in {}",
            name.id,
            places.join(", ")
        ),
        done: ended
            .map(|()| "killed and removed".to_owned())
            .map_err(|error| format!("removing its cgroups: {error}")),
    }
}
