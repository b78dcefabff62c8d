//! The plug that fills the agent's environment: what the workflow names, and nothing of this process's own (H7).

use std::sync::Arc;

use async_trait::async_trait;
use secrecy::ExposeSecret as _;

use super::sandbox::PROXY;
use crate::{
    agents::GATEWAY,
    inside_path,
    plug::{Ctx, Plug, PlugError},
    wire::{Delivery, Machine},
};

/// The sandbox's certificate authorities.
const CA_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

pub(super) struct EnvironmentPlug(pub(super) Arc<Delivery>);

#[async_trait]
impl Plug for EnvironmentPlug {
    fn name(&self) -> &str {
        "environment"
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        let delivery = &*self.0;
        let order = &delivery.order;
        let mut env = base(delivery);
        for model in &order.models {
            let url = format!("{GATEWAY}/model/{}{}", model.upstream, model.path);
            env.push((model.url_env.clone(), url));
            let token = delivery.phase_token.expose_secret().to_owned();
            env.push((model.key_env.clone(), token));
        }
        env.extend(order.env.clone());
        for name in &order.secrets {
            let Some(value) = delivery.secrets.get(name) else {
                return Err(PlugError::Words(format!(
                    "the secret {name} has no value: set it with `bulkhead secrets set {name}`"
                )));
            };
            env.push((name.to_string(), value.expose_secret().to_owned()));
        }
        ctx.agent.env.extend(env);
        Ok(())
    }
}

/// Where the phase is, how it reaches the network, and who commits.
fn base(delivery: &Delivery) -> Vec<(String, String)> {
    let order = &delivery.order;
    let mut env = of_sandbox(&order.toolchains, &delivery.machine);
    let mut add = |name: &str, value: String| env.push((name.to_owned(), value));
    add("BULKHEAD_RUN", order.run.to_string());
    add("BULKHEAD_PHASE", order.phase.to_string());
    add("BULKHEAD_ATTEMPT", order.attempt.to_string());
    if let Some(git) = &order.git {
        for name in ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"] {
            add(name, git.author_name.clone());
        }
        for name in ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"] {
            add(name, git.author_email.clone());
        }
    }
    env
}

/// What programs in a sandbox need to find theirs and to reach the network.
pub(super) fn of_sandbox(toolchains: &[String], machine: &Machine) -> Vec<(String, String)> {
    let proxy = format!("http://127.0.0.1:{PROXY}");
    let mut env = vec![
        ("PATH", inside_path(toolchains)),
        // Node reads the proxy's variables only where it is told to.
        ("NODE_USE_ENV_PROXY", "1".to_owned()),
    ];
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        env.push((name, proxy.clone()));
    }
    for name in ["NO_PROXY", "no_proxy"] {
        env.push((name, "127.0.0.1,localhost,::1".to_owned()));
    }
    if machine.extra_ca_pem.is_some() {
        // Node has a list of its own; the sandbox's holds the operator's authority.
        env.push(("NODE_EXTRA_CA_CERTS", CA_BUNDLE.to_owned()));
    }
    let owned = |(name, value): (&str, String)| (name.to_owned(), value);
    env.into_iter().map(owned).collect()
}
