//! The list of phases, and what holds between them.

use std::collections::BTreeMap;

use super::{
    Artifacts, PhaseCaps, PhaseSpec, WithoutRunner, WorkSpec,
    node::Value,
    reader::{Field, Fields, Reader},
    settings::{self, Defaults, SETTINGS, Settings},
    template::{self, Template},
};
use crate::ids::{ArtifactName, PhaseName, SecretName};

/// The most phases of one workflow.
const PHASES_MAX: usize = 64;

pub(crate) const PHASE_ONLY: &[&str] = &[
    "name",
    "prompt",
    "run",
    "needs",
    "waitForLabels",
    "artifacts",
];
pub(crate) const ARTIFACT_FIELDS: &[&str] = &["out", "in"];

/// What the workflow declares for its phases to use.
pub(crate) struct Scope<'a> {
    pub(crate) inputs: Vec<&'a str>,
    pub(crate) secrets: &'a [SecretName],
}

/// What earlier phases are called and hand on.
#[derive(Default)]
struct Earlier {
    names: Vec<PhaseName>,
    artifacts: Vec<ArtifactName>,
}

pub(super) fn read_all(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    defaults: &Defaults,
    scope: &Scope<'_>,
) -> Vec<PhaseSpec> {
    let items = reader.list(field);
    if items.is_empty() && matches!(field.node.value, Value::List(_)) {
        reader.problem(field, "a workflow needs at least one phase");
    }
    if items.len() > PHASES_MAX {
        let found = items.len();
        reader.problem(
            field,
            format!("expected at most {PHASES_MAX} phases, found {found}"),
        );
    }
    let mut earlier = Earlier::default();
    let mut phases = Vec::new();
    for item in items.iter().take(PHASES_MAX) {
        phases.extend(read(reader, item, defaults, scope, &mut earlier));
    }
    phases
}

fn read(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    defaults: &Defaults,
    scope: &Scope<'_>,
    earlier: &mut Earlier,
) -> Option<PhaseSpec> {
    let names = [PHASE_ONLY, SETTINGS].concat();
    let fields = reader.fields(field, &names)?;
    let name = name(reader, &fields, earlier);
    let own = settings::read(reader, &fields, scope);
    let work = work(reader, &fields, &own, defaults, scope);
    let needs = fields.get("needs");
    let needs = needs.map_or_else(Vec::new, |field| reader.names(&field));
    let without_runner = without_runner(reader, &fields);
    let artifacts = artifacts(reader, &fields, earlier);
    let joined = own.joined(&defaults.settings);
    Some(PhaseSpec {
        name: name?,
        work: work?,
        needs,
        without_runner,
        limits: joined.limits,
        network: joined.network,
        secrets: joined.secrets,
        env: joined.env,
        toolchains: joined.toolchains,
        gate: joined.gate,
        artifacts,
        caps: PhaseCaps {
            cost_micro_usd: joined.cost_micro_usd,
            turns: joined.turns,
        },
        retries: joined.retries,
    })
}

fn name(reader: &mut Reader<'_>, fields: &Fields<'_>, earlier: &mut Earlier) -> Option<PhaseName> {
    let field = reader.required(fields, "name")?;
    let name: PhaseName = reader.name(&field)?;
    if earlier.names.contains(&name) {
        reader.problem(&field, format!("two phases are called `{name}`"));
        return None;
    }
    earlier.names.push(name.clone());
    Some(name)
}

fn work(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    own: &Settings,
    defaults: &Defaults,
    scope: &Scope<'_>,
) -> Option<WorkSpec> {
    match (fields.get("prompt"), fields.get("run")) {
        (Some(prompt), None) => {
            let prompt = template(reader, &prompt, scope);
            let wrong = fields.get("agent").is_some() && own.agent.is_none();
            let agent = own.agent.as_ref().or(defaults.settings.agent.as_ref());
            if agent.is_none() && !wrong {
                let remedy = "name one here or under `defaults`";
                reader.problem(
                    fields.of(),
                    format!("a phase with a prompt needs an `agent`: {remedy}"),
                );
            }
            Some(WorkSpec::Agent {
                agent: agent.cloned()?,
                prompt: prompt?,
            })
        }
        (None, Some(run)) => {
            for name in ["agent", "caps"] {
                if let Some(field) = fields.get(name) {
                    reader.problem(&field, "it has no use in a phase that runs a command");
                }
            }
            command(reader, &run).map(|run| WorkSpec::Command { run })
        }
        _ => {
            let message = "expected either `prompt` (for an agent) or `run` (a command)";
            reader.problem(fields.of(), message);
            None
        }
    }
}

fn template(reader: &mut Reader<'_>, field: &Field<'_>, scope: &Scope<'_>) -> Option<Template> {
    let text = reader.text(field)?;
    match Template::read(&text, &scope.inputs) {
        Ok(template) => Some(template),
        Err(bad) => {
            for bad in bad {
                let before = text[..bad.offset].matches("{{").count();
                let place = reader.braces(field, before);
                reader.problem(field, bad.message);
                if let Some(problem) = reader.problems.last_mut() {
                    problem.place = place;
                    problem.nearest = bad.nearest;
                }
            }
            None
        }
    }
}

fn command(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<String> {
    let text = reader.text(field)?;
    let Some((offset, name)) = template::in_command(&text) else {
        return Some(text);
    };
    let variable = match name.strip_prefix("inputs.") {
        Some(input) => super::inputs::variable(input),
        None => format!("BULKHEAD_{}", name.replace('.', "_").to_uppercase()),
    };
    let message = format!(
        "`{{{{ {name} }}}}` is not replaced in a command, where it would be run as code: \
         use the variable \"${variable}\""
    );
    let before = text[..offset].matches("{{").count();
    let place = reader.braces(field, before);
    reader.problem(field, message);
    if let Some(problem) = reader.problems.last_mut() {
        problem.place = place;
    }
    None
}

fn without_runner(reader: &mut Reader<'_>, fields: &Fields<'_>) -> WithoutRunner {
    let Some(field) = fields.get("waitForLabels") else {
        return WithoutRunner::RunHere;
    };
    let wait = reader.truth(&field);
    if fields.get("needs").is_none() {
        reader.problem(&field, "it needs `needs` beside it");
    }
    match wait {
        Some(true) => WithoutRunner::Wait,
        _ => WithoutRunner::RunHere,
    }
}

fn artifacts(reader: &mut Reader<'_>, fields: &Fields<'_>, earlier: &mut Earlier) -> Artifacts {
    let field = fields.get("artifacts");
    let Some(fields) = field.and_then(|field| reader.fields(&field, ARTIFACT_FIELDS)) else {
        return Artifacts::default();
    };
    // What comes in is read first: a phase cannot be handed what it makes itself.
    let taken = fields.get("in");
    let r#in = taken.map_or_else(Vec::new, |field| artifacts_in(reader, &field, earlier));
    let made = fields.get("out");
    let out = made.map_or_else(BTreeMap::new, |field| {
        artifacts_out(reader, &field, earlier)
    });
    Artifacts { out, r#in }
}

fn artifacts_in(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    earlier: &Earlier,
) -> Vec<ArtifactName> {
    let known: Vec<_> = earlier.artifacts.iter().map(ArtifactName::as_str).collect();
    let mut names = Vec::new();
    for item in reader.list(field) {
        let Some(name) = reader.name::<ArtifactName>(&item) else {
            continue;
        };
        if !earlier.artifacts.contains(&name) {
            reader.unknown(&item, "artifact of an earlier phase", name.as_str(), &known);
        } else if names.contains(&name) {
            reader.problem(&item, "it is listed twice");
        } else {
            names.push(name);
        }
    }
    names
}

fn artifacts_out(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    earlier: &mut Earlier,
) -> BTreeMap<ArtifactName, String> {
    let mut made = BTreeMap::new();
    for (key, entry) in reader.entries(field) {
        let path = artifact_path(reader, &entry);
        match key.name.parse::<ArtifactName>() {
            Err(error) => reader.problem(&entry, error.to_string()),
            Ok(name) if earlier.artifacts.contains(&name) => {
                reader.problem(&entry, format!("an artifact `{name}` was made before"));
            }
            Ok(name) => {
                earlier.artifacts.push(name.clone());
                made.extend(path.map(|path| (name, path)));
            }
        }
    }
    made
}

/// A path inside the workspace. What it leads to is checked again in the sandbox, where links can be
/// seen; here only what is wrong by its very words.
fn artifact_path(reader: &mut Reader<'_>, field: &Field<'_>) -> Option<String> {
    let path = reader.line(field)?;
    let inside = !path.starts_with('/')
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
        && path.split('/').next() != Some(".git");
    if !inside {
        reader.expected(field, "a path inside the workspace, without `..`");
        return None;
    }
    Some(path)
}
