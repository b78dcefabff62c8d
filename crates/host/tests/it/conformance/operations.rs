//! The recorder's operations, performed by a host's file system.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bulkhead_host::{
    Access, CopyOptions, Dirent, Existing, FileHandle, FileKind, FileSystem, Flags, FsError,
    Replace, RmOptions, Stat, WriteOptions,
};
use serde_json::{Value, json};

type Answer = Result<Value, FsError>;

/// Whose files they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    uid: u32,
    gid: u32,
}

impl Owner {
    pub(super) const fn of(stat: &Stat) -> Self {
        Self {
            uid: stat.uid,
            gid: stat.gid,
        }
    }
}

const NAMED: [&str; 27] = [
    "", ".", "..", "one", "two", "sub", "deep", "three", "inside", "x", "dir", "empty", "full",
    "closed", "locked", "file", "blank", "secret", "fixed", "link", "dirlink", "dangling", "loop",
    "fifo", "missing", "new", "nowhere",
];

/// A name without what `mkdtemp` has added to it.
pub(super) fn without_random(name: &str) -> String {
    let known = |name: &str| NAMED.contains(&name);
    match name.len().checked_sub(6).and_then(|at| name.get(..at)) {
        Some(prefix) if !known(name) && known(prefix) => format!("{prefix}XXXXXX"),
        _ => name.to_owned(),
    }
}

/// Makes a name free again that a case may have used outside its tree.
pub(super) async fn clear(files: &FileSystem, path: &Path) {
    let all = RmOptions {
        recursive: true,
        force: true,
        ..RmOptions::default()
    };
    files.rm(path, all).await.unwrap();
}

/// One case, by the recorder's name for it. What of the answer is compared is what the recorder shows.
pub(super) async fn perform(files: &FileSystem, op: &str, args: &[Value], owner: Owner) -> Answer {
    let path = Path::new(args[0].as_str().unwrap());
    let word = args.get(1).and_then(Value::as_str).unwrap_or_default();
    if let Some(answer) = on_two_paths(files, op, path, Path::new(word)).await {
        return answer;
    }
    match op {
        "handle" => on_handle(files, path, word, args[2].as_str().unwrap(), owner).await,
        "open" => {
            let handle = files
                .open(path, word.parse::<Flags>().unwrap(), 0o666)
                .await?;
            nothing(handle.close().await)
        }
        "access" => nothing(files.access(path, access(word)).await),
        "truncate" => nothing(files.truncate(path, args[1].as_u64().unwrap()).await),
        "writeFileWith" => {
            let options = WriteOptions::with(word.parse().unwrap());
            nothing(files.write_file(path, "written", options).await)
        }
        _ => match changing(files, op, path, owner).await {
            Some(answer) => nothing(answer),
            None => looking(files, op, path).await,
        },
    }
}

async fn on_two_paths(files: &FileSystem, op: &str, from: &Path, to: &Path) -> Option<Answer> {
    let copied = |recursive, existing| CopyOptions {
        recursive,
        existing,
        ..CopyOptions::default()
    };
    let done = match op {
        "rename" => files.rename(from, to).await,
        "link" => files.link(from, to).await,
        "symlink" => files.symlink(from, to).await,
        "copyFile" => files.copy_file(from, to, Replace::Yes).await,
        "copyFileExcl" => files.copy_file(from, to, Replace::No).await,
        "cp" => files.cp(from, to, copied(false, Existing::Overwrite)).await,
        "cpRecursive" => files.cp(from, to, copied(true, Existing::Overwrite)).await,
        "cpStrict" => files.cp(from, to, copied(true, Existing::Refuse)).await,
        _ => return None,
    };
    Some(nothing(done))
}

async fn changing(
    files: &FileSystem,
    op: &str,
    path: &Path,
    owner: Owner,
) -> Option<Result<(), FsError>> {
    let (then, later) = times();
    let rm = |recursive, force| RmOptions {
        recursive,
        force,
        ..RmOptions::default()
    };
    Some(match op {
        "writeFile" => files.write_file(path, "written", WriteOptions::WRITE).await,
        "appendFile" => files.append_file(path, "more").await,
        "mkdir" => files.mkdir(path, 0o777).await,
        "rmdir" => files.rmdir(path).await,
        "unlink" => files.unlink(path).await,
        "rm" => files.rm(path, rm(false, false)).await,
        "rmForce" => files.rm(path, rm(false, true)).await,
        "rmRecursive" => files.rm(path, rm(true, false)).await,
        "rmBoth" => files.rm(path, rm(true, true)).await,
        "chmod" => files.chmod(path, 0o700).await,
        "chown" => files.chown(path, owner.uid, owner.gid).await,
        "chownAway" => files.chown(path, 1, 1).await,
        "lchown" => files.lchown(path, owner.uid, owner.gid).await,
        "utimes" => files.utimes(path, then, later).await,
        "lutimes" => files.lutimes(path, then, later).await,
        "watch" => files.watch(path).await.map(drop),
        _ => return None,
    })
}

async fn looking(files: &FileSystem, op: &str, path: &Path) -> Answer {
    Ok(match op {
        "readFile" => text(&files.read_file(path).await?),
        "stat" => shown(&files.stat(path).await?),
        "lstat" => shown(&files.lstat(path).await?),
        "readdir" => {
            let names = files.readdir(path).await?;
            sorted(names.iter().map(|name| name.to_str().unwrap().to_owned()))
        }
        "readdirRecursive" => {
            let names = files.readdir_recursive(path).await?;
            sorted(names.iter().map(|name| name.to_str().unwrap().to_owned()))
        }
        "readdirWithFileTypes" => entries(files.readdir_with_types(path).await?),
        "readdirBoth" => entries(files.readdir_recursive_with_types(path).await?),
        "opendir" => entries(files.opendir(path).await?),
        "mkdirRecursive" => match files.mkdir_recursive(path, 0o777).await? {
            Some(first) => json!(first.to_str().unwrap()),
            None => json!("nothing"),
        },
        "mkdtemp" => json!(files.mkdtemp(path).await?.to_str().unwrap()),
        "realpath" => json!(files.realpath(path).await?.to_str().unwrap()),
        "readlink" => json!(files.readlink(path).await?.to_str().unwrap()),
        "exists" => json!(files.exists(path).await),
        other => panic!("{other} is not known here"),
    })
}

async fn on_handle(
    files: &FileSystem,
    path: &Path,
    flags: &str,
    what: &str,
    owner: Owner,
) -> Answer {
    let handle = files
        .open(path, flags.parse::<Flags>().unwrap(), 0o666)
        .await?;
    let done = match what {
        "read" | "readTwice" | "readFile" => read(&handle, what).await,
        "stat" => handle.stat().await.map(|stat| shown(&stat)),
        "write" => handle.write("written".into(), None).await.map(Value::from),
        _ => nothing(change(&handle, what, owner).await),
    };
    handle.close().await?;
    done
}

async fn read(handle: &FileHandle, how: &str) -> Answer {
    match how {
        "read" => Ok(text(&handle.read(16, None).await?)),
        "readFile" => {
            handle.read(2, None).await?;
            Ok(text(&handle.read_file().await?))
        }
        _ => {
            let first = handle.read(3, None).await?;
            let at = handle.read(3, Some(1)).await?;
            let second = handle.read(3, None).await?;
            Ok(text(&[&first[..], &at[..], &second[..]].join(&b'|')))
        }
    }
}

async fn change(handle: &FileHandle, what: &str, owner: Owner) -> Result<(), FsError> {
    let (then, later) = times();
    match what {
        "writeTwice" => {
            handle.write("one".into(), None).await?;
            handle.write("X".into(), Some(0)).await?;
            handle.write("two".into(), None).await?;
            handle.sync().await
        }
        "writeFile" => handle.write_file("all").await,
        "appendFile" => handle.append_file("all").await,
        "truncate" => handle.truncate(3).await,
        "grow" => handle.truncate(20).await,
        "chmod" => handle.chmod(0o750).await,
        "chown" => handle.chown(owner.uid, owner.gid).await,
        "chownAway" => handle.chown(1, 1).await,
        "utimes" => handle.utimes(then, later).await,
        "sync" => handle.sync().await,
        "datasync" => handle.datasync().await,
        other => panic!("{other} is not known here"),
    }
}

fn times() -> (SystemTime, SystemTime) {
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    (at(1000), at(2000))
}

fn access(word: &str) -> Access {
    Access {
        read: word == "R",
        write: word == "W",
        execute: word == "X",
    }
}

fn nothing(done: Result<(), FsError>) -> Answer {
    done.map(|()| Value::Null)
}

fn text(bytes: &[u8]) -> Value {
    json!(String::from_utf8_lossy(bytes))
}

fn sorted(list: impl IntoIterator<Item = String>) -> Value {
    let mut list: Vec<String> = list.into_iter().collect();
    list.sort();
    json!(list)
}

fn entries(list: impl IntoIterator<Item = Dirent>) -> Value {
    sorted(list.into_iter().map(|entry| {
        let (parent, name) = (entry.parent_path.display(), entry.name.to_str().unwrap());
        format!("{} {parent} {name}", kind(entry.kind))
    }))
}

fn shown(stat: &Stat) -> Value {
    let mut shown = json!({"kind": kind(stat.kind), "permissions": stat.permissions});
    if !stat.is_directory() {
        shown["size"] = stat.size.into();
    }
    shown
}

pub(super) const fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharacterDevice => "character",
        FileKind::BlockDevice => "block",
        FileKind::Unknown => "unknown",
    }
}
