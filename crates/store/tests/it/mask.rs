//! Masking (R17, cases 29 and 30): every form, every cut, nothing else.

use base64::{Engine as _, prelude::*};
use bulkhead_model::{AgentEvent, PhaseEvent};
use bulkhead_store::mask::{EventMasker, Masker};
use proptest::prelude::*;
use secrecy::SecretString;
use serde_json::json;

const TOKEN: &str = "gh&p/<Q> +\"7é'$z\\9🔑k";
const PLAIN: &str = "ghp_16C7e42F292c6912E7710c83";
const PEM: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAtR0ub4dOur\nq8hXK9bTz1uPl2kW\n-----END PRIVATE KEY-----\n";

fn masker(secrets: &[(&str, &str)]) -> Masker {
    let secrets: Vec<(&str, SecretString)> = secrets
        .iter()
        .map(|(name, value)| (*name, SecretString::from(*value)))
        .collect();
    Masker::new(secrets.iter().map(|(name, value)| (*name, value))).unwrap()
}

fn all() -> Masker {
    masker(&[("TOKEN", TOKEN), ("PLAIN", PLAIN), ("PEM", PEM)])
}

fn whole(masker: &Masker, text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    masker.mask_into(text, &mut out);
    out
}

fn chunked<'a>(masker: &Masker, chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let (mut stream, mut out) = (masker.stream(), Vec::new());
    for chunk in chunks {
        stream.push(chunk, &mut out);
    }
    stream.finish(&mut out);
    out
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn wrap(text: &str, width: usize) -> String {
    let lines: Vec<_> = text.as_bytes().chunks(width).map(text_of).collect();
    lines.join("\n")
}

fn text_of(bytes: &[u8]) -> String {
    text(bytes)
}

/// The forms of case 30's table, each with what the outside may show.
fn forms(secret: &str) -> Vec<(&'static str, String)> {
    let percent = |keep: &str| -> String {
        secret
            .bytes()
            .map(
                |b| match b.is_ascii_alphanumeric() || keep.as_bytes().contains(&b) {
                    true => char::from(b).to_string(),
                    false => format!("%{b:02X}"),
                },
            )
            .collect()
    };
    let json = serde_json::to_string(secret).unwrap();
    let inner = json[1..json.len() - 1].to_owned();
    let hex: String = secret.bytes().map(|b| format!("{b:02x}")).collect();
    let ascii: String = inner
        .encode_utf16()
        .map(|unit| match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii() => char::from(byte).to_string(),
            _ => format!("\\u{unit:04x}"),
        })
        .collect();
    vec![
        ("raw", secret.to_owned()),
        ("base64", BASE64_STANDARD.encode(secret)),
        ("base64 unpadded", BASE64_STANDARD_NO_PAD.encode(secret)),
        ("base64url", BASE64_URL_SAFE.encode(secret)),
        ("base64url unpadded", BASE64_URL_SAFE_NO_PAD.encode(secret)),
        (
            "base64 of echo",
            BASE64_STANDARD.encode(format!("{secret}\n")),
        ),
        ("hex", hex.clone()),
        ("HEX", hex.to_uppercase()),
        ("url", percent("-._~")),
        (
            "url lower",
            percent("-._~")
                .replace("%3C", "%3c")
                .replace("%2F", "%2f")
                .replace("%3E", "%3e")
                .replace("%2B", "%2b")
                .replace("%C3%A9", "%c3%a9")
                .replace("%5C", "%5c")
                .replace("%F0%9F%94%91", "%f0%9f%94%91"),
        ),
        ("encodeURIComponent", percent("-._~!'()*")),
        ("encodeURI", percent("-._~!'()*;,/?:@&=+$#")),
        ("form", percent("-._*").replace("%20", "+")),
        ("json", inner.clone()),
        ("json with \\/", inner.replace('/', "\\/")),
        (
            "json for html",
            inner
                .replace('<', "\\u003c")
                .replace('>', "\\u003e")
                .replace('&', "\\u0026"),
        ),
        (
            "json in json",
            inner.replace('\\', "\\\\").replace('"', "\\\""),
        ),
        ("json ascii", ascii),
        ("shell '", secret.replace('\'', r"'\''")),
        (
            "html",
            secret
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;"),
        ),
    ]
}

#[test]
fn case_30_every_form_is_masked_whole() {
    let masker = all();
    for (secret, name) in [(TOKEN, "TOKEN"), (PLAIN, "PLAIN")] {
        for (form, shown) in forms(secret) {
            let line = format!("before {shown} after");
            let out = text(&whole(&masker, line.as_bytes()));
            assert_eq!(
                out,
                format!("before [masked:{name}] after"),
                "{form}: {shown}"
            );
        }
    }
}

#[test]
fn case_30_base64_is_found_inside_longer_data_at_every_alignment() {
    let masker = all();
    for secret in [TOKEN, PLAIN] {
        for before in 0..7 {
            for after in 0..4 {
                let data = format!(
                    "{}{secret}{}",
                    "user:x:"[..before].to_owned(),
                    "@host"[..after].to_owned()
                );
                for encoded in [
                    BASE64_STANDARD.encode(&data),
                    BASE64_URL_SAFE_NO_PAD.encode(&data),
                ] {
                    let out = text(&whole(&masker, encoded.as_bytes()));
                    let name = if secret == TOKEN {
                        "[masked:TOKEN]"
                    } else {
                        "[masked:PLAIN]"
                    };
                    // At most the characters that share bits with a neighbour are left on each side.
                    let room = before * 8 / 6 + 2 + after * 8 / 6 + 4 + name.len();
                    assert!(
                        out.contains(name) && out.len() <= room,
                        "{before} {after}: {out}"
                    );
                }
            }
        }
    }
}

#[test]
fn case_30_wrapped_base64_is_found_wherever_the_lines_break() {
    let masker = all();
    for width in [64, 76] {
        for before in 0..120 {
            let data = format!("{}{PLAIN} and more text after it", "x".repeat(before));
            let wrapped = wrap(&BASE64_STANDARD.encode(&data), width);
            for newline in ["\n", "\r\n"] {
                let out = text(&whole(&masker, wrapped.replace('\n', newline).as_bytes()));
                assert!(out.contains("[masked:PLAIN]"), "{width} {before}: {out}");
            }
        }
    }
    let pem = wrap(&BASE64_STANDARD.encode(PEM.trim()), 76);
    assert_eq!(text(&whole(&masker, pem.as_bytes())), "[masked:PEM]");
}

#[test]
fn case_30_each_line_of_a_secret_of_several_lines_is_masked_but_not_its_markers() {
    let masker = all();
    let out = text(&whole(
        &masker,
        b"> MC4CAQAwBQYDK2VwBCIEIAtR0ub4dOur <\n> q8hXK9bTz1uPl2kW <\n",
    ));
    assert_eq!(out, "> [masked:PEM] <\n> [masked:PEM] <\n");
    assert_eq!(
        text(&whole(&masker, PEM.replace('\n', "\r\n").as_bytes())),
        "[masked:PEM]\r\n"
    );
    let marker = b"-----BEGIN PRIVATE KEY-----\nsomething else\n";
    assert_eq!(whole(&masker, marker), marker);
}

#[test]
fn case_30_short_and_common_text_is_left_alone() {
    let masker = masker(&[("SHORT", "abc"), ("EMPTY", ""), ("PLAIN", PLAIN)]);
    let log = b"abc production localhost ghp_ 16C7e42 [masked:PLAIN] a\xff\xfe\x00b";
    assert_eq!(whole(&masker, log), log);
    assert_eq!(chunked(&masker, log.chunks(1)), log);
}

#[test]
fn case_29_a_secret_cut_at_any_offset_is_masked_on_every_stream() {
    let masker = all();
    for secret in [TOKEN, PLAIN] {
        for (form, shown) in forms(secret) {
            let line = format!("t={shown};\n");
            let bytes = line.as_bytes();
            let expected = whole(&masker, bytes);
            for cut in 0..=bytes.len() {
                let (a, b) = bytes.split_at(cut);
                // stdout, stderr and a tee of both are three streams with a masker each.
                let mut streams = [masker.stream(), masker.stream(), masker.stream()];
                let mut outs = [Vec::new(), Vec::new(), Vec::new()];
                for chunk in [a, b] {
                    for (stream, out) in streams.iter_mut().zip(&mut outs) {
                        stream.push(chunk, out);
                    }
                }
                for (mut stream, mut out) in streams.into_iter().zip(outs) {
                    stream.finish(&mut out);
                    assert_eq!(text(&out), text(&expected), "{form} cut at {cut}");
                }
            }
        }
    }
}

#[test]
fn case_29_streams_do_not_mix() {
    let masker = all();
    let (mut stdout, mut stderr) = (masker.stream(), masker.stream());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (a, b) = PLAIN.split_at(9);
    stdout.push(a.as_bytes(), &mut out);
    stderr.push(b"noise\n", &mut err);
    stdout.push(b.as_bytes(), &mut out);
    stdout.finish(&mut out);
    stderr.finish(&mut err);
    assert_eq!(
        (text(&out).as_str(), text(&err).as_str()),
        ("[masked:PLAIN]", "noise\n")
    );
}

#[test]
fn case_29_a_secret_cut_between_two_events_is_masked() {
    let said = |text: &str| PhaseEvent::Agent {
        event: AgentEvent::Message { text: text.into() },
    };
    for cut in (0..=TOKEN.len()).filter(|cut| TOKEN.is_char_boundary(*cut)) {
        let mut masker = EventMasker::new(all());
        let mut events = masker.push(said(&format!("key: {}", &TOKEN[..cut])));
        events.extend(masker.push(PhaseEvent::Stage {
            stage: bulkhead_model::Stage::AgentFirstEvent,
            at_ms: 1,
        }));
        events.extend(masker.push(said(&format!("{} end", &TOKEN[cut..]))));
        events.extend(masker.finish());
        let heard: String = events
            .iter()
            .filter_map(|event| match event {
                PhaseEvent::Agent {
                    event: AgentEvent::Message { text },
                } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(heard, "key: [masked:TOKEN] end", "cut at {cut}");
    }
}

#[test]
fn case_29_the_end_of_a_turn_brings_out_what_waited() {
    let mut masker = EventMasker::new(all());
    let said = masker.push(PhaseEvent::Agent {
        event: AgentEvent::Message {
            text: "ends with ghp_1".into(),
        },
    });
    assert_eq!(said.len(), 1);
    let end = masker.push(PhaseEvent::Agent {
        event: AgentEvent::Finished {
            ok: true,
            text: Some(PLAIN.into()),
        },
    });
    let expected = [
        PhaseEvent::Agent {
            event: AgentEvent::Message {
                text: "ghp_1".into(),
            },
        },
        PhaseEvent::Agent {
            event: AgentEvent::Finished {
                ok: true,
                text: Some("[masked:PLAIN]".into()),
            },
        },
    ];
    assert_eq!(end, expected);
}

#[test]
fn case_29_json_is_masked_in_values_and_keys() {
    let mut value = json!({
        "a": [TOKEN, { "b": format!("x{PLAIN}") }], PLAIN: 1, "n": 7, "ok": true,
        "embedded": serde_json::to_string(&json!({ "t": TOKEN })).unwrap(),
    });
    all().mask_json(&mut value);
    let expected = json!({
        "a": ["[masked:TOKEN]", { "b": "x[masked:PLAIN]" }], "[masked:PLAIN]": 1, "n": 7, "ok": true,
        "embedded": "{\"t\":\"[masked:TOKEN]\"}",
    });
    assert_eq!(value, expected);
}

#[test]
fn r17_only_a_true_beginning_is_held_back() {
    let masker = all();
    let mut stream = masker.stream();
    let mut out = Vec::new();
    stream.push(b"a prompt> ", &mut out);
    assert_eq!(
        (stream.held_bytes(), out.as_slice()),
        (0, b"a prompt> ".as_slice())
    );
    stream.push(b"ghp_16", &mut out);
    assert_eq!(stream.held_bytes(), 6);
    stream.push(b"!", &mut out);
    assert_eq!(
        (stream.held_bytes(), out.as_slice()),
        (0, b"a prompt> ghp_16!".as_slice())
    );
}

#[test]
fn r17_a_masker_never_prints_what_it_masks() {
    assert!(!format!("{:?}", all()).contains("ghp_"));
}

/// Text in which secrets, their beginnings and noise follow one another.
fn noisy() -> impl Strategy<Value = Vec<u8>> {
    let pieces: Vec<Vec<u8>> = [TOKEN, PLAIN, PEM]
        .iter()
        .flat_map(|secret| forms(secret))
        .map(|(_, form)| form.into_bytes())
        .collect();
    let piece = prop_oneof![
        proptest::sample::select(pieces.clone()),
        (
            proptest::sample::select(pieces),
            any::<prop::sample::Index>()
        )
            .prop_map(|(piece, at)| piece[..at.index(piece.len())].to_vec()),
        prop::collection::vec(any::<u8>(), 0..8),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn case_29_any_chunking_gives_the_output_of_one_write(
        input in noisy(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let masker = all();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.extend([0, input.len()]);
        cuts.sort_unstable();
        let chunks = cuts.windows(2).map(|pair| &input[pair[0]..pair[1]]);
        let out = chunked(&masker, chunks);
        prop_assert_eq!(&out, &whole(&masker, &input));
        for secret in [TOKEN, PLAIN] {
            prop_assert!(!out.windows(secret.len()).any(|window| window == secret.as_bytes()));
        }
    }
}
