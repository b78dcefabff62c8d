//! What the repository checks about itself, and what `make` and `.ci/run` call.
//!
//! Each check is a pure function over text or metadata with its own tests, so that it is known to be
//! able to fail; the commands here only read the tree, run the checks and print what they found.

mod docs_links;
mod findings;
mod licence;
mod lints;
mod schema;
mod supply_chain;
mod test_run;
mod tidy;
mod tree;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{findings::Findings, tree::Tree};

#[derive(Parser)]
#[command(about = "Checks and chores of the Bulkhead repository")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Clone, Copy, Subcommand)]
enum Task {
    /// All checks, then all tests: what `make test` and CI run
    Test,
    /// The checks that need no compilation: format, tidy, documentation links, supply chain
    Check,
    /// Is every Rust file formatted?
    FmtCheck,
    /// Licences, sources, banned crates and the number of dependencies
    SupplyChain,
    /// Does every link and anchor in the documentation lead somewhere, and is every page reachable?
    DocsLinks,
    /// The house rules that no compiler knows
    Tidy,
    /// Compile everything; every lint is an error
    Lints,
    /// Write the generated files under docs/ anew
    Schema,
}

#[expect(
    clippy::print_stderr,
    reason = "the one place where this program speaks"
)]
fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(findings) if findings.is_empty() => ExitCode::SUCCESS,
        Ok(findings) => {
            eprint!("{findings}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<Findings> {
    let tree = Tree::open()?;
    match task {
        Task::Test => test_run::all(&tree),
        Task::Check => test_run::quick_checks(&tree),
        Task::FmtCheck => test_run::format(&tree),
        Task::SupplyChain => supply_chain::check_tree(&tree),
        Task::DocsLinks => docs_links::check_tree(&tree),
        Task::Tidy => tidy::check_tree(&tree),
        Task::Lints => lints::check_tree(&tree),
        Task::Schema => schema::write(&tree),
    }
}
