//! What dead owners left: found by the owner in each name, ended, removed, reported.
//!
//! Images, loop devices and mounts cannot be left: they have no names (see `image`). Groups can, when a launcher was killed,
//! and an engine's prepared directory can, when its process was.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    cgroup::{self, Layout, Name, Owner},
    engine::{ENGINES, Orphan},
};

/// Blocks. Repeating it is harmless.
pub(crate) fn reap(cgroups: &Layout, run_dir: &Path) -> Vec<Orphan> {
    let mut orphans = reap_groups(cgroups);
    orphans.extend(reap_directories(&run_dir.join(ENGINES)));
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

fn reap_directories(engines: &Path) -> Vec<Orphan> {
    let dead = |path: &PathBuf| {
        let owner = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.split_once('.'));
        owner
            .and_then(|(_, owner)| owner.parse::<Owner>().ok())
            .is_some_and(|owner| owner.is_dead())
    };
    let entries = fs::read_dir(engines)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    entries
        .filter(dead)
        .map(|path| remove_directory(&path))
        .collect()
}

fn remove_directory(path: &Path) -> Orphan {
    Orphan {
        id: None,
        found: format!("directory {} of a dead process", path.display()),
        done: fs::remove_dir_all(path)
            .map(|()| "removed".to_owned())
            .map_err(|error| error.to_string()),
    }
}
