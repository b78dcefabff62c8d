//! E rows: what code tries in order to get out, or to see what is not its own.

use bulkhead_wire::pipe::failure::Reason;

use crate::support::{body, error, invoke, invoke_with};

/// E1: no string becomes code, by whichever way it is tried.
#[test]
fn e1_no_string_becomes_code() {
    for source in [
        "host.fetch.constructor('return globalThis')()",
        "(function () {}).constructor('return this')()",
        "this?.constructor.constructor('return this')()",
        "globalThis.constructor.constructor('return process')()",
        "(async () => {}).constructor('return this')()",
        "(function* () {}).constructor('yield 1')()",
        "(async function* () {}).constructor('yield 1')()",
        "({})['const' + `ructor`]['\\u0063onstructor'](`return globalThis`)()",
        "eval('1')",
        "(0, eval)('globalThis')",
        "Reflect.construct(Function, ['return 1'])()",
        "new Function('return 1')()",
    ] {
        let seen = body(&format!(
            "try {{ return typeof {source} }} catch (e) {{ return e.name }}"
        ));
        assert!(
            ["\"EvalError\"", "\"TypeError\"", "\"undefined\""].contains(&seen.result()),
            "{source}: {}",
            seen.result()
        );
    }
    let seen =
        body("return host.fetch.constructor === Function && host.log.constructor === Function");
    assert_eq!(seen.result(), "true");
}

/// E5: errors of the host are errors of the isolate, and newer globals around them are not there.
#[test]
fn e5_errors_of_the_host_are_the_isolates_own() {
    let source = "export async function handler() {
        try { await host.fetch('x') } catch (e) {
            const all = await Promise.any([host.fetch('y')]).catch((e) => e);
            return [e instanceof Error, Object.getPrototypeOf(e) === Error.prototype, Reflect.ownKeys(e).sort(), e.code,
                all instanceof AggregateError, all.errors[0] instanceof Error, e.stack.includes('bulkhead')];
        }
    }";
    let seen = invoke_with(source, "handler", "1", |_| error("denied", "m"));
    assert_eq!(
        seen.result(),
        r#"[true,true,["code","message","stack"],"denied",true,true,false]"#
    );
    let seen = invoke("export const handler = () => { using x = null; }");
    assert_eq!(seen.fails().0, Reason::Syntax);
}

/// E6: nothing is imported, in whatever way, and `import.meta` is empty.
#[test]
fn e6_nothing_is_imported() {
    for specifier in [
        "'x'",
        "'node:fs'",
        "'data:text/javascript,1'",
        "'./plugin.ts'",
        "'plugin.ts'",
        "{ toString() { return 'y' } }",
        "'x', { with: { type: 'json' } }",
    ] {
        let seen = body(&format!(
            "try {{ await import({specifier}); return 'came' }} catch (e) {{ return [e instanceof TypeError, e.message] }}"
        ));
        match &seen.done.outcome {
            Some(bulkhead_wire::pipe::done::Outcome::ResultJson(json)) => {
                assert!(json.starts_with("[true,"), "{specifier}: {json}");
            }
            _ => assert_eq!(seen.fails().0, Reason::Syntax, "{specifier}"),
        }
    }
    for source in [
        "import 'x'",
        "import a from 'x'",
        "import * as a from 'x'",
        "export * from 'x'",
        "export { a } from './plugin.ts'",
    ] {
        assert_eq!(invoke(source).fails().0, Reason::Imports, "{source}");
    }
    for source in ["import defer * as a from 'x'", "import source a from 'x'"] {
        assert_eq!(invoke(source).fails().0, Reason::Syntax, "{source}");
    }
    assert_eq!(
        body("return Reflect.ownKeys(import.meta).length").result(),
        "0"
    );
    assert_eq!(
        body("return typeof import.meta.url").result(),
        "\"undefined\""
    );
}

/// E9: what V8 offers to its embedders and debuggers is not there, or does nothing to what is the host's.
#[test]
fn e9_what_v8_offers_beside_the_language_is_absent() {
    assert_eq!(
        body("return typeof console + typeof gc").result(),
        "\"undefinedundefined\""
    );
    assert_eq!(
        invoke("export const handler = () => %DebugPrint(1)")
            .fails()
            .0,
        Reason::Syntax
    );
    let seen = body(
        "try { Error.captureStackTrace(host.fetch) } catch (e) { return e.name } return 'changed'",
    );
    assert_eq!(seen.result(), "\"TypeError\"");
}

/// E8, E16: `host` cannot be changed, taken away or put in the way of.
#[test]
fn e16_host_is_frozen_in_all_its_parts() {
    let seen = body(
        "const open = [];
        const walk = (path, value) => {
            if (!Object.isFrozen(value)) open.push(path);
            for (const key of Reflect.ownKeys(value)) {
                const inner = value[key];
                if (typeof inner === 'object' || typeof inner === 'function') walk(`${path}.${String(key)}`, inner);
            }
        };
        walk('host', host);
        const tried = [];
        for (const change of [() => { host = 1 }, () => { delete globalThis.host }, () => { globalThis.host = 1 },
            () => { host.fetch = 1 }, () => { host.new = 1 }, () => { host.crypto.hash.x = 1 },
            () => { Object.defineProperty(globalThis, 'host', { value: 1 }) }, () => { new host.fetch() }])
            try { change(); tried.push(String(change)) } catch {}
        return [open, tried]",
    );
    assert_eq!(seen.result(), "[[],[]]");
}

/// E16: with every prototype frozen, all functions of `host` work.
#[test]
fn e16_frozen_prototypes_break_no_function_of_host() {
    let seen = invoke(
        "for (const name of Reflect.ownKeys(globalThis)) {
            const value = globalThis[name];
            if (typeof value === 'function' && value.prototype) { Object.freeze(value.prototype); Object.freeze(value) }
        }
        Object.freeze(globalThis.Math); Object.freeze(Reflect); Object.freeze(JSON);
        const failed = [];
        const skipped = ['log', 'settings'];
        export async function handler() {
            const walk = async (path, value) => {
                if (typeof value === 'function') {
                    try { await value('x', 'y', 'z') } catch (e) { if (!(e instanceof Error && e.code)) failed.push(path + e) }
                }
                for (const key of Reflect.ownKeys(value))
                    if (Object(value[key]) === value[key]) await walk(`${path}.${key}`, value[key]);
            };
            await walk('host', host);
            return [failed, host.settings.get('city'), host.crypto.hash('sha1', '').slice(0, 4), await host.fetch(1)];
        }",
    );
    assert_eq!(seen.result(), r#"[[],"Uccle","da39",[1]]"#);
}

/// D8: two invocations do not see the same random numbers, and what one leaves the other does not find (E12).
#[test]
fn e12_an_invocation_finds_nothing_of_another() {
    let source = "globalThis.x = (globalThis.x ?? 0) + 1; Object.prototype.p = 1;
        export const handler = () => [Math.random(), x, host.crypto.randomUUID()]";
    let (one, two) = (invoke(source), invoke(source));
    assert_ne!(one.result(), two.result());
    assert!(one.result().contains(",1,") && two.result().contains(",1,"));
    let seen = body(
        "const n = Array.from({ length: 1e4 }, Math.random); return [Math.min(...n) >= 0, Math.max(...n) < 1, new Set(n).size, Math.random.name, Math.random.length]",
    );
    assert_eq!(seen.result(), r#"[true,true,10000,"random",0]"#);
}
