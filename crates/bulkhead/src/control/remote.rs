//! A control plane elsewhere, through its HTTP API.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, anyhow};
use bulkhead_egress::{
    AllowPrivate, Connector, DnsResolver, Egress, EgressConfig, EgressLimits, Grant, Scheme,
    Target, Tls,
};
use bulkhead_model::{PhaseName, RunId};
use bulkhead_server::{EventView, LogLine, News, PhaseStatus, Problem, ProblemBody, RunView};
use bytes::Bytes;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream, SelectAll},
};
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::{client::legacy, rt::TokioExecutor};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Serialize, de::DeserializeOwned};
use url::Url;

use super::sse::{self, Event};
use crate::failure::Misuse;

/// More than any answer of the API is.
const MAX_ANSWER: usize = 64 << 20;

/// Speaks with one server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Client {
    http: legacy::Client<Connector, Full<Bytes>>,
    base: Url,
    token: SecretString,
}

impl Client {
    pub(crate) fn new(server: &str, token: SecretString, extra_ca: Option<&str>) -> Result<Self> {
        let base = address(server)?;
        let target = Target::from_url(base.as_str(), Scheme::WEB).map_err(|decision| {
            Misuse::usage(format!("the server's address {server}: {}", decision.why))
        })?;
        let egress = EgressConfig {
            // The person named this very host, so it may be on this machine or network.
            allow_private: AllowPrivate::hosts(base.host_str())?,
            upstream_proxy: None,
            limits: EgressLimits::default(),
        };
        let tls = Tls::with_extra(extra_ca.map(str::as_bytes))?;
        let connector = Connector::new(
            Egress::new(egress, DnsResolver::system()),
            tls,
            Grant::operator(&target),
        );
        let http = legacy::Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { http, base, token })
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.json(Method::GET, path, None::<&()>).await
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T> {
        self.json(Method::POST, path, Some(body)).await
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T> {
        let answer = self.send(method, path, body).await?;
        serde_json::from_slice(&read(answer).await?)
            .with_context(|| format!("understanding the server's answer to {path}"))
    }

    pub(super) async fn text(&self, path: &str) -> Result<String> {
        let answer = self.send(Method::GET, path, None::<&()>).await?;
        Ok(String::from_utf8_lossy(&read(answer).await?).into_owned())
    }

    /// An answer that is no problem; a problem is an error.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Response<Incoming>> {
        let url = format!("{}api/v1/{path}", self.base);
        let bytes = body
            .map(serde_json::to_vec)
            .transpose()?
            .unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(&url)
            .header(
                header::AUTHORIZATION,
                format!("Bearer {}", self.token.expose_secret()),
            )
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(bytes))
            .with_context(|| format!("asking {url}"))?;
        let answer = self
            .http
            .request(request)
            .await
            .with_context(|| format!("asking the server at {}", self.base))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        match serde_json::from_slice::<ProblemBody>(&read(answer).await?) {
            Ok(problem) => Err(Problem::from(problem).into()),
            Err(_) => Err(anyhow!("the server at {} answered {status}", self.base)),
        }
    }

    async fn events(&self, path: &str) -> Result<BoxStream<'static, Result<Event>>> {
        let answer = self.send(Method::GET, path, None::<&()>).await?;
        let said = sse::events(answer.into_body());
        Ok(said
            .take_while(|event| {
                std::future::ready(!matches!(event, Ok(event) if event.name == "end"))
            })
            .boxed())
    }

    /// A live stream's items of one kind, until its end.
    fn live<T: DeserializeOwned + Send + 'static>(
        &self,
        path: String,
        name: &'static str,
    ) -> BoxStream<'static, Result<T>> {
        let client = self.clone();
        stream::once(async move { client.events(&path).await })
            .flat_map(|events| match events {
                Ok(events) => events,
                Err(error) => stream::once(async { Err(error) }).boxed(),
            })
            .filter_map(move |event| std::future::ready(item(event, name).transpose()))
            .boxed()
    }

    pub(super) fn follow_log(
        &self,
        run: RunId,
        phase: &PhaseName,
        after: u64,
    ) -> BoxStream<'static, Result<LogLine>> {
        self.live(
            format!("runs/{run}/phases/{phase}/log/live?after={after}"),
            "line",
        )
    }

    /// The run's changes, and what the phases that run meanwhile say and write.
    pub(super) fn follow(&self, run: RunId) -> BoxStream<'static, Result<News>> {
        let mut streams = SelectAll::new();
        let changes = self.live::<RunView>(format!("runs/{run}/watch"), "run");
        streams.push(
            changes
                .map(|run| {
                    Ok(News::Run {
                        run: Box::new(run?),
                    })
                })
                .boxed(),
        );
        let following = Following {
            client: self.clone(),
            run,
            streams,
            seen: BTreeSet::new(),
        };
        stream::unfold(following, |mut following| async move {
            let news = following.streams.next().await?;
            let ended = matches!(&news, Ok(News::Run { run }) if run.status.is_final());
            if let Ok(News::Run { run }) = &news {
                following.look(run);
            }
            if ended {
                following.streams.clear();
            }
            Some((news, following))
        })
        .boxed()
    }
}

/// A run and the live streams of its phases.
struct Following {
    client: Client,
    run: RunId,
    streams: SelectAll<BoxStream<'static, Result<News>>>,
    /// Attempts that are followed already.
    seen: BTreeSet<(String, u32)>,
}

impl Following {
    fn look(&mut self, view: &RunView) {
        for phase in view
            .phases
            .iter()
            .filter(|phase| phase.status == PhaseStatus::Running)
        {
            if !self.seen.insert((phase.name.clone(), phase.attempt)) {
                continue;
            }
            let (run, name, attempt) = (self.run, phase.name.clone(), phase.attempt);
            let below = format!("runs/{run}/phases/{name}");
            let events = self
                .client
                .live::<EventView>(format!("{below}/events/live?attempt={attempt}"), "event");
            self.streams.push(
                events
                    .map(|event| Ok(News::Event { event: event? }))
                    .boxed(),
            );
            let lines = self
                .client
                .live::<LogLine>(format!("{below}/log/live?attempt={attempt}"), "line");
            let line = move |line: Result<LogLine>| {
                Ok(News::Log {
                    phase: name.clone(),
                    attempt,
                    line: line?,
                })
            };
            self.streams.push(lines.map(line).boxed());
        }
    }
}

fn item<T: DeserializeOwned>(event: Result<Event>, name: &str) -> Result<Option<T>> {
    let event = event?;
    match event.name.as_str() {
        found if found == name => serde_json::from_str(&event.data)
            .context("understanding an event")
            .map(Some),
        "error" => match serde_json::from_str::<ProblemBody>(&event.data) {
            Ok(problem) => Err(Problem::from(problem).into()),
            Err(_) => Err(anyhow!("the server's stream failed")),
        },
        "bye" => Err(anyhow!(
            "the server is going away; ask again when it is back"
        )),
        _ => Ok(None),
    }
}

async fn read(answer: Response<Incoming>) -> Result<Bytes> {
    let limited = Limited::new(answer.into_body(), MAX_ANSWER);
    let collected = limited
        .collect()
        .await
        .map_err(|error| anyhow!(error))
        .context("reading the server's answer")?;
    Ok(collected.to_bytes())
}

/// With a `/` at its end, so that paths can be put behind it; `localhost` by its address, because names are asked of DNS alone.
pub(super) fn address(server: &str) -> Result<Url> {
    let wrong = |why: String| {
        Misuse::usage_hint(
            format!("the server's address {server:?} {why}"),
            "such as http://127.0.0.1:7070",
        )
    };
    let mut url: Url = server
        .parse()
        .map_err(|error| wrong(format!("is not a URL: {error}")))?;
    if url.host_str() == Some("localhost") && url.scheme() == "http" {
        url.set_host(Some("127.0.0.1"))
            .map_err(|error| wrong(error.to_string()))?;
    }
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    if !matches!(url.scheme(), "http" | "https")
        || !url.username().is_empty()
        || url.query().is_some()
    {
        return Err(wrong("is not of the form http(s)://HOST[:PORT]".into()).into());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::address;

    #[test]
    fn r18_addresses_of_servers() {
        assert_eq!(
            address("http://localhost:7070").unwrap().as_str(),
            "http://127.0.0.1:7070/"
        );
        assert_eq!(
            address("https://b.example.com/x").unwrap().as_str(),
            "https://b.example.com/x/"
        );
        for wrong in [
            "",
            "b.example.com",
            "ftp://b.example.com",
            "http://user@b.example.com",
            "http://b.example.com/?q",
        ] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
