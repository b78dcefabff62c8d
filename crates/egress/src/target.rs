//! Where somebody wants to go, read from a URL or from the authority of a CONNECT request.

use std::fmt;

use bulkhead_model::network::Host;
use url::Url;

use crate::decision::{Decision, Why};

/// How the connection will be used. The scheme is checked before anything else (N10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    Http,
    Https,
    Ws,
    Wss,
    /// A tunnel or another protocol: bytes, with whatever encryption the two ends agree on.
    Tcp,
}

impl Scheme {
    /// What `fetch` may use by default.
    pub const WEB: &'static [Self] = &[Self::Http, Self::Https];

    const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Ws => "ws",
            Self::Wss => "wss",
            Self::Tcp => "tcp",
        }
    }

    const fn default_port(self) -> Option<u16> {
        match self {
            Self::Http | Self::Ws => Some(80),
            Self::Https | Self::Wss => Some(443),
            Self::Tcp => None,
        }
    }

    /// Whether this crate speaks TLS on such a connection.
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::Wss)
    }

    /// Whether bytes would go in clear for certain.
    pub(crate) const fn is_clear(self) -> bool {
        matches!(self, Self::Http | Self::Ws)
    }
}

/// One place outside: scheme, host and port, read once and never as text again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    scheme: Scheme,
    host: Host,
    port: u16,
}

impl Target {
    pub const fn new(scheme: Scheme, host: Host, port: u16) -> Self {
        Self { scheme, host, port }
    }

    /// Reads the text of a URL; `schemes` are those that the caller can use.
    pub fn from_url(text: &str, schemes: &[Scheme]) -> Result<Self, Decision> {
        match Url::parse(text) {
            Ok(url) => Self::from_parsed(&url, schemes),
            Err(_) => Err(Decision::unread(text, Why::NotAUrl)),
        }
    }

    pub fn from_parsed(url: &Url, schemes: &[Scheme]) -> Result<Self, Decision> {
        let refuse = |why| Err(Decision::unread(url.host_str().unwrap_or_default(), why));
        let Some(scheme) = schemes.iter().copied().find(|s| s.name() == url.scheme()) else {
            return refuse(Why::Scheme(url.scheme().chars().take(32).collect()));
        };
        if !url.username().is_empty() || url.password().is_some() {
            return refuse(Why::Userinfo);
        }
        let host = match Host::parse(url.host_str().unwrap_or_default()) {
            Ok(host) => host,
            Err(error) => return refuse(Why::BadHost(error)),
        };
        match url.port().or(scheme.default_port()) {
            Some(port) if port != 0 => Ok(Self { scheme, host, port }),
            _ => refuse(Why::BadPort),
        }
    }

    /// Reads `host:port`, the form of CONNECT: both parts must be there (RFC 9110, section 9.3.6).
    pub fn from_authority(text: &str) -> Result<Self, Decision> {
        let refuse = |why| Err(Decision::unread(text, why));
        if text.contains('@') {
            return refuse(Why::Userinfo);
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return refuse(Why::BadPort);
        };
        let port = match port.parse() {
            Ok(port) if port != 0 && port_is_digits(text) => port,
            _ => return refuse(Why::BadPort),
        };
        match Host::parse(host) {
            Ok(host) => Ok(Self {
                scheme: Scheme::Tcp,
                host,
                port,
            }),
            Err(error) => refuse(Why::BadHost(error)),
        }
    }

    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The normalised host: the one string for rules, DNS, SNI, the `Host` header and counters (N3).
    pub const fn host(&self) -> &Host {
        &self.host
    }

    pub const fn port(&self) -> u16 {
        self.port
    }
}

fn port_is_digits(authority: &str) -> bool {
    authority
        .rsplit(':')
        .next()
        .is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
