//! `bulkhead plugin`: what an author of a plugin does.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const EXAMPLES: &str = "\
Examples:
  bulkhead plugin check examples/plugins/weather
  bulkhead plugin run examples/plugins/weather --entry tools.forecast --input input.json
  echo '{\"city\": \"Bern\"}' | bulkhead plugin run examples/plugins/weather --entry tools.forecast --input -
  bulkhead plugin test examples/plugins/weather

A plugin is a directory with plugin.json and one module; docs/plugins tells about it. These commands start the very
service that runs plugins for the platform, in a directory of their own, with the same walls and limits, and play the
platform: settings and secrets come from files, host.fetch is real, and everything else of `host` answers what
--replies (or a test) has written for it, else `unavailable`.

Exit codes: 0 done · 1 the plugin is at fault, or a test failed · 2 wrong usage, manifest or file · 3 refused, a boundary
could not be built.";

/// Plugins: check, run and test one on this machine
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Plugin {
    #[command(subcommand)]
    pub(crate) command: PluginCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// Check the manifest, load the module, and compare what it exports with what the manifest promises
    ///
    /// Says what whoever installs the plugin will see: its permissions, and the hosts that it may reach as they are
    /// compared.
    Check(PluginCheck),
    /// Call one handler, and say what it gave, logged and used
    Run(PluginRun),
    /// Run the cases in the plugin's `tests` directory
    Test(PluginTest),
}

#[derive(Debug, Args)]
pub(crate) struct PluginCheck {
    #[command(flatten)]
    pub(crate) plugin: PluginPlace,
}

#[derive(Debug, Args)]
pub(crate) struct PluginRun {
    #[command(flatten)]
    pub(crate) plugin: PluginPlace,
    /// The handler, by the way from the module's exports: `tools.forecast`
    #[arg(long, value_name = "WAY")]
    pub(crate) entry: String,
    /// A file with the handler's argument as JSON; `-` is standard input [default: an empty object]
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// A JSON file with the values of secrets, by name. Others must not be able to read it
    #[arg(long, value_name = "FILE")]
    pub(crate) secrets: Option<PathBuf>,
    /// A JSON file with replies to calls of `host`, as tests have them; the first that fits is given
    #[arg(long, value_name = "FILE", conflicts_with = "service")]
    pub(crate) replies: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PluginTest {
    #[command(flatten)]
    pub(crate) plugin: PluginPlace,
    /// Only cases whose file's name has this in it
    #[arg(long, value_name = "PART")]
    pub(crate) only: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PluginPlace {
    /// The directory with plugin.json
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// A JSON file with settings, by name
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
    /// A host that may be in a private network, where a `hosts` setting names it too
    #[arg(long, value_name = "HOST", conflicts_with = "service")]
    pub(crate) allow_private: Vec<String>,
    /// Another service than one of the command's own
    #[arg(long, value_name = "unix:PATH", value_parser = socket)]
    pub(crate) service: Option<PathBuf>,
}

fn socket(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix:").filter(|path| !path.is_empty());
    path.map(PathBuf::from)
        .ok_or_else(|| "expected unix:PATH, the service's socket".to_owned())
}
