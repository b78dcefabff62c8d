//! Plugs in JavaScript and TypeScript (H6), for the program `bulkhead-js`, the only one that links V8.
//!
//! [`JsPlugs`] is what a session's process is given to run script plugs with. Each plug has an isolate of its own on a
//! thread of its own ([`actor`]), so plugs share nothing but the session, and one that spins holds up nobody else.
//! What a plug's code asks for, the `native` functions do: on the session's runtime, never on the plug's thread. The
//! world that the code finds (`ctx`, timers, `fetch` …) is written in JavaScript, in `prelude/`, over those functions.
//!
//! Plugs are the runner owner's own code and trusted: the isolate separates them from each other's mistakes, not
//! from the runner.

mod actor;
mod inside;
pub mod invocations;
mod loader;
mod logger;
mod native;
mod outside;
mod plug;
mod prelude;
mod runtime_files;
mod table;

pub use plug::{JsPlugs, JsPlugsError};
pub use runtime_files::{RuntimeFilesError, icu_data};
