//! From a session's file to the order that its process gets.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use bulkhead_model::{
    Work,
    session::{PlugConfig, Purpose, SecretSource, SessionFile, SessionWork},
    workflow::{AgentChoice, Known},
};
use bulkhead_session::{
    Launch,
    agents::{self, Overrides},
    wire::{Machine, PromptSource, SessionOrder},
};
use bulkhead_store::{Access, Store};
use secrecy::SecretString;

use super::super::{data_dir, sandbox_dir, secrets::master_key};
use crate::{
    cli::Global,
    config::OperatorConfig,
    environment::{self, Environment},
    failure::Misuse,
};

const MAX_FILE: u64 = 1 << 20;
/// What of a person's environment processes on this machine find: where things are, never a credential.
const LOCAL: &[&str] = &[
    "HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ", "TMPDIR",
];

/// A session's file that was read.
pub(super) struct Wanted {
    pub(super) file: PathBuf,
    read: SessionFile,
}

impl Wanted {
    pub(super) fn read(file: &Path, prompt: Option<String>) -> Result<Self> {
        let mut read = read(file, Purpose::Session)?;
        read.prompt = prompt.or(read.prompt);
        Ok(Self {
            file: file.to_owned(),
            read,
        })
    }

    pub(super) fn order(
        self,
        id: String,
        dir: &Path,
        prompts: PromptSource,
        environment: &Environment,
    ) -> Result<SessionOrder> {
        let read = self.read;
        Ok(SessionOrder {
            id,
            name: read.name,
            dir: dir.to_owned(),
            base: base(&self.file)?,
            work: work(read.work, read.prompt, prompts)?,
            plugs: read.plugs,
            idle_ms: read.idle_ms,
            timeout_ms: read.timeout_ms,
            max_turns: read.turns,
            max_cost_usd_milli: read.cost_micro_usd.map(|micro| micro.div_ceil(1_000)),
            local_env: local_env(),
            ssh_env: ssh_env(environment),
            prompts,
            resume: None,
        })
    }
}

/// Reads a session's file, or only its hosts.
pub(crate) fn read(file: &Path, purpose: Purpose) -> Result<SessionFile> {
    let size = std::fs::metadata(file).map(|found| found.len());
    let name = file.display().to_string();
    let bytes = match size {
        Ok(size) if size > MAX_FILE => {
            return Err(Misuse::usage(format!("{name} is too large")).into());
        }
        Ok(_) => std::fs::read(file).with_context(|| format!("reading {name}"))?,
        Err(error) => return Err(Misuse::usage(format!("{name}: {error}")).into()),
    };
    SessionFile::read_bytes(&name, &bytes, &Known::default(), purpose)
        .map_err(|error| Misuse::usage(error.to_string()).into())
}

/// Where relative paths of the file start.
pub(crate) fn base(file: &Path) -> Result<PathBuf> {
    let file = file
        .canonicalize()
        .with_context(|| format!("finding {}", file.display()))?;
    Ok(file
        .parent()
        .map_or_else(|| PathBuf::from("/"), Path::to_owned))
}

fn work(work: Option<SessionWork>, prompt: Option<String>, prompts: PromptSource) -> Result<Work> {
    match work {
        Some(SessionWork::Agent(choice)) => {
            if prompt.is_none() && prompts == PromptSource::None {
                let what = "nothing is said to the agent".to_owned();
                let hint =
                    "give --prompt TEXT, write `prompt` into the file, or start it on a terminal";
                return Err(Misuse::usage_hint(what, hint).into());
            }
            Ok(Work::Agent {
                agent: agent(choice)?,
                prompt: prompt.unwrap_or_default(),
            })
        }
        Some(SessionWork::Command(run)) => Ok(Work::Command { run }),
        None => Err(Misuse::usage("the session names neither `agent` nor `run`").into()),
    }
}

/// The agent without the phase gateway's part: a session's agent reaches its model with what the session gives it.
fn agent(choice: AgentChoice) -> Result<bulkhead_model::AgentSpec> {
    let overrides = Overrides {
        command: choice.command,
        protocol: choice.protocol,
        args: vec![],
        model: choice.model,
        upstream: None,
        env: choice.env,
    };
    let own = overrides.command.is_some();
    let ready = agents::READY.iter().any(|ready| ready.name == choice.name);
    let name = if own && !ready {
        "command"
    } else {
        &choice.name
    };
    let resolved =
        agents::resolve(name, &overrides).map_err(|error| Misuse::usage(error.to_string()))?;
    let mut spec = resolved.spec;
    spec.name = choice.name;
    Ok(spec)
}

pub(crate) fn local_env() -> BTreeMap<String, String> {
    let known = LOCAL.iter().filter_map(|name| {
        let value = environment::variable(name)?;
        Some(((*name).to_owned(), value.into_string().ok()?))
    });
    known.collect()
}

/// The person's ssh agent, for `ssh` alone.
pub(crate) fn ssh_env(environment: &Environment) -> BTreeMap<String, String> {
    use secrecy::ExposeSecret as _;
    let socket = environment.secret("SSH_AUTH_SOCK");
    let socket = socket.map(|socket| socket.expose_secret().to_owned());
    let pair = socket.map(|socket| ("SSH_AUTH_SOCK".to_owned(), socket));
    pair.into_iter().collect()
}

pub(crate) fn machine(global: &Global, operator: &OperatorConfig) -> Result<Machine> {
    Ok(Machine {
        extra_ca_pem: operator.ca_pem()?,
        proxy: operator.proxy_secret(),
        allow_private: operator.allow_private.clone(),
        ..Machine::new(sandbox_dir(&data_dir(global)?))
    })
}

/// The program that is the session's process: the one that runs scripts, where the session has some.
pub(super) fn launch(order: &SessionOrder) -> Result<Launch> {
    let program = environment::own_program()?;
    let scripts = |plug: &PlugConfig| matches!(plug, PlugConfig::Script(_));
    let args = vec!["session-worker".into()];
    if !order.plugs.iter().any(scripts) {
        return Ok(Launch { program, args });
    }
    let beside = program.with_file_name("bulkhead-js");
    if !beside.is_file() {
        let what = format!(
            "{} is not there, and this session has script plugs",
            beside.display()
        );
        return Err(Misuse::usage_hint(what, "install `bulkhead-js` beside `bulkhead`").into());
    }
    Ok(Launch {
        program: beside,
        args,
    })
}

/// The values of the secrets that the session declares; no other is looked at.
pub(super) async fn secrets(
    order: &SessionOrder,
    global: &Global,
    environment: &Environment,
) -> Result<BTreeMap<String, SecretString>> {
    let mut values = BTreeMap::new();
    let mut store = None;
    let declared = order.plugs.iter().filter_map(|plug| match plug {
        PlugConfig::Secrets(secrets) => Some(secrets),
        _ => None,
    });
    for secret in declared.flatten() {
        let value = match &secret.source {
            SecretSource::Env(name) => from_env(name, environment)?,
            SecretSource::File(path) => from_file(&order.base.join(path))?,
            SecretSource::Store(name) => {
                if store.is_none() {
                    let dir = data_dir(global)?;
                    store = Some(Store::open(&dir, Access::Tool, master_key(environment)).await?);
                }
                let name = name
                    .parse()
                    .map_err(|error: bulkhead_model::ids::InvalidId| {
                        Misuse::usage(error.to_string())
                    })?;
                match &store {
                    Some(store) => store.secret(&name).await?,
                    None => continue,
                }
            }
        };
        values.insert(secret.name.clone(), value);
    }
    if let Some(store) = store {
        store.close().await;
    }
    Ok(values)
}

fn from_env(name: &str, environment: &Environment) -> Result<SecretString> {
    let taken = environment.secret(name).cloned();
    let plain = || {
        Some(SecretString::from(
            environment::variable(name)?.into_string().ok()?,
        ))
    };
    taken.or_else(plain).ok_or_else(|| {
        let what = format!("the variable {name} is not set");
        Misuse::usage_hint(what, "the session's file names it as the place of a secret").into()
    })
}

fn from_file(path: &Path) -> Result<SecretString> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("reading the secret in {}", path.display()))?;
    Ok(text.trim_end_matches(['\r', '\n']).into())
}
