//! Makes Rust of the protobuf files. No compiler of protobuf needs to be installed: `protox` is one.

use std::error::Error;

const FILES: &[&str] = &[
    "bulkhead/pipe/v1/pipe.proto",
    "bulkhead/platform/v1/platform.proto",
    "bulkhead/isolates/v1/isolates.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(FILES, ["proto"])?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
