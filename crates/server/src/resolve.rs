//! From a workflow file to what a run is made of: names become what they stand for, once.

use std::collections::BTreeMap;

use bulkhead_model::workflow::{AgentChoice, Known, WorkSpec, Workflow};
use bulkhead_session::agents::{self, Overrides, READY};

use crate::{Code, Config, NewRun, Problem, spec::Agent};

/// The name under which any command line can be an agent.
const COMMAND: &str = "command";

pub(crate) struct Resolved {
    pub(crate) workflow: Workflow,
    pub(crate) inputs: BTreeMap<String, String>,
    pub(crate) agents: Vec<Option<Agent>>,
}

pub(crate) fn workflow(
    path: &str,
    text: &str,
    new: &NewRun,
    config: &Config,
) -> Result<Resolved, Problem> {
    let workflow = Workflow::read(path, text, &known(config)).map_err(|error| {
        Problem::new(Code::InvalidWorkflow, error.to_string())
            .field("workflow")
            .findings(error.problems.iter().map(ToString::to_string).collect())
    })?;
    let inputs = inputs(&workflow, new)?;
    let phases = workflow.phases.iter();
    let agents = phases.map(|phase| agent_of(&phase.work, new, config));
    Ok(Resolved {
        agents: agents.collect::<Result<_, _>>()?,
        inputs,
        workflow,
    })
}

/// What the operator's configuration offers.
fn known(config: &Config) -> Known {
    let toolchains = config
        .toolchains
        .iter()
        .map(|path| path.display().to_string());
    Known {
        agents: Some(READY.iter().map(|ready| ready.name.to_owned()).collect()),
        notifiers: Some(config.notify.commands.keys().cloned().collect()),
        toolchains: Some(toolchains.collect()),
    }
}

fn inputs(workflow: &Workflow, new: &NewRun) -> Result<BTreeMap<String, String>, Problem> {
    workflow.resolve_inputs(&new.inputs).map_err(|errors| {
        let findings: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Problem::new(Code::InvalidInput, findings.join("; "))
            .field("inputs")
            .findings(findings)
    })
}

/// None for a command.
fn agent_of(work: &WorkSpec, new: &NewRun, config: &Config) -> Result<Option<Agent>, Problem> {
    let WorkSpec::Agent { agent, .. } = work else {
        return Ok(None);
    };
    let agent = resolve_agent(agent, new.agent.as_deref())?;
    has_models(&agent, config)?;
    Ok(Some(agent))
}

/// The agent that the phase names, or the one that the caller wants instead of it.
fn resolve_agent(choice: &AgentChoice, instead: Option<&str>) -> Result<Agent, Problem> {
    let (name, overrides) = match instead {
        Some(name) => (name, Overrides::default()),
        None => (choice.name.as_str(), overrides(choice)),
    };
    // With a command of its own an agent may have any name.
    let is_ready = READY.iter().any(|ready| ready.name == name);
    let looked_up = if overrides.command.is_some() && !is_ready {
        COMMAND
    } else {
        name
    };
    let resolved = agents::resolve(looked_up, &overrides)
        .map_err(|error| Problem::new(Code::InvalidWorkflow, error.to_string()).field("agent"))?;
    let mut spec = resolved.spec;
    name.clone_into(&mut spec.name);
    Ok(Agent {
        spec,
        models: resolved.models,
    })
}

/// An agent whose model nobody can reach would only fail later, in its sandbox.
fn has_models(agent: &Agent, config: &Config) -> Result<(), Problem> {
    let mut upstreams = agent.models.iter().map(|model| model.upstream.as_str());
    let missing = upstreams.find(|upstream| !config.models.contains_key(*upstream));
    let Some(upstream) = missing else {
        return Ok(());
    };
    let known: Vec<_> = config.models.keys().map(String::as_str).collect();
    let known = match known.is_empty() {
        true => "none".to_owned(),
        false => known.join(", "),
    };
    Err(Problem::new(
        Code::InvalidWorkflow,
        format!(
            "the agent {} speaks to the model API {upstream:?}, which this configuration does not have (it has {known})",
            agent.spec.name
        ),
    )
    .field("agent")
    .remedy(format!(
        "set the API's key where Bulkhead starts, or name {upstream} under `models` in the operator's configuration"
    )))
}

fn overrides(choice: &AgentChoice) -> Overrides {
    Overrides {
        command: choice.command.clone(),
        protocol: choice.protocol,
        model: choice.model.clone(),
        ..Overrides::default()
    }
}
