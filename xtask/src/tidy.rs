//! House rules that no compiler knows, each with the reason in its finding.

use anyhow::Result;

use crate::{findings::Findings, tree::Tree};

const CHECK: &str = "tidy";
const MAX_LINES: usize = 800;
/// The only places that may lift the ban on `unsafe`: the program that becomes PID 1, the sandbox's system calls, what
/// V8's interface leaves to its callers, the zygote's forks, the hook that lets its escape test make any call, and, in what is never shipped, the step that puts a measured peer into its control group.
const UNSAFE_PLACES: &[&str] = &[
    "crates/init/",
    "crates/sandbox/src/sys.rs",
    "crates/engine/src/raw.rs",
    "crates/zygote/src/sys.rs",
    "crates/zygote/src/probe.rs",
    "bench/src/peers/group.rs",
];
/// Written in two pieces, so that this file does not find itself.
const UNFINISHED: &[&str] = &[
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("#[ig", "nore"),
];
/// How a test says that it is no test but a program that other tests start, or one with a target of its own.
const HELPERS: [&str; 5] = [
    concat!("#[ig", "nore = \"the body of "),
    concat!("#[ig", "nore = \"run by "),
    // `make test-agents` runs these.
    concat!("#[ig", "nore = \"large: `make test-agents`"),
    // Longer variants of tests that run always.
    concat!("#[ig", "nore = \"takes minutes: for outside CI"),
    concat!("#[ig", "nore = \"started by "),
];
/// Ways of reading the environment: only the command line and the programs around the crates do.
const ENVIRONMENT: &[&str] = &["env::var(", "env::var_os(", "env::vars(", "env::vars_os("];

pub(crate) fn check_tree(tree: &Tree) -> Result<Findings> {
    let checkout = tree.root().display().to_string();
    let mut findings = Findings::default();
    for (path, text) in tree.files() {
        check_file(path, text, &checkout, &mut findings);
    }
    Ok(findings)
}

fn check_file(path: &str, text: &str, checkout: &str, findings: &mut Findings) {
    if text.contains(checkout) {
        findings.add(
            CHECK,
            path,
            "names the directory of this checkout: other machines have another",
        );
    }
    if !is_code(path) {
        return;
    }
    if text.lines().count() > MAX_LINES {
        findings.add(
            CHECK,
            path,
            format!("is longer than {MAX_LINES} lines: give it two duties' names"),
        );
    }
    let text_without_helpers = HELPERS
        .iter()
        .fold(text.to_owned(), |text, helper| text.replace(helper, ""));
    for word in UNFINISHED {
        add_words(
            path,
            &text_without_helpers,
            word,
            "is unfinished or switched off",
            findings,
        );
    }
    if path.ends_with(".rs") {
        check_rust(path, text, findings);
    }
}

/// What a program made of other files is judged by those.
fn is_code(path: &str) -> bool {
    if path.starts_with("crates/wire/src/generated/") {
        return false;
    }
    path.ends_with(".rs")
        || path.ends_with(".sh")
        || path.starts_with("scripts/")
        || path.starts_with(".ci/")
}

fn check_rust(path: &str, text: &str, findings: &mut Findings) {
    let is_tests = path.ends_with("/tests.rs");
    if path.contains("/src/") && !is_tests && !starts_with_module_doc(text) {
        findings.add(
            CHECK,
            path,
            "begins without a `//!` that says its purpose and duty",
        );
    }
    if !UNSAFE_PLACES.iter().any(|place| path.starts_with(place)) {
        let lint = concat!("unsafe", "_code");
        add_lines(
            path,
            text,
            lint,
            "lifts the ban on `unsafe` outside its few places",
            findings,
        );
    }
    if is_library(path) {
        for call in ENVIRONMENT {
            add_lines(
                path,
                text,
                call,
                "reads the environment in a library: take it as an argument",
                findings,
            );
        }
    }
    if is_integration_test(path, text) && !cites(text) {
        findings.add(
            CHECK,
            path,
            "has tests that cite no requirement or case (R14, N12, case 17)",
        );
    }
}

fn starts_with_module_doc(text: &str) -> bool {
    text.lines()
        .find(|line| !line.trim().is_empty())
        .is_none_or(|line| line.starts_with("//!"))
}

/// The command line, a container's first process, whose environment is what it hands on, and machines for tests are none.
fn is_library(path: &str) -> bool {
    const PROGRAMS: [&str; 3] = [
        "crates/bulkhead/",
        "crates/init/src/hold/",
        "crates/test-hosts/",
    ];
    path.starts_with("crates/")
        && path.contains("/src/")
        && !PROGRAMS.iter().any(|program| path.starts_with(program))
}

fn is_integration_test(path: &str, text: &str) -> bool {
    path.contains("tests/")
        && !HELPERS.iter().any(|helper| text.contains(helper))
        && (text.contains("#[test]") || text.contains("#[tokio::test"))
}

/// The letters of requirements, decisions and rows.
const FAMILIES: [&str; 13] = [
    "R", "H", "P", "D", "N", "T", "M", "S", "E", "C", "O", "HT", "RL",
];

/// Whether the text names a requirement (`R14`, `H7`, `D5`), a row (`N12`) or a case (`case 17`).
fn cites(text: &str) -> bool {
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    let number =
        |word: &str| (1..=2).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_digit());
    let id = |word: &str| {
        let digits = word.trim_start_matches(|c: char| c.is_ascii_uppercase());
        let letters = &word[..word.len() - digits.len()];
        FAMILIES.contains(&letters) && number(digits)
    };
    let case = |pair: &[&str]| matches!(pair[0], "case" | "cases" | "section") && number(pair[1]);
    words
        .iter()
        .any(|word| id(word) || id(&word.to_uppercase()))
        || words.windows(2).any(case)
}

/// As [`add_lines`], where the word stands alone, and is not a part of an escape's longer row of letters.
fn add_words(path: &str, text: &str, word: &str, why: &str, findings: &mut Findings) {
    let letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let alone = |line: &str| {
        line.match_indices(word).any(|(at, _)| {
            let (before, after) = (&line[..at], &line[at + word.len()..]);
            !(letter(before.chars().next_back())
                || (word.ends_with('X') && letter(after.chars().next())))
        })
    };
    for (index, _) in text.lines().enumerate().filter(|(_, line)| alone(line)) {
        findings.add(
            CHECK,
            format!("{path}:{}", index + 1),
            format!("`{word}` {why}"),
        );
    }
}

fn add_lines(path: &str, text: &str, word: &str, why: &str, findings: &mut Findings) {
    for (index, _) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| line.contains(word))
    {
        findings.add(
            CHECK,
            format!("{path}:{}", index + 1),
            format!("`{word}` {why}"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_LINES, UNFINISHED, check_file, cites};
    use crate::findings::Findings;

    fn found(path: &str, text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check_file(path, text, "/home/her/bulkhead", &mut findings);
        findings.texts()
    }

    #[test]
    fn good_files_pass() {
        assert_eq!(
            found("crates/a/src/lib.rs", "//! Duty.\n\nfn f() {}\n"),
            [""; 0]
        );
        assert_eq!(found("docs/a.md", "Prose about anything."), [""; 0]);
        let made = "fn made() {}\n".repeat(MAX_LINES + 1);
        assert_eq!(found("crates/wire/src/generated/a.rs", &made), [""; 0]);
    }

    #[test]
    fn each_rule_can_fail() {
        let rules = [
            (
                "crates/a/src/lib.rs",
                "//! D.\n".repeat(801),
                "is longer than 800 lines",
            ),
            (
                "crates/a/src/lib.rs",
                "fn f() {}\n".into(),
                "begins without a `//!`",
            ),
            (
                "crates/a/src/lib.rs",
                format!("//! D.\n#![allow({})]", concat!("unsafe", "_code")),
                "lifts the ban",
            ),
            (
                "crates/a/src/lib.rs",
                "//! D.\nlet x = std::env::var(\"X\");".into(),
                "reads the environment",
            ),
            (
                "crates/a/tests/it/b.rs",
                "#[test]\nfn f() {}".into(),
                "cite no requirement",
            ),
            (
                "docs/a.md",
                "see /home/her/bulkhead/x".into(),
                "names the directory of this checkout",
            ),
        ];
        for (path, text, expected) in rules {
            let found = found(path, &text);
            assert!(
                found.iter().any(|line| line.contains(expected)),
                "{expected}: {found:?}"
            );
        }
    }

    #[test]
    fn unfinished_code_is_found_with_its_line() {
        for word in UNFINISHED {
            let found = found("crates/a/src/lib.rs", &format!("//! D.\n{word}"));
            assert_eq!(
                found,
                [format!(
                    "crates/a/src/lib.rs:2: `{word}` is unfinished or switched off"
                )]
            );
        }
    }

    #[test]
    fn a_program_that_tests_start_may_say_so() {
        let text = format!(
            "#[test]\n{}the process that tests start\"]",
            super::HELPERS[0]
        );
        assert_eq!(found("crates/a/tests/it/b.rs", &text), [""; 0]);
    }

    #[test]
    fn the_command_line_may_read_the_environment() {
        assert_eq!(
            found("crates/bulkhead/src/env.rs", "//! D.\nstd::env::var(\"X\")"),
            [""; 0]
        );
        assert_eq!(
            found("crates/init/src/wire.rs", "//! D.\nstd::env::var(\"X\")").len(),
            1
        );
    }

    #[test]
    fn citations_are_recognised() {
        for text in [
            "/// R14: …",
            "fn case_17_kills()",
            "// case 9",
            "fn r4_is_gone()",
            "N12",
            "fn ht11_is_refused()",
        ] {
            assert!(cites(text), "{text}");
        }
        for text in ["fn works()", "R", "a case for", "D100", "XT1", "R14a"] {
            assert!(!cites(text), "{text}");
        }
    }
}
