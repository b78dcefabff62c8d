//! The plug that tells the agent of servers of the Model Context Protocol. How an agent is told depends on how it
//! speaks: over its protocol, or by its command line.

use async_trait::async_trait;
use bulkhead_model::{
    AgentSpec, Protocol, Work,
    session::{McpConfig, McpTransport},
};
use serde_json::{Value, json};

use crate::plug::{Ctx, Grant, McpServer, Plug, PlugError};

pub(super) struct McpPlug {
    servers: Vec<McpConfig>,
    work: Work,
}

impl McpPlug {
    pub(super) const fn new(servers: Vec<McpConfig>, work: Work) -> Self {
        Self { servers, work }
    }
}

#[async_trait]
impl Plug for McpPlug {
    fn name(&self) -> &str {
        "mcp"
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        let Work::Agent { agent, .. } = &self.work else {
            return Err(PlugError::words(
                "a command has no use for MCP servers: name an `agent`",
            ));
        };
        let servers: Vec<_> = self.servers.iter().cloned().map(server).collect();
        ctx.agent.argv.extend(arguments(agent, &servers)?);
        for server in &servers {
            ctx.grant(grant(server));
        }
        ctx.agent.mcp.extend(servers);
        Ok(())
    }
}

fn server(config: McpConfig) -> McpServer {
    let name = config.name;
    match config.transport {
        McpTransport::Command { argv, env } => {
            let mut argv = argv.into_iter();
            McpServer::Program {
                name,
                command: argv.next().unwrap_or_default(),
                args: argv.collect(),
                env,
            }
        }
        McpTransport::Http { url, headers } => McpServer::Http { name, url, headers },
    }
}

fn grant(server: &McpServer) -> Grant {
    match server {
        McpServer::Program { name, command, .. } => Grant::Mcp {
            name: name.clone(),
            at: command.clone(),
        },
        McpServer::Http { name, url, .. } => Grant::Mcp {
            name: name.clone(),
            at: url.clone(),
        },
    }
}

fn arguments(agent: &AgentSpec, servers: &[McpServer]) -> Result<Vec<String>, PlugError> {
    match agent.protocol {
        Protocol::Acp => Ok(vec![]),
        Protocol::ClaudeStreamJson => {
            let mut all = serde_json::Map::new();
            for server in servers {
                let (name, value) = claude(server);
                all.insert(name, value);
            }
            let config = json!({"mcpServers": all}).to_string();
            Ok(vec!["--mcp-config".to_owned(), config])
        }
        Protocol::CodexJson | Protocol::Plain => Err(PlugError::Words(format!(
            "the agent {} cannot be told of MCP servers by its command line here: use one that speaks acp or \
             claude-stream-json, or write its configuration with the plug `files`",
            agent.name
        ))),
    }
}

fn claude(server: &McpServer) -> (String, Value) {
    match server {
        McpServer::Program {
            name,
            command,
            args,
            env,
        } => (
            name.clone(),
            json!({"type": "stdio", "command": command, "args": args, "env": env}),
        ),
        McpServer::Http { name, url, headers } => (
            name.clone(),
            json!({"type": "http", "url": url, "headers": headers}),
        ),
    }
}
