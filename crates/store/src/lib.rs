//! What Bulkhead remembers: runs and what is still to be done for them, leases, pushes, tokens, events,
//! artifacts, secrets, logs.
//!
//! | module | keeps |
//! |---|---|
//! | [`runs`], [`outbox`], [`gates`] | the states of runs, what moved them, the effects to perform |
//! | [`leases`] | who may act for a run, under which fencing number |
//! | [`pushes`] | what the git gateway forwards, written before it does |
//! | [`tokens`] | hashes of the tokens of phases and callers |
//! | [`events`], [`logs`], [`artifacts`] | what phases said and handed on |
//! | [`secrets`] | values sealed under the master key |
//! | [`mask`] | how secrets are taken out of everything that is kept |
//! | [`retention`] | what goes, when, and what was left behind |
//!
//! All SQL of Bulkhead is in this crate. Three things are deliberately absent: a clock (times come in), the
//! environment (keys come in), and any knowledge of what a run means (that is `bulkhead-model`).

pub mod artifacts;
mod db;
mod dir;
mod error;
pub mod events;
pub mod gates;
pub mod leases;
pub mod logs;

pub mod outbox;
mod phase;
pub mod pushes;
pub mod retention;
pub mod runs;
pub mod secrets;
mod settings;
mod store;
pub mod tokens;

pub use bulkhead_mask as mask;
pub use dir::{Access, DataDir};
pub use error::{Error, Result};
pub use phase::{Held, PhaseKey};
pub use secrets::MasterKey;
pub use store::Store;
