//! A model that is none, for tests: it speaks the HTTP APIs of the well-known models on loopback, so that the
//! real agents do whole phases without a key and without a network.
//!
//! It understands Anthropic's Messages, OpenAI's Responses and chat completions, and Gemini's
//! `generateContent`, with and without streaming. What it says is a [`Script`]: an edit by the agent's own tool
//! (whichever of the offered ones writes files or runs a shell), a text, an error, a slow or a broken
//! stream. It keeps what it was asked ([`FakeModel::seen`]), so that a test can look at headers.
//!
//! Only tests use this crate; it is in no program.

mod answer;
mod anthropic;
mod gemini;
mod openai;
mod server;

pub use answer::Script;
pub use server::{FakeModel, Seen, answer};
