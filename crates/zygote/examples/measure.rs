//! Measures a zygote as its broker sees it, and prints a table.
//!
//! `cargo run -p bulkhead-zygote --example measure -- PROGRAM [CALLS]`, as root, where PROGRAM is a built `bulkhead-js`.
//!
//! For each way of having an isolate, with and without memory groups: what a caller waits from `Start` to `Done` of a process
//! that stands ready; what one process takes from asking for it to `Ready`; calls a second with processes made one behind the
//! other; the memory of its own that a waiting process has; and its page faults.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for people at a terminal, which stops where it cannot measure"
)]

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{Read as _, Write as _},
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use bulkhead_sandbox::memory::{MemoryGroup, MemoryGroups, PoolSize};
use bulkhead_wire::pipe::{
    self, Check, Decoder, Done, FromInvocation, Run, Start, ToInvocation, done::Outcome,
    from_invocation::Frame, start::Work, to_invocation,
};
use bulkhead_zygote::{
    Isolate, Launched, Options, TestHooks,
    control::{Child, Event},
    launch,
};
use rustix::event::{PollFd, PollFlags, poll};

/// As many as a broker lets run at once, and one more batch.
const AHEAD: usize = 8;
const LIMIT_BYTES: u64 = 160 << 20;

/// About 10 KB of code, of which a call runs little: what plugins look like.
fn plugin() -> String {
    let mut source = String::from(
        "export default { tools: { weather: async (input) => ({ city: input.city, degrees: 20 + input.days.length }), waits: () => host.fetch({ url: 'https://a.example/' }) } };\n",
    );
    for number in 0..110 {
        source += &format!(
            "function helper{number}(a, b) {{ const all = {{ a, b, n: {number} }}; return Object.keys(all).map((key) => key); }}\n"
        );
    }
    source
}

struct Bench {
    zygote: Launched,
    /// None: the entrance is `/dev/null`.
    groups: Option<MemoryGroups>,
    endings: usize,
    start: Vec<u8>,
    /// Of a call that waits for a host call.
    waiting_start: Vec<u8>,
}

struct Waiting {
    pipe: UnixStream,
    pidfd: OwnedFd,
    group: Option<MemoryGroup>,
    decoder: Decoder<FromInvocation>,
}

impl Bench {
    fn new(program: &Path, isolate: Isolate, is_grouped: bool) -> Self {
        let options = Options {
            memory_mib: 128,
            isolate,
            test_hooks: TestHooks::Absent,
        };
        let size = PoolSize {
            limit_bytes: LIMIT_BYTES,
            ahead: 2 * AHEAD,
            most: 2 * AHEAD,
        };
        let zygote = launch(program, &options, Stdio::inherit()).unwrap();
        let mut bench = Self {
            zygote,
            groups: is_grouped.then(|| MemoryGroups::open(size).unwrap()),
            endings: 0,
            start: Vec::new(),
            waiting_start: Vec::new(),
        };
        assert!(matches!(bench.event(), Event::Ready));
        (bench.start, bench.waiting_start) = bench.start_frames();
        bench
    }

    fn event(&mut self) -> Event {
        wait(self.zygote.control.as_fd());
        self.zygote.control.receive().unwrap().unwrap()
    }

    /// One process, from the request for it to its descriptors.
    fn fork(&mut self) -> Waiting {
        let group = self.groups.as_mut().map(|groups| groups.take().unwrap());
        let entrance = group.as_ref().map_or_else(
            || File::options().write(true).open("/dev/null").unwrap(),
            |group| group.entrance().unwrap(),
        );
        self.zygote.control.fork(&[entrance.as_fd()]).unwrap();
        loop {
            match self.event() {
                Event::Forked(child) => return Waiting::new(child, group),
                Event::Exited { .. } => self.endings += 1,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits for its end, and gives its group back.
    fn bury(&mut self, waiting: Waiting) {
        wait(waiting.pidfd.as_fd());
        while self.endings == 0 {
            if let Event::Exited { .. } = self.event() {
                self.endings += 1;
            }
        }
        self.endings -= 1;
        if let (Some(groups), Some(group)) = (self.groups.as_mut(), waiting.group) {
            groups.put_back(group);
        }
    }

    /// With the code cache that the service would have made.
    fn start_frames(&mut self) -> (Vec<u8>, Vec<u8>) {
        let check = Work::Check(Check {
            want_code_cache: true,
            ..Default::default()
        });
        let mut process = self.fork();
        let done = process.serve(&frame(plugin(), Vec::new(), check));
        self.bury(process);
        let Some(Outcome::Exports(exports)) = done.outcome else {
            panic!("{done:?}");
        };
        let run = |handler: &str| {
            let run = Work::Run(Run {
                handler: ["default", "tools", handler].map(str::to_owned).into(),
                input_json: r#"{"city":"Bern","days":[1,2,3]}"#.to_owned(),
                settings_json: "{}".to_owned(),
                result_bytes_max: 1 << 20,
            });
            frame(plugin(), exports.code_cache.clone(), run)
        };
        (run("weather"), run("waits"))
    }
}

fn frame(source: String, code_cache: Vec<u8>, work: Work) -> Vec<u8> {
    let start = Start {
        source,
        file: "plugin.js".to_owned(),
        code_cache,
        work: Some(work),
    };
    let frame = Some(to_invocation::Frame::Start(start));
    pipe::encode(&ToInvocation { frame }).unwrap()
}

impl Waiting {
    fn new(child: Child, group: Option<MemoryGroup>) -> Self {
        let pipe = UnixStream::from(child.pipe);
        pipe.set_nonblocking(false).unwrap();
        Self {
            pipe,
            pidfd: child.pidfd,
            group,
            decoder: Decoder::default(),
        }
    }

    fn next(&mut self) -> Frame {
        let mut buffer = [0; 16 << 10];
        loop {
            if let Some(message) = self.decoder.take().unwrap() {
                return message.frame.unwrap();
            }
            let count = self.pipe.read(&mut buffer).unwrap();
            assert!(count > 0, "the process died");
            self.decoder.push(&buffer[..count]);
        }
    }

    fn ready(&mut self) {
        assert!(matches!(self.next(), Frame::Ready(_)));
    }

    fn finish(&mut self, start: &[u8]) -> Done {
        self.pipe.write_all(start).unwrap();
        loop {
            if let Frame::Done(done) = self.next() {
                return done;
            }
        }
    }

    fn serve(&mut self, start: &[u8]) -> Done {
        self.ready();
        self.finish(start)
    }

    fn proc_file(&self, name: &str) -> String {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.pidfd.as_raw_fd()));
        let info = info.unwrap();
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"));
        fs::read_to_string(format!("/proc/{}/{name}", pid.unwrap().trim())).unwrap()
    }

    fn private_kib(&self) -> f64 {
        let rollup = self.proc_file("smaps_rollup");
        let value = |name: &str| {
            let line = rollup.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace()
                .nth(1)
                .unwrap()
                .parse::<f64>()
                .unwrap()
        };
        value("Private_Dirty:") + value("Private_Clean:")
    }

    fn minor_faults(&self) -> f64 {
        let stat = self.proc_file("stat");
        let (_, rest) = stat.rsplit_once(')').unwrap();
        rest.split_whitespace().nth(7).unwrap().parse().unwrap()
    }
}

fn wait(fd: std::os::fd::BorrowedFd<'_>) {
    let mut watched = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut watched, None).unwrap();
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn row(name: &str, unit: &str, mut values: Vec<f64>) {
    values.sort_by(f64::total_cmp);
    let at = |part: usize| values[(values.len() - 1) * part / 100];
    println!(
        "  {name:<46} n {:>5}  median {:>8.0}  p95 {:>8.0}  {unit}",
        values.len(),
        at(50),
        at(95)
    );
}

fn one_at_a_time(bench: &mut Bench, calls: usize) {
    let (mut births, mut waits, mut memory, mut faults) = (vec![], vec![], vec![], vec![]);
    let (mut ready_faults, mut reaps, mut call_memory) = (vec![], vec![], vec![]);
    let start = bench.start.clone();
    for _ in 0..calls {
        let begun = Instant::now();
        let mut process = bench.fork();
        process.ready();
        births.push(micros(begun.elapsed()));
        memory.push(process.private_kib());
        let before = process.minor_faults();
        ready_faults.push(before);
        let begun = Instant::now();
        process.pipe.write_all(&start).unwrap();
        let done = loop {
            if let Frame::Done(done) = process.next() {
                break done;
            }
        };
        waits.push(micros(begun.elapsed()));
        assert!(
            matches!(done.outcome, Some(Outcome::ResultJson(_))),
            "{done:?}"
        );
        let begun = Instant::now();
        bench.bury(process);
        reaps.push(micros(begun.elapsed()));
    }
    row("Start to Done, as the caller waits", "µs", waits);
    row("request to Ready, ahead of need", "µs", births);
    row("Done to reaped and group given back", "µs", reaps);
    row("own memory while waiting for Start", "KiB", memory);
    row("page faults until Ready", "", ready_faults);
    let start = bench.waiting_start.clone();
    for _ in 0..calls.min(100) {
        let mut process = bench.fork();
        process.ready();
        let before = process.minor_faults();
        process.pipe.write_all(&start).unwrap();
        // In the middle of a host call: it has run code, and is still there to be asked.
        while !matches!(process.next(), Frame::Waiting(_)) {}
        faults.push(process.minor_faults() - before);
        call_memory.push(process.private_kib());
        rustix::process::pidfd_send_signal(&process.pidfd, rustix::process::Signal::KILL).unwrap();
        bench.bury(process);
    }
    row("page faults from Start to a host call", "", faults);
    row(
        "own memory in the middle of a host call",
        "KiB",
        call_memory,
    );
}

/// Some stand ready, one is served, one more is asked for.
fn behind_each_other(bench: &mut Bench, calls: usize) -> f64 {
    let start = bench.start.clone();
    let mut ready: VecDeque<Waiting> = (0..AHEAD).map(|_| bench.fork()).collect();
    let mut dying: VecDeque<Waiting> = VecDeque::new();
    let begun = Instant::now();
    for _ in 0..calls {
        let mut process = ready.pop_front().unwrap();
        let done = process.serve(&start);
        assert!(matches!(done.outcome, Some(Outcome::ResultJson(_))));
        dying.push_back(process);
        if dying.len() >= AHEAD {
            let dead = dying.pop_front().unwrap();
            bench.bury(dead);
        }
        ready.push_back(bench.fork());
    }
    let rate = f64::from(u32::try_from(calls).unwrap()) / begun.elapsed().as_secs_f64();
    for process in ready.into_iter().chain(dying) {
        // Those that had their call are gone already.
        let _ = rustix::process::pidfd_send_signal(&process.pidfd, rustix::process::Signal::KILL);
        bench.bury(process);
    }
    rate
}

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let program = PathBuf::from(arguments.next().expect("the path of a built bulkhead-js"));
    let calls = arguments
        .next()
        .map_or(500, |calls| calls.to_str().unwrap().parse().unwrap());
    let load = fs::read_to_string("/proc/loadavg").unwrap();
    println!("load: {}", load.trim());
    for is_grouped in [false, true] {
        for isolate in [Isolate::Ready, Isolate::Child] {
            let groups = if is_grouped {
                "memory groups"
            } else {
                "no memory groups"
            };
            let begun = Instant::now();
            let mut bench = Bench::new(&program, isolate, is_grouped);
            println!(
                "isolate {isolate:?}, {groups} (zygote up in {:.0} ms)",
                begun.elapsed().as_secs_f64() * 1e3
            );
            one_at_a_time(&mut bench, calls);
            let rates: Vec<f64> = (0..5)
                .map(|_| behind_each_other(&mut bench, calls))
                .collect();
            row("calls a second, one caller, eight ahead", "/s", rates);
        }
    }
}
