//! Says where the program finds V8's library when it runs: beside itself, or in `../lib/bulkhead`, where
//! `scripts/v8 --install` and packages put it; a development build also where `scripts/v8` made it.

use std::{env, fs, path::Path};

fn main() {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.v8/lib");
    println!(
        "cargo:rerun-if-changed={}",
        lib.join("libmini_racer.so").display()
    );
    for place in ["$ORIGIN", "$ORIGIN/../lib/bulkhead"] {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{place}");
    }
    // Never in a release: whoever could write to that directory would be in the program.
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if let (false, Ok(lib)) = (is_release, fs::canonicalize(lib)) {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
    }
}
