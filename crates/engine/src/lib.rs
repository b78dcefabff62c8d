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

mod alone;
mod bare;
mod date;
mod error;
mod functions;
mod isolate;
mod json;
mod modules;
mod namespace;
mod platform;
mod raw;
mod snapshot;
mod turns;
mod value;

pub use alone::{Alone, CodeCache};
pub use error::{EngineError, Frame, JsError, Place, Thrown, ThrownKind};
pub use functions::{Answer, Function, Native, later, now};
pub use isolate::{Handle, Isolate, IsolateOptions, Shape, StringsAsCode, Trust};
pub use json::{Crossing, CrossingKind, JsonLimits, check as check_json};
pub use modules::Loader;
pub use namespace::{Entry, Namespace};
pub use platform::{Compilation, Language, Options, StartError, Threads, start};
pub use raw::on_fatal_memory;
pub use snapshot::Snapshot;
pub use value::{Argument, Json, Reference, Value};
