//! A broker's half, as small as can be.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    process::Stdio,
    time::Duration,
};

use bulkhead_wire::pipe::{
    self, Decoder, FromInvocation, Run, Start, ToInvocation, done::Outcome, from_invocation::Frame,
    start::Work, to_invocation,
};
use bulkhead_zygote::{
    Isolate, Launched, Options, TestHooks,
    control::{Child, ChildId, Ending, Event},
    launch,
};
use rustix::event::{PollFd, PollFlags, poll};

/// For whatever should happen: only a failed test waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Zygote(pub(crate) Launched);

/// Until something else than an ending is told.
fn skip_endings(mut next: impl FnMut() -> Option<Event>) -> Option<Event> {
    loop {
        match next() {
            Some(Event::Exited { .. }) => {}
            other => return other,
        }
    }
}

pub(crate) fn options(test_hooks: TestHooks) -> Options {
    Options {
        memory_mib: 128,
        isolate: Isolate::Child,
        test_hooks,
    }
}

/// Whether the descriptor becomes readable, or its other end closes, in time.
pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let patience = rustix::event::Timespec {
        tv_sec: PATIENCE.as_secs().cast_signed(),
        tv_nsec: 0,
    };
    let mut watched = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut watched, Some(&patience)).unwrap() == 1
}

impl Zygote {
    pub(crate) fn start(test_hooks: TestHooks) -> Self {
        Self::start_program(Path::new(crate::ZYGOTE), test_hooks)
    }

    pub(crate) fn start_program(program: &Path, test_hooks: TestHooks) -> Self {
        Self::start_with(program, &options(test_hooks))
    }

    pub(crate) fn start_with(program: &Path, options: &Options) -> Self {
        let this = Self(launch(program, options, Stdio::inherit()).unwrap());
        assert!(matches!(this.next(), Some(Event::Ready)));
        this
    }

    pub(crate) fn next(&self) -> Option<Event> {
        assert!(is_readable(self.0.control.as_fd()), "the zygote is silent");
        self.0.control.receive().unwrap()
    }

    pub(crate) fn fork(&self) -> Process {
        let nothing = File::options().write(true).open("/dev/null").unwrap();
        self.fork_into(nothing.as_fd())
    }

    pub(crate) fn fork_into(&self, entrance: BorrowedFd<'_>) -> Process {
        self.0.control.fork(&[entrance]).unwrap();
        match skip_endings(|| self.next()) {
            Some(Event::Forked(child)) => Process::new(child),
            other => panic!("no child: {other:?}"),
        }
    }

    pub(crate) fn ending(&self) -> (ChildId, Ending) {
        match self.next() {
            Some(Event::Exited { id, ending }) => (id, ending),
            other => panic!("no ending: {other:?}"),
        }
    }
}

pub(crate) struct Process {
    pub(crate) id: ChildId,
    pub(crate) pipe: UnixStream,
    pub(crate) pidfd: OwnedFd,
    decoder: Decoder<FromInvocation>,
}

impl Process {
    fn new(child: Child) -> Self {
        let pipe = UnixStream::from(child.pipe);
        pipe.set_nonblocking(false).unwrap();
        pipe.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            id: child.id,
            pipe,
            pidfd: child.pidfd,
            decoder: Decoder::default(),
        }
    }

    /// The number by which this test's namespace knows it.
    pub(crate) fn pid(&self) -> i32 {
        let path = format!("/proc/self/fdinfo/{}", self.pidfd.as_raw_fd());
        let info = std::fs::read_to_string(path).unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("Pid:"));
        line.unwrap().trim().parse().unwrap()
    }

    pub(crate) fn kill(&self) {
        rustix::process::pidfd_send_signal(&self.pidfd, rustix::process::Signal::KILL).unwrap();
    }

    pub(crate) fn is_gone(&self) -> bool {
        is_readable(self.pidfd.as_fd())
    }

    /// The next frame; none at the pipe's end.
    pub(crate) fn frame(&mut self) -> Option<Frame> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(message) = self.decoder.take().unwrap() {
                return message.frame;
            }
            match self.pipe.read(&mut buffer).ok()? {
                0 => return None,
                count => self.decoder.push(&buffer[..count]),
            }
        }
    }

    pub(crate) fn start(&mut self, source: &str, input: &str) {
        self.call(source, &[], input);
    }

    pub(crate) fn call(&mut self, source: &str, handler: &[&str], input: &str) {
        assert!(matches!(self.frame(), Some(Frame::Ready(_))));
        let run = Run {
            handler: handler.iter().map(|step| (*step).to_owned()).collect(),
            settings_json: "{}".to_owned(),
            result_bytes_max: 1 << 20,
            input_json: input.to_owned(),
        };
        let start = Start {
            source: source.to_owned(),
            work: Some(Work::Run(run)),
            ..Default::default()
        };
        let frame = Some(to_invocation::Frame::Start(start));
        let bytes = pipe::encode(&ToInvocation { frame }).unwrap();
        self.pipe.write_all(&bytes).unwrap();
    }

    /// What came of it; none where the process ended without a word.
    pub(crate) fn result(&mut self) -> Option<String> {
        let mut frame = self.frame()?;
        while !matches!(frame, Frame::Done(_)) {
            frame = self.frame()?;
        }
        match frame {
            Frame::Done(done) => match done.outcome? {
                Outcome::ResultJson(json) => Some(json),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
}

/// What the kernel itself says of a locked-down process.
pub(crate) fn assert_walls(status: &str) {
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(value(set), "0000000000000000", "{set}");
    }
    assert_eq!(value("NoNewPrivs:"), "1");
    assert_eq!(value("Seccomp:"), "2");
    assert_eq!(value("Groups:"), "");
    assert_eq!(value("Threads:"), "1");
}
