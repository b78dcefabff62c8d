//! The LFS server of a remote repository, spoken to by the control plane alone (D6).
//!
//! Its address is the repository's URL with `/info/lfs` behind it, as git-lfs derives it; what a repository's own
//! `.lfsconfig` says does not count, because the credential would follow it. Each connection passes the decision of
//! `egress`: a server's answer may name another host for the bytes, and that host must be a public one too. The
//! credential goes to the repository's own origin only, redirects are not followed, and what a server gives as
//! header fields of its own for a transfer never leaves this process.

use std::{collections::BTreeMap, fmt, time::Duration};

use bulkhead_egress::{Connector, Egress, Grant, Scheme, Target, Tls};
use bytes::Bytes;
use futures::{Stream, stream};
use http::{HeaderName, HeaderValue, Method, Request, header};
use http_body_util::{BodyExt as _, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use tokio::{task::JoinSet, time};
use tokio_util::io::ReaderStream;
use url::Url;

use crate::{
    error::{Error, Result},
    lfs::LfsOid,
    upstream::UpstreamCredential,
};

const MEDIA: &str = "application/vnd.git-lfs+json";
const ANSWER_BYTES: usize = 8 << 20;
/// The longest that a server may think, or send nothing within an answer.
const ANSWER_TIME: Duration = Duration::from_secs(60);
const UPLOAD_TIME: Duration = Duration::from_secs(30 * 60);

type Problem = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// The LFS server of one repository.
#[derive(Clone)]
pub(crate) struct RemoteLfs {
    base: Url,
    egress: Egress,
    tls: Tls,
    authorization: Option<SecretString>,
}

impl fmt::Debug for RemoteLfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteLfs({})", self.base)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    Download,
    Upload,
}

/// An object and its size, as a pointer has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Wanted {
    #[serde(serialize_with = "oid_text")]
    pub(crate) oid: LfsOid,
    pub(crate) size: u64,
}

fn oid_text<S: serde::Serializer>(oid: &LfsOid, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(oid.as_str())
}

#[derive(Serialize)]
struct BatchRequest<'a> {
    operation: Operation,
    transfers: [&'static str; 1],
    objects: &'a [Wanted],
    hash_algo: &'static str,
}

#[derive(Deserialize)]
struct BatchAnswer {
    /// Absent means `basic`, the one that is asked for.
    transfer: Option<String>,
    objects: Vec<Offer>,
}

/// What the server offers for one object.
#[derive(Deserialize)]
pub(crate) struct Offer {
    pub(crate) oid: String,
    #[serde(default)]
    pub(crate) actions: Option<Actions>,
    #[serde(default)]
    pub(crate) error: Option<OfferError>,
}

#[derive(Deserialize, Default)]
pub(crate) struct Actions {
    #[serde(default)]
    pub(crate) download: Option<Action>,
    #[serde(default)]
    pub(crate) upload: Option<Action>,
    #[serde(default)]
    pub(crate) verify: Option<Action>,
}

#[derive(Deserialize)]
pub(crate) struct OfferError {
    pub(crate) code: u16,
}

/// Where a transfer goes. Both parts may be credentials in themselves, so this is never printed.
#[derive(Deserialize)]
pub(crate) struct Action {
    href: String,
    #[serde(default)]
    header: Option<BTreeMap<String, String>>,
}

/// An answer whose body is still to come. The connection lives as long as this.
struct Answer {
    body: Incoming,
    connection: JoinSet<()>,
}

impl RemoteLfs {
    pub(crate) fn new(repository: &Url, egress: Egress, tls: Tls) -> Self {
        let mut base = repository.clone();
        let path = base.path().trim_end_matches('/');
        let end = if path.ends_with(".git") { "" } else { ".git" };
        let path = format!("{path}{end}/info/lfs");
        base.set_path(&path);
        Self {
            base,
            egress,
            tls,
            authorization: None,
        }
    }

    pub(crate) fn with_credential(&self, credential: Option<&UpstreamCredential>) -> Self {
        let authorization = credential.map(UpstreamCredential::basic);
        Self {
            authorization,
            ..self.clone()
        }
    }

    /// Asks for places for these objects, each of which may be refused by itself.
    pub(crate) async fn batch(
        &self,
        operation: Operation,
        objects: &[Wanted],
    ) -> Result<Vec<Offer>> {
        self.ask_batch(operation, objects)
            .await
            .map_err(failed("ask for LFS objects"))
    }

    async fn ask_batch(
        &self,
        operation: Operation,
        objects: &[Wanted],
    ) -> Result<Vec<Offer>, Problem> {
        let asked = serde_json::to_vec(&BatchRequest {
            operation,
            transfers: ["basic"],
            objects,
            hash_algo: "sha256",
        })?;
        let mut url = self.base.clone();
        let path = format!("{}/objects/batch", url.path());
        url.set_path(&path);
        let mut request = self.request(Method::POST, &url, whole(asked))?;
        self.authorize(&url, &mut request);
        let answer = self.send(&url, request, ANSWER_TIME).await?;
        let answer: BatchAnswer = serde_json::from_slice(&read(answer).await?)?;
        if answer.transfer.is_some_and(|name| name != "basic") {
            return Err("it wants another kind of transfer than the basic one".into());
        }
        Ok(answer.objects)
    }

    /// The bytes of one object, exactly as many as its pointer says.
    pub(crate) async fn download(
        &self,
        action: &Action,
        size: u64,
    ) -> Result<impl Stream<Item = std::io::Result<Bytes>> + Send + use<>> {
        let answer = self
            .act(Method::GET, action, whole(Vec::new()), None)
            .await
            .map_err(failed("download an LFS object"))?;
        Ok(exactly(answer, size))
    }

    /// Sends one object, and tells the server that it is complete where it wants to hear that.
    pub(crate) async fn upload(
        &self,
        actions: &Actions,
        object: &Wanted,
        file: std::fs::File,
    ) -> Result<()> {
        let doing = || failed("upload an LFS object");
        let Some(action) = &actions.upload else {
            return Ok(());
        };
        let chunks = ReaderStream::with_capacity(tokio::fs::File::from_std(file), 64 << 10);
        let frames = futures::StreamExt::map(chunks, |chunk| chunk.map(Frame::data));
        let body = StreamBody::new(frames).boxed_unsync();
        let sent = self.act(Method::PUT, action, body, Some(object.size)).await;
        drop(sent.map_err(doing())?);
        if let Some(action) = &actions.verify {
            let words = serde_json::to_vec(object).map_err(|error| doing()(error.into()))?;
            let told = self.act(Method::POST, action, whole(words), None).await;
            drop(told.map_err(doing())?);
        }
        Ok(())
    }

    async fn act(
        &self,
        method: Method,
        action: &Action,
        body: Body,
        length: Option<u64>,
    ) -> Result<Answer, Problem> {
        let url = Url::parse(&action.href).map_err(|_| "it named a place that is no URL")?;
        let mut request = self.request(method, &url, body)?;
        let fields = request.headers_mut();
        if let Some(length) = length {
            fields.insert(header::CONTENT_LENGTH, length.into());
            let bytes = HeaderValue::from_static("application/octet-stream");
            fields.insert(header::CONTENT_TYPE, bytes);
        }
        for (name, value) in action.header.iter().flatten() {
            let name: HeaderName = name.parse()?;
            let mut value: HeaderValue = value.parse()?;
            value.set_sensitive(true);
            // How the message is framed and where it goes is decided here.
            let ours = [header::HOST, header::CONTENT_LENGTH, header::CONNECTION];
            if !ours.contains(&name)
                && !matches!(
                    name.as_str(),
                    "transfer-encoding" | "upgrade" | "expect" | "te"
                )
            {
                fields.insert(name, value);
            }
        }
        if !request.headers().contains_key(header::AUTHORIZATION) {
            self.authorize(&url, &mut request);
        }
        let time = length.map_or(ANSWER_TIME, |_| UPLOAD_TIME);
        self.send(&url, request, time).await
    }

    fn request(&self, method: Method, url: &Url, body: Body) -> Result<Request<Body>, Problem> {
        let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
        let host = &url[url::Position::BeforeHost..url::Position::AfterPort];
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, host)
            .header(header::ACCEPT, MEDIA)
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::CONTENT_TYPE, MEDIA)
            .header(header::USER_AGENT, "git-lfs/3 (bulkhead)");
        Ok(request.body(body)?)
    }

    /// Adds the repository's credential to what goes to the repository's own origin.
    fn authorize(&self, url: &Url, request: &mut Request<Body>) {
        let Some(value) = self.authorization.as_ref() else {
            return;
        };
        let same = url.origin() == self.base.origin();
        if let (true, Ok(mut value)) = (same, HeaderValue::from_str(value.expose_secret())) {
            value.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
    }

    async fn send(
        &self,
        url: &Url,
        request: Request<Body>,
        limit: Duration,
    ) -> Result<Answer, Problem> {
        let target = Target::from_parsed(url, Scheme::WEB).map_err(|decision| {
            format!("it named a place that cannot be used: {}", decision.why)
        })?;
        if !target.scheme().is_tls() && !self.egress.permits_private(target.host()) {
            return Err("it named an http:// place, which would go in clear".into());
        }
        let grant = Grant::operator(&target);
        let connector = Connector::new(self.egress.clone(), self.tls.clone(), grant);
        let link = connector.connect(&target).await?;
        let (mut sender, driver) =
            hyper::client::conn::http1::handshake(TokioIo::new(link)).await?;
        let mut connection = JoinSet::new();
        connection.spawn(async move {
            // How a connection ends is seen by whoever reads from it.
            let _ = driver.await;
        });
        let sending = sender.send_request(request);
        let response = time::timeout(limit, sending)
            .await
            .map_err(|_| "it did not answer in time")??;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("it answered {status}").into());
        }
        Ok(Answer {
            body: response.into_body(),
            connection,
        })
    }
}

impl UpstreamCredential {
    /// The value of `Authorization`.
    fn basic(&self) -> SecretString {
        use base64::{Engine as _, prelude::BASE64_STANDARD};
        let pair = zeroize::Zeroizing::new(format!(
            "{}:{}",
            self.username,
            self.password.expose_secret()
        ));
        format!("Basic {}", BASE64_STANDARD.encode(pair.as_bytes())).into()
    }
}

fn failed(doing: &'static str) -> impl FnOnce(Problem) -> Error {
    move |source| Error::Lfs { doing, source }
}

fn whole(bytes: Vec<u8>) -> Body {
    Full::new(Bytes::from(bytes))
        .map_err(|never| match never {})
        .boxed_unsync()
}

async fn read(answer: Answer) -> Result<Bytes, Problem> {
    let Answer {
        body,
        connection: _connection,
    } = answer;
    let reading = Limited::new(body, ANSWER_BYTES).collect();
    let body = time::timeout(ANSWER_TIME, reading)
        .await
        .map_err(|_| "its answer stood still")??;
    Ok(body.to_bytes())
}

/// The answer's bytes; an end too early, a byte too many or a long silence is an error.
fn exactly(answer: Answer, size: u64) -> impl Stream<Item = std::io::Result<Bytes>> + Send {
    let broken = |words: &str| std::io::Error::other(words.to_owned());
    stream::try_unfold((answer, size), move |(mut answer, left)| async move {
        loop {
            let frame = time::timeout(ANSWER_TIME, answer.body.frame());
            let frame = frame
                .await
                .map_err(|_| broken("the LFS server fell silent"))?;
            let Some(frame) = frame else {
                return match left {
                    0 => Ok(None),
                    _ => Err(broken("the LFS server's object is too short")),
                };
            };
            let frame = frame.map_err(std::io::Error::other)?;
            if let Ok(data) = frame.into_data() {
                let left = left
                    .checked_sub(data.len() as u64)
                    .ok_or_else(|| broken("the LFS server's object is too long"))?;
                return Ok(Some((data, (answer, left))));
            }
        }
    })
}
