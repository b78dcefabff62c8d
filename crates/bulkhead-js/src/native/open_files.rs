//! Files that are open: handles, streams and watchers, by their numbers.

use std::sync::Arc;

use bulkhead_engine::{Thrown, Value};
use bulkhead_host::{ChangeKind, FileHandle, FileSystem, ReadStreamOptions, WriteStreamOptions};
use tokio::sync::Mutex;

use super::{
    Held,
    arguments::{Arguments, name, number},
    file_values::{flags, of_file, stat_value},
    files::{Outcome, unit},
};

/// The most that one read of an open file gives.
const MAX_READ: usize = 4 << 20;

pub(super) async fn opening(
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
pub(super) async fn on_file(held: &Held, operation: &str, mut arguments: Arguments) -> Outcome {
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
pub(super) async fn watch_next(held: Arc<Held>, mut arguments: Arguments) -> Outcome {
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

pub(super) async fn stream_write(held: Arc<Held>, mut arguments: Arguments) -> Outcome {
    let stream = held.file_streams.get(arguments.u32()?)?;
    let bytes = arguments.bytes()?;
    let mut stream = stream.lock().await;
    let open = stream
        .as_mut()
        .ok_or_else(|| Thrown::new("the stream has ended"))?;
    unit(open.write(bytes).await)
}

pub(super) async fn stream_end(held: Arc<Held>, mut arguments: Arguments) -> Outcome {
    let Some(stream) = held.file_streams.remove(arguments.u32()?) else {
        return Ok(Value::Undefined);
    };
    let open = stream.lock().await.take();
    match open {
        Some(open) => open.finish().await.map(number).map_err(of_file),
        None => Ok(Value::Undefined),
    }
}
