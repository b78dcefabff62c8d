//! A zygote whose guest is no JavaScript: it does what the source of a `Start` says in one word.
//!
//! With `--unlocked`, it is a process with the escape test's hook and without any wall, for calibration; with `broker`, it is
//! who starts a zygote, to be killed.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::{AsFd as _, AsRawFd as _},
    process::ExitCode,
};

use bulkhead_wire::pipe::{
    self, Decoder, Done, FromInvocation, Ready, Start, ToInvocation, done, from_invocation,
    start::Work, to_invocation,
};
use bulkhead_zygote::{Guest, Options, Pipe, TestHooks, control::Event, run};

struct Trial {
    /// Made in the zygote, as a library's own random state would be.
    made_before: u64,
}

impl Guest for Trial {
    fn serve(self: Box<Self>, pipe: Pipe) {
        let mut pipe = File::from(pipe.stream);
        send(&mut pipe, from_invocation::Frame::Ready(Ready {}));
        let Some(start) = next(&mut pipe) else {
            return;
        };
        let result = self.perform(&start);
        let outcome = Some(done::Outcome::ResultJson(result));
        send(
            &mut pipe,
            from_invocation::Frame::Done(Done {
                outcome,
                ..Default::default()
            }),
        );
    }
}

impl Trial {
    fn perform(&self, start: &Start) -> String {
        let input = match &start.work {
            Some(Work::Run(run)) => run.input_json.as_str(),
            _ => "",
        };
        match start.source.as_str() {
            "echo" => input.to_owned(),
            "before" => self.made_before.to_string(),
            "random" => random(),
            "panic" => panic!("as told"),
            "abort" => std::process::abort(),
            "spin" => loop {
                std::hint::black_box(0);
            },
            "eat" => eat(),
            other => format!("unknown: {other}"),
        }
    }
}

fn random() -> String {
    let mut bytes = [0_u8; 16];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    format!("{filled:?} {bytes:?}")
}

/// More memory, until somebody stops it.
fn eat() -> String {
    let mut all = Vec::new();
    loop {
        all.push(vec![1_u8; 1 << 20]);
        std::hint::black_box(&all);
    }
}

fn send(pipe: &mut File, frame: from_invocation::Frame) {
    let bytes = pipe::encode(&FromInvocation { frame: Some(frame) }).unwrap_or_default();
    // Who is gone need not be told.
    let _ = pipe.write_all(&bytes);
}

fn next(pipe: &mut File) -> Option<Start> {
    let mut decoder = Decoder::<ToInvocation>::default();
    let mut buffer = [0; 4096];
    loop {
        if let Some(message) = decoder.take().ok()? {
            return match message.frame? {
                to_invocation::Frame::Start(start) => Some(start),
                to_invocation::Frame::Answer(_) => None,
            };
        }
        match pipe.read(&mut buffer).ok()? {
            0 => return None,
            count => decoder.push(&buffer[..count]),
        }
    }
}

fn guest(options: &Options) -> Box<dyn Guest> {
    #[cfg(debug_assertions)]
    if options.test_hooks == TestHooks::Present {
        return Box::new(bulkhead_zygote::probe::Prober);
    }
    let _ = options;
    Box::new(Trial {
        made_before: u64::from(std::process::id()),
    })
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        #[cfg(debug_assertions)]
        ["--unlocked"] => unlocked(),
        ["zygote", words @ ..] => zygote(words),
        ["broker", ..] => broker().map_or_else(
            |error| {
                let _ = writeln!(std::io::stderr(), "{error}");
                ExitCode::FAILURE
            },
            |()| ExitCode::SUCCESS,
        ),
        _ => ExitCode::from(2),
    }
}

fn zygote(words: &[&str]) -> ExitCode {
    let Ok(options) = Options::parse(words) else {
        return ExitCode::from(2);
    };
    run(&options, |options| Ok(guest(options))).unwrap_or_else(|fault| {
        let _ = writeln!(std::io::stderr(), "{fault}");
        fault.exit_code()
    })
}

#[cfg(debug_assertions)]
fn unlocked() -> ExitCode {
    let Ok(pipe) = std::io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    let _ = bulkhead_zygote::probe::serve(File::from(pipe));
    ExitCode::SUCCESS
}

/// Starts a zygote as a broker does and makes one process, says the numbers of both and of the zygote to the standard output,
/// and stays until the standard input ends.
fn broker() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options {
        memory_mib: 128,
        isolate: bulkhead_zygote::Isolate::Child,
        test_hooks: TestHooks::Absent,
    };
    let program = std::env::current_exe()?;
    let zygote = bulkhead_zygote::launch(&program, &options, std::process::Stdio::inherit())?;
    let mut said = Vec::new();
    while said.len() < 2 {
        let mut watched = [rustix::event::PollFd::new(
            &zygote.control,
            rustix::event::PollFlags::IN,
        )];
        rustix::event::poll(&mut watched, None)?;
        match zygote.control.receive()? {
            Some(Event::Ready) => {
                let nothing = File::options().write(true).open("/dev/null")?;
                zygote.control.fork(&[nothing.as_fd(), nothing.as_fd()])?;
            }
            Some(Event::Forked(child)) => said.push(child),
            other => return Err(format!("the zygote said {other:?}").into()),
        }
    }
    let mut words = format!("{}", zygote.process.id());
    for child in &said {
        // `Ready`: it is locked down.
        let mut watched = [rustix::event::PollFd::new(
            &child.pipe,
            rustix::event::PollFlags::IN,
        )];
        rustix::event::poll(&mut watched, None)?;
        let path = format!("/proc/self/fdinfo/{}", child.pidfd.as_raw_fd());
        let info = std::fs::read_to_string(path)?;
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"));
        words += &format!(" {}", pid.unwrap_or_default().trim());
    }
    writeln!(std::io::stdout(), "{words}")?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
