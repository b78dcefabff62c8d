//! P7: how invocations fail, and what is said.

use bulkhead_wire::pipe::failure::Reason;

use crate::support::{body, check, echo, error, invoke, invoke_with};

/// P7, SYNTAX, IMPORTS and NO_HANDLER: what a module is wrong in before its handler runs.
#[test]
fn p7_a_module_that_cannot_be_called_says_why() {
    let cases = [
        ("export const handler = (", Reason::Syntax, "SyntaxError: "),
        (
            "import 'node:fs'; export const handler = 1",
            Reason::Imports,
            "it imports \"node:fs\":",
        ),
        (
            "export const other = 1",
            Reason::NoHandler,
            "the handler handler is not exported:",
        ),
        (
            "export const handler = 1",
            Reason::NoHandler,
            "the handler handler is not a function:",
        ),
        (
            "throw new TypeError('at load')",
            Reason::Threw,
            "TypeError: at load",
        ),
        (
            "await new Promise(() => {})",
            Reason::NeverSettles,
            "the handler's promise can never",
        ),
        (
            "await Promise.reject(new Error('x'))",
            Reason::Threw,
            "Error: x",
        ),
    ];
    for (source, reason, message) in cases {
        let seen = invoke(source);
        let failure = seen.failure();
        assert_eq!(failure.reason(), reason, "{source}: {failure:?}");
        assert!(
            failure.message.starts_with(message),
            "{source}: {}",
            failure.message
        );
        assert!(failure.at_load, "{source}");
        assert_eq!(
            seen.loaded,
            usize::from(reason == Reason::NoHandler),
            "{source}"
        );
    }
    let seen = invoke("export const handler = (");
    assert_eq!(seen.failure().stack[0].line, 1);
    let seen = invoke_with(
        "export const a = { __proto__: { b() {} } }",
        "a.b",
        "1",
        echo,
    );
    assert_eq!(seen.fails().0, Reason::NoHandler);
}

/// M10, P7: a message is cut to 500 characters, however long it is, and whoever threw it.
#[test]
fn m10_a_message_is_cut_to_500_characters() {
    let seen = body("throw new Error('ä'.repeat(1000))");
    assert_eq!(seen.fails().0, Reason::Threw);
    assert_eq!(seen.fails().1.chars().count(), 500);
    for thrown in ["new Error('x'.repeat(1 << 28))", "'x'.repeat(1 << 28)"] {
        let seen = body(&format!("throw {thrown}"));
        assert_eq!(seen.fails().0, Reason::Threw, "{:?}", seen.failure());
        assert!(
            seen.fails().1.contains("too long to be shown"),
            "{}",
            seen.fails().1
        );
    }
}

/// What can be thrown, and what is said of it. No code of the thrown value runs: a getter or `toString` that never
/// ends would be ended only from outside (T21, E3, S14).
#[test]
fn e3_t21_nothing_of_what_is_thrown_runs() {
    let cases = [
        ("throw { toString() { for (;;); } }", "[object Object]"),
        ("throw new Proxy({}, { get() { for (;;); } })", "#<Object>"),
        (
            "const e = new Error('m'); e.name = Symbol('s'); throw e",
            "m",
        ),
        (
            "const e = new Error('m'); Object.defineProperty(e, 'message', { get() { for (;;); } }); throw e",
            "Error",
        ),
        (
            "const e = new Error('m'); Object.defineProperty(e, 'stack', { get() { for (;;); } }); throw e",
            "Error: m",
        ),
        (
            "class E extends Error { name = 'E'; get stack() { for (;;); } } throw new E('m')",
            "E: m",
        ),
        (
            "Error.prepareStackTrace = () => { for (;;); }; null.x",
            "TypeError: ",
        ),
        (
            "Error.prepareStackTrace = () => { for (;;); }; return null.x",
            "TypeError: ",
        ),
        ("throw undefined", "undefined"),
        ("throw Symbol('s')", "Symbol(s)"),
        ("throw 1n", "1"),
        ("throw Object.create(null)", "[object Object]"),
    ];
    for (source, message) in cases {
        let seen = body(source);
        assert_eq!(seen.fails().0, Reason::Threw, "{source}");
        assert!(
            seen.fails().1.starts_with(message),
            "{source}: {}",
            seen.fails().1
        );
    }
}

/// T21: `prepareStackTrace` does nothing, and `stack` says what V8 would.
#[test]
fn t21_prepare_stack_trace_is_inert() {
    let seen = invoke(
        "Error.prepareStackTrace = () => { for (;;); };
        function inner() { return new TypeError('m').stack }
        export function handler() { const o = {}; Error.captureStackTrace(o); return [inner(), typeof o.stack] }",
    );
    let stack = "TypeError: m\\n    at inner (plugin.ts:2:35)\\n    at handler (plugin.ts:3:87)";
    assert_eq!(seen.result(), format!(r#"["{stack}","string"]"#));
}

/// E3: an error whose name is a symbol, in every kind of function.
#[test]
fn e3_an_error_with_a_symbol_for_a_name_harms_nobody() {
    let make = "const e = new Error('m'); e.name = Symbol();";
    for source in [
        format!("return new Promise(() => {{ {make} e.stack; throw e }})"),
        format!("return (async () => {{ {make} return e.stack.length > 0 }})()"),
        format!(
            "for await (const x of (async function* () {{ {make} yield e.stack }})()) return x.length > 0"
        ),
        format!("{make} return String(e)"),
    ] {
        let seen = body(&source);
        assert!(seen.done.outcome.is_some(), "{source}");
    }
}

/// O1: a promise that is rejected while nobody listens fails its own call.
#[test]
fn o1_an_unhandled_rejection_fails_its_call() {
    let seen = body("Promise.reject(new RangeError('lost')); return 1");
    let (reason, message) = seen.fails();
    assert_eq!(reason, Reason::UnhandledRejection);
    assert!(message.ends_with(": RangeError: lost"), "{message}");
    assert_eq!(seen.failure().stack[0].function, "handler");
    // It also says why nothing goes on.
    let seen = body("return new Promise(async () => { await null; throw new Error('inside') })");
    assert_eq!(seen.fails().0, Reason::UnhandledRejection);
    let source = "export const handler = async () => { host.fetch('a'); await host.fetch('b'); await null; return 1 }";
    let seen = invoke_with(source, "handler", "1", |_| error("denied", "not declared"));
    assert_eq!(seen.fails().0, Reason::Threw);
    assert_eq!(seen.fails().1, "Error: not declared");
}

/// O3: a rejection that is handled later is no failure.
#[test]
fn o3_a_rejection_that_is_handled_later_is_no_failure() {
    let seen = body(
        "const p = Promise.reject(1); await null; await host.fetch('a'); p.catch(() => {}); return 2",
    );
    assert_eq!(seen.result(), "2");
}

/// T17: what is called `then` is followed as `await` does.
#[test]
fn t17_thenables_are_followed() {
    assert_eq!(
        body("return { then(resolve) { resolve(3) } }").result(),
        "3"
    );
    assert_eq!(body("return { then() {} }").fails().0, Reason::NeverSettles);
    assert_eq!(
        invoke("export const handler = () => ({ then() {} })")
            .fails()
            .0,
        Reason::NeverSettles
    );
    assert_eq!(
        invoke("export const handler = () => ({ then(r) { r(4) } })").result(),
        "4"
    );
    let seen = invoke("export const handler = () => ({ get then() { throw new Error('t') } })");
    assert_eq!(seen.fails(), (Reason::Threw, "Error: t"));
}

/// T18: there is nothing that runs when V8 collects garbage.
#[test]
fn t18_no_code_runs_for_garbage() {
    assert_eq!(
        body("return [typeof FinalizationRegistry, typeof WeakRef]").result(),
        r#"["undefined","undefined"]"#
    );
}

/// T23: a call that nobody waits for does not hold the result up.
#[test]
fn t23_calls_that_nobody_waits_for_are_left() {
    let seen = body("host.fetch(1); host.fetch(2); host.fetch(3); return 'done'");
    assert_eq!(seen.result(), "\"done\"");
    assert_eq!((seen.calls.len(), seen.waits), (3, 0));
}

/// M14: no more than 64 calls are under way; the others are refused, and can be tried again.
#[test]
fn m14_calls_under_way_are_bounded() {
    let seen = body(
        "const all = await Promise.allSettled(Array.from({ length: 1e5 }, (_, i) => host.fetch(i)));
         const codes = all.filter((one) => one.status === 'rejected').map((one) => one.reason.code);
         await host.fetch('again');
         return [codes.length, [...new Set(codes)]]",
    );
    assert_eq!(seen.result(), r#"[99936,["limit"]]"#);
    assert_eq!(seen.calls.len(), 65);
}

/// M11: lines and bytes of logs are bounded, and one line says that some are missing.
#[test]
fn m11_logs_are_bounded_and_say_so() {
    let seen = body("for (let i = 0; i < 1000; i++) host.log(i)");
    assert_eq!(seen.logs.len(), 257);
    assert!(seen.logs[256].text.starts_with("truncated:"));
    assert_eq!(seen.done.logs_left_out, 744);
    let seen = body("for (let i = 0; i < 100; i++) host.log('x'.repeat(1e6))");
    assert_eq!(seen.logs.len(), 9);
    assert_eq!(seen.logs[0].text.len(), 32 << 10);
    assert!(seen.logs[0].text.ends_with("(cut)"));
    assert!(seen.logs[8].text.starts_with("truncated:"));
    assert_eq!(seen.done.logs_left_out, 92);
}

/// P11: what is logged is words, of whatever value.
#[test]
fn p11_logs_are_words_of_any_value() {
    let seen = body(
        "host.log('a', 1, true, null, undefined, [1, { b: 2 }], new Error('e'), 3n, Symbol('s'), new Map(), () => 1);
         host.log.error({ x: NaN }); host.log.debug(); host.log.info(new Proxy({}, { get() { for (;;); } }));",
    );
    assert_eq!(
        seen.lines(),
        [
            "a 1 true null undefined [1,{\"b\":2}] Error: e 3 Symbol(s) #<Map> () => 1",
            "#<Object>",
            "",
            "#<Object>"
        ]
    );
    let levels: Vec<i32> = seen.logs.iter().map(|log| log.level).collect();
    assert_eq!(levels, [2, 4, 1, 2]);
}

/// P8: a check says what a module exports, three steps deep, and gives what was compiled.
#[test]
fn p8_a_check_says_what_is_exported() {
    let seen = check(
        "export const tools = { weather: { run() {}, deep: { er: { still: 1 } } }, get g() { for (;;); } };
         export default class {}
         export const version = 1;",
    );
    let exports = seen.exports();
    let ways: Vec<_> = exports
        .exports
        .iter()
        .map(|one| format!("{} {:?}", one.path.join("."), one.kind()))
        .collect();
    assert_eq!(
        ways,
        [
            "default Function",
            "tools Object",
            "tools.weather Object",
            "tools.weather.run Function",
            "tools.weather.deep Object",
            "version Other"
        ]
    );
    assert!(!exports.code_cache.is_empty());
    assert_eq!(check("export const a = (").fails().0, Reason::Syntax);
    assert_eq!(check("null.x").fails().0, Reason::Threw);
}
