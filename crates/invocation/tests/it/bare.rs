//! P3: what code inside can reach.

use crate::support::{body, invoke};

/// P3, E8: everything that can be reached is in the list that stands beside this file, so that a new V8 adds nothing
/// unseen. A line's `!` is a property that cannot be changed, its `()` one with a getter.
#[test]
fn e8_everything_that_can_be_reached_is_on_the_list() {
    let seen = invoke(include_str!("reachable.js"));
    let lines: Vec<String> = serde_json::from_str(seen.result()).unwrap();
    insta::assert_snapshot!("reachable", lines.join("\n"));
}

/// P3: what the plugins' page says is not there is not there.
#[test]
fn p3_what_is_not_there_is_not_there() {
    let names = "fetch XMLHttpRequest require process Buffer atob btoa TextEncoder TextDecoder setTimeout setInterval \
                 setImmediate queueMicrotask structuredClone WebAssembly SharedArrayBuffer Atomics Intl Temporal console \
                 FinalizationRegistry WeakRef escape unescape Iterator AsyncIterator DisposableStack AsyncDisposableStack \
                 SuppressedError Float16Array ShadowRealm gc performance navigator self window global Deno Bun";
    let seen = body(&format!(
        "return {:?}.split(' ').filter((name) => name in globalThis)",
        names
    ));
    assert_eq!(seen.result(), "[]");
}

/// P4: the object `host` and the types for authors have every function of the table of methods, and no other.
#[test]
fn p4_host_and_its_types_have_what_the_table_says() {
    let seen = body(
        "const paths = [];
         const walk = (path, value) => {
            for (const key of Reflect.ownKeys(value)) {
                if (typeof value === 'function' && (key === 'length' || key === 'name')) continue;
                const inner = path + key;
                if (typeof value[key] === 'function') paths.push(inner);
                walk(inner + '.', value[key]);
            }
         };
         walk('', host);
         return paths",
    );
    let mut found: Vec<String> = serde_json::from_str(seen.result()).unwrap();
    found.retain(|path| !path.starts_with("log."));
    found.sort();
    let mut table: Vec<&str> = bulkhead_wire::methods::METHODS
        .iter()
        .map(|method| method.path)
        .collect();
    table.sort_unstable();
    assert_eq!(found, table);
    let types = include_str!("../../../../sdk/host.d.ts");
    for path in table {
        let name = path.rsplit('.').next().unwrap();
        let is_there = ["(", "<", ": Log"]
            .iter()
            .any(|after| types.contains(&format!(" {name}{after}")));
        assert!(is_there, "{path}");
    }
    let seen = body("try { host.crypto.hash() } catch (e) { return e.code }");
    assert_eq!(seen.result(), "\"bad_request\"");
}
