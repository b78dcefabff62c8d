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
