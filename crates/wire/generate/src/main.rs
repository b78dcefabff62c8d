//! Makes Rust of the protobuf files: `make wire`. What it makes is committed, with the digest of what it was made from, so that a
//! test can tell when the two no longer fit. No compiler of protobuf needs to be installed: `protox` is one.

use std::{error::Error, fmt::Write as _, fs, path::Path};

use sha2::{Digest as _, Sha256};

const FILES: &[&str] = &[
    "bulkhead/pipe/v1/pipe.proto",
    "bulkhead/platform/v1/platform.proto",
    "bulkhead/isolates/v1/isolates.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    let wire = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (sources, out) = (wire.join("proto"), wire.join("src/generated"));
    let files = protox::compile(FILES, [&sources])?;
    tonic_prost_build::configure()
        .out_dir(&out)
        .compile_fds(files)?;
    let mut digests = String::new();
    for file in FILES {
        let digest = Sha256::digest(fs::read(sources.join(file))?);
        writeln!(digests, "{digest:x}  {file}")?;
    }
    fs::write(out.join("sources.sha256"), digests)?;
    Ok(())
}
