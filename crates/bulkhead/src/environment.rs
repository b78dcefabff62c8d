//! The environment, read once at the start, and the only place that reads it.
//!
//! Credentials come in variables, because that is where people have them. A variable stays readable in
//! `/proc/PID/environ` for as long as the process lives, and unsetting it does not change that. So a process
//! that may hold credentials replaces itself by a fresh copy with none but the harmless variables; the
//! others reach the copy through a memory file that it empties after reading. From then on it is not
//! dumpable: no other process of the same user can read its environment or its memory (H7, case 31).

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::File,
    io::{Read as _, Write as _},
    os::{
        fd::AsRawFd as _,
        unix::{ffi::OsStrExt as _, process::CommandExt as _},
    },
    path::PathBuf,
    process::Command,
};

use anyhow::{Context as _, Result};
use rustix::{
    fs::{MemfdFlags, memfd_create},
    process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit},
};
use secrecy::SecretString;
use zeroize::Zeroizing;

/// Tells the fresh copy which descriptor holds the other variables. The number is no secret.
const HANDOVER: &str = "BULKHEAD_HANDOVER_FD";
/// What a process may keep in its environment: where things are and how to show them.
const HARMLESS: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TERM",
    "COLORTERM",
    "COLUMNS",
    "NO_COLOR",
    "TZ",
    "TMPDIR",
    "RUST_BACKTRACE",
    HANDOVER,
];
const HARMLESS_PREFIXES: &[&str] = &["LC_", "XDG_", "BULKHEAD_"];
/// Ours, and no business of a process listing.
const OUR_SECRETS: &[&str] = &[
    "BULKHEAD_TOKEN",
    "BULKHEAD_RUNNER_TOKEN",
    "BULKHEAD_MASTER_KEY",
    "BULKHEAD_NEW_MASTER_KEY",
];

/// What the process was given, with everything that could be a credential out of the kernel's view.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    taken: BTreeMap<String, SecretString>,
}

impl Environment {
    /// The value of a variable that was taken out of the environment: a credential, if somebody set it.
    pub(crate) fn secret(&self, name: &str) -> Option<&SecretString> {
        self.taken.get(name)
    }
}

/// Takes credentials out of this process's environment; where there are variables that might be some, it
/// returns only in the fresh copy.
pub(crate) fn take() -> Result<Environment> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .context("making the process not dumpable")?;
    if let Some(descriptor) = std::env::var_os(HANDOVER) {
        return receive(&descriptor);
    }
    let taken: Vec<_> = std::env::vars_os()
        .filter(|(name, _)| !is_harmless(name))
        .collect();
    if taken.is_empty() {
        return Ok(Environment::default());
    }
    hand_over(&taken)
}

/// No other process of this user can read this one's memory or environment from here on.
pub(crate) fn hide() -> Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("making the process not dumpable")
}

/// As many open files as this process may have, up to what it can need. Each connection that a sandbox opens to its door or to
/// the phase gateway is one here, and the usual 1024 are fewer than four hostile sandboxes hold. Where it cannot be raised,
/// the limit stays what it is.
pub(crate) fn raise_open_files() {
    const ENOUGH: u64 = 65_536;
    let known = getrlimit(Resource::Nofile);
    let wanted = known.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if known.current.is_some_and(|current| current < wanted) {
        let limit = Rlimit {
            current: Some(wanted),
            maximum: known.maximum,
        };
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

fn is_harmless(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else {
        return false;
    };
    let listed = HARMLESS.contains(&name)
        || HARMLESS_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix));
    listed && !OUR_SECRETS.contains(&name)
}

/// Replaces this process by a copy of itself; returns only where that fails.
fn hand_over(taken: &[(OsString, OsString)]) -> Result<Environment> {
    // Without close-on-exec: the copy is to have it.
    let memory =
        memfd_create("bulkhead-handover", MemfdFlags::empty()).context("making a memory file")?;
    let mut memory = File::from(memory);
    memory
        .write_all(&encode(taken))
        .context("writing to a memory file")?;
    let harmless = std::env::vars_os().filter(|(name, _)| is_harmless(name));
    let mut arguments = std::env::args_os();
    let mut copy = Command::new("/proc/self/exe");
    copy.arg0(arguments.next().unwrap_or_else(|| "bulkhead".into()))
        .args(arguments)
        .env_clear()
        .envs(harmless)
        .env(HANDOVER, memory.as_raw_fd().to_string());
    Err(copy.exec()).context("replacing the process by one without credentials in its environment")
}

/// Opening the descriptor's link gives a description of our own; emptying the file leaves nothing in the
/// inherited descriptor, whoever else may inherit it from us.
fn receive(descriptor: &OsStr) -> Result<Environment> {
    let path = PathBuf::from("/proc/self/fd").join(descriptor);
    let mut bytes = Zeroizing::new(Vec::new());
    if let Ok(mut memory) = File::options().read(true).write(true).open(path) {
        memory
            .read_to_end(&mut bytes)
            .context("reading what was handed over")?;
        memory.set_len(0).context("emptying what was handed over")?;
    }
    Ok(Environment {
        taken: decode(&bytes),
    })
}

/// The kernel's own form: `NAME=value` with a NUL after each.
fn encode(variables: &[(OsString, OsString)]) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(Vec::new());
    for (name, value) in variables {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
    }
    bytes
}

/// What is not UTF-8 is no credential that any of our protocols could carry.
fn decode(bytes: &[u8]) -> BTreeMap<String, SecretString> {
    bytes
        .split(|byte| *byte == 0)
        .filter_map(|entry| std::str::from_utf8(entry).ok()?.split_once('='))
        .map(|(name, value)| (name.to_owned(), SecretString::from(value)))
        .collect()
}

/// A variable of the caller's that is to be passed on by name.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// The program's own path, for processes that are to be the same program.
pub(crate) fn own_program() -> Result<PathBuf> {
    std::env::current_exe().context("finding this program's own path")
}

/// Where a person's own files are; none where the account has no home.
pub(crate) fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_absolute())
}

/// A directory as the XDG base directory specification places it.
pub(crate) fn xdg(variable: &str, below_home: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    named.or_else(|| Some(home()?.join(below_home)))
}

#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};

    use secrecy::ExposeSecret as _;

    use super::{decode, encode, is_harmless};

    #[test]
    fn h7_only_harmless_variables_stay() {
        for name in [
            "PATH",
            "HOME",
            "LC_ALL",
            "XDG_DATA_HOME",
            "BULKHEAD_DATA_DIR",
        ] {
            assert!(is_harmless(OsStr::new(name)), "{name}");
        }
        for name in [
            "ANTHROPIC_API_KEY",
            "BULKHEAD_TOKEN",
            "BULKHEAD_RUNNER_TOKEN",
            "BULKHEAD_MASTER_KEY",
            "GITHUB_TOKEN",
            "X",
            "HTTPS_PROXY",
        ] {
            assert!(!is_harmless(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn h7_what_is_handed_over_arrives() {
        let variables =
            [("A", "b=c\nd"), ("EMPTY", "")].map(|(n, v)| (OsString::from(n), OsString::from(v)));
        let arrived = decode(&encode(&variables));
        assert_eq!(arrived.len(), 2);
        assert_eq!(arrived["A"].expose_secret(), "b=c\nd");
        assert_eq!(arrived["EMPTY"].expose_secret(), "");
    }
}
