//! Values that cross the border of an isolate: JSON in and out again, and strange values out.

use std::cell::RefCell;

use bulkhead_engine::{Compilation, EngineError, Isolate, IsolateOptions, JsonLimits, Language, Options, Threads, Trust};
use serde_json::Value;

const LIMITS: JsonLimits = JsonLimits::of_bytes(1 << 20);
/// An isolate serves so many inputs.
const INPUTS: u32 = 2_000;
/// What an expression is made of, by the input's bytes.
const PARTS: &[&str] = &[
    "null", "undefined", "true", "0", "-0", "NaN", "1e21", "1n", "'text'", "'\\ud800'", "'\\u2028'", "Symbol()", "() => 1", "new Date(0)",
    "new Date(NaN)", "new Map([[1, 2]])", "new Set([1])", "new Uint8Array(3)", "new Error('x')", "/x/", "Object.create(null)",
    "new (class { #a = 1; b = 2 })", "new Proxy({}, {})", "{ get a() { throw 1 } }", "{ get a() { return 1 } }", "{ toJSON() { return 2 } }",
    "new String('x')", "Promise.resolve(1)", "[,1]", "{ __proto__: null, a: 1 }", "{ [Symbol.iterator]: 1 }", "(function () { return arguments })(1)",
    "new ArrayBuffer(2)", "globalThis", "(() => { const a = {}; a.a = a; return a })()",
];

thread_local! {
    static ENGINE: RefCell<Option<(Isolate, u32)>> = const { RefCell::new(None) };
}

pub fn value_table(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else {
        return;
    };
    let options = Options {
        compilation: Compilation::Jitless,
        threads: Threads::None,
        language: Language::Oldest,
        icu_data: Some(concat!(env!("CARGO_MANIFEST_DIR"), "/../.v8/lib/icudtl.dat").into()),
    };
    bulkhead_engine::start(&options).expect("V8 starts");
    ENGINE.with_borrow_mut(|engine| {
        let fresh = || {
            let options = IsolateOptions { trust: Trust::Nobody, ..IsolateOptions::default() };
            (Isolate::new(&options), 0)
        };
        let (isolate, used) = engine.get_or_insert_with(fresh);
        match kind % 2 {
            0 => text(isolate, &String::from_utf8_lossy(rest)),
            _ => expression(isolate, rest),
        }
        *used += 1;
        if *used >= INPUTS {
            *engine = None;
        }
    });
}

/// What JSON means inside is what it means outside.
fn text(isolate: &mut Isolate, text: &str) {
    let read = match isolate.from_json(text, "input", &LIMITS) {
        Ok(read) => read,
        Err(EngineError::Crossing(_)) => return,
        Err(error) => panic!("{error}"),
    };
    let written = isolate.to_json(&read, "input", &LIMITS).expect("JSON is data");
    let expected: Value = serde_json::from_str(&without_lone_surrogates(text)).expect("V8 read it as JSON");
    let found: Value = serde_json::from_str(&written).expect("JSON was written");
    assert_eq!(numbers(found), numbers(expected), "{text:?} became {written:?}");
}

/// JavaScript's numbers are all of one kind, and -0 is written as 0.
fn numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => (number.as_f64().unwrap_or_default() + 0.0).into(),
        Value::Array(values) => values.into_iter().map(numbers).collect(),
        Value::Object(fields) => Value::Object(fields.into_iter().map(|(name, value)| (name, numbers(value))).collect()),
        value => value,
    }
}

/// Halves of a surrogate pair become U+FFFD on the way, by the table.
fn without_lone_surrogates(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let unit = |text: &str| text.strip_prefix("\\u").and_then(|hex| u32::from_str_radix(hex.get(..4)?, 16).ok());
        let taken = match (unit(rest), rest.get(6..).and_then(unit)) {
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => 12,
            (Some(0xd800..0xe000), _) => {
                out.push('\u{fffd}');
                rest = &rest[6..];
                continue;
            }
            (Some(_), _) => 6,
            (None, _) => (1 + rest[1..].chars().next().map_or(0, char::len_utf8)).min(rest.len()),
        };
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    out + rest
}

/// A value of nested parts either crosses as JSON within the limits, or is refused by its path.
fn expression(isolate: &mut Isolate, bytes: &[u8]) {
    let mut source = String::from("(");
    let mut open = Vec::new();
    for (index, byte) in bytes.iter().take(64).enumerate() {
        match byte {
            0..32 => {
                source.push('[');
                open.push("null]");
            }
            32..64 => {
                source.push_str(&format!("{{k{index}: "));
                open.push("null}");
            }
            64..80 => match open.pop() {
                Some(close) => source.push_str(&format!("{close}, ")),
                None => break,
            },
            byte if open.is_empty() => {
                source.push_str(PARTS[usize::from(*byte) % PARTS.len()]);
                break;
            }
            byte => match open.last() {
                Some(&"null]") => source.push_str(&format!("{}, ", PARTS[usize::from(*byte) % PARTS.len()])),
                _ => source.push_str(&format!("{}, l{index}: ", PARTS[usize::from(*byte) % PARTS.len()])),
            },
        }
    }
    while let Some(close) = open.pop() {
        source.push_str(close);
    }
    source.push(')');
    let Ok(value) = isolate.evaluate("input", &source) else {
        return;
    };
    match isolate.to_json(&value, "result", &LIMITS) {
        Ok(text) => drop(serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{source} became {text:?}: {error}"))),
        Err(EngineError::Crossing(crossing)) => assert!(crossing.path.starts_with("result"), "{crossing}"),
        Err(_) => {}
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        r#"{"a":1,"a":2,"b":[null,true,"\ud83d\ude00","\ud800"],"__proto__":{"c":-0}}"#, "[[[[[1.5e-7]]]]]", "\"\u{2028}\\u0000\"",
        "[9007199254740993, 1e21, -1e-7, 0.1]", "{\"\":{}}",
    ];
    let mut seeds: Vec<_> = texts.iter().map(|text| [&[0], text.as_bytes()].concat()).collect();
    seeds.push(vec![1, 0, 90, 91, 40, 92, 0, 93, 70, 94, 70, 95]);
    seeds.extend((80..=200).map(|byte| vec![1, 32, byte, 0, byte]));
    seeds
}
