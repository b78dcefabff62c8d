//! The operator's own proxy, through which everything goes where one is set (R6).
//!
//! A tunnel is asked for with HTTP CONNECT, for plain HTTP too. The name is sent unresolved, so what is
//! checked here is the rule by name and port, and that the target is no address literal and no name of the
//! machine or its metadata service; the addresses behind a name are the proxy's to judge. Hosts that the
//! operator permits as private are reached directly.

use std::io;

use base64::{Engine, prelude::BASE64_STANDARD};
use bulkhead_model::network::Host;
use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret, SecretString};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};
use url::Url;
use zeroize::Zeroizing;

use crate::{
    decision::EgressError,
    target::{Scheme, Target},
};

/// The most bytes of an answer's head that are read.
const MAX_HEAD: u64 = 16 * 1_024;

/// Where the proxy is, and what it wants to see first. Printing it shows no credential.
#[derive(Debug, Clone)]
pub struct UpstreamProxy {
    host: Host,
    port: u16,
    /// The value of `Proxy-Authorization`.
    authorization: Option<SecretString>,
}

/// An address of a proxy was not one. The text itself is not repeated: it may hold a password.
#[derive(Debug, thiserror::Error)]
#[error("the upstream proxy's address is not of the form http://[user:password@]host[:port]")]
pub struct UpstreamProxyError;

impl UpstreamProxy {
    /// Reads `http://[user:password@]host[:port]`; the default port is 80, as in any URL.
    pub fn from_url(text: &SecretString) -> Result<Self, UpstreamProxyError> {
        let mut url = Url::parse(text.expose_secret()).map_err(|_| UpstreamProxyError)?;
        let authorization = authorization(&url);
        url.set_username("").map_err(|()| UpstreamProxyError)?;
        url.set_password(None).map_err(|()| UpstreamProxyError)?;
        let target = Target::from_parsed(&url, &[Scheme::Http]).map_err(|_| UpstreamProxyError)?;
        Ok(Self {
            host: target.host().clone(),
            port: target.port(),
            authorization,
        })
    }

    pub(crate) const fn host(&self) -> &Host {
        &self.host
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Asks for a tunnel on a connection to the proxy. What follows the answer's head stays in the buffer.
    pub(crate) async fn open(
        &self,
        stream: TcpStream,
        target: &Target,
    ) -> Result<BufReader<TcpStream>, EgressError> {
        let failed = |source| EgressError::Connect {
            target: format!("{target} through the upstream proxy"),
            source,
        };
        let mut stream = BufReader::new(stream);
        let head = self.request(target);
        stream.write_all(head.as_bytes()).await.map_err(failed)?;
        let status = read_status(&mut stream).await.map_err(failed)?;
        match status {
            200..=299 => Ok(stream),
            status => Err(EgressError::UpstreamProxy {
                target: target.to_string(),
                status,
            }),
        }
    }

    fn request(&self, target: &Target) -> Zeroizing<String> {
        let mut head = Zeroizing::new(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"));
        if let Some(value) = &self.authorization {
            head.push_str("Proxy-Authorization: ");
            head.push_str(value.expose_secret());
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        head
    }
}

fn authorization(url: &Url) -> Option<SecretString> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let mut pair = Zeroizing::new(percent_decode_str(url.username()).collect::<Vec<u8>>());
    pair.push(b':');
    pair.extend(percent_decode_str(url.password().unwrap_or_default()));
    Some(format!("Basic {}", BASE64_STANDARD.encode(&*pair)).into())
}

/// Reads the head of the answer, line by line, and gives its status.
async fn read_status(stream: &mut BufReader<TcpStream>) -> io::Result<u16> {
    let mut head = Vec::new();
    let mut limited = stream.take(MAX_HEAD);
    loop {
        let line_start = head.len();
        if limited.read_until(b'\n', &mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if matches!(&head[line_start..], b"\r\n" | b"\n") {
            break;
        }
    }
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(&head);
    match (parsed, response.code) {
        (Ok(httparse::Status::Complete(_)), Some(code)) => Ok(code),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
