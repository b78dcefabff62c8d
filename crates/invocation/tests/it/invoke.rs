//! How an invocation goes, from `Start` to `Done`.

use bulkhead_wire::pipe::{Start, failure::Reason, start::Work};

use crate::support::{body, check, echo, invoke, invoke_with, run_of, serve, start_of};

/// P1, P4: a handler is called with its input, asks the broker, and gives its result.
#[test]
fn p4_a_handler_is_called_and_its_calls_are_answered() {
    let source = "
        export const tools = { weather: async ({ city }) => {
            const answer = await host.fetch({ url: `https://a.example/${city}` });
            host.log.warn('got', answer, new Error('e'));
            return { city, answer, setting: host.settings.get('city') };
        } };";
    let seen = invoke_with(source, "tools.weather", r#"{"city":"X"}"#, echo);
    assert_eq!(
        seen.result(),
        r#"{"city":"X","answer":[{"url":"https://a.example/X"}],"setting":"Uccle"}"#
    );
    assert_eq!(seen.waits, 1);
    assert_eq!(
        seen.lines(),
        [r#"got [{"url":"https://a.example/X"}] Error: e"#]
    );
}

/// T11: what can never settle ends at once, and says so.
#[test]
fn t11_a_promise_that_can_never_settle_ends_at_once() {
    let (reason, message) = (Reason::NeverSettles, "never settle");
    let seen = body("await new Promise(() => {})");
    assert_eq!(seen.fails().0, reason);
    assert!(seen.fails().1.contains(message));
}

/// P7: what is thrown is told with its place.
#[test]
fn p7_what_is_thrown_is_told_with_positions() {
    let seen = invoke("function f() { null.x }\nexport function handler() {\n  f() }");
    let failure = seen.failure();
    assert_eq!(failure.reason(), Reason::Threw);
    assert!(failure.message.starts_with("TypeError: "), "{failure:?}");
    let places: Vec<_> = failure
        .stack
        .iter()
        .map(|p| (p.function.as_str(), p.file.as_str(), p.line, p.column))
        .collect();
    assert_eq!(
        places,
        [("f", "plugin.ts", 1, 21), ("handler", "plugin.ts", 3, 3)]
    );
}

/// D9: what was compiled in a check is used in a run; what was made of another source, or spoiled, is passed over.
#[test]
fn d9_a_code_cache_is_used_where_it_fits_and_harms_nobody_elsewhere() {
    let source = "export const handler = (n) => n + 1; export const other = () => 2";
    let cache = check(source).exports().code_cache.clone();
    let mut spoiled = cache.clone();
    let middle = spoiled.len() / 2;
    spoiled[middle] ^= 0xff;
    let mut longer = cache.clone();
    longer.extend([0; 64]);
    let caches = [
        cache.clone(),
        spoiled,
        longer,
        cache[..20].to_vec(),
        vec![7; 9],
    ];
    for code_cache in caches {
        for source in [
            source,
            "export const handler = (n) => n + 1; /* another text */ null",
        ] {
            let start = Start {
                code_cache: code_cache.clone(),
                ..start_of(source, Work::Run(run_of("handler", "1")))
            };
            assert_eq!(serve(start, echo).result(), "2");
        }
    }
}

/// P1: what an invocation used is told.
#[test]
fn p1_usage_is_told() {
    let seen = body(
        "globalThis.kept = new Uint8Array(1 << 20); host.crypto.hash('sha256', 'abc'); return 1",
    );
    let usage = seen.done.usage.unwrap();
    assert!(usage.heap_bytes > 100_000, "{usage:?}");
    assert!(
        (1 << 20..2 << 20).contains(&usage.buffer_bytes),
        "{usage:?}"
    );
    assert_eq!((usage.crypto_operations, usage.crypto_bytes), (1, 9));
    assert!(usage.cpu_us > 0);
}
