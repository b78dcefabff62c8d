//! What the protobuf compiler makes. The words are in the protobuf files; the modules lie as the packages do, because the
//! packages name each other so.

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
                tonic::include_proto!($name);
            }
        }
    };
}

package!(pipe, "bulkhead.pipe.v1");
package!(platform, "bulkhead.platform.v1");
package!(isolates, "bulkhead.isolates.v1");
