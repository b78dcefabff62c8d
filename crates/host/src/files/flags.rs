//! Node's words for how a file is opened.

use std::str::FromStr;

use crate::OpenFlags;

/// What a file is opened for: Node's `r`, `r+`, `w`, `wx`, `w+`, `wx+`, `a`, `ax`, `a+`, `ax+`, and those with `s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags {
    pub open: OpenFlags,
    /// Whether every write waits until the data is on the disk (`s`).
    pub sync: Sync,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sync {
    #[default]
    Later,
    EachWrite,
}

/// There is no such word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no way to open a file: it is one of r, r+, rs+, w, wx, w+, wx+, a, ax, as, a+, ax+, as+"
)]
pub struct UnknownFlags(pub String);

impl Flags {
    pub const READ: Self = Self::of(OpenFlags {
        read: true,
        ..NOTHING
    });
    pub const READ_WRITE: Self = Self::of(OpenFlags {
        read: true,
        write: true,
        ..NOTHING
    });
    /// Makes the file or empties it.
    pub const WRITE: Self = Self::of(OpenFlags {
        write: true,
        create: true,
        truncate: true,
        ..NOTHING
    });
    pub const APPEND: Self = Self::of(OpenFlags {
        write: true,
        append: true,
        create: true,
        ..NOTHING
    });

    const fn of(open: OpenFlags) -> Self {
        Self {
            open,
            sync: Sync::Later,
        }
    }

    /// Fails where the file is there already (`x`).
    #[must_use]
    pub const fn exclusive(mut self) -> Self {
        self.open.exclusive = true;
        self
    }
}

const NOTHING: OpenFlags = OpenFlags {
    read: false,
    write: false,
    append: false,
    create: false,
    exclusive: false,
    truncate: false,
};

impl From<OpenFlags> for Flags {
    fn from(open: OpenFlags) -> Self {
        Self::of(open)
    }
}

impl FromStr for Flags {
    type Err = UnknownFlags;

    fn from_str(text: &str) -> Result<Self, UnknownFlags> {
        let mut flags = match text.chars().next() {
            Some('r') => Self::READ,
            Some('w') => Self::WRITE,
            Some('a') => Self::APPEND,
            _ => return Err(UnknownFlags(text.to_owned())),
        };
        // Node takes these letters in either order, and nothing else.
        match &text[1..] {
            "" => {}
            "+" => flags = flags.both(),
            "x" if !text.starts_with('r') => flags = flags.exclusive(),
            "x+" | "+x" if !text.starts_with('r') => flags = flags.both().exclusive(),
            "s" if !text.starts_with('w') => flags.sync = Sync::EachWrite,
            "s+" | "+s" if !text.starts_with('w') => {
                flags = flags.both();
                flags.sync = Sync::EachWrite;
            }
            _ => return Err(UnknownFlags(text.to_owned())),
        }
        Ok(flags)
    }
}

impl Flags {
    const fn both(mut self) -> Self {
        self.open.read = true;
        self.open.write = true;
        self
    }
}
