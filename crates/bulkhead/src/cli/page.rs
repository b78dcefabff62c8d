//! `docs/cli.md`, made from the command line itself and tested for drift.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use super::Cli;

const INTRODUCTION: &str = "\
# The command line

Made from the program's own help (`make docs`); `bulkhead COMMAND --help` says the same.

";

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut root = Cli::command().term_width(100);
    root.build();
    section(&mut page, &mut root);
    page
}

fn section(page: &mut String, command: &mut Command) {
    let name = command.get_bin_name().unwrap_or("bulkhead").to_owned();
    let help = command.render_long_help().to_string();
    let _ = write!(page, "## {name}\n\n```text\n");
    for line in help.lines() {
        let _ = writeln!(page, "{}", line.trim_end());
    }
    page.push_str("```\n\n");
    for below in command
        .get_subcommands_mut()
        .filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        section(page, below);
    }
}

#[test]
fn section_6_cli_page_drift() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    let page = format!("{}\n", page().trim_end());
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(path, &page).expect("writing docs/cli.md");
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == page,
        "docs/cli.md is not what the program says: run `make docs`"
    );
}
