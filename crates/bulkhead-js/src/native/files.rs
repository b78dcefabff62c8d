//! The host's files: one function for the methods with promises, and one for their synchronous twins.

use std::{path::Path, rc::Rc, sync::Arc, time::Duration};

use bulkhead_engine::{Function, Thrown, Value, later, now};
use bulkhead_host::{
    CopyOptions, Existing, FileSystem, FsError, Links, Replace, RmOptions, WriteOptions,
};
use bytes::Bytes;

use super::{
    Held, Native, Style,
    arguments::{Arguments, name, path},
    file_values::{access, entry, flags, of_file, stat_value},
    open_files::{on_file, opening, stream_end, stream_write, watch_next},
    streams::Work,
};

pub(super) type Outcome = Result<Value, Thrown>;

pub(super) fn functions(native: &Rc<Native>) -> Vec<(&'static str, Function)> {
    let (with_promise, at_once, dropping) =
        (Rc::clone(native), Rc::clone(native), Rc::clone(native));
    let streaming = |run: fn(Arc<Held>, Arguments) -> Work| {
        let native = Rc::clone(native);
        later(move |values| {
            let work = run(Arc::clone(&native.held), Arguments::new(values));
            native.outside.begin(work)
        })
    };
    vec![
        (
            "fs",
            later(move |values| {
                let work = work(&with_promise, Style::Promise, values);
                let begun = work.map(|work| with_promise.outside.begin(work));
                async move { begun?.await }
            }),
        ),
        (
            "fsSync",
            now(move |values| {
                at_once
                    .outside
                    .wait(work(&at_once, Style::Synchronous, values)?)
            }),
        ),
        (
            "watchNext",
            streaming(|held, arguments| Box::pin(watch_next(held, arguments))),
        ),
        (
            "watchDrop",
            now(move |values| {
                dropping.held.watchers.remove(Arguments::new(values).u32()?);
                Ok(Value::Undefined)
            }),
        ),
        (
            "fileStreamWrite",
            streaming(|held, arguments| Box::pin(stream_write(held, arguments))),
        ),
        (
            "fileStreamEnd",
            streaming(|held, arguments| Box::pin(stream_end(held, arguments))),
        ),
    ]
}

/// What an operation does: `[name, …]`.
fn work(native: &Native, style: Style, values: Vec<Value>) -> Result<Work, Thrown> {
    let mut arguments = Arguments::new(values);
    let operation = arguments.text()?;
    let held = Arc::clone(&native.held);
    if let Some(of_file) = operation.strip_prefix("file") {
        let of_file = of_file.to_owned();
        return Ok(Box::pin(async move {
            on_file(&held, &of_file, arguments).await
        }));
    }
    let files = native.file_system(style)?;
    Ok(Box::pin(async move {
        match operation.as_str() {
            "open" | "openRead" | "openWrite" | "watch" => {
                opening(&files, &held, &operation, arguments).await
            }
            "readFile" | "writeFile" | "readdir" | "opendir" | "mkdir" | "mkdtemp" | "cp"
            | "copyFile" | "rm" => on_tree(&files, &operation, arguments).await,
            _ => on_path(&files, &operation, arguments).await,
        }
    }))
}

/// Operations that are one of the host's own.
async fn on_path(files: &FileSystem, operation: &str, mut arguments: Arguments) -> Outcome {
    let at = arguments.path()?;
    let done = match operation {
        "stat" => {
            return files
                .stat(&at)
                .await
                .map(|stat| stat_value(&stat))
                .map_err(of_file);
        }
        "lstat" => {
            return files
                .lstat(&at)
                .await
                .map(|stat| stat_value(&stat))
                .map_err(of_file);
        }
        "realpath" => {
            return files
                .realpath(&at)
                .await
                .map(|found| path(&found))
                .map_err(of_file);
        }
        "readlink" => {
            return files
                .readlink(&at)
                .await
                .map(|found| path(&found))
                .map_err(of_file);
        }
        "rmdir" => files.rmdir(&at).await,
        "unlink" => files.unlink(&at).await,
        "rename" => files.rename(&at, &arguments.path()?).await,
        "symlink" => files.symlink(&at, &arguments.path()?).await,
        "link" => files.link(&at, &arguments.path()?).await,
        "access" => files.access(&at, access(arguments.u32()?)).await,
        "truncate" => files.truncate(&at, arguments.u64()?).await,
        "chmod" => files.chmod(&at, arguments.u32()?).await,
        "chown" => files.chown(&at, arguments.u32()?, arguments.u32()?).await,
        "lchown" => files.lchown(&at, arguments.u32()?, arguments.u32()?).await,
        "utimes" => {
            files
                .utimes(&at, arguments.time()?, arguments.time()?)
                .await
        }
        "lutimes" => {
            files
                .lutimes(&at, arguments.time()?, arguments.time()?)
                .await
        }
        other => {
            return Err(Thrown::type_error(format!(
                "there is no file operation {other}"
            )));
        }
    };
    done.map(|()| Value::Undefined).map_err(of_file)
}

/// Operations that are made of several.
async fn on_tree(files: &FileSystem, operation: &str, mut arguments: Arguments) -> Outcome {
    let at = arguments.path()?;
    match operation {
        "readFile" => read_file(files, &at, &arguments.text()?).await,
        "writeFile" => write_file(files, &at, &mut arguments).await,
        "readdir" => {
            let is_typed = arguments.text()? == "entries";
            let list = readdir(files, &at, is_typed, arguments.flag()?).await;
            list.map_err(of_file)
        }
        "opendir" => {
            let (_, is_recursive) = (arguments.text()?, arguments.flag()?);
            opendir(files, &at, is_recursive).await.map_err(of_file)
        }
        "mkdir" => mkdir(files, &at, &mut arguments).await,
        "mkdtemp" => mkdtemp(files, &at).await.map_err(of_file),
        "copyFile" => {
            let to = arguments.path()?;
            let replace = if arguments.flag()? {
                Replace::No
            } else {
                Replace::Yes
            };
            unit(files.copy_file(&at, &to, replace).await)
        }
        "cp" => {
            let to = arguments.path()?;
            unit(files.cp(&at, &to, copy_options(&arguments.value())).await)
        }
        _ => unit(files.rm(&at, rm_options(&mut arguments)?).await),
    }
}

async fn write_file(files: &FileSystem, at: &Path, arguments: &mut Arguments) -> Outcome {
    let data = arguments.bytes()?;
    let options = WriteOptions {
        flags: flags(&arguments.text()?)?,
        permissions: arguments.u32()?,
        flush: arguments.flag()?,
    };
    unit(files.write_file(at, data, options).await)
}

/// The first directory that was made, where those above it may be.
async fn mkdir(files: &FileSystem, at: &Path, arguments: &mut Arguments) -> Outcome {
    let (is_recursive, mode) = (arguments.flag()?, arguments.u32()?);
    if is_recursive {
        let first = files.mkdir_recursive(at, mode).await.map_err(of_file)?;
        return Ok(first.map_or(Value::Null, |first| path(&first)));
    }
    files.mkdir(at, mode).await.map_err(of_file)?;
    Ok(Value::Null)
}

fn rm_options(arguments: &mut Arguments) -> Result<RmOptions, Thrown> {
    Ok(RmOptions {
        recursive: arguments.flag()?,
        force: arguments.flag()?,
        max_retries: arguments.u32()?,
        retry_delay: Duration::from_millis(arguments.u64()?),
    })
}

pub(super) fn unit(done: Result<(), FsError>) -> Outcome {
    done.map(|()| Value::Undefined).map_err(of_file)
}

async fn read_file(files: &FileSystem, at: &Path, word: &str) -> Outcome {
    let all = match word {
        "r" => files.read_file(at).await,
        word => {
            let handle = files.open(at, flags(word)?, 0o666).await.map_err(of_file)?;
            handle.read_file().await
        }
    };
    Ok(Value::Bytes(Bytes::from(all.map_err(of_file)?)))
}

async fn readdir(
    files: &FileSystem,
    at: &Path,
    is_typed: bool,
    is_recursive: bool,
) -> Result<Value, FsError> {
    let list = match (is_typed, is_recursive) {
        (false, false) => files
            .readdir(at)
            .await?
            .iter()
            .map(|found| name(found))
            .collect(),
        (false, true) => {
            let found = files.readdir_recursive(at).await?;
            found.iter().map(|found| path(found)).collect()
        }
        (true, false) => files
            .readdir_with_types(at)
            .await?
            .iter()
            .map(entry)
            .collect(),
        (true, true) => files
            .readdir_recursive_with_types(at)
            .await?
            .iter()
            .map(entry)
            .collect(),
    };
    Ok(Value::List(list))
}

async fn opendir(files: &FileSystem, at: &Path, is_recursive: bool) -> Result<Value, FsError> {
    let opened = files.opendir(at).await?;
    if is_recursive {
        return readdir(files, at, true, true).await;
    }
    Ok(Value::List(opened.map(|found| entry(&found)).collect()))
}

/// Node's error names the pattern and not the name that was tried.
async fn mkdtemp(files: &FileSystem, prefix: &Path) -> Result<Value, FsError> {
    let made = files.mkdtemp(prefix).await;
    made.map(|made| path(&made)).map_err(|mut error| {
        let mut pattern = prefix.as_os_str().to_owned();
        pattern.push("XXXXXX");
        error.path = Some(pattern.into());
        error
    })
}

fn copy_options(value: &Value) -> CopyOptions {
    let is_set = |name: &str| value.get(name).as_bool().unwrap_or_default();
    CopyOptions {
        recursive: is_set("recursive"),
        existing: match value.get("existing").as_str() {
            Some("keep") => Existing::Keep,
            Some("refuse") => Existing::Refuse,
            _ => Existing::Overwrite,
        },
        links: match value.get("links").as_str() {
            Some("follow") => Links::Follow,
            Some("verbatim") => Links::Verbatim,
            _ => Links::Resolve,
        },
        preserve_timestamps: is_set("preserveTimestamps"),
    }
}
