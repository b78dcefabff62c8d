//! The operator's configuration: one YAML file, read strictly. Everything in it is optional.
//!
//! It is the operator's word about this machine, never a workflow's or an agent's. Credentials are not written
//! into it: it names the file or the environment variable that holds each.

use std::{
    collections::BTreeMap,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use bulkhead_server::{GitCredential, ModelUpstream, NotifyCommand, NotifyConfig, Submodule};
use bulkhead_store::retention::Policy;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer, de::Error as _};
use url::Url;

use crate::{
    cli::{Global, Millis},
    environment::{self, Environment},
    failure::Misuse,
};

/// Larger than any sensible configuration; a wrong path to a huge file is then an error and not a hang.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OperatorConfig {
    /// Who the commits of phases are by.
    pub(crate) author: Option<Author>,
    /// How many phases run at once; the others queue.
    pub(crate) places: Option<usize>,
    models: BTreeMap<String, Model>,
    git: Vec<Git>,
    /// Repositories that submodules may come from.
    submodules: Vec<Listed>,
    /// Directories outside `/usr` that sandboxes may see, read-only (R6).
    pub(crate) toolchains: Vec<PathBuf>,
    notify: Notify,
    retention: Retention,
    /// The proxy through which everything goes out.
    pub(crate) proxy: Option<Address>,
    /// A certificate authority in PEM, trusted beside the system's, here and in sandboxes.
    pub(crate) ca_file: Option<PathBuf>,
    /// Hosts that phases may reach although their addresses are private, where a workflow allows them too.
    pub(crate) allow_private: Vec<String>,
    /// Names under which the API answers, besides loopback and addresses.
    pub(crate) allowed_hosts: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Author {
    pub(crate) name: String,
    pub(crate) email: String,
}

/// A model API that phases may use; the agent gets a placeholder, and the gateway adds the credential.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    url: Address,
    /// The header that carries the credential.
    #[serde(default = "authorization")]
    header: String,
    /// What stands before the credential in the header, for example `Bearer `.
    #[serde(default)]
    prefix: String,
    credential: Option<Source>,
    /// Whether a private or loopback address is permitted: a model on this machine or network.
    #[serde(default)]
    allow_private: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Git {
    /// Repositories whose URL begins with this.
    url: String,
    username: String,
    password: Source,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    /// As `.gitmodules` has it.
    url: String,
    /// Where it is fetched from; default: the URL itself.
    source: Option<String>,
}

/// A URL, checked when it is read.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Address(pub(crate) Url);

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
            .map(Self)
            .map_err(|error| format!("{text:?} is not a URL: {error}"))
    }
}

/// Where a credential is.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Source {
    Env(String),
    File(PathBuf),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Notify {
    commands: BTreeMap<String, Command>,
    allow_private_webhooks: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Command {
    argv: Vec<String>,
    #[serde(default = "ten_seconds", deserialize_with = "time")]
    time: Duration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Retention {
    #[serde(deserialize_with = "some_days")]
    runs_days: Option<Duration>,
    #[serde(deserialize_with = "some_days")]
    logs_days: Option<Duration>,
}

fn authorization() -> String {
    "authorization".to_owned()
}

const fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    let Millis(millis) = text.parse().map_err(D::Error::custom)?;
    Ok(Duration::from_millis(millis))
}

fn some_days<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let days = u32::deserialize(from)?;
    Ok(Some(Duration::from_secs(u64::from(days) * 24 * 60 * 60)))
}

/// The well-known model APIs, ready where the usual variable holds a key and the file does not say otherwise.
/// (name, base URL, header, prefix, variables in the order in which they are tried)
const WELL_KNOWN: &[(&str, &str, &str, &str, &[&str])] = &[
    (
        "anthropic",
        "https://api.anthropic.com",
        "x-api-key",
        "",
        &["ANTHROPIC_API_KEY"],
    ),
    (
        "openai",
        "https://api.openai.com",
        "authorization",
        "Bearer ",
        &["OPENAI_API_KEY", "CODEX_API_KEY"],
    ),
    (
        "google",
        "https://generativelanguage.googleapis.com",
        "x-goog-api-key",
        "",
        &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
    ),
];

impl OperatorConfig {
    /// The file that was named, or the usual one where it exists, or the defaults.
    pub(crate) fn load(global: &Global) -> Result<Self> {
        let usual =
            || Some(environment::xdg("XDG_CONFIG_HOME", ".config")?.join("bulkhead/config.yaml"));
        match (&global.config, usual()) {
            (Some(named), _) => Self::read(named),
            (None, Some(usual)) if usual.exists() => Self::read(&usual),
            (None, _) => Ok(Self::default()),
        }
    }

    fn read(path: &Path) -> Result<Self> {
        let text = read_small(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                Misuse::usage(format!("there is no configuration file {}", path.display())).into()
            }
            _ => anyhow::Error::from(error)
                .context(format!("reading the configuration {}", path.display())),
        })?;
        Self::parse(&text)
            .map_err(|error| Misuse::usage(format!("{}: {error}", path.display())).into())
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    }

    /// Every model API by name, with its credential.
    pub(crate) fn models(
        &self,
        environment: &Environment,
    ) -> Result<BTreeMap<String, ModelUpstream>> {
        let mut models = BTreeMap::new();
        for (name, url, header, prefix, variables) in WELL_KNOWN {
            let credential = variables
                .iter()
                .find_map(|variable| environment.secret(variable));
            if let (Some(credential), Ok(base_url)) = (credential, url.parse()) {
                let upstream = ModelUpstream {
                    base_url,
                    header: (*header).to_owned(),
                    credential: Some(prefixed(prefix, credential)),
                    allow_private: false,
                };
                models.insert((*name).to_owned(), upstream);
            }
        }
        for (name, model) in &self.models {
            let upstream = model
                .upstream(environment)
                .with_context(|| format!("the model API {name}"))?;
            models.insert(name.clone(), upstream);
        }
        Ok(models)
    }

    pub(crate) fn git_credentials(&self, environment: &Environment) -> Result<Vec<GitCredential>> {
        let credential = |git: &Git| {
            Ok(GitCredential {
                url_prefix: git.url.clone(),
                username: git.username.clone(),
                password: git
                    .password
                    .read(environment)
                    .with_context(|| format!("the password for {}", git.url))?,
            })
        };
        self.git.iter().map(credential).collect()
    }

    pub(crate) fn submodules(&self) -> Vec<Submodule> {
        let listed = self.submodules.iter().map(|listed| Submodule {
            url: listed.url.clone(),
            source: listed.source.clone().unwrap_or_else(|| listed.url.clone()),
        });
        listed.collect()
    }

    pub(crate) fn notify(&self) -> NotifyConfig {
        let command = |command: &Command| NotifyCommand {
            argv: command.argv.clone(),
            time_limit: command.time,
        };
        NotifyConfig {
            commands: self
                .notify
                .commands
                .iter()
                .map(|(name, c)| (name.clone(), command(c)))
                .collect(),
            allow_private_webhooks: self.notify.allow_private_webhooks,
        }
    }

    /// What differs from the defaults.
    pub(crate) fn retain(&self, retention: &mut bulkhead_server::Retention) {
        retention.runs = self.retention.runs_days.or(retention.runs);
        retention.logs = self.retention.logs_days.or(retention.logs);
    }

    /// What `bulkhead admin gc` keeps.
    pub(crate) fn policy(&self) -> Policy {
        let ms = |days: Duration| i64::try_from(days.as_millis()).unwrap_or(i64::MAX);
        let usual = Policy::default();
        Policy {
            max_age_ms: self.retention.runs_days.map(ms),
            max_log_age_ms: self.retention.logs_days.map(ms).or(usual.max_log_age_ms),
            ..usual
        }
    }

    /// The proxy's URL, which may hold a password.
    pub(crate) fn proxy_secret(&self) -> Option<SecretString> {
        self.proxy.as_ref().map(|proxy| proxy.0.to_string().into())
    }

    /// The certificate authority's text.
    pub(crate) fn ca_pem(&self) -> Result<Option<String>> {
        let read = |path: &PathBuf| {
            read_small(path)
                .with_context(|| format!("reading the certificate authority {}", path.display()))
        };
        self.ca_file.as_ref().map(read).transpose()
    }
}

impl Model {
    fn upstream(&self, environment: &Environment) -> Result<ModelUpstream> {
        let credential = match &self.credential {
            Some(source) => Some(prefixed(&self.prefix, &source.read(environment)?)),
            None => None,
        };
        Ok(ModelUpstream {
            base_url: self.url.0.clone(),
            header: self.header.clone(),
            credential,
            allow_private: self.allow_private,
        })
    }
}

impl Source {
    fn read(&self, environment: &Environment) -> Result<SecretString> {
        match self {
            Self::Env(name) => environment.secret(name).cloned().ok_or_else(|| {
                Misuse::usage_hint(
                    format!("the variable {name} is not set"),
                    "the configuration names it as the place of a credential",
                )
                .into()
            }),
            Self::File(path) => {
                let text = read_small(path)
                    .with_context(|| format!("reading the credential in {}", path.display()))?;
                Ok(text.trim_end_matches(['\r', '\n']).into())
            }
        }
    }
}

fn prefixed(prefix: &str, credential: &SecretString) -> SecretString {
    format!("{prefix}{}", credential.expose_secret()).into()
}

fn read_small(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(MAX_BYTES)
        .read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::OperatorConfig;
    use crate::environment::Environment;

    #[test]
    fn r6_a_full_configuration_is_read() {
        let config = OperatorConfig::parse(
            "author: {name: Robot, email: robot@example.com}\n\
             places: 3\n\
             models:\n  local:\n    url: http://127.0.0.1:8000\n    allow_private: true\n\
             submodules: [{url: 'https://forge.example/lib.git'}, {url: ../b, source: /srv/b}]\n\
             toolchains: [/opt/node]\n\
             notify:\n  commands:\n    chat: {argv: [notify-send], time: 5s}\n\
             retention: {logs_days: 7}\n\
             proxy: http://proxy.example.com:3128\n",
        )
        .unwrap();
        assert_eq!(config.places, Some(3));
        let submodules = config.submodules();
        assert_eq!(submodules[0].source, "https://forge.example/lib.git");
        assert_eq!(submodules[1].source, "/srv/b");
        let models = config.models(&Environment::default()).unwrap();
        assert!(models["local"].allow_private);
        assert_eq!(config.notify().commands["chat"].time_limit.as_secs(), 5);
    }

    #[test]
    fn case_50_what_is_unknown_or_malformed_is_refused_with_its_line() {
        for text in [
            "prox: x",
            "models: []",
            "proxy: not a url",
            "places: many",
            "models: {a: {url: http://a, hedaer: x}}",
        ] {
            let error = OperatorConfig::parse(text).unwrap_err();
            assert!(error.contains("line 1"), "{text}: {error}");
        }
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        assert!(OperatorConfig::parse("\n").unwrap().toolchains.is_empty());
    }

    #[test]
    fn h7_a_credential_that_is_not_there_is_named_and_not_guessed() {
        let config =
            OperatorConfig::parse("models: {a: {url: http://a, credential: {env: MISSING_KEY}}}")
                .unwrap();
        let error = config.models(&Environment::default()).unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "the model API a: the variable MISSING_KEY is not set"
        );
    }
}
