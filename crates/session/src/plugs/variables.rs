//! The plugs that fill the agent's environment: plain variables, and secrets.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use bulkhead_model::session::{SecretConfig, SecretSource};
use secrecy::ExposeSecret as _;

use crate::{
    plug::{Ctx, Grant, Plug, PlugError},
    wire::SessionDelivery,
};

pub(super) struct EnvPlug(pub(super) BTreeMap<String, String>);

#[async_trait]
impl Plug for EnvPlug {
    fn name(&self) -> &str {
        "env"
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        ctx.agent.env.extend(self.0.clone());
        Ok(())
    }
}

/// Gives the agent the secrets that the file declares. Whoever started the session looked their values up: this
/// process has no way to others.
pub(super) struct SecretsPlug {
    secrets: Vec<SecretConfig>,
    delivery: Arc<SessionDelivery>,
}

impl SecretsPlug {
    pub(super) const fn new(secrets: Vec<SecretConfig>, delivery: Arc<SessionDelivery>) -> Self {
        Self { secrets, delivery }
    }
}

#[async_trait]
impl Plug for SecretsPlug {
    fn name(&self) -> &str {
        "secrets"
    }

    async fn on_session(&mut self, ctx: &mut Ctx) -> Result<(), PlugError> {
        for SecretConfig { name, source } in &self.secrets {
            let Some(value) = self.delivery.secrets.get(name) else {
                let remedy = match source {
                    SecretSource::Store(stored) => {
                        format!("set it with `bulkhead secrets set {stored}`")
                    }
                    SecretSource::Env(variable) => format!("set the variable {variable}"),
                    SecretSource::File(path) => format!("write it into {path}"),
                };
                return Err(PlugError::Words(format!(
                    "the secret {name} has no value: {remedy}"
                )));
            };
            let value = value.expose_secret().to_owned();
            ctx.agent.env.insert(name.clone(), value);
            let (name, source) = (name.clone(), source.to_string());
            ctx.grant(Grant::Secret { name, source });
        }
        Ok(())
    }
}
