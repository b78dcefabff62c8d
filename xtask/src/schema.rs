//! Writes the generated files under `docs/` anew.
//!
//! Each crate that publishes one has a test whose name ends in `_drift`: it compares the committed file
//! with what the code says now, and writes it instead where `UPDATE_GENERATED=1` is set.

use std::process::Command;

use anyhow::Result;

use crate::{findings::Findings, tree::Tree};

pub(crate) fn write(tree: &Tree) -> Result<Findings> {
    let mut nextest = Command::new("cargo");
    nextest
        .args([
            "nextest",
            "run",
            "--locked",
            "--no-fail-fast",
            "-E",
            "test(/_drift$/)",
        ])
        .env("UPDATE_GENERATED", "1");
    let mut findings = Findings::default();
    if !tree.run(&mut nextest)? {
        findings.add("schema", "docs/", "a generated file could not be written");
    }
    Ok(findings)
}
