//! x
mod typescript;
