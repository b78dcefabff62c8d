//! What a plugin may do beyond its own code, as its installer sees it.

/// One permission. The names are in manifests and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Permission {
    SessionRead,
    SessionPost,
    SessionTodos,
    SessionTimers,
    Llm,
    Agents,
    Models,
    WorkspaceRead,
    WorkspaceWrite,
    Decide,
    Media,
    MediaTranscode,
    Ssh,
}

impl Permission {
    pub const ALL: [Self; 13] = [
        Self::SessionRead,
        Self::SessionPost,
        Self::SessionTodos,
        Self::SessionTimers,
        Self::Llm,
        Self::Agents,
        Self::Models,
        Self::WorkspaceRead,
        Self::WorkspaceWrite,
        Self::Decide,
        Self::Media,
        Self::MediaTranscode,
        Self::Ssh,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::SessionRead => "host:session:read",
            Self::SessionPost => "host:session:post",
            Self::SessionTodos => "host:session:todos",
            Self::SessionTimers => "host:session:timers",
            Self::Llm => "host:llm",
            Self::Agents => "host:agents",
            Self::Models => "host:models",
            Self::WorkspaceRead => "host:workspace:read",
            Self::WorkspaceWrite => "host:workspace:write",
            Self::Decide => "host:decide",
            Self::Media => "host:media",
            Self::MediaTranscode => "host:media:transcode",
            Self::Ssh => "host:ssh",
        }
    }

    /// For the installer, after "It may …".
    pub const fn words(self) -> &'static str {
        match self {
            Self::SessionRead => "read the chat",
            Self::SessionPost => "write in the chat",
            Self::SessionTodos => "read and change the chat's todos",
            Self::SessionTimers => "wake itself later",
            Self::Llm => "use your models, at your cost",
            Self::Agents => "see your other agents and write to them",
            Self::Models => "see which models you can use",
            Self::WorkspaceRead => "read the agent's files",
            Self::WorkspaceWrite => "change and remove the agent's files",
            Self::Decide => "have your model decide questions, at your cost",
            Self::Media => "keep media in your account and look at them",
            Self::MediaTranscode => "convert media, with more time and memory",
            Self::Ssh => "run commands on the machines of its ssh hooks",
        }
    }
}

impl std::fmt::Display for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
