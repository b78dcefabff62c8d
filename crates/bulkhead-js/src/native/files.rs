//! The host's files: one function for the methods with promises, and one for their synchronous twins.

use std::{rc::Rc, sync::Arc, time::Duration, time::SystemTime};

use bulkhead_engine::{Function, Thrown, Value, later, now};
use bulkhead_host::{
    Access, ChangeKind, CopyOptions, Dirent, Existing, FileHandle, FileKind, FileSystem, Flags,
    FsError, Links, ReadStreamOptions, Replace, RmOptions, Stat, WriteOptions, WriteStreamOptions,
};
use bytes::Bytes;
use tokio::sync::Mutex;

use super::{
    Held, Native,
    arguments::{Arguments, name, number, path},
    streams::Work,
};

type Outcome = Result<Value, Thrown>;

/// The most that one read of an open file gives.
const MAX_READ: usize = 4 << 20;

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
                let work = work(&with_promise, values);
                let begun = work.map(|work| with_promise.outside.begin(work));
                async move { begun?.await }
            }),
        ),
        (
            "fsSync",
            now(move |values| at_once.outside.wait(work(&at_once, values)?)),
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
fn work(native: &Native, values: Vec<Value>) -> Result<Work, Thrown> {
    let mut arguments = Arguments::new(values);
    let operation = arguments.text()?;
    let held = Arc::clone(&native.held);
    if let Some(of_file) = operation.strip_prefix("file") {
        let of_file = of_file.to_owned();
        return Ok(Box::pin(async move {
            on_file(&held, &of_file, arguments).await
        }));
    }
    let files = FileSystem::new(native.host()?.files());
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
        "writeFile" => {
            let data = arguments.bytes()?;
            let options = WriteOptions {
                flags: flags(&arguments.text()?)?,
                permissions: arguments.u32()?,
                flush: arguments.flag()?,
            };
            unit(files.write_file(&at, data, options).await)
        }
        "readdir" => {
            let is_typed = arguments.text()? == "entries";
            readdir(files, &at, is_typed, arguments.flag()?)
                .await
                .map_err(of_file)
        }
        "opendir" => {
            let (_, is_recursive) = (arguments.text()?, arguments.flag()?);
            opendir(files, &at, is_recursive).await.map_err(of_file)
        }
        "mkdir" => {
            let (is_recursive, mode) = (arguments.flag()?, arguments.u32()?);
            if is_recursive {
                let first = files.mkdir_recursive(&at, mode).await.map_err(of_file)?;
                return Ok(first.map_or(Value::Null, |first| path(&first)));
            }
            files.mkdir(&at, mode).await.map_err(of_file)?;
            Ok(Value::Null)
        }
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
        _ => {
            let options = RmOptions {
                recursive: arguments.flag()?,
                force: arguments.flag()?,
                max_retries: arguments.u32()?,
                retry_delay: Duration::from_millis(arguments.u64()?),
            };
            unit(files.rm(&at, options).await)
        }
    }
}

fn unit(done: Result<(), FsError>) -> Outcome {
    done.map(|()| Value::Undefined).map_err(of_file)
}

async fn read_file(files: &FileSystem, at: &std::path::Path, word: &str) -> Outcome {
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
    at: &std::path::Path,
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

async fn opendir(
    files: &FileSystem,
    at: &std::path::Path,
    is_recursive: bool,
) -> Result<Value, FsError> {
    let opened = files.opendir(at).await?;
    if is_recursive {
        return readdir(files, at, true, true).await;
    }
    Ok(Value::List(opened.map(|found| entry(&found)).collect()))
}

/// Node's error names the pattern and not the name that was tried.
async fn mkdtemp(files: &FileSystem, prefix: &std::path::Path) -> Result<Value, FsError> {
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

async fn opening(
    files: &FileSystem,
    held: &Held,
    operation: &str,
    mut arguments: Arguments,
) -> Outcome {
    let at = arguments.path()?;
    let number = match operation {
        "open" => {
            let (flags, mode) = (flags(&arguments.text()?)?, arguments.u32()?);
            let handle = files.open(&at, flags, mode).await.map_err(of_file)?;
            held.files.insert(Arc::new(handle))?
        }
        "openRead" => {
            let options = ReadStreamOptions {
                start: arguments.maybe_u64()?,
                end: arguments.maybe_u64()?,
                high_water_mark_bytes: arguments.usize()?.clamp(1, MAX_READ),
            };
            let stream = files
                .create_read_stream(&at, options)
                .await
                .map_err(of_file)?;
            return held.add_reader(Box::new(stream.into_reader()));
        }
        "openWrite" => {
            let options = WriteStreamOptions {
                flags: flags(&arguments.text()?)?,
                permissions: arguments.u32()?,
                start: arguments.maybe_u64()?,
                flush: arguments.flag()?,
            };
            let stream = files
                .create_write_stream(&at, options)
                .await
                .map_err(of_file)?;
            held.file_streams
                .insert(Arc::new(Mutex::new(Some(stream))))?
        }
        _ => {
            let watcher = files.watch(&at).await.map_err(of_file)?;
            held.watchers.insert(Arc::new(Mutex::new(watcher)))?
        }
    };
    Ok(Value::Number(number.into()))
}

/// Operations on an open file, whose number comes first.
async fn on_file(held: &Held, operation: &str, mut arguments: Arguments) -> Outcome {
    let id = arguments.u32()?;
    if operation == "Close" {
        return close(held.files.take(id).map_err(|_| not_open("close"))?).await;
    }
    let file = held.files.get(id);
    let file: Arc<FileHandle> = file.map_err(|_| not_open(syscall(operation)))?;
    let done = match operation {
        "Read" => {
            let (len, position) = (arguments.usize()?.min(MAX_READ), arguments.maybe_u64()?);
            return file
                .read(len, position)
                .await
                .map(Value::Bytes)
                .map_err(of_file);
        }
        "Write" => {
            let (data, position) = (arguments.bytes()?, arguments.maybe_u64()?);
            let written = file.write(data, position).await.map_err(of_file)?;
            return Ok(number(written as u64));
        }
        "Stat" => {
            return file
                .stat()
                .await
                .map(|stat| stat_value(&stat))
                .map_err(of_file);
        }
        "Truncate" => file.truncate(arguments.u64()?).await,
        "Chmod" => file.chmod(arguments.u32()?).await,
        "Chown" => file.chown(arguments.u32()?, arguments.u32()?).await,
        "Utimes" => file.utimes(arguments.time()?, arguments.time()?).await,
        "Sync" => file.sync().await,
        _ => file.datasync().await,
    };
    unit(done)
}

/// Node's name of the system call on an open file.
fn syscall(operation: &str) -> &'static str {
    match operation {
        "Read" => "read",
        "Write" => "write",
        "Stat" => "fstat",
        "Truncate" => "ftruncate",
        "Chmod" => "fchmod",
        "Chown" => "fchown",
        "Utimes" => "futime",
        "Sync" => "fsync",
        _ => "fdatasync",
    }
}

fn not_open(syscall: &str) -> Thrown {
    Thrown::new(format!("EBADF: bad file descriptor, {syscall}"))
        .with("errno", Value::Number(-9.0))
        .with("code", "EBADF".into())
        .with("syscall", syscall.into())
}

/// Closes the file once nothing else uses it, which says whether all that was written has arrived.
async fn close(file: Arc<FileHandle>) -> Outcome {
    match Arc::try_unwrap(file) {
        Ok(file) => unit(file.close().await),
        // What is still under way closes it when it is done.
        Err(_) => Ok(Value::Undefined),
    }
}

/// The next change; null where the watching has ended.
async fn watch_next(held: Arc<Held>, mut arguments: Arguments) -> Outcome {
    let Ok(watcher) = held.watchers.get(arguments.u32()?) else {
        return Ok(Value::Null);
    };
    let change = watcher.lock().await.next().await;
    let Some(change) = change.transpose().map_err(of_file)? else {
        return Ok(Value::Null);
    };
    let kind = match change.kind {
        ChangeKind::Rename => "rename",
        ChangeKind::Change => "change",
    };
    Ok(Value::object([
        ("kind", kind.into()),
        ("name", name(&change.name)),
    ]))
}

async fn stream_write(held: Arc<Held>, mut arguments: Arguments) -> Outcome {
    let stream = held.file_streams.get(arguments.u32()?)?;
    let bytes = arguments.bytes()?;
    let mut stream = stream.lock().await;
    let open = stream
        .as_mut()
        .ok_or_else(|| Thrown::new("the stream has ended"))?;
    unit(open.write(bytes).await)
}

async fn stream_end(held: Arc<Held>, mut arguments: Arguments) -> Outcome {
    let Some(stream) = held.file_streams.remove(arguments.u32()?) else {
        return Ok(Value::Undefined);
    };
    let open = stream.lock().await.take();
    match open {
        Some(open) => open.finish().await.map(number).map_err(of_file),
        None => Ok(Value::Undefined),
    }
}

fn flags(word: &str) -> Result<Flags, Thrown> {
    word.parse().map_err(|error: bulkhead_host::UnknownFlags| {
        Thrown::type_error(error.to_string()).with("code", "ERR_INVALID_ARG_VALUE".into())
    })
}

/// The bits of `access(2)`.
const fn access(mode: u32) -> Access {
    Access {
        read: mode & 4 != 0,
        write: mode & 2 != 0,
        execute: mode & 1 != 0,
    }
}

fn kind(kind: FileKind) -> Value {
    let word = match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharacterDevice => "characterDevice",
        FileKind::BlockDevice => "blockDevice",
        FileKind::Unknown => "unknown",
    };
    word.into()
}

fn entry(entry: &Dirent) -> Value {
    Value::List(vec![
        name(&entry.name),
        path(&entry.parent_path),
        kind(entry.kind),
    ])
}

fn stat_value(stat: &Stat) -> Value {
    let born = stat.born.unwrap_or(stat.changed);
    Value::object([
        ("kind", kind(stat.kind)),
        ("permissions", Value::Number(stat.permissions.into())),
        ("uid", Value::Number(stat.uid.into())),
        ("gid", Value::Number(stat.gid.into())),
        ("size", whole(stat.size)),
        ("dev", whole(stat.device)),
        ("ino", whole(stat.inode)),
        ("nlink", whole(stat.links)),
        ("rdev", whole(stat.special_device)),
        ("blksize", whole(stat.block_size)),
        ("blocks", whole(stat.blocks)),
        ("atime", nanoseconds(stat.accessed)),
        ("mtime", nanoseconds(stat.modified)),
        ("ctime", nanoseconds(stat.changed)),
        ("birthtime", nanoseconds(born)),
    ])
}

/// An integer in full, for those who ask for `bigint`.
fn whole(value: u64) -> Value {
    Value::BigInt(i64::try_from(value).unwrap_or(i64::MAX))
}

fn nanoseconds(time: SystemTime) -> Value {
    let nanos = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    Value::BigInt(match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => nanos(after),
        Err(before) => -nanos(before.duration()),
    })
}

fn of_file(error: FsError) -> Thrown {
    let mut thrown = Thrown::new(error.to_string())
        .with("errno", Value::Number(error.number().into()))
        .with("code", error.name().into())
        .with("syscall", error.syscall.into());
    for (name, path) in [("path", &error.path), ("dest", &error.dest)] {
        if let Some(path) = path {
            thrown = thrown.with(name, path.to_string_lossy().into_owned().into());
        }
    }
    thrown
}
