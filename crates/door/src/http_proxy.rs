//! The HTTP proxy inside the sandbox: CONNECT tunnels, and plain HTTP in absolute form.
//!
//! Requests are parsed by hyper and written anew for the upstream, on a connection of their own, so no
//! byte of a request reaches an upstream in the form in which the sandbox wrote it.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bulkhead_egress::{Decision, EgressError, Link, Scheme, Target};
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{CONTENT_TYPE, HOST},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn, upgrade::OnUpgrade};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpStream, time};
use tracing::debug;

use crate::{
    body::{self, Body},
    door::Shared,
    headers,
    log::Asked,
    relay::relay,
};

/// A request's head must come within this time, a kept connection's next one too.
const HEAD_TIME: Duration = Duration::from_secs(60);
const MAX_HEAD_BYTES: usize = 64 * 1_024;

/// A tunnel whose answer is on its way: it begins when hyper hands the connection over.
type Pending = Arc<Mutex<Option<(OnUpgrade, Link)>>>;

/// Serves one connection: requests until it closes, or one tunnel until that ends.
pub(crate) async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let pending = Pending::default();
    let service = service_fn(|request| {
        let (shared, pending) = (Arc::clone(&shared), Arc::clone(&pending));
        async move { Ok::<_, Infallible>(answer(request, &shared, &pending).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(MAX_HEAD_BYTES)
        .preserve_header_case(true)
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    if let Ok(Err(error)) = time::timeout(shared.limits.total, serving).await {
        debug!(%error, "a connection to the proxy ended");
    }
    let tunnel = pending
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some((upgrade, link)) = tunnel {
        run_tunnel(upgrade, link, &shared).await;
    }
}

async fn run_tunnel(upgrade: OnUpgrade, link: Link, shared: &Shared) {
    match upgrade.await {
        Ok(upgraded) => {
            if let Err(error) = relay(TokioIo::new(upgraded), link, shared.limits.relay()).await {
                debug!(%error, "a tunnel ended");
            }
        }
        Err(error) => debug!(%error, "a tunnel was given up"),
    }
}

async fn answer(
    request: Request<Incoming>,
    shared: &Arc<Shared>,
    pending: &Pending,
) -> Response<Body> {
    if request.method() == Method::CONNECT {
        return tunnel(request, shared, pending).await;
    }
    match request.uri().scheme_str() {
        Some("http") => forward(request, shared).await,
        Some(_) => bad_request("for anything but http:// ask this proxy for a tunnel (CONNECT)"),
        None => bad_request(
            "this is a proxy: send the whole URL (GET http://host/path), or CONNECT host:port",
        ),
    }
}

async fn tunnel(
    request: Request<Incoming>,
    shared: &Arc<Shared>,
    pending: &Pending,
) -> Response<Body> {
    let authority = request
        .uri()
        .authority()
        .map_or("", |authority| authority.as_str());
    match reach(Asked::Tunnel, Target::from_authority(authority), shared).await {
        Ok((link, _)) => {
            let upgrade = hyper::upgrade::on(request);
            *pending.lock().unwrap_or_else(PoisonError::into_inner) = Some((upgrade, link));
            Response::new(body::full(""))
        }
        Err(error) => failure(&error),
    }
}

async fn forward(request: Request<Incoming>, shared: &Arc<Shared>) -> Response<Body> {
    let target = Target::from_url(&request.uri().to_string(), &[Scheme::Http]);
    let (link, target) = match reach(Asked::Request, target, shared).await {
        Ok(reached) => reached,
        Err(error) => return failure(&error),
    };
    let Some(request) = rewrite(request, &target, shared) else {
        return bad_request("the URL of this request cannot be sent on");
    };
    match exchange(request, link, shared).await {
        // Nothing was asked to switch, so whatever follows such an answer is not HTTP.
        Ok(Ok(response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => words(
            StatusCode::BAD_GATEWAY,
            format!(
                "{target} switched protocols without being asked; WebSockets go through CONNECT"
            ),
        ),
        Ok(Ok(response)) => pass_back(response, shared),
        Ok(Err(error)) => {
            debug!(%error, %target, "an upstream failed");
            words(
                StatusCode::BAD_GATEWAY,
                format!("{target} broke off before it answered"),
            )
        }
        Err(_) => words(
            StatusCode::GATEWAY_TIMEOUT,
            format!("{target} did not begin to answer in time"),
        ),
    }
}

/// Makes the decision, notes it, and connects.
async fn reach(
    asked: Asked,
    target: Result<Target, Decision>,
    shared: &Shared,
) -> Result<(Link, Target), EgressError> {
    let result = match target {
        Ok(target) => {
            let decision = shared.egress.check(&shared.grant, &target);
            let link = shared.egress.connect(&shared.grant, &target).await;
            if !matches!(&link, Err(EgressError::Refused(_))) {
                shared.log.record(asked, &decision);
            }
            link.map(|link| (link, target))
        }
        Err(decision) => Err(EgressError::Refused(decision)),
    };
    if let Err(EgressError::Refused(decision)) = &result {
        shared.log.record(asked, decision);
    }
    result
}

/// The request in the form of its upstream: origin form, the checked host as `Host`, this hop's fields gone.
fn rewrite(request: Request<Incoming>, target: &Target, shared: &Shared) -> Option<Request<Body>> {
    let (mut parts, incoming) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse::<Uri>().ok()?;
    headers::end_hop(&mut parts.headers);
    let host = match target.port() {
        80 => target.host().to_string(),
        port => format!("{}:{port}", target.host()),
    };
    parts
        .headers
        .insert(HOST, HeaderValue::from_str(&host).ok()?);
    parts.version = http::Version::HTTP_11;
    let body = body::passing(incoming, shared.limits.idle);
    Some(Request::from_parts(parts, body))
}

async fn exchange(
    request: Request<Body>,
    link: Link,
    shared: &Shared,
) -> Result<hyper::Result<Response<Incoming>>, time::error::Elapsed> {
    let exchange = async {
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .preserve_header_case(true)
            .handshake(TokioIo::new(link))
            .await?;
        shared.spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "an upstream connection ended");
            }
        });
        sender.send_request(request).await
    };
    time::timeout(shared.limits.answer, exchange).await
}

fn pass_back(response: Response<Incoming>, shared: &Shared) -> Response<Body> {
    let (mut parts, incoming) = response.into_parts();
    headers::end_hop(&mut parts.headers);
    parts.version = http::Version::HTTP_11;
    Response::from_parts(parts, body::passing(incoming, shared.limits.idle))
}

/// What went wrong, in words for whoever reads the agent's log, with the remedy and who can apply it.
fn failure(error: &EgressError) -> Response<Body> {
    match error {
        EgressError::Refused(decision) => words(StatusCode::FORBIDDEN, refusal(decision)),
        EgressError::Timeout { .. } => words(StatusCode::GATEWAY_TIMEOUT, chain(error)),
        _ => words(StatusCode::BAD_GATEWAY, chain(error)),
    }
}

fn refusal(decision: &Decision) -> String {
    use bulkhead_egress::Why;
    let Decision { host, port, why } = decision;
    let place = match port {
        0 => host.clone(),
        port => format!("{host}:{port}"),
    };
    let remedy = match why {
        Why::NoRule | Why::PortNotAllowed { .. } => format!(
            "To allow it, someone who may change the workflow adds `{place}` to this phase's network allow-list on the base branch (with `bulkhead sandbox exec`: `--allow {place}`)."
        ),
        Why::Address { .. } | Why::Peer { .. } => format!(
            "Only the operator of Bulkhead can permit a private network, by naming `{host}` in the configuration; a rule must name it as well."
        ),
        Why::AddressLiteral => "Give the machine a name, and allow the name.".to_owned(),
        _ => "No rule can allow this.".to_owned(),
    };
    format!("Bulkhead refused {place}: {why}. {remedy}")
}

fn chain(error: &EgressError) -> String {
    let mut text = format!("Bulkhead's network door: {error}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn bad_request(text: &str) -> Response<Body> {
    words(StatusCode::BAD_REQUEST, text.to_owned())
}

fn words(status: StatusCode, mut text: String) -> Response<Body> {
    text.push('\n');
    let mut response = Response::new(body::full(text));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}
