//! The scripted agent, driven by the client over the Agent Client Protocol.

use std::{path::Path, time::Duration};

use tempfile::tempdir;
use tokio_util::sync::CancellationToken;

use crate::support::play;

async fn turn(steps: &str, cwd: &Path) -> (String, String, String) {
    let cancel = CancellationToken::new();
    let (driven, events, code) = play(steps, cwd, "greet the world", &cancel).await;
    let driven = match driven {
        Ok(driven) => format!("{:?}", driven.finished),
        Err(error) => format!("error: {error}"),
    };
    (driven, events.json(), format!("{code:?}"))
}

#[tokio::test]
async fn every_kind_of_step_becomes_the_events_it_stands_for() {
    let dir = tempdir().unwrap();
    let steps = r#"
steps:
  - think: I will do this
  - plan: [write, test]
  - write: {path: sub/greeting.txt, text: "{prompt}\n"}
  - append: {path: sub/greeting.txt, text: "again\n"}
  - run: cat sub/greeting.txt
  - try: exit 3
  - ask: May I?
  - usage: {tokens: 120, cost_usd: 0.5}
  - delete: sub/greeting.txt
  - say: "All "
  - say: done.
"#;
    let (driven, events, code) = turn(steps, dir.path()).await;
    assert_eq!(driven, "Some((true, None))");
    assert_eq!(code, "Ok(0)");
    assert!(!dir.path().join("sub/greeting.txt").exists());
    insta::assert_snapshot!(events);
}

#[tokio::test]
async fn a_failing_step_is_named_with_its_line() {
    let dir = tempdir().unwrap();
    let (driven, ..) = turn("steps:\n  - say: hi\n  - run: exit 3\n", dir.path()).await;
    insta::assert_snapshot!(driven, @"error: the agent refused session/prompt: step 2 (`run`, line 3): the command ended with exit status: 3 (code -32603)");
    let (driven, ..) = turn("steps:\n- fail: no model\n", dir.path()).await;
    insta::assert_snapshot!(driven, @"error: the agent refused session/prompt: step 1 (`fail`, line 2): no model (code -32603)");
}

#[tokio::test]
async fn an_unknown_step_is_refused_with_file_and_line() {
    let dir = tempdir().unwrap();
    let (_, _, code) = turn("steps:\n  - say: hi\n  - shout: hi\n", dir.path()).await;
    assert!(
        code.contains("shout") && code.contains("steps.yaml"),
        "{code}"
    );
    assert!(
        code.contains("line: 3") || code.contains(":3:") || code.contains("line 3"),
        "{code}"
    );
}

#[tokio::test]
async fn stop_and_exit_end_the_turn_as_written() {
    let dir = tempdir().unwrap();
    let (driven, ..) = turn("steps: [{stop: refusal}, {fail: never}]", dir.path()).await;
    assert_eq!(
        driven,
        "Some((false, Some(\"the agent stopped early: refusal\")))"
    );
    let (driven, _, code) = turn("steps: [{exit: 7}]", dir.path()).await;
    assert_eq!((driven.as_str(), code.as_str()), ("None", "Ok(7)"));
}

#[tokio::test]
async fn a_hanging_agent_stops_when_it_is_cancelled() {
    let dir = tempdir().unwrap();
    let cancel = CancellationToken::new();
    let later = cancel.clone();
    let (played, ()) = tokio::join!(
        play("steps: [{hang: true}]", dir.path(), "", &cancel),
        async move {
            tokio::time::sleep(Duration::from_millis(200)).await;
            later.cancel();
        }
    );
    let finished = played.0.unwrap().finished;
    assert_eq!(
        finished,
        Some((false, Some("the agent stopped early: cancelled".to_owned())))
    );
}

#[tokio::test]
async fn case_63_an_oversize_line_of_an_agent_is_an_error_and_a_banner_is_kept() {
    let dir = tempdir().unwrap();
    let cancel = CancellationToken::new();
    let steps = "steps: [{raw: 'Welcome!'}, {oversize_line_bytes: 10485761}]";
    let (driven, events, _) = play(steps, dir.path(), "", &cancel).await;
    assert!(events.json().contains("Welcome!"));
    let error = driven.unwrap_err().to_string();
    assert!(
        error.contains("longer than the limit of 10485760 bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn a_flood_arrives_whole() {
    let dir = tempdir().unwrap();
    let cancel = CancellationToken::new();
    let (driven, events, _) =
        play("steps: [{flood_bytes: 5000000}]", dir.path(), "", &cancel).await;
    assert!(driven.unwrap().finished.unwrap().0);
    let json = events.json();
    assert!(json.matches("flood").count() >= 170 * 4882);
    assert!(
        events.0.len() < 1000,
        "chunks are joined: {}",
        events.0.len()
    );
}
