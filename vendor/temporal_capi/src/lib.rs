//! Empty: V8 has the real one inside. `build.rs` is what this crate is for.
