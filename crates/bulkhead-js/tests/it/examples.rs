//! H6: the examples in `examples/plugs/` do what they say.

use std::{path::Path, process::Command};

use axum::{
    Router,
    extract::State,
    routing::{get, put},
};
use bulkhead_session::plug::{Ended, Message, Verdict};
use serde_json::json;

use crate::Bench;

fn example(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/plugs")
        .join(name)
        .canonicalize()
        .unwrap()
}

async fn serve(app: Router, tasks: &mut tokio::task::JoinSet<()>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move { axum::serve(listener, app).await.unwrap() });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_install_toolchain() {
    let mut bench = Bench::new();
    let source = bench.dir.path().join("tool/bin");
    std::fs::create_dir_all(&source).unwrap();
    std::fs::write(source.join("hello"), "#!/bin/sh\necho hello\n").unwrap();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program)
            .args(args)
            .current_dir(bench.dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    run("tar", &["-czf", "tool.tar.gz", "-C", "tool", "."]);
    let sha256 = run("sha256sum", &["tool.tar.gz"])[..64].to_owned();
    let archive = std::fs::read(bench.dir.path().join("tool.tar.gz")).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    let base = serve(
        Router::new().route("/tool", get(|| async { archive })),
        &mut tasks,
    )
    .await;
    let into = bench.dir.path().join("installed").display().to_string();
    bench.config = json!({"url": format!("{base}/tool"), "sha256": sha256, "into": into});
    for said in ["installed", "is there already"] {
        let mut plug = bench
            .load_file(example("install-toolchain.ts"))
            .await
            .unwrap();
        plug.on_session(&mut bench.trial.ctx).await.unwrap();
        plug.teardown(&mut bench.trial.ctx, Ended::Idle)
            .await
            .unwrap();
        let lines = bench.trial.said();
        assert!(lines.iter().any(|line| line.contains(said)), "{lines:?}");
    }
    assert!(bench.trial.ctx.agent.env["PATH"].starts_with(&format!("{into}/bin:")));
    assert!(Path::new(&into).join("bin/hello").is_file());
    bench.config = json!({"url": format!("{base}/tool"), "sha256": "0".repeat(64), "into": format!("{into}-2")});
    let mut plug = bench
        .load_file(example("install-toolchain.ts"))
        .await
        .unwrap();
    let error = plug
        .on_session(&mut bench.trial.ctx)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("sha256sum") && error.contains("install-toolchain.ts:"),
        "{error}"
    );
    bench.end(&mut *plug).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_seed_files() {
    let mut bench = Bench::new();
    let home = bench.dir.path().join("home");
    std::fs::write(home.join("kept"), "mine").unwrap();
    bench.config = json!({"files": {"a/b/c.txt": "ä", "run.sh": "#!/bin/sh", "kept": "theirs"}});
    let mut plug = bench.load_file(example("seed-files.ts")).await.unwrap();
    plug.on_session(&mut bench.trial.ctx).await.unwrap();
    assert_eq!(
        std::fs::read_to_string(home.join("a/b/c.txt")).unwrap(),
        "ä"
    );
    assert!(
        Command::new("test")
            .arg("-x")
            .arg(home.join("run.sh"))
            .status()
            .unwrap()
            .success()
    );
    bench.end(&mut *plug).await.unwrap();
    assert!(!home.join("a/b/c.txt").exists() && !home.join("run.sh").exists());
    assert_eq!(std::fs::read_to_string(home.join("kept")).unwrap(), "mine");
    assert_eq!(
        bench.trial.said(),
        [
            "mine: [warn] kept is there already",
            "mine: removed 2 files"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_redact_messages() {
    let mut bench = Bench::new();
    bench.config = json!({"patterns": ["[\\w.]+@[\\w.]+", "sk-\\w+"]});
    let mut plug = bench
        .load_file(example("redact-messages.ts"))
        .await
        .unwrap();
    plug.on_session(&mut bench.trial.ctx).await.unwrap();
    for (message, verdict) in [
        (
            Message::from_agent(r#"{"text":"ask ada@example.org","n":[1,"sk-abc"]}"#),
            Verdict::Change(r#"{"text":"ask [redacted]","n":[1,"[redacted]"]}"#.into()),
        ),
        (
            Message::from_agent("plain sk-1"),
            Verdict::Change("plain [redacted]".into()),
        ),
        (Message::from_agent(r#"{"text":"nothing"}"#), Verdict::Pass),
        (
            Message::to_agent("key sk-2"),
            Verdict::Change("key [redacted]".into()),
        ),
    ] {
        assert_eq!(
            plug.on_message(&mut bench.trial.ctx, &message)
                .await
                .unwrap(),
            verdict
        );
    }
    bench.end(&mut *plug).await.unwrap();
    assert_eq!(
        bench.trial.said(),
        [
            "mine: [warn] a prompt held what is to be redacted",
            "mine: redacted 4 passages"
        ]
    );
}

type Received = std::sync::Arc<std::sync::Mutex<Vec<(String, usize)>>>;

#[tokio::test(flavor = "multi_thread")]
async fn h6_collect_results() {
    let mut bench = Bench::new();
    let home = bench.dir.path().join("home");
    std::fs::create_dir_all(home.join("out/deep")).unwrap();
    for (name, len) in [
        ("a.log", 3),
        ("deep/ä b.log", 5),
        ("c.bin", 1),
        ("large.log", 2000),
    ] {
        std::fs::write(home.join("out").join(name), vec![0; len]).unwrap();
    }
    let received = Received::default();
    let take = |State(received): State<Received>, uri: axum::http::Uri, body: axum::body::Bytes| async move {
        received
            .lock()
            .unwrap()
            .push((uri.path().to_owned(), body.len()));
    };
    let mut tasks = tokio::task::JoinSet::new();
    let app = Router::new()
        .route("/in/{*path}", put(take))
        .with_state(received.clone());
    let base = serve(app, &mut tasks).await;
    let from = home.join("out").display().to_string();
    bench.config =
        json!({"from": from, "to": format!("{base}/in"), "endings": [".log"], "maxBytes": 1000});
    let mut plug = bench
        .load_file(example("collect-results.ts"))
        .await
        .unwrap();
    plug.on_session(&mut bench.trial.ctx).await.unwrap();
    bench.end(&mut *plug).await.unwrap();
    let mut received = received.lock().unwrap().clone();
    received.sort();
    assert_eq!(
        received,
        [
            ("/in/a.log".to_owned(), 3),
            ("/in/deep/%C3%A4%20b.log".to_owned(), 5)
        ]
    );
    assert!(
        bench
            .trial
            .said()
            .contains(&"mine: large.log: too large".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_wait_for_port() {
    let mut bench = Bench::new();
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let server = format!(
        "import http.server,time; time.sleep(0.5); http.server.HTTPServer(('127.0.0.1',{port}),http.server.SimpleHTTPRequestHandler).serve_forever()"
    );
    bench.config = json!({"command": ["python3", "-c", server], "port": port});
    let mut plug = bench.load_file(example("wait-for-port.ts")).await.unwrap();
    plug.on_session(&mut bench.trial.ctx).await.unwrap();
    assert_eq!(bench.trial.ctx.agent.env["SERVICE_PORT"], port.to_string());
    assert!(
        tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .is_ok()
    );
    bench.end(&mut *plug).await.unwrap();
    assert!(
        tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .is_err()
    );
}
