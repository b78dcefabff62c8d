//! Links V8's library to the programs that contain the crate `v8`, and says what to do where it has not been made.

use std::path::Path;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let v8 = root.join(".v8");
    for file in ["librusty_v8.a", "src_binding.rs", "lib/libmini_racer.so"] {
        let file = v8.join(file);
        println!("cargo:rerun-if-changed={}", file.display());
        if !file.is_file() {
            eprintln!(
                "V8's library has not been made for this checkout ({} is missing).\n\
                 Run `scripts/setup js`, or `scripts/v8` alone, and build again.",
                file.display()
            );
            std::process::exit(1);
        }
    }
    println!("cargo:rustc-link-search=native={}", v8.join("lib").display());
    println!("cargo:rustc-link-lib=dylib=mini_racer");
}
