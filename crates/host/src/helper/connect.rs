//! One stream to a port or socket of a place.

use std::{
    any::Any,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{PIPED, Place, argument, failed, status};
use crate::{
    DuplexStream, Endpoint, HostError,
    process::{Reader, Writer},
};

pub(crate) async fn connect(place: &dyn Place, to: Endpoint) -> Result<DuplexStream, HostError> {
    let argument = argument(&to).map_err(failed(place, &to))?;
    let arguments = vec!["connect".to_owned(), argument];
    let mut process = place.helper(arguments, PIPED).await?;
    let (Some(mut reader), Some(writer)) = (process.stdout.take(), process.stdin.take()) else {
        return Err(HostError::Gone { host: place.name() });
    };
    status(&mut reader).await.map_err(failed(place, &to))?;
    Ok(Box::new(Connected {
        reader,
        writer: Some(writer),
        _process: Box::new(process.control),
    }))
}

struct Connected {
    reader: Reader,
    /// Dropped by a shutdown, which is the other side's end of file.
    writer: Option<Writer>,
    _process: Box<dyn Any + Send>,
}

impl AsyncRead for Connected {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connected {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.writer {
            Some(writer) => Pin::new(writer).poll_write(cx, bytes),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.writer {
            Some(writer) => Pin::new(writer).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = match &mut self.writer {
            Some(writer) => Pin::new(writer).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        };
        if shut.is_ready() {
            self.writer = None;
        }
        shut
    }
}
