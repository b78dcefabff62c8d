//! What we build on: licences, sources, banned crates, crates that must not come twice, and how many
//! crates there are at all, on Linux.
//!
//! `cargo metadata` tells a crate's licence and source, but lists optional crates that no build contains;
//! `cargo tree` tells which ones a build does contain.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

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
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// None for the crates of this workspace.
    source: Option<String>,
}

pub(crate) fn check_tree(tree: &Tree) -> Result<Findings> {
    let platform = "x86_64-unknown-linux-gnu";
    let metadata = tree.output(Command::new("cargo").args([
        "metadata",
        "--format-version=1",
        "--locked",
        "--filter-platform",
        platform,
    ]))?;
    let built = tree.output(Command::new("cargo").args([
        "tree",
        "--workspace",
        "--locked",
        "--prefix=none",
        "--format={p}",
        "--target",
        platform,
    ]))?;
    check(&metadata, &built)
}

fn check(metadata: &str, built: &str) -> Result<Findings> {
    let metadata: Metadata = serde_json::from_str(metadata).context("reading cargo metadata")?;
    let built = names_and_versions(built);
    let used: Vec<&Package> = metadata
        .packages
        .iter()
        .filter(|package| package.source.is_some() && built.contains(&package.name_and_version()))
        .collect();
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

/// The first two words of each line of `cargo tree`: `serde v1.0.0 (proc-macro)`.
fn names_and_versions(built: &str) -> BTreeSet<String> {
    built
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some(format!(
                "{} {}",
                words.next()?,
                words.next()?.strip_prefix('v')?
            ))
        })
        .collect()
}

impl Package {
    fn name_and_version(&self) -> String {
        format!("{} {}", self.name, self.version)
    }
}

fn check_package(package: &Package, findings: &mut Findings) {
    let place = package.name_and_version();
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
        json!({"name": name, "version": version, "license": licence, "source": CRATES_IO})
    }

    fn found(packages: &[Value]) -> Vec<String> {
        let line = |p: &Value| {
            format!(
                "{} v{} (proc-macro)\n",
                p["name"].as_str().unwrap(),
                p["version"].as_str().unwrap()
            )
        };
        let built: String = packages.iter().map(line).collect();
        check(&json!({"packages": packages}).to_string(), &built)
            .unwrap()
            .texts()
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
        let metadata = json!({"packages": [package("native-tls", "0.2.0", "MIT")]});
        assert_eq!(
            check(&metadata.to_string(), "serde v1.0.0\n")
                .unwrap()
                .texts(),
            [""; 0]
        );
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
