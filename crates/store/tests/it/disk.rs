//! The data directory (D12, R14, R19; DESIGN 4): private, one server, forward only, backed up.

use std::{
    fs::{DirBuilder, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use bulkhead_model::run::RunEvent;
use bulkhead_store::{Access, Error, MasterKey, Store, runs::RunFilter};
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::{Connection as _, SqliteConnection};

use crate::support::{Fixture, NOW, change, commit, new, new_run, open};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn d12_everything_below_the_data_directory_is_private() {
    let fixture = Fixture::new().await;
    fixture.started().await;
    assert_eq!(mode(&fixture.root()), 0o700);
    for entry in std::fs::read_dir(fixture.root()).unwrap() {
        let path = entry.unwrap().path();
        let wanted = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), wanted, "{}", path.display());
    }
}

#[tokio::test]
async fn d12_a_directory_or_database_that_others_may_read_is_refused_with_the_remedy() {
    let fixture = Fixture::new().await;
    let root = fixture.root();
    let Fixture { store, dir: _dir } = fixture;
    store.close().await;
    drop(store);
    for (path, open_to_all, private) in [
        (root.clone(), 0o755, 0o700),
        (root.join("bulkhead.db"), 0o644, 0o600),
    ] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(open_to_all)).unwrap();
        let refused = Store::open(&root, Access::Server, MasterKey::File)
            .await
            .unwrap_err();
        assert!(matches!(refused, Error::NotPrivate { .. }), "{refused}");
        assert!(refused.to_string().contains("chmod"), "{refused}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(private)).unwrap();
    }
    Store::open(&root, Access::Server, MasterKey::File)
        .await
        .unwrap();
}

#[tokio::test]
async fn r19_a_second_server_is_refused_and_a_tool_is_not() {
    let fixture = Fixture::new().await;
    let refused = Store::open(&fixture.root(), Access::Server, MasterKey::File)
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::InUse { .. }), "{refused}");
    assert!(refused.to_string().contains("--data-dir"), "{refused}");
    let tool = open(&fixture.dir, Access::Tool).await;
    let run = fixture.started().await;
    assert_eq!(tool.run(run.id).await.unwrap(), run);
}

#[tokio::test]
async fn r19_a_tool_that_came_first_does_not_keep_the_server_out() {
    let dir = tempfile::tempdir().unwrap();
    let tool = open(&dir, Access::Tool).await;
    let server = open(&dir, Access::Server).await;
    let secret = SecretString::from("ghp_16C7e42F292c6912E7710c83");
    tool.set_secret(&"TOKEN".parse().unwrap(), &secret, NOW)
        .await
        .unwrap();
    assert_eq!(server.secrets().await.unwrap().len(), 1);
}

#[tokio::test]
async fn r19_a_server_comes_after_the_one_that_holds_the_directory_or_says_that_it_is_in_use() {
    let fixture = Fixture::new().await;
    let root = fixture.root();
    let next = |patience| Store::open(&root, Access::NextServer { patience }, MasterKey::File);
    let refused = next(Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(refused, Error::InUse { .. }), "{refused}");
    let store = fixture.store;
    let (after, ()) = tokio::join!(next(Duration::from_secs(60)), async {
        store.close().await;
        drop(store);
    });
    drop(after.unwrap());
    // The one that gave up waits for nothing any more.
    Store::open(
        &root,
        Access::NextServer {
            patience: Duration::from_secs(60),
        },
        MasterKey::File,
    )
    .await
    .unwrap();
}

/// Runs as a process of its own: makes runs and moves them, and says what was committed.
#[tokio::test]
#[ignore = "started by r14_kill_9_leaves_state_moves_and_effects_together_and_the_lock_free"]
async fn child_moves_runs() {
    let root = std::env::var_os("BULKHEAD_TEST_DATA").unwrap();
    let store = Store::open(Path::new(&root), Access::Server, MasterKey::File)
        .await
        .unwrap();
    let mut committed = std::io::stdout().lock();
    loop {
        let run = new_run(&["plan"]);
        store.create_run(new(&run)).await.unwrap();
        let start = RunEvent::Start {
            base: Some(commit(1)),
        };
        let run = store
            .apply(change(run.id, &start, NOW))
            .await
            .unwrap()
            .into_run();
        writeln!(committed, "started {}", run.id).unwrap();
        committed.flush().unwrap();
    }
}

#[tokio::test]
async fn r14_kill_9_leaves_state_moves_and_effects_together_and_the_lock_free() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data");
    let mut started = Vec::new();
    for kill_after in [3, 25, 60] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "disk::child_moves_runs",
                "--ignored",
                "--nocapture",
            ])
            .env("BULKHEAD_TEST_DATA", &root)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut seen = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            if let Some(id) = line.unwrap().strip_prefix("started ") {
                started.push(id.parse::<bulkhead_model::RunId>().unwrap());
                seen += 1;
            }
            if seen == kill_after {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let store = Store::open(&root, Access::Server, MasterKey::File)
            .await
            .unwrap();
        for id in &started {
            let (run, moves) = (
                store.run(*id).await.unwrap(),
                store.transitions(*id, 0, 0).await.unwrap(),
            );
            assert_eq!((run.version, moves.len()), (1, 2));
        }
        // Every run, also those whose commit nobody heard of, is whole.
        let all = store
            .runs(&RunFilter {
                limit: 1000,
                ..RunFilter::default()
            })
            .await
            .unwrap();
        for run in all {
            let moves = store.transitions(run.id, 0, 0).await.unwrap();
            let effects = store.pending_effects(Some(run.id)).await.unwrap();
            assert_eq!(moves.len() as u64, run.version + 1);
            assert_eq!(effects.len() as u64, run.version);
        }
        store.close().await;
    }
}

#[tokio::test]
async fn d12_a_database_of_a_newer_or_changed_bulkhead_is_refused() {
    for change in [
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (999, 'later', 1, x'00', 0)",
        "UPDATE _sqlx_migrations SET checksum = x'00' WHERE version = 1",
    ] {
        let fixture = Fixture::new().await;
        let path = fixture.root().join("bulkhead.db");
        let mut raw = SqliteConnection::connect(path.to_str().unwrap())
            .await
            .unwrap();
        sqlx::query(change).execute(&mut raw).await.unwrap();
        raw.close().await.unwrap();
        let Fixture { store, dir } = fixture;
        store.close().await;
        drop(store);
        let refused = Store::open(&dir.path().join("data"), Access::Server, MasterKey::File).await;
        assert!(matches!(refused, Err(Error::Migration(_))), "{refused:?}");
    }
}

/// A data directory as version 1 left it: its rows, its sealed secret and its key file still open.
#[tokio::test]
async fn d12_a_data_directory_of_version_1_opens() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data");
    DirBuilder::new().mode(0o700).create(&root).unwrap();
    let database = root.join("bulkhead.db");
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&database)
        .unwrap();
    let mut raw = SqliteConnection::connect(database.to_str().unwrap())
        .await
        .unwrap();
    sqlx::raw_sql(include_str!("../fixtures/v1.sql"))
        .execute(&mut raw)
        .await
        .unwrap();
    raw.close().await.unwrap();
    let master = MasterKey::Given(SecretString::from("a5".repeat(32)));
    let store = Store::open(&root, Access::Server, master).await.unwrap();
    let secret = store.secret(&"TOKEN".parse().unwrap()).await.unwrap();
    assert_eq!(secret.expose_secret(), "ghp_16C7e42F292c6912E7710c83");
    let token = SecretString::from("bht_a-token-of-version-1");
    let token = store.api_token(&token, NOW).await.unwrap().unwrap();
    assert_eq!(
        (token.name.as_str(), token.scopes.as_slice()),
        ("ada", ["read".to_owned()].as_slice())
    );
    let answer: u32 = store.setting("answer").await.unwrap().unwrap();
    assert_eq!(answer, 42);
}

#[tokio::test]
async fn r19_a_backup_is_whole_private_and_useless_without_the_key() {
    let fixture = Fixture::new().await;
    let run = fixture.started().await;
    let secret = SecretString::from("ghp_16C7e42F292c6912E7710c83");
    fixture
        .store
        .set_secret(&"TOKEN".parse().unwrap(), &secret, NOW)
        .await
        .unwrap();
    let copy = fixture.dir.path().join("copy.db");
    fixture.store.backup(&copy).await.unwrap();
    assert_eq!(mode(&copy), 0o600);
    let again = fixture.store.backup(&copy).await;
    assert!(
        matches!(again, Err(Error::File { .. })),
        "an old backup is never replaced"
    );
    let later = fixture.started().await;

    // Restored into a directory of its own, with the key it opens; without, it says what is missing.
    let other = tempfile::tempdir().unwrap();
    let root = other.path().join("data");
    DirBuilder::new().mode(0o700).create(&root).unwrap();
    std::fs::copy(&copy, root.join("bulkhead.db")).unwrap();
    let refused = Store::open(&root, Access::Server, MasterKey::File).await;
    assert!(
        matches!(refused, Err(Error::MasterKeyMissing { .. })),
        "{refused:?}"
    );
    std::fs::copy(fixture.root().join("key"), root.join("key")).unwrap();
    let restored = open(&other, Access::Server).await;
    assert_eq!(restored.run(run.id).await.unwrap(), run);
    assert!(restored.run(later.id).await.is_err());
    let back = restored.secret(&"TOKEN".parse().unwrap()).await.unwrap();
    assert_eq!(back.expose_secret(), secret.expose_secret());
}
