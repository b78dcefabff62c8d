//! `host.fetch` against real servers on loopback, which the operator permits by name. The ids are those of the project's
//! table of cases.

mod http;
mod names;
mod rate;
mod redirects;
mod tls;
mod urls;

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use bulkhead_egress::{AllowPrivate, Egress, EgressConfig, Resolve, Tls};
use bulkhead_isolates::{
    call_error::{CallError, Code},
    context::{Authority, InvocationContext},
    fetch::{Fetch, FetchLimits},
    platform_link::{NoPermit, PlatformLink},
};
use bulkhead_model::{
    network::NetworkPolicy,
    plugin::{
        Demands, InvocationKind, InvocationLimits,
        rate::{FETCHES, RollingWindow},
    },
};
use bulkhead_test_isolates::net::Names;
use bulkhead_wire::platform;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Grants by the rule, or does not answer.
pub(crate) struct Permits {
    window: Mutex<RollingWindow>,
    started: Instant,
    asked: AtomicUsize,
    is_silent: bool,
}

#[async_trait]
impl PlatformLink for Permits {
    async fn ask(&self, _: platform::call::Call) -> platform::answer::Answer {
        platform::answer::Answer::Error(platform::Error::unavailable("fetch asks nothing else"))
    }

    async fn permit(&self) -> Result<(), NoPermit> {
        self.asked.fetch_add(1, Relaxed);
        if self.is_silent {
            return Err(NoPermit::NoAnswer);
        }
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap();
        let taken = self.window.lock().unwrap().take(now_ms);
        taken.map_err(|refused| NoPermit::UsedUp {
            retry_after: refused.retry_after,
        })
    }
}

/// One installation and its service.
pub(crate) struct World {
    fetch: Fetch,
    names: Arc<Names>,
    permits: Arc<Permits>,
    rules: Vec<String>,
    /// What the installer named. Every name of the rules, unless the test says otherwise.
    named: Option<HashSet<String>>,
    limit: Duration,
}

impl World {
    /// The operator permits `permitted` to be private; the plugin declares `rules`.
    pub(crate) fn new(names: Names, permitted: &[&str], rules: &[&str]) -> Self {
        Self::with(
            names,
            permitted,
            rules,
            Tls::system().unwrap(),
            FetchLimits::default(),
        )
    }

    pub(crate) fn with(
        names: Names,
        permitted: &[&str],
        rules: &[&str],
        tls: Tls,
        limits: FetchLimits,
    ) -> Self {
        let names = Arc::new(names);
        let config = EgressConfig {
            allow_private: AllowPrivate::hosts(permitted).unwrap(),
            ..EgressConfig::default()
        };
        let egress = Egress::new(config, Arc::clone(&names) as Arc<dyn Resolve>);
        Self {
            fetch: Fetch::with_limits(egress, tls, limits),
            names,
            permits: Arc::new(Permits {
                window: Mutex::new(RollingWindow::new(FETCHES)),
                started: Instant::now(),
                asked: AtomicUsize::new(0),
                is_silent: false,
            }),
            rules: rules.iter().map(|rule| (*rule).to_owned()).collect(),
            named: None,
            limit: Duration::from_secs(10),
        }
    }

    /// `good.test` is a server on loopback at this port.
    pub(crate) fn good(port: u16) -> Self {
        let rule = format!("good.test:{port}");
        Self::new(Names::loopback(&["good.test"]), &["good.test"], &[&rule])
    }

    pub(crate) fn silent(mut self) -> Self {
        Arc::get_mut(&mut self.permits).unwrap().is_silent = true;
        self
    }

    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    pub(crate) fn named(mut self, names: &[&str]) -> Self {
        self.named = Some(names.iter().map(|name| (*name).to_owned()).collect());
        self
    }

    pub(crate) fn context(&self) -> InvocationContext {
        let egress = NetworkPolicy::from_list(&self.rules).unwrap();
        let hosts = self
            .rules
            .iter()
            .map(|rule| rule.split(':').next().unwrap().to_owned());
        let named = self.named.clone().unwrap_or_else(|| hosts.collect());
        let named = named.iter().filter_map(|name| name.parse().ok()).collect();
        let kind = InvocationKind::Tool;
        let mut limits = InvocationLimits::of(kind, &Demands::default());
        limits.fetch = self.limit;
        let authority = Authority {
            invocation: "test".into(),
            installation: "installation".into(),
            kind,
            limits,
            secrets: HashSet::new(),
            permissions: HashSet::new(),
            egress,
            installer_hosts: named,
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        InvocationContext::new(
            authority,
            Arc::clone(&self.permits) as Arc<dyn PlatformLink>,
            deadline,
        )
    }

    /// One call in an invocation of its own. The value has the body in it.
    pub(crate) async fn fetch(&self, arguments: Value) -> Result<Value, CallError> {
        self.fetch_in(&self.context(), arguments).await
    }

    pub(crate) async fn fetch_in(
        &self,
        context: &InvocationContext,
        arguments: Value,
    ) -> Result<Value, CallError> {
        let value = self.fetch.fetch(context, &arguments.to_string()).await?;
        let mut json: Value = serde_json::from_str(&value.json).unwrap();
        json["body"] = value.body.into();
        Ok(json)
    }

    pub(crate) async fn get(&self, url: &str) -> Result<Value, CallError> {
        self.fetch(json!([url])).await
    }

    /// The code and the message of a call that must come to nothing.
    pub(crate) async fn refused(&self, url: &str) -> (Code, String) {
        match self.get(url).await {
            Err(error) => (error.code, error.message),
            Ok(value) => panic!("{url} was fetched: {value}"),
        }
    }

    pub(crate) fn permits_asked(&self) -> usize {
        self.permits.asked.load(Relaxed)
    }
}
