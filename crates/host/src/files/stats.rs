//! What Node's `Stats` and `Dirent` say, from a provider's answers.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use crate::{FileKind, Stat};

impl FileKind {
    /// The kind's bits in a mode.
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharacterDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::File => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
            Self::Unknown => 0,
        }
    }
}

impl Stat {
    /// Node's `mode`: kind and permissions in one number.
    pub const fn mode(&self) -> u32 {
        self.kind.mode_bits() | self.permissions
    }

    pub fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }

    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    pub fn is_symlink(&self) -> bool {
        self.kind == FileKind::Symlink
    }

    /// Whether both are of the very same file, as far as the provider can say that.
    pub(super) const fn is_same_file(&self, other: &Self) -> bool {
        self.inode != 0
            && self.device != 0
            && self.inode == other.inode
            && self.device == other.device
    }
}

/// A name in a directory with its kind, and where that directory is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirent {
    pub name: OsString,
    /// The directory as it was asked for.
    pub parent_path: PathBuf,
    pub kind: FileKind,
}

impl Dirent {
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    pub fn path(&self) -> PathBuf {
        self.parent_path.join(&self.name)
    }
}
