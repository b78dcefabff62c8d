//! Showing raw output (case 28).

use bulkhead_store::logs::render::{Colours, Renderer};
use proptest::prelude::*;

fn render<'a>(colours: Colours, chunks: impl IntoIterator<Item = &'a [u8]>) -> String {
    let (mut renderer, mut out) = (Renderer::new(colours), String::new());
    for chunk in chunks {
        renderer.push(chunk, &mut out);
    }
    renderer.finish(&mut out);
    out
}

fn shown(text: &[u8]) -> String {
    render(Colours::Keep, [text])
}

/// Colours, titles, clipboard, alternate screen, device strings, 8-bit forms, broken and cut UTF-8.
const FIXTURE: &[u8] = b"plain \xe2\x82\xac \xf0\x9f\x94\x91\r\n\x1b[1;31mred\x1b[0m \x1b]52;c;ZXZpbA==\x07after\n\
    \x1b]0;title\x1b\\x\x1b[?1049h\x1b[2J\x1b[Hy\x1bP+q544e\x1b\\z\xc2\x9b31mq\xc2\x9d0;t\x07r\n\
    50%\r60%\r\n\x1b(B\x1b=\x1b7bell\x07back\x08\x7f \xff\xfe \xe2\x82 \xed\xa0\x80 \x1b[38;5;8mgrey\x1b[8mhidden\n\
    rtl\xe2\x80\xae \x1b]0;unterminated\nnext \x1b[99999999999999999999999999999999999999999999999999999999999999999999mx\x1b";

#[test]
fn case_28_the_text_is_the_same_however_the_bytes_are_cut() {
    for colours in [Colours::Keep, Colours::Drop] {
        let whole = render(colours, [FIXTURE]);
        for cut in 0..=FIXTURE.len() {
            let (a, b) = FIXTURE.split_at(cut);
            assert_eq!(render(colours, [a, b]), whole, "cut at {cut}");
        }
        assert_eq!(render(colours, FIXTURE.chunks(1)), whole);
    }
}

#[test]
fn case_28_sequences_that_act_on_the_viewer_are_neutralised() {
    assert_eq!(shown(b"\x1b]52;c;ZXZpbA==\x07x"), "x");
    assert_eq!(shown(b"\x1b]52;c;ZXZpbA==\x1b\\x"), "x");
    assert_eq!(
        shown(b"\x1b]0;title\x07x\x1b]8;;http://e\x1b\\link\x1b]8;;\x1b\\"),
        "xlink"
    );
    assert_eq!(
        shown(b"\x1b[?1049hx\x1b[2J\x1b[H\x1b[6n\x1b[?25l\x1bc\x1b#8y"),
        "xy"
    );
    assert_eq!(
        shown(b"\x1bP$qm\x1b\\a\x1b_apc\x1b\\b\x1b^pm\x1b\\c\x1bXsos\x1b\\d"),
        "abcd"
    );
    assert_eq!(
        shown("\u{9b}2Jx\u{9d}52;c;eA==\u{9c}y\u{90}q\u{9c}z".as_bytes()),
        "xyz"
    );
    assert_eq!(
        shown(b"a\x08b\x07c\x00d\x7f"),
        "a\u{2408}b\u{2407}c\u{2400}d\u{2421}"
    );
    assert_eq!(
        shown("a\u{202e}b\u{2066}c".as_bytes()),
        "a\u{fffd}b\u{fffd}c"
    );
}

#[test]
fn case_28_nothing_is_written_over_and_no_line_is_swallowed() {
    assert_eq!(shown(b"rm -rf /\rls      \r\n"), "rm -rf /\nls      \n");
    assert_eq!(shown(b"\x1b]0;never ends\nseen\n"), "\nseen\n");
    assert_eq!(shown(b"\x1b[31\nseen\n"), "\nseen\n");
    let long = [b"\x1b]".as_slice(), &[b'x'; 5000], b"seen"].concat();
    assert!(shown(&long).ends_with("seen"));
}

#[test]
fn case_28_colours_pass_without_concealing_and_end_with_the_output() {
    assert_eq!(shown(b"\x1b[1;31mred\x1b[0m"), "\x1b[1;31mred\x1b[0m");
    assert_eq!(shown(b"\x1b[31mred"), "\x1b[31mred\x1b[0m");
    assert_eq!(shown(b"\x1b[8mhidden\x1b[1;8mx"), "hidden\x1b[1mx\x1b[0m");
    assert_eq!(
        shown(b"\x1b[38;5;8mx\x1b[38;2;8;8;8my\x1b[m"),
        "\x1b[38;5;8mx\x1b[38;2;8;8;8my\x1b[m"
    );
    assert_eq!(shown(b"\x1b[?1mx\x1b[>4;2my"), "xy");
    assert_eq!(
        render(Colours::Drop, [b"\x1b[31mred\x1b[0m".as_slice()]),
        "red"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn case_28_any_bytes_in_any_chunks_give_one_safe_text(
        pieces in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..6),
            prop::sample::select(vec![
                b"\x1b".to_vec(), b"[".to_vec(), b"]52;".to_vec(), b"\r".to_vec(), b"\n".to_vec(),
                b"31m".to_vec(), b"\x1b\\".to_vec(), b"\xe2\x82".to_vec(), b"\xc2\x9b".to_vec(),
            ]),
        ], 0..30),
    ) {
        let whole = pieces.concat();
        let text = shown(&whole);
        prop_assert_eq!(&text, &render(Colours::Keep, pieces.iter().map(Vec::as_slice)));
        prop_assert_eq!(&text, &render(Colours::Keep, whole.chunks(1)));
        let plain = render(Colours::Drop, [whole.as_slice()]);
        prop_assert!(plain.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'), "{:?}", plain);
        for (at, _) in text.match_indices('\u{1b}') {
            let rest = &text[at + 1..];
            let end = rest.find('m').unwrap();
            prop_assert!(rest[..end].starts_with('[')
                && rest[1..end].bytes().all(|b| b.is_ascii_digit() || b == b';' || b == b':'), "{:?}", text);
        }
    }
}
