//! What runs inside the sandbox, as data: how the workspace is cloned, and how a phase's work is committed and pushed.
//!
//! Inside, configuration that the agent wrote may run programs: it gains nothing that the agent did not have. The
//! steps are still built so that nothing the agent leaves behind can keep the phase from ending: see the scripts.
//!
//! The token is in the environment only ([`environment`]): in no URL, argument or file.

use bulkhead_model::GitOrder;
use secrecy::{ExposeSecret as _, SecretString};

use crate::names::Oid;

const CLONE: &str = include_str!("clone.sh");
const FINISH: &str = include_str!("finish.sh");

/// One command to run in the sandbox, with [`environment`] and the workspace as its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What it does, for people: "cloning".
    pub doing: &'static str,
    pub argv: Vec<String>,
    /// Added to [`environment`]. Nothing in it is secret.
    pub env: Vec<(String, String)>,
}

impl Step {
    /// Why the step failed, with the remedy, for its exit code.
    pub fn explain(&self, code: i32) -> &'static str {
        match code {
            65 => "the repository could not be fetched from the gateway; the lines above say why",
            66 => {
                "the workspace is not at the commit that the phase starts from: run the phase again"
            }
            67 => "a submodule could not be fetched from the gateway; the lines above say why",
            68 => {
                "the repository keeps files in LFS, and git-lfs is not installed in the sandbox: \
                   install git-lfs on this machine, or name an image that has it"
            }
            69 => "a file that is kept in LFS could not be fetched; the lines above say which",
            70 => {
                "the agent rewrote the branch's history (reset, rebase or amend below the phase's start), \
                   so its work cannot be added on top: run the phase again"
            }
            71 => {
                "a file in the workspace could not be added to a commit; the lines above say which"
            }
            72 => {
                "the agent left a git repository in the workspace under a name that cannot be left out"
            }
            73 => {
                "a file that is kept in LFS could not be sent to the gateway; the lines above say why"
            }
            74 => "the gateway did not take the push; the lines above say why",
            127 => {
                "git is not installed in the sandbox: install git on this machine, or name an image that has it"
            }
            _ => "git failed in the workspace; the lines above say why",
        }
    }
}

/// How a phase's work ended up on the branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    /// The branch's commit after the phase; the start commit where nothing changed.
    pub commit: Oid,
    pub changed: Changed,
    /// Repositories that the agent made in the workspace, which were not committed.
    pub left_out: Vec<String>,
}

/// Whether a phase left anything new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    Pushed,
    Nothing,
}

/// The steps that bring `workspace` to the order's start commit. They mend what a killed attempt left (case 39).
pub fn clone_steps(order: &GitOrder, gateway: &str, workspace: &str) -> Vec<Step> {
    let yes_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let extras = &order.extras;
    let arguments = [
        workspace.to_owned(),
        repository_url(gateway),
        order.branch.clone(),
        order.start.clone(),
        yes_no(extras.submodules),
        yes_no(extras.lfs),
    ];
    vec![Step {
        doing: "cloning",
        argv: shell(CLONE, arguments),
        env: undisturbed(),
    }]
}

/// The steps that commit what the phase changed and push it. [`parse_finish`] reads their standard output.
pub fn finish_steps(order: &GitOrder, gateway: &str, workspace: &str) -> Vec<Step> {
    let lfs = if order.extras.lfs { "yes" } else { "no" };
    let arguments = [
        workspace.to_owned(),
        repository_url(gateway),
        order.branch.clone(),
        order.start.clone(),
        order.commit_message.clone(),
        lfs.to_owned(),
    ];
    let mut env = undisturbed();
    for who in ["AUTHOR", "COMMITTER"] {
        env.push((format!("GIT_{who}_NAME"), order.author_name.clone()));
        env.push((format!("GIT_{who}_EMAIL"), order.author_email.clone()));
    }
    vec![Step {
        doing: "committing and pushing",
        argv: shell(FINISH, arguments),
        env,
    }]
}

/// Reads what the finishing step wrote. `None` where it did not come to its end.
pub fn parse_finish(stdout: &[u8]) -> Option<Finish> {
    let text = String::from_utf8_lossy(stdout);
    let words: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .collect();
    let left_out = words
        .iter()
        .filter(|(word, _)| *word == "left-out")
        .map(|(_, path)| (*path).to_owned());
    let end = words.iter().rev().find_map(|(word, oid)| match *word {
        "pushed" => Some((Changed::Pushed, oid.parse().ok()?)),
        "unchanged" => Some((Changed::Nothing, oid.parse().ok()?)),
        _ => None,
    });
    end.map(|(changed, commit)| Finish {
        commit,
        changed,
        left_out: left_out.collect(),
    })
}

/// The environment in which git works with the gateway: for the steps, and for the agent's own git commands.
/// Values are secret because one of them holds the phase token.
pub fn environment(
    order: &GitOrder,
    gateway: &str,
    token: &SecretString,
) -> Vec<(String, SecretString)> {
    let base = format!("{}/", gateway.trim_end_matches('/'));
    let mut config = vec![
        (
            format!("http.{base}.extraHeader"),
            format!("Authorization: Bearer {}", token.expose_secret()),
        ),
        // The gateway is on the sandbox's own loopback, never behind its proxy.
        (format!("http.{base}.proxy"), String::new()),
        ("safe.directory".to_owned(), "*".to_owned()),
        ("user.name".to_owned(), order.author_name.clone()),
        ("user.email".to_owned(), order.author_email.clone()),
    ];
    if order.extras.lfs {
        config.extend(lfs_config(&repository_url(gateway)));
    }
    let here = |text: &str| text.replace("{gateway}", base.trim_end_matches('/'));
    config.extend(
        order
            .extras
            .config
            .iter()
            .map(|(key, value)| (here(key), here(value))),
    );
    let mut env = vec![
        ("GIT_TERMINAL_PROMPT".to_owned(), SecretString::from("0")),
        (
            "GIT_CONFIG_COUNT".to_owned(),
            SecretString::from(config.len().to_string()),
        ),
    ];
    for (index, (key, value)) in config.into_iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{index}"), SecretString::from(key)));
        env.push((
            format!("GIT_CONFIG_VALUE_{index}"),
            SecretString::from(value),
        ));
    }
    env
}

fn lfs_config(url: &str) -> Vec<(String, String)> {
    [
        ("filter.lfs.clean", "git-lfs clean -- %f"),
        ("filter.lfs.smudge", "git-lfs smudge -- %f"),
        ("filter.lfs.process", "git-lfs filter-process"),
        // A file whose object cannot be had fails the checkout; a pointer is never presented as the file.
        ("filter.lfs.required", "true"),
        ("lfs.locksverify", "false"),
        // The gateway answers an upload when the remote repository has it, and bounds that time itself.
        ("lfs.activitytimeout", "2400"),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    // The repository's own `.lfsconfig` may name another server, which the sandbox cannot reach.
    .chain([("lfs.url".to_owned(), format!("{url}/info/lfs"))])
    .collect()
}

fn repository_url(gateway: &str) -> String {
    format!("{}/git/repo.git", gateway.trim_end_matches('/'))
}

fn shell(script: &str, arguments: impl IntoIterator<Item = String>) -> Vec<String> {
    let head = ["sh", "-c", script, "bulkhead-git"].map(str::to_owned);
    head.into_iter().chain(arguments).collect()
}

/// Configuration that the agent put into its home does not count for the steps.
fn undisturbed() -> Vec<(String, String)> {
    [
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_LITERAL_PATHSPECS", "1"),
        ("LC_ALL", "C"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .to_vec()
}
