//! Holds the tests of the crate `v8`, run against our library; `build.rs` prepares them, `tests/api.rs` runs them.
