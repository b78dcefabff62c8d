//! The messages between the three processes of a sandbox, and how they are written.
//!
//! ```text
//! parent ──Control──▶ launcher      parent ──Request──▶ PID 1
//! parent ◀──Report──  launcher      parent ◀──Event───  PID 1
//! ```
//!
//! Both links are `SOCK_SEQPACKET` socket pairs: one packet, one message, open files beside it. Numbers are little-endian,
//! lists and strings carry their length in front, a choice begins with its tag. Both ends come from one build (the parent
//! embeds the program), so there are no versions; a malformed message is a defect and ends the link.

mod carried;
mod codec;
mod held;
mod message;
mod plan;

pub use carried::{
    BYTES, CARRIED_HEADER, CARRIED_MAX, CLOSED, Carried, ENDED, GRANTED, OPENED, STATUS, STOP,
    STREAM_WINDOW, STREAMS_MAX,
};
pub use codec::{Malformed, Wire, decode, encode};
pub use held::{
    ACCEPTED_FROM, DATA_MAX, ERROR, FRAME_HEADER, FrameHeader, INPUT, MESSAGE, Notice, ORDER_MAX,
    OUTPUT, Order, PROCESSES_MAX, Place, WINDOW,
};
pub use message::{
    Control, Event, Failure, IoKind, Probed, Reading, Report, Request, SpawnStage, Stop, Use,
};
pub use plan::{
    Access, Entry, Group, Ids, Kill, Listener, Mode, Plan, Rlimit, Setting, Source, Step, Tree,
    TreeIds,
};

/// Messages up to this size travel in the packet itself; longer ones in a memory file whose descriptor comes first.
pub const INLINE_MAX: usize = 32 << 10;
/// No message is longer than this.
pub const MESSAGE_MAX: usize = 8 << 20;
/// No message carries more open files than this.
pub const FDS_MAX: usize = 64;
/// First byte of a packet: the message follows.
pub const INLINE: u8 = 0;
/// First byte of a packet: the message is in the memory file that is the packet's first descriptor.
pub const IN_FILE: u8 = 1;
