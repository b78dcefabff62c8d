//! Model APIs for agents: a phase's token opens those that its workflow names, and the credentials stay here.

use std::sync::Arc;

use bulkhead_door::model::{
    ApiStyle, HeaderForm, ModelGateway, ModelGatewayConfig, ModelGatewayError, ModelLimits,
    ModelUpstream, ModelUpstreamError, TokenCheck, TokenRefusal,
};
use futures::future::BoxFuture;
use secrecy::{ExposeSecret as _, SecretString};

use crate::{ModelUpstream as Configured, plane::Plane, problem::chain};

#[derive(Debug, thiserror::Error)]
pub(crate) enum ModelsError {
    #[error(transparent)]
    Upstream(#[from] ModelUpstreamError),
    #[error(transparent)]
    Gateway(#[from] ModelGatewayError),
}

pub(crate) fn gateway(plane: &Arc<Plane>) -> Result<ModelGateway, ModelsError> {
    let upstreams = plane.config.models.iter();
    let upstreams = upstreams.map(|(name, configured)| upstream(name, configured));
    let gateway = ModelGateway::new(ModelGatewayConfig {
        upstreams: upstreams.collect::<Result<_, _>>()?,
        egress: plane.egress.clone(),
        tls: plane.tls.clone(),
        tokens: Arc::new(Tokens(Arc::clone(plane))),
        limits: ModelLimits::default(),
    })?;
    Ok(gateway)
}

fn upstream(name: &str, configured: &Configured) -> Result<ModelUpstream, ModelUpstreamError> {
    let (form, style) = match configured.header.to_ascii_lowercase().as_str() {
        "x-api-key" => (HeaderForm::XApiKey, ApiStyle::Anthropic),
        "x-goog-api-key" => (HeaderForm::XGoogApiKey, ApiStyle::Google),
        _ => (HeaderForm::Bearer, ApiStyle::OpenAi),
    };
    // A model of one's own often wants no credential; then it gets a word that says so.
    let whole = configured
        .credential
        .as_ref()
        .map_or("none", |value| value.expose_secret());
    let credential = SecretString::from(whole.strip_prefix("Bearer ").unwrap_or(whole));
    ModelUpstream::new(name, configured.base_url.as_str(), form, style, credential)
}

struct Tokens(Arc<Plane>);

impl TokenCheck for Tokens {
    fn check<'a>(
        &'a self,
        token: &'a str,
        upstream: &'a str,
    ) -> BoxFuture<'a, Result<(), TokenRefusal>> {
        Box::pin(self.look_up(token, upstream))
    }
}

impl Tokens {
    async fn look_up(&self, token: &str, upstream: &str) -> Result<(), TokenRefusal> {
        let failed = |error: bulkhead_store::Error| {
            tracing::error!(error = chain(&error), "a phase's token cannot be checked");
            TokenRefusal::Unknown
        };
        let grant = self
            .0
            .store
            .phase_grant(&SecretString::from(token), self.0.now_ms())
            .await;
        let key = grant
            .map_err(failed)?
            .ok_or(TokenRefusal::Unknown)?
            .held
            .key;
        let spec = self.0.spec(key.run).await.map_err(failed)?;
        let index = spec
            .workflow
            .phases
            .iter()
            .position(|phase| phase.name == key.phase);
        let named = index.map(|index| spec.models(index)).unwrap_or_default();
        let is_named = named.iter().any(|model| model.upstream == upstream);
        match is_named {
            true => Ok(()),
            false => Err(TokenRefusal::NotForThisUpstream),
        }
    }
}
