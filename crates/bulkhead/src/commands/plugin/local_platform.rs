//! The platform, as far as one author needs it: secrets, logs, and the rule of sixty requests a minute. Everything else is
//! not offered.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bulkhead_isolates::client::Platform;
use bulkhead_model::plugin::rate::{FETCHES, RollingWindow};
use bulkhead_wire::{
    isolates::Log,
    methods,
    platform::{
        self, Answer, Call, Error, answer::Answer as Answered, call::Call as Asked, error::Code,
    },
};

use crate::output::Output;

pub(super) struct LocalPlatform {
    secrets: BTreeMap<String, String>,
    window: Mutex<RollingWindow>,
    started: Instant,
    logs: Mutex<Vec<Log>>,
    /// Where lines are shown as they come.
    live: Option<Output>,
}

impl LocalPlatform {
    pub(super) fn new(secrets: BTreeMap<String, String>, live: Option<Output>) -> Self {
        Self {
            secrets,
            window: Mutex::new(RollingWindow::new(FETCHES)),
            started: Instant::now(),
            logs: Mutex::default(),
            live,
        }
    }

    pub(super) fn logs(&self) -> Vec<Log> {
        lock(&self.logs).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Platform for LocalPlatform {
    async fn answer(&self, _: &str, call: Call) -> Answer {
        let method = call.method().and_then(methods::by_number);
        let path = method.map_or("(a function that is not known)", |method| method.path);
        let Some(Asked::GetSecret(asked)) = call.call else {
            return Error::unavailable(path).into();
        };
        match self.secrets.get(&asked.name) {
            Some(value) => Answer {
                answer: Some(Answered::GetSecret(platform::Secret {
                    value: value.clone(),
                })),
            },
            None => Error::new(
                Code::NotFound,
                format!("no secret {:?} is given", asked.name),
            )
            .into(),
        }
    }

    async fn permit(&self) -> Result<(), Duration> {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        lock(&self.window)
            .take(now_ms)
            .map_err(|refused| refused.retry_after)
    }

    async fn log(&self, line: Log) {
        if let Some(output) = self.live {
            let level = level(&line);
            output.note(format_args!(
                "{:>7} ms  {level:<5}  {}",
                line.at_ms, line.text
            ));
        }
        lock(&self.logs).push(line);
    }
}

pub(super) fn level(line: &Log) -> &'static str {
    use bulkhead_wire::isolates::log::Level;
    match line.level() {
        Level::Debug => "debug",
        Level::Warn => "warn",
        Level::Error => "error",
        Level::Info | Level::Unspecified => "info",
    }
}
