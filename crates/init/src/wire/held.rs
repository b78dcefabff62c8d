//! What a holder and its host say to each other, over one stream of bytes in each direction.
//!
//! A holder (`bulkhead-init hold`) keeps processes in a container or behind walls that somebody else has built: it starts
//! them, carries their streams, signals and buries them. Its own end is theirs, and the end of its input is its end.
//!
//! ```text
//! frame: channel u8 │ process u32 │ length u32 │ payload            numbers are little-endian
//! channel 0: the process's input    1: its output    2: its error output    255: a message (its process field is 0)
//! ```
//!
//! Each stream has a window: a sender owns as many bytes as the receiver has granted, so that a process that is not read
//! waits, and no other waits with it.

use super::{
    IoKind, SpawnStage,
    codec::{Malformed, Wire as _, choice},
};

/// Bytes of a frame before its payload.
pub const FRAME_HEADER: usize = 9;
/// No data frame's payload is longer.
pub const DATA_MAX: usize = 32 << 10;
/// No message is longer: the kernel allows a program's arguments and environment less.
pub const ORDER_MAX: usize = 4 << 20;
/// What may be under way on each stream before the receiver grants more.
pub const WINDOW: u32 = 1 << 20;
/// No holder keeps more processes at a time.
pub const PROCESSES_MAX: usize = 4096;

/// The standard streams' channels are their descriptors' numbers.
pub const INPUT: u8 = 0;
pub const OUTPUT: u8 = 1;
pub const ERROR: u8 = 2;
pub const MESSAGE: u8 = 255;

/// The fixed part of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    pub channel: u8,
    pub process: u32,
    pub length: u32,
}

impl FrameHeader {
    pub fn bytes(self) -> [u8; FRAME_HEADER] {
        let mut out = Vec::with_capacity(FRAME_HEADER);
        self.channel.put(&mut out);
        self.process.put(&mut out);
        self.length.put(&mut out);
        out.try_into().unwrap_or([0; FRAME_HEADER])
    }

    /// Refuses what claims to be longer than it may be.
    pub fn parse(bytes: [u8; FRAME_HEADER]) -> Result<Self, Malformed> {
        let mut rest = &bytes[..];
        let header = Self {
            channel: u8::get(&mut rest)?,
            process: u32::get(&mut rest)?,
            length: u32::get(&mut rest)?,
        };
        let most = match header.channel {
            INPUT | OUTPUT | ERROR => DATA_MAX,
            MESSAGE => ORDER_MAX,
            _ => return Err(Malformed),
        };
        if header.length as usize > most {
            return Err(Malformed);
        }
        Ok(header)
    }
}

/// Numbers from here on are chosen by the holder, those below by the host.
pub const ACCEPTED_FROM: u32 = 1 << 31;

choice!(
    /// Where one can connect to or listen at, as the holder sees it.
    Place {
        /// Such as `127.0.0.1:80`.
        1 => Tcp { address: Vec<u8> },
        2 => Unix { path: Vec<u8> },
    }
);

choice!(
    /// From the host to the holder.
    Order {
        /// An empty directory is the holder's own; the environment is added to the holder's own.
        1 => Spawn {
            process: u32,
            argv: Vec<Vec<u8>>,
            env: Vec<Vec<u8>>,
            cwd: Vec<u8>,
            io: Vec<IoKind>,
            rows: u16,
            columns: u16,
        },
        2 => Signal { process: u32, group: u8, signal: i32 },
        3 => Resize { process: u32, rows: u16, columns: u16 },
        /// More of an output may be sent.
        4 => Grant { process: u32, channel: u8, bytes: u32 },
        /// Nothing more comes for its input.
        5 => Finish { process: u32 },
        /// Nobody reads this output any more.
        6 => Shut { process: u32, channel: u8 },
        /// Nobody asks about this process any more; it goes on.
        7 => Release { process: u32 },
        /// Says only that the host is there.
        8 => Beat {},
        /// Connects to a place; what comes of it is a process that has streams 0 and 1 only.
        9 => Connect { process: u32, to: Place },
        10 => Listen { process: u32, at: Place },
        /// Ends a listening, not the connections that it gave.
        11 => Unlisten { process: u32 },
    }
);

choice!(
    /// From the holder to the host.
    Notice {
        /// First and once.
        1 => Ready { uid: u32, gid: u32 },
        2 => Started { process: u32, pid: u32 },
        3 => Failed { process: u32, stage: SpawnStage, errno: i32 },
        /// An output has ended.
        4 => Finished { process: u32, channel: u8 },
        /// More of the input may be sent.
        5 => Granted { process: u32, bytes: u32 },
        /// The process does not read its input any more.
        6 => Refused { process: u32 },
        /// With its wait status.
        7 => Exited { process: u32, status: i32 },
        8 => Listening { process: u32, at: Place },
        /// A connection came to a listening; its number is the holder's choice.
        9 => Accepted { listening: u32, process: u32 },
    }
);
