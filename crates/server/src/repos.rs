//! Repositories that runs work on: opened once, shared by everything that reads or serves them.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use bulkhead_git::{
    GitProgram, ListedSubmodule, Lookup, Oid, Repository, Served, Source, Upstream,
    UpstreamCredential,
};
use bulkhead_model::{GitExtras, RunId};
use tokio::sync::Mutex;

use crate::{Code, GitCredential, Problem, plane::Plane, problem::chain};

pub(crate) struct Repos {
    program: GitProgram,
    git_data: PathBuf,
    open: Mutex<HashMap<String, Arc<Served>>>,
    /// With the submodules of the commit that a run's phase starts from.
    of_runs: Mutex<HashMap<RunId, Arc<Served>>>,
}

impl Repos {
    pub(crate) fn new(program: GitProgram, git_data: PathBuf) -> Self {
        Self {
            program,
            git_data,
            open: Mutex::default(),
            of_runs: Mutex::default(),
        }
    }

    pub(crate) async fn open(&self, plane: &Plane, source: &str) -> Result<Repository, Problem> {
        self.serve(plane, source)
            .await
            .map(|served| served.repository.clone())
    }

    /// The repository of a run; none where it has none.
    pub(crate) async fn of_run(
        &self,
        plane: &Plane,
        run: RunId,
    ) -> Result<Option<Repository>, Problem> {
        let served = self.served(plane, run).await?;
        Ok(served.map(|served| served.repository.clone()))
    }

    /// Looks at a start commit: prepares submodules and LFS for the run's phase, or refuses by name.
    pub(crate) async fn look(
        &self,
        plane: &Plane,
        run: RunId,
        source: &str,
        commit: &Oid,
    ) -> Result<GitExtras, Problem> {
        let repository = self.open(plane, source).await?;
        let listed = listed(plane)?;
        let lookup = Lookup {
            program: &self.program,
            git_data: &self.git_data,
            listed: &listed,
        };
        let looked = repository.preflight(commit, lookup).await;
        let looked = looked.map_err(|error| Problem::new(Code::Refused, chain(&error)))?;
        let mut served = Served::new(repository);
        served.submodules = looked.submodules;
        self.of_runs.lock().await.insert(run, Arc::new(served));
        Ok(looked.extras)
    }

    /// A run that has ended needs nothing any more.
    pub(crate) async fn forget(&self, run: RunId) {
        self.of_runs.lock().await.remove(&run);
    }

    pub(crate) async fn served(
        &self,
        plane: &Plane,
        run: RunId,
    ) -> Result<Option<Arc<Served>>, Problem> {
        if let Some(served) = self.of_runs.lock().await.get(&run) {
            return Ok(Some(Arc::clone(served)));
        }
        match plane.spec(run).await?.repo {
            Some(repo) => self.serve(plane, &repo.source).await.map(Some),
            None => Ok(None),
        }
    }

    async fn serve(&self, plane: &Plane, source: &str) -> Result<Arc<Served>, Problem> {
        let mut open = self.open.lock().await;
        if let Some(served) = open.get(source) {
            return Ok(Arc::clone(served));
        }
        let parsed = parse(source, plane)?;
        let repository = Repository::open(&self.program, &parsed, &self.git_data)
            .await
            .map_err(|error| {
                Problem::new(Code::InvalidInput, chain(&error))
                    .field("repo")
                    .remedy("name a git repository on this machine, or the URL of one that it can reach")
            })?;
        let served = Arc::new(Served::new(repository));
        open.insert(source.to_owned(), Arc::clone(&served));
        Ok(served)
    }
}

/// The submodules that the operator permits, with the operator's credentials for them.
fn listed(plane: &Plane) -> Result<Vec<ListedSubmodule>, Problem> {
    let listed = plane.config.submodules.iter().map(|submodule| {
        Ok(ListedSubmodule {
            url: submodule.url.clone(),
            source: parse(&submodule.source, plane)?,
        })
    });
    listed.collect()
}

/// A path on this machine or a URL, with the operator's credential for it.
fn parse(source: &str, plane: &Plane) -> Result<Source, Problem> {
    let config = &plane.config;
    if !source.contains("://") {
        return Ok(Source::Local(PathBuf::from(source)));
    }
    let upstream = Upstream::new(source)
        .map_err(|error| Problem::new(Code::InvalidInput, chain(&error)).field("repo"))?;
    // As it was read, so that no `..` in it leads out of a prefix after the comparison.
    let credential = credential(upstream.url().as_str(), &config.git_credentials);
    let mut upstream = upstream
        .with_credential(credential)
        .with_proxy(config.proxy.as_ref())
        .with_lfs(plane.egress.clone(), plane.tls.clone());
    upstream.ca_file.clone_from(&config.ca_file);
    Ok(Source::Remote(Box::new(upstream)))
}

/// The credential whose prefix is the longest that fits. A prefix ends at a `/` or the whole URL, so that
/// `https://forge.example` never fits `https://forge.example.evil`.
fn credential(url: &str, known: &[GitCredential]) -> Option<UpstreamCredential> {
    let fits = |credential: &&GitCredential| {
        let prefix = credential.url_prefix.trim_end_matches('/');
        url.strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let best = known
        .iter()
        .filter(fits)
        .max_by_key(|credential| credential.url_prefix.len())?;
    Some(UpstreamCredential {
        username: best.username.clone(),
        password: best.password.clone(),
    })
}
