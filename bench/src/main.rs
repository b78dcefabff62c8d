//! Measures the built-in sandbox against others.

fn main() {}
