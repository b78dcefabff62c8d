//! N rows: who may be reached.

use std::{process::Command, time::Duration};

use bulkhead_isolates::call_error::Code;
use bulkhead_test_isolates::net::{Names, Server, Step};
use serde_json::json;

use super::World;

/// `good.com` and what else a test declares; nobody is there, and nobody is asked.
fn declared(rules: &[&str]) -> World {
    World::new(Names::default(), &[], rules)
}

async fn denied(world: &World, url: &str) -> String {
    let (code, message) = world.refused(url).await;
    assert_eq!(code, Code::Denied, "{url}: {message}");
    assert!(world.names.asked().is_empty(), "{url}: a name was resolved");
    assert_eq!(world.permits_asked(), 0, "{url}: a permit was asked");
    message
}

async fn bad(world: &World, url: &str) {
    let (code, message) = world.refused(url).await;
    assert_eq!(code, Code::BadRequest, "{url}: {message}");
    assert!(world.names.asked().is_empty(), "{url}: a name was resolved");
}

#[tokio::test]
async fn n1_a_user_name_in_the_url_is_refused() {
    let world = declared(&["good.com", "evil.com"]);
    for url in [
        "https://good.com@evil.com/",
        "https://good.com:443@evil.com/",
        "https://u:p@good.com/",
        "https://u@good.com/",
    ] {
        let message = denied(&world, url).await;
        assert!(
            message.contains("credentials belong in a header"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn n3_one_trailing_dot_means_the_same_host_and_two_are_none() {
    let server = Server::start(|_| Step::response("200 OK", "", b"here")).await;
    let world = World::good(server.port());
    let port = server.port();
    let response = world
        .get(&format!("http://GOOD.test.:{port}/"))
        .await
        .unwrap();
    assert_eq!(response["body"], "here");
    assert_eq!(
        server.asked()[0].header("host"),
        Some(format!("good.test:{port}").as_str())
    );
    let (code, _) = world.refused(&format!("http://good.test..:{port}/")).await;
    assert_eq!(code, Code::BadRequest);
}

#[tokio::test]
async fn n5_n13_hosts_that_are_none_are_bad_requests() {
    let world = declared(&["good.com"]);
    let hosts = [
        "xn--good-.com",
        "good.com.xn--",
        "09.0.0.1",
        "1.2.3.4.5",
        "256.1.1.1",
        "a.1.2.0x",
        "-good.com",
        "a b",
        "",
    ];
    for host in hosts {
        bad(&world, &format!("https://{host}/")).await;
    }
    for url in [
        "",
        "/relative",
        "good.com",
        "//good.com/",
        "https://good.com:65536/",
        "https://[::1/",
        "https://%00/",
    ] {
        bad(&world, url).await;
    }
}

#[tokio::test]
async fn n7_n8_names_match_whole_labels() {
    let world = declared(&["good.com", "*.sub.good.com"]);
    for host in [
        "evilgood.com",
        "good.com.evil.com",
        "sub.good.com.evil.com",
        "good.comevil",
        "sub.good.com",
        "x.good.com",
        "asub.good.com",
    ] {
        denied(&world, &format!("https://{host}/")).await;
    }
    let (code, message) = world.refused("https://a.b.sub.good.com/").await;
    assert_eq!(code, Code::Failed, "only its name is not found: {message}");
    assert_eq!(world.names.asked(), ["a.b.sub.good.com"]);
    let world = declared(&["*.sub.good.com"]);
    bad(&world, "https://.sub.good.com/").await;
}

#[tokio::test]
async fn n9_the_port_is_part_of_the_rule() {
    let world = declared(&["good.com"]);
    denied(&world, "https://good.com:8443/").await;
    bad(&world, "https://good.com:0/").await;
    bad(&world, "https://good.com:65536/").await;
    for url in ["https://good.com:443/", "https://good.com:/"] {
        assert_eq!(
            world.refused(url).await.0,
            Code::Failed,
            "{url}: only not found"
        );
    }
}

#[tokio::test]
async fn n10_other_schemes_are_refused_first() {
    let world = declared(&["good.com"]);
    let urls = [
        "http://good.com/",
        "http://good.com:443/",
        "ws://good.com/",
        "wss://good.com/",
        "ftp://good.com/",
        "file:///etc/passwd",
        "data:text/plain,x",
        "javascript://good.com/",
        "blob:https://good.com/x",
        "about:blank",
    ];
    for url in urls {
        denied(&world, url).await;
    }
}

#[tokio::test]
async fn n12_addresses_are_refused_however_they_are_written() {
    let world = declared(&["good.com"]);
    let hosts = [
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "0",
        "127.0.0.1.",
        "１２７.０.０.１",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "93.184.216.34",
    ];
    for host in hosts {
        denied(&world, &format!("https://{host}/")).await;
    }
}

#[tokio::test]
async fn n15_n16_names_that_lead_to_refused_addresses() {
    let addresses = [
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "127.0.0.1",
        "0.0.0.0",
        "192.0.0.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::1",
        "fe80::1",
        "fc00::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
    ];
    for address in addresses {
        let world = World::new(
            Names::default().with("good.com", &[address]),
            &[],
            &["good.com"],
        );
        let (code, message) = world.refused("https://good.com/").await;
        assert_eq!(code, Code::Denied, "{address}: {message}");
        assert!(
            !message.contains(address),
            "an address is not the plugin's to know: {message}"
        );
        assert_eq!(
            world.context().counters().used().denied_hosts,
            Vec::<String>::new()
        );
    }
    for name in [
        "169.254.169.254.nip.io",
        "localtest.me",
        "10-0-0-1.x.plex.direct",
    ] {
        let world = World::new(Names::loopback(&[name]), &[], &[name]);
        assert_eq!(
            world.refused(&format!("https://{name}/")).await.0,
            Code::Denied
        );
    }
}

/// P9: the operator's permission counts only for a host that the installer named, and only then.
#[tokio::test]
async fn p9_a_private_host_needs_the_operator_and_the_installer() {
    let server = Server::start(|_| Step::response("200 OK", "", b"private")).await;
    let (port, rule) = (server.port(), format!("good.test:{}", server.port()));
    let url = format!("http://good.test:{port}/");
    let both = World::good(port);
    assert_eq!(both.get(&url).await.unwrap()["body"], "private");
    let declared_only = World::good(port).named(&[]);
    assert_eq!(declared_only.refused(&url).await.0, Code::Denied);
    let named_only = World::new(Names::loopback(&["good.test"]), &[], &[&rule]);
    assert_eq!(named_only.refused(&url).await.0, Code::Denied);
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn n17_a_second_answer_of_dns_changes_nothing_for_the_first() {
    let names = Names::default()
        .with("good.com", &["192.0.2.1"])
        .with("good.com", &["127.0.0.1"]);
    let world = World::new(names, &[], &["good.com"]).within(Duration::from_millis(500));
    for _ in 0..2 {
        let (code, message) = world.refused("https://good.com/").await;
        assert_eq!(
            code,
            Code::Denied,
            "documentation, then loopback: {message}"
        );
    }
}

#[tokio::test]
async fn n19_the_machines_own_names_and_metadata_services_are_refused() {
    for name in [
        "metadata.google.internal",
        "instance-data",
        "localhost",
        "a.localhost",
        "instance-data.ec2.internal",
    ] {
        let rules: Vec<_> = [name].into();
        let world = World::new(Names::default(), &[], &rules);
        denied(&world, &format!("https://{name}/")).await;
        denied(&world, &format!("https://{name}./")).await;
    }
}

#[tokio::test]
async fn n20_a_slow_name_server_ends_within_the_limit() {
    let names = Names::loopback(&["good.com"]).slow(Duration::from_secs(30));
    let world = World::new(names, &[], &["good.com"]).within(Duration::from_millis(300));
    let (code, message) = world.refused("https://good.com/").await;
    assert_eq!(code, Code::Timeout, "{message}");
    assert!(message.contains("300 ms"), "{message}");
}

#[test]
fn n23_proxy_variables_of_the_environment_are_ignored() {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--ignored", "--exact", "fetch::names::n23_child"]);
    for variable in [
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
    ] {
        child.env(variable, "http://127.0.0.1:9");
    }
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

#[tokio::test]
#[ignore = "run by n23_proxy_variables_of_the_environment_are_ignored with its environment"]
async fn n23_child() {
    let server = Server::start(|_| Step::response("200 OK", "", b"direct")).await;
    let url = format!("http://good.test:{}/", server.port());
    let response = World::good(server.port()).get(&url).await.unwrap();
    assert_eq!(response["body"], "direct");
    assert_eq!(server.asked()[0].line(), "GET /", "no proxy's form");
}

/// What was refused is evidence, and said with the remedy.
#[tokio::test]
async fn p9_refused_hosts_are_noted() {
    let world = declared(&["good.com"]);
    let context = world.context();
    let error = world
        .fetch_in(&context, json!(["https://evil.com/"]))
        .await
        .unwrap_err();
    assert!(
        error.message.contains("evil.com") && error.message.contains("plugin.json"),
        "{error}"
    );
    assert_eq!(context.counters().used().denied_hosts, ["evil.com"]);
    assert_eq!(context.counters().used().fetches, 0);
}
