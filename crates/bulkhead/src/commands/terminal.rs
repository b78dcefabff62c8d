//! The person's terminal, lent to a command in the sandbox: its own terminal is another one, inside; here bytes
//! are copied, unchanged in both directions, and the size follows.

use std::{
    io::{self, IsTerminal as _},
    os::fd::AsFd as _,
};

use bulkhead_sandbox::TerminalSize;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Whether a person's terminal is both our input and our output.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

pub(crate) fn size() -> TerminalSize {
    tcgetwinsize(io::stdin().as_fd()).map_or_else(
        |_| TerminalSize::default(),
        |size| TerminalSize {
            rows: size.ws_row,
            columns: size.ws_col,
        },
    )
}

/// The terminal hands on each key as it is, also Ctrl-C, until this is dropped.
pub(crate) struct RawMode(Termios);

impl RawMode {
    pub(crate) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin().as_fd())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin().as_fd(), OptionalActions::Now, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin().as_fd(), OptionalActions::Now, &self.0);
    }
}
