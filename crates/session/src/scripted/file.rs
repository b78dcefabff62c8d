//! The file of steps.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_saphyr::Spanned;

/// The most bytes of a file of steps.
const MAX_FILE: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error("reading the steps in {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the file {path} is larger than the limit of {MAX_FILE} bytes")]
    TooLarge { path: PathBuf },
    #[error("the steps in {path} are not understood")]
    Parse {
        path: PathBuf,
        #[source]
        source: Box<serde_saphyr::Error>,
    },
}

/// What the agent does on each prompt.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    pub(super) steps: Vec<Spanned<Step>>,
    /// Where the conversation is kept, relative to the session's working directory; none forgets it.
    #[serde(default)]
    pub(super) remember: Option<PathBuf>,
}

/// One thing that the agent does. Sizes are in bytes, times in milliseconds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    Say(String),
    Think(String),
    Plan(Vec<String>),
    Write(FileText),
    Append(FileText),
    Delete(String),
    /// A line for the shell; another exit code than 0 fails the turn.
    Run(String),
    /// The same, where the exit code does not matter.
    Try(String),
    SleepMs(u64),
    /// Asks for permission; the turn fails where it is refused.
    Ask(String),
    /// The conversation goes on in another mode.
    Mode(String),
    Usage(UsageStep),
    /// The turn fails with these words.
    Fail(String),
    /// The turn ends early with this stop reason, for example `refusal`.
    Stop(String),
    /// The process exits with this code, with no further word.
    Exit(u8),
    /// Never goes on. Listens for a cancel, unless told not to.
    Hang(Always),
    IgnoreCancel(Always),
    /// Stays alive after the client has closed its side (case 23).
    IgnoreEof(Always),
    /// Says this many bytes in lines of 1 KiB.
    FloodBytes(u64),
    /// Writes one line of this many bytes that is no message at all (case 63).
    OversizeLineBytes(u64),
    /// Writes this line to standard output as it is.
    Raw(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileText {
    /// Relative to the session's working directory.
    pub path: String,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageStep {
    pub tokens: u64,
    #[serde(default)]
    pub cost_usd: Option<f64>,
}

/// The value of a step that needs none: `true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "bool")]
pub struct Always;

impl TryFrom<bool> for Always {
    type Error = &'static str;

    fn try_from(value: bool) -> Result<Self, Self::Error> {
        if value {
            Ok(Self)
        } else {
            Err("leave the step out, or say `true`")
        }
    }
}

impl Step {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Say(_) => "say",
            Self::Think(_) => "think",
            Self::Plan(_) => "plan",
            Self::Write(_) => "write",
            Self::Append(_) => "append",
            Self::Delete(_) => "delete",
            Self::Run(_) => "run",
            Self::Try(_) => "try",
            Self::SleepMs(_) => "sleep_ms",
            Self::Ask(_) => "ask",
            Self::Mode(_) => "mode",
            Self::Usage(_) => "usage",
            Self::Fail(_) => "fail",
            Self::Stop(_) => "stop",
            Self::Exit(_) => "exit",
            Self::Hang(_) => "hang",
            Self::IgnoreCancel(_) => "ignore_cancel",
            Self::IgnoreEof(_) => "ignore_eof",
            Self::FloodBytes(_) => "flood_bytes",
            Self::OversizeLineBytes(_) => "oversize_line_bytes",
            Self::Raw(_) => "raw",
        }
    }
}

impl Script {
    pub(super) async fn read(path: &Path) -> Result<Self, ScriptError> {
        let read = async {
            let size = tokio::fs::metadata(path).await?.len();
            let text = if size <= MAX_FILE {
                Some(tokio::fs::read_to_string(path).await?)
            } else {
                None
            };
            Ok(text)
        };
        let path = path.to_owned();
        match read.await {
            Ok(Some(text)) => serde_saphyr::from_str(&text).map_err(|error| ScriptError::Parse {
                path,
                source: Box::new(error),
            }),
            Ok(None) => Err(ScriptError::TooLarge { path }),
            Err(source) => Err(ScriptError::Read { path, source }),
        }
    }
}
