//! What one invocation may use (P20), as one function of what it is and what it holds.

use std::time::Duration;

use super::InvocationKind;

/// Whoever holds it converts media, which takes longer and more memory.
pub const PERMISSION_TRANSCODE: &str = "host:media:transcode";

const MIB: u64 = 1 << 20;

/// The least wall clock of an invocation that converts media.
const TRANSCODE_WALL: Duration = Duration::from_secs(60);
/// How long a connection over ssh may take before the first command.
const SSH_CONNECT: Duration = Duration::from_secs(15);
const SSH_COMMAND_DEFAULT: Duration = Duration::from_secs(60);
const SSH_COMMAND_MAX: Duration = Duration::from_secs(90);
const SSH_COMMANDS_MAX: usize = 10;
const SSH_WALL_MAX: Duration = Duration::from_secs(15 * 60);
/// A message with attachments, whatever their number.
const RECEIVE_WITH_ATTACHMENTS_WALL: Duration = Duration::from_secs(25);
const FETCH: Duration = Duration::from_secs(10);
const FETCH_ATTACHMENT: Duration = Duration::from_secs(15);
const RESULT_BYTES: u64 = 4 * MIB;

/// How much memory an invocation has. There are few sizes, because processes of each stand ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryClass {
    Normal,
    Media,
}

impl MemoryClass {
    pub const ALL: [Self; 2] = [Self::Normal, Self::Media];

    /// What the author is told, and V8's limit for its heap.
    pub const fn limit_bytes(self) -> u64 {
        match self {
            Self::Normal => 128 * MIB,
            Self::Media => 512 * MIB,
        }
    }

    /// What the kernel lets the process have altogether: its own needs are not the plugin's.
    pub const fn group_bytes(self) -> u64 {
        self.limit_bytes() + 32 * MIB
    }

    pub const fn limit_mib(self) -> u32 {
        match self {
            Self::Normal => 128,
            Self::Media => 512,
        }
    }
}

/// What beside its kind sets the limits of an invocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demands {
    /// It holds [`PERMISSION_TRANSCODE`].
    pub transcodes: Transcodes,
    /// The time-outs of the commands that an ssh hook declares; zero means the default.
    pub ssh_commands: Vec<Duration>,
    /// How many attachments a channel's receive fetches.
    pub attachments: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Transcodes {
    #[default]
    No,
    Yes,
}

impl Demands {
    pub fn transcoding(permissions: &[String]) -> Transcodes {
        if permissions.iter().any(|held| held == PERMISSION_TRANSCODE) {
            Transcodes::Yes
        } else {
            Transcodes::No
        }
    }
}

/// Lower limits that a caller asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lower {
    pub wall: Option<Duration>,
    pub result_bytes: Option<u64>,
}

/// What one invocation may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvocationLimits {
    /// From when the process is given its work; waiting counts.
    pub wall: Duration,
    pub memory: MemoryClass,
    pub result_bytes: u64,
    /// Of each request of `host.fetch`, from the name's resolution to the body's last byte.
    pub fetch: Duration,
}

impl InvocationLimits {
    pub fn of(kind: InvocationKind, demands: &Demands) -> Self {
        let mut limits = Self {
            wall: kind.wall(),
            memory: MemoryClass::Normal,
            result_bytes: RESULT_BYTES,
            fetch: FETCH,
        };
        if kind == InvocationKind::ChannelReceive && demands.attachments > 0 {
            limits.wall = RECEIVE_WITH_ATTACHMENTS_WALL;
            limits.fetch = FETCH_ATTACHMENT;
        }
        if kind == InvocationKind::SshHook && !demands.ssh_commands.is_empty() {
            limits.wall = limits.wall.max(ssh_wall(&demands.ssh_commands));
        }
        if demands.transcodes == Transcodes::Yes {
            limits.wall = limits.wall.max(TRANSCODE_WALL);
            limits.memory = MemoryClass::Media;
        }
        limits
    }

    /// A caller lowers what it is given; it never raises it.
    #[must_use]
    pub fn lowered(mut self, lower: Lower) -> Self {
        if let Some(wall) = lower.wall {
            self.wall = self.wall.min(wall);
        }
        if let Some(result_bytes) = lower.result_bytes {
            self.result_bytes = self.result_bytes.min(result_bytes);
        }
        self
    }
}

fn ssh_wall(commands: &[Duration]) -> Duration {
    let each = |asked: &Duration| match *asked {
        Duration::ZERO => SSH_COMMAND_DEFAULT,
        asked => asked.min(SSH_COMMAND_MAX),
    };
    let commands: Duration = commands.iter().take(SSH_COMMANDS_MAX).map(each).sum();
    (SSH_CONNECT + commands).min(SSH_WALL_MAX)
}

#[cfg(test)]
mod tests {
    use super::{InvocationKind as Kind, *};

    fn wall_s(kind: Kind, demands: &Demands) -> u64 {
        InvocationLimits::of(kind, demands).wall.as_secs()
    }

    /// P20: the table, row by row.
    #[test]
    fn p20_every_kind_has_the_wall_clock_of_the_table() {
        let table = [
            30, 5, 30, 30, 30, 30, 120, 10, 15, 10, 20, 10, 15, 15, 10, 10, 30,
        ];
        for (kind, wall) in Kind::ALL.into_iter().zip(table) {
            let limits = InvocationLimits::of(kind, &Demands::default());
            assert_eq!(limits.wall.as_secs(), wall, "{kind:?}");
            assert_eq!(limits.memory.limit_bytes(), 128 << 20, "{kind:?}");
            assert_eq!(limits.memory.group_bytes(), 160 << 20, "{kind:?}");
        }
    }

    /// P20: media raises both limits, to at least a minute, and lowers none.
    #[test]
    fn p20_converting_media_raises_time_and_memory() {
        let demands = Demands {
            transcodes: Demands::transcoding(&[PERMISSION_TRANSCODE.to_owned()]),
            ..Demands::default()
        };
        assert_eq!(wall_s(Kind::Middleware, &demands), 60);
        assert_eq!(wall_s(Kind::Compaction, &demands), 120);
        let memory = InvocationLimits::of(Kind::Tool, &demands).memory;
        assert_eq!(memory.limit_bytes(), 512 << 20);
        let other = Demands::transcoding(&["host:media:transcoder".to_owned()]);
        assert_eq!(other, Transcodes::No);
    }

    /// P20: fifteen seconds to connect and the commands' own time-outs, fifteen minutes at most.
    #[test]
    fn p20_an_ssh_hook_has_time_for_its_commands() {
        let hook = |commands: &[u64]| {
            let demands = Demands {
                ssh_commands: commands.iter().copied().map(Duration::from_secs).collect(),
                ..Demands::default()
            };
            (
                wall_s(Kind::SshHook, &demands),
                wall_s(Kind::Tool, &demands),
            )
        };
        assert_eq!(hook(&[]), (30, 30));
        assert_eq!(hook(&[5]), (30, 30));
        assert_eq!(hook(&[0, 90]), (165, 30));
        assert_eq!(hook(&[1_000]), (105, 30));
        assert_eq!(hook(&[90; 10]), (900, 30));
        assert_eq!(hook(&[90; 1_000]), (900, 30));
    }

    /// P20: a message with attachments has longer, and so has each request for one.
    #[test]
    fn p20_a_receive_with_attachments_has_time_to_fetch_them() {
        let with = |attachments| Demands {
            attachments,
            ..Demands::default()
        };
        assert_eq!(wall_s(Kind::ChannelReceive, &with(1)), 25);
        assert_eq!(wall_s(Kind::ChannelReceive, &with(50)), 25);
        assert_eq!(wall_s(Kind::Tool, &with(50)), 30);
        let fetch = |kind, demands| InvocationLimits::of(kind, &demands).fetch.as_secs();
        assert_eq!(fetch(Kind::ChannelReceive, with(1)), 15);
        assert_eq!(fetch(Kind::ChannelReceive, with(0)), 10);
    }

    /// P20: whoever calls may lower a limit, and cannot raise one.
    #[test]
    fn p20_a_caller_lowers_and_never_raises() {
        let limits = InvocationLimits::of(Kind::Middleware, &Demands::default());
        let wall = |seconds| Lower {
            wall: Some(Duration::from_secs(seconds)),
            result_bytes: Some(seconds),
        };
        assert_eq!(limits.lowered(wall(1)).wall.as_secs(), 1);
        assert_eq!(limits.lowered(wall(1)).result_bytes, 1);
        assert_eq!(limits.lowered(wall(1 << 40)), limits);
        assert_eq!(limits.lowered(Lower::default()), limits);
    }
}
