//! Starting a zygote, and the words on its command line.

use std::{
    io,
    path::Path,
    process::{Command, Stdio},
};

use crate::control::{self, Control};

/// The argument of `bulkhead-js` that makes it a zygote.
pub const MODE: &str = "zygote";

/// Where an invocation's isolate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolate {
    /// The zygote makes one and never runs a plugin in it; each fork has a copy.
    Ready,
    /// Each process makes its own.
    Child,
}

/// Whether a guest carries out raw system calls when it is told to: only for the test that nothing comes of them.
/// A release build refuses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestHooks {
    Absent,
    Present,
}

/// What a zygote is told at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// V8's heap limit. The memory group, which is the caller's, is larger by what is not in the heap.
    pub memory_mib: u32,
    pub isolate: Isolate,
    pub test_hooks: TestHooks,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "usage: zygote --memory-mib N --isolate ready|child   (the broker's socket is its standard input)"
)]
pub struct Usage;

impl Options {
    /// The words after the program's name.
    pub fn arguments(&self) -> Vec<String> {
        let isolate = match self.isolate {
            Isolate::Ready => "ready",
            Isolate::Child => "child",
        };
        let memory = self.memory_mib.to_string();
        let mut words = vec![MODE, "--memory-mib", &memory, "--isolate", isolate];
        if self.test_hooks == TestHooks::Present {
            words.push("--test-hooks");
        }
        words.into_iter().map(str::to_owned).collect()
    }

    /// From the words after [`MODE`].
    pub fn parse(words: &[&str]) -> Result<Self, Usage> {
        let (words, test_hooks) = match words {
            [words @ .., "--test-hooks"] if cfg!(debug_assertions) => (words, TestHooks::Present),
            words => (words, TestHooks::Absent),
        };
        let ["--memory-mib", memory, "--isolate", isolate] = words else {
            return Err(Usage);
        };
        Ok(Self {
            memory_mib: memory.parse().map_err(|_| Usage)?,
            isolate: match *isolate {
                "ready" => Isolate::Ready,
                "child" => Isolate::Child,
                _ => return Err(Usage),
            },
            test_hooks,
        })
    }
}

/// A zygote that was started. It says [`control::Event::Ready`], or its process ends: with code 3 where this machine cannot
/// build a wall, and with the reason and the remedy on its standard error.
#[derive(Debug)]
pub struct Launched {
    /// Dropping it ends the zygote and all that it forked.
    pub control: Control,
    /// To be waited for after the conversation's end.
    pub process: std::process::Child,
}

/// Starts `program` (`bulkhead-js`) as a zygote. It gets nothing of this process's environment.
pub fn launch(program: &Path, options: &Options, stderr: Stdio) -> io::Result<Launched> {
    let (control, theirs) = control::pair()?;
    let process = Command::new(program)
        .args(options.arguments())
        .env_clear()
        .stdin(theirs.into_socket())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()?;
    Ok(Launched { control, process })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests {
    use super::*;

    /// D8: a zygote understands the words that the broker starts it with, and no others.
    #[test]
    fn d8_options_survive_the_command_line() {
        for isolate in [Isolate::Ready, Isolate::Child] {
            for test_hooks in [TestHooks::Absent, TestHooks::Present] {
                let options = Options {
                    memory_mib: 128,
                    isolate,
                    test_hooks,
                };
                let words = options.arguments();
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                assert_eq!(words[0], MODE);
                assert_eq!(Options::parse(&words[1..]).unwrap(), options);
            }
        }
        let ready = ["--memory-mib", "1", "--isolate", "ready", "--more"];
        Options::parse(&ready).unwrap_err();
        Options::parse(&["--memory-mib", "x", "--isolate", "ready"]).unwrap_err();
        Options::parse(&["--memory-mib", "1", "--isolate", "none"]).unwrap_err();
    }
}
