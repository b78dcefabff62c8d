//! The plug that fills the agent's environment: what the workflow names, and nothing of this process's own (H7).

use async_trait::async_trait;
use secrecy::ExposeSecret as _;

use super::{Ctx, Plug, PlugError, sandbox::PROXY};
use crate::{agents::GATEWAY, inside_path};

/// The sandbox's certificate authorities.
const CA_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

pub(super) struct EnvironmentPlug;

#[async_trait]
impl Plug for EnvironmentPlug {
    fn name(&self) -> &'static str {
        "environment"
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        let order = &ctx.delivery.order;
        let mut env = base(ctx);
        for model in &order.models {
            let url = format!("{GATEWAY}/model/{}{}", model.upstream, model.path);
            env.push((model.url_env.clone(), url));
            let token = ctx.delivery.phase_token.expose_secret().to_owned();
            env.push((model.key_env.clone(), token));
        }
        env.extend(order.env.clone());
        for name in &order.secrets {
            let Some(value) = ctx.delivery.secrets.get(name) else {
                return Err(PlugError::Words(format!(
                    "the secret {name} has no value: set it with `bulkhead secrets set {name}`"
                )));
            };
            env.push((name.to_string(), value.expose_secret().to_owned()));
        }
        ctx.agent_env.extend(env);
        Ok(())
    }
}

/// Where the phase is, how it reaches the network, and who commits.
fn base(ctx: &Ctx) -> Vec<(String, String)> {
    let order = &ctx.delivery.order;
    let proxy = format!("http://127.0.0.1:{PROXY}");
    let mut env = vec![
        ("PATH", inside_path(&order.toolchains)),
        ("BULKHEAD_RUN", order.run.to_string()),
        ("BULKHEAD_PHASE", order.phase.to_string()),
        ("BULKHEAD_ATTEMPT", order.attempt.to_string()),
        // Node reads the proxy's variables only where it is told to.
        ("NODE_USE_ENV_PROXY", "1".to_owned()),
    ];
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        env.push((name, proxy.clone()));
    }
    for name in ["NO_PROXY", "no_proxy"] {
        env.push((name, "127.0.0.1,localhost,::1".to_owned()));
    }
    if ctx.delivery.machine.extra_ca_pem.is_some() {
        // Node has a list of its own; the sandbox's holds the operator's authority.
        env.push(("NODE_EXTRA_CA_CERTS", CA_BUNDLE.to_owned()));
    }
    if let Some(git) = &order.git {
        for name in ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"] {
            env.push((name, git.author_name.clone()));
        }
        for name in ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"] {
            env.push((name, git.author_email.clone()));
        }
    }
    let owned = |(name, value): (&str, String)| (name.to_owned(), value);
    env.into_iter().map(owned).collect()
}
