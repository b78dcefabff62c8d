//! H5: a plug sees, changes, drops and answers messages.

use bulkhead_session::plug::{Message, Verdict};

use crate::Bench;

const PLUG: &str = "export default {
  onMessage(ctx, message) {
    const { direction, json } = message
    if (json?.drop) return { drop: true }
    if (json?.change) return { change: { ...json, seen: direction } }
    if (json?.answer) return { answer: [{ ok: true }, 'plain'] }
    if (message.text === 'bad') return 7
  },
}";

#[tokio::test(flavor = "multi_thread")]
async fn h5_every_verdict() {
    let mut bench = Bench::new();
    let mut plug = bench.begin("plug.js", PLUG).await.unwrap();
    assert!(plug.wants_messages());
    let changed = r#"{"change":true,"seen":"fromAgent"}"#;
    for (message, verdict) in [
        (Message::to_agent("no JSON"), Verdict::Pass),
        (Message::to_agent(r#"{"a":1}"#), Verdict::Pass),
        (Message::to_agent(r#"{"drop":1}"#), Verdict::Drop),
        (
            Message::from_agent(r#"{"change":true}"#),
            Verdict::Change(changed.into()),
        ),
        (
            Message::from_agent(r#"{"answer":1}"#),
            Verdict::Answer(vec![r#"{"ok":true}"#.into(), "plain".into()]),
        ),
    ] {
        assert_eq!(
            plug.on_message(&mut bench.trial.ctx, &message)
                .await
                .unwrap(),
            verdict
        );
    }
    let error = plug
        .on_message(&mut bench.trial.ctx, &Message::to_agent("bad"))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "TypeError: onMessage returns nothing, { change }, { drop: true } or { answer }"
    );
    bench.end(&mut *plug).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_a_plug_without_the_handler_is_not_asked() {
    let mut bench = Bench::new();
    let mut plug = bench
        .begin("plug.js", "export default () => {}")
        .await
        .unwrap();
    assert!(!plug.wants_messages());
    bench.end(&mut *plug).await.unwrap();
}
