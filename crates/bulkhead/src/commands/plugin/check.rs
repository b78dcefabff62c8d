//! `bulkhead plugin check`: what a plugin promises, asks for, and really exports.

use anyhow::Result;
use bulkhead_model::plugin::manifest::{Handler, Permission};
use bulkhead_wire::isolates::{Checked, export::Kind};
use serde_json::{Value, json};

use super::{
    invoke::{self, Loaded},
    service::Service,
    source::Source,
    words,
};
use crate::{
    cli::{Global, PluginCheck},
    failure::Exit,
    output::Output,
};

pub(super) async fn run(args: &PluginCheck, global: &Global, output: Output) -> Result<Exit> {
    let source = Source::read(&args.plugin.directory)?;
    // Required settings are the installer's to give; without a file only the defaults are there.
    let settings = match &args.plugin.settings {
        Some(file) => source.settings(Some(file))?,
        None => source
            .manifest
            .settings(&serde_json::Map::new())
            .unwrap_or_default(),
    };
    let egress = source.manifest.egress(&settings);
    let egress = egress.map_err(|error| crate::failure::Misuse::usage(error.to_string()))?;
    let service = Service::open(&args.plugin, global).await?;
    let loaded = invoke::load(&service, &source).await;
    service.close().await;
    let loaded = loaded?;
    let rules: Vec<_> = egress
        .policy
        .allow
        .iter()
        .map(ToString::to_string)
        .collect();
    say(&source, &rules, &loaded, output)?;
    output.json_object(&json(&source, &rules, &loaded))?;
    Ok(match loaded {
        Loaded::Good(checked) if checked.missing.is_empty() => Exit::Done,
        _ => Exit::Failed,
    })
}

fn say(source: &Source, rules: &[String], loaded: &Loaded, output: Output) -> Result<()> {
    let manifest = &source.manifest;
    output.words(format_args!(
        "{} {}  ({})",
        manifest.name,
        manifest.version,
        source.directory.display()
    ))?;
    output.words("\nIt may:")?;
    for permission in &manifest.permissions {
        output.words(format_args!(
            "  {}  ({permission})",
            Permission::words(*permission)
        ))?;
    }
    for rule in rules {
        let declared = manifest
            .egress
            .iter()
            .find(|egress| egress.rule.to_string() == *rule);
        let why = match declared {
            None => "  (a `hosts` setting)".to_owned(),
            Some(declared) => declared
                .reason
                .as_ref()
                .map_or_else(String::new, |reason| format!("  ({reason})")),
        };
        output.words(format_args!("  reach {rule}{why}"))?;
    }
    for (name, secret) in &manifest.secrets {
        let label = secret
            .label
            .as_ref()
            .map_or_else(String::new, |label| format!("  ({label})"));
        output.words(format_args!("  ask for the secret {name}{label}"))?;
    }
    if manifest.permissions.is_empty() && rules.is_empty() && manifest.secrets.is_empty() {
        output.words("  do nothing but compute")?;
    }
    match loaded {
        Loaded::Good(checked) => say_exports(source, checked, output),
        Loaded::Fault(fault) => Ok(output.words(format_args!(
            "\nThe module cannot be loaded.\n{}",
            words::fault(fault)
        ))?),
    }
}

fn is_missing(checked: &Checked, handler: &Handler) -> bool {
    checked
        .missing
        .iter()
        .any(|missing| missing.path == handler.path)
}

fn say_exports(source: &Source, checked: &Checked, output: Output) -> Result<()> {
    output.words("\nIt is called at:")?;
    let handlers = source.manifest.handlers();
    let rows = handlers.iter().map(|handler| {
        let limits = invoke::limits(source, handler);
        [
            format!("  {}", handler.path.join(".")),
            handler.kind.name().to_owned(),
            format!("{} s", limits.wall.as_secs()),
            format!("{} MiB", limits.memory.limit_bytes() >> 20),
            if is_missing(checked, handler) {
                "MISSING: no such function is exported"
            } else {
                ""
            }
            .to_owned(),
        ]
    });
    output.table(["  EXPORT", "KIND", "TIME", "MEMORY", ""], rows)?;
    let unused = unused(source, checked);
    if !unused.is_empty() {
        let all = unused.join(", ");
        output.words(format_args!(
            "\nExported, and promised by no capability: {all}"
        ))?;
    }
    Ok(())
}

/// Functions that nothing would call.
fn unused(source: &Source, checked: &Checked) -> Vec<String> {
    let handlers = source.manifest.handlers();
    let functions = checked
        .exports
        .iter()
        .filter(|export| export.kind() == Kind::Function);
    let unused =
        functions.filter(|export| !handlers.iter().any(|handler| handler.path == export.path));
    unused.map(|export| export.path.join(".")).collect()
}

fn json(source: &Source, rules: &[String], loaded: &Loaded) -> Value {
    let manifest = &source.manifest;
    let mut object = json!({
        "name": manifest.name,
        "version": manifest.version,
        "permissions": manifest.permissions.iter().map(|p| p.name()).collect::<Vec<_>>(),
        "egress": rules,
        "secrets": manifest.secrets.keys().collect::<Vec<_>>(),
    });
    match loaded {
        Loaded::Fault(fault) => object["fault"] = words::fault_json(fault),
        Loaded::Good(checked) => {
            let handlers = source.manifest.handlers();
            let rows = handlers.iter().map(|handler| {
                let limits = invoke::limits(source, handler);
                json!({
                    "export": handler.path.join("."),
                    "kind": handler.kind.name(),
                    "wall_ms_max": u64::try_from(limits.wall.as_millis()).unwrap_or(u64::MAX),
                    "memory_bytes_max": limits.memory.limit_bytes(),
                    "missing": is_missing(checked, handler),
                })
            });
            object["handlers"] = rows.collect();
            object["unused"] = unused(source, checked).into();
        }
    }
    object
}
