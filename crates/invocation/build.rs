//! Lets this crate's own tests find V8's library where `scripts/v8` made it.

use std::{fs, path::Path};

fn main() {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.v8/lib");
    println!(
        "cargo:rerun-if-changed={}",
        lib.join("libmini_racer.so").display()
    );
    // Where it is missing, the build script of vendor/temporal_capi says what to do.
    if let Ok(lib) = fs::canonicalize(lib) {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
    }
}
