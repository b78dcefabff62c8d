//! P4, P5, P6, P21: every function that the platform carries out, through its typed messages, against a fake platform that
//! is complete. What goes wrong names the argument.

mod chat;

use std::{collections::HashSet, sync::Arc, time::Duration};

use bulkhead_egress::{Egress, EgressConfig, Tls};
use bulkhead_isolates::{
    calls::{HostFunctions, permission_of},
    context::{Authority, InvocationContext},
    fetch::Fetch,
    host_calls::HostCalls as _,
};
use bulkhead_model::{
    network::NetworkPolicy,
    plugin::{Demands, InvocationKind, InvocationLimits, manifest::Permission},
};
use bulkhead_test_isolates::{
    net::Names,
    platform::{FakePlatform, NOW_MS},
};
use bulkhead_wire::{
    methods::{METHODS, Where},
    pipe::{self, answer::Outcome},
    platform::{self, answer::Answer as Answered, call::Call as Asked},
};
use serde_json::{Value, json};
use tokio::time::Instant;

struct Plugin {
    functions: HostFunctions,
    context: InvocationContext,
    platform: Arc<FakePlatform>,
}

impl Plugin {
    /// It may do everything, and has the secret `apiKey`.
    fn new() -> Self {
        Self::with(
            Permission::ALL
                .iter()
                .map(|permission| permission.name().to_owned())
                .collect(),
        )
    }

    fn with(permissions: HashSet<String>) -> Self {
        let kind = InvocationKind::Tool;
        let authority = Authority {
            invocation: "test".into(),
            installation: "installation".into(),
            kind,
            limits: InvocationLimits::of(kind, &Demands::default()),
            secrets: ["apiKey", "unbound"].map(str::to_owned).into(),
            permissions,
            egress: NetworkPolicy::deny_all(),
            installer_hosts: HashSet::new(),
        };
        let platform = FakePlatform::new();
        platform.bind("apiKey", "canary-0123456789");
        platform.bind("undeclared", "never");
        let egress = Egress::new(EgressConfig::default(), Arc::new(Names::default()));
        let deadline = Instant::now() + Duration::from_secs(30);
        Self {
            functions: HostFunctions::new(Fetch::new(egress, Tls::system().unwrap())),
            context: InvocationContext::new(authority, Arc::clone(&platform) as _, deadline),
            platform,
        }
    }

    async fn outcome(&self, path: &str, arguments: Value) -> Outcome {
        let method = METHODS.iter().find(|method| method.path == path).unwrap();
        let call = pipe::Call {
            id: 7,
            method: method.number,
            arguments_json: arguments.to_string(),
        };
        let answer = self.functions.call(&self.context, call).await;
        assert_eq!(answer.id, 7);
        answer.outcome.unwrap()
    }

    /// The value, with the body in it where there is one.
    async fn call(&self, path: &str, arguments: Value) -> Value {
        match self.outcome(path, arguments).await {
            Outcome::Value(value) => {
                let mut json: Value = serde_json::from_str(&value.json).unwrap();
                if let Some(body) = value.body {
                    json["body"] = body.into();
                }
                json
            }
            Outcome::Error(error) => panic!("host.{path}: {}: {}", error.code, error.message),
        }
    }

    async fn refused(&self, path: &str, arguments: Value) -> (String, String) {
        match self.outcome(path, arguments.clone()).await {
            Outcome::Error(error) => (error.code, error.message),
            Outcome::Value(value) => panic!("host.{path}({arguments}) gave {}", value.json),
        }
    }

    /// The arguments are wrong, the message says where, and nothing was asked.
    async fn bad(&self, path: &str, arguments: Value, part: &str) {
        let before = self.platform.calls().len();
        let shown = arguments.to_string().chars().take(200).collect::<String>();
        let (code, message) = self.refused(path, arguments).await;
        assert_eq!(code, "bad_request", "{shown}: {message}");
        assert!(message.starts_with(&format!("host.{path}: ")), "{message}");
        assert!(
            message.contains(part),
            "{part:?} is not in {message:?} of {shown}"
        );
        assert_eq!(self.platform.calls().len(), before);
    }
}

#[tokio::test]
async fn p5_secrets_that_are_declared_and_bound_and_no_others() {
    let plugin = Plugin::new();
    assert_eq!(
        plugin.call("settings.getSecret", json!(["apiKey"])).await,
        "canary-0123456789"
    );
    assert_eq!(
        plugin.context.secrets().mask("x canary-0123456789"),
        "x [masked:apiKey]",
        "E15"
    );
    assert_eq!(
        plugin
            .refused("settings.getSecret", json!(["unbound"]))
            .await
            .0,
        "not_found"
    );
    let before = plugin.platform.calls().len();
    let (code, message) = plugin
        .refused("settings.getSecret", json!(["undeclared"]))
        .await;
    assert_eq!(code, "denied");
    assert!(message.contains("plugin.json"), "{message}");
    assert_eq!(
        plugin.platform.calls().len(),
        before,
        "the platform was not even asked"
    );
    plugin
        .bad("settings.getSecret", json!([]), "`name` is missing")
        .await;
    plugin.bad("settings.getSecret", json!([5]), "`name`").await;
    plugin
        .bad("settings.getSecret", json!(["x".repeat(65)]), "65 bytes")
        .await;
    plugin
        .bad("settings.getSecret", json!(["apiKey", 1]), "more arguments")
        .await;
}

#[tokio::test]
async fn p4_workspace_files() {
    let plugin = Plugin::new();
    assert_eq!(
        plugin
            .call("workspace.write", json!(["a/b.txt", "wörter"]))
            .await,
        json!({"sizeBytes": 7})
    );
    assert_eq!(
        plugin
            .call(
                "workspace.write",
                json!(["a/b.txt", "/w==", {"encoding": "base64", "mode": "append"}])
            )
            .await["sizeBytes"],
        8
    );
    let file = plugin.call("workspace.read", json!(["a/b.txt"])).await;
    assert_eq!(
        file,
        json!({"body": "wörter\u{fffd}", "bodyEncoding": "utf8", "sizeBytes": 8, "modifiedAtMs": NOW_MS})
    );
    let part = plugin
        .call(
            "workspace.read",
            json!(["a/b.txt", {"encoding": "base64", "offset": 6, "length": 5}]),
        )
        .await;
    assert_eq!(
        (&part["body"], &part["bodyEncoding"]),
        (&json!("cv8="), &json!("base64"))
    );
    let taken = plugin
        .refused(
            "workspace.write",
            json!(["a/b.txt", "x", {"mode": "create"}]),
        )
        .await;
    assert_eq!(taken.0, "bad_request");
    let entry = json!({"path": "a/b.txt", "kind": "file", "sizeBytes": 8, "modifiedAtMs": NOW_MS});
    let directory = json!({"path": "a", "kind": "directory", "sizeBytes": 0});
    assert_eq!(
        plugin.call("workspace.list", json!([])).await,
        json!({"entries": [directory], "more": false})
    );
    assert_eq!(
        plugin
            .call("workspace.list", json!(["", {"recursive": true}]))
            .await["entries"],
        json!([directory, entry])
    );
    assert_eq!(
        plugin
            .call(
                "workspace.list",
                json!(["", {"recursive": true, "limit": 1}])
            )
            .await["more"],
        true
    );
    assert_eq!(plugin.call("workspace.stat", json!(["a"])).await, directory);
    let moved = plugin.call("workspace.move", json!(["a/b.txt", "c"])).await;
    assert_eq!(
        (&moved["path"], &moved["sizeBytes"]),
        (&json!("c"), &json!(8))
    );
    assert_eq!(plugin.call("workspace.remove", json!(["c"])).await, true);
    assert_eq!(
        plugin
            .call("workspace.remove", json!(["c", {"recursive": true}]))
            .await,
        false
    );
    assert_eq!(
        plugin.refused("workspace.read", json!(["c"])).await.0,
        "not_found"
    );
}

#[tokio::test]
async fn p4_workspace_paths_stay_inside_and_sizes_are_bounded() {
    let plugin = Plugin::new();
    for path in [
        "/etc/passwd",
        "../x",
        "a/../b",
        "./a",
        "a//b",
        "a/./b",
        "a\0b",
        "..",
        ".",
        &"x".repeat(4_097),
    ] {
        for (function, arguments) in [
            ("workspace.read", json!([path])),
            ("workspace.write", json!([path, "x"])),
            ("workspace.list", json!([path])),
            ("workspace.stat", json!([path])),
            ("workspace.remove", json!([path])),
            ("workspace.move", json!(["a", path])),
            ("workspace.move", json!([path, "a"])),
        ] {
            plugin.bad(function, arguments, "").await;
        }
    }
    plugin.bad("workspace.read", json!([""]), "`path`").await;
    plugin.bad("workspace.remove", json!([""]), "`path`").await;
    plugin
        .bad(
            "workspace.read",
            json!(["a", {"length": 5_242_881}]),
            "`length`",
        )
        .await;
    plugin
        .bad(
            "workspace.read",
            json!(["a", {"encoding": "hex"}]),
            "encoding",
        )
        .await;
    plugin
        .bad(
            "workspace.write",
            json!(["a", "x".repeat((5 << 20) + 1)]),
            "`content` has 5242881 bytes",
        )
        .await;
    plugin
        .bad(
            "workspace.write",
            json!(["a", "!", {"encoding": "base64"}]),
            "no base64",
        )
        .await;
    plugin
        .bad("workspace.list", json!(["", {"limit": 10_001}]), "`limit`")
        .await;
    plugin
        .bad("workspace.move", json!(["a"]), "`to` is missing")
        .await;
}

#[tokio::test]
async fn p24_decisions_are_within_what_was_asked() {
    let plugin = Plugin::new();
    for (question, answer) in [
        ("Is it?", "yes"),
        ("It is not!", "no"),
        ("Perhaps", "unknown"),
    ] {
        assert_eq!(
            plugin.call("decide.noul", json!([question])).await,
            json!({"answer": answer})
        );
    }
    assert_eq!(
        plugin
            .call("decide.noul", json!([{"question": "a?", "context": "c"}]))
            .await["reason"],
        "c"
    );
    let choose = json!([{"question": "q", "options": ["a", "b", "c"]}]);
    assert_eq!(
        plugin.call("decide.choose", choose.clone()).await,
        json!({"answer": "b", "index": 1, "reason": "the second is best"})
    );
    let score = json!([{"question": "q", "min": -1, "max": 2}]);
    assert_eq!(
        plugin.call("decide.score", score.clone()).await,
        json!({"score": 0.5})
    );
    plugin.bad("decide.noul", json!([""]), "`question`").await;
    plugin
        .bad(
            "decide.choose",
            json!([{"question": "q", "options": ["a"]}]),
            "`options` has 1 entries",
        )
        .await;
    plugin
        .bad(
            "decide.choose",
            json!([{"question": "q", "options": ["a", "b", "a"]}]),
            "`options[2]` is there twice",
        )
        .await;
    plugin
        .bad(
            "decide.score",
            json!([{"question": "q", "min": 2, "max": 2}]),
            "`min` must be less",
        )
        .await;
    plugin
        .bad("decide.score", json!([{"question": "q", "min": 0}]), "max")
        .await;
    plugin
        .platform
        .instead(75, Answered::DecideNoul(platform::Noul::default()));
    plugin.platform.instead(
        76,
        Answered::DecideChoose(platform::Chosen {
            index: 3,
            reason: None,
        }),
    );
    for wrong in [2.1, -1.1, f64::NAN, f64::INFINITY] {
        plugin.platform.instead(
            77,
            Answered::DecideScore(platform::Score {
                score: wrong,
                reason: None,
            }),
        );
        assert_eq!(
            plugin.refused("decide.score", score.clone()).await.0,
            "failed",
            "{wrong}"
        );
    }
    assert_eq!(
        plugin.refused("decide.noul", json!(["a?"])).await.0,
        "failed"
    );
    assert_eq!(plugin.refused("decide.choose", choose).await.0, "failed");
}

#[tokio::test]
async fn p4_p6_media_are_opaque_tokens() {
    let plugin = Plugin::new();
    let media = plugin.call("media.upload", json!([{"name": "a.ogg", "mediaType": "audio/ogg", "body": "AAEC", "bodyEncoding": "base64"}])).await;
    assert_eq!(
        media,
        json!({"token": "media-1", "name": "a.ogg", "mediaType": "audio/ogg", "sizeBytes": 3})
    );
    let to = json!({"mediaType": "image/png", "maxWidth": 640, "maxHeight": 480, "sampleRate": 44_100, "channels": 2, "bitRate": 64_000});
    let small = plugin.call("media.transcode", json!(["media-1", to])).await;
    assert_eq!(
        (&small["token"], &small["width"], &small["durationMs"]),
        (&json!("media-2"), &json!(640), &json!(1_500))
    );
    assert_eq!(plugin.call("media.info", json!(["media-2"])).await, small);
    assert_eq!(
        plugin.refused("media.info", json!(["media-9"])).await.0,
        "not_found"
    );
    let upload = |name: &str, kind: &str, body: &str| json!([{"name": name, "mediaType": kind, "body": body}]);
    plugin
        .bad("media.upload", upload("a/b", "a/b", "x"), "`name`")
        .await;
    plugin
        .bad("media.upload", upload("a", "audio", "x"), "`mediaType`")
        .await;
    plugin
        .bad("media.upload", upload("a", "a/b; c", "x"), "`mediaType`")
        .await;
    plugin
        .bad(
            "media.upload",
            upload("a", "a/b", &"x".repeat((8 << 20) + 1)),
            "`body`",
        )
        .await;
    plugin
        .bad("media.transcode", json!(["t"]), "`options` is missing")
        .await;
    plugin
        .bad(
            "media.transcode",
            json!(["t", {"mediaType": "a/b", "maxWidth": 0}]),
            "`maxWidth`",
        )
        .await;
    plugin
        .bad(
            "media.transcode",
            json!(["t", {"mediaType": "a/b", "channels": 9}]),
            "`channels`",
        )
        .await;
    plugin.bad("media.info", json!([""]), "`token`").await;
}

#[tokio::test]
async fn p4_ssh_commands() {
    let plugin = Plugin::new();
    let ran = plugin
        .call(
            "ssh.command",
            json!([{"command": "exit 3", "input": "text", "timeoutMs": 90_000}]),
        )
        .await;
    let expected = json!({"exitCode": 3, "signal": null, "stdout": "text", "stderr": "a\u{fffd}b", "stdoutCut": false, "stderrCut": true, "durationMs": 12});
    assert_eq!(ran, expected);
    assert_eq!(
        plugin.call("ssh.command", json!(["kill TERM"])).await["signal"],
        "TERM"
    );
    let Some(Asked::SshCommand(asked)) = plugin.platform.last() else {
        panic!("something else was asked");
    };
    assert_eq!(asked.timeout_ms, 60_000, "P21: the default");
    plugin
        .bad(
            "ssh.command",
            json!([{"command": "x", "timeoutMs": 90_001}]),
            "`timeoutMs`",
        )
        .await;
    plugin.bad("ssh.command", json!(["a\0b"]), "NUL").await;
    plugin.bad("ssh.command", json!([""]), "`command`").await;
    plugin
        .bad(
            "ssh.command",
            json!([{"command": "x", "input": "x".repeat((1 << 20) + 1)}]),
            "`input`",
        )
        .await;
}

#[tokio::test]
async fn p21_a_live_connection_takes_twenty_frames_a_call() {
    let plugin = Plugin::new();
    assert_eq!(
        plugin
            .call("connection.send", json!([["a", {"base64": "AAE="}]]))
            .await,
        json!({"frames": 2})
    );
    assert_eq!(
        plugin.call("connection.send", json!(["one"])).await,
        json!({"frames": 1})
    );
    use platform::frame::Frame;
    let frames: Vec<_> = plugin
        .platform
        .frames()
        .into_iter()
        .filter_map(|frame| frame.frame)
        .collect();
    assert_eq!(
        frames,
        [
            Frame::Text("a".into()),
            Frame::Binary(vec![0, 1]),
            Frame::Text("one".into())
        ]
    );
    plugin.call("connection.send", json!([vec!["x"; 20]])).await;
    plugin
        .bad("connection.send", json!([vec!["x"; 21]]), "21 entries")
        .await;
    plugin
        .bad("connection.send", json!([[]]), "0 entries")
        .await;
    plugin.bad("connection.send", json!([[5]]), "frames").await;
    plugin
        .bad("connection.send", json!([[{"base64": "!"}]]), "frames[0]")
        .await;
    plugin
        .bad(
            "connection.send",
            json!([["x".repeat(1 << 20), "y"]]),
            "1048577 bytes",
        )
        .await;
    plugin
        .platform
        .instead(95, Answered::ConnectionSend(platform::Sent { frames: 2 }));
    assert_eq!(
        plugin.refused("connection.send", json!(["one"])).await.0,
        "failed"
    );
}

/// Some arguments for every function.
fn some_arguments(path: &str) -> Value {
    match path {
        "settings.getSecret" => json!(["apiKey"]),
        "session.todos.set" => json!([[]]),
        "session.timers.set" => json!([{"name": "a", "atMs": 1}]),
        "agents.ask" | "agents.send" => json!(["agent-1", "text"]),
        "workspace.write" | "workspace.move" => json!(["a", "b"]),
        "decide.choose" => json!([{"question": "q", "options": ["a", "b"]}]),
        "decide.score" => json!([{"question": "q", "min": 0, "max": 1}]),
        "media.upload" => json!([{"name": "a", "mediaType": "a/b", "body": ""}]),
        "media.transcode" => json!(["media-1", {"mediaType": "a/b"}]),
        "session.messages"
        | "session.info"
        | "session.todos.list"
        | "session.timers.list"
        | "agents.list"
        | "models.list"
        | "workspace.list"
        | "workspace.stat" => json!([]),
        _ => json!(["text"]),
    }
}

fn platforms() -> impl Iterator<Item = &'static bulkhead_wire::methods::Method> {
    METHODS
        .iter()
        .filter(|method| method.carried_out == Where::Platform)
}

/// What the platform does not offer, or refuses, or gets wrong, is an error with its code, never nothing.
#[tokio::test]
async fn p4_every_function_hands_on_the_platforms_error() {
    use platform::{Error, error::Code};
    let codes = [
        (Code::Unavailable, "unavailable"),
        (Code::Denied, "denied"),
        (Code::NotFound, "not_found"),
        (Code::BadRequest, "bad_request"),
        (Code::Limit, "limit"),
        (Code::Failed, "failed"),
        (Code::Unspecified, "failed"),
    ];
    for method in platforms() {
        let plugin = Plugin::new();
        for (code, name) in codes {
            plugin.platform.instead(
                method.number,
                Answered::Error(Error::new(code, "x".repeat(600))),
            );
            let (code, message) = plugin
                .refused(method.path, some_arguments(method.path))
                .await;
            assert_eq!(
                (code.as_str(), message.len()),
                (name, 500),
                "{}",
                method.path
            );
        }
        plugin.platform.instead(
            method.number,
            Answered::ConnectionSend(platform::Sent { frames: 1 }),
        );
        if method.path != "connection.send" {
            let (code, message) = plugin
                .refused(method.path, some_arguments(method.path))
                .await;
            assert_eq!(code, "failed", "{}: {message}", method.path);
        }
    }
}

/// P8, P9: without its permission nothing of a function is done, and the message names what to declare.
#[tokio::test]
async fn p8_every_function_needs_its_permission() {
    let nothing = Plugin::with(HashSet::new());
    let mut free = Vec::new();
    for method in platforms() {
        let Some(permission) = permission_of(method.number) else {
            free.push(method.path);
            continue;
        };
        let (code, message) = nothing
            .refused(method.path, some_arguments(method.path))
            .await;
        assert_eq!(code, "denied", "{}", method.path);
        assert!(
            message.contains(permission.name()) && message.contains("plugin.json"),
            "{message}"
        );
        let just_this = Plugin::with([permission.name().to_owned()].into());
        let outcome = just_this
            .outcome(method.path, some_arguments(method.path))
            .await;
        let is_denied = matches!(outcome, Outcome::Error(error) if error.code == "denied");
        assert!(!is_denied, "{}", method.path);
    }
    assert_eq!(
        free,
        ["settings.getSecret", "session.sendError", "connection.send"]
    );
    assert!(nothing.platform.calls().is_empty());
}

#[tokio::test]
async fn d9_what_is_no_function_or_no_json_is_a_bad_request() {
    let plugin = Plugin::new();
    for number in [0, 1, 5, 10, 99, u32::MAX] {
        let call = pipe::Call {
            id: 1,
            method: number,
            arguments_json: "[]".into(),
        };
        let answer = plugin.functions.call(&plugin.context, call).await;
        let Some(Outcome::Error(error)) = answer.outcome else {
            panic!("{number} is a function");
        };
        assert_eq!(error.code, "bad_request");
    }
    for method in platforms().chain(METHODS.iter().filter(|method| method.path == "fetch")) {
        for arguments_json in ["", "{}", "[", "null", "[1e999]", &"[".repeat(100_000)] {
            let call = pipe::Call {
                id: 1,
                method: method.number,
                arguments_json: arguments_json.to_owned(),
            };
            let answer = plugin.functions.call(&plugin.context, call).await;
            let Some(Outcome::Error(error)) = answer.outcome else {
                panic!("{} took {arguments_json:.20}", method.path);
            };
            assert_eq!(
                error.code, "bad_request",
                "{}: {}",
                method.path, error.message
            );
        }
    }
}
