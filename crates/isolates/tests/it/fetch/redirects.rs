//! N21: every hop is decided anew, and costs a permit.

use bulkhead_isolates::call_error::Code;
use bulkhead_test_isolates::net::{Asked, Names, Server, Step};
use serde_json::json;

use super::World;

/// Redirects `/to?<location>` there, `/count/N` to `/count/N+1`, `/loop` to itself; with the status that `/307…` says.
fn answers(asked: &Asked) -> Vec<Step> {
    let path = asked.line().split(' ').nth(1).unwrap().to_owned();
    let (status, rest) = match path.get(1..4).and_then(|digits| digits.parse::<u16>().ok()) {
        Some(status) => (status, path[4..].to_owned()),
        None => (302, path),
    };
    let next = match rest.strip_prefix("/count/") {
        Some(n) => Some(format!("/count/{}", n.parse::<u32>().unwrap() + 1)),
        None if rest == "/loop" => Some("/loop#again".to_owned()),
        None => rest.strip_prefix("/to?").map(str::to_owned),
    };
    match next {
        Some(next) => Step::response(
            &format!("{status} Moved"),
            &format!("location: {next}\r\nset-cookie: s=1\r\n"),
            b"",
        ),
        None => Step::response("200 OK", "", b"arrived"),
    }
}

async fn world() -> (Server, World, String) {
    let server = Server::start(answers).await;
    let port = server.port();
    let rules = [format!("good.test:{port}"), format!("other.test:{port}")];
    let rules: Vec<_> = rules.iter().map(String::as_str).collect();
    let hosts = ["good.test", "other.test"];
    let world = World::new(
        Names::loopback(&["good.test", "other.test", "evil.test"]),
        &hosts,
        &rules,
    );
    (server, world, format!("http://good.test:{port}"))
}

#[tokio::test]
async fn n21_redirects_to_what_is_not_declared_are_refused_at_that_hop() {
    let (server, world, origin) = world().await;
    let port = server.port();
    let bad = [
        format!("http://evil.test:{port}/"),
        format!("//evil.test:{port}/"),
        format!("http://127.0.0.1:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://user@good.test:{port}/"),
        "http://good.test/".to_owned(),
        "ftp://good.test/".to_owned(),
        "file:///etc/passwd".to_owned(),
        format!("http://good.test:{}/", port.wrapping_add(1).max(1)),
        "\\\\evil.test/".to_owned(),
    ];
    for (index, location) in bad.iter().enumerate() {
        let (code, message) = world.refused(&format!("{origin}/to?{location}")).await;
        assert_eq!(code, Code::Denied, "{location}: {message}");
        assert_eq!(
            world.permits_asked(),
            index + 1,
            "the hop that is refused costs nothing"
        );
    }
    assert_eq!(server.asked().len(), bad.len());
    assert_eq!(
        world
            .names
            .asked()
            .iter()
            .filter(|name| *name == "evil.test")
            .count(),
        0
    );
}

#[tokio::test]
async fn n21_each_hop_costs_one_permit_and_there_are_at_most_twenty() {
    let (server, world, origin) = world().await;
    let response = world.get(&format!("{origin}/to?/to?/end")).await.unwrap();
    assert_eq!(
        (&response["body"], &response["redirected"]),
        (&"arrived".into(), &true.into())
    );
    assert_eq!(response["url"], format!("{origin}/end"));
    assert_eq!(world.permits_asked(), 3);
    assert_eq!(server.asked().len(), 3);
    let (code, message) = world.refused(&format!("{origin}/count/0")).await;
    assert_eq!(code, Code::Denied, "{message}");
    assert_eq!(server.asked().len(), 3 + 21);
    let (code, message) = world.refused(&format!("{origin}/loop")).await;
    assert_eq!(code, Code::Denied, "{message}");
    assert!(message.contains("already visited"), "{message}");
}

#[tokio::test]
async fn n21_no_credential_and_no_cookie_goes_to_another_origin() {
    let (server, world, origin) = world().await;
    let port = server.port();
    let init = json!({ "headers": { "Authorization": "secret", "X-Api-Key": "k", "Cookie": "a=b", "Accept": "text/x" } });
    let other = format!("{origin}/to?http://other.test:{port}/end");
    world.fetch(json!([other, init])).await.unwrap();
    let asked = server.asked();
    assert_eq!(asked[0].header("authorization"), Some("secret"));
    for name in ["authorization", "x-api-key", "cookie"] {
        assert_eq!(asked[1].header(name), None, "{name}");
    }
    assert_eq!(asked[1].header("accept"), Some("text/x"));
    assert_eq!(
        asked[1].header("host"),
        Some(format!("other.test:{port}").as_str())
    );
    world
        .fetch(json!([format!("{origin}/to?/end"), init]))
        .await
        .unwrap();
    let asked = server.asked();
    assert_eq!(
        asked[3].header("authorization"),
        Some("secret"),
        "the same origin"
    );
    assert_eq!(
        asked[3].header("cookie"),
        Some("a=b"),
        "and no cookie that a server set"
    );
}

#[tokio::test]
async fn p4_the_method_and_the_body_after_a_redirect() {
    let (server, world, origin) = world().await;
    for (status, method, becomes) in [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"),
        (307, "POST", "POST"),
        (308, "PUT", "PUT"),
        (301, "PUT", "PUT"),
    ] {
        let before = server.asked().len();
        let mut init = json!({ "method": method });
        if method != "HEAD" {
            init["body"] = "text".into();
        }
        world
            .fetch(json!([format!("{origin}/{status}/to?/end"), init]))
            .await
            .unwrap();
        let second = &server.asked()[before + 1];
        assert_eq!(
            second.line(),
            format!("{becomes} /end"),
            "{status} {method}"
        );
        let has_body = becomes == "POST" || becomes == "PUT";
        assert_eq!(
            second.body,
            if has_body { b"text".to_vec() } else { vec![] },
            "{status}"
        );
        assert_eq!(
            second.header("content-type").is_some(),
            has_body,
            "{status}"
        );
    }
}

#[tokio::test]
async fn p4_redirect_manual_and_error() {
    let (server, world, origin) = world().await;
    let url = format!("{origin}/to?http://evil.test/");
    let response = world
        .fetch(json!([url, { "redirect": "manual" }]))
        .await
        .unwrap();
    assert_eq!(response["status"], 302);
    assert_eq!(response["headers"]["location"], "http://evil.test/");
    assert_eq!(response["setCookie"], json!(["s=1"]));
    let error = world
        .fetch(json!([url, { "redirect": "error" }]))
        .await
        .unwrap_err();
    assert_eq!(error.code, Code::Failed);
    assert_eq!(server.asked().len(), 2);
}
