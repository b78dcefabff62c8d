//! `make test`: the checks, then one compilation, then all tests, with nextest's summary at the end.

use std::{process::Command, time::Instant};

use anyhow::Result;

use crate::{docs_links, findings::Findings, lints, supply_chain, tidy, tree::Tree};

type Check = fn(&Tree) -> Result<Findings>;

pub(crate) fn all(tree: &Tree) -> Result<Findings> {
    let mut findings = quick_checks(tree)?;
    findings.extend(timed(tree, "lints", lints::check_tree)?);
    findings.extend(timed(tree, "documentation tests", documentation_tests)?);
    findings.extend(timed(tree, "tests", tests)?);
    Ok(findings)
}

pub(crate) fn quick_checks(tree: &Tree) -> Result<Findings> {
    let checks: [(&str, Check); 4] = [
        ("format", format),
        ("tidy", tidy::check_tree),
        ("documentation links", docs_links::check_tree),
        ("supply chain", supply_chain::check_tree),
    ];
    let mut findings = Findings::default();
    for (name, check) in checks {
        findings.extend(timed(tree, name, check)?);
    }
    Ok(findings)
}

#[expect(clippy::print_stderr, reason = "progress for the person who called")]
fn timed(tree: &Tree, name: &str, check: Check) -> Result<Findings> {
    let start = Instant::now();
    eprintln!("── {name}");
    let findings = check(tree)?;
    let verdict = if findings.is_empty() {
        "good"
    } else {
        "NOT GOOD"
    };
    eprintln!(
        "── {name}: {verdict}, {:.1} s",
        start.elapsed().as_secs_f64()
    );
    Ok(findings)
}

pub(crate) fn format(tree: &Tree) -> Result<Findings> {
    let formatted = tree.run(Command::new("cargo").args(["fmt", "--all", "--check"]))?;
    let mut findings = Findings::default();
    if !formatted {
        findings.add("format", "workspace", "is not formatted: run `make fmt`");
    }
    Ok(findings)
}

fn tests(tree: &Tree) -> Result<Findings> {
    let mut nextest = Command::new("cargo");
    nextest.args(["nextest", "run", "--locked", "--no-fail-fast"]);
    if std::env::var_os("CI").is_some() {
        nextest.args(["--profile", "ci"]);
    }
    as_root(tree, &mut nextest)?;
    let mut findings = Findings::default();
    if !tree.run(&mut nextest)? {
        findings.add("tests", "workspace", "some tests failed: see above");
    }
    Ok(findings)
}

/// The sandbox's limits need root (or a delegated cgroup): another user's tests are started through sudo,
/// while everything is still compiled, and owned, by that user.
fn as_root(tree: &Tree, nextest: &mut Command) -> Result<()> {
    if tree.output(Command::new("id").arg("-u"))?.trim() == "0" {
        return Ok(());
    }
    let path = std::env::var("PATH").unwrap_or_default();
    for target in ["X86_64", "AARCH64"] {
        nextest.env(
            format!("CARGO_TARGET_{target}_UNKNOWN_LINUX_GNU_RUNNER"),
            format!("sudo -E env PATH={path}"),
        );
    }
    Ok(())
}

/// nextest does not run the examples in documentation comments; where there are none, nothing is built.
fn documentation_tests(tree: &Tree) -> Result<Findings> {
    let mut findings = Findings::default();
    if !tree
        .files()
        .any(|(path, text)| path.ends_with(".rs") && has_example(text))
    {
        return Ok(findings);
    }
    if !tree.run(Command::new("cargo").args(["test", "--doc", "--locked"]))? {
        findings.add("documentation tests", "workspace", "some failed: see above");
    }
    Ok(findings)
}

/// Whether a documentation comment holds a code block that rustdoc would compile.
fn has_example(text: &str) -> bool {
    let mut inside = false;
    text.lines()
        .filter_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("///")
                .or_else(|| line.strip_prefix("//!"))
        })
        .filter_map(|doc| doc.trim_start().strip_prefix("```"))
        .any(|language| {
            inside = !inside;
            inside
                && matches!(
                    language.trim(),
                    "" | "rust" | "no_run" | "should_panic" | "compile_fail"
                )
        })
}

#[cfg(test)]
mod tests {
    use super::has_example;

    #[test]
    fn only_rust_blocks_in_documentation_are_examples() {
        assert!(has_example("/// ```\n/// f();\n/// ```"));
        assert!(has_example("//! ```no_run\n//! f();\n//! ```"));
        assert!(!has_example("/// ```text\n/// f();\n/// ```"));
        assert!(!has_example("let fence = \"```\";"));
    }
}
