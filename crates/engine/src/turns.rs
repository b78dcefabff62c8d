//! The event loop: what is under way outside, and the promises that wait for it.

use std::{
    future::poll_fn,
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
    task::Poll,
};

use futures::{StreamExt as _, future::LocalBoxFuture};

use crate::{
    EngineError, Isolate, Reference, Thrown, Value, error::describe, functions::thrown,
    isolate::State,
};

/// The number of a promise, and what settles it.
pub(crate) type Completion = LocalBoxFuture<'static, (u64, Result<Value, Thrown>)>;

static NEXT: AtomicU64 = AtomicU64::new(0);

impl State {
    /// A promise that the future will settle.
    pub(crate) fn promise_for<'s>(
        &self,
        scope: &mut v8::PinScope<'s, '_>,
        future: LocalBoxFuture<'static, Result<Value, Thrown>>,
    ) -> Option<v8::Local<'s, v8::Promise>> {
        let resolver = v8::PromiseResolver::new(scope)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let held = v8::Global::new(scope, resolver);
        self.resolvers.borrow_mut().insert(number, held);
        let completion = Box::pin(async move { (number, future.await) });
        self.under_way.borrow_mut().push(completion);
        Some(resolver.get_promise(scope))
    }
}

/// What a promise has come to.
enum Settled {
    Not,
    Fulfilled(Reference),
    Rejected(EngineError),
}

impl Isolate {
    /// Runs the isolate until a promise is settled, and gives what it is fulfilled with. A value that is no promise
    /// is given at once.
    ///
    /// Dropping the future loses nothing: what is under way goes on with the next turn.
    pub async fn settle(&mut self, promise: &Reference) -> Result<Reference, EngineError> {
        loop {
            self.checkpoint()?;
            match self.settled(promise) {
                Settled::Fulfilled(value) => return Ok(value),
                Settled::Rejected(error) => return Err(error),
                Settled::Not => self.complete().await,
            }
        }
    }

    /// Waits for something that is under way, and runs what waited for it. Where nothing is under way it waits for
    /// ever: only another call into the isolate can change that.
    pub async fn turn(&mut self) -> Result<(), EngineError> {
        self.checkpoint()?;
        self.complete().await;
        self.checkpoint()
    }

    /// Whether anything is under way outside.
    pub fn is_idle(&self) -> bool {
        self.state().under_way.borrow().is_empty()
    }

    /// Runs what is ready: the reactions of settled promises, and V8's own tasks.
    pub fn checkpoint(&mut self) -> Result<(), EngineError> {
        let platform = v8::V8::get_current_platform();
        while v8::Platform::pump_message_loop(&platform, self.inner(), false) {}
        self.inner().perform_microtask_checkpoint();
        self.outcome(Ok(()))
    }

    async fn complete(&mut self) {
        let state = Rc::clone(self.state());
        let (number, outcome) =
            poll_fn(
                |context| match state.under_way.borrow_mut().poll_next_unpin(context) {
                    Poll::Ready(Some(completion)) => Poll::Ready(completion),
                    Poll::Ready(None) | Poll::Pending => Poll::Pending,
                },
            )
            .await;
        self.resolve(number, outcome);
    }

    fn resolve(&mut self, number: u64, outcome: Result<Value, Thrown>) {
        let resolver = self.state().resolvers.borrow_mut().remove(&number);
        let Some(resolver) = resolver else { return };
        self.with(|scope| {
            let resolver = v8::Local::new(scope, resolver);
            match outcome.and_then(|value| value.to_v8(scope).map_err(|error| thrown(&error))) {
                Ok(value) => resolver.resolve(scope, value),
                Err(error) => {
                    let exception = error.to_exception(scope);
                    resolver.reject(scope, exception)
                }
            }
        });
    }

    fn settled(&mut self, promise: &Reference) -> Settled {
        self.with(|scope| {
            let value = v8::Local::new(scope, &promise.0);
            let Ok(promise) = v8::Local::<v8::Promise>::try_from(value) else {
                return Settled::Fulfilled(promise.clone());
            };
            match promise.state() {
                v8::PromiseState::Pending => Settled::Not,
                v8::PromiseState::Fulfilled => {
                    let value = promise.result(scope);
                    Settled::Fulfilled(Reference(v8::Global::new(scope, value)))
                }
                v8::PromiseState::Rejected => {
                    // Whoever waits for it has heard of it.
                    let held = v8::Global::new(scope, promise);
                    let state = Rc::clone(State::of(scope));
                    let mut rejections = state.rejections.borrow_mut();
                    rejections.retain(|(rejected, _)| *rejected != held);
                    let value = promise.result(scope);
                    Settled::Rejected(EngineError::Thrown(describe(scope, value, None)))
                }
            }
        })
    }
}
