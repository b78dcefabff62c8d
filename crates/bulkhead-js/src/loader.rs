//! Finds a plug's modules: files on the runner's disk.

use std::path::{Path, PathBuf};

use bulkhead_engine::{Loader, Thrown, ThrownKind, Value};
use url::Url;

/// A module that is larger is no source that anybody wrote.
const MAX_SOURCE_BYTES: u64 = 16 << 20;
const TYPESCRIPT: [&str; 2] = ["ts", "mts"];
const JAVASCRIPT: [&str; 2] = ["js", "mjs"];

/// Modules by `file:` URLs.
pub(crate) struct Files;

/// The name of the module in a file.
pub(crate) fn name_of(file: &Path) -> Option<String> {
    Url::from_file_path(file).ok().map(String::from)
}

fn path_of(name: &str) -> Option<PathBuf> {
    Url::parse(name).ok()?.to_file_path().ok()
}

impl Loader for Files {
    fn resolve(&self, specifier: &str, referrer: &str) -> Result<String, Thrown> {
        if let Some(module) = specifier.strip_prefix("node:") {
            return Err(Thrown::type_error(format!(
                "plugs have no module node:{module}: files and processes of the machine are in ctx.host"
            )));
        }
        let is_relative = ["./", "../", "/", "file:"];
        if !is_relative.iter().any(|start| specifier.starts_with(start)) {
            return Err(Thrown::type_error(format!(
                "{specifier:?} is no file: plugs import by relative paths, such as \"./{specifier}.ts\""
            )));
        }
        let base = Url::parse(referrer).map_err(|error| Thrown::new(error.to_string()))?;
        let url = base
            .join(specifier)
            .map_err(|error| Thrown::new(error.to_string()))?;
        Ok(url.into())
    }

    fn load(&self, name: &str) -> Result<String, Thrown> {
        let path = path_of(name).ok_or_else(|| Thrown::type_error(format!("{name} is no file")))?;
        let extension = path.extension().and_then(|extension| extension.to_str());
        let source = read(&path)?;
        match extension {
            Some(extension) if JAVASCRIPT.contains(&extension) => Ok(source),
            Some(extension) if TYPESCRIPT.contains(&extension) => strip(&path, &source),
            Some("json") => json(&path, &source),
            _ => Err(Thrown::type_error(format!(
                "{} is neither .ts, .mts, .js, .mjs nor .json",
                path.display()
            ))),
        }
    }
}

fn read(path: &Path) -> Result<String, Thrown> {
    let failed =
        |error: &dyn std::fmt::Display| Thrown::new(format!("reading {}: {error}", path.display()));
    let size = std::fs::metadata(path)
        .map_err(|error| failed(&error))?
        .len();
    if size > MAX_SOURCE_BYTES {
        return Err(failed(&"it is too large for a module"));
    }
    let source = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    Ok(source
        .strip_prefix('\u{feff}')
        .map_or(source.clone(), str::to_owned))
}

fn strip(path: &Path, source: &str) -> Result<String, Thrown> {
    bulkhead_typescript::strip(source).map_err(|error| {
        let place = format!("{}:{}:{}", path.display(), error.line, error.column);
        Thrown {
            kind: ThrownKind::TypeError,
            ..Thrown::new(format!("{} ({place})", error.message))
        }
        // The error's place is the source's, not where it was asked for.
        .with(
            "stack",
            Value::String(format!("TypeError: {}\n    at {place}", error.message)),
        )
    })
}

fn json(path: &Path, source: &str) -> Result<String, Thrown> {
    let value: serde_json::Value = serde_json::from_str(source)
        .map_err(|error| Thrown::type_error(format!("{}: {error}", path.display())))?;
    // JSON is JavaScript, but for what must not be read as a prototype.
    let text = serde_json::Value::String(value.to_string()).to_string();
    Ok(format!("export default JSON.parse({text})"))
}
