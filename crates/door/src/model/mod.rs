//! The model gateway: `/model/<upstream>/<rest>` on the control plane's phase gateway.
//!
//! The agent in the sandbox speaks plain HTTP to loopback with its phase's token in the place of an API
//! key. The gateway checks the token, strips it wherever it stands, adds the upstream's real credential,
//! and speaks TLS outside. Bodies stream both ways as they come. What comes back is freed of cookies, of
//! fields that name the operator's account, and of the credential itself, should an upstream repeat it.
//!
//! A redirect is an error here: following it would carry the credential elsewhere.

mod error;
mod gateway;
mod mask;
mod path;
mod request;
mod upstream;

pub use gateway::{GatewayBody, ModelGateway, ModelGatewayConfig, ModelGatewayError, ModelLimits};
pub use request::{TokenCheck, TokenRefusal};
pub use upstream::{ApiStyle, HeaderForm, ModelUpstream, ModelUpstreamError};
