//! How long an invocation takes from the ready isolate to its answer, without any process, pipe or broker around it:
//! `cargo run --release --example latency -p bulkhead-invocation`.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example for people"
)]

use std::{
    cell::RefCell,
    fmt::Write as _,
    io::{self, Read, Write},
    rc::Rc,
    time::Instant,
};

use bulkhead_invocation::{Options, Prepared, Template};
use bulkhead_wire::pipe::{
    Check, Decoder, Done, FromInvocation, Run, Start, ToInvocation, done::Outcome, encode,
    from_invocation::Frame, start::Work, to_invocation,
};

/// A pipe without a kernel: what is to be read is there, what is written is kept.
#[derive(Clone, Default)]
struct Pipe(Rc<RefCell<(Vec<u8>, Vec<u8>)>>);

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let incoming = &mut self.0.borrow_mut().0;
        let len = incoming.len().min(buffer.len());
        buffer[..len].copy_from_slice(&incoming[..len]);
        incoming.drain(..len);
        Ok(len)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().1.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn serve(prepared: Prepared, start: &Start) -> Done {
    let pipe = Pipe::default();
    let frame = to_invocation::Frame::Start(start.clone());
    pipe.0.borrow_mut().0 = encode(&ToInvocation { frame: Some(frame) }).unwrap();
    prepared.serve(pipe.clone()).unwrap();
    let mut decoder = Decoder::<FromInvocation>::default();
    decoder.push(&pipe.0.borrow().1);
    while let Some(message) = decoder.take().unwrap() {
        if let Some(Frame::Done(done)) = message.frame {
            return done;
        }
    }
    panic!("no Done")
}

/// Some 10 KB, of which a call uses a little.
fn plugin() -> String {
    let mut source = "let state = 0;\n".to_owned();
    for i in 0.. {
        if source.len() > 9700 {
            break;
        }
        let _ = writeln!(
            source,
            "function f{i}(a, b) {{\n  const o = {{ a, b, i: {i}, list: [a, b, {i}] }};\n  \
             return o.list.map((x) => x * 2).reduce((p, c) => p + c, 0);\n}}"
        );
    }
    source.push_str(
        "export async function handler(input) {\n  await null;\n  state += 1;\n  \
         return { status: 200, body: `hi ${input.name}`, sum: f1(2, 3) + state };\n}\n",
    );
    source
}

fn shown(name: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let at = |part: usize| times[times.len() * part / 100];
    println!(
        "{name:58} p5 {:6.0}  p50 {:6.0}  p95 {:6.0} µs",
        at(5),
        at(50),
        at(95)
    );
}

fn main() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.v8/lib/icudtl.dat");
    bulkhead_invocation::start(Some(data.into())).unwrap();
    let options = Options::default();
    let template = Template::new(options.clone()).unwrap();
    let start = |work| Start {
        source: plugin(),
        file: "plugin.js".to_owned(),
        code_cache: Vec::new(),
        work: Some(work),
    };
    let check = start(Work::Check(Check {
        want_code_cache: true,
        typescript: false,
    }));
    let Some(Outcome::Exports(exports)) = serve(Prepared::new(&options).unwrap(), &check).outcome
    else {
        panic!("the check failed");
    };
    let run = start(Work::Run(Run {
        handler: vec!["handler".to_owned()],
        input_json: r#"{"name":"x"}"#.to_owned(),
        settings_json: "{}".to_owned(),
        result_bytes_max: 1 << 20,
    }));
    let cached = Start {
        code_cache: exports.code_cache.clone(),
        ..run.clone()
    };
    println!(
        "plugin {} bytes, code cache {} bytes",
        run.source.len(),
        exports.code_cache.len()
    );
    for (name, start) in [("without code cache", &run), ("with code cache", &cached)] {
        let (mut made, mut cold, mut warm) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..200 {
            let began = Instant::now();
            let prepared = template.prepare().unwrap();
            made.push(began.elapsed().as_secs_f64() * 1e6);
            let began = Instant::now();
            assert!(matches!(
                serve(prepared, start).outcome,
                Some(Outcome::ResultJson(_))
            ));
            cold.push(began.elapsed().as_secs_f64() * 1e6);
            let prepared = Prepared::new(&options).unwrap();
            let began = Instant::now();
            assert!(matches!(
                serve(prepared, start).outcome,
                Some(Outcome::ResultJson(_))
            ));
            warm.push(began.elapsed().as_secs_f64() * 1e6);
        }
        shown("isolate with host made", made);
        shown(&format!("served {name}, isolate as made"), cold);
        shown(&format!("served {name}, isolate warmed up"), warm);
    }
}
