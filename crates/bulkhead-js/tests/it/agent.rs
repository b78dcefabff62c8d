//! H4, H7: what a plug makes of the agent, and what it is told of the session.

use serde_json::json;

use crate::Bench;

#[tokio::test(flavor = "multi_thread")]
async fn h7_the_agent_gets_what_the_plug_puts_there() {
    let mut bench = Bench::new();
    bench.config = json!({"name": "ä", "list": [1]});
    bench.trial.ctx.agent.argv = vec!["agent".into(), "{prompt}".into()];
    bench.trial.ctx.agent.env.insert("OLD".into(), "1".into());
    bench.trial.ctx.agent.env.insert("GONE".into(), "1".into());
    let source = "export default (ctx) => {
        ctx.log(ctx.config, ctx.session.id, ctx.session.resumed, ctx.plug.name, ctx.agent.env.OLD)
        ctx.agent.env.NEW = 2; ctx.agent.env['WITH=EQUALS'] = 'x'; delete ctx.agent.env.GONE
        ctx.agent.cwd = '/work'; ctx.agent.argv.push('--fast')
        ctx.agent.mcp.push({ type: 'http', name: 'm', url: 'http://127.0.0.1:1/', headers: {} })
    }";
    let mut plug = bench.begin("plug.js", source).await.unwrap();
    bench.end(&mut *plug).await.unwrap();
    let agent = &bench.trial.ctx.agent;
    let env: Vec<_> = agent
        .env
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(env, ["NEW=2", "OLD=1", "WITH=EQUALS=x"]);
    assert_eq!(agent.cwd.as_deref(), Some("/work"));
    assert_eq!(agent.argv, ["agent", "{prompt}", "--fast"]);
    assert_eq!(agent.mcp.len(), 1);
    assert_eq!(
        bench.trial.said(),
        ["mine: { list: [ 1 ], name: 'ä' } s-1 false mine 1"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_the_teardown_is_told_how_the_session_ended() {
    let mut bench = Bench::new();
    let mut plug = bench
        .begin(
            "plug.js",
            "export default (ctx) => (ended) => ctx.log(ended)",
        )
        .await
        .unwrap();
    bench.end(&mut *plug).await.unwrap();
    assert_eq!(bench.trial.said(), ["mine: { kind: 'idle' }"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_the_signal_tells_a_plug_that_waits() {
    let mut bench = Bench::new();
    let source = "export default { async onSession(ctx) {
        setTimeout(() => ctx.log('waiting'), 0)
        await ctx.sleep(60000).catch((e) => ctx.log(e.name, ctx.signal.reason.message))
    } }";
    let mut plug = bench.load("plug.js", source).await.unwrap();
    let signal = bench.signal.clone();
    let cancel = async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        signal.cancel();
    };
    let (begun, ()) = tokio::join!(plug.on_session(&mut bench.trial.ctx), cancel);
    begun.unwrap();
    bench.end(&mut *plug).await.unwrap();
    assert_eq!(
        bench.trial.said(),
        ["mine: waiting", "mine: AbortError the session is to end"]
    );
}

/// What a plug left going (a timer, a server) lives as long as the session.
#[tokio::test(flavor = "multi_thread")]
async fn h6_a_plug_lives_between_its_handlers() {
    let mut bench = Bench::new();
    let source = "let n = 0; export default (ctx) => { setInterval(() => n++, 5); return () => ctx.log(n > 3) }";
    let mut plug = bench.begin("plug.js", source).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    bench.end(&mut *plug).await.unwrap();
    assert_eq!(bench.trial.said(), ["mine: true"]);
}
