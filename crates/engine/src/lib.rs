//! V8, as the rest of Bulkhead sees it: the only crate that names `v8` (D11).
//!
//! An [`Isolate`] is one JavaScript world, made from a [`Snapshot`] or bare, and lives on the thread that made it.
//! It runs scripts and modules, and calls functions. Data crosses its border as [`Value`]s, which share nothing with
//! it; what must stay inside is held by [`Reference`]s. Host functions are Rust closures that answer now or later.
//! [`Isolate::settle`] and [`Isolate::turn`] are its event loop: they are futures of whatever runtime polls them.
//!
//! Two things can end what runs inside: a [`Handle`] from any thread, and the limits in [`IsolateOptions`]. Neither
//! is a wall: V8 has built-in loops that no termination reaches, and allocations that overshoot every limit. Whoever
//! runs code that is not trusted puts the process itself behind limits (D8).
//!
//! [`start`] comes first, once in a process, and decides for all isolates whether V8 makes machine code.

mod error;
mod functions;
mod isolate;
mod modules;
mod platform;
mod raw;
mod snapshot;
mod turns;
mod value;

pub use error::{EngineError, JsError, Place, Thrown, ThrownKind};
pub use functions::{Answer, Function, later, now};
pub use isolate::{Handle, Isolate, IsolateOptions, StringsAsCode};
pub use modules::Loader;
pub use platform::{Compilation, Options, StartError, start};
pub use snapshot::Snapshot;
pub use value::{Argument, Reference, Value};
