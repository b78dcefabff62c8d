//! A repository, a gateway on a loopback port, and a ledger in memory.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use bulkhead_git::{
    Access, GatewayLimits, GitProgram, LedgerError, Oid, PhaseAuth, PhaseGrant, Push, PushLedger,
    Recorded, RefName, Repository, Served, Source, gateway, inside,
};
use bulkhead_model::{Fence, GitExtras, GitOrder, RunId};
use secrecy::{ExposeSecret as _, SecretString};
use tempfile::TempDir;
use tokio_util::task::TaskTracker;

pub(crate) const TOKEN: &str = "phase-token-0123456789abcdef";
pub(crate) const BRANCH: &str = "refs/heads/bulkhead/run-1";

/// The environment of a person's own git: nothing of this machine's configuration.
pub(crate) fn plain(command: &mut Command) -> &mut Command {
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "Ann")
        .env("GIT_AUTHOR_EMAIL", "ann@example.org")
        .env("GIT_COMMITTER_NAME", "Ann")
        .env("GIT_COMMITTER_EMAIL", "ann@example.org")
        .env("GIT_TERMINAL_PROMPT", "0")
}

pub(crate) fn try_git(dir: &Path, args: &[&str]) -> Output {
    plain(Command::new("git").arg("-C").arg(dir).args(args))
        .output()
        .unwrap()
}

pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let output = try_git(dir, args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

pub(crate) fn commit_all(dir: &Path, message: &str) -> Oid {
    git(dir, &["add", "-A"]);
    git(dir, &["commit", "-q", "--allow-empty", "-m", message]);
    git(dir, &["rev-parse", "HEAD"]).parse().unwrap()
}

/// A user's repository with a README on `main`.
pub(crate) fn user_repo(dir: &Path) -> Oid {
    std::fs::create_dir_all(dir).unwrap();
    git(dir, &["init", "-q", "-b", "main"]);
    std::fs::write(dir.join("README.md"), "hello\n").unwrap();
    commit_all(dir, "first")
}

pub(crate) fn branch() -> RefName {
    BRANCH.parse().unwrap()
}

pub(crate) fn grant(fence: u64) -> PhaseGrant {
    PhaseGrant {
        run: RunId::from_uuid(uuid::Uuid::now_v7()),
        phase: "implement".parse().unwrap(),
        attempt: 1,
        fence: Fence(fence),
        branch: branch(),
    }
}

/// Tokens, recorded pushes, and the fence that is current.
#[derive(Default)]
pub(crate) struct Books {
    pub(crate) access: Mutex<HashMap<String, Access>>,
    pub(crate) recorded: Mutex<Vec<Push>>,
    pub(crate) done: Mutex<Vec<Push>>,
    pub(crate) current_fence: Mutex<u64>,
    /// Where set, `record` never returns after it recorded: the server is killed there.
    pub(crate) hang_after_record: Mutex<bool>,
    /// How long `record` takes after it recorded.
    pub(crate) pause_after_record: Mutex<std::time::Duration>,
}

#[async_trait]
impl PhaseAuth for Books {
    async fn access(&self, token: &SecretString) -> Result<Option<Access>, LedgerError> {
        Ok(self
            .access
            .lock()
            .unwrap()
            .get(token.expose_secret())
            .cloned())
    }
}

#[async_trait]
impl PushLedger for Books {
    async fn record(&self, push: &Push) -> Result<Recorded, LedgerError> {
        let current = Fence(*self.current_fence.lock().unwrap());
        if push.grant.fence < current {
            return Err(LedgerError::StaleFence {
                shown: push.grant.fence,
                current,
            });
        }
        {
            let mut recorded = self.recorded.lock().unwrap();
            let attempt = |other: &&Push| other.grant == push.grant;
            match recorded.iter().find(attempt) {
                Some(other) if other == push => return Ok(Recorded::Repeat),
                Some(other) => {
                    return Err(LedgerError::AlreadyPushed {
                        new: other.new.clone(),
                    });
                }
                None => recorded.push(push.clone()),
            }
        }
        if *self.hang_after_record.lock().unwrap() {
            std::future::pending::<()>().await;
        }
        let pause = *self.pause_after_record.lock().unwrap();
        tokio::time::sleep(pause).await;
        Ok(Recorded::New)
    }

    async fn done(&self, push: &Push) -> Result<(), LedgerError> {
        self.done.lock().unwrap().push(push.clone());
        Ok(())
    }
}

/// A gateway that serves one run of one repository.
pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) books: Arc<Books>,
    pub(crate) repository: Repository,
    pub(crate) start: Oid,
    pub(crate) url: String,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl World {
    /// A fresh user repository at `DIR/user`, its run branch, and the gateway.
    pub(crate) async fn new() -> Self {
        let dir = TempDir::new().unwrap();
        user_repo(&dir.path().join("user"));
        Self::over(dir, Source::Local).await
    }

    pub(crate) async fn over(dir: TempDir, source: impl FnOnce(PathBuf) -> Source) -> Self {
        let source = source(dir.path().join("user"));
        let repository = Repository::open(
            &GitProgram::default(),
            &source,
            &dir.path().join("data/git"),
        )
        .await
        .unwrap();
        let start = repository.resolve("main").await.unwrap();
        repository.create_branch(&branch(), &start).await.unwrap();
        let served = Served::new(repository.clone());
        Self::serving(dir, repository, served, start).await
    }

    pub(crate) async fn serving(
        dir: TempDir,
        repository: Repository,
        served: Served,
        start: Oid,
    ) -> Self {
        Self::bounded(dir, repository, served, start, GatewayLimits::default()).await
    }

    pub(crate) async fn bounded(
        dir: TempDir,
        repository: Repository,
        served: Served,
        start: Oid,
        limits: GatewayLimits,
    ) -> Self {
        let books = Arc::new(Books::default());
        let access = Access {
            grant: grant(7),
            repo: Arc::new(served),
        };
        books
            .access
            .lock()
            .unwrap()
            .insert(TOKEN.to_owned(), access);
        let router = gateway::service(
            Arc::clone(&books) as Arc<dyn PhaseAuth>,
            Arc::clone(&books) as Arc<dyn PushLedger>,
            limits,
            TaskTracker::new(),
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        #[expect(
            clippy::disallowed_methods,
            reason = "the test owns the server through its handle"
        )]
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            dir,
            books,
            repository,
            start,
            url,
            server,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn order(&self) -> GitOrder {
        GitOrder {
            branch: BRANCH.to_owned(),
            start: self.start.to_string(),
            commit_message: "Phase implement".to_owned(),
            author_name: "Bulkhead".to_owned(),
            author_email: "bulkhead@example.org".to_owned(),
            extras: GitExtras::default(),
        }
    }

    /// Git as it runs in the sandbox, with the phase's environment.
    pub(crate) async fn sandbox_git(&self, dir: &Path, args: &[&str]) -> Output {
        self.sandbox_git_as(TOKEN, dir, args).await
    }

    pub(crate) async fn sandbox_git_as(&self, token: &str, dir: &Path, args: &[&str]) -> Output {
        let mut command = Command::new("git");
        command.arg("-C").arg(dir).args(args);
        self.in_sandbox(command, token, &self.order()).await
    }

    pub(crate) async fn in_sandbox(
        &self,
        mut command: Command,
        token: &str,
        order: &GitOrder,
    ) -> Output {
        plain(&mut command);
        for (key, value) in inside::environment(order, &self.url, &SecretString::from(token)) {
            command.env(key, value.expose_secret());
        }
        tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap()
    }

    pub(crate) async fn step(&self, step: &inside::Step, dir: &Path, order: &GitOrder) -> Output {
        let mut command = Command::new(&step.argv[0]);
        command.args(&step.argv[1..]).current_dir(dir);
        plain(&mut command);
        for (key, value) in inside::environment(order, &self.url, &SecretString::from(TOKEN)) {
            command.env(key, value.expose_secret());
        }
        command.envs(step.env.iter().cloned());
        tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap()
    }

    /// A workspace cloned by the steps that sandboxes run.
    pub(crate) async fn workspace(&self, name: &str) -> PathBuf {
        let dir = self.path(name);
        std::fs::create_dir_all(&dir).unwrap();
        let output = self.clone_into(&dir, &self.order()).await;
        assert!(output.status.success(), "{}", errors(&output));
        dir
    }

    pub(crate) async fn clone_into(&self, dir: &Path, order: &GitOrder) -> Output {
        let steps = inside::clone_steps(order, &self.url, dir.to_str().unwrap());
        self.step(&steps[0], dir, order).await
    }

    pub(crate) async fn finish(&self, dir: &Path, order: &GitOrder) -> Output {
        let steps = inside::finish_steps(order, &self.url, dir.to_str().unwrap());
        self.step(&steps[0], dir, order).await
    }

    pub(crate) async fn tip(&self) -> Oid {
        self.repository
            .trusted()
            .tip(&branch())
            .await
            .unwrap()
            .unwrap()
    }
}

pub(crate) fn errors(output: &Output) -> String {
    format!(
        "{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    )
}
