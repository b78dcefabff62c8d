//! Webhooks: one POST through the one egress decision (D10). The operator's server makes the request, so an
//! address on a private network is refused unless the operator named that very host.

use std::time::Duration;

use bulkhead_egress::{
    AllowPrivate, Connector, DnsResolver, Egress, EgressConfig, Grant, Scheme, Target,
};
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::Full;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};

use crate::{plane::Plane, problem::chain};

/// How long a webhook may take, from the name to the answer.
const TIME_LIMIT: Duration = Duration::from_secs(15);

/// The operator may permit webhooks on private networks; that opens the very host of this one, and nothing else.
fn egress(plane: &Plane, target: &Target) -> Result<Egress, String> {
    if !plane.config.notify.allow_private_webhooks {
        return Ok(plane.egress.clone());
    }
    let allow_private =
        AllowPrivate::hosts([target.host().to_string()]).map_err(|error| chain(&error))?;
    let settings = EgressConfig {
        allow_private,
        ..EgressConfig::default()
    };
    Ok(Egress::new(settings, DnsResolver::system()))
}

pub(crate) async fn post(plane: &Plane, url: &str, body: Vec<u8>) -> Result<(), String> {
    let target = Target::from_url(url, Scheme::WEB).map_err(|refused| format!("{refused:?}"))?;
    let connector = Connector::new(
        egress(plane, &target)?,
        plane.tls.clone(),
        Grant::operator(&target),
    );
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header(header::CONTENT_TYPE, "application/json")
        .header(
            header::USER_AGENT,
            concat!("bulkhead/", env!("CARGO_PKG_VERSION")),
        )
        .body(Full::from(body))
        .map_err(|error| error.to_string())?;
    let answered = tokio::time::timeout(TIME_LIMIT, client.request(request)).await;
    match answered {
        Ok(Ok(response)) if response.status().is_success() => Ok(()),
        Ok(Ok(response)) => Err(format!("the webhook answered {}", response.status())),
        Ok(Err(error)) => Err(format!("the webhook cannot be reached: {}", chain(&error))),
        Err(_elapsed) => Err(format!(
            "the webhook took more than {} s",
            TIME_LIMIT.as_secs()
        )),
    }
}
