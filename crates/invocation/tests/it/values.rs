//! The value table: `docs/plugins/values.md`.

use bulkhead_wire::pipe::{answer, failure::Reason, start::Work};

use crate::support::{body, invoke, invoke_with, run_of, serve, start_of, value};

/// What each value becomes, as a result.
const CROSS: &[(&str, &str)] = &[
    ("undefined", "null"),
    ("null", "null"),
    ("true", "true"),
    ("-0", "0"),
    ("1.5e300", "1.5e+300"),
    ("0.1 + 0.2", "0.30000000000000004"),
    ("9007199254740993", "9007199254740992"),
    ("-123456789", "-123456789"),
    (
        r#""a\"\\\n\u0001\u2028ä😀""#,
        "\"a\\\"\\\\\\n\\u0001\u{2028}ä😀\"",
    ),
    // S1: a surrogate that stands alone.
    (
        r#"["\ud800", "\udc00x", "\ud83d\ude00"]"#,
        "[\"\u{fffd}\",\"\u{fffd}x\",\"😀\"]",
    ),
    (r#"({ "\ud800": 1 })"#, "{\"\u{fffd}\":1}"),
    ("[1, , undefined, [2]]", "[1,null,null,[2]]"),
    ("({ a: undefined, b: 1, [Symbol()]: 2 })", r#"{"b":1}"#),
    ("({ 2: 'x', 1: 'y', a: {} })", r#"{"1":"y","2":"x","a":{}}"#),
    ("new Date(1.5e12)", r#""2017-07-14T02:40:00.000Z""#),
    (
        "({ get a() { return this.n = (this.n ?? 0) + 1 }, n: 0 })",
        r#"{"a":1,"n":1}"#,
    ),
    ("JSON.parse('{\"__proto__\": 1}')", r#"{"__proto__":1}"#),
    // S8: the last of two keys wins, here and in JSON.parse.
    (r#"JSON.parse('{"a":1,"a":2}')"#, r#"{"a":2}"#),
    ("Object.freeze([{}])", "[{}]"),
    ("'x'.repeat(5).concat('y'.repeat(3))", r#""xxxxxyyy""#),
];

#[test]
fn s1_s8_values_cross_as_the_table_says() {
    for (source, json) in CROSS {
        assert_eq!(
            body(&format!("return {source}")).result(),
            *json,
            "{source}"
        );
    }
}

/// What does not cross, and what is said of it.
const REFUSED: &[(&str, &str)] = &[
    // S4
    (
        "{ items: [0, { price: 1n }] }",
        "result.items[1].price is a BigInt;",
    ),
    // S6
    ("{ a: new Date(NaN) }", "result.a is a Date that is no date"),
    ("{ a: NaN }", "result.a is NaN,"),
    ("[-Infinity]", "result[0] is -Infinity,"),
    ("{ a: new Map() }", "result.a is a Map;"),
    ("new Set([1])", "result is a Set;"),
    ("{ a: new Uint8Array(2) }", "result.a holds bytes;"),
    ("[new ArrayBuffer(2)]", "result[0] holds bytes;"),
    ("{ a: new Error('e') }", "result.a is an Error;"),
    (
        "new (class Point { x = 1 })()",
        "result is an object of the class Point;",
    ),
    (
        "new String('a')",
        "result is an object of the class String;",
    ),
    ("/a/", "result is an object of the class RegExp;"),
    ("new WeakMap()", "result is an object of the class WeakMap;"),
    ("(function* () {})()", "result is an object of the class"),
    // S7
    (
        "(() => { const a = { b: {} }; a.b.c = a; return a })()",
        "result.b.c contains itself;",
    ),
    (
        "{ a: { get b() { throw new Error('no') } } }",
        "result.a.b cannot be read: its getter threw Error: no",
    ),
    (
        "{ get a() { throw 1 } }",
        "result.a cannot be read: its getter threw 1",
    ),
    ("{ a: Object.create(null) }", "result.a has no prototype;"),
    // S14
    ("{ a: new Proxy({}, {}) }", "result.a is a Proxy;"),
    (
        "[(() => { const p = Proxy.revocable({}, {}); p.revoke(); return p.proxy })()]",
        "result[0] is a Proxy;",
    ),
    (
        "new (class { #a = 1 })()",
        "result is an object of the class",
    ),
    (
        "(function () { return arguments })(1)",
        "result is an arguments object;",
    ),
    ("[() => 1]", "result[0] is a function,"),
    ("{ 'a b': Symbol('s') }", "result[\"a b\"] is a symbol;"),
    ("{ a: Promise.resolve(1) }", "result.a is a Promise;"),
    ("{ a: import.meta }", "result.a has no prototype;"),
    ("host", "result has no prototype;"),
    (
        "Object.create({ a: 1 })",
        "result is an object of the class Object;",
    ),
];

#[test]
fn s4_s6_s7_s14_what_is_no_data_is_refused_by_its_path() {
    for (source, message) in REFUSED {
        let seen = body(&format!("return {source}"));
        let (reason, said) = seen.fails();
        assert_eq!(reason, Reason::ResultNotData, "{source}");
        assert!(said.starts_with(message), "{source}: {said}");
    }
}

/// S14: also where a handler that is not async gives it: nothing asks it whether it is a promise.
#[test]
fn s14_a_revoked_proxy_is_refused_as_it_is() {
    let source = "const { proxy, revoke } = Proxy.revocable({}, {}); revoke();
        export const handler = () => proxy";
    let seen = invoke(source);
    assert_eq!(seen.fails().0, Reason::ResultNotData);
    assert!(seen.fails().1.starts_with("result is a Proxy;"));
}

/// S4, S7, S14, P4: arguments of a call obey the same table; the promise is rejected, and says which argument.
#[test]
fn s4_arguments_obey_the_same_table() {
    for (source, message) in REFUSED {
        let seen = body(&format!(
            "try {{ await host.fetch({{ v: ({source}) }}); return 'went' }} catch (e) {{ return [e.code, e.message] }}"
        ));
        let said = message.replacen("result", "host.fetch: arguments[0].v", 1);
        let expected = format!("[\"bad_request\",{}", serde_json::to_string(&said).unwrap());
        let expected = &expected[..expected.len() - 1];
        assert!(
            seen.result().starts_with(expected),
            "{source}: {}",
            seen.result()
        );
        assert!(seen.calls.is_empty());
    }
}

/// S3: what is nested too deep is refused in both directions, whatever its depth, and the process lives.
#[test]
fn s3_what_is_too_deep_is_refused_in_both_directions() {
    let nest = "let a = []; for (let i = 0; i < DEPTH; i++) a = [a];";
    for (depth, crosses) in [(63, true), (64, false), (100_000, false)] {
        let nest = nest.replace("DEPTH", &depth.to_string());
        let seen = body(&format!("{nest} return a"));
        if crosses {
            assert_eq!(seen.result().len(), 128);
        } else {
            let (reason, message) = seen.fails();
            assert_eq!(reason, Reason::ResultTooLarge);
            assert!(message.contains("too deep"), "{message}");
        }
        let seen = body(&format!(
            "{nest} try {{ await host.fetch(a); return 'went' }} catch (e) {{ return e.message }}"
        ));
        // An argument lies in the list of arguments.
        assert_eq!(seen.result() == "\"went\"", depth < 63, "{}", seen.result());
    }
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let source = "export const handler = () => 1";
    assert_eq!(
        invoke_with(source, "handler", &deep(64), |_| None).result(),
        "1"
    );
    let seen = invoke_with(source, "handler", &deep(65), |_| None);
    assert_eq!(seen.fails().0, Reason::Input);
    let answers = |_: &_| value(&("[".repeat(65) + &"]".repeat(65)));
    let source = "export const handler = () => host.fetch('').catch((e) => e.message)";
    let seen = invoke_with(source, "handler", "1", answers);
    assert!(seen.result().contains("too deep"), "{}", seen.result());
}

/// S8: what no Number holds does not come in; precision is that of numbers.
#[test]
fn s8_numbers_that_none_can_hold_do_not_enter() {
    let source = "export const handler = (input) => input";
    let huge = "1".repeat(400);
    for input in ["1e999", "[-1e999]", huge.as_str()] {
        let seen = invoke_with(source, "handler", input, |_| None);
        assert_eq!(seen.fails().0, Reason::Input, "{input}");
    }
    let cases = [
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        ("9007199254740993", "9007199254740992"),
        ("1e308", "1e+308"),
        ("1e-999", "0"),
    ];
    for (input, json) in cases {
        assert_eq!(
            invoke_with(source, "handler", input, |_| None).result(),
            json
        );
    }
    for input in ["", "{", "nul", "\u{feff}1", "1 2"] {
        let seen = invoke_with(source, "handler", input, |_| None);
        let (reason, message) = seen.fails();
        assert_eq!(reason, Reason::Input, "{input}");
        assert!(message.starts_with("the input is no JSON"), "{message}");
    }
}

/// M12: what is too large is refused before it is copied.
#[test]
fn m12_a_result_that_is_too_large_is_refused() {
    for source in [
        "'x'.repeat(2e8)",
        "new Array(4e9)",
        "Array(1e6).fill(0.5)",
        "{ a: ['x'.repeat(1 << 20)] }",
        "(() => { const o = {}; for (let i = 0; i < 1e5 + 1; i++) o['k' + i] = 0; return o })()",
    ] {
        let seen = body(&format!("return {source}"));
        assert_eq!(seen.fails().0, Reason::ResultTooLarge, "{source}");
    }
    let mut run = run_of("handler", "1");
    run.result_bytes_max = 5;
    let start = |length: usize| {
        let source = format!("export const handler = () => 'x'.repeat({length})");
        start_of(&source, Work::Run(run.clone()))
    };
    assert_eq!(serve(start(3), |_| None).result(), "\"xxx\"");
    assert_eq!(serve(start(4), |_| None).fails().0, Reason::ResultTooLarge);
}

/// S11: whatever code replaces, values cross as before.
#[test]
fn s11_what_code_replaces_changes_nothing_of_the_border() {
    let seen = invoke(
        "
        let called = 0;
        const bad = () => { called++; throw new Error('replaced') };
        const fetch = host.fetch;
        Object.defineProperty(Array.prototype, 0, { set: bad, get: bad, configurable: true });
        Array.prototype[Symbol.iterator] = bad;
        Function.prototype.call = Function.prototype.apply = bad;
        Promise.prototype.then = Promise.prototype.catch = bad;
        Promise.resolve = bad;
        JSON.stringify = JSON.parse = bad;
        Object.keys = Object.entries = Reflect.ownKeys = bad;
        String.prototype.toString = Number.prototype.toString = Array.prototype.join = bad;
        Date.prototype.toISOString = Date.prototype.toJSON = bad;
        Object.prototype.toJSON = bad;
        Error.prototype.toString = bad;
        Error.prepareStackTrace = bad;
        Map.prototype.get = Map.prototype.set = Array.prototype.push = bad;
        export async function handler(input) {
            const answer = await fetch({ url: 'u', when: new Date(0) });
            host.log(answer, 1);
            const hash = host.crypto.hash('sha256', 'abc');
            delete Object.prototype.toJSON;
            return { answer, input, hash, called };
        }",
    );
    assert_eq!(
        seen.result(),
        "{\"answer\":[{\"url\":\"u\",\"when\":\"1970-01-01T00:00:00.000Z\"}],\"input\":null,\
         \"hash\":\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\",\"called\":0}"
    );
}

/// S12: a property is read once: what is checked is what is sent.
#[test]
fn s12_a_getter_is_read_once() {
    let seen = body(
        "let n = 0; const answer = await host.fetch({ get url() { return n++ ? 'http://evil' : 'https://ok' } });
         return [answer, n]",
    );
    assert_eq!(seen.result(), r#"[[{"url":"https://ok"}],1]"#);
    assert_eq!(seen.calls[0].arguments_json, r#"[{"url":"https://ok"}]"#);
}

/// S16: a body comes as it is, with what JSON and JavaScript treat as special in it.
#[test]
fn s16_a_body_comes_as_it_is() {
    let answers = |_: &_| {
        Some(answer::Outcome::Value(bulkhead_wire::pipe::Value {
            json: r#"{"status":200,"body":"old"}"#.to_owned(),
            body: Some("\u{feff}{\"a\":1}\u{2028}\u{fffd}\0".to_owned()),
        }))
    };
    let source = "export async function handler() {
        const { status, body } = await host.fetch('u');
        return [status, body, [...body].map((c) => c.codePointAt(0).toString(16)).join(' ')];
    }";
    let seen = invoke_with(source, "handler", "1", answers);
    assert_eq!(
        seen.result(),
        "[200,\"\u{feff}{\\\"a\\\":1}\u{2028}\u{fffd}\\u0000\",\"feff 7b 22 61 22 3a 31 7d 2028 fffd 0\"]"
    );
}
