//! What the zygote of this program has in it: V8, and an isolate for the next call of a plugin.

use std::fs::File;

use bulkhead_invocation::{Options, Prepared, Template, on_fatal_memory, start};
use bulkhead_wire::pipe::{
    Answer, FrameError, Run, Start, ToInvocation, Value, answer::Outcome, encode, start::Work,
    to_invocation,
};
use bulkhead_zygote::{Guest, Isolate, LoadError, Pipe};

use crate::runtime_files::icu_data;

/// An isolate that every forked process has a copy of.
struct Copied(Prepared);

/// Each forked process makes its own.
struct Own(Template);

impl Guest for Copied {
    fn serve(self: Box<Self>, pipe: Pipe) {
        serve(self.0, pipe);
    }

    fn rehearsal(&self) -> Option<Vec<u8>> {
        rehearsal().ok()
    }
}

impl Guest for Own {
    fn serve(self: Box<Self>, pipe: Pipe) {
        // Without an isolate the process ends without `Ready`, and the broker sees that.
        if let Ok(prepared) = self.0.prepare() {
            serve(prepared, pipe);
        }
    }
}

fn serve(prepared: Prepared, pipe: Pipe) {
    on_fatal_memory(pipe.last_words);
    // Whoever could be told of a broken pipe is at its other end.
    let _ = prepared.serve(File::from(pipe.stream));
}

/// What most plugins do, in a few lines: look at their input, ask the host for something, make a result of it.
const REHEARSED: &str = r#"
const cities = new Map([["Bern", { name: "Bern", days: 3 }]]);
class Weather {
  constructor(input) { this.input = input; this.lines = []; }
  add(line) { this.lines.push(`${this.input.city}: ${line}`.trim().replace(/\s+/g, " ").split(",").join(";")); return this; }
}
export const tools = {
  weather: async (input) => {
    const weather = new Weather(input);
    host.log.info("asking", { city: input.city });
    const answer = await host.fetch({ url: "https://weather.example/" + encodeURIComponent(input.city), headers: { accept: "application/json" } });
    const body = JSON.parse(answer.body);
    try { weather.add(String(body.degrees)).add(new Date(0).toISOString()).missing(); } catch (error) { weather.add(error.message); }
    const all = Object.entries(body).filter(([key]) => key !== "x").map(([key, value]) => ({ key, value })).sort((a, b) => (a.key < b.key ? -1 : 1));
    return { ...weather, all, known: cities.has(input.city), text: JSON.stringify(all), random: Math.random() };
  },
};
"#;

/// The frames of a call of [`REHEARSED`], and of the answer to its one call of the host.
fn rehearsal() -> Result<Vec<u8>, FrameError> {
    let run = Run {
        handler: ["tools", "weather"].map(str::to_owned).into(),
        input_json: r#"{"city":"Bern","days":[1,2,3]}"#.to_owned(),
        settings_json: r#"{"unit":"C"}"#.to_owned(),
        result_bytes_max: 1 << 20,
    };
    let start = Start {
        source: REHEARSED.to_owned(),
        file: "rehearsal.js".to_owned(),
        code_cache: Vec::new(),
        work: Some(Work::Run(run)),
    };
    let value = Value {
        json: r#"{"status":200,"headers":{}}"#.to_owned(),
        body: Some(r#"{"degrees":20,"wind":{"from":"west"}}"#.to_owned()),
    };
    let answer = Answer {
        id: 1,
        outcome: Some(Outcome::Value(value)),
    };
    let frames = [
        to_invocation::Frame::Start(start),
        to_invocation::Frame::Answer(answer),
    ];
    let frames = frames.map(|frame| encode(&ToInvocation { frame: Some(frame) }));
    let [start, answer] = frames;
    Ok([start?, answer?].concat())
}

/// Starts V8 and makes what processes are forked with.
pub fn load(options: &bulkhead_zygote::Options) -> Result<Box<dyn Guest>, LoadError> {
    start(Some(icu_data()?))?;
    let limits = Options {
        heap_bytes_max: usize::try_from(options.memory_mib)? << 20,
        ..Options::default()
    };
    let guest: Box<dyn Guest> = match options.isolate {
        Isolate::Ready => Box::new(Copied(Prepared::new(&limits)?)),
        Isolate::Child => Box::new(Own(Template::new(limits)?)),
    };
    Ok(with_hooks(options, guest))
}

/// The escape test wants the zygote as it is, and in its processes somebody who makes the calls that it asks for.
#[cfg(debug_assertions)]
fn with_hooks(options: &bulkhead_zygote::Options, guest: Box<dyn Guest>) -> Box<dyn Guest> {
    struct Probed(#[expect(dead_code, reason = "it is there to be in memory")] Box<dyn Guest>);
    impl Guest for Probed {
        fn serve(self: Box<Self>, pipe: Pipe) {
            Box::new(bulkhead_zygote::probe::Prober).serve(pipe);
        }
    }
    match options.test_hooks {
        bulkhead_zygote::TestHooks::Present => Box::new(Probed(guest)),
        bulkhead_zygote::TestHooks::Absent => guest,
    }
}

#[cfg(not(debug_assertions))]
fn with_hooks(_: &bulkhead_zygote::Options, guest: Box<dyn Guest>) -> Box<dyn Guest> {
    guest
}
