//! What the protobuf compiler made (`make wire`). The words are in the protobuf files; the modules lie as the packages do,
//! because the packages name each other so.

macro_rules! package {
    ($package:ident, $name:literal) => {
        pub(crate) mod $package {
            #[allow(
                missing_docs,
                clippy::all,
                clippy::large_futures,
                clippy::unwrap_used,
                unreachable_pub,
                clippy::allow_attributes,
                reason = "made from the protobuf file, which has the words"
            )]
            pub(crate) mod v1 {
                include!(concat!("generated/", $name, ".rs"));
            }
        }
    };
}

package!(pipe, "bulkhead.pipe.v1");
package!(platform, "bulkhead.platform.v1");
package!(isolates, "bulkhead.isolates.v1");

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use std::{fs, path::Path};

    use sha2::{Digest as _, Sha256};

    /// P2: what is compiled is what the protobuf files say.
    #[test]
    fn p2_the_protobuf_files_are_those_that_the_code_was_made_from() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
        for line in include_str!("generated/sources.sha256").lines() {
            let (digest, file) = line.split_once("  ").unwrap();
            let now = format!(
                "{:x}",
                Sha256::digest(fs::read(sources.join(file)).unwrap())
            );
            assert_eq!(now, digest, "{file} has changed: run `make wire`");
        }
    }
}
