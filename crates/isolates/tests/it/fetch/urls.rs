//! The URLs that the crate `url` tests itself with, through the decision: nothing panics, and nothing is let through that
//! is not declared.

use std::{fs, path::PathBuf};

use bulkhead_egress::{Scheme, Target};
use bulkhead_isolates::call_error::Code;
use bulkhead_test_isolates::net::Names;
use serde_json::{Value, json};
use url::Url;

use super::World;

/// Of those that are tried where the crate's source is not on this machine.
const SAMPLE: &[&str] = &[
    "http://example\t.\norg",
    "http://user:pass@foo:21/bar;par?b#c",
    "https:foo.com",
    "http:\\\\x:c\\foo",
    "http://f:00000000000000/c",
    "http://f:fifty-two/c",
    "http://[1::2]:3:4",
    "http://2001::1",
    "http://www.google.com/foo?bar=baz# \u{bb}",
    "http://ExAmPlE.CoM",
    "http://GOO\u{200b}\u{2060}\u{feff}goo.com",
    "http://\u{ff05}\u{ff14}\u{ff11}.com",
    "http://%30%78%63%30%2e%30%32%35%30.01",
    "http://192.168.0.257",
    "http://[google.com]",
    "http://\u{1f4a9}:foo@example.com",
    "https://x x:12",
    "file:///C|/m/",
    "http://a.b.c.xn--pokxncvks/",
    "http://0x7f.1/test",
    "http://1.2.0x.3",
    "https://xn--/",
    "http://!\"$&'()*+,-.;=_`{}~/",
    "https://0.0.0.0x100000000/test",
    "wss://x:0/",
    "https://example.com%80/",
    "https://\u{ad}/",
    "https://faß.ExAmPlE/",
    "non-special://:80/test",
    "blob:https://example.com:443/",
];

/// The inputs of the crate's own table, each with its base.
fn table() -> Option<Vec<(String, Option<String>)>> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    let registries = fs::read_dir(home.join("registry/src")).ok()?;
    let crates = registries
        .flatten()
        .filter_map(|entry| fs::read_dir(entry.path()).ok())
        .flatten()
        .flatten();
    let file = crates
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("url-2"))
        .map(|entry| entry.path().join("tests/urltestdata.json"))
        .find(|path| path.is_file())?;
    let rows: Vec<Value> = serde_json::from_str(&fs::read_to_string(file).ok()?).ok()?;
    let rows = rows.iter().filter_map(|row| {
        let base = row["base"].as_str().map(str::to_owned);
        Some((row["input"].as_str()?.to_owned(), base))
    });
    Some(rows.collect())
}

fn inputs() -> Vec<String> {
    let mut inputs: Vec<_> = SAMPLE.iter().map(|text| (*text).to_owned()).collect();
    for (input, base) in table().unwrap_or_default() {
        let joined = base.and_then(|base| Url::parse(&base).ok()?.join(&input).ok());
        inputs.extend(joined.map(String::from));
        inputs.push(input);
    }
    inputs
}

#[tokio::test]
async fn n1_n13_no_url_of_the_standards_table_is_let_through() {
    let world = World::new(Names::default(), &[], &["declared.bulkhead-test.com"]);
    let inputs = inputs();
    for input in &inputs {
        let error = world.get(input).await.unwrap_err();
        assert!(
            matches!(error.code, Code::Denied | Code::BadRequest),
            "{input:?}: {error}"
        );
    }
    assert!(world.names.asked().is_empty(), "{:?}", world.names.asked());
    assert_eq!(world.permits_asked(), 0);
    assert!(inputs.len() >= SAMPLE.len());
}

/// Where a URL of the table is declared, it is its own host, in one form, that is asked for, and no other.
#[tokio::test]
async fn n3_what_is_declared_is_the_host_that_is_asked_for() {
    let mut reached = 0;
    for input in inputs() {
        let Ok(target) = Target::from_url(&input, &[Scheme::Https]) else {
            continue;
        };
        let world = World::new(Names::default(), &[], &[]);
        let rule = target.to_string();
        let mut world = world;
        if rule.parse::<bulkhead_model::network::EgressRule>().is_err() {
            continue;
        }
        world.rules = vec![rule];
        let error = world.fetch(json!([input])).await.unwrap_err();
        let asked = world.names.asked();
        match error.code {
            Code::Failed => assert_eq!(asked, [target.host().to_string()], "{input:?}"),
            _ => assert!(asked.is_empty(), "{input:?}: {error}"),
        }
        reached += asked.len();
    }
    assert!(reached > 0, "some of them are hosts that can be declared");
}
