//! The service itself.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bulkhead_egress::{Connector, Decision, Egress, EgressError, Grant, Scheme, Target, Tls};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, Request, Response,
    header::{
        ALT_SVC, CONTENT_ENCODING, LOCATION, SERVER, SET_COOKIE, STRICT_TRANSPORT_SECURITY, VIA,
    },
};
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Incoming};
use hyper_util::{
    client::legacy::{Client, Error as ClientError},
    rt::TokioTimer,
};
use secrecy::SecretString;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time,
};
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::{
    error::Problem,
    mask::{self, MaskedBody},
    path,
    request::{self, Asked, TokenCheck, TokenRefusal},
    upstream::{ApiStyle, ModelUpstream, ModelUpstreamError},
};
use crate::{
    body::{self, Body, BoxError},
    headers,
};

/// The body of the gateway's responses: streamed as it comes.
pub type GatewayBody = Body;

/// Bounds of the gateway.
#[derive(Debug, Clone, Copy)]
pub struct ModelLimits {
    /// Requests at work at one time, over all phases; further ones are told to try again.
    pub requests: usize,
    /// How long an upstream may think before its answer begins.
    pub answer: Duration,
    /// Silence within a body, in either direction.
    pub idle: Duration,
}

impl Default for ModelLimits {
    fn default() -> Self {
        Self {
            requests: 1_024,
            answer: Duration::from_secs(10 * 60),
            idle: Duration::from_secs(5 * 60),
        }
    }
}

/// What a gateway is made of.
pub struct ModelGatewayConfig {
    pub upstreams: Vec<ModelUpstream>,
    pub egress: Egress,
    pub tls: Tls,
    pub tokens: Arc<dyn TokenCheck>,
    pub limits: ModelLimits,
}

/// A gateway could not be made of its configuration.
#[derive(Debug, thiserror::Error)]
pub enum ModelGatewayError {
    #[error(transparent)]
    Upstream(#[from] ModelUpstreamError),
    #[error("two model upstreams have the name {0:?}; names must differ")]
    Twice(String),
    #[error("the base URL of the model upstream {name:?} leads nowhere: {}", .decision.why)]
    Target { name: String, decision: Decision },
}

/// The gateway. Cheap to clone; the clones share connections and limits.
#[derive(Clone)]
pub struct ModelGateway(Arc<Inner>);

struct Inner {
    served: BTreeMap<String, Served>,
    tokens: Arc<dyn TokenCheck>,
    limits: ModelLimits,
    room: Arc<Semaphore>,
    tasks: TaskTracker,
}

/// One upstream with its own pool of connections, which reach nothing else.
struct Served {
    upstream: ModelUpstream,
    client: Client<Connector, Body>,
}

/// Lets hyper's client run its connections as tasks that the gateway owns.
#[derive(Clone)]
struct Tracked(TaskTracker);

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}

impl ModelGateway {
    pub fn new(config: ModelGatewayConfig) -> Result<Self, ModelGatewayError> {
        let tasks = TaskTracker::new();
        let mut served = BTreeMap::new();
        for upstream in config.upstreams {
            let connector = connector(&upstream, &config.egress, &config.tls)?;
            let client = Client::builder(Tracked(tasks.clone()))
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(Duration::from_secs(60))
                .pool_max_idle_per_host(16)
                .build(connector);
            let name = upstream.name.clone();
            if served
                .insert(name.clone(), Served { upstream, client })
                .is_some()
            {
                return Err(ModelGatewayError::Twice(name));
            }
        }
        Ok(Self(Arc::new(Inner {
            served,
            tokens: config.tokens,
            limits: config.limits,
            room: Arc::new(Semaphore::new(config.limits.requests)),
            tasks,
        })))
    }

    /// Answers one request whose path begins with `/model/`. Never fails: what goes wrong is a response.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<GatewayBody>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let path = request.uri().path().to_owned();
        let Some((name, rest)) = path::split(&path) else {
            return Problem::NotFound.response(ApiStyle::OpenAi);
        };
        let served = self.0.served.get(name);
        let style = served.map_or(ApiStyle::OpenAi, |served| served.upstream.style);
        match self.pass(request, name, rest, served).await {
            Ok(response) => response,
            Err(problem) => {
                debug!(upstream = name, %problem, "a model request was not answered by its upstream");
                problem.response(style)
            }
        }
    }

    async fn pass<B>(
        &self,
        request: Request<B>,
        name: &str,
        rest: &str,
        served: Option<&Served>,
    ) -> Result<Response<Body>, Problem>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut parts, incoming) = request.into_parts();
        let asked = Asked::read(&parts, rest);
        self.authenticate(&asked.tokens, name).await?;
        let served = served.ok_or_else(|| Problem::NoUpstream(self.names()))?;
        request::check_method(&parts.method)?;
        let room = Arc::clone(&self.0.room);
        let place = room.try_acquire_owned().map_err(|_| Problem::Busy)?;
        request::rewrite(&mut parts, &asked, &served.upstream)?;
        let body = body::passing(incoming, self.0.limits.idle);
        let sending = served.client.request(Request::from_parts(parts, body));
        match time::timeout(self.0.limits.answer, sending).await {
            Ok(Ok(response)) => self.pass_back(response, &served.upstream, place),
            Ok(Err(error)) => Err(unreachable_by(&error)),
            Err(_) => Err(Problem::Timeout),
        }
    }

    /// One of the tokens must be good; a client that sends a key of its own beside it loses only that key.
    async fn authenticate(&self, tokens: &[String], upstream: &str) -> Result<(), Problem> {
        let mut problem = Problem::NoToken;
        // Clients have four places for a key.
        for token in tokens.iter().take(4) {
            match self.0.tokens.check(token, upstream).await {
                Ok(()) => return Ok(()),
                Err(TokenRefusal::NotForThisUpstream) => problem = Problem::NotForThisPhase,
                Err(TokenRefusal::Unknown) if problem == Problem::NoToken => {
                    problem = Problem::BadToken;
                }
                Err(TokenRefusal::Unknown) => {}
            }
        }
        Err(problem)
    }

    fn pass_back(
        &self,
        response: Response<Incoming>,
        upstream: &ModelUpstream,
        place: OwnedSemaphorePermit,
    ) -> Result<Response<Body>, Problem> {
        let (mut parts, incoming) = response.into_parts();
        if parts.status.is_redirection() && parts.headers.contains_key(LOCATION) {
            return Err(Problem::Redirect(redirect_host(&parts.headers, upstream)));
        }
        if is_compressed(&parts.headers) {
            return Err(Problem::Compressed);
        }
        headers::end_hop(&mut parts.headers);
        strip(&mut parts.headers, &upstream.credential);
        parts.extensions.clear();
        let passing = body::passing(incoming, self.0.limits.idle);
        let masked = MaskedBody::new(passing, upstream.credential.clone());
        // The place is given back when the body is dropped, not when its head has gone out.
        let counted = masked.map_frame(move |frame| {
            let _ = &place;
            frame
        });
        Ok(Response::from_parts(parts, counted.boxed_unsync()))
    }

    fn names(&self) -> String {
        let names: Vec<_> = self.0.served.keys().map(String::as_str).collect();
        names.join(", ")
    }

    /// Waits until no connection to an upstream is left, for as long as `grace`. Idle ones close by
    /// themselves when the last clone of the gateway is gone.
    pub async fn stop(self, grace: Duration) {
        let tasks = self.0.tasks.clone();
        drop(self);
        tasks.close();
        let _ = time::timeout(grace, tasks.wait()).await;
    }
}

/// A connector that reaches the upstream's base URL and nothing else.
fn connector(
    upstream: &ModelUpstream,
    egress: &Egress,
    tls: &Tls,
) -> Result<Connector, ModelGatewayError> {
    let failed = |decision| ModelGatewayError::Target {
        name: upstream.name.clone(),
        decision,
    };
    let target = Target::from_parsed(&upstream.base_url, Scheme::WEB).map_err(failed)?;
    if !target.scheme().is_tls() && !egress.permits_private(target.host()) {
        return Err(ModelUpstreamError::Clear(upstream.name.clone()).into());
    }
    let grant = Grant::operator(&target);
    let decision = egress.check(&grant, &target);
    match decision.allowed() {
        true => Ok(Connector::new(egress.clone(), tls.clone(), grant)),
        false => Err(failed(decision)),
    }
}

fn unreachable_by(error: &ClientError) -> Problem {
    let text = match EgressError::find(error) {
        Some(error) => error.to_string(),
        None => "the connection broke off before it answered".to_owned(),
    };
    match EgressError::find(error) {
        Some(EgressError::Timeout { .. }) => Problem::Timeout,
        _ => Problem::Unreachable(text),
    }
}

/// The place a redirect names, without anything that could be secret.
fn redirect_host(fields: &HeaderMap, upstream: &ModelUpstream) -> String {
    let location = fields.get(LOCATION).and_then(|value| value.to_str().ok());
    let url = location.and_then(|text| upstream.base_url.join(text).ok());
    let host = url.and_then(|url| url.host_str().map(ToOwned::to_owned));
    host.unwrap_or_else(|| "an unreadable place".to_owned())
}

fn is_compressed(fields: &HeaderMap) -> bool {
    fields
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Takes out cookies, what belongs to TLS outside, and what names the operator's account.
fn strip(fields: &mut HeaderMap, credential: &SecretString) {
    let account = [
        "anthropic-organization-id",
        "openai-organization",
        "openai-project",
        "x-goog-project-id",
    ];
    for name in account.map(HeaderName::from_static) {
        fields.remove(name);
    }
    for name in [ALT_SVC, SERVER, SET_COOKIE, STRICT_TRANSPORT_SECURITY, VIA] {
        fields.remove(name);
    }
    let doomed: Vec<_> = fields
        .iter()
        .filter(|(_, value)| mask::holds(value.as_bytes(), credential))
        .map(|(name, _)| name.clone())
        .collect();
    for name in doomed {
        fields.remove(name);
    }
}
