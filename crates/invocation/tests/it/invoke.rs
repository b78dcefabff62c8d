//! How an invocation goes, from `Start` to `Done`.

use bulkhead_wire::pipe::failure::Reason;

use crate::support::{body, echo, invoke, invoke_with};

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
