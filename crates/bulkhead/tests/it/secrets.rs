//! R17 from the command line: values come from standard input, names are listed, values never are.

use crate::program::World;

const VALUE: &str = "correct-horse-battery-staple-17";

#[test]
fn r17_a_secret_is_set_listed_rotated_and_removed() {
    let world = World::new();
    let set = world
        .run_with_input(
            &["secrets", "set", "NPM_TOKEN", "--json"],
            &format!("{VALUE}\n"),
        )
        .expect(0);
    assert_eq!(set.json()["version"], 1);
    world
        .run_with_input(&["secrets", "rotate", "NPM_TOKEN"], &format!("{VALUE}-new"))
        .expect(0);
    let listed = world.run(&["secrets", "list", "--json"]).expect(0);
    assert_eq!(listed.json()["secrets"][0]["name"], "NPM_TOKEN");
    assert_eq!(listed.json()["secrets"][0]["version"], 2);
    assert!(!listed.stdout.contains(VALUE));
    world.run(&["secrets", "remove", "NPM_TOKEN"]).expect(0);
    assert_eq!(
        world.run(&["secrets", "list", "--json"]).expect(0).json()["secrets"],
        serde_json::json!([])
    );
}

#[test]
fn r17_what_cannot_be_a_secret_is_refused_with_2() {
    let world = World::new();
    world
        .run_with_input(&["secrets", "set", "lower-case"], VALUE)
        .expect(2);
    world
        .run_with_input(&["secrets", "set", "SHORT"], "abc")
        .expect(2);
    world
        .run_with_input(&["secrets", "rotate", "NOT_THERE"], VALUE)
        .expect(2);
    world.run(&["secrets", "remove", "NOT_THERE"]).expect(2);
}

#[test]
fn d7_a_value_lies_nowhere_in_the_clear() {
    let world = World::new();
    world
        .run_with_input(&["secrets", "set", "NPM_TOKEN"], VALUE)
        .expect(0);
    let key_before = std::fs::read(world.data_dir().join("key")).unwrap();
    let rotated = world.run(&["admin", "rotate-key", "--json"]).expect(0);
    assert_eq!(rotated.json()["secrets"], 1);
    assert_ne!(
        std::fs::read(world.data_dir().join("key")).unwrap(),
        key_before
    );
    world.run(&["admin", "backup", "copy.db"]).expect(0);
    let mut looked_at = 0;
    for dir in [world.data_dir(), world.path().to_owned()] {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                let bytes = std::fs::read(entry.path()).unwrap();
                assert!(
                    !bytes.windows(VALUE.len()).any(|w| w == VALUE.as_bytes()),
                    "{:?}",
                    entry.path()
                );
                looked_at += 1;
            }
        }
    }
    assert!(
        looked_at >= 3,
        "the data directory is not where it was looked for"
    );
    let overwriting = world.run(&["admin", "backup", "copy.db"]);
    assert_ne!(overwriting.code, 0, "an old backup is never replaced");
}

#[test]
fn r19_garbage_collection_says_what_it_removed_and_a_dry_run_removes_nothing() {
    let world = World::new();
    world
        .run_with_input(&["secrets", "set", "NPM_TOKEN"], VALUE)
        .expect(0);
    let orphan = world.data_dir().join("artifacts").join("orphan.tmp");
    std::fs::write(&orphan, "lost").unwrap();
    let dry = world
        .run(&["admin", "gc", "--dry-run", "--json"])
        .expect(0)
        .json();
    assert_eq!(dry["dry_run"], true);
    assert!(orphan.exists());
    let real = world.run(&["admin", "gc", "--json"]).expect(0).json();
    assert_eq!(real["dry_run"], false);
    assert_eq!(real["removed"], serde_json::json!([]));
    if !orphan.exists() {
        let said = real["orphans"].to_string();
        assert!(
            said.contains("orphan.tmp"),
            "removed without a word: {said}"
        );
    }
}
