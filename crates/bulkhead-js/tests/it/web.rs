//! H6: `fetch`, from the runner.

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, StatusCode, header},
    response::Redirect,
    routing::{any, get},
};

use crate::Bench;

/// A server on loopback; its address.
async fn serve(tasks: &mut tokio::task::JoinSet<()>) -> String {
    let echo = |headers: HeaderMap, method: axum::http::Method, body: Bytes| async move {
        let seen = |name: &str| {
            headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or("-")
                .to_owned()
        };
        let words = [
            method.to_string(),
            seen("content-type"),
            seen("x-mine"),
            seen("authorization"),
            body.len().to_string(),
        ]
        .join(" ");
        (
            [
                (header::SET_COOKIE, "a=1"),
                (header::CONTENT_TYPE, "text/plain"),
            ],
            words,
        )
    };
    let app = Router::new()
        .route("/echo", any(echo))
        .route(
            "/json",
            get(|| async { axum::Json(serde_json::json!({"ä": [1]})) }),
        )
        .route("/bytes", get(|| async { (0..=255).collect::<Vec<u8>>() }))
        .route("/missing", get(|| async { (StatusCode::NOT_FOUND, "no") }))
        .route("/hop", any(|| async { Redirect::to("/echo") }))
        .route("/hop307", any(|| async { Redirect::temporary("/echo") }))
        .route("/round", get(|| async { Redirect::to("/round") }))
        .route(
            "/slow",
            get(|| async { std::future::pending::<()>().await }),
        );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move { axum::serve(listener, app).await.unwrap() });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_fetch_gets_and_posts_text_json_and_bytes() {
    let mut tasks = tokio::task::JoinSet::new();
    let base = serve(&mut tasks).await;
    let body = format!("const base = {base:?};") + "
        const text = async (path, init) => (await fetch(base + path, init)).text();
        log(await text('/echo', { headers: { 'X-Mine': 'yes' } }));
        log(await text('/echo', { method: 'POST', body: 'ä' }));
        log(await text('/echo', { method: 'post', body: new URLSearchParams({ a: '1' }) }));
        log(await text('/echo', { method: 'PUT', body: new Uint8Array(300000), headers: [['content-type', 'x/y']] }));
        const json = await fetch(new URL('/json', base)); log(await json.json(), json.ok, json.status, json.headers.get('Content-Type'));
        const bytes = await fetch(base + '/bytes'); log((await bytes.bytes()).length, (await bytes.text().catch((e) => e.message)));
        const missing = await fetch(base + '/missing'); log(missing.ok, missing.status, missing.statusText, await missing.text());
        log((await fetch(base + '/echo')).headers.getSetCookie());
        const hop = await fetch(base + '/hop', { method: 'POST', body: 'x' }); log(hop.redirected, hop.url === base + '/echo', await hop.text());
        log(await text('/hop307', { method: 'POST', body: 'x', headers: { authorization: 'secret' } }));
        log((await fetch(base + '/hop', { redirect: 'manual' })).status);
        log((await fetch(base + '/round').catch((e) => e)).cause.message);
        const c = new AbortController(); setTimeout(() => c.abort(), 30); log((await fetch(base + '/slow', { signal: c.signal }).catch((e) => e)).name);
        log((await fetch('http://127.0.0.1:1/').catch((e) => e)).cause.code);
        log((await fetch('ftp://h/').catch((e) => e)).cause.message);
        let n = 0; for await (const chunk of (await fetch(base + '/bytes')).body) n += chunk.length; log(n);";
    let said = Bench::new().run(&body).await;
    let expected = [
        "GET - yes - 0",
        "POST text/plain;charset=UTF-8 - - 2",
        "POST application/x-www-form-urlencoded;charset=UTF-8 - - 3",
        "PUT x/y - - 300000",
        "{ 'ä': [ 1 ] } true 200 application/json",
        "256 Body is unusable: Body has already been read",
        "false 404 Not Found no",
        "[ 'a=1' ]",
        "true true GET - - - 0",
        "POST text/plain;charset=UTF-8 - secret 1",
        "303",
        "more than 20 redirects",
        "AbortError",
        "ECONNREFUSED",
        "fetch knows http and https, not ftp",
        "256",
    ];
    assert_eq!(said, expected.map(|line| format!("mine: {line}")));
}
