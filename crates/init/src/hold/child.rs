//! One of the holder's processes: its pid and its streams.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    rc::Rc,
};

use bulkhead_init::wire::{ERROR, INPUT, Malformed, OUTPUT, WINDOW};

use crate::sys;

/// What is granted back at once, so that a window is never all on its way.
const GRANT_SIZE: u32 = WINDOW / 4;

pub(super) struct Child {
    pid: i32,
    is_alive: bool,
    is_released: bool,
    input: Option<Input>,
    output: Option<Output>,
    error: Option<Output>,
    kind: Kind,
}

/// What the streams are.
enum Kind {
    Pipes,
    /// One terminal, and this its outer end.
    Terminal(Rc<OwnedFd>),
    /// A connection, and no process at all.
    Socket(Rc<OwnedFd>),
}

struct Input {
    fd: Rc<OwnedFd>,
    queue: VecDeque<u8>,
    /// Written, but not granted back yet.
    written: u32,
    is_finished: bool,
}

struct Output {
    fd: Rc<OwnedFd>,
    window: u32,
}

/// What became of a stream.
pub(super) enum Progress {
    Nothing,
    Moved(u32),
    Ended,
}

/// A channel, its file, and the events that it waits for.
type Interest = (u8, RawFd, i16);

impl Child {
    pub(super) fn with_pipes(
        pid: i32,
        input: Option<OwnedFd>,
        output: Option<OwnedFd>,
        error: Option<OwnedFd>,
    ) -> Self {
        Self {
            pid,
            is_alive: true,
            is_released: false,
            input: input.map(|fd| Input::new(Rc::new(fd))),
            output: output.map(|fd| Output::new(Rc::new(fd))),
            error: error.map(|fd| Output::new(Rc::new(fd))),
            kind: Kind::Pipes,
        }
    }

    pub(super) fn with_terminal(pid: i32, outer: OwnedFd) -> Self {
        let outer = Rc::new(outer);
        Self {
            pid,
            is_alive: true,
            is_released: false,
            input: Some(Input::new(Rc::clone(&outer))),
            output: Some(Output::new(Rc::clone(&outer))),
            error: None,
            kind: Kind::Terminal(outer),
        }
    }

    /// Nobody waits for its end or signals it: its streams are all that it has.
    pub(super) fn with_socket(socket: OwnedFd) -> Self {
        let socket = Rc::new(socket);
        Self {
            pid: 0,
            is_alive: false,
            is_released: true,
            input: Some(Input::new(Rc::clone(&socket))),
            output: Some(Output::new(Rc::clone(&socket))),
            error: None,
            kind: Kind::Socket(socket),
        }
    }

    pub(super) const fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether this is the living process of that pid.
    pub(super) const fn is(&self, pid: i32) -> bool {
        self.is_alive && self.pid == pid
    }

    pub(super) const fn exited(&mut self) {
        self.is_alive = false;
    }

    pub(super) const fn release(&mut self) {
        self.is_released = true;
    }

    pub(super) const fn is_over(&self) -> bool {
        let is_read = self.output.is_none() && self.error.is_none();
        let is_written = self.input.is_none() || !matches!(self.kind, Kind::Socket(_));
        !self.is_alive && self.is_released && is_read && is_written
    }

    /// What to poll for; outputs only where there is `room` for what they say.
    pub(super) fn interests(&self, room: bool) -> [Option<Interest>; 3] {
        let input = self.input.as_ref().and_then(|input| {
            let waits = !input.queue.is_empty();
            // A pipe without a reader shows as an error even when nothing is waited for.
            let events = if waits { libc::POLLOUT } else { 0 };
            (waits || !self.is_terminal()).then(|| (INPUT, input.fd.as_raw_fd(), events))
        });
        let output = |channel, output: &Option<Output>| {
            let output = output.as_ref().filter(|output| room && output.window > 0)?;
            Some((channel, output.fd.as_raw_fd(), libc::POLLIN))
        };
        [
            input,
            output(OUTPUT, &self.output),
            output(ERROR, &self.error),
        ]
    }

    /// A terminal ends with the leader of its session. Linux says so at the outer end; gVisor says nothing, so what is left
    /// there is read without being asked to.
    pub(super) fn is_terminal_to_drain(&self) -> bool {
        let output = self.output.as_ref();
        self.is_terminal() && !self.is_alive && output.is_some_and(|output| output.window > 0)
    }

    /// Refuses what nobody has granted.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let Some(input) = &mut self.input else {
            return Ok(());
        };
        if input.queue.len() + bytes.len() > WINDOW as usize {
            return Err(Malformed);
        }
        input.queue.extend(bytes);
        Ok(())
    }

    /// Nothing more comes; on a terminal that means nothing, because its reader could not tell.
    pub(super) fn finish_input(&mut self) {
        if let Some(input) = &mut self.input {
            input.is_finished = true;
        }
        self.close_finished_input();
    }

    pub(super) fn write_input(&mut self) -> Progress {
        let Some(input) = &mut self.input else {
            return Progress::Nothing;
        };
        match input.write() {
            Ok(Progress::Ended) | Err(_) => {
                self.input = None;
                Progress::Ended
            }
            Ok(progress) => {
                self.close_finished_input();
                progress
            }
        }
    }

    fn close_finished_input(&mut self) {
        let input = self.input.as_ref();
        if self.is_terminal()
            || !input.is_some_and(|input| input.is_finished && input.queue.is_empty())
        {
            return;
        }
        self.input = None;
        if let Kind::Socket(socket) = &self.kind {
            super::socket::shut(socket, libc::SHUT_WR);
        }
    }

    const fn is_terminal(&self) -> bool {
        matches!(self.kind, Kind::Terminal(_))
    }

    pub(super) fn read_output(&mut self, channel: u8, buffer: &mut [u8]) -> Progress {
        let is_over = self.is_terminal() && !self.is_alive;
        let slot = if channel == OUTPUT {
            &mut self.output
        } else {
            &mut self.error
        };
        let Some(output) = slot else {
            return Progress::Nothing;
        };
        let most = buffer.len().min(output.window as usize);
        match sys::read(output.fd.as_raw_fd(), &mut buffer[..most]) {
            Ok(0) => {}
            Ok(read) => {
                let read = u32::try_from(read).unwrap_or(0);
                output.window = output.window.saturating_sub(read);
                return Progress::Moved(read);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !is_over => {
                return Progress::Nothing;
            }
            // A terminal whose inner end nobody has open any more says EIO.
            Err(_) => {}
        }
        *slot = None;
        Progress::Ended
    }

    pub(super) const fn grant(&mut self, channel: u8, bytes: u32) {
        let slot = if channel == OUTPUT {
            &mut self.output
        } else {
            &mut self.error
        };
        if let Some(output) = slot {
            output.window = output.window.saturating_add(bytes);
        }
    }

    /// Closes an output, so that its writer learns that nobody reads.
    pub(super) fn shut(&mut self, channel: u8) {
        if channel == OUTPUT {
            self.output = None;
        } else {
            self.error = None;
        }
        if let Kind::Socket(socket) = &self.kind {
            super::socket::shut(socket, libc::SHUT_RD);
        }
    }

    /// A process that is gone gets nothing; its group may outlive it, and is asked as long as the host may ask.
    pub(super) fn signal(&self, to_group: bool, number: i32) {
        // A connection has none, and 0 would be the holder's own group.
        if self.pid <= 0 {
            return;
        }
        let target = match (to_group, self.is_alive) {
            (true, _) => -self.pid,
            (false, true) => self.pid,
            (false, false) => return,
        };
        // SAFETY: `kill` takes numbers only.
        unsafe { libc::kill(target, number) };
    }

    pub(super) fn resize(&self, rows: u16, columns: u16) {
        if let Kind::Terminal(terminal) = &self.kind {
            let _ = super::start::set_size(terminal, rows, columns);
        }
    }
}

impl Input {
    fn new(fd: Rc<OwnedFd>) -> Self {
        Self {
            fd,
            queue: VecDeque::new(),
            written: 0,
            is_finished: false,
        }
    }

    fn write(&mut self) -> io::Result<Progress> {
        while !self.queue.is_empty() {
            match sys::write(self.fd.as_raw_fd(), self.queue.as_slices().0) {
                Ok(count) => {
                    drop(self.queue.drain(..count));
                    self.written += u32::try_from(count).unwrap_or(0);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.queue.is_empty() && self.written == 0 {
            return Ok(self.reader_is_gone());
        }
        if self.queue.is_empty() || self.written >= GRANT_SIZE {
            return Ok(Progress::Moved(std::mem::take(&mut self.written)));
        }
        Ok(Progress::Nothing)
    }

    fn reader_is_gone(&self) -> Progress {
        let mut polled = libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events: 0,
            revents: 0,
        };
        // SAFETY: the one entry outlives the call.
        unsafe { libc::poll(&raw mut polled, 1, 0) };
        if polled.revents & (libc::POLLERR | libc::POLLHUP) == 0 {
            Progress::Nothing
        } else {
            Progress::Ended
        }
    }
}

impl Output {
    fn new(fd: Rc<OwnedFd>) -> Self {
        Self { fd, window: WINDOW }
    }
}
