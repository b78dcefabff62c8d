#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use proptest::prelude::*;

use super::*;

fn rule(text: &str) -> EgressRule {
    text.parse().unwrap()
}

fn problem(text: &str) -> RuleProblem {
    text.parse::<EgressRule>().unwrap_err().problem
}

fn name(text: &str) -> HostName {
    text.parse().unwrap()
}

#[test]
fn a_rule_is_normalised() {
    for (written, read) in [
        ("api.example.com", "api.example.com:443"),
        ("API.Example.COM.", "api.example.com:443"),
        ("bücher.example:8443", "xn--bcher-kva.example:8443"),
        ("*.Bücher.example", "*.xn--bcher-kva.example:443"),
        ("gitlab:22", "gitlab:22"),
        ("_dav.example.com:65535", "_dav.example.com:65535"),
    ] {
        assert_eq!(rule(written).to_string(), read);
        assert_eq!(rule(&rule(written).to_string()), rule(written));
    }
}

/// N8: the star stands for one or more labels below, never for the name itself.
#[test]
fn n8_a_star_covers_what_lies_below_only() {
    let star = rule("*.sub.good.com");
    assert!(star.host.matches(&name("x.sub.good.com")));
    assert!(star.host.matches(&name("a.b.sub.good.com")));
    for other in [
        "sub.good.com",
        "evilsub.good.com",
        "good.com",
        "x.sub.good.com.evil.com",
    ] {
        assert!(!star.host.matches(&name(other)), "{other}");
    }
    assert_eq!(
        ".sub.good.com".parse::<HostName>(),
        Err(HostError::EmptyLabel)
    );
}

/// N7: a name matches as a whole, label by label.
#[test]
fn n7_an_exact_rule_covers_one_name() {
    let exact = rule("good.com");
    assert!(exact.host.matches(&name("GOOD.com.")));
    for other in [
        "evilgood.com",
        "good.com.evil.com",
        "sub.good.com.evil.com",
        "sub.good.com",
        "good.comevil",
    ] {
        assert!(!exact.host.matches(&name(other)), "{other}");
    }
}

#[test]
fn what_is_no_rule_is_refused_by_its_reason() {
    use RuleProblem as P;
    for (text, expected) in [
        ("", P::Empty),
        ("good.com evil.com", P::Space),
        (" good.com", P::Space),
        ("good.com\n", P::Space),
        ("https://good.com", P::Scheme),
        ("user@good.com", P::Userinfo),
        ("good.com/path", P::Path),
        ("good.com?x", P::Path),
        ("good.com\\x", P::Path),
        ("%67ood.com", P::Percent),
        ("preset:npm", P::Preset),
        ("*", P::BareStar),
        ("*.", P::BareStar),
        ("*:443", P::BareStar),
        ("a.*.good.com", P::InnerStar),
        ("*good.com", P::InnerStar),
        ("*.*.good.com", P::InnerStar),
        ("*.com", P::WideStar),
        ("*.co.uk", P::WideStar),
        ("*.github.io", P::WideStar),
        ("*.amazonaws.com", P::WideStar),
        ("*.localhost", P::WideStar),
        ("good.com:0", P::Port),
        ("good.com:", P::Port),
        ("good.com:65536", P::Port),
        ("good.com:+443", P::Port),
        ("good.com:0443", P::Port),
        ("good.com:https", P::Port),
        ("[::1]:443", P::Address),
        ("::1", P::Address),
        ("good..com", P::Host(HostError::EmptyLabel)),
        ("good.com..", P::Host(HostError::EmptyLabel)),
        ("-good.com", P::Host(HostError::Label("-good".into()))),
        ("xn--good-.com", P::Host(HostError::NotAHost)),
        ("*.x.com.evil.c\u{200d}om", P::Host(HostError::NotAHost)),
    ] {
        assert_eq!(problem(text), expected, "{text:?}");
    }
}

/// N12: every form of an address that the URL standard reads is an address here too.
#[test]
fn n12_no_form_of_an_address_is_a_rule() {
    for text in [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "0",
        "127.0.0.1.",
        "127.0.0.1:80",
        "*.127.0.0.1",
    ] {
        assert_eq!(problem(text), RuleProblem::Address, "{text}");
    }
}

/// Case 50: the empty list reaches nothing, and so does the default.
#[test]
fn case_50_an_empty_list_denies_all() {
    let empty = NetworkPolicy::from_list::<&str>([]).unwrap();
    assert_eq!(empty, NetworkPolicy::deny_all());
    assert_eq!(empty, NetworkPolicy::default());
    assert!(empty.rule_for(&name("good.com"), 443).is_none());
    assert!(empty.ports_for(&name("good.com")).is_empty());
}

/// Case 50: a policy with a missing list, an unknown key, a wrong type or a bad entry does not exist.
#[test]
fn case_50_a_malformed_policy_is_an_error() {
    for text in [
        "{}",
        r#"{"allow":null}"#,
        r#"{"allow":"good.com"}"#,
        r#"{"allow":[],"deny":[]}"#,
        r#"{"alow":[]}"#,
        r#"{"allow":["*"]}"#,
        r#"{"allow":[{"host":"*","port":1}]}"#,
    ] {
        assert!(
            serde_json::from_str::<NetworkPolicy>(text).is_err(),
            "{text}"
        );
    }
    let policy: NetworkPolicy = serde_json::from_str(r#"{"allow":["good.com"]}"#).unwrap();
    assert_eq!(
        serde_json::to_string(&policy).unwrap(),
        r#"{"allow":["good.com:443"]}"#
    );
}

#[test]
fn every_preset_is_made_of_rules_and_sorted() {
    for preset in PRESETS {
        for entry in preset.entries {
            assert!(
                entry.parse::<EgressRule>().is_ok(),
                "{}: {entry}",
                preset.name
            );
        }
    }
    assert!(PRESETS.is_sorted_by_key(|preset| preset.name));
}

/// The table of `docs/network.md` is this one.
#[test]
fn the_documentation_lists_every_preset_as_it_is() {
    let page = include_str!("../../../../docs/network.md");
    for preset in PRESETS {
        let short = |entry: &&str| format!("`{}`", entry.strip_suffix(":443").unwrap_or(entry));
        let rules: Vec<_> = preset.entries.iter().map(short).collect();
        let row = format!(
            "| `{}` ({}) | {} |",
            preset.name,
            preset.about,
            rules.join(", ")
        );
        assert!(page.contains(&row), "docs/network.md lacks the row\n{row}");
    }
}

#[test]
fn a_list_joins_presets_and_rules_once() {
    let policy = NetworkPolicy::from_list(["preset:pypi", "pypi.org", "good.com:80"]).unwrap();
    let written: Vec<_> = policy.allow.iter().map(ToString::to_string).collect();
    assert_eq!(
        written,
        ["pypi.org:443", "files.pythonhosted.org:443", "good.com:80"]
    );
}

#[test]
fn an_unknown_preset_names_the_nearest() {
    let error = NetworkPolicy::from_list(["good.com", "preset:nmp"]).unwrap_err();
    insta::assert_snapshot!(error, @r#"entry 2 of the allow-list: there is no preset "nmp"; did you mean `preset:npm`?"#);
    let error = "preset:cargo-registry"
        .parse::<AllowEntry>()
        .unwrap_err()
        .to_string();
    assert!(error.contains("the presets are alpine, conda"), "{error}");
}

#[test]
fn a_bad_entry_says_what_was_expected() {
    let error = NetworkPolicy::from_list(["https://good.com/"]).unwrap_err();
    insta::assert_snapshot!(error, @r#"entry 1 of the allow-list: "https://good.com/" is not an allow-list entry: it has a scheme; write the host and port alone, such as `api.example.com:443`"#);
}

#[test]
fn a_list_is_bounded() {
    let long = (0..=MAX_RULES).map(|n| format!("h{n}.example.com"));
    assert_eq!(NetworkPolicy::from_list(long), Err(NetworkError::TooMany));
}

proptest! {
    /// Reading never panics, and what was read reads the same again.
    #[test]
    fn any_text_reads_or_is_refused(text in "\\PC{0,80}") {
        if let Ok(rule) = text.parse::<EgressRule>() {
            prop_assert_eq!(rule.to_string().parse::<EgressRule>(), Ok(rule));
        }
        if let Ok(host) = Host::parse(&text) {
            prop_assert_eq!(Host::parse(&host.to_string()), Ok(host));
        }
    }

    /// Names of a likely form: an exact rule matches itself in any case, and nothing below it.
    #[test]
    fn an_exact_rule_matches_itself_only(text in "[a-z][a-z0-9-]{0,8}[a-z](\\.[a-z]{2,5}){1,3}") {
        if let Ok(rule) = text.parse::<EgressRule>() {
            prop_assert!(rule.host.matches(&name(&text.to_uppercase())));
            let below = format!("x.{text}");
            prop_assert!(!rule.host.matches(&name(&below)));
        }
    }
}

/// Found by fuzzing: `preset:443` is the preset 443, and not a host of that name.
#[test]
fn n3_every_rule_reads_itself_again_and_no_host_is_called_preset() {
    for text in ["PRESET", "preset.", "Preset:443", "PRESET:npm"] {
        assert!(text.parse::<EgressRule>().is_err(), "{text}");
        assert!(NetworkPolicy::from_list([text]).is_err(), "{text}");
    }
    for text in ["preset.example", "*.preset.example:8443", "a-preset"] {
        let rule: EgressRule = text.parse().unwrap();
        let again = NetworkPolicy::from_list([rule.to_string()]).unwrap();
        assert_eq!(again.allow, [rule]);
    }
}
