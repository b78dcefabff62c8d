//! Builds `bulkhead-init` for embedding: static, small, optimised, whatever profile this crate is built in.
//!
//! A build of its own in its own target directory, so that it never waits for the outer build's lock. What the outer build
//! wraps or flags (lints, coverage, sanitizers) does not belong into a program that runs alone in a sandbox, so those
//! variables are taken away.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// Variables of the outer build that would change the inner one.
const OUTER: [&str; 9] = [
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTC",
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "CARGO_MAKEFLAGS",
];

fn main() {
    let crate_dir = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let init = crate_dir.join("../init");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", init.join("src").display());
    println!(
        "cargo::rerun-if-changed={}",
        init.join("Cargo.toml").display()
    );
    let target = format!("{}-unknown-linux-gnu", variable("CARGO_CFG_TARGET_ARCH"));
    let out = PathBuf::from(variable("OUT_DIR")).join("init");
    build(&init.join("Cargo.toml"), &target, &out);
    let program = out.join(&target).join("release/bulkhead-init");
    assert!(
        program.is_file(),
        "the build of bulkhead-init left no program at {}",
        program.display()
    );
    println!("cargo::rustc-env=BULKHEAD_INIT={}", program.display());
}

fn build(manifest: &Path, target: &str, out: &Path) {
    let mut cargo = Command::new(variable("CARGO"));
    for name in OUTER {
        cargo.env_remove(name);
    }
    let flag = format!(
        "CARGO_TARGET_{}_RUSTFLAGS",
        target.to_uppercase().replace('-', "_")
    );
    cargo
        .args([
            "build",
            "--release",
            "--locked",
            "--offline",
            "--bin",
            "bulkhead-init",
        ])
        .arg("--manifest-path")
        .arg(manifest)
        .args(["--target", target])
        .arg("--target-dir")
        .arg(out)
        .env(
            flag,
            "-Ctarget-feature=+crt-static -Crelocation-model=static",
        )
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "s")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_LTO", "fat")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_INCREMENTAL", "0");
    let status = cargo.status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "building bulkhead-init failed ({status:?}); its messages are above"
    );
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("cargo gives {name} to build scripts: {error}"))
}
