//! Repositories that runs work on: opened once, shared by everything that reads or serves them.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use bulkhead_git::{GitProgram, Repository, Served, Source, Upstream, UpstreamCredential};
use bulkhead_model::RunId;
use tokio::sync::Mutex;

use crate::{Code, Config, GitCredential, Problem, plane::Plane, problem::chain};

pub(crate) struct Repos {
    program: GitProgram,
    git_data: PathBuf,
    open: Mutex<HashMap<String, Arc<Served>>>,
}

impl Repos {
    pub(crate) fn new(program: GitProgram, git_data: PathBuf) -> Self {
        Self {
            program,
            git_data,
            open: Mutex::default(),
        }
    }

    pub(crate) fn git_data(&self) -> &Path {
        &self.git_data
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

    pub(crate) async fn served(
        &self,
        plane: &Plane,
        run: RunId,
    ) -> Result<Option<Arc<Served>>, Problem> {
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
        let parsed = parse(source, &plane.config)?;
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

/// A path on this machine or a URL, with the operator's credential for it.
fn parse(source: &str, config: &Config) -> Result<Source, Problem> {
    if !source.contains("://") {
        return Ok(Source::Local(PathBuf::from(source)));
    }
    let upstream = Upstream::new(source)
        .map_err(|error| Problem::new(Code::InvalidInput, chain(&error)).field("repo"))?;
    let mut upstream = upstream.with_credential(credential(source, &config.git_credentials));
    upstream.proxy.clone_from(&config.proxy);
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
