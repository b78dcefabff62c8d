//! Rows that show in what crosses, and in what does not: S1, S4, E12, E13, E15, O1.

use bulkhead_wire::isolates::{Reason, fault::Class};

use super::{Service, fault, tool, value};

#[tokio::test(flavor = "multi_thread")]
async fn s1_s4_values_cross_by_the_written_rule() {
    let service = Service::start(&[]).await;
    let lone = service.unchecked(&tool(r"return '\ud800'"));
    assert_eq!(
        value(&service.beside_a_neighbour(&lone).await),
        "\"\u{fffd}\""
    );
    let big = service.unchecked(&tool("return { a: [{ b: 1n }] }"));
    let ended = service.beside_a_neighbour(&big).await;
    let (class, reason, message) = fault(&ended);
    assert_eq!((class, reason), (Class::BadRequest, Reason::ResultNotData));
    assert!(message.contains("a[0].b"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn e12_e13_nothing_of_one_call_is_there_in_the_next() {
    let service = Service::start(&[]).await;
    let body = "const seen = [globalThis.x, [].polluted, Promise.prototype.then.mine].map((one) => one ?? null);
        globalThis.x = 1; Array.prototype.polluted = 2; Promise.prototype.then.mine = 3;
        host.settings.getSecret('key');
        return seen";
    let plugin = service.unchecked(&tool(body));
    for _ in 0..3 {
        let ended = service.beside_a_neighbour(&plugin).await;
        assert_eq!(value(&ended), "[null,null,null]");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e15_a_fetched_secret_is_taken_out_of_logs_and_faults() {
    const SECRET: &str = "s3cret-of-the-user";
    let service = Service::start(&[]).await;
    let body = "const secret = await host.settings.getSecret('key');
        host.log('it is ' + secret);
        throw new Error('with ' + secret)";
    let ended = service
        .beside_a_neighbour(&service.unchecked(&tool(body)))
        .await;
    let (class, _, message) = fault(&ended);
    assert_eq!(class, Class::Crash);
    assert!(
        message.contains("with ") && !message.contains(SECRET),
        "{message}"
    );
    let logs = service.platform.logs();
    assert!(
        logs.iter().any(|line| line.text.contains("it is ")),
        "{logs:?}"
    );
    assert!(
        logs.iter().all(|line| !line.text.contains(SECRET)),
        "{logs:?}"
    );
    // Only what the manifest declares can be asked for, whatever the platform holds (P5).
    service.platform.bind("other", "of another plugin");
    let other = service.unchecked(&tool(
        "try { return await host.settings.getSecret('other') } catch (e) { return e.code }",
    ));
    let ended = service.call(&other).await;
    assert!(!value(&ended).contains("another"), "{:?}", ended.outcome);
    // The token goes with what the broker asks, and is nowhere inside.
    assert!(
        service
            .platform
            .calls()
            .iter()
            .all(|(token, _)| token == "token-of-the-account")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn o1_a_rejection_that_nobody_handles_is_this_calls_own() {
    let service = Service::start(&[]).await;
    let body =
        "Promise.reject(new Error('left alone')); await host.settings.getSecret('key'); return 1";
    let ended = service
        .beside_a_neighbour(&service.unchecked(&tool(body)))
        .await;
    let (class, reason, message) = fault(&ended);
    assert_eq!((class, reason), (Class::Crash, Reason::UnhandledRejection));
    assert!(message.contains("left alone"), "{message}");
}
