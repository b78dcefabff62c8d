//! Who asks: a bearer token, looked up by its hash, and the scope that the request needs.

use std::marker::PhantomData;

use axum::extract::FromRequestParts;
use bulkhead_model::gate::Scope;
use http::{header, request::Parts};
use secrecy::SecretString;
use utoipa::{
    Modify,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};

use crate::{Caller, Code, ControlPlane, Problem};

/// How the tokens of phases begin; such a token is never a caller's.
const PHASE_TOKEN: &str = "bhp_";

/// A scope as a type, so that a handler's signature says what it needs.
pub(super) trait Needs {
    const SCOPE: Scope;
}

macro_rules! needs {
    ($($name:ident => $scope:ident),* $(,)?) => {$(
        pub(super) struct $name;
        impl Needs for $name {
            const SCOPE: Scope = Scope::$scope;
        }
    )*};
}

needs!(ToRead => Read, ToRun => Run, ToDecide => Decide, ToAdminister => Admin);

/// A caller whose token has the scope `N`.
pub(super) struct Allowed<N>(pub(super) Caller, pub(super) PhantomData<N>);

impl<N: Needs> FromRequestParts<ControlPlane> for Allowed<N> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, plane: &ControlPlane) -> Result<Self, Problem> {
        let token = bearer(parts)?;
        let caller = plane.caller(&token).await?.ok_or_else(|| {
            Problem::new(
                Code::Unauthenticated,
                "the token is unknown, revoked or expired",
            )
            .remedy("use a valid token; `bulkhead login` or an administrator makes one")
        })?;
        if !caller.scopes.contains(&N::SCOPE) {
            let scope = serde_json::to_string(&N::SCOPE).unwrap_or_default();
            return Err(Problem::new(
                Code::Forbidden,
                format!("the token {:?} lacks the scope {scope}", caller.name),
            )
            .remedy("use a token that has it; an administrator can make one"));
        }
        Ok(Self(caller, PhantomData))
    }
}

fn bearer(parts: &Parts) -> Result<SecretString, Problem> {
    let header = parts.headers.get(header::AUTHORIZATION);
    let token = header
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .ok_or_else(|| {
            Problem::new(Code::Unauthenticated, "the request carries no token")
                .remedy("send the header `Authorization: Bearer TOKEN`")
        })?;
    if token.starts_with(PHASE_TOKEN) {
        return Err(Problem::new(
            Code::Unauthenticated,
            "a phase's token is good for its git branch and its models only",
        ));
    }
    Ok(SecretString::from(token))
}

/// Adds the bearer scheme to the API's document.
pub(super) struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}
