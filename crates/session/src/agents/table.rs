//! The ready agents, one row each. `docs/agents.md` tells the same for people.
//!
//! `{model}` stands for the model's name, `{upstream}` for the upstream's, `{gateway}` for the phase
//! gateway's address. The prompt goes over the protocol, or to the standard input of a command line that
//! reads it there: an argument could not hold a long one.

use bulkhead_model::Protocol;

/// One ready agent.
#[derive(Debug)]
pub struct Definition {
    pub name: &'static str,
    pub argv: &'static [&'static str],
    /// Appended where a model is named.
    pub model_argv: &'static [&'static str],
    pub protocol: Protocol,
    pub env: &'static [(&'static str, &'static str)],
    /// Path below the agent's home, and content.
    pub home_files: &'static [(&'static str, &'static str)],
    /// None for agents without a model.
    pub model: Option<Model>,
    /// What to do where the program is not in the sandbox.
    pub install: &'static str,
}

/// How an agent reaches its model.
#[derive(Debug)]
pub struct Model {
    /// The operator's upstream that is used unless the workflow names another.
    pub upstream: &'static str,
    /// Used where the workflow names no model; none leaves the choice to the agent.
    pub default: Option<&'static str>,
    pub url_env: &'static str,
    pub key_env: &'static str,
    /// Appended to the gateway's URL in `url_env`.
    pub path: &'static str,
}

pub const READY: &[Definition] = &[CLAUDE, CODEX, GEMINI, OPENCODE, SCRIPTED];

/// Reads neither the repository's settings nor its MCP servers: an earlier phase may have written them
/// (case 42). `CLAUDE.md` is text and is read.
const CLAUDE: Definition = Definition {
    name: "claude",
    argv: &[
        "claude",
        "--print",
        "--output-format",
        "stream-json",
        "--verbose",
        "--permission-mode",
        "bypassPermissions",
        "--setting-sources",
        "user",
        "--strict-mcp-config",
        "--no-session-persistence",
    ],
    model_argv: &["--model", "{model}"],
    protocol: Protocol::ClaudeStreamJson,
    env: &[
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
    ],
    home_files: &[(".claude/settings.json", "{}\n")],
    model: Some(Model {
        upstream: "anthropic",
        default: None,
        url_env: "ANTHROPIC_BASE_URL",
        key_env: "ANTHROPIC_API_KEY",
        path: "",
    }),
    install: "npm install --global @anthropic-ai/claude-code",
};

/// Its own sandbox is off: it cannot nest in ours, and ours is the boundary.
const CODEX: Definition = Definition {
    name: "codex",
    argv: &[
        "codex",
        "exec",
        "--json",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "-c",
        "model_provider=bulkhead",
        "-c",
        "model_providers.bulkhead={name=\"bulkhead\",base_url=\"{gateway}/model/{upstream}/v1\",wire_api=\"responses\",env_key=\"OPENAI_API_KEY\"}",
        "-",
    ],
    model_argv: &["--model", "{model}"],
    protocol: Protocol::CodexJson,
    env: &[],
    home_files: &[],
    model: Some(Model {
        upstream: "openai",
        default: None,
        url_env: "OPENAI_BASE_URL",
        key_env: "OPENAI_API_KEY",
        path: "/v1",
    }),
    install: "npm install --global @openai/codex",
};

/// A model is always named: the command line's own choice asks another model first.
const GEMINI: Definition = Definition {
    name: "gemini",
    argv: &["gemini", "--acp", "--skip-trust", "--approval-mode", "yolo"],
    model_argv: &["--model", "{model}"],
    protocol: Protocol::Acp,
    env: &[("GEMINI_CLI_NO_RELAUNCH", "true")],
    home_files: &[(
        ".gemini/settings.json",
        r#"{"security":{"auth":{"selectedType":"gemini-api-key"},"folderTrust":{"enabled":false}},
 "general":{"disableAutoUpdate":true,"enableAutoUpdate":false},
 "privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false}}
"#,
    )],
    model: Some(Model {
        upstream: "google",
        default: Some("gemini-2.5-pro"),
        url_env: "GOOGLE_GEMINI_BASE_URL",
        key_env: "GEMINI_API_KEY",
        path: "",
    }),
    install: "npm install --global @google/gemini-cli",
};

const OPENCODE: Definition = Definition {
    name: "opencode",
    argv: &["opencode", "acp"],
    model_argv: &[],
    protocol: Protocol::Acp,
    env: &[
        ("OPENCODE_DISABLE_AUTOUPDATE", "true"),
        ("OPENCODE_DISABLE_MODELS_FETCH", "true"),
        (
            "OPENCODE_CONFIG_CONTENT",
            r#"{"provider":{"bulkhead":{"npm":"@ai-sdk/openai-compatible","options":{"baseURL":"{gateway}/model/{upstream}/v1","apiKey":"{env:OPENAI_API_KEY}"},"models":{"{model}":{}}}},"model":"bulkhead/{model}","small_model":"bulkhead/{model}","autoupdate":false,"share":"disabled","permission":{"edit":"allow","bash":"allow","webfetch":"allow"}}"#,
        ),
    ],
    home_files: &[],
    model: Some(Model {
        upstream: "openai",
        default: Some("gpt-5"),
        url_env: "OPENAI_BASE_URL",
        key_env: "OPENAI_API_KEY",
        path: "/v1",
    }),
    install: "npm install --global opencode-ai",
};

/// Its one argument is the file of steps, relative to the workspace.
const SCRIPTED: Definition = Definition {
    name: "scripted",
    argv: &[super::BULKHEAD_INSIDE, "agent", "scripted"],
    model_argv: &[],
    protocol: Protocol::Acp,
    env: &[],
    home_files: &[],
    model: None,
    install: "start Bulkhead with its own program at hand: it is shown inside the sandbox",
};
