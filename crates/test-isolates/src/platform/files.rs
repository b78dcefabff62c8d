//! The workspace: files by path; directories are what their paths say.

use std::collections::BTreeMap;

use bulkhead_wire::platform::{
    self, Entry, Error, entry::Kind, error::Code, workspace_write::Mode,
};

use super::{NOW_MS, not_found};

#[derive(Default)]
pub(super) struct Files(BTreeMap<String, Vec<u8>>);

impl Files {
    pub(super) fn put(&mut self, path: &str, content: &[u8]) {
        self.0.insert(path.to_owned(), content.to_vec());
    }

    pub(super) fn read(&self, asked: &platform::WorkspaceRead) -> Result<platform::File, Error> {
        let content = self
            .0
            .get(&asked.path)
            .ok_or_else(|| not_found("such file"))?;
        let start = usize::try_from(asked.offset_bytes)
            .unwrap()
            .min(content.len());
        let length = usize::try_from(asked.length_bytes_max).unwrap();
        let end = start.saturating_add(length).min(content.len());
        Ok(platform::File {
            content: content[start..end].to_vec(),
            size_bytes: content.len() as u64,
            modified_at_ms: Some(NOW_MS),
        })
    }

    pub(super) fn write(
        &mut self,
        asked: platform::WorkspaceWrite,
    ) -> Result<platform::Written, Error> {
        let (mode, path) = (asked.mode(), asked.path.clone());
        let mut content = match (mode, self.0.remove(&path)) {
            (Mode::Create, Some(there)) => {
                self.0.insert(path, there);
                return Err(Error::new(Code::BadRequest, "the path is taken"));
            }
            (Mode::Append, Some(there)) => there,
            _ => Vec::new(),
        };
        content.extend(asked.content);
        let size_bytes = content.len() as u64;
        self.0.insert(path, content);
        Ok(platform::Written { size_bytes })
    }

    pub(super) fn list(&self, asked: &platform::WorkspaceList) -> Result<platform::Entries, Error> {
        let prefix = match asked.path.as_str() {
            "" => String::new(),
            path => format!("{path}/"),
        };
        let mut found = BTreeMap::new();
        for (path, content) in self.0.iter().filter(|(path, _)| path.starts_with(&prefix)) {
            let rest = &path[prefix.len()..];
            let ends = rest.match_indices('/').map(|(at, _)| prefix.len() + at);
            for end in ends {
                found.insert(path[..end].to_owned(), directory(&path[..end]));
            }
            found.insert(path.clone(), file(path, content));
        }
        if !asked.recursive {
            found.retain(|path, _| !path[prefix.len()..].contains('/'));
        }
        if found.is_empty() && !asked.path.is_empty() {
            return Err(not_found("such directory"));
        }
        let limit = asked.limit as usize;
        Ok(platform::Entries {
            more: found.len() > limit,
            entries: found.into_values().take(limit).collect(),
        })
    }

    pub(super) fn stat(&self, path: &str) -> Result<Entry, Error> {
        if let Some(content) = self.0.get(path) {
            return Ok(file(path, content));
        }
        let prefix = format!("{path}/");
        let is_directory = path.is_empty() || self.0.keys().any(|other| other.starts_with(&prefix));
        is_directory
            .then(|| directory(path))
            .ok_or_else(|| not_found("such path"))
    }

    pub(super) fn remove(
        &mut self,
        asked: &platform::WorkspaceRemove,
    ) -> Result<platform::Removed, Error> {
        let prefix = format!("{}/", asked.path);
        let below = self
            .0
            .keys()
            .filter(|path| path.starts_with(&prefix))
            .count();
        if below > 0 && !asked.recursive {
            return Err(Error::new(Code::BadRequest, "the directory is not empty"));
        }
        let before = self.0.len();
        self.0
            .retain(|path, _| *path != asked.path && !path.starts_with(&prefix));
        Ok(platform::Removed {
            removed: self.0.len() < before,
        })
    }

    pub(super) fn rename(&mut self, asked: &platform::WorkspaceMove) -> Result<Entry, Error> {
        if self.0.contains_key(&asked.to) && !asked.overwrite {
            return Err(Error::new(Code::BadRequest, "the path is taken"));
        }
        let content = self
            .0
            .remove(&asked.from)
            .ok_or_else(|| not_found("such file"))?;
        let entry = file(&asked.to, &content);
        self.0.insert(asked.to.clone(), content);
        Ok(entry)
    }
}

fn file(path: &str, content: &[u8]) -> Entry {
    Entry {
        path: path.to_owned(),
        kind: Kind::File.into(),
        size_bytes: content.len() as u64,
        modified_at_ms: Some(NOW_MS),
    }
}

fn directory(path: &str) -> Entry {
    Entry {
        path: path.to_owned(),
        kind: Kind::Directory.into(),
        size_bytes: 0,
        modified_at_ms: None,
    }
}
