//! H5: what goes wrong in a plug ends that plug's handler, with an error that says where, and nothing else.

use std::time::{Duration, Instant};

use bulkhead_session::plug::{Ended, Message};

use crate::{Bench, refusal};

/// A file and line in an error, wherever the temporary directory is.
fn at(bench: &Bench, place: &str) -> String {
    bench.dir.path().join(place).display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_a_throw_names_the_typescript_line() {
    let mut bench = Bench::new();
    let source = "interface A {\n  b: string\n}\nexport default {\n  async onSession(ctx: any): Promise<void> {\n    await null\n    const a: A = undefined as any; a.b.length\n  },\n}\n";
    let words = refusal(&mut bench, "plug.ts", source).await;
    let place = at(&bench, "plug.ts:7:38");
    assert_eq!(
        words,
        format!("TypeError: Cannot read properties of undefined (reading 'b') ({place})")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_an_error_of_the_host_names_the_line_that_waits_for_it() {
    let mut bench = Bench::new();
    let source =
        "export default async (ctx) => {\n  await ctx.host.fs.promises.readFile('/missing')\n}";
    let words = refusal(&mut bench, "plug.js", source).await;
    let place = at(&bench, "plug.js:2:30");
    assert!(
        words.starts_with("Error: ENOENT: no such file or directory, open '/missing'"),
        "{words}"
    );
    assert!(words.contains(&at(&bench, "plug.js:2:")), "{words} {place}");
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_a_loop_is_ended_and_its_line_named() {
    let mut bench = Bench::impatient();
    let start = Instant::now();
    let words = refusal(
        &mut bench,
        "plug.ts",
        "export default (ctx: any) => {\n  let n: number = 0;\n  for (;;) {\n    n++\n  }\n}",
    )
    .await;
    assert!(
        words.starts_with("onSession took longer than its limit of 1.5s; it was at "),
        "{words}"
    );
    let lines = ["plug.ts:3:", "plug.ts:4:"].map(|place| at(&bench, place));
    assert!(lines.iter().any(|line| words.contains(line)), "{words}");
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_a_promise_that_never_settles_is_over_its_limit() {
    let mut bench = Bench::impatient();
    let words = refusal(
        &mut bench,
        "plug.js",
        "export default () => new Promise(() => {})",
    )
    .await;
    assert_eq!(words, "onSession took longer than its limit of 1.5s");
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_a_loop_while_loading_is_ended() {
    let mut bench = Bench::impatient();
    let words = refusal(&mut bench, "plug.js", "let n = 0;\nfor (;;) n++").await;
    assert!(
        words.starts_with("loading took longer than its limit of 1.5s"),
        "{words}"
    );
}

/// The teardown of a plug whose handler was ended still runs, in the same isolate.
#[tokio::test(flavor = "multi_thread")]
async fn h5_a_plug_that_was_ended_can_still_tear_down() {
    let mut bench = Bench::impatient();
    let source =
        "export default { onSession(ctx) { ctx.defer(() => ctx.log('down')); for (;;) {} } }";
    let mut plug = bench.load("plug.js", source).await.unwrap();
    plug.on_session(&mut bench.trial.ctx).await.unwrap_err();
    bench.end(&mut *plug).await.unwrap();
    assert_eq!(bench.trial.said(), ["mine: down"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_a_plug_that_fills_its_memory_is_ended_and_the_process_goes_on() {
    let mut bench = Bench::new();
    let words = refusal(
        &mut bench,
        "plug.js",
        "export default () => {\n  const all = []; for (;;) all.push({ a: [1, 2, 3] })\n}",
    )
    .await;
    assert_eq!(words, "its memory limit was reached");
    let said = Bench::new().run("log('well')").await;
    assert_eq!(said, ["mine: well"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_a_teardown_that_fails_names_its_line_and_the_others_of_the_plug_run() {
    let mut bench = Bench::new();
    let source = "export default (ctx) => {\n  ctx.defer(() => ctx.log('first'))\n  ctx.defer(() => { throw new Error('broken') })\n  return () => ctx.log('last')\n}";
    let mut plug = bench.begin("plug.js", source).await.unwrap();
    let error = bench.end(&mut *plug).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("Error: broken ({})", at(&bench, "plug.js:3:27"))
    );
    assert_eq!(bench.trial.said(), ["mine: last", "mine: first"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_what_nobody_catches_is_said_and_nothing_ends() {
    let mut bench = Bench::new();
    let source = "export default async (ctx) => {\n  setTimeout(() => { throw new Error('in a timer') }, 1)\n  Promise.reject(new Error('in a promise'))\n  await ctx.sleep(50)\n  ctx.log('well')\n}";
    let mut plug = bench.begin("plug.js", source).await.unwrap();
    bench.end(&mut *plug).await.unwrap();
    let said = bench.trial.said().join("\n");
    for words in [
        "nobody caught: Error: in a promise",
        "nobody caught: Error: in a timer",
        "plug.js:2:28",
        "mine: well",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_what_is_no_plug_says_why() {
    let mut bench = Bench::new();
    for (name, source, words) in [
        (
            "a.js",
            "export const a = 1",
            "a plug has `export default { onSession, onMessage }`, or one function",
        ),
        (
            "b.js",
            "export default {}",
            "the plug has neither onSession nor onMessage",
        ),
        (
            "c.js",
            "export default { onSession: 1 }",
            "onSession is not a function",
        ),
        (
            "d.js",
            "export default { timeouts: { onStart: 1 }, onSession() {} }",
            "timeouts.onStart: there is no such handler",
        ),
        ("e.ts", "export default () => {}\nenum E { A }", "e.ts:2:1"),
        ("f.ts", "export default () => {}\nlet x: = 1", "f.ts:2:8"),
        ("g.js", "export default () => {}\nlet x = ;", "g.js:2:9"),
        (
            "h.js",
            "import fs from 'node:fs'; export default () => {}",
            "plugs have no module node:fs",
        ),
        (
            "i.js",
            "import x from 'left-pad'; export default () => {}",
            "\"left-pad\" is no file: plugs import by relative paths",
        ),
        (
            "j.js",
            "import x from './missing.js'; export default () => {}",
            "No such file or directory",
        ),
        (
            "k.txt",
            "export default () => {}",
            "is neither .ts, .mts, .js, .mjs nor .json",
        ),
        (
            "l.js",
            "export default (ctx) => { ctx.agent.argv = 1 }",
            "ctx.agent.argv is not an array",
        ),
        (
            "m.js",
            "export default () => 7",
            "onSession returned something that is no teardown function",
        ),
    ] {
        let refused = refusal(&mut bench, name, source).await;
        assert!(refused.contains(words), "{name}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_limits_of_its_own_go_first() {
    let mut bench = Bench::new();
    let source =
        "export default { timeouts: { onMessage: 100 }, onMessage: () => new Promise(() => {}) }";
    let mut plug = bench.begin("plug.js", source).await.unwrap();
    let error = plug
        .on_message(&mut bench.trial.ctx, &Message::to_agent("{}"))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "onMessage took longer than its limit of 100ms"
    );
    plug.teardown(&mut bench.trial.ctx, Ended::Idle)
        .await
        .unwrap();
}

/// A built-in loop that V8 does not end: the session goes on without the plug.
#[tokio::test(flavor = "multi_thread")]
async fn h5_a_plug_that_cannot_be_ended_holds_up_nobody() {
    let mut bench = Bench::impatient();
    let start = Instant::now();
    let source = "export default () => Array.prototype.includes.call({ length: 2 ** 53 - 1 }, 1)";
    let mut plug = bench.load("plug.js", source).await.unwrap();
    let error = plug.on_session(&mut bench.trial.ctx).await.unwrap_err();
    let words = "did not stop when it was told to: the plug is in a loop of V8's own";
    assert_eq!(error.to_string(), format!("onSession {words}"));
    // Nor does its teardown, which is not waited for at length.
    let error = bench.end(&mut *plug).await.unwrap_err();
    assert_eq!(error.to_string(), format!("teardown {words}"));
    assert!(start.elapsed() < Duration::from_secs(20));
    assert_eq!(Bench::new().run("log('well')").await, ["mine: well"]);
}
