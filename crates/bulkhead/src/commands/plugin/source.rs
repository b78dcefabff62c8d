//! A plugin as it lies in its directory.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use bulkhead_model::plugin::manifest::{FILE, Manifest};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::failure::Misuse;

/// Larger files are none of a plugin's.
const FILE_BYTES_MAX: u64 = 16 << 20;

pub(super) struct Source {
    pub(super) directory: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) text: String,
}

impl Source {
    pub(super) fn read(directory: &Path) -> Result<Self> {
        let file = directory.join(FILE);
        let shown = file.display().to_string();
        let bytes = read(&file)?;
        let manifest = Manifest::read_bytes(&shown, &bytes)
            .map_err(|error| Misuse::usage(error.to_string()))?;
        let entry = directory.join(&manifest.entry);
        let text = String::from_utf8(read(&entry)?)
            .map_err(|_| Misuse::usage(format!("{} is not UTF-8 text", entry.display())))?;
        Ok(Self {
            directory: directory.to_owned(),
            manifest,
            text,
        })
    }

    /// Settings from a file, checked and completed.
    pub(super) fn settings(&self, file: Option<&Path>) -> Result<Map<String, Value>> {
        let given = match file {
            Some(file) => json(file)?,
            None => Map::new(),
        };
        self.complete(&given)
    }

    pub(super) fn complete(&self, given: &Map<String, Value>) -> Result<Map<String, Value>> {
        let complete = self.manifest.settings(given);
        Ok(complete.map_err(|error| {
            Misuse::usage_hint(
                error.to_string(),
                "give settings as a JSON object with --settings FILE",
            )
        })?)
    }
}

/// A file's bytes; `-` is standard input.
pub(super) fn read(file: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = FILE_BYTES_MAX + 1;
    if file == Path::new("-") {
        std::io::stdin()
            .take(limit)
            .read_to_end(&mut bytes)
            .context("reading standard input")?;
    } else {
        let open = fs::File::open(file).map_err(|error| {
            Misuse::usage(format!("{} cannot be read: {error}", file.display()))
        })?;
        open.take(limit)
            .read_to_end(&mut bytes)
            .with_context(|| format!("reading {}", file.display()))?;
    }
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let what = format!("{} has more than {FILE_BYTES_MAX} bytes", file.display());
        return Err(Misuse::usage(what).into());
    }
    Ok(bytes)
}

/// A file's JSON.
pub(super) fn json<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let bytes = read(file)?;
    let parsed = serde_json::from_slice(&bytes);
    Ok(parsed.map_err(|error| Misuse::usage(format!("{}: {error}", file.display())))?)
}
