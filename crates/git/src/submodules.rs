//! Submodules: found in objects before a phase starts, matched with what the run lists, and served by the gateway.
//!
//! A submodule's repository is served only where an operator or the run lists its URL, or where the parent, a local
//! repository, already holds it in its own `modules/` (its owner fetched it there). Everything else is refused by name
//! before any agent starts (case 38).

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

use crate::{
    command::GitProgram,
    diff::shown,
    error::{Refusal, Result},
    names::Oid,
    objects::{Objects, TreeEntry},
    repository::{Repository, Source},
};

const AT_MOST: usize = 64;
const DEPTH: usize = 4;
const GITLINK: u32 = 0o160_000;

/// A repository that submodules may come from.
#[derive(Debug, Clone)]
pub struct ListedSubmodule {
    /// The URL as `.gitmodules` has it, or as it resolves against the parent's own URL or path.
    pub url: String,
    pub source: Source,
}

/// A submodule's repository, served read-only to one run.
#[derive(Debug, Clone)]
pub struct ServedSubmodule {
    pub repository: Repository,
    /// The commits that parents pin; they may be fetched though no branch leads to them.
    pub commits: Vec<Oid>,
    /// The URL by which git inside the sandbox asks for it, before it is rewritten to the gateway's.
    pub(crate) inside_url: String,
}

/// One entry of `.gitmodules` whose path is a submodule in the tree.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) url: String,
    pub(crate) commit: Oid,
}

/// Where submodules are looked for.
#[derive(Debug, Clone, Copy)]
pub struct Lookup<'a> {
    pub program: &'a GitProgram,
    /// The data directory's `git/`.
    pub git_data: &'a Path,
    pub listed: &'a [ListedSubmodule],
}

/// The submodules of one commit and, below them, theirs. Each distinct URL is served once.
pub(crate) struct Found<'a> {
    lookup: Lookup<'a>,
    pub(crate) served: Vec<ServedSubmodule>,
    /// The settings that lead git in the sandbox from each URL to the gateway.
    pub(crate) config: Vec<(String, String)>,
}

/// A parent whose submodules are looked at.
struct Parent {
    repository: Repository,
    /// Its place as the host knows it, and as git inside the sandbox does.
    place: String,
    inside_url: String,
    path: String,
}

impl<'a> Found<'a> {
    pub(crate) async fn below(
        lookup: Lookup<'a>,
        repository: &Repository,
        commit: &Oid,
    ) -> Result<Found<'a>> {
        let mut found = Self {
            lookup,
            served: Vec::new(),
            config: Vec::new(),
        };
        let root = Parent {
            repository: repository.clone(),
            place: place(repository),
            inside_url: "{gateway}/git/repo.git".to_owned(),
            path: String::new(),
        };
        let mut open = vec![(root, commit.clone(), 0)];
        while let Some((parent, commit, depth)) = open.pop() {
            for declared in declared(&parent.repository.objects()?, &commit, &parent.path).await? {
                if found.served.len() >= AT_MOST || depth >= DEPTH {
                    return Err(Refusal::SubmodulesTooMany {
                        limit: AT_MOST,
                        depth: DEPTH,
                    }
                    .into());
                }
                let pinned = declared.commit.clone();
                open.push((found.take(&parent, declared).await?, pinned, depth + 1));
            }
        }
        Ok(found)
    }

    async fn take(&mut self, parent: &Parent, declared: Declared) -> Result<Parent> {
        let inside_url = resolve(&parent.inside_url, &declared.url);
        let path = format!("{}{}/", parent.path, declared.path);
        let commit = declared.commit.clone();
        let repository = match self
            .served
            .iter()
            .find(|served| served.inside_url == inside_url)
        {
            Some(served) => served.repository.clone(),
            None => self.open(parent, &declared).await?,
        };
        if !repository.objects()?.has_commit(&commit).await? {
            return Err(Refusal::SubmoduleCommitMissing {
                path: path.trim_end_matches('/').to_owned(),
                url: declared.url,
                commit,
            }
            .into());
        }
        let place = place(&repository);
        match self
            .served
            .iter_mut()
            .find(|served| served.inside_url == inside_url)
        {
            Some(served) => served.commits.push(commit),
            None => {
                let mut commits = vec![commit];
                commits.extend(repository.trusted().resolve("HEAD").await.ok());
                let (repository, inside_url) = (repository.clone(), inside_url.clone());
                self.served.push(ServedSubmodule {
                    repository,
                    commits,
                    inside_url,
                });
            }
        }
        self.lead(&declared.name, &inside_url);
        Ok(Parent {
            repository,
            place,
            inside_url,
            path,
        })
    }

    async fn open(&self, parent: &Parent, declared: &Declared) -> Result<Repository> {
        let Lookup {
            program,
            git_data,
            listed,
        } = self.lookup;
        let names = [declared.url.clone(), resolve(&parent.place, &declared.url)];
        let listed = listed
            .iter()
            .find(|listed| names.iter().any(|name| same(name, &listed.url)));
        if let Some(listed) = listed {
            let repository = Repository::open(program, &listed.source, git_data).await?;
            repository.refresh().await?;
            return Ok(repository);
        }
        if let Some(module) = own_module(&parent.repository, &declared.name) {
            return Repository::open(program, &Source::Local(module), git_data).await;
        }
        let path = format!("{}{}", parent.path, declared.path);
        Err(Refusal::SubmoduleNotListed {
            path,
            url: declared.url.clone(),
        }
        .into())
    }

    /// A URL is led to the gateway by its beginning. A path is not, so the submodule itself is.
    fn lead(&mut self, name: &str, inside_url: &str) {
        let index = self
            .served
            .iter()
            .position(|served| served.inside_url == inside_url);
        let gateway = format!("{{gateway}}/git/sub/{}.git", index.unwrap_or_default());
        let setting = if inside_url.contains(':') || inside_url.starts_with("{gateway}") {
            (format!("url.{gateway}.insteadOf"), inside_url.to_owned())
        } else {
            (format!("submodule.{name}.url"), gateway)
        };
        if !self.config.contains(&setting) {
            self.config.push(setting);
        }
    }
}

fn place(repository: &Repository) -> String {
    if let Some(upstream) = repository.upstream() {
        return upstream.url().to_string();
    }
    let git_dir = repository.trusted().git_dir();
    let root = if git_dir.ends_with(".git") {
        git_dir.parent().unwrap_or(git_dir)
    } else {
        git_dir
    };
    root.display().to_string()
}

/// The repository that the parent's owner fetched for this submodule.
fn own_module(parent: &Repository, name: &str) -> Option<PathBuf> {
    if parent.is_remote()
        || !Path::new(name)
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
    {
        return None;
    }
    let modules = parent.trusted().git_dir().join("modules");
    let module = modules.join(name).canonicalize().ok()?;
    module
        .starts_with(modules.canonicalize().ok()?)
        .then_some(module)
}

/// Resolves a submodule's URL the way git does: `./` and `../` against the parent's, all else as it stands.
fn resolve(parent: &str, url: &str) -> String {
    if !url.starts_with("./") && !url.starts_with("../") {
        return url.to_owned();
    }
    let (mut base, mut rest) = (parent.trim_end_matches('/'), url);
    loop {
        if let Some(next) = rest.strip_prefix("./") {
            rest = next;
        } else if let Some(next) = rest.strip_prefix("../") {
            rest = next;
            base = base.rsplit_once('/').map_or("", |(head, _)| head);
        } else {
            return format!("{base}/{}", rest.trim_end_matches('/'));
        }
    }
}

fn same(one: &str, other: &str) -> bool {
    let bare = |url: &str| {
        url.trim_end_matches('/')
            .trim_end_matches(".git")
            .trim_end_matches('/')
            .to_owned()
    };
    bare(one) == bare(other)
}

/// The submodules of a commit, from its tree and its `.gitmodules` blob.
pub(crate) async fn declared(
    objects: &Objects,
    commit: &Oid,
    below: &str,
) -> Result<Vec<Declared>> {
    let entries = objects.entries(commit, None).await?;
    let links: Vec<&TreeEntry> = entries
        .iter()
        .filter(|entry| entry.mode == GITLINK)
        .collect();
    if links.is_empty() {
        return Ok(Vec::new());
    }
    let file = entries
        .iter()
        .find(|entry| entry.path == b".gitmodules" && entry.mode & 0o170_000 == 0o100_000);
    let sections = match file {
        Some(file) => sections(objects, &file.oid).await?,
        None => BTreeMap::new(),
    };
    let mut declared = Vec::new();
    for link in links {
        let path = shown(&link.path);
        let section = sections
            .iter()
            .find(|(_, section)| section.path.as_deref() == Some(&link.path[..]));
        match section.and_then(|(name, section)| Some((name.clone(), section.url.clone()?))) {
            Some((name, url)) => declared.push(Declared {
                name,
                path,
                url,
                commit: link.oid.clone(),
            }),
            None => {
                return Err(Refusal::SubmoduleWithoutUrl {
                    path: format!("{below}{path}"),
                }
                .into());
            }
        }
    }
    Ok(declared)
}

#[derive(Debug, Default)]
struct Section {
    path: Option<Vec<u8>>,
    url: Option<String>,
}

/// Reads `.gitmodules` from its blob: never from a file, and without includes.
async fn sections(objects: &Objects, blob: &Oid) -> Result<BTreeMap<String, Section>> {
    let git = objects.git().args([
        "config",
        "--no-includes",
        "-z",
        "--list",
        "--blob",
        blob.as_str(),
    ]);
    let out = git.output_bytes(1 << 20).output().await?;
    let mut sections: BTreeMap<String, Section> = BTreeMap::new();
    for record in out
        .split(|&byte| byte == 0)
        .filter(|record| !record.is_empty())
    {
        let mut parts = record.splitn(2, |&byte| byte == b'\n');
        let (key, value) = (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        );
        let key = String::from_utf8_lossy(key);
        let Some((name, field)) = key
            .strip_prefix("submodule.")
            .and_then(|key| key.rsplit_once('.'))
        else {
            continue;
        };
        let section = sections.entry(name.to_owned()).or_default();
        match field {
            "path" => section.path = Some(value.to_vec()),
            "url" => section.url = Some(String::from_utf8_lossy(value).into_owned()),
            _ => {}
        }
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_urls_resolve_as_git_does() {
        for (parent, url, whole) in [
            ("https://h/a/b.git", "../c.git", "https://h/a/c.git"),
            ("https://h/a/b.git/", "./c", "https://h/a/b.git/c"),
            ("/srv/a", "../../x/y", "/x/y"),
            ("https://h/a", "https://o/x", "https://o/x"),
            ("https://h/a", "/abs", "/abs"),
        ] {
            assert_eq!(resolve(parent, url), whole);
        }
    }
}
