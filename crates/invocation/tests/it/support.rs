//! A broker of the tests' own.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    thread::{self, JoinHandle},
};

use bulkhead_invocation::{Options, Prepared};
use bulkhead_wire::pipe::{
    Answer, Call, CallError, Check, Decoder, Done, Exports, Failure, FromInvocation, Log, Run,
    Start, ToInvocation, Value, answer, done::Outcome, encode, failure::Reason, from_invocation,
    start, to_invocation,
};

/// What the broker saw.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) done: Done,
    pub(crate) logs: Vec<Log>,
    pub(crate) calls: Vec<Call>,
    pub(crate) waits: usize,
    pub(crate) loaded: usize,
}

impl Seen {
    pub(crate) fn result(&self) -> &str {
        match &self.done.outcome {
            Some(Outcome::ResultJson(json)) => json,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn failure(&self) -> &Failure {
        match &self.done.outcome {
            Some(Outcome::Failure(failure)) => failure,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn exports(&self) -> &Exports {
        match &self.done.outcome {
            Some(Outcome::Exports(exports)) => exports,
            other => panic!("{other:?}"),
        }
    }

    /// The reason and the message.
    pub(crate) fn fails(&self) -> (Reason, &str) {
        let failure = self.failure();
        (failure.reason(), &failure.message)
    }

    pub(crate) fn lines(&self) -> Vec<&str> {
        self.logs.iter().map(|log| log.text.as_str()).collect()
    }
}

/// What the broker answers to a call.
pub(crate) type Answers = fn(&Call) -> Option<answer::Outcome>;

pub(crate) fn value(json: &str) -> Option<answer::Outcome> {
    Some(answer::Outcome::Value(Value {
        json: json.to_owned(),
        body: None,
    }))
}

pub(crate) fn error(code: &str, message: &str) -> Option<answer::Outcome> {
    Some(answer::Outcome::Error(CallError {
        code: code.to_owned(),
        message: message.to_owned(),
    }))
}

/// Echoes the arguments.
pub(crate) fn echo(call: &Call) -> Option<answer::Outcome> {
    value(&call.arguments_json)
}

pub(crate) fn start_v8() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.v8/lib/icudtl.dat");
    bulkhead_invocation::start(Some(data.into())).unwrap();
}

pub(crate) fn run_of(handler: &str, input: &str) -> Run {
    Run {
        handler: handler.split('.').map(str::to_owned).collect(),
        input_json: input.to_owned(),
        settings_json: r#"{"city":"Uccle","list":[1,2]}"#.to_owned(),
        result_bytes_max: 1 << 20,
    }
}

pub(crate) fn start_of(source: &str, work: start::Work) -> Start {
    Start {
        source: source.to_owned(),
        file: "plugin.ts".to_owned(),
        code_cache: Vec::new(),
        work: Some(work),
    }
}

/// Calls the export `handler` of a module with null; calls to the broker are echoed.
pub(crate) fn invoke(source: &str) -> Seen {
    invoke_with(source, "handler", "null", echo)
}

/// The same with `body` in the handler: `return 1`.
pub(crate) fn body(body: &str) -> Seen {
    invoke(&format!(
        "export async function handler(input) {{\n{body}\n}}"
    ))
}

pub(crate) fn invoke_with(source: &str, handler: &str, input: &str, answers: Answers) -> Seen {
    serve(
        start_of(source, start::Work::Run(run_of(handler, input))),
        answers,
    )
}

pub(crate) fn check(source: &str) -> Seen {
    let check = Check {
        want_code_cache: true,
        typescript: false,
    };
    serve(start_of(source, start::Work::Check(check)), echo)
}

pub(crate) fn serve(start: Start, answers: Answers) -> Seen {
    start_v8();
    serve_prepared(Prepared::new(&Options::default()).unwrap(), start, answers)
}

pub(crate) fn serve_prepared(prepared: Prepared, start: Start, answers: Answers) -> Seen {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let broker = spawn_broker(theirs, start, answers);
    prepared.serve(ours).unwrap();
    broker.join().unwrap()
}

pub(crate) fn spawn_broker(pipe: UnixStream, start: Start, answers: Answers) -> JoinHandle<Seen> {
    thread::spawn(move || Broker::new(pipe).serve(start, answers))
}

pub(crate) struct Broker {
    pipe: UnixStream,
    decoder: Decoder<FromInvocation>,
}

impl Broker {
    pub(crate) fn new(pipe: UnixStream) -> Self {
        Self {
            pipe,
            decoder: Decoder::default(),
        }
    }

    pub(crate) fn next(&mut self) -> Option<from_invocation::Frame> {
        let mut buffer = [0; 65536];
        loop {
            if let Some(message) = self.decoder.take().unwrap() {
                return message.frame;
            }
            match self.pipe.read(&mut buffer).unwrap() {
                0 => return None,
                len => self.decoder.push(&buffer[..len]),
            }
        }
    }

    pub(crate) fn send(&mut self, frame: to_invocation::Frame) {
        let bytes = encode(&ToInvocation { frame: Some(frame) }).unwrap();
        self.pipe.write_all(&bytes).unwrap();
    }

    pub(crate) fn serve(mut self, start: Start, answers: Answers) -> Seen {
        assert!(matches!(
            self.next(),
            Some(from_invocation::Frame::Ready(_))
        ));
        self.send(to_invocation::Frame::Start(start));
        let mut seen = Seen {
            done: Done::default(),
            logs: Vec::new(),
            calls: Vec::new(),
            waits: 0,
            loaded: 0,
        };
        let mut open = Vec::new();
        loop {
            match self.next() {
                Some(from_invocation::Frame::Call(call)) => {
                    open.push(call.clone());
                    seen.calls.push(call);
                }
                Some(from_invocation::Frame::Waiting(_)) => {
                    seen.waits += 1;
                    self.answer(&mut open, answers);
                }
                Some(from_invocation::Frame::Loaded(_)) => seen.loaded += 1,
                Some(from_invocation::Frame::Log(log)) => seen.logs.push(log),
                Some(from_invocation::Frame::Done(done)) => {
                    seen.done = done;
                    return seen;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Answers one open call, the last first.
    fn answer(&mut self, open: &mut Vec<Call>, answers: Answers) {
        let call = open.pop().unwrap();
        let outcome = answers(&call);
        let id = call.id;
        self.send(to_invocation::Frame::Answer(Answer { id, outcome }));
    }
}
