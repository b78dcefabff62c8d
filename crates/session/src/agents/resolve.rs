//! From a name and overrides to what a phase's order holds.

use std::collections::BTreeMap;

use bulkhead_model::{AgentSpec, ModelGateway, Protocol};
use serde::{Deserialize, Serialize};

use super::{
    GATEWAY,
    table::{Definition, READY},
};

/// The name under which any command line can be an agent.
const COMMAND: &str = "command";

/// What a workflow may say about an agent besides its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Overrides {
    /// Replaces the definition's argv; required for `command`.
    pub command: Option<Vec<String>>,
    /// Replaces the definition's protocol; plain text for `command`.
    pub protocol: Option<Protocol>,
    /// Appended to the argv.
    pub args: Vec<String>,
    pub model: Option<String>,
    /// The operator's model upstream to use.
    pub upstream: Option<String>,
    /// Added to the definition's environment; wins where both name a variable.
    pub env: BTreeMap<String, String>,
}

/// An agent, ready for a phase's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedAgent {
    pub spec: AgentSpec,
    pub models: Vec<ModelGateway>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    #[error(
        "there is no ready agent {name:?}: use one of {known}, or `command` with a command line of your own"
    )]
    Unknown { name: String, known: String },
    #[error("the agent `command` needs a command line: give `command: [program, argument, …]`")]
    NoCommand,
    #[error(
        "the agent `scripted` needs its file of steps: give `args: [path/in/the/workspace.yaml]`"
    )]
    NoSteps,
    #[error("the agent {name} has no model to choose: leave out `model` and `upstream`")]
    NoModel { name: String },
    #[error(
        "{what} {value:?} is not usable: at most 128 of A-Z, a-z, 0-9 and `-_.:/@`, beginning with a letter or digit"
    )]
    BadName { what: &'static str, value: String },
}

/// Looks `name` up among the ready agents and applies `overrides`.
pub fn resolve(name: &str, overrides: &Overrides) -> Result<ResolvedAgent, AgentError> {
    if name == COMMAND {
        return custom(overrides);
    }
    let Some(definition) = READY.iter().find(|ready| ready.name == name) else {
        let known: Vec<_> = READY.iter().map(|ready| ready.name).collect();
        return Err(AgentError::Unknown {
            name: name.to_owned(),
            known: known.join(", "),
        });
    };
    ready(definition, overrides)
}

fn custom(overrides: &Overrides) -> Result<ResolvedAgent, AgentError> {
    let command = overrides.command.clone().filter(|argv| !argv.is_empty());
    let mut argv = command.ok_or(AgentError::NoCommand)?;
    if overrides.model.is_some() || overrides.upstream.is_some() {
        return Err(AgentError::NoModel {
            name: COMMAND.to_owned(),
        });
    }
    argv.extend(overrides.args.iter().cloned());
    Ok(ResolvedAgent {
        spec: AgentSpec {
            name: COMMAND.to_owned(),
            argv,
            protocol: overrides.protocol.unwrap_or(Protocol::Plain),
            env: overrides.env.clone(),
            home_files: BTreeMap::new(),
        },
        models: vec![],
    })
}

fn ready(definition: &Definition, overrides: &Overrides) -> Result<ResolvedAgent, AgentError> {
    if definition.name == "scripted" && overrides.args.is_empty() && overrides.command.is_none() {
        return Err(AgentError::NoSteps);
    }
    let (model, upstream) = chosen(definition, overrides)?;
    let fill = |text: &str| {
        text.replace("{gateway}", GATEWAY)
            .replace("{upstream}", upstream.unwrap_or_default())
            .replace("{model}", model.unwrap_or_default())
    };
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), fill(value));
    let mut env: BTreeMap<_, _> = definition.env.iter().map(owned).collect();
    env.extend(overrides.env.clone());
    let home_files = definition.home_files.iter().map(owned).collect();
    let gateway = definition.model.as_ref().map(|model| ModelGateway {
        upstream: upstream.unwrap_or(model.upstream).to_owned(),
        url_env: model.url_env.to_owned(),
        key_env: model.key_env.to_owned(),
        path: model.path.to_owned(),
    });
    Ok(ResolvedAgent {
        spec: AgentSpec {
            name: definition.name.to_owned(),
            argv: argv(definition, overrides, model.is_some(), fill),
            protocol: overrides.protocol.unwrap_or(definition.protocol),
            env,
            home_files,
        },
        models: gateway.into_iter().collect(),
    })
}

/// The model and the upstream, checked: both end up in arguments, URLs and configuration texts.
fn chosen<'a>(
    definition: &'a Definition,
    overrides: &'a Overrides,
) -> Result<(Option<&'a str>, Option<&'a str>), AgentError> {
    let (model, upstream) = (overrides.model.as_deref(), overrides.upstream.as_deref());
    let Some(own) = &definition.model else {
        if model.is_some() || upstream.is_some() {
            return Err(AgentError::NoModel {
                name: definition.name.to_owned(),
            });
        }
        return Ok((None, None));
    };
    for (what, value) in [("the model", model), ("the upstream", upstream)] {
        if let Some(value) = value.filter(|value| !is_usable(value)) {
            let value = value.to_owned();
            return Err(AgentError::BadName { what, value });
        }
    }
    Ok((
        model.or(own.default),
        Some(upstream.unwrap_or(own.upstream)),
    ))
}

fn is_usable(name: &str) -> bool {
    name.len() <= 128
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.:/@".contains(c))
}

/// The model's arguments go before a closing `-`, which stands for standard input.
fn argv(
    definition: &Definition,
    overrides: &Overrides,
    has_model: bool,
    fill: impl Fn(&str) -> String,
) -> Vec<String> {
    if let Some(command) = overrides.command.clone().filter(|argv| !argv.is_empty()) {
        return [command, overrides.args.clone()].concat();
    }
    let mut argv: Vec<String> = definition.argv.iter().map(|arg| fill(arg)).collect();
    let closing = argv.pop_if(|last| last == "-");
    if has_model {
        argv.extend(definition.model_argv.iter().map(|arg| fill(arg)));
    }
    argv.extend(overrides.args.iter().cloned());
    argv.extend(closing);
    argv
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    /// The whole table as orders hold it, so that a change of a definition is seen.
    #[test]
    fn r7_the_ready_agents_have_their_prompts_off() {
        let all: Vec<_> = READY
            .iter()
            .map(|ready| {
                let mut overrides = Overrides::default();
                if ready.name == "scripted" {
                    overrides.args = vec!["steps.yaml".to_owned()];
                }
                let agent = resolve(ready.name, &overrides).unwrap();
                (agent.spec, agent.models)
            })
            .collect();
        insta::assert_json_snapshot!(all);
    }

    #[test]
    fn a_model_an_upstream_and_arguments_find_their_places() {
        let overrides = Overrides {
            model: Some("gpt-9".to_owned()),
            upstream: Some("azure".to_owned()),
            args: vec!["--search".to_owned()],
            ..Overrides::default()
        };
        let agent = resolve("codex", &overrides).unwrap();
        let tail = &agent.spec.argv[agent.spec.argv.len() - 4..];
        assert_eq!(tail, ["--model", "gpt-9", "--search", "-"]);
        assert!(
            agent
                .spec
                .argv
                .iter()
                .any(|arg| arg.contains("7080/model/azure/v1"))
        );
        assert_eq!(agent.models[0].upstream, "azure");
    }

    #[test]
    fn mistakes_are_told_with_their_remedy() {
        let error = |name, overrides: &Overrides| resolve(name, overrides).unwrap_err().to_string();
        insta::assert_snapshot!(error("cladue", &Overrides::default()), @r#"there is no ready agent "cladue": use one of claude, codex, gemini, opencode, scripted, or `command` with a command line of your own"#);
        insta::assert_snapshot!(error("command", &Overrides::default()), @"the agent `command` needs a command line: give `command: [program, argument, …]`");
        insta::assert_snapshot!(error("scripted", &Overrides::default()), @"the agent `scripted` needs its file of steps: give `args: [path/in/the/workspace.yaml]`");
        let overrides = Overrides {
            model: Some("x\",evil=\"".to_owned()),
            ..Overrides::default()
        };
        insta::assert_snapshot!(error("codex", &overrides), @r#"the model "x\",evil=\"" is not usable: at most 128 of A-Z, a-z, 0-9 and `-_.:/@`, beginning with a letter or digit"#);
    }
}
