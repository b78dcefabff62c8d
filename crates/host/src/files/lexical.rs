//! Paths as text, as Node's module `path` takes them apart. Nothing here decides what may be reached.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Component, Path, PathBuf},
};

/// `dir/name`, whatever `name` begins with.
pub(super) fn child(dir: &Path, name: &OsStr) -> PathBuf {
    let mut bytes = dir.as_os_str().as_bytes().to_vec();
    if !bytes.ends_with(b"/") {
        bytes.push(b'/');
    }
    bytes.extend_from_slice(name.as_bytes());
    PathBuf::from(OsString::from_vec(bytes))
}

/// The same text followed by more.
pub(super) fn extended(path: &Path, more: &str) -> PathBuf {
    let mut text = path.as_os_str().to_owned();
    text.push(more);
    PathBuf::from(text)
}

/// Without `.`, `..` and doubled slashes.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => match normal.components().next_back() {
                Some(Component::Normal(_)) => {
                    normal.pop();
                }
                Some(Component::RootDir) => {}
                _ => normal.push(".."),
            },
            part => normal.push(part),
        }
    }
    if normal.as_os_str().is_empty() {
        normal.push(".");
    }
    normal
}

/// The path without its last part; of a single name, the directory `.`. Trailing slashes are no part.
pub(super) fn dirname(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let is_part = |byte: &u8| *byte != b'/';
    let Some(last) = bytes.iter().rposition(is_part) else {
        return PathBuf::from(if bytes.is_empty() { "." } else { "/" });
    };
    let Some(slash) = bytes[..=last].iter().rposition(|byte| *byte == b'/') else {
        return PathBuf::from(".");
    };
    let end = bytes[..=slash]
        .iter()
        .rposition(is_part)
        .map_or(1, |end| end + 1);
    PathBuf::from(OsStr::from_bytes(&bytes[..end]))
}

/// Whether the second path lies in the first one or is it, by their text.
pub(super) fn contains(dir: &Path, path: &Path) -> bool {
    normal(path).starts_with(normal(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h9_paths_are_taken_apart_as_node_does() {
        for (path, dir) in [
            ("/a/b", "/a"),
            ("/a/b/", "/a"),
            ("/a", "/"),
            ("/", "/"),
            ("a", "."),
            ("", "."),
            ("a//b", "a"),
        ] {
            assert_eq!(dirname(Path::new(path)), Path::new(dir), "{path}");
        }
        for (path, plain) in [
            ("/a/../b", "/b"),
            ("a/..", "."),
            ("/../a", "/a"),
            ("../a", "../a"),
            ("a/./b//c", "a/b/c"),
        ] {
            assert_eq!(normal(Path::new(path)), Path::new(plain), "{path}");
        }
        assert!(contains(Path::new("/a"), Path::new("/a/b")));
        assert!(!contains(Path::new("/a"), Path::new("/ab")));
        assert_eq!(child(Path::new("/"), OsStr::new("a")), Path::new("/a"));
    }
}
