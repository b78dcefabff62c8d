//! The functions of `host.crypto`.

use bulkhead_engine::Native;

use crate::drive::Sharing;

#[derive(Debug, Default)]
pub(crate) struct Crypto {}

impl Crypto {
    pub(crate) fn operations(&self) -> u32 {
        0
    }
    pub(crate) fn bytes(&self) -> u64 {
        0
    }
}

pub(crate) fn function(_shared: &Sharing, _path: &'static str) -> Option<Native> {
    None
}
