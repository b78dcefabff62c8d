//! A repository elsewhere, reached over https by one host-side process that alone holds the credential (D6).

use std::{fs::File, path::PathBuf, time::Duration};

use bulkhead_egress::{Egress, Tls};

use secrecy::{ExposeSecret as _, SecretString};
use url::{Host, Url};

use crate::{
    command::Git,
    error::{Refusal, Result},
    lfs_remote::RemoteLfs,
    names::{Oid, RefName},
    trusted::{TrustedRepo, ref_moved},
};

const TRANSFER_TIME: Duration = Duration::from_secs(30 * 60);

/// Answers git's request for a credential from that one process's environment. Constant text: the credential is in
/// no argument, URL or file, and redirects are off, so no other host can ask for it.
const HELPER: &str = "credential.helper=!f() { test \"$1\" = get || exit 0; \
    printf 'username=%s\\npassword=%s\\n' \"$BULKHEAD_GIT_USER\" \"$BULKHEAD_GIT_PASSWORD\"; }; f";

/// A credential for an upstream repository.
#[derive(Debug, Clone)]
pub struct UpstreamCredential {
    /// Forges that take tokens accept any name; `x-access-token` is a usual one.
    pub username: String,
    pub password: SecretString,
}

/// An upstream repository and how to reach it.
#[derive(Debug, Clone)]
pub struct Upstream {
    url: Url,
    pub credential: Option<UpstreamCredential>,
    /// An operator's HTTP proxy, whose URL may hold a password.
    proxy: Option<SecretString>,
    /// How LFS objects are reached. Without it they are refused by name.
    lfs: Option<RemoteLfs>,
    /// An operator's certificate authorities, as a PEM file.
    pub ca_file: Option<PathBuf>,
}

impl Upstream {
    /// Accepts https, and plain http to this machine only. Everything else is refused by name.
    pub fn new(url: &str) -> Result<Self> {
        let url = parse_url(url)?;
        Ok(Self {
            url,
            credential: None,
            proxy: None,
            lfs: None,
            ca_file: None,
        })
    }

    /// Goes through an operator's HTTP proxy.
    pub fn with_proxy(mut self, proxy: Option<&Url>) -> Self {
        self.proxy = proxy.map(|url| SecretString::from(url.as_str()));
        self
    }

    /// Serves the repository's LFS objects too, over connections that `egress` decides on: these are no git
    /// command's.
    pub fn with_lfs(mut self, egress: Egress, tls: Tls) -> Self {
        self.lfs = Some(RemoteLfs::new(&self.url, egress, tls));
        self
    }

    /// The repository's LFS server, with the credential for it.
    pub(crate) fn lfs(&self) -> Option<RemoteLfs> {
        let lfs = self.lfs.as_ref()?;
        Some(lfs.with_credential(self.credential.as_ref()))
    }

    pub fn with_credential(mut self, credential: Option<UpstreamCredential>) -> Self {
        self.credential = credential;
        self
    }

    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// Allows this one command to reach the upstream, and no other transport.
    fn reach(&self, git: Git) -> Git {
        let mut git = git
            .config(&format!("protocol.{}.allow=always", self.url.scheme()))
            .config("http.lowSpeedLimit=1")
            .config("http.lowSpeedTime=60")
            .time(TRANSFER_TIME);
        if let Some(proxy) = &self.proxy {
            // In the environment, which only this user can read: every user of the machine sees arguments.
            git = git
                .env("GIT_CONFIG_COUNT", "1")
                .env("GIT_CONFIG_KEY_0", "http.proxy")
                .env("GIT_CONFIG_VALUE_0", proxy.expose_secret());
        }
        if let Some(file) = &self.ca_file {
            git = git.env("GIT_SSL_CAINFO", file.as_os_str());
        }
        match &self.credential {
            Some(credential) => git
                .config(HELPER)
                .env("BULKHEAD_GIT_USER", &credential.username)
                .env("BULKHEAD_GIT_PASSWORD", credential.password.expose_secret()),
            None => git,
        }
    }

    /// Brings the mirror's branches and tags to the upstream's state. Other refs are never fetched.
    /// The command holds `lock` for as long as it lives, also when it outlives this process.
    pub(crate) async fn fetch_into(&self, mirror: &TrustedRepo, lock: Option<File>) -> Result<()> {
        self.reach(mirror.git().maybe_input(lock))
            .config("fetch.fsckObjects=true")
            .args([
                "fetch",
                "--quiet",
                "--prune",
                "--no-tags",
                "--no-write-fetch-head",
                "--no-auto-gc",
            ])
            .args([
                "--",
                self.url.as_str(),
                "+refs/heads/*:refs/heads/*",
                "+refs/tags/*:refs/tags/*",
            ])
            .output()
            .await?;
        self.follow_head(mirror).await
    }

    /// Lets the mirror's `HEAD` name the upstream's default branch, so that `HEAD` means the same in both.
    async fn follow_head(&self, mirror: &TrustedRepo) -> Result<()> {
        let asked = self.reach(mirror.git()).args([
            "ls-remote",
            "--symref",
            "--",
            self.url.as_str(),
            "HEAD",
        ]);
        let out = asked.output().await?;
        let text = String::from_utf8_lossy(&out);
        let target = text
            .lines()
            .find_map(|line| line.strip_prefix("ref: ")?.strip_suffix("\tHEAD"));
        let Some(branch) = target.and_then(|name| name.parse::<RefName>().ok()) else {
            return Ok(());
        };
        mirror
            .git()
            .args(["symbolic-ref", "HEAD", branch.as_str()])
            .output()
            .await
            .map(drop)
    }

    /// Where the upstream's own ref is now.
    pub(crate) async fn tip(
        &self,
        mirror: &TrustedRepo,
        reference: &RefName,
    ) -> Result<Option<Oid>> {
        let out = self
            .reach(mirror.git())
            .args([
                "ls-remote",
                "--refs",
                "--",
                self.url.as_str(),
                reference.as_str(),
            ])
            .output()
            .await?;
        let text = String::from_utf8_lossy(&out);
        let found = text.lines().filter_map(|line| line.split_once('\t'));
        let mut exact = found.filter(|(_, name)| *name == reference.as_str());
        Ok(exact.next().map(|(oid, _)| oid.parse()).transpose()?)
    }

    /// Pushes one commit to one ref, which must be at `old` (zero: must not exist) there. The command holds `lock`
    /// for as long as it lives: a push that outlives a killed server is over before the next one looks at the branch.
    pub(crate) async fn push(
        &self,
        mirror: &TrustedRepo,
        to: &RefName,
        old: &Oid,
        new: &Oid,
        lock: Option<File>,
    ) -> Result<()> {
        let expected = if old.is_zero() { "" } else { old.as_str() };
        let lease = format!("--force-with-lease={to}:{expected}");
        let spec = format!("{new}:{to}");
        let ended = self
            .reach(mirror.git().maybe_input(lock))
            .args([
                "push",
                "--porcelain",
                "--quiet",
                "--no-verify",
                "--no-follow-tags",
            ])
            .args([
                "--recurse-submodules=no",
                &lease,
                "--",
                self.url.as_str(),
                &spec,
            ])
            .run()
            .await?;
        if ended.code() == Some(0) {
            return Ok(());
        }
        let failure = ended.failure();
        match self.tip(mirror, to).await {
            Ok(Some(at)) if at == *new => Ok(()),
            Ok(at) if at.as_ref() != Some(old).filter(|oid| !oid.is_zero()) => {
                Err(ref_moved(to, old, at.as_ref()))
            }
            _ => Err(failure),
        }
    }
}

fn parse_url(text: &str) -> Result<Url> {
    let refused = |scheme: &str| Refusal::Scheme {
        scheme: scheme.to_ascii_lowercase(),
    };
    // `helper::address` runs a program, and `host:path` is ssh: neither is a URL.
    let scheme = match (text.split_once("::"), text.split_once("://")) {
        (Some((helper, _)), None) => helper,
        (_, Some((scheme, _))) => scheme,
        (None, None) => "ssh",
    };
    let url = Url::parse(text).map_err(|_| refused(scheme))?;
    let here = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    if !(url.scheme() == "https" || url.scheme() == "http" && here) {
        return Err(refused(scheme).into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        let mut shown = url;
        // Both fail only for URLs without a host, which were refused as such.
        let _ = (shown.set_username(""), shown.set_password(None));
        return Err(Refusal::CredentialsInUrl { url: shown.into() }.into());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]
    use super::*;

    #[test]
    fn only_https_and_this_machines_http_are_accepted() {
        assert!(Upstream::new("https://example.org/a.git").is_ok());
        assert!(Upstream::new("http://127.0.0.1:8080/a.git").is_ok());
        for (url, scheme) in [
            ("ssh://git@example.org/a", "ssh"),
            ("git@example.org:a.git", "ssh"),
            ("git://example.org/a", "git"),
            ("file:///etc", "file"),
            ("ext::sh -c x", "ext"),
            ("http://example.org/a", "http"),
        ] {
            let error = Upstream::new(url).unwrap_err();
            assert_eq!(
                error.refusal(),
                Some(&Refusal::Scheme {
                    scheme: scheme.into()
                }),
                "{url}"
            );
        }
    }

    #[test]
    fn a_url_with_a_credential_is_refused_without_repeating_it() {
        let error = Upstream::new("https://me:hunter22@example.org/a.git").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter22"));
        assert_eq!(error.refusal().unwrap().name(), "git_credentials_in_url");
    }
}
