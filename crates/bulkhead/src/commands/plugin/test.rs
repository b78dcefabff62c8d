//! `bulkhead plugin test`: the cases in a plugin's `tests` directory, each a call of its own.

use std::path::{Path, PathBuf};

use anyhow::Result;
use bulkhead_wire::isolates::Checked;
use serde_json::json;

use super::{
    case::Case,
    invoke::{self, Loaded, Order},
    service::Service,
    source::{self, Source},
    words,
};
use crate::{
    cli::{Global, PluginTest},
    failure::{Exit, Misuse},
    output::Output,
};

const DIRECTORY: &str = "tests";

pub(super) async fn run(args: &PluginTest, global: &Global, output: Output) -> Result<Exit> {
    let source = Source::read(&args.plugin.directory)?;
    let files = files(&args.plugin.directory, args.only.as_deref())?;
    if args.plugin.service.is_some() {
        return Err(Misuse::usage_hint(
            "tests have replies, which another service cannot give",
            "leave out --service",
        )
        .into());
    }
    // A case that cannot be read is a mistake in its file, and is said before anything runs.
    let cases: Vec<(PathBuf, Case)> = files
        .into_iter()
        .map(|file| source::json(&file).map(|case| (file, case)))
        .collect::<Result<_>>()?;
    let service = Service::open(&args.plugin, global).await?;
    let exit = all(&service, &source, args, cases, output).await;
    service.close().await;
    exit
}

fn files(directory: &Path, only: Option<&str>) -> Result<Vec<PathBuf>> {
    let tests = directory.join(DIRECTORY);
    let entries = std::fs::read_dir(&tests).map_err(|error| {
        let what = format!("{} cannot be read: {error}", tests.display());
        Misuse::usage_hint(
            what,
            "a case is a file tests/NAME.json; docs/plugins tells what is in it",
        )
    })?;
    let is_case = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".json") && only.is_none_or(|only| name.contains(only))
    };
    let mut files: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(is_case)
        .collect();
    files.sort();
    match files.is_empty() {
        true => Err(Misuse::usage(format!("there is no such case in {}", tests.display())).into()),
        false => Ok(files),
    }
}

async fn all(
    service: &Service,
    source: &Source,
    args: &PluginTest,
    cases: Vec<(PathBuf, Case)>,
    output: Output,
) -> Result<Exit> {
    let checked = match invoke::load(service, source).await? {
        Loaded::Good(checked) => checked,
        Loaded::Fault(fault) => {
            output.note(format_args!("bulkhead: {}", words::fault(&fault)));
            output.json_object(&json!({ "fault": words::fault_json(&fault) }))?;
            return Ok(Exit::Failed);
        }
    };
    let (count, mut failed) = (cases.len(), 0);
    for (file, case) in cases {
        let name = file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let title = case.name.clone().unwrap_or_default();
        let (took_ms, differences) = one(service, source, args, &checked, case).await?;
        let is_good = differences.is_empty();
        failed += usize::from(!is_good);
        let mark = if is_good { "ok  " } else { "FAIL" };
        output.words(format_args!("{mark}  {name:<24} {took_ms:>6} ms  {title}"))?;
        for difference in &differences {
            output.words(format_args!(
                "      {}",
                difference.replace('\n', "\n      ")
            ))?;
        }
        output.json_object(
            &json!({ "case": name, "ok": is_good, "wall_ms": took_ms, "differences": differences }),
        )?;
    }
    output.words(format_args!("\n{} of {count} cases hold", count - failed))?;
    Ok(if failed == 0 {
        Exit::Done
    } else {
        Exit::Failed
    })
}

async fn one(
    service: &Service,
    source: &Source,
    args: &PluginTest,
    checked: &Checked,
    case: Case,
) -> Result<(u64, Vec<String>)> {
    let mut given = match &args.plugin.settings {
        Some(file) => source::json(file)?,
        None => serde_json::Map::new(),
    };
    given.extend(case.settings.clone());
    let order = Order {
        handler: invoke::handler(source, &case.entry)?,
        input: case.input.clone(),
        settings: source.complete(&given)?,
        secrets: invoke::declared(source, case.secrets.clone())?,
        script: Some((case.replies.clone(), case.network())),
    };
    let ended = invoke::invoke(service, source, checked, order, None).await?;
    let took_ms = ended.result.usage.map_or(0, |usage| usage.wall_ms);
    Ok((took_ms, case.expect.differences(&ended)))
}
