//! What an invocation is for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Which capability of a plugin is called. It sets the limits, and what a fault does (P23).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InvocationKind {
    Tool,
    Middleware,
    Lifecycle,
    WebSearch,
    WebFetch,
    ChatComplete,
    Compaction,
    /// `noul`, `choose` and `score`.
    Decision,
    Speak,
    Voices,
    Transcribe,
    ChannelReceive,
    ChannelSend,
    ConnectionOpen,
    ConnectionReceive,
    ConnectionTimer,
    SshHook,
}

impl InvocationKind {
    /// Every kind, in the order of SPEC P20.
    pub const ALL: [Self; 17] = [
        Self::Tool,
        Self::Middleware,
        Self::Lifecycle,
        Self::WebSearch,
        Self::WebFetch,
        Self::ChatComplete,
        Self::Compaction,
        Self::Decision,
        Self::Speak,
        Self::Voices,
        Self::Transcribe,
        Self::ChannelReceive,
        Self::ChannelSend,
        Self::ConnectionOpen,
        Self::ConnectionReceive,
        Self::ConnectionTimer,
        Self::SshHook,
    ];

    /// The wall clock before anything raises or lowers it.
    pub const fn wall(self) -> Duration {
        Duration::from_secs(match self {
            Self::Middleware => 5,
            Self::Decision
            | Self::Voices
            | Self::ChannelReceive
            | Self::ConnectionReceive
            | Self::ConnectionTimer => 10,
            Self::Speak | Self::ChannelSend | Self::ConnectionOpen => 15,
            Self::Transcribe => 20,
            Self::Tool
            | Self::Lifecycle
            | Self::WebSearch
            | Self::WebFetch
            | Self::ChatComplete
            | Self::SshHook => 30,
            Self::Compaction => 120,
        })
    }

    /// As authors and operators see it: `channel_receive`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Middleware => "middleware",
            Self::Lifecycle => "lifecycle",
            Self::WebSearch => "web_search",
            Self::WebFetch => "web_fetch",
            Self::ChatComplete => "chat_complete",
            Self::Compaction => "compaction",
            Self::Decision => "decision",
            Self::Speak => "speak",
            Self::Voices => "voices",
            Self::Transcribe => "transcribe",
            Self::ChannelReceive => "channel_receive",
            Self::ChannelSend => "channel_send",
            Self::ConnectionOpen => "connection_open",
            Self::ConnectionReceive => "connection_receive",
            Self::ConnectionTimer => "connection_timer",
            Self::SshHook => "ssh_hook",
        }
    }
}
