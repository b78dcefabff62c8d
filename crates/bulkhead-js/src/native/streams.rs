//! Streams of bytes, whatever they belong to.

use std::{rc::Rc, sync::Arc};

use bulkhead_engine::{Function, Thrown, Value, later};
use bulkhead_host::{Reader, Writer};
use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Held, Native, Shared, arguments::Arguments};

/// The most that one read gives.
const MAX_READ_BYTES: usize = 1 << 20;

pub(super) type ReadEnd = Shared<Option<Reader>>;
pub(super) type WriteEnd = Shared<Option<Writer>>;

impl Held {
    pub(super) fn add_reader(&self, reader: Reader) -> Result<Value, Thrown> {
        let number = self
            .readers
            .insert(Arc::new(tokio::sync::Mutex::new(Some(reader))))?;
        Ok(Value::Number(number.into()))
    }

    pub(super) fn add_writer(&self, writer: Writer) -> Result<Value, Thrown> {
        let number = self
            .writers
            .insert(Arc::new(tokio::sync::Mutex::new(Some(writer))))?;
        Ok(Value::Number(number.into()))
    }
}

pub(super) fn functions(native: &Rc<Native>) -> Vec<(&'static str, Function)> {
    let function = |run: fn(&Native, Arguments) -> Result<Work, Thrown>| {
        let native = Rc::clone(native);
        later(move |values| {
            let work = run(&native, Arguments::new(values));
            let begun = work.map(|work| native.outside.begin(work));
            async move { begun?.await }
        })
    };
    vec![
        ("streamRead", function(read)),
        ("streamWrite", function(write)),
        ("streamEnd", function(end)),
        ("streamDrop", function(drop_reader)),
    ]
}

pub(super) type Work = futures::future::BoxFuture<'static, Result<Value, Thrown>>;

/// The next bytes; null is the end.
fn read(native: &Native, mut arguments: Arguments) -> Result<Work, Thrown> {
    let (number, len) = (
        arguments.u32()?,
        arguments.usize()?.clamp(1, MAX_READ_BYTES),
    );
    // What was dropped has ended.
    let Ok(reader) = native.held.readers.get(number) else {
        return Ok(Box::pin(async { Ok(Value::Null) }));
    };
    let held = Arc::clone(&native.held);
    Ok(Box::pin(async move {
        let mut reader = reader.lock().await;
        let Some(open) = reader.as_mut() else {
            return Ok(Value::Null);
        };
        let mut bytes = BytesMut::with_capacity(len);
        let got = open
            .read_buf(&mut bytes)
            .await
            .map_err(|error| broken(&error))?;
        if got == 0 {
            *reader = None;
            held.readers.remove(number);
            return Ok(Value::Null);
        }
        bytes.truncate(len);
        Ok(Value::Bytes(bytes.freeze()))
    }))
}

fn write(native: &Native, mut arguments: Arguments) -> Result<Work, Thrown> {
    let (writer, bytes) = (
        native.held.writers.get(arguments.u32()?)?,
        arguments.bytes()?,
    );
    Ok(Box::pin(async move {
        let mut writer = writer.lock().await;
        let open = writer
            .as_mut()
            .ok_or_else(|| Thrown::new("the stream has ended"))?;
        open.write_all(&bytes)
            .await
            .map_err(|error| broken(&error))?;
        open.flush().await.map_err(|error| broken(&error))?;
        Ok(Value::Undefined)
    }))
}

fn end(native: &Native, mut arguments: Arguments) -> Result<Work, Thrown> {
    let writer = native.held.writers.remove(arguments.u32()?);
    Ok(Box::pin(async move {
        let Some(writer) = writer else {
            return Ok(Value::Undefined);
        };
        if let Some(mut writer) = writer.lock().await.take() {
            // Whoever reads may be gone already: then there is nobody to tell.
            let _ = writer.shutdown().await;
        }
        Ok(Value::Undefined)
    }))
}

fn drop_reader(native: &Native, mut arguments: Arguments) -> Result<Work, Thrown> {
    native.held.readers.remove(arguments.u32()?);
    Ok(Box::pin(async { Ok(Value::Undefined) }))
}

/// An error of a stream, with Node's code where it has one.
pub(super) fn broken(error: &std::io::Error) -> Thrown {
    use std::io::ErrorKind;
    let code = match error.kind() {
        ErrorKind::BrokenPipe => "EPIPE",
        ErrorKind::ConnectionReset => "ECONNRESET",
        ErrorKind::ConnectionRefused => "ECONNREFUSED",
        ErrorKind::TimedOut => "ETIMEDOUT",
        _ => return super::arguments::chain(error),
    };
    super::arguments::chain(error).with("code", code.into())
}
