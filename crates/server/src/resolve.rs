//! From a workflow file to what a run is made of: names become what they stand for, once.

use std::collections::BTreeMap;

use bulkhead_model::{
    AgentSpec, ModelGateway, Protocol,
    run::{Plan, Repository},
    workflow::{self, AgentChoice, Known, WorkSpec, Workflow},
};

use crate::{
    Code, Config, NewRun, Problem,
    spec::{PhasePolicy, PhaseSpec, WorkPlan},
};

pub(crate) struct Resolved {
    pub(crate) name: String,
    pub(crate) plan: Plan,
    pub(crate) inputs: BTreeMap<String, String>,
    pub(crate) phases: Vec<PhaseSpec>,
}

pub(crate) fn workflow(
    path: &str,
    text: &str,
    new: &NewRun,
    repository: Repository,
    config: &Config,
) -> Result<Resolved, Problem> {
    let read = Workflow::read(path, text, &known(config)).map_err(|error| {
        Problem::new(Code::InvalidWorkflow, error.to_string())
            .field("workflow")
            .findings(error.problems.iter().map(ToString::to_string).collect())
    })?;
    let inputs = inputs(&read, new)?;
    let plan = read.plan(repository).map_err(|error| {
        Problem::new(Code::InvalidWorkflow, error.to_string()).field("workflow")
    })?;
    let mut phases = Vec::with_capacity(read.phases.len());
    for spec in &read.phases {
        phases.push(phase(spec, new.agent.as_deref())?);
    }
    Ok(Resolved {
        name: read.name,
        plan,
        inputs,
        phases,
    })
}

/// What the operator's configuration offers.
fn known(config: &Config) -> Known {
    let toolchains = config
        .toolchains
        .iter()
        .map(|path| path.display().to_string());
    Known {
        agents: None,
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

fn phase(spec: &workflow::PhaseSpec, instead: Option<&str>) -> Result<PhaseSpec, Problem> {
    let (work, models) = match &spec.work {
        WorkSpec::Command { run } => (WorkPlan::Command { run: run.clone() }, Vec::new()),
        WorkSpec::Agent { agent, prompt } => {
            let (agent, models) = resolve_agent(agent, instead)?;
            let prompt = prompt.clone();
            (WorkPlan::Agent { agent, prompt }, models)
        }
    };
    Ok(PhaseSpec {
        name: spec.name.clone(),
        work,
        policy: PhasePolicy {
            limits: spec.limits,
            network: spec.network.clone(),
            models,
            toolchains: spec.toolchains.clone(),
            secrets: spec.secrets.clone(),
            max_turns: spec.caps.turns,
            max_cost_usd_milli: spec.caps.cost_micro_usd.map(|micro| micro.div_ceil(1000)),
        },
        env: spec.env.clone(),
        artifacts_in: spec.artifacts.r#in.clone(),
        artifacts_out: spec.artifacts.out.clone(),
    })
}

/// The agent that the phase names, or the one that the caller wants instead of it.
fn resolve_agent(
    choice: &AgentChoice,
    instead: Option<&str>,
) -> Result<(AgentSpec, Vec<ModelGateway>), Problem> {
    let name = instead.unwrap_or(&choice.name);
    let command = choice.command.clone().filter(|_| instead.is_none());
    let Some(argv) = command else {
        return Err(Problem::new(
            Code::InvalidWorkflow,
            format!("there is no ready agent {name:?}"),
        )
        .field("agent"));
    };
    let spec = AgentSpec {
        name: name.to_owned(),
        argv,
        protocol: choice.protocol.unwrap_or(Protocol::Plain),
        env: choice.env.clone(),
        home_files: BTreeMap::new(),
    };
    Ok((spec, Vec::new()))
}
