//! Secrets at rest (R17, D7, case 30): sealed, listed without values, rotated whatever crashes.

use std::os::unix::fs::PermissionsExt as _;

use bulkhead_model::SecretName;
use bulkhead_store::{Access, Error, MasterKey, Store};
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::{Connection as _, SqliteConnection};

use crate::support::{Fixture, NOW, open};

const VALUE: &str = "ghp_16C7e42F292c6912E7710c83";

fn name(name: &str) -> SecretName {
    name.parse().unwrap()
}

fn value(text: &str) -> SecretString {
    SecretString::from(text)
}

async fn read(store: &Store, secret: &str) -> String {
    store
        .secret(&name(secret))
        .await
        .unwrap()
        .expose_secret()
        .to_owned()
}

/// Every byte below the data directory, for searches.
fn on_disk(fixture: &Fixture) -> Vec<u8> {
    let mut bytes = Vec::new();
    for file in std::fs::read_dir(fixture.root()).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            bytes.extend(std::fs::read(path).unwrap());
        }
    }
    bytes
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

#[tokio::test]
async fn r17_secrets_are_set_listed_rotated_and_removed() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    assert_eq!(
        store
            .set_secret(&name("TOKEN"), &value(VALUE), NOW)
            .await
            .unwrap(),
        1
    );
    assert_eq!(read(store, "TOKEN").await, VALUE);
    assert_eq!(
        store
            .rotate_secret(&name("TOKEN"), &value("another-Value-77"), NOW + 1)
            .await
            .unwrap(),
        2
    );
    assert_eq!(read(store, "TOKEN").await, "another-Value-77");
    let listed = store.secrets().await.unwrap();
    assert_eq!(
        (listed.len(), listed[0].version, listed[0].updated_at_ms),
        (1, 2, NOW + 1)
    );
    assert!(!format!("{listed:?}").contains("another-Value-77"));
    let unknown = store
        .rotate_secret(&name("OTHER"), &value(VALUE), NOW)
        .await;
    assert!(matches!(unknown, Err(Error::NotFound { .. })));
    store.remove_secret(&name("TOKEN")).await.unwrap();
    assert!(matches!(
        store.secret(&name("TOKEN")).await,
        Err(Error::NotFound { .. })
    ));
    assert!(matches!(
        store.remove_secret(&name("TOKEN")).await,
        Err(Error::NotFound { .. })
    ));
}

#[tokio::test]
async fn r17_values_are_nowhere_on_disk_in_the_clear_also_after_rotation_and_removal() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store
        .set_secret(&name("A"), &value(VALUE), NOW)
        .await
        .unwrap();
    store
        .set_secret(&name("B"), &value("line one\nline two éß🔑"), NOW)
        .await
        .unwrap();
    assert!(!contains(&on_disk(&fixture), VALUE.as_bytes()));
    store
        .rotate_secret(&name("A"), &value("another-Value-77"), NOW)
        .await
        .unwrap();
    store.rotate_master_key(MasterKey::File, NOW).await.unwrap();
    store.remove_secret(&name("A")).await.unwrap();
    let fixture = fixture.reopen().await;
    let bytes = on_disk(&fixture);
    for clear in [VALUE, "another-Value-77", "line two"] {
        assert!(!contains(&bytes, clear.as_bytes()), "{clear}");
    }
    assert_eq!(read(&fixture.store, "B").await, "line one\nline two éß🔑");
}

#[tokio::test]
async fn case_30_a_value_that_cannot_be_masked_is_refused_with_the_reason() {
    let fixture = Fixture::new().await;
    for weak in ["short", "Production", "aaaaaaaaaaaa"] {
        let refused = fixture
            .store
            .set_secret(&name("TOKEN"), &value(weak), NOW)
            .await
            .unwrap_err();
        assert!(matches!(refused, Error::WeakSecret { .. }));
        assert!(!refused.to_string().contains(weak), "{refused}");
    }
    let long = value(&"x1Y2".repeat(20_000));
    let refused = fixture.store.set_secret(&name("TOKEN"), &long, NOW).await;
    assert!(matches!(refused, Err(Error::TooLarge { .. })));
    assert!(fixture.store.secrets().await.unwrap().is_empty());
}

#[tokio::test]
async fn d7_a_row_that_was_moved_renamed_or_changed_does_not_open() {
    let fixture = Fixture::new().await;
    fixture
        .store
        .set_secret(&name("A"), &value(VALUE), NOW)
        .await
        .unwrap();
    fixture
        .store
        .set_secret(&name("B"), &value("another-Value-77"), NOW)
        .await
        .unwrap();
    let path = fixture.root().join("bulkhead.db");
    let mut raw = SqliteConnection::connect(path.to_str().unwrap())
        .await
        .unwrap();
    for tampering in [
        "UPDATE secrets SET name = 'C' WHERE name = 'A'; UPDATE secrets SET name = 'A' WHERE name = 'B'; \
         UPDATE secrets SET name = 'B' WHERE name = 'C'",
        "UPDATE secrets SET version = version + 1",
        "UPDATE secrets SET sealed = sealed || x'00'",
        "UPDATE secrets SET sealed_key = zeroblob(60)",
        "UPDATE secrets SET sealed = x'00'",
    ] {
        sqlx::raw_sql("BEGIN").execute(&mut raw).await.unwrap();
        sqlx::raw_sql(tampering).execute(&mut raw).await.unwrap();
        sqlx::raw_sql("COMMIT").execute(&mut raw).await.unwrap();
        for secret in ["A", "B"] {
            let opened = fixture.store.secret(&name(secret)).await;
            assert!(
                matches!(opened, Err(Error::Unseal { .. })),
                "{tampering}: {opened:?}"
            );
        }
    }
}

#[tokio::test]
async fn r17_the_master_key_rotates_and_the_old_one_is_gone() {
    let fixture = Fixture::new().await;
    for n in 0..20 {
        let secret = name(&format!("S{n}"));
        fixture
            .store
            .set_secret(&secret, &value(&format!("{VALUE}{n}")), NOW)
            .await
            .unwrap();
    }
    let old = std::fs::read(fixture.root().join("key")).unwrap();
    let before = fixture.store.secrets().await.unwrap()[0].key_id.clone();
    let (id, count) = fixture
        .store
        .rotate_master_key(MasterKey::File, NOW)
        .await
        .unwrap();
    assert!(id != before && count == 20);
    assert!(
        fixture
            .store
            .secrets()
            .await
            .unwrap()
            .iter()
            .all(|secret| secret.key_id == id)
    );
    let new = std::fs::read_to_string(fixture.root().join("key")).unwrap();
    assert_eq!(keys(&new).len(), 1);
    assert!(!keys(std::str::from_utf8(&old).unwrap()).contains(&keys(&new)[0]));
    let fixture = fixture.reopen().await;
    assert_eq!(read(&fixture.store, "S19").await, format!("{VALUE}19"));
    fixture
        .store
        .set_secret(&name("NEW"), &value(VALUE), NOW)
        .await
        .unwrap();
    // The old key opens nothing any more, and says what is missing.
    std::fs::write(fixture.root().join("key"), old).unwrap();
    let Fixture { store, dir } = fixture;
    store.close().await;
    drop(store);
    let refused = Store::open(&dir.path().join("data"), Access::Server, MasterKey::File)
        .await
        .unwrap_err();
    assert!(
        matches!(refused, Error::MasterKeyMissing { ref wanted } if *wanted == id),
        "{refused}"
    );
}

/// A crash between any two steps: before the commit the file has both keys and the database the old one;
/// after it, the file has both and the database the new one.
#[tokio::test]
async fn r17_a_crash_anywhere_in_a_rotation_leaves_every_secret_readable() {
    let fixture = Fixture::new().await;
    fixture
        .store
        .set_secret(&name("TOKEN"), &value(VALUE), NOW)
        .await
        .unwrap();
    let fixture = fixture.reopen().await;
    let (root, old) = (
        fixture.root(),
        std::fs::read_to_string(fixture.root().join("key")).unwrap(),
    );
    let before = fixture.dir.path().join("before.db");
    fixture.store.backup(&before).await.unwrap();
    fixture
        .store
        .rotate_master_key(MasterKey::File, NOW)
        .await
        .unwrap();
    let new = std::fs::read_to_string(root.join("key")).unwrap();
    let both = format!("{old}{}\n", keys(&new)[0]);
    let Fixture { store, dir } = fixture;
    store.close().await;
    drop(store);

    std::fs::write(root.join("key"), &both).unwrap();
    let store = open(&dir, Access::Server).await;
    assert_eq!(
        read(&store, "TOKEN").await,
        VALUE,
        "crashed after the commit"
    );
    assert_eq!(
        keys(&std::fs::read_to_string(root.join("key")).unwrap()),
        keys(&new)
    );
    store.close().await;
    drop(store);

    std::fs::copy(&before, root.join("bulkhead.db")).unwrap();
    std::fs::write(root.join("key"), &both).unwrap();
    let store = open(&dir, Access::Server).await;
    assert_eq!(
        read(&store, "TOKEN").await,
        VALUE,
        "crashed before the commit"
    );
    assert_eq!(
        keys(&std::fs::read_to_string(root.join("key")).unwrap()),
        keys(&old)
    );
    store.rotate_master_key(MasterKey::File, NOW).await.unwrap();
    assert_eq!(read(&store, "TOKEN").await, VALUE);
}

fn keys(file: &str) -> Vec<String> {
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn r17_a_server_follows_a_rotation_by_another_process() {
    let fixture = Fixture::new().await;
    fixture
        .store
        .set_secret(&name("TOKEN"), &value(VALUE), NOW)
        .await
        .unwrap();
    let tool = open(&fixture.dir, Access::Tool).await;
    tool.rotate_master_key(MasterKey::File, NOW).await.unwrap();
    tool.set_secret(&name("NEW"), &value("another-Value-77"), NOW)
        .await
        .unwrap();
    assert_eq!(read(&fixture.store, "TOKEN").await, VALUE);
    assert_eq!(read(&fixture.store, "NEW").await, "another-Value-77");
    fixture
        .store
        .set_secret(&name("THIRD"), &value(VALUE), NOW)
        .await
        .unwrap();
    assert_eq!(read(&tool, "THIRD").await, VALUE);
}

#[tokio::test]
async fn d7_a_key_that_is_handed_in_leaves_no_key_file_and_rotates_to_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("data");
    let given = |text: &str| MasterKey::Given(value(text));
    let (old, new) = ("11".repeat(32), "22".repeat(32));
    let store = Store::open(&root, Access::Server, given(&old))
        .await
        .unwrap();
    store
        .set_secret(&name("TOKEN"), &value(VALUE), NOW)
        .await
        .unwrap();
    assert!(!root.join("key").exists());
    let refused = store.rotate_master_key(MasterKey::File, NOW).await;
    assert!(matches!(refused, Err(Error::MasterKeyPlace)));
    store.rotate_master_key(given(&new), NOW).await.unwrap();
    assert_eq!(read(&store, "TOKEN").await, VALUE);
    store.close().await;
    drop(store);
    let refused = Store::open(&root, Access::Server, given(&old)).await;
    assert!(matches!(refused, Err(Error::MasterKeyMissing { .. })));
    let refused = Store::open(&root, Access::Server, given("too short")).await;
    assert!(matches!(refused, Err(Error::MasterKeyForm)));
    let store = Store::open(&root, Access::Server, given(&new))
        .await
        .unwrap();
    assert_eq!(read(&store, "TOKEN").await, VALUE);
}

#[tokio::test]
async fn d7_a_key_file_that_others_may_read_is_refused() {
    let fixture = Fixture::new().await;
    let key = fixture.root().join("key");
    assert_eq!(
        std::fs::metadata(&key).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let Fixture { store, dir } = fixture;
    store.close().await;
    drop(store);
    for mode in [0o640, 0o604, 0o660] {
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
        let refused = Store::open(&dir.path().join("data"), Access::Server, MasterKey::File).await;
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Error::NotPrivate { .. }), "{refused}");
        assert!(refused.to_string().contains("chmod 600"), "{refused}");
    }
}
