//! `host.fetch` (P4, P9, P21): HTTP for plugins, to declared hosts and nowhere else.
//!
//! One call walks this way, and every step can end it:
//!
//! 1. [`request`]: the arguments become a request, read once;
//! 2. the crate `egress` decides by scheme, name and port;
//! 3. the platform gives a permit, one for each request that is sent: 60 in any rolling minute for an installation.
//!    Where it does not answer, none is sent;
//! 4. `egress` resolves, filters the addresses, connects and checks the peer; TLS where the scheme says so;
//! 5. [`exchange`]: one request, one response; no connection is used twice;
//! 6. on a redirect, from 2 on with the next URL, at most 20 times;
//! 7. [`body`]: the body comes in, is decompressed as it comes, and ends the call where it is too large decoded;
//! 8. [`response`]: what the plugin sees.
//!
//! All of it together has the time that the kind of invocation gives: ten seconds, and more where attachments are fetched. Nothing is kept from one call to the next: no connection, no cookie. No variable
//! of the environment counts.

mod body;
mod exchange;
mod headers;
mod request;
mod response;
mod slots;

use bulkhead_egress::{
    Connector, Decision, Egress, EgressError, Origin, Redirects, Scheme, Target, Tls, Why,
};
use bulkhead_wire::pipe;
use tokio::time::{Instant, timeout_at};

use crate::{
    call_error::{CallError, Code},
    context::InvocationContext,
    platform_link::NoPermit,
};
use exchange::Exchange;
use request::{OnRedirect, Request};
use response::Received;
use slots::Slots;

/// How many redirects are followed.
const REDIRECTS_MAX: u8 = 20;

/// What one call may take. The values of SPEC's P21 are the default.
#[derive(Debug, Clone, Copy)]
pub struct FetchLimits {
    /// Of a response's body, decompressed.
    pub body_bytes: usize,
    /// Calls of one installation that are under way; others wait.
    pub at_once: usize,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self {
            body_bytes: 5 << 20,
            at_once: 16,
        }
    }
}

/// Carries out `host.fetch` for all invocations.
pub struct Fetch {
    egress: Egress,
    tls: Tls,
    limits: FetchLimits,
    slots: Slots,
}

impl Fetch {
    pub fn new(egress: Egress, tls: Tls) -> Self {
        Self::with_limits(egress, tls, FetchLimits::default())
    }

    pub fn with_limits(egress: Egress, tls: Tls, limits: FetchLimits) -> Self {
        Self {
            egress,
            tls,
            limits,
            slots: Slots::new(limits.at_once),
        }
    }

    /// One call. `arguments` is the JSON array that the plugin's process sent.
    ///
    /// # Errors
    /// With what the plugin is to see.
    pub async fn fetch(
        &self,
        invocation: &InvocationContext,
        arguments: &str,
    ) -> Result<pipe::Value, CallError> {
        let request = Request::read(arguments)?;
        let limit = invocation.authority().limits.fetch;
        let limit = request.timeout.map_or(limit, |asked| asked.min(limit));
        let deadline = invocation.deadline().min(Instant::now() + limit);
        let host = request.url.host_str().unwrap_or_default().to_owned();
        match timeout_at(deadline, self.follow(invocation, request)).await {
            Ok(result) => result,
            Err(_) => {
                let limit_ms = limit.as_millis();
                let message = format!("host.fetch of {host} took longer than {limit_ms} ms");
                Err(CallError::new(Code::Timeout, message))
            }
        }
    }

    /// Everything that is checked before anything is sent. Gives the URL.
    pub(crate) fn check(
        &self,
        invocation: &InvocationContext,
        arguments: &str,
    ) -> Result<String, CallError> {
        let request = Request::read(arguments)?;
        let target = Target::from_parsed(&request.url, Scheme::WEB);
        let target = target.map_err(|decision| refusal(invocation, &decision))?;
        let decision = self.egress.check(invocation.grant(), &target);
        match decision.allowed() {
            true => Ok(request.url.into()),
            false => Err(refusal(invocation, &decision)),
        }
    }

    /// The first request and those that redirects lead to.
    async fn follow(
        &self,
        invocation: &InvocationContext,
        mut request: Request,
    ) -> Result<pipe::Value, CallError> {
        let _slot = self.slots.take(&invocation.authority().installation).await;
        let refused = |decision: Decision| refusal(invocation, &decision);
        let mut target = Target::from_parsed(&request.url, Scheme::WEB).map_err(refused)?;
        let mut redirects = Redirects::new(request.url.clone(), Scheme::WEB, REDIRECTS_MAX);
        loop {
            let exchange = self.send(invocation, &request, &target).await?;
            let location = match (exchange.location(), request.on_redirect) {
                (Some(location), OnRedirect::Follow) => location,
                (Some(_), OnRedirect::Error) => {
                    let message = format!(
                        "host.fetch of {target}: it redirects, and `redirect` is \"error\""
                    );
                    return Err(CallError::new(Code::Failed, message));
                }
                (_, OnRedirect::Manual) | (None, _) => {
                    let redirected = redirects.followed() > 0;
                    return self
                        .receive(invocation, &request, exchange, redirected)
                        .await;
                }
            };
            let hop = redirects.follow(&location).map_err(refused)?;
            request.redirect_to(hop.url, exchange.status(), hop.origin == Origin::Other);
            target = hop.target;
        }
    }

    async fn send(
        &self,
        invocation: &InvocationContext,
        request: &Request,
        target: &Target,
    ) -> Result<Exchange, CallError> {
        let decision = self.egress.check(invocation.grant(), target);
        if !decision.allowed() {
            return Err(refusal(invocation, &decision));
        }
        invocation.permit().await.map_err(no_permit)?;
        invocation.counters().fetch();
        let grant = invocation.grant().clone();
        let connector = Connector::new(self.egress.clone(), self.tls.clone(), grant);
        let link = connector
            .connect(target)
            .await
            .map_err(|error| match error.refusal() {
                Some(decision) => refusal(invocation, decision),
                None => connection(&error),
            })?;
        invocation.counters().fetch_sent(request.body.len() as u64);
        Exchange::new(link, request, target).await
    }

    async fn receive(
        &self,
        invocation: &InvocationContext,
        request: &Request,
        exchange: Exchange,
        redirected: bool,
    ) -> Result<pipe::Value, CallError> {
        let head = exchange.head();
        let body = exchange.body(self.limits.body_bytes).await?;
        invocation.counters().fetch_received(body.len() as u64);
        let received = Received {
            url: &request.url,
            redirected,
            head,
            body,
        };
        received.into_value(request.response_encoding)
    }
}

/// Policy's no, in the plugin's words: addresses behind names are not the plugin's to know.
fn refusal(invocation: &InvocationContext, decision: &Decision) -> CallError {
    invocation.counters().denied(&decision.host);
    let why = match &decision.why {
        Why::Address { class, .. } | Why::Peer { class, .. } => {
            format!("its name leads to an address that is refused ({class})")
        }
        why @ (Why::NoRule | Why::PortNotAllowed { .. }) => {
            format!(
                "{why}; hosts are declared under `egress` in plugin.json, or added by the installer"
            )
        }
        why => why.to_string(),
    };
    let Decision { host, port, .. } = decision;
    let at = match port {
        0 => host.clone(),
        port => format!("{host}:{port}"),
    };
    let code = match decision.why {
        Why::NotAUrl | Why::BadHost(_) | Why::BadPort | Why::BadRedirect => Code::BadRequest,
        _ => Code::Denied,
    };
    CallError::new(code, format!("host.fetch of {at} was refused: {why}"))
}

fn no_permit(refused: NoPermit) -> CallError {
    let code = match refused {
        NoPermit::UsedUp { .. } => Code::Limit,
        NoPermit::NoAnswer => Code::Unavailable,
    };
    let message = match refused {
        NoPermit::UsedUp { retry_after } => {
            format!(
                "host.fetch: {refused}; the next is granted in {} ms",
                retry_after.as_millis()
            )
        }
        NoPermit::NoAnswer => format!("host.fetch: {refused}"),
    };
    CallError::new(code, message)
}

/// Something outside failed: no refusal.
fn connection(error: &EgressError) -> CallError {
    let code = match error {
        EgressError::Timeout { .. } => Code::Timeout,
        _ => Code::Failed,
    };
    CallError::new(code, format!("host.fetch: {}", chain(error)))
}

/// An error with its sources, which Display leaves out.
fn chain(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |text, source| {
        format!("{text}: {source}")
    })
}
