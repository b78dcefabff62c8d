//! What the remote shell is given.
//!
//! The command line of a session is the same for every process: whatever the account's login shell is (`csh` and `fish` too), it
//! replaces itself by `/bin/sh`, which reads one line of its input and evaluates it. That line holds directory, environment and
//! arguments, so none of them shows in the machine's list of processes, and what follows it on the input is left for the program:
//! POSIX has `read` take no byte beyond the line. The shell is replaced by the program, so pid, group and exit are the program's own.

use crate::{Command, Stdio, Stream};

/// The command line of a session. Without `!`, newline and a quote inside the quotes every login shell reads it alike.
pub(super) const BOOTSTRAP: &str = r#"exec /bin/sh -c 'IFS= read -r l && eval "$l"' bulkhead"#;

/// The same in a terminal, which would show the line and cut it at 4,096 bytes, were it not made to pass bytes on first.
pub(super) const BOOTSTRAP_IN_TERMINAL: &str = concat!(
    r#"exec /bin/sh -c '_bh_t=$(stty -g) && stty raw -echo && echo bulkhead terminal && IFS= read -r l && "#,
    r#"stty "$_bh_t" && eval "$l"' bulkhead"#
);

/// The shell that serves the connection itself: it performs one line after the other, and ends when nobody writes any more.
pub(super) const CONTROL: &str =
    r#"exec /bin/sh -c 'echo bulkhead ready; while IFS= read -r l; do eval "$l"; done' bulkhead"#;
/// It performs lines now.
pub(super) const CONTROL_READY: &str = "bulkhead ready";

/// What begins the lines that are for us, before the program's own output.
pub(super) const MARK: &str = "bulkhead ";
/// The terminal passes bytes on.
pub(super) const TERMINAL_READY: &str = "bulkhead terminal";

/// The most that a command may be long, with its environment: what systems take at an exec, roughly.
const LINE_BYTES_MAX: usize = 2 << 20;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ScriptError {
    #[error("a command needs a program")]
    Empty,
    #[error("an argument, a variable or the directory holds a NUL")]
    Nul,
    #[error(
        "the variable {0:?} cannot be set over ssh, because a POSIX shell has no variables of such names"
    )]
    Name(String),
    #[error("arguments and environment are longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
}

/// What the remote shell answers before the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    Started { pid: u32 },
    NoDirectory,
    NotFound,
    NotExecutable,
}

impl Header {
    /// None where the line is not ours: a start-up file of the account has printed it.
    pub(super) fn parse(line: &str) -> Option<Self> {
        match line.trim_end().strip_prefix(MARK)? {
            "directory" => Some(Self::NoDirectory),
            "missing" => Some(Self::NotFound),
            "denied" => Some(Self::NotExecutable),
            rest => {
                let pid = rest.strip_prefix("pid ")?.parse().ok()?;
                Some(Self::Started { pid })
            }
        }
    }
}

/// The line that becomes the program.
pub(super) fn line(command: &Command) -> Result<String, ScriptError> {
    let program = command.argv.first().filter(|program| !program.is_empty());
    let program = program.ok_or(ScriptError::Empty)?;
    let mut line = Line::default();
    if let Some(dir) = &command.cwd {
        line.enter(dir)?;
    }
    line.find(program, command.env.get("PATH"))?;
    for (name, value) in &command.env {
        line.export(name, value)?;
    }
    line.push("echo \"bulkhead pid $$\"; exec");
    line.program(program)?;
    for argument in &command.argv[1..] {
        line.push(" ");
        line.quoted(argument)?;
    }
    line.redirect(command.stdio);
    line.finish()
}

/// A test of rights at a path, for the shell that serves the connection.
pub(super) fn access(path: &str, access: crate::Access) -> Result<String, ScriptError> {
    let mut line = Line::default();
    let tests = [
        (access.read, "-r"),
        (access.write, "-w"),
        (access.execute, "-x"),
    ];
    line.push(":");
    for (_, test) in tests.iter().filter(|(asked, _)| *asked) {
        line.push(" && test ");
        line.push(test);
        line.push(" ");
        line.quoted(&relative(path))?;
    }
    line.finish()
}

#[derive(Default)]
struct Line {
    text: String,
    has_newline: bool,
}

impl Line {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// In single quotes, in which only the quote itself and the newline, which would end the line, are special.
    fn quoted(&mut self, text: &str) -> Result<(), ScriptError> {
        self.text.push('\'');
        for character in text.chars() {
            match character {
                '\0' => return Err(ScriptError::Nul),
                '\'' => self.push(r"'\''"),
                '\n' => {
                    self.has_newline = true;
                    self.push("'\"$_bh_n\"'");
                }
                other => self.text.push(other),
            }
        }
        self.text.push('\'');
        if self.text.len() > LINE_BYTES_MAX {
            return Err(ScriptError::TooLong);
        }
        Ok(())
    }

    fn enter(&mut self, dir: &str) -> Result<(), ScriptError> {
        self.push("CDPATH= cd ");
        self.quoted(&relative(dir))?;
        self.push(" 2>/dev/null || { echo bulkhead directory; exit 125; }; unset OLDPWD; ");
        Ok(())
    }

    /// Looks before the exec, because a shell that cannot execute says it only to the program's reader.
    fn find(&mut self, program: &str, path: Option<&String>) -> Result<(), ScriptError> {
        if program.contains('/') {
            self.push("_bh_f=");
            self.quoted(&relative(program))?;
            self.push("; test -e \"$_bh_f\" || { echo bulkhead missing; exit 127; }; ");
            self.push("test -x \"$_bh_f\" && ! test -d \"$_bh_f\" || { echo bulkhead denied; exit 126; }; ");
            return Ok(());
        }
        self.push("_bh_c=");
        self.quoted(program)?;
        self.push("; _bh_p=");
        match path {
            Some(path) => self.quoted(path)?,
            None => self.push("$PATH"),
        }
        self.push("; _bh_f=; set -f; IFS=:; for _bh_d in $_bh_p; do ");
        self.push("test -f \"${_bh_d:-.}/$_bh_c\" && test -x \"${_bh_d:-.}/$_bh_c\" && ");
        self.push("{ _bh_f=${_bh_d:-.}/$_bh_c; break; }; done; unset IFS; set +f; ");
        self.push("test -n \"$_bh_f\" || { echo bulkhead missing; exit 127; }; ");
        Ok(())
    }

    fn export(&mut self, name: &str, value: &str) -> Result<(), ScriptError> {
        let mut characters = name.chars();
        let starts = characters
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
        if !starts || !characters.all(|rest| rest.is_ascii_alphanumeric() || rest == '_') {
            return Err(ScriptError::Name(name.to_owned()));
        }
        self.push("export ");
        self.push(name);
        self.push("=");
        self.quoted(value)?;
        self.push("; ");
        Ok(())
    }

    /// By the name that was asked for, which the program sees as its first argument.
    fn program(&mut self, program: &str) -> Result<(), ScriptError> {
        if program.starts_with('-') {
            self.push(" \"$_bh_f\"");
            return Ok(());
        }
        self.push(" ");
        self.quoted(program)
    }

    fn redirect(&mut self, stdio: Stdio) {
        let Stdio::Streams {
            stdin,
            stdout,
            stderr,
        } = stdio
        else {
            return;
        };
        for (stream, to) in [
            (stdin, " </dev/null"),
            (stdout, " >/dev/null"),
            (stderr, " 2>/dev/null"),
        ] {
            if stream == Stream::Null {
                self.push(to);
            }
        }
    }

    fn finish(self) -> Result<String, ScriptError> {
        let mut text = self.text;
        if self.has_newline {
            // A substitution drops newlines at its end, hence the letter after it.
            text.insert_str(0, r"_bh_n=$(printf '\nx'); _bh_n=${_bh_n%x}; ");
        }
        if text.len() > LINE_BYTES_MAX {
            return Err(ScriptError::TooLong);
        }
        text.push('\n');
        Ok(text)
    }
}

/// A path that no program takes for an option, and `cd` not for the directory before.
fn relative(path: &str) -> String {
    if path.starts_with('-') {
        format!("./{path}")
    } else {
        path.to_owned()
    }
}

/// Removes a socket that a forward has left, for the shell that serves the connection.
pub(super) fn remove(path: &str) -> Result<String, ScriptError> {
    let mut line = Line::default();
    let path = relative(path);
    line.push("test -S ");
    line.quoted(&path)?;
    line.push(" && rm -f ");
    line.quoted(&path)?;
    line.push(" 2>/dev/null");
    line.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h13_names_and_values_of_the_environment_are_not_on_the_command_line() {
        for line in [BOOTSTRAP, BOOTSTRAP_IN_TERMINAL, CONTROL] {
            assert_eq!(line.matches('\'').count(), 2, "{line}");
            assert!(!line.contains(['!', '\n']), "{line}");
        }
    }

    #[test]
    fn what_a_shell_cannot_do_is_refused() {
        let refused = |command: Command| line(&command).expect_err("it is refused");
        assert_eq!(refused(Command::new([] as [&str; 0])), ScriptError::Empty);
        assert_eq!(refused(Command::new(["a\0b"])), ScriptError::Nul);
        let name = refused(Command::new(["x"]).env("A-B", "1"));
        assert_eq!(name, ScriptError::Name("A-B".to_owned()));
        let long = refused(Command::new(["x".to_owned(), "y".repeat(3 << 20)]));
        assert_eq!(long, ScriptError::TooLong);
    }

    #[test]
    fn only_our_own_lines_are_answers() {
        assert_eq!(
            Header::parse("bulkhead pid 12\r"),
            Some(Header::Started { pid: 12 })
        );
        assert_eq!(Header::parse("bulkhead missing"), Some(Header::NotFound));
        for other in [
            "",
            "Welcome",
            "bulkhead pid x",
            "bulkhead",
            "x bulkhead pid 1",
        ] {
            assert_eq!(Header::parse(other), None, "{other:?}");
        }
    }
}
