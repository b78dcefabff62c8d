//! The bare engine (P3): what is taken away, and what is loaded before anybody's code comes.

use std::rc::Rc;

use bulkhead_engine::{EngineError, Isolate, Native, Thrown, Value, now};

use crate::drive::Sharing;

/// What no plugin finds, by its path from the global object.
const REMOVED: &[&[&str]] = &[
    &["WebAssembly"],
    &["SharedArrayBuffer"],
    &["Atomics"],
    &["Intl"],
    &["Temporal"],
    &["console"],
    // Their callbacks run when V8 likes, which is never what a plugin may rely on.
    &["FinalizationRegistry"],
    &["WeakRef"],
    &["escape"],
    &["unescape"],
    // Newer than ES2022, and no switch of V8's turns them off. The prototype of all iterators stays, as it was then.
    &["Iterator", "prototype", "constructor"],
    &["Iterator", "prototype", "map"],
    &["Iterator", "prototype", "filter"],
    &["Iterator", "prototype", "take"],
    &["Iterator", "prototype", "drop"],
    &["Iterator", "prototype", "flatMap"],
    &["Iterator", "prototype", "reduce"],
    &["Iterator", "prototype", "toArray"],
    &["Iterator", "prototype", "forEach"],
    &["Iterator", "prototype", "some"],
    &["Iterator", "prototype", "every"],
    &["Iterator", "prototype", "find"],
    &["Iterator"],
    &["AsyncIterator"],
    &["Float16Array"],
    &["DisposableStack"],
    &["AsyncDisposableStack"],
    &["SuppressedError"],
];

pub(crate) fn strip(isolate: &mut Isolate, shared: &Sharing) -> Result<(), EngineError> {
    isolate.remove(REMOVED)?;
    let shared = Rc::clone(shared);
    let random = Native::Values {
        run: now(move |_| match shared.random.unit() {
            Ok(number) => Ok(Value::Number(number)),
            Err(_) => Err(Thrown::new("the kernel gives no random numbers")),
        }),
        bytes_max: usize::MAX,
    };
    isolate.replace(&["Math", "random"], random)
}

/// Everything that V8 and the ciphers load when first used. It leaves nothing behind.
pub(crate) fn warm_up(isolate: &mut Isolate) -> Result<(), EngineError> {
    isolate.run("bulkhead:warm-up.js", WARM_UP)?;
    Ok(())
}

const WARM_UP: &str = r#"
(() => {
    const date = new Date(2026, 1, 3, 4, 5, 6);
    String(date) + date.toLocaleString() + date.toISOString() + date.getTimezoneOffset();
    "Ab c".replace(/(?<x>b)\s/giu, "$<x>").normalize("NFC").localeCompare("b");
    JSON.parse(JSON.stringify({ a: [1, 2.5, "x", null, { b: true }] }));
    try { null.x } catch (error) { String(error.stack) }
    (1.5).toLocaleString() + (12.25).toFixed(1) + String(2n ** 64n);
    new Map([[1, 2]]).get(1); new Set([1]).has(1); new WeakMap();
    class A { #x = 1; get x() { return this.#x } static { this.y = 1 } }
    new A().x;
    const { a, ...rest } = { a: 1, b: 2 };
    [...[3, 1, 2]].sort((x, y) => x - y).map((x) => `${x}`).join();
    new Uint8Array(8).fill(1).buffer.slice(1);
    (function* () { yield 1 })().next();
    Promise.resolve(1).then((x) => x);
    (async () => { await null })();
    const { crypto, settings } = host, bytes = (size) => new Uint8Array(size);
    for (const name of ["sha1", "sha256", "sha384", "sha512"]) {
        crypto.hash(name, "a"); crypto.hmac(name, "k", "a", "base64");
    }
    const ignore = (run) => { try { run() } catch {} };
    for (const size of [16, 24, 32]) ignore(() => crypto.aesCbcDecrypt(bytes(size), bytes(16), bytes(32)));
    crypto.ed25519Verify(bytes(32), crypto.ed25519Sign(bytes(32), "a"), "a");
    // A signature that is wrong, by a key of the usual size.
    const key = { kty: "RSA", n: "_".repeat(341) + "w", e: "AQAB" };
    const part = (value) => crypto.base64.encode(value, "url");
    ignore(() => crypto.jwtVerify(`${part('{"alg":"RS256"}')}.${part("{}")}.${part(bytes(256))}`, key));
    crypto.timingSafeEqual("a", "b"); crypto.randomBytes(8, "hex"); crypto.randomUUID(); Math.random();
    crypto.hex.decode(crypto.hex.encode("a"), "utf8"); crypto.base64.decode(crypto.base64.encode("a"));
    ignore(() => settings.get("a"));
})()
"#;
