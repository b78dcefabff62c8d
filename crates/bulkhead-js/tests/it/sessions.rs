//! H4, H5: whole sessions with script plugs, in processes of `bulkhead-js` as `bulkhead` starts them.

use std::{collections::BTreeMap, time::Duration};

use bulkhead_model::{
    Work,
    session::{HostPlug, LocalConfig, PlugConfig, ScriptConfig},
};
use bulkhead_session::{
    Launch, SessionProcess,
    wire::{
        FromSession, Incoming, Machine, Outgoing, PromptSource, Report, SessionDelivery,
        SessionOrder, ToSession,
    },
};

/// What a session's parent got to see.
struct Seen {
    log: Vec<String>,
    /// None where the process died without one.
    report: Option<Report>,
}

impl Seen {
    /// The lines that the plugs said.
    fn said(&self) -> Vec<&str> {
        let ours = |line: &&str| line.contains(".ts: ") || line.contains(".js: ");
        self.log.iter().map(String::as_str).filter(ours).collect()
    }

    fn failure(&self) -> &str {
        &self
            .report
            .as_ref()
            .unwrap()
            .failure
            .as_ref()
            .unwrap()
            .message
    }
}

/// Carries out a session on this machine, whose plugs are these files, and whose work is a shell command.
async fn session(plugs: &[(&str, &str)], run: &str) -> Seen {
    let dir = tempfile::tempdir().unwrap();
    for (name, source) in plugs {
        std::fs::write(dir.path().join(name), source).unwrap();
    }
    let own = dir.path().join("own");
    std::fs::create_dir(&own).unwrap();
    let script = |name: &str| {
        PlugConfig::Script(ScriptConfig {
            file: name.into(),
            name: None,
            config: serde_json::Value::Null,
        })
    };
    let local = PlugConfig::Host(HostPlug::Local(LocalConfig::default()));
    let order = SessionOrder {
        id: "s1".into(),
        name: None,
        dir: own,
        base: dir.path().to_owned(),
        work: Work::Command { run: run.into() },
        plugs: [local]
            .into_iter()
            .chain(plugs.iter().map(|(name, _)| script(name)))
            .collect(),
        idle_ms: None,
        timeout_ms: Some(120_000),
        max_turns: None,
        max_cost_usd_milli: None,
        local_env: BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())]),
        ssh_env: BTreeMap::new(),
        prompts: PromptSource::None,
        resume: None,
    };
    let delivery = SessionDelivery {
        order,
        secrets: BTreeMap::new(),
        program: None,
        machine: Machine::new(dir.path().join("sandbox")),
    };
    carry_out(delivery).await
}

async fn carry_out(delivery: SessionDelivery) -> Seen {
    let launch = Launch {
        program: env!("CARGO_BIN_EXE_bulkhead-js").into(),
        args: vec!["session-worker".into()],
    };
    let (mut process, socket) = SessionProcess::spawn(&launch).unwrap();
    let (reader, writer) = socket.into_split();
    let mut outgoing = Outgoing::<_, ToSession>::new(writer);
    outgoing
        .send(ToSession::Session(Box::new(delivery)))
        .await
        .unwrap();
    let mut incoming = Incoming::<_, FromSession>::new(reader);
    let mut seen = Seen {
        log: vec![],
        report: None,
    };
    let listening = async {
        while let Ok(Some(message)) = incoming.next().await {
            match message {
                FromSession::Log { data, .. } => {
                    let text = String::from_utf8_lossy(&data).into_owned();
                    seen.log.extend(text.lines().map(str::to_owned));
                }
                FromSession::Report(report) => seen.report = Some(*report),
                _ => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(100), listening)
        .await
        .unwrap();
    drop(outgoing);
    process.wait().await.unwrap();
    seen
}

const GOOD: &str = "export default (ctx: any) => { ctx.agent.env.FROM = ctx.plug.name; return () => ctx.log('down') }";

#[tokio::test(flavor = "multi_thread")]
async fn h4_plugs_run_in_order_and_tear_down_in_reverse() {
    let second = "export default async (ctx) => { ctx.log(ctx.agent.env.FROM, (await ctx.host.shell('echo here')).stdout.trim()); return (ended) => ctx.log(ended.kind, ended.code) }";
    let seen = session(&[("a.ts", GOOD), ("b.js", second)], "echo agent $FROM").await;
    assert_eq!(seen.report.as_ref().unwrap().failure, None);
    assert_eq!(
        seen.said(),
        ["b.js: a.ts here", "b.js: finished 0", "a.ts: down"],
        "{:#?}",
        seen.log
    );
    assert!(
        seen.log.contains(&"agent a.ts".to_owned()),
        "{:#?}",
        seen.log
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_a_plug_that_throws_is_named_and_those_before_it_are_torn_down() {
    let bad = "type A = string;\nexport default (ctx: any) => {\n  ctx.log('begun');\n  throw new Error('no good')\n}";
    let seen = session(
        &[("a.ts", GOOD), ("bad.ts", bad), ("c.ts", GOOD)],
        "echo never",
    )
    .await;
    assert!(
        seen.failure().contains("bad.ts")
            && seen.failure().contains("no good")
            && seen.failure().contains("bad.ts:4:9"),
        "{}",
        seen.failure()
    );
    assert_eq!(
        seen.said(),
        ["bad.ts: begun", "a.ts: down"],
        "{:#?}",
        seen.log
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_a_plug_that_hangs_is_named_and_torn_down() {
    let bad = "export default { timeouts: { onSession: 500 }, onSession(ctx) { ctx.defer(() => ctx.log('mine too'))\n for (;;) {} } }";
    let seen = session(&[("a.ts", GOOD), ("bad.js", bad)], "echo never").await;
    assert!(
        seen.failure()
            .contains("onSession took longer than its limit of 500ms; it was at"),
        "{}",
        seen.failure()
    );
    assert!(seen.failure().contains("bad.js:2:"), "{}", seen.failure());
    assert_eq!(
        seen.said(),
        ["bad.js: mine too", "a.ts: down"],
        "{:#?}",
        seen.log
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_a_teardown_that_fails_stops_no_other() {
    let bad = "export default (ctx) => () => {\n  throw new Error('stuck') }";
    let seen = session(&[("a.ts", GOOD), ("bad.js", bad), ("c.ts", GOOD)], "true").await;
    assert_eq!(
        seen.said()
            .iter()
            .filter(|line| line.ends_with("down"))
            .count(),
        2,
        "{:#?}",
        seen.log
    );
    assert!(
        seen.log.iter().any(|line| line.contains("bad.js")
            && line.contains("stuck")
            && line.contains("bad.js:2:9")),
        "{:#?}",
        seen.log
    );
}

/// V8 itself gives up where a string is split into more pieces than an array can have: no limit is asked before.
#[tokio::test(flavor = "multi_thread")]
async fn h5_a_plug_that_kills_its_process_ends_its_session_only_and_leaves_nothing() {
    let marker = format!("{}.5", 3_000_000 + std::process::id());
    let bad = format!(
        "export default async (ctx) => {{ await ctx.host.spawn('sleep', ['{marker}']); ctx.log('begun'); await ctx.sleep(100); 'a'.repeat(2 ** 28).split('') }}"
    );
    let other = "export default async (ctx) => { await ctx.sleep(3000); ctx.log('well') }";
    let bad_plugs = [("bad.js", bad.as_str())];
    let good_plugs = [("other.js", other)];
    let (dead, well) = tokio::join!(session(&bad_plugs, "true"), session(&good_plugs, "true"));
    assert!(dead.report.is_none(), "it lived: {:#?}", dead.log);
    assert!(dead.said().contains(&"bad.js: begun"), "{:#?}", dead.log);
    assert_eq!(well.report.unwrap().failure, None);
    assert_eq!(
        well.log
            .iter()
            .filter(|line| line.ends_with("well"))
            .count(),
        1
    );
    // What the dead session had started on this machine goes with it.
    for _ in 0..200 {
        if !is_running(&marker) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("its process is still there");
}

fn is_running(argument: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.into_iter().any(|process| {
        let arguments = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        arguments
            .split(|byte| *byte == 0)
            .any(|one| one == argument.as_bytes())
    })
}
