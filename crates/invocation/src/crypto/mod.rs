//! The functions of `host.crypto`: at once, in this process, without any authority, and within limits (P21). Shapes,
//! units and errors for authors are in `docs/plugins/engine.md`.
//!
//! A wrong argument is a `TypeError` with the code `bad_request`; a limit a `RangeError` with the code `limit`; what
//! does not decrypt, or a token that is not to be believed, an `Error` with the code `failed`.

mod arguments;
mod cipher;
mod digest;
mod jwt;
mod keys;
mod text;

use std::{cell::Cell, rc::Rc};

use bulkhead_engine::{Native, Thrown, ThrownKind, Value, now};

use crate::drive::{Shared, Sharing, coded};
use arguments::Arguments;

/// Calls of one invocation (P21).
pub(crate) const OPERATIONS_MAX: u32 = 200;
/// What all calls of one invocation may take in together.
pub(crate) const BYTES_MAX: u64 = 8 << 20;
/// What one call may take in.
pub(crate) const CALL_BYTES_MAX: usize = 1 << 20;

/// What an invocation has had.
#[derive(Debug, Default)]
pub(crate) struct Crypto {
    operations: Cell<u32>,
    bytes: Cell<u64>,
}

type Run = fn(&Shared, &Arguments) -> Result<Value, Thrown>;

const FUNCTIONS: &[(&str, Run)] = &[
    ("crypto.hash", |_, arguments| digest::hash(arguments)),
    ("crypto.hmac", |_, arguments| digest::hmac(arguments)),
    ("crypto.aesCbcDecrypt", |_, arguments| {
        cipher::aes_cbc_decrypt(arguments)
    }),
    ("crypto.ed25519Sign", |_, arguments| keys::sign(arguments)),
    ("crypto.ed25519Verify", |_, arguments| {
        keys::verify(arguments)
    }),
    ("crypto.jwtVerify", |_, arguments| jwt::verify(arguments)),
    ("crypto.timingSafeEqual", |_, arguments| {
        digest::timing_safe_equal(arguments)
    }),
    ("crypto.randomBytes", text::random_bytes),
    ("crypto.randomUUID", |shared, _| text::random_uuid(shared)),
    ("crypto.base64.encode", |_, arguments| {
        text::base64_encode(arguments)
    }),
    ("crypto.base64.decode", |_, arguments| {
        text::base64_decode(arguments)
    }),
    ("crypto.hex.encode", |_, arguments| {
        text::hex_encode(arguments)
    }),
    ("crypto.hex.decode", |_, arguments| {
        text::hex_decode(arguments)
    }),
];

/// The function of a path in the table of methods.
pub(crate) fn function(shared: &Sharing, path: &'static str) -> Option<Native> {
    let (_, run) = FUNCTIONS.iter().find(|(known, _)| *known == path)?;
    let shared = Rc::clone(shared);
    Some(Native::Values {
        run: now(move |values| {
            let arguments = Arguments::new(path, values);
            shared.crypto.count(&arguments)?;
            run(&shared, &arguments)
        }),
        bytes_max: CALL_BYTES_MAX,
    })
}

impl Crypto {
    pub(crate) fn operations(&self) -> u32 {
        self.operations.get()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// What warming up used is nobody's.
    pub(crate) fn reset(&self) {
        self.operations.set(0);
        self.bytes.set(0);
    }

    /// Before any work: a call that is refused for its arguments counts too.
    fn count(&self, arguments: &Arguments) -> Result<(), Thrown> {
        let operations = self.operations.get();
        if operations >= OPERATIONS_MAX {
            return Err(limit(format!(
                "host.crypto: one invocation has {OPERATIONS_MAX} operations, and this is one more"
            )));
        }
        let bytes = arguments.bytes();
        if bytes > CALL_BYTES_MAX {
            return Err(limit(format!(
                "host.{}: the arguments have {bytes} bytes, and one call may have {CALL_BYTES_MAX}",
                arguments.path
            )));
        }
        let all = self.bytes.get().saturating_add(bytes as u64);
        if all > BYTES_MAX {
            return Err(limit(format!(
                "host.crypto: one invocation may give {BYTES_MAX} bytes in all, and this makes {all}"
            )));
        }
        self.operations.set(operations + 1);
        self.bytes.set(all);
        Ok(())
    }
}

fn limit(message: String) -> Thrown {
    Thrown {
        kind: ThrownKind::RangeError,
        ..coded("limit", message)
    }
}

fn bad_request(message: String) -> Thrown {
    Thrown {
        kind: ThrownKind::TypeError,
        ..coded("bad_request", message)
    }
}

fn failed(message: impl Into<String>) -> Thrown {
    coded("failed", message.into())
}
