//! Loading a bundle to see what it exports, and to keep what V8 made of it.

use std::{collections::HashSet, sync::Arc};

use async_trait::async_trait;
use bulkhead_model::{
    network::NetworkPolicy,
    plugin::{Demands, InvocationKind, InvocationLimits, Lower, MemoryClass},
};
use bulkhead_wire::{
    isolates::{
        CheckRequest, CheckResponse, Checked, Export, Fault, Handler, check_response::Outcome,
        export::Kind,
    },
    pipe::{self, done},
    platform,
};
use tokio::time::Instant;
use tonic::Status;

use super::{Broker, Refused};
use crate::{
    bundles::{Bundle, SOURCE_BYTES_MAX},
    caller::Caller,
    context::{Authority, InvocationContext},
    fault::Judge,
    host_calls::NothingOffered,
    invocation::{Driven, End, Job, life::Errand},
    platform_link::{NoPermit, PlatformLink},
    slots::Slot,
};

const TYPESCRIPT: [&str; 2] = [".ts", ".mts"];
const HANDLERS_MAX: usize = 1_000;
const FILE_BYTES_MAX: usize = 1_024;

impl Broker {
    pub(crate) async fn check(
        self: &Arc<Self>,
        request: CheckRequest,
    ) -> Result<CheckResponse, Status> {
        check_lengths(&request)?;
        let _present = self.tasks.token();
        let outcome = match self.checked(request).await {
            Ok(Ok(checked)) => Outcome::Checked(checked),
            Ok(Err(fault)) => Outcome::Fault(fault),
            Err(Refused::NotRun(not_run)) => Outcome::NotRun(not_run),
            Err(Refused::Broke(status)) => return Err(status),
        };
        Ok(CheckResponse {
            outcome: Some(outcome),
        })
    }

    async fn checked(
        self: &Arc<Self>,
        request: CheckRequest,
    ) -> Result<Result<Checked, Fault>, Refused> {
        if self.draining.is_cancelled() {
            return Err(super::refused(
                bulkhead_wire::isolates::not_run::Reason::Draining,
                "the service takes nothing new",
                std::time::Duration::ZERO,
            ));
        }
        let slot = self
            .slots
            .begin()
            .await
            .map_err(|error| super::shed(&error.to_string()))?;
        let is_typescript = TYPESCRIPT.iter().any(|end| request.file.ends_with(end));
        let start = check_start(&request.source, &request.file, is_typescript);
        let exports = match self.load(start, slot).await? {
            Ok(exports) => exports,
            Err(fault) => return Ok(Err(fault)),
        };
        let javascript = if is_typescript {
            exports.javascript.unwrap_or_default()
        } else {
            request.source
        };
        let bundle = self.bundles.insert(Bundle::new(javascript));
        if bundle.claims_code_cache() {
            bundle.keep_code_cache(exports.code_cache);
        }
        let exports: Vec<Export> = exports.exports.into_iter().map(export).collect();
        Ok(Ok(Checked {
            bundle_sha256: bundle.hash.to_vec(),
            javascript: bundle.source.clone(),
            missing: missing(request.handlers, &exports),
            exports,
        }))
    }

    /// Has the bundle's code compiled, besides and once, where it is not yet.
    pub(super) fn compile_in_time(self: &Arc<Self>, bundle: &Arc<Bundle>, file: &str) {
        if !bundle.claims_code_cache() {
            return;
        }
        let (broker, bundle) = (Arc::clone(self), Arc::clone(bundle));
        let start = check_start(&bundle.source, file, false);
        self.tasks.spawn(async move {
            let Ok(_one) = broker.compiling.acquire().await else {
                return;
            };
            // It may wait as long as it must: nobody waits for it.
            let Ok(slot) = broker.slots.resume().await else {
                return;
            };
            match broker.load(start, slot).await {
                Ok(Ok(exports)) => bundle.keep_code_cache(exports.code_cache),
                Ok(Err(fault)) => tracing::debug!(?fault, "a bundle has no code cache"),
                Err(_) => {}
            }
        });
    }

    async fn load(
        &self,
        start: pipe::Start,
        slot: Slot,
    ) -> Result<Result<pipe::Exports, Fault>, Refused> {
        let mut caller = Caller::Nobody;
        let mut process = self
            .ready_process(MemoryClass::Normal, Errand::Check, &mut caller)
            .await?;
        let authority = self.nothing();
        let deadline = Instant::now() + authority.limits.wall;
        let context = Arc::new(InvocationContext::new(
            authority,
            Arc::new(NoPlatform),
            deadline,
        ));
        let job = Job {
            start,
            host_calls: Arc::new(NothingOffered),
        };
        let driven = process
            .drive(job, Arc::clone(&context), slot, &self.slots, &mut caller)
            .await;
        exports_of(driven, &context)
    }

    /// The authority of a module that is loaded for nobody.
    fn nothing(&self) -> Authority {
        let limits = InvocationLimits::of(InvocationKind::Tool, &Demands::default());
        Authority {
            invocation: "check".to_owned(),
            installation: "check".to_owned(),
            kind: InvocationKind::Tool,
            limits: limits.lowered(Lower {
                wall: Some(self.settings.check_wall),
                result_bytes: None,
            }),
            secrets: HashSet::new(),
            permissions: HashSet::new(),
            egress: NetworkPolicy::deny_all(),
            installer_hosts: HashSet::new(),
        }
    }
}

fn check_lengths(request: &CheckRequest) -> Result<(), Status> {
    let too_long = request.source.len() > SOURCE_BYTES_MAX
        || request.file.len() > FILE_BYTES_MAX
        || request.handlers.len() > HANDLERS_MAX;
    if too_long {
        let words = "the source is longer than 8 MiB, or the file's name or the list of handlers is too long";
        return Err(Status::invalid_argument(words));
    }
    Ok(())
}

fn check_start(source: &str, file: &str, typescript: bool) -> pipe::Start {
    pipe::Start {
        source: source.to_owned(),
        file: file.to_owned(),
        code_cache: Vec::new(),
        work: Some(pipe::start::Work::Check(pipe::Check {
            want_code_cache: true,
            typescript,
        })),
    }
}

fn exports_of(
    driven: Driven,
    context: &InvocationContext,
) -> Result<Result<pipe::Exports, Fault>, Refused> {
    let judge = Judge {
        limits: context.authority().limits,
        secrets: context.secrets(),
        used: context.counters().used(),
    };
    Ok(Err(match driven.end {
        End::Done(done) => match done.outcome {
            Some(done::Outcome::Exports(exports)) => return Ok(Ok(exports)),
            Some(done::Outcome::Failure(failure)) => {
                judge.failed(&failure, &done.usage.unwrap_or_default())
            }
            _ => judge.broke("an end that is none", driven.took, driven.phase),
        },
        End::TimedOut => judge.timed_out(driven.took, driven.phase),
        End::Died(death) => judge.died(death.as_ref(), driven.phase),
        End::Broke(how) => judge.broke(&how, driven.took, driven.phase),
        End::Gone(gone) => return Err(gone.into()),
    }))
}

fn export(export: pipe::Export) -> Export {
    let kind = match export.kind() {
        pipe::export::Kind::Function => Kind::Function,
        pipe::export::Kind::Object => Kind::Object,
        pipe::export::Kind::Other | pipe::export::Kind::Unspecified => Kind::Other,
    };
    Export {
        path: export.path,
        kind: kind.into(),
    }
}

fn missing(promised: Vec<Handler>, exports: &[Export]) -> Vec<Handler> {
    let is_there = |handler: &Handler| {
        exports
            .iter()
            .any(|export| export.path == handler.path && export.kind() == Kind::Function)
    };
    promised
        .into_iter()
        .filter(|handler| !is_there(handler))
        .collect()
}

/// While a module is loaded for nobody, there is no platform.
struct NoPlatform;

#[async_trait]
impl PlatformLink for NoPlatform {
    async fn ask(&self, _: platform::call::Call) -> platform::answer::Answer {
        platform::answer::Answer::Error(platform::Error::unavailable("anything"))
    }

    async fn permit(&self) -> Result<(), NoPermit> {
        Err(NoPermit::NoAnswer)
    }
}
