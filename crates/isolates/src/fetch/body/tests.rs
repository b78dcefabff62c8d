//! HT6, HT12: what a body decodes to, in whatever pieces it comes.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{
    Compression,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};
use http::HeaderValue;
use proptest::prelude::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::*;

const LIMIT: usize = 1 << 20;
/// Made by the reference implementation: "hello brotli", and so many zero bytes.
const BROTLI_HELLO: &str = "iwWAaGVsbG8gYnJvdGxpAw==";
const BROTLI_5_MIB: &str = "m///T/gnAOKxQCD3/gk=";
const BROTLI_64_MIB: &str = "y///P/gnAOKxQCD3/o///3/wTwDEYRGA7v0f////4J8AiMMCAN37P/7//8E/ARCHBQC693/8//+DfwIgDgsAdO//+P//B/8EQBwWAOje//H//w/+CYA4LADQvf/L//8//BMAcVgAoHv/Bw==";
/// With a window of a gigabyte.
const BROTLI_LARGE_WINDOW: &str = "ER4WAAJoZWxsbyBicm90bGkD";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn bare(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

fn base64(text: &str) -> Vec<u8> {
    STANDARD.decode(text).unwrap()
}

fn decode(
    coding: &'static str,
    bytes: &[u8],
    piece: usize,
    bytes_max: usize,
) -> Result<Vec<u8>, BodyError> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
    let mut decoding = Decoding::new(&headers, bytes_max)?;
    for piece in bytes.chunks(piece) {
        decoding.push(piece)?;
    }
    decoding.finish()
}

proptest! {
    #[test]
    fn ht12_every_coding_gives_back_what_went_in(text in "[ab]{0,300}", piece in 1usize..40) {
        let plain = text.as_bytes();
        let forms = [
            ("gzip", gzip(plain)), ("x-gzip", gzip(plain)), ("deflate", zlib(plain)), ("deflate", bare(plain)),
            ("zstd", zstd(plain)), ("identity", plain.to_vec()), ("zstd, gzip", gzip(&zstd(plain))),
            ("gzip", [gzip(plain), gzip(b"!")].concat()), ("zstd", [zstd(plain), zstd(b"!")].concat()),
        ];
        for (index, (coding, bytes)) in forms.iter().enumerate() {
            let expected = if index >= 7 { format!("{text}!") } else { text.clone() };
            prop_assert_eq!(decode(coding, bytes, piece, LIMIT).unwrap(), expected.as_bytes(), "{}", coding);
        }
    }

    /// A body that is cut anywhere is an error, never half a body taken for a whole one.
    #[test]
    fn ht12_a_cut_body_is_an_error(cut in 1usize..2_000, piece in 1usize..40) {
        let plain: Vec<u8> = (0..3_000_u32).map(|n| (n * n % 251).to_le_bytes()[0]).collect();
        for (coding, bytes) in [("gzip", gzip(&plain)), ("deflate", zlib(&plain)), ("deflate", bare(&plain)), ("zstd", zstd(&plain))] {
            let cut = cut.min(bytes.len() - 1);
            let outcome = decode(coding, &bytes[..bytes.len() - cut], piece, LIMIT);
            prop_assert!(matches!(outcome, Err(BodyError::Broken(_))), "{} cut by {}", coding, cut);
        }
    }

    /// No bytes make a decoder panic or give more than the limit.
    #[test]
    fn ht6_any_bytes_are_a_body_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400), piece in 1usize..80) {
        for coding in ["gzip", "deflate", "br", "zstd", "br, zstd"] {
            if let Ok(body) = decode(coding, &bytes, piece, 1_000) {
                prop_assert!(body.len() <= 1_000);
            }
        }
    }
}

#[test]
fn ht12_brotli_is_read() {
    let hello = base64(BROTLI_HELLO);
    for piece in 1..20 {
        assert_eq!(decode("br", &hello, piece, LIMIT).unwrap(), b"hello brotli");
        let cut = decode("br", &hello[..hello.len() - 1], piece, LIMIT);
        assert!(matches!(cut, Err(BodyError::Broken(_))), "{cut:?}");
        let longer = decode("br", &[hello.as_slice(), b"more"].concat(), piece, LIMIT);
        assert!(matches!(longer, Err(BodyError::Broken(_))), "{longer:?}");
    }
}

#[test]
fn ht6_the_limit_is_on_what_comes_out_and_exact() {
    let zeros = vec![0; LIMIT];
    for (coding, bytes) in [
        ("gzip", gzip(&zeros)),
        ("deflate", zlib(&zeros)),
        ("zstd", zstd(&zeros)),
        ("identity", zeros.clone()),
    ] {
        assert_eq!(
            decode(coding, &bytes, 4_096, LIMIT).unwrap().len(),
            LIMIT,
            "{coding}"
        );
        let error = decode(coding, &bytes, 4_096, LIMIT - 1).unwrap_err();
        assert!(matches!(error, BodyError::TooLarge(_)), "{coding}: {error}");
    }
    let brotli = base64(BROTLI_5_MIB);
    assert_eq!(decode("br", &brotli, 1, 5 << 20).unwrap().len(), 5 << 20);
    let error = decode("br", &brotli, 1, (5 << 20) - 1).unwrap_err();
    assert!(matches!(error, BodyError::TooLarge(_)), "{error}");
}

#[test]
fn ht6_bombs_end_early() {
    let zeros = vec![0; 64 << 20];
    for (coding, bytes) in [
        ("gzip", gzip(&zeros)),
        ("zstd", zstd(&zeros)),
        ("br", base64(BROTLI_64_MIB)),
        ("gzip, gzip", gzip(&gzip(&zeros))),
    ] {
        let error = decode(coding, &bytes, 1_000, 5 << 20).unwrap_err();
        assert!(matches!(error, BodyError::TooLarge(_)), "{coding}: {error}");
    }
}

#[test]
fn ht6_windows_beyond_what_the_codings_allow_are_refused() {
    let error = decode("br", &base64(BROTLI_LARGE_WINDOW), 100, LIMIT).unwrap_err();
    assert!(matches!(error, BodyError::Broken(_)), "{error}");
    // A frame whose header says a window of a gigabyte: 20 is the exponent over 1 KiB.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0, 20 << 3, 1, 0, 0];
    let error = decode("zstd", &frame, 100, LIMIT).unwrap_err();
    assert!(matches!(error, BodyError::Broken(_)), "{error}");
}

#[test]
fn ht6_blocks_that_hold_nothing_do_not_go_on_for_ever() {
    let empty_member = gzip(b"");
    let endless = empty_member.repeat((LIMIT + OVERHEAD_BYTES_MAX) / empty_member.len() + 1);
    let error = decode("gzip", &endless, 4_096, LIMIT).unwrap_err();
    assert!(matches!(error, BodyError::TooLarge(_)), "{error}");
}

#[test]
fn ht12_codings_that_are_not_known_are_named() {
    let error = decode("compress", b"x", 1, LIMIT).unwrap_err();
    assert!(error.to_string().contains("compress"), "{error}");
    assert!(matches!(
        decode("gzip, gzip, gzip", b"x", 1, LIMIT),
        Err(BodyError::TooManyCodings)
    ));
    for coding in ["gzip", "deflate", "br", "zstd"] {
        assert_eq!(
            decode(coding, b"", 1, LIMIT).unwrap(),
            b"",
            "nothing, compressed"
        );
        let skippable = [0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9];
        assert_eq!(decode("zstd", &skippable, 1, LIMIT).unwrap(), b"");
    }
}
