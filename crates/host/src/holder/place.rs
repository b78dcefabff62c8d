//! Files of a place with a holder: another mode of the helper, as a process there.

pub(crate) use crate::helper::{Place, files};
