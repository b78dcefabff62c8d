//! The invocation's end of the pipe: whole messages, written and read by blocking.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::OwnedFd,
};

use bulkhead_wire::pipe::{
    Answer, Decoder, Done, Failure, FrameError, FromInvocation, Start, ToInvocation, encode,
    failure::Reason, from_invocation, to_invocation,
};

/// What is read at once.
const READ_BYTES: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum PipeError {
    #[error("the pipe to the broker cannot be used")]
    Broken(#[from] io::Error),
    #[error("the broker is gone")]
    Closed,
    #[error("what came through the pipe cannot be read")]
    Frame(#[from] FrameError),
    #[error("the broker sent {0}, for which it was not the time")]
    Unexpected(&'static str),
}

trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

pub(crate) struct Pipe {
    stream: Box<dyn Stream>,
    decoder: Decoder<ToInvocation>,
}

impl std::fmt::Debug for Pipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipe").finish_non_exhaustive()
    }
}

impl Pipe {
    pub(crate) fn new(stream: impl Read + Write + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            decoder: Decoder::default(),
        }
    }

    pub(crate) fn send(&mut self, frame: from_invocation::Frame) -> Result<(), PipeError> {
        let bytes = encode(&FromInvocation { frame: Some(frame) })?;
        self.stream.write_all(&bytes)?;
        Ok(())
    }

    pub(crate) fn start(&mut self) -> Result<Start, PipeError> {
        match self.receive()? {
            to_invocation::Frame::Start(start) => Ok(start),
            to_invocation::Frame::Answer(_) => Err(PipeError::Unexpected("an answer")),
        }
    }

    pub(crate) fn answer(&mut self) -> Result<Answer, PipeError> {
        match self.receive()? {
            to_invocation::Frame::Answer(answer) => Ok(answer),
            to_invocation::Frame::Start(_) => Err(PipeError::Unexpected("a second start")),
        }
    }

    fn receive(&mut self) -> Result<to_invocation::Frame, PipeError> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            if let Some(message) = self.decoder.take()? {
                return message
                    .frame
                    .ok_or(PipeError::Unexpected("an empty message"));
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(PipeError::Closed),
                Ok(len) => self.decoder.push(&buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Lets the process write a last `Done` when V8 can have no memory and ends it. `pipe` is a duplicate of what
/// [`crate::Prepared::serve`] is given; the first call in a process counts.
pub fn on_fatal_memory(pipe: OwnedFd) {
    let done = from_invocation::Frame::Done(Done {
        outcome: Some(bulkhead_wire::pipe::done::Outcome::Failure(Failure {
            reason: Reason::HeapLimit.into(),
            message: crate::fault::HEAP_LIMIT.to_owned(),
            stack: Vec::new(),
            at_load: false,
        })),
        usage: None,
        logs_left_out: 0,
    });
    let frame = encode(&FromInvocation { frame: Some(done) }).unwrap_or_default();
    let pipe = File::from(pipe);
    bulkhead_engine::on_fatal_memory(move || {
        let _ = (&pipe).write_all(&frame);
    });
}
