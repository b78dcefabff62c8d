//! The hook of the escape test, in development builds only: a guest that makes whatever system call it is told to.
//!
//! After `Ready` the pipe carries no frames. The guest says the address of its [`SCRATCH_BYTES`] bytes of memory; then, again and
//! again, it reads the number of a call, six arguments and [`SCRATCH_BYTES`] bytes for that memory, makes the call, and writes
//! what the kernel answered and what is in that memory afterwards. All numbers are eight bytes, little-endian.
#![expect(
    unsafe_code,
    reason = "to make any system call is what it is there for; development builds only"
)]

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
};

use bulkhead_wire::pipe::{self, FromInvocation, Ready, from_invocation::Frame};

use crate::guest::{Guest, Pipe};

pub const SCRATCH_BYTES: usize = 4096;
const CALL_NUMBERS: usize = 7;

/// Stands in for whatever else would serve.
pub struct Prober;

impl Guest for Prober {
    fn serve(self: Box<Self>, pipe: Pipe) {
        // The end of the pipe is the end of the test.
        let _ = serve(File::from(pipe.stream));
    }
}

/// What a [`Prober`] does, also for a process that is not locked down.
pub fn serve(mut pipe: File) -> io::Result<()> {
    let ready = FromInvocation {
        frame: Some(Frame::Ready(Ready {})),
    };
    pipe.write_all(&pipe::encode(&ready).map_err(io::Error::other)?)?;
    let mut scratch = vec![0_u8; SCRATCH_BYTES];
    pipe.write_all(&(scratch.as_ptr().addr() as u64).to_le_bytes())?;
    loop {
        let mut numbers = [0; 8 * CALL_NUMBERS];
        pipe.read_exact(&mut numbers)?;
        pipe.read_exact(&mut scratch)?;
        let (numbers, _) = numbers.as_chunks::<8>();
        let call: Vec<u64> = numbers.iter().map(|n| u64::from_le_bytes(*n)).collect();
        let answer = perform(&call, &mut scratch);
        pipe.write_all(&answer.to_le_bytes())?;
        pipe.write_all(&scratch)?;
    }
}

/// The kernel's answer; a failure is its error number, negative.
fn perform(call: &[u64], _scratch: &mut [u8]) -> i64 {
    let [number, a, b, c, d, e, f] = call else {
        return -i64::from(libc::EINVAL);
    };
    // SAFETY: none: the test asks for what an attacker would, and the process is made for it.
    unsafe {
        let own = libc::syscall(libc::SYS_getpid);
        let answer = libc::syscall(number.cast_signed(), *a, *b, *c, *d, *e, *f);
        if libc::syscall(libc::SYS_getpid) != own {
            // The call has made a process, and this is it.
            libc::_exit(0);
        }
        if answer == -1 {
            -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(0))
        } else {
            answer
        }
    }
}
