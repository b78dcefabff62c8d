//! H1: processes and connections of the host, from a plug.

use crate::Bench;

#[tokio::test(flavor = "multi_thread")]
async fn h1_commands_run_to_their_end() {
    let said = Bench::new()
        .run("const { stdout, code } = await host.run(['/bin/sh', '-c', 'echo $A; pwd; cat'], { env: { A: 'ä' }, cwd: '/usr', input: 'in' });
              log(JSON.stringify(stdout), code);
              log((await host.shell('exit 3', { check: false })).code);
              log((await host.shell('kill -9 $$', { check: false })).signal);
              const e = await host.shell('echo why >&2; exit 4').catch((e) => e); log(e.name, e.message, e.code);
              const m = await host.run('no-such-program').catch((e) => e); log(m.code);
              log(typeof host.describe());")
        .await;
    let expected = [
        r#""ä\n/usr\nin" 0"#,
        "3",
        "SIGKILL",
        "CommandError /bin/sh -c echo why >&2; exit 4 exited with code 4: why 4",
        "ENOENT",
        "string",
    ];
    assert_eq!(said, expected.map(|line| format!("mine: {line}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn h1_streams_signals_and_terminals() {
    let said = Bench::new()
        .run("const cat = await host.spawn('cat', [], { stdin: 'pipe' });
              await cat.stdin.write('one\\n'); await cat.stdin.write(Buffer.from('two')); await cat.stdin.end();
              for await (const line of cat.stdout.lines()) log(line);
              log(await cat.wait(), cat.exitCode);
              const sleep = await host.spawn('/bin/sh', ['-c', 'sleep 1000 & wait'], {});
              await sleep.kill('SIGTERM', { group: true }); log(await sleep.exited);
              const tty = await host.spawn(['/bin/sh', '-c', 'stty size'], { terminal: { rows: 10, columns: 20 } });
              log((await tty.stdout.text()).trim());
              const events = await host.spawn('echo', ['x']); const chunks = [];
              await new Promise((done) => { events.stdout.on('data', (c) => chunks.push(c)); events.stdout.on('end', done) });
              log(Buffer.concat(chunks).toString().trim());
              await new Promise((done) => events.on('exit', (code) => done(log(code))));
              const c = new AbortController(); const p = await host.spawn('sleep', ['1000'], { signal: c.signal }); c.abort(); log((await p.wait()).signal)")
        .await;
    let expected = [
        "one",
        "two",
        "{ code: 0, signal: null } 0",
        "{ code: null, signal: 'SIGTERM' }",
        "10 20",
        "x",
        "0",
        "SIGKILL",
    ];
    assert_eq!(said, expected.map(|line| format!("mine: {line}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn h1_a_large_output_arrives_whole_and_a_slow_reader_holds_it_up() {
    let said = Bench::new()
        .run("const p = await host.spawn('/bin/sh', ['-c', 'head -c 20000000 /dev/zero']); let n = 0;
              for await (const c of p.stdout) n += c.length; log(n, (await p.wait()).code);
              const big = await host.shell('head -c 3000000 /dev/zero', { maxBuffer: 1000000 }).catch((e) => e); log(big.message)")
        .await;
    assert_eq!(
        said,
        [
            "mine: 20000000 0",
            "mine: the command printed more than 1000000 bytes"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn h1_connections_both_ways() {
    let said = Bench::new()
        .run("const server = await host.listen({ port: 0 });
              const serving = (async () => { const c = await server.accept(); for await (const data of c) { await c.write('got ' + data); break } await c.end() })();
              const client = await host.connect({ port: server.port }); await client.write('hello'); log(await client.readable.text());
              await serving; server.close(); log(await server.accept());
              const refused = await host.connect(server.port).catch((e) => e); log(refused.code);
              log((await host.connect({ host: 'example.org', port: 1 }).catch((e) => e)).message)")
        .await;
    assert_eq!(said[0], "mine: got hello");
    assert_eq!(said[1], "mine: null");
    assert_eq!(said[2], "mine: ECONNREFUSED");
    assert!(said[3].contains("is no address"), "{said:?}");
}

/// H2, H3: a plug that does nothing on its host connects nothing, neither at the start nor at the end.
#[tokio::test(flavor = "multi_thread")]
async fn h3_a_plug_that_does_nothing_there_connects_nothing() {
    let mut bench = Bench::new();
    let source = "export default (ctx) => { ctx.log(ctx.host.describe().length > 0, typeof ctx.host.fs.promises.readFile); return () => ctx.host.fs }";
    let mut plug = bench.begin("plug.js", source).await.unwrap();
    bench.end(&mut *plug).await.unwrap();
    assert!(!bench.host.is_connected());
    assert_eq!(bench.trial.said(), ["mine: true function"]);
}

/// A large file goes through a plug in pieces: the process does not grow by it.
#[tokio::test(flavor = "multi_thread")]
async fn h9_throughput_of_streams_needs_no_memory() {
    let mut bench = Bench::new();
    let memory = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM:"))
            .unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    bench.run("fs.writeFileSync('warm', 'x'); for await (const c of fs.createReadStream('warm')) log(c.length)").await;
    let before = memory();
    let mut bench = Bench::new();
    let said = bench
        .run("const piece = Buffer.alloc(1 << 20, 7); const out = fs.createWriteStream('big'); for (let i = 0; i < 256; i++) await out.write(piece); await out.end();
              let n = 0; for await (const c of fs.createReadStream('big', { highWaterMark: 1 << 18 })) n += c.length; log(n)")
        .await;
    assert_eq!(said, ["mine: 268435456"]);
    let grown = memory().saturating_sub(before);
    assert!(grown < 160 << 10, "{grown} KiB for 256 MiB");
}
