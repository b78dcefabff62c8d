//! `host.workspace`: files of the agent's workspace, by relative paths.

use bulkhead_wire::{
    pipe,
    platform::{self, call::Call as Asked, entry::Kind, workspace_write::Mode as WireMode},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Arguments, Encoding, Question, Reading, object};
use crate::call_error::CallError;

const PATH_BYTES_MAX: usize = 4_096;
const FILE_BYTES_MAX: usize = 5 << 20;
const ENTRIES: u32 = 1_000;
const ENTRIES_MAX: u32 = 10_000;
/// The largest whole number that JavaScript writes exactly.
const SAFE_INTEGER_MAX: u64 = (1 << 53) - 1;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ReadOptions {
    encoding: Option<Encoding>,
    offset: Option<u64>,
    length: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WriteOptions {
    encoding: Option<Encoding>,
    mode: Option<Mode>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Replace,
    Create,
    Append,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ListOptions {
    recursive: Option<bool>,
    limit: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RemoveOptions {
    recursive: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct MoveOptions {
    overwrite: Option<bool>,
}

/// Whether the workspace itself may be meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Root {
    Allowed,
    Refused,
}

/// The platform resolves links; here the text itself must be a path that stays inside.
fn check_path(arguments: &Arguments, name: &str, path: &str, root: Root) -> Result<(), CallError> {
    let bad = |what: &str| Err(arguments.bad(format_args!("`{name}` {path:?} {what}")));
    if path.is_empty() && root == Root::Allowed {
        return Ok(());
    }
    arguments.text(name, path, 1, PATH_BYTES_MAX)?;
    if path.contains('\0') {
        return Err(arguments.bad(format_args!("`{name}` has a NUL character in it")));
    }
    if path.starts_with('/') {
        return bad("begins with `/`; paths are relative to the workspace");
    }
    match path
        .trim_end_matches('/')
        .split('/')
        .find(|part| matches!(*part, "" | "." | ".."))
    {
        Some(_) => bad("has an empty part, `.` or `..` in it; write the path from the workspace"),
        None => Ok(()),
    }
}

pub(super) fn read(mut arguments: Arguments) -> Result<Question, CallError> {
    let path: String = arguments.take("path")?;
    let options: ReadOptions = arguments.take_or_default("options")?;
    arguments.end()?;
    check_path(&arguments, "path", &path, Root::Refused)?;
    let offset = arguments.number("offset", options.offset, 0, SAFE_INTEGER_MAX)?;
    let length = arguments.number("length", options.length, 1, FILE_BYTES_MAX as u64)?;
    let asked = platform::WorkspaceRead {
        path,
        offset_bytes: offset.unwrap_or_default(),
        length_bytes_max: length.unwrap_or(FILE_BYTES_MAX as u64),
    };
    let reading = Reading::Bytes(options.encoding.unwrap_or_default());
    Ok(Question::reading(Asked::WorkspaceRead(asked), reading))
}

pub(super) fn write(mut arguments: Arguments) -> Result<Question, CallError> {
    let (path, content) = (
        arguments.take::<String>("path")?,
        arguments.take::<String>("content")?,
    );
    let options: WriteOptions = arguments.take_or_default("options")?;
    arguments.end()?;
    check_path(&arguments, "path", &path, Root::Refused)?;
    let encoding = options.encoding.unwrap_or_default();
    let content = arguments.bytes("content", content, encoding, FILE_BYTES_MAX)?;
    let mode = match options.mode.unwrap_or_default() {
        Mode::Replace => WireMode::Replace,
        Mode::Create => WireMode::Create,
        Mode::Append => WireMode::Append,
    };
    let asked = platform::WorkspaceWrite {
        path,
        content,
        mode: mode.into(),
    };
    Ok(Asked::WorkspaceWrite(asked).into())
}

pub(super) fn list(mut arguments: Arguments) -> Result<Question, CallError> {
    let path: String = arguments.take_or_default("path")?;
    let options: ListOptions = arguments.take_or_default("options")?;
    arguments.end()?;
    check_path(&arguments, "path", &path, Root::Allowed)?;
    let limit = arguments.number("limit", options.limit, 1, ENTRIES_MAX)?;
    let asked = platform::WorkspaceList {
        path,
        recursive: options.recursive.unwrap_or_default(),
        limit: limit.unwrap_or(ENTRIES),
    };
    Ok(Asked::WorkspaceList(asked).into())
}

pub(super) fn stat(mut arguments: Arguments) -> Result<Question, CallError> {
    let path: String = arguments.take_or_default("path")?;
    arguments.end()?;
    check_path(&arguments, "path", &path, Root::Allowed)?;
    Ok(Asked::WorkspaceStat(platform::WorkspaceStat { path }).into())
}

pub(super) fn remove(mut arguments: Arguments) -> Result<Question, CallError> {
    let path: String = arguments.take("path")?;
    let options: RemoveOptions = arguments.take_or_default("options")?;
    arguments.end()?;
    check_path(&arguments, "path", &path, Root::Refused)?;
    let recursive = options.recursive.unwrap_or_default();
    Ok(Asked::WorkspaceRemove(platform::WorkspaceRemove { path, recursive }).into())
}

pub(super) fn move_to(mut arguments: Arguments) -> Result<Question, CallError> {
    let (from, to) = (
        arguments.take::<String>("from")?,
        arguments.take::<String>("to")?,
    );
    let options: MoveOptions = arguments.take_or_default("options")?;
    arguments.end()?;
    check_path(&arguments, "from", &from, Root::Refused)?;
    check_path(&arguments, "to", &to, Root::Refused)?;
    let overwrite = options.overwrite.unwrap_or_default();
    Ok(Asked::WorkspaceMove(platform::WorkspaceMove {
        from,
        to,
        overwrite,
    })
    .into())
}

pub(super) fn file_value(file: platform::File, reading: &Reading) -> pipe::Value {
    let encoding = match reading {
        Reading::Bytes(encoding) => *encoding,
        _ => Encoding::default(),
    };
    let json = object([
        ("bodyEncoding", Some(encoding.name().into())),
        ("sizeBytes", Some(file.size_bytes.into())),
        ("modifiedAtMs", file.modified_at_ms.map(Value::from)),
    ]);
    pipe::Value {
        json: json.to_string(),
        body: Some(encoding.write(file.content)),
    }
}

pub(super) fn written_value(written: &platform::Written) -> Value {
    json!({ "sizeBytes": written.size_bytes })
}

pub(super) fn entries_value(entries: platform::Entries) -> Value {
    let more = entries.more;
    let entries: Vec<_> = entries.entries.into_iter().map(entry_value).collect();
    json!({ "entries": entries, "more": more })
}

pub(super) fn entry_value(entry: platform::Entry) -> Value {
    let kind = match entry.kind() {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Link => "link",
        Kind::Other | Kind::Unspecified => "other",
    };
    object([
        ("path", Some(entry.path.into())),
        ("kind", Some(kind.into())),
        ("sizeBytes", Some(entry.size_bytes.into())),
        ("modifiedAtMs", entry.modified_at_ms.map(Value::from)),
    ])
}
