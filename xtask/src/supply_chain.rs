//! What we build on: licences, sources, banned crates, crates that must not come twice, and how many
//! crates there are at all, read from `cargo metadata` for Linux.

use std::{collections::BTreeMap, process::Command};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::{findings::Findings, licence, tree::Tree};

const CHECK: &str = "supply-chain";
/// The only place where dependencies come from, in cargo's spelling.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// How many crates of others a Linux build may have: each is code that we answer for.
const BUDGET: usize = 350;

/// Never, in whatever version.
const BANNED: &[(&str, &str)] = &[
    ("openssl-sys", "TLS is rustls with aws-lc-rs"),
    ("native-tls", "TLS is rustls with aws-lc-rs"),
    ("ring", "the one cryptography provider is aws-lc-rs"),
    (
        "serde_yaml",
        "it is not maintained: YAML is read by serde-saphyr",
    ),
    (
        "reqwest",
        "its resolver is not asked for IP literals: egress has its own connector",
    ),
];
/// At most one version of each: two would not understand each other's types, or double the trusted code.
const ONCE: &[&str] = &[
    "rustls",
    "tungstenite",
    "schemars",
    "tokio",
    "hyper",
    "http",
    "axum",
    "sqlx-core",
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    /// None for the crates of this workspace.
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
}

pub(crate) fn check_tree(tree: &Tree) -> Result<Findings> {
    let json = tree.output(Command::new("cargo").args([
        "metadata",
        "--format-version=1",
        "--locked",
        "--filter-platform=x86_64-unknown-linux-gnu",
    ]))?;
    check(&json)
}

fn check(json: &str) -> Result<Findings> {
    let metadata: Metadata = serde_json::from_str(json).context("reading cargo metadata")?;
    let used: Vec<&Package> = foreign(&metadata).collect();
    let mut findings = Findings::default();
    for package in &used {
        check_package(package, &mut findings);
    }
    check_versions(&used, &mut findings);
    if used.len() > BUDGET {
        findings.add(
            CHECK,
            "Cargo.lock",
            format!(
                "{} crates of others on Linux; the budget is {BUDGET}",
                used.len()
            ),
        );
    }
    Ok(findings)
}

/// The crates of others that are part of a build, features considered.
fn foreign(metadata: &Metadata) -> impl Iterator<Item = &Package> {
    metadata.packages.iter().filter(|package| {
        package.source.is_some()
            && metadata
                .resolve
                .nodes
                .iter()
                .any(|node| node.id == package.id)
    })
}

fn check_package(package: &Package, findings: &mut Findings) {
    let place = format!("{} {}", package.name, package.version);
    if package.source.as_deref() != Some(CRATES_IO) {
        let source = package.source.as_deref().unwrap_or_default();
        findings.add(
            CHECK,
            &place,
            format!("comes from {source}, not from crates.io"),
        );
    }
    let expression = package.license.as_deref().unwrap_or_default();
    if !licence::is_allowed(expression) {
        findings.add(
            CHECK,
            &place,
            format!("its licence {expression:?} is not allowed"),
        );
    }
    if let Some((_, why)) = BANNED.iter().find(|(name, _)| *name == package.name) {
        findings.add(CHECK, place, format!("is banned: {why}"));
    }
}

fn check_versions(used: &[&Package], findings: &mut Findings) {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in used {
        versions
            .entry(&package.name)
            .or_default()
            .push(&package.version);
    }
    for name in ONCE {
        let found = versions.get(name).map_or(&[][..], Vec::as_slice);
        if found.len() > 1 {
            findings.add(
                CHECK,
                *name,
                format!("comes in {} versions: {}", found.len(), found.join(", ")),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use serde_json::{Value, json};

    use super::{BUDGET, CRATES_IO, check};

    fn package(name: &str, version: &str, licence: &str) -> Value {
        let id = format!("{name}@{version}");
        json!({"id": id, "name": name, "version": version, "license": licence, "source": CRATES_IO})
    }

    fn found(packages: &[Value]) -> Vec<String> {
        let nodes: Vec<Value> = packages.iter().map(|p| json!({"id": p["id"]})).collect();
        let metadata = json!({"packages": packages, "resolve": {"nodes": nodes}});
        check(&metadata.to_string()).unwrap().texts()
    }

    #[test]
    fn good_crates_pass() {
        assert_eq!(
            found(&[package("serde", "1.0.0", "MIT OR Apache-2.0")]),
            [""; 0]
        );
    }

    #[test]
    fn licence_source_ban_and_second_version_are_each_found() {
        assert_eq!(
            found(&[package("x", "1.0.0", "GPL-3.0")]),
            ["x 1.0.0: its licence \"GPL-3.0\" is not allowed"]
        );
        let mut forked = package("x", "1.0.0", "MIT");
        forked["source"] = json!("git+https://example.com/x");
        assert_eq!(
            found(&[forked]),
            ["x 1.0.0: comes from git+https://example.com/x, not from crates.io"]
        );
        assert_eq!(
            found(&[package("native-tls", "0.2.0", "MIT")]),
            ["native-tls 0.2.0: is banned: TLS is rustls with aws-lc-rs"]
        );
        assert_eq!(
            found(&[
                package("rustls", "0.22.0", "MIT"),
                package("rustls", "0.23.0", "MIT")
            ]),
            ["rustls: comes in 2 versions: 0.22.0, 0.23.0"]
        );
    }

    #[test]
    fn a_crate_that_no_build_uses_does_not_count() {
        let metadata =
            json!({"packages": [package("native-tls", "0.2.0", "MIT")], "resolve": {"nodes": []}});
        assert_eq!(check(&metadata.to_string()).unwrap().texts(), [""; 0]);
    }

    #[test]
    fn the_budget_is_a_limit() {
        let many: Vec<Value> = (0..=BUDGET)
            .map(|n| package(&format!("x{n}"), "1.0.0", "MIT"))
            .collect();
        assert_eq!(found(&many[..BUDGET]), [""; 0]);
        assert_eq!(
            found(&many),
            ["Cargo.lock: 351 crates of others on Linux; the budget is 350"]
        );
    }
}
