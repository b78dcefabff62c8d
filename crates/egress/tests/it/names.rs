//! What is decided by the text of a URL alone.

use bulkhead_egress::{Scheme, Target, Why};
use bulkhead_model::network::HostError;
use proptest::prelude::*;

use crate::support::{decide, rules, silent, strict};

const GOOD: &[&str] = &["good.com"];

#[test]
fn n1_userinfo_is_refused_whatever_it_looks_like() {
    for url in [
        "https://good.com@evil.com/",
        "https://good.com:443@evil.com/",
        "https://user@good.com/",
        "https://:password@good.com/",
        "https://good.com%40evil.com@good.com/",
    ] {
        assert_eq!(decide(GOOD, url).why, Why::Userinfo, "{url}");
    }
    // A backslash ends the authority in the URL standard: this is the path `/@evil.com`, and stays so.
    assert!(decide(GOOD, "https://good.com\\@evil.com/").allowed());
    assert_eq!(
        Target::from_authority("good.com:443@evil.com:443")
            .unwrap_err()
            .why,
        Why::Userinfo
    );
}

#[test]
fn n3_one_trailing_dot_is_stripped_and_two_are_refused() {
    let target = Target::from_url("https://good.com./", Scheme::WEB).unwrap();
    assert_eq!(
        target.to_string(),
        "good.com:443",
        "one string for SNI, Host and counters"
    );
    assert!(decide(GOOD, "https://good.com./").allowed());
    assert_eq!(
        decide(GOOD, "https://good.com../").why,
        Why::BadHost(HostError::EmptyLabel)
    );
    assert_eq!(
        Target::from_authority("good.com.:443").unwrap().to_string(),
        "good.com:443"
    );
    assert!(Target::from_authority("good.com..:443").is_err());
    // The ideographic full stop is a dot too.
    assert!(decide(GOOD, "https://good\u{3002}com\u{3002}/").allowed());
}

/// D10, N5.
#[test]
fn n5_malformed_punycode_is_refused() {
    for url in [
        "https://xn--good-.com/",
        "https://good.com.xn--/",
        "https://xn--a.com/",
    ] {
        let why = decide(&["good.com", "*.good.com"], url).why;
        assert!(
            matches!(why, Why::NotAUrl | Why::BadHost(_)),
            "{url}: {why:?}"
        );
    }
}

#[test]
fn n7_look_alikes_are_other_names() {
    for host in [
        "evilgood.com",
        "good.com.evil.com",
        "sub.good.com.evil.com",
        "good.comevil",
        "sub.good.com",
        "g\u{43e}\u{43e}d.com",
    ] {
        assert_eq!(
            decide(GOOD, &format!("https://{host}")).why,
            Why::NoRule,
            "{host}"
        );
    }
    let star = &["*.good.com"];
    for host in ["evilgood.com", "good.com", "a.good.com.evil.com"] {
        assert_eq!(
            decide(star, &format!("https://{host}")).why,
            Why::NoRule,
            "{host}"
        );
    }
}

#[test]
fn n8_a_star_needs_a_label_below() {
    let star = &["*.sub.good.com"];
    assert!(decide(star, "https://x.sub.good.com").allowed());
    assert!(decide(star, "https://a.b.sub.good.com").allowed());
    assert_eq!(decide(star, "https://sub.good.com").why, Why::NoRule);
    assert_eq!(
        decide(star, "https://.sub.good.com").why,
        Why::BadHost(HostError::EmptyLabel)
    );
}

#[test]
fn n9_the_port_is_part_of_the_rule() {
    assert!(decide(GOOD, "https://good.com:443/").allowed());
    assert!(decide(GOOD, "https://good.com:/").allowed());
    assert!(decide(GOOD, "https://good.com/").allowed());
    let other = decide(GOOD, "https://good.com:8443/").why;
    assert_eq!(other, Why::PortNotAllowed { allowed: vec![443] });
    assert_eq!(decide(GOOD, "https://good.com:0/").why, Why::BadPort);
    assert_eq!(decide(GOOD, "https://good.com:65536/").why, Why::NotAUrl);
    assert!(decide(&["good.com:8443"], "https://good.com:8443/").allowed());
    for authority in [
        "good.com",
        "good.com:",
        "good.com:0",
        "good.com:65536",
        "good.com:+443",
        "good.com: 443",
        "good.com:https",
    ] {
        assert_eq!(
            Target::from_authority(authority).unwrap_err().why,
            Why::BadPort,
            "{authority}"
        );
    }
}

#[test]
fn n10_the_scheme_is_checked_first() {
    for (url, scheme) in [
        ("http://good.com", "http"),
        ("ws://good.com", "ws"),
        ("wss://good.com", "wss"),
        ("ftp://good.com/", "ftp"),
        ("file:///etc/passwd", "file"),
        ("data:text/plain,x", "data"),
        ("javascript://good.com/%0aalert(1)", "javascript"),
        ("blob:https://good.com/1", "blob"),
        ("https+evil://good.com/", "https+evil"),
        ("gopher://user@evil.com/", "gopher"),
    ] {
        assert_eq!(
            decide(GOOD, url).why,
            Why::Scheme(scheme.to_owned()),
            "{url}"
        );
    }
}

/// N10: where plain HTTP can be used at all, a rule for 443 still means TLS.
#[test]
fn n10_plain_http_does_not_go_where_tls_was_allowed() {
    let server = silent();
    let check = |list: &[&str], url: &str| {
        let target = Target::from_url(url, &[Scheme::Http, Scheme::Https]).unwrap();
        strict(&server).check(&rules(list), &target).why
    };
    assert_eq!(
        check(GOOD, "http://good.com"),
        Why::PortNotAllowed { allowed: vec![443] }
    );
    assert_eq!(check(GOOD, "http://good.com:443"), Why::ClearOverTls(443));
    assert!(check(&["good.com:80"], "http://good.com").allows());
}

/// N12: every form of an address, and even a list that tries to name it.
#[test]
fn n12_an_address_is_never_allowed_by_a_rule() {
    for host in [
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "0",
        "127.0.0.1.",
        "127.0.0.1",
        "\u{ff11}\u{ff12}\u{ff17}.0.0.1",
        "%31%32%37.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "8.8.8.8",
        "[2606:4700::1111]",
        "0x8080808",
    ] {
        let decision = decide(&["good.com", "*.good.com"], &format!("https://{host}/"));
        assert_eq!(decision.why, Why::AddressLiteral, "{host}");
    }
    let target = Target::from_authority("127.1:443").unwrap();
    assert_eq!(
        strict(&silent()).check(&rules(GOOD), &target).why,
        Why::AddressLiteral
    );
}

/// D10, N13.
#[test]
fn n13_what_only_looks_like_an_address_is_refused() {
    for host in [
        "09.0.0.1",
        "1.2.3.4.5",
        "256.1.1.1",
        "a.1.2.0x",
        "1.2.3.08",
        "[::1",
        "[1.2.3.4]",
        "1.2.3.4:1:2",
    ] {
        let why = decide(GOOD, &format!("https://{host}/")).why;
        assert_eq!(why, Why::NotAUrl, "{host}");
    }
}

#[test]
fn n19_names_of_this_machine_and_of_metadata_services_are_refused() {
    let list = &[
        "localhost",
        "a.localhost",
        "metadata.google.internal",
        "instance-data",
        "instance-data.ec2.internal",
        "metadata",
    ];
    for host in [
        "localhost",
        "localhost.",
        "LOCALHOST",
        "a.localhost",
        "metadata.google.internal",
        "instance-data",
        "instance-data.ec2.internal",
        "metadata",
    ] {
        assert_eq!(
            decide(list, &format!("https://{host}/")).why,
            Why::LocalName,
            "{host}"
        );
    }
}

/// Case 50: no rule, no way, whatever is asked for.
#[test]
fn case_50_an_empty_list_refuses_everything() {
    for url in [
        "https://good.com/",
        "https://registry.npmjs.org/",
        "https://bulkhead.invalid/",
    ] {
        assert_eq!(decide(&[], url).why, Why::NoRule, "{url}");
    }
}

#[test]
fn tabs_and_line_breaks_cannot_split_a_host() {
    // The URL standard drops them; what is decided on is what is left.
    assert!(decide(GOOD, "https://go\tod.c\nom/").allowed());
    assert_eq!(
        decide(GOOD, "https://good.com\r\n.evil.com/").why,
        Why::NoRule
    );
    assert!(Target::from_authority("good.com\r\n:443").is_err());
    assert!(Target::from_authority("good.com/:443").is_err());
    assert!(Target::from_authority("good.com#:443").is_err());
}

proptest! {
    /// Whatever text, no panic; and what is allowed has, for an independent reader of URLs, the allowed host.
    #[test]
    fn what_is_allowed_leads_to_the_allowed_host(text in "(https://|//|http:|/|\\\\|@|:|443|good|evil|\\.|com|\\[|\\]|#|\\?|%2e|%40|x){1,12}") {
        let Ok(target) = Target::from_url(&text, &[Scheme::Https]) else {
            return Ok(());
        };
        let allowed = target.to_string() == "good.com:443";
        if allowed {
            let rest = text.trim_start_matches("https:").trim_start_matches(['/', '\\']);
            let authority = rest.split(['/', '\\', '?', '#']).next().unwrap();
            let host = authority.replace("%2e", ".");
            let host = host.trim_end_matches(":443").trim_end_matches(':').trim_end_matches('.');
            prop_assert_eq!(host, "good.com", "{}", text);
        }
        prop_assert!(Target::from_authority(&text).is_err() || !text.contains('@'));
    }

    /// The text of an authority is read or refused, never more than once differently.
    #[test]
    fn any_authority_is_read_or_refused(text in "\\PC{0,60}") {
        if let Ok(target) = Target::from_authority(&text) {
            prop_assert_eq!(Target::from_authority(&target.to_string()).unwrap(), target);
        }
        let _ = Target::from_url(&text, Scheme::WEB);
    }
}
