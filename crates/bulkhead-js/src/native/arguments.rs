//! Reading the arguments of native functions. The prelude has checked what plugs wrote, so an error here is a defect
//! of ours; it is an error in the plug all the same, and no panic.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use bulkhead_engine::{Thrown, Value};
use bytes::Bytes;

/// The arguments of one call, read from left to right.
pub(crate) struct Arguments(std::vec::IntoIter<Value>);

impl Arguments {
    pub(crate) fn new(arguments: Vec<Value>) -> Self {
        Self(arguments.into_iter())
    }

    pub(crate) fn value(&mut self) -> Value {
        self.0.next().unwrap_or_default()
    }

    pub(crate) fn text(&mut self) -> Result<String, Thrown> {
        match self.value() {
            Value::String(text) => Ok(text),
            other => Err(unexpected("text", &other)),
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes, Thrown> {
        match self.value() {
            Value::Bytes(bytes) => Ok(bytes),
            other => Err(unexpected("bytes", &other)),
        }
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Thrown> {
        let value = self.value();
        value
            .as_bool()
            .ok_or_else(|| unexpected("a boolean", &value))
    }

    pub(crate) fn number(&mut self) -> Result<f64, Thrown> {
        let value = self.value();
        value
            .as_number()
            .ok_or_else(|| unexpected("a number", &value))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Thrown> {
        let number = self.number()?;
        u32_of(number).ok_or_else(|| out_of_range(number))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Thrown> {
        let number = self.number()?;
        u64_of(number).ok_or_else(|| out_of_range(number))
    }

    /// A number, or null for none.
    pub(crate) fn maybe_u64(&mut self) -> Result<Option<u64>, Thrown> {
        match self.value() {
            Value::Null | Value::Undefined => Ok(None),
            Value::Number(number) => u64_of(number).map(Some).ok_or_else(|| out_of_range(number)),
            other => Err(unexpected("a number", &other)),
        }
    }

    pub(crate) fn usize(&mut self) -> Result<usize, Thrown> {
        usize::try_from(self.u64()?).map_err(|_| Thrown::range_error("a number is too large"))
    }

    pub(crate) fn path(&mut self) -> Result<PathBuf, Thrown> {
        match self.value() {
            Value::String(text) => Ok(PathBuf::from(text)),
            Value::Bytes(bytes) => Ok(PathBuf::from(OsStr::from_bytes(&bytes))),
            other => Err(unexpected("a path", &other)),
        }
    }

    /// Milliseconds since 1970.
    pub(crate) fn time(&mut self) -> Result<SystemTime, Thrown> {
        let ms = self.number()?;
        let span = Duration::try_from_secs_f64(ms.abs() / 1000.0).map_err(|_| out_of_range(ms))?;
        let time = match ms < 0.0 {
            true => SystemTime::UNIX_EPOCH.checked_sub(span),
            false => SystemTime::UNIX_EPOCH.checked_add(span),
        };
        time.ok_or_else(|| out_of_range(ms))
    }
}

fn unexpected(expected: &str, value: &Value) -> Thrown {
    Thrown::type_error(format!("{expected} was expected, not {value:?}"))
}

fn out_of_range(number: f64) -> Thrown {
    Thrown::range_error(format!("the number {number} is out of range"))
        .with("code", "ERR_OUT_OF_RANGE".into())
}

fn u32_of(number: f64) -> Option<u32> {
    u32::try_from(u64_of(number)?).ok()
}

/// Whole numbers that a double holds exactly.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is whole, and between zero and 2^53"
)]
fn u64_of(number: f64) -> Option<u64> {
    let holds = number.fract() == 0.0 && (0.0..=9_007_199_254_740_991.0).contains(&number);
    holds.then_some(number as u64)
}

/// A number as JavaScript has them; beyond 2^53 it is rounded.
#[expect(
    clippy::cast_precision_loss,
    reason = "that is what numbers are in JavaScript"
)]
pub(crate) fn number(value: u64) -> Value {
    Value::Number(value as f64)
}

/// A name as text where it is text, and as bytes where it is not.
pub(crate) fn name(name: &OsStr) -> Value {
    match name.to_str() {
        Some(text) => Value::String(text.to_owned()),
        None => Value::Bytes(Bytes::copy_from_slice(name.as_bytes())),
    }
}

pub(crate) fn path(path: &Path) -> Value {
    name(path.as_os_str())
}

/// An error of a host, with what caused it, as one message.
pub(crate) fn chain(error: &dyn std::error::Error) -> Thrown {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words.push_str(": ");
        words.push_str(&cause.to_string());
        source = cause.source();
    }
    Thrown::new(words)
}
