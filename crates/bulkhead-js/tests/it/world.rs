//! H6: the world that a plug's code finds.

use crate::Bench;

#[tokio::test(flavor = "multi_thread")]
async fn h6_a_plug_logs_in_its_own_name() {
    let said = Bench::new()
        .run("log('one', { a: [1, 'x'] }); log.warn('two'); console.log('%s is %d', 'three', 3); console.error(new Map([[1, { b: null }]]))")
        .await;
    let expected = [
        "one { a: [ 1, 'x' ] }",
        "[warn] two",
        "three is 3",
        "[error] Map(1) { 1 => { b: null } }",
    ];
    assert_eq!(said, expected.map(|line| format!("mine: {line}")));
}

/// Each line is an expression that has to be true.
async fn all_true(expressions: &str) {
    let checks: String = expressions
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| {
            let quoted = serde_json::to_string(line).unwrap();
            format!("try {{ const r = await ({line}); if (r !== true) log(`${{{quoted}}} is`, r) }} catch (e) {{ log({quoted}, e) }}\n")
        })
        .collect();
    let said = Bench::new().run(&checks).await;
    assert!(said.is_empty(), "{said:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_text_encoding_and_buffers() {
    all_true(
        r#"
        new TextDecoder().decode(new TextEncoder().encode('ä𝄞')) === 'ä𝄞'
        (() => { const d = new TextDecoder(); const b = new TextEncoder().encode('ä𝄞'); return [...b].map((x) => d.decode(Uint8Array.of(x), { stream: true })).join('') + d.decode() })() === 'ä𝄞'
        (() => { try { new TextDecoder('utf-8', { fatal: true }).decode(Uint8Array.of(255)) } catch (e) { return e instanceof TypeError } })()
        new TextDecoder().decode(Uint8Array.of(0xef, 0xbb, 0xbf, 65)) === 'A'
        Buffer.from('héllo').toString('base64') === 'aMOpbGxv'
        Buffer.from('aMOpbGxv', 'base64').toString() === 'héllo'
        Buffer.from('-_8', 'base64url').toString('hex') === 'fbff'
        Buffer.from('00ff7f', 'hex').toString('latin1') === '\x00\xff\x7f'
        Buffer.concat([Buffer.from('a'), Buffer.from('b')]).equals(Buffer.from('ab'))
        Buffer.from('ab').subarray(1) instanceof Buffer
        Buffer.byteLength('ä') === 2 && Buffer.from('ä').byteLength === 2
        Buffer.from('xyz').indexOf('z') === 2 && Buffer.alloc(3, 'ab').toString() === 'aba'
        Buffer.from([1, 2, 3, 4]).readUInt32BE(0) === 0x01020304
        JSON.stringify(Buffer.from('a')) === '{"type":"Buffer","data":[97]}'
        atob(btoa('\xff\x00')) === '\xff\x00'
        "#,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_urls() {
    all_true(
        r#"
        new URL('../b?x=1#h', 'http://u:p@h:81/a/c').href === 'http://u:p@h:81/b?x=1#h'
        URL.canParse('nonsense') === false && URL.parse('nonsense') === null
        (() => { try { new URL('nonsense') } catch (e) { return e.code === 'ERR_INVALID_URL' } })()
        (() => { const u = new URL('http://a/'); u.searchParams.append('q', 'ä b&'); u.hash = 'x'; u.port = '8080'; return u.href })() === 'http://a:8080/?q=%C3%A4+b%26#x'
        (() => { const u = new URL('http://a/?b=1'); u.search = '?c=2'; return u.searchParams.get('c') })() === '2'
        new URLSearchParams({ a: '1', b: '2' }).toString() === 'a=1&b=2'
        [...new URLSearchParams('a=1&a=2&b')].length === 3 && new URLSearchParams('a=1&a=2').getAll('a').join() === '1,2'
        JSON.stringify({ u: new URL('http://a') }) === '{"u":"http://a/"}'
        "#,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_timers_and_abort_signals() {
    all_true(
        r#"
        new Promise((done) => setTimeout(done, 5, true))
        new Promise((done) => { let n = 0; const t = setInterval(() => { if (++n === 3) { clearInterval(t); done(n === 3) } }, 1) })
        new Promise((done) => { const t = setTimeout(() => done(false), 1); clearTimeout(t); setTimeout(() => done(true), 20) })
        new Promise((done) => setImmediate(() => done(true)))
        new Promise((done) => queueMicrotask(() => done(true)))
        (async () => { const order = []; setTimeout(() => order.push(2), 20); setTimeout(() => order.push(1), 5); await ctx.sleep(60); return order.join() === '1,2' })()
        (() => { const c = new AbortController(); let said; c.signal.addEventListener('abort', () => { said = c.signal.reason.name }); c.abort(); return said === 'AbortError' && c.signal.aborted })()
        ctx.sleep(60000, { signal: AbortSignal.timeout(10) }).catch((e) => e.name === 'TimeoutError')
        AbortSignal.any([AbortSignal.abort(7)]).reason === 7
        performance.now() > 0
        "#,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_cloning_and_the_little_of_crypto() {
    all_true(
        r#"
        (() => { const a = { d: new Date(5), m: new Map([[1, new Set([2])]]), b: Buffer.from('x'), n: null }; a.self = a; const c = structuredClone(a); return c !== a && c.self === c && c.d.getTime() === 5 && c.m.get(1).has(2) && c.b[0] === 120 && c.n === null })()
        (() => { try { structuredClone(() => {}) } catch (e) { return e.name === 'DataCloneError' } })()
        /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID())
        crypto.getRandomValues(new Uint8Array(64)).some((byte) => byte !== 0)
        new Intl.NumberFormat('de-DE').format(1234.5) === '1.234,5'
        typeof native === 'undefined' && typeof bulkhead === 'undefined' && typeof start === 'undefined'
        typeof process === 'undefined' && typeof require === 'undefined'
        "#,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_modules_of_typescript_and_json_are_found_beside_the_plug() {
    let mut bench = Bench::new();
    bench.file("helper.ts", "export interface Greeting { words: string }\nexport const greet = (name: string): Greeting => ({ words: `hello ${name}` })");
    bench.file("names.json", r#"["Ada"]"#);
    let plug = "import { greet, type Greeting } from './helper.ts';\nimport names from './names.json' with { type: 'json' };\nexport default { async onSession(ctx) { const g: Greeting = greet(names[0]); ctx.log(g.words, (await import('./helper.ts')).greet('again').words) } }";
    let mut plug = bench.begin("plug.ts", plug).await.unwrap();
    bench.end(&mut *plug).await.unwrap();
    assert_eq!(bench.trial.said(), ["mine: hello Ada hello again"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_two_plugs_share_nothing() {
    let mut bench = Bench::new();
    let mut one = bench
        .begin(
            "one.js",
            "globalThis.shared = 1; Array.prototype.mine = 1; export default () => {}",
        )
        .await
        .unwrap();
    let mut two = bench
        .begin(
            "two.js",
            "export default (ctx) => ctx.log(typeof shared, [].mine)",
        )
        .await
        .unwrap();
    bench.end(&mut *two).await.unwrap();
    bench.end(&mut *one).await.unwrap();
    assert_eq!(bench.trial.said(), ["mine: undefined undefined"]);
}
