//! The forms in which a secret may turn up in output.
//!
//! | form | which |
//! |---|---|
//! | raw | the value, without the white space around it; with CR LF for LF; each line of 8 characters and more of a value of several lines (not the markers of PEM files) |
//! | base64 | both alphabets, padded and not, alone, with a newline behind it, and anywhere inside longer data (all three alignments); wrapped at 76 and 64 columns at every place where a line may end, for values up to [`WRAPPED_MAX`] bytes (longer ones: encoded alone) |
//! | hex | upper and lower case |
//! | URL | what browsers, forms, RFC 3986 and common libraries leave unescaped, in upper and lower case; every character escaped; the base64 form escaped |
//! | JSON | with and without `\/`, `\uXXXX` for what is not ASCII and for `<>&'"+`, either case; JSON inside JSON |
//! | shell | single quotes, double quotes, backslashes |
//! | HTML | `&amp;` and its like |
//!
//! Not covered, and said in the documentation: compression, encryption, other bases, values that a
//! program prints in pieces with something between, bytes as `\x41` or as spaced hex dumps.

use std::fmt::Write as _;

use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE},
};
use zeroize::Zeroizing;

/// Shorter forms are not masked: they would hide innocent text.
const MIN_BYTES: usize = 8;
/// Up to this size a value is found in wrapped base64 wherever the lines break.
pub const WRAPPED_MAX: usize = 256;
/// Line lengths of base64 in use: MIME and `base64`, and PEM.
const WIDTHS: [usize; 2] = [76, 64];

pub(crate) type Pattern = Zeroizing<Vec<u8>>;

/// Every form of a value, without repetitions.
pub(crate) fn patterns(value: &str) -> Vec<Pattern> {
    let value = value.trim();
    let mut found = Found::default();
    if value.len() < MIN_BYTES {
        return Vec::new();
    }
    found.add(value);
    found.add(&value.replace('\n', "\r\n"));
    base64_forms(value, &mut found);
    hex_forms(value, &mut found);
    escaped_forms(value, &mut found);
    if value.contains('\n') {
        for line in value.lines().map(str::trim).filter(|line| !is_marker(line)) {
            found.add(line);
            escaped_forms(line, &mut found);
        }
    }
    found.into_patterns()
}

#[derive(Default)]
struct Found(Vec<Pattern>);

impl Found {
    fn add(&mut self, text: &str) {
        if text.len() >= MIN_BYTES {
            self.0.push(Zeroizing::new(text.as_bytes().to_vec()));
        }
    }

    fn into_patterns(mut self) -> Vec<Pattern> {
        self.0.sort_unstable_by(|a, b| a.as_slice().cmp(b));
        self.0.dedup();
        self.0
    }
}

/// The first and last lines of PEM files are the same in all of them.
fn is_marker(line: &str) -> bool {
    line.starts_with("-----BEGIN ") || line.starts_with("-----END ")
}

fn base64_forms(value: &str, found: &mut Found) {
    let with_newline = Zeroizing::new(format!("{value}\n"));
    for engine in [BASE64_STANDARD, BASE64_URL_SAFE] {
        for whole in [value, &with_newline] {
            let encoded = Zeroizing::new(engine.encode(whole));
            found.add(&encoded);
            found.add(encoded.trim_end_matches('='));
            for_each_url(&encoded, |escaped| found.add(escaped));
            for width in WIDTHS {
                found.add(&wrap(&encoded, width, width, "\n"));
                found.add(&wrap(&encoded, width, width, "\r\n"));
            }
        }
        for before in 0..3 {
            let core = Core::of(value, before, &engine);
            found.add(&core.text);
            if value.len() <= WRAPPED_MAX {
                core.wrapped(found);
            }
        }
    }
}

/// The part of an encoding that is the same whatever stands before and after the value.
struct Core {
    text: Zeroizing<String>,
    /// Where in a group of four its first character stands.
    column: usize,
}

impl Core {
    fn of(value: &str, before: usize, engine: &impl base64::Engine) -> Self {
        let mut bytes = Zeroizing::new(vec![0; before]);
        bytes.extend_from_slice(value.as_bytes());
        let encoded = Zeroizing::new(engine.encode(bytes.as_slice()));
        // A character holds six bits; those that hold a bit of a neighbour are left out.
        let first = (before * 8).div_ceil(6);
        let last = bytes.len() * 8 / 6;
        Self {
            text: Zeroizing::new(encoded[first..last].to_owned()),
            column: first % 4,
        }
    }

    /// Lines have a multiple of four characters, so one can only end where a group of four does.
    fn wrapped(&self, found: &mut Found) {
        for width in WIDTHS {
            let last = self.text.len().saturating_sub(1).min(width);
            for at in (1..=last).filter(|at| (at + self.column).is_multiple_of(4)) {
                found.add(&wrap(&self.text, at, width, "\n"));
                found.add(&wrap(&self.text, at, width, "\r\n"));
            }
        }
    }
}

/// Breaks a line after `first` characters and then after every `width`.
fn wrap(text: &str, first: usize, width: usize, newline: &str) -> Zeroizing<String> {
    let mut wrapped = Zeroizing::new(String::with_capacity(text.len() * 2));
    let (mut rest, mut take) = (text, first);
    while rest.len() > take {
        let (line, after) = rest.split_at(take);
        wrapped.push_str(line);
        wrapped.push_str(newline);
        (rest, take) = (after, width);
    }
    wrapped.push_str(rest);
    wrapped
}

fn hex_forms(value: &str, found: &mut Found) {
    let mut lower = Zeroizing::new(String::with_capacity(value.len() * 2));
    for byte in value.as_bytes() {
        // Writing to a string cannot fail.
        let _ = write!(lower, "{byte:02x}");
    }
    found.add(&lower);
    found.add(&Zeroizing::new(lower.to_uppercase()));
}

fn escaped_forms(value: &str, found: &mut Found) {
    for_each_url(value, |escaped| found.add(escaped));
    for_each_json(value, |escaped| found.add(escaped));
    for_each_quoted(value, |escaped| found.add(escaped));
}

/// What is left unescaped, beside letters and digits, and by whom.
const URL_STYLES: [(&str, &str); 7] = [
    ("-._~", "%20"),                 // RFC 3986
    ("-._~!'()*", "%20"),            // encodeURIComponent
    ("-._~!'()*;,/?:@&=+$#", "%20"), // encodeURI
    ("-._~/", "%20"),                // paths
    ("*-._", "+"),                   // HTML forms
    ("-._~", "+"),                   // forms by many libraries
    ("", "%20"),                     // everything but letters and digits
];

fn for_each_url(value: &str, mut use_form: impl FnMut(&str)) {
    for lower in [Case::Upper, Case::Lower] {
        for (kept, space) in URL_STYLES {
            let keep = |byte: u8| byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte);
            use_form(&percent(value, keep, space, lower));
        }
        use_form(&percent(value, |_| false, "%20", lower));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Upper,
    Lower,
}

fn percent(value: &str, keep: impl Fn(u8) -> bool, space: &str, case: Case) -> Zeroizing<String> {
    let mut escaped = Zeroizing::new(String::with_capacity(value.len() * 3));
    for byte in value.bytes() {
        if keep(byte) {
            escaped.push(char::from(byte));
        } else if byte == b' ' {
            escaped.push_str(space);
        } else {
            // Writing to a string cannot fail.
            let _ = match case {
                Case::Upper => write!(escaped, "%{byte:02X}"),
                Case::Lower => write!(escaped, "%{byte:02x}"),
            };
        }
    }
    escaped
}

/// How a JSON writer escapes what it need not.
#[derive(Debug, Clone, Copy)]
struct JsonStyle {
    /// Written as `\uXXXX` though they are plain ASCII.
    wary_of: &'static str,
    ascii_only: bool,
    slash: bool,
    /// `\b` and `\f` have short forms, which not all use.
    short: bool,
    case: Case,
}

const PLAIN: JsonStyle = JsonStyle {
    wary_of: "",
    ascii_only: false,
    slash: false,
    short: true,
    case: Case::Lower,
};

const JSON_STYLES: [JsonStyle; 9] = [
    PLAIN,
    JsonStyle {
        slash: true,
        ..PLAIN
    },
    JsonStyle {
        short: false,
        ..PLAIN
    },
    JsonStyle {
        short: false,
        case: Case::Upper,
        ..PLAIN
    },
    JsonStyle {
        ascii_only: true,
        ..PLAIN
    },
    JsonStyle {
        ascii_only: true,
        case: Case::Upper,
        ..PLAIN
    },
    JsonStyle {
        ascii_only: true,
        slash: true,
        ..PLAIN
    },
    JsonStyle {
        wary_of: "<>&\u{2028}\u{2029}",
        ..PLAIN
    },
    JsonStyle {
        wary_of: "<>&'\"+`",
        ascii_only: true,
        case: Case::Upper,
        ..PLAIN
    },
];

fn for_each_json(value: &str, mut use_form: impl FnMut(&str)) {
    for style in JSON_STYLES {
        let once = json(value, style);
        use_form(&once);
        use_form(&json(&once, PLAIN));
    }
}

fn json(value: &str, style: JsonStyle) -> Zeroizing<String> {
    let mut escaped = Zeroizing::new(String::with_capacity(value.len() * 2));
    for c in value.chars() {
        match c {
            _ if style.wary_of.contains(c) => unicode(c, style.case, &mut escaped),
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            '\u{8}' if style.short => escaped.push_str("\\b"),
            '\u{c}' if style.short => escaped.push_str("\\f"),
            '/' if style.slash => escaped.push_str("\\/"),
            '\0'..='\u{1f}' => unicode(c, style.case, &mut escaped),
            _ if style.ascii_only && !c.is_ascii() => unicode(c, style.case, &mut escaped),
            _ => escaped.push(c),
        }
    }
    escaped
}

fn unicode(c: char, case: Case, into: &mut String) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        // Writing to a string cannot fail.
        let _ = match case {
            Case::Upper => write!(into, "\\u{unit:04X}"),
            Case::Lower => write!(into, "\\u{unit:04x}"),
        };
    }
}

/// Characters that a shell reads as themselves.
fn is_plain_in_shell(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:=@%^,+".contains(c) || !c.is_ascii()
}

fn for_each_quoted(value: &str, mut use_form: impl FnMut(&str)) {
    use_form(&value.replace('\'', r"'\''"));
    use_form(&value.replace('\'', r#"'"'"'"#));
    use_form(&prefixed(value, |c| r#"$`"\!"#.contains(c)));
    use_form(&prefixed(value, |c| r#"$`"\"#.contains(c)));
    use_form(&prefixed(value, |c| !is_plain_in_shell(c)));
    use_form(&prefixed(value, |c| {
        !is_plain_in_shell(c) || c == '^' || c == ','
    }));
    use_form(&prefixed(value, |c| "'\\".contains(c)).replace('\n', "\\n"));
    let html = value
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    use_form(&html);
    let quoted = html.replace('"', "&quot;");
    use_form(&quoted);
    for apostrophe in ["&#39;", "&#x27;", "&apos;"] {
        use_form(&quoted.replace('\'', apostrophe));
    }
    use_form(&quoted.replace("&quot;", "&#34;").replace('\'', "&#39;"));
}

/// A backslash before each character that asks for one.
fn prefixed(value: &str, needs: impl Fn(char) -> bool) -> Zeroizing<String> {
    let mut escaped = Zeroizing::new(String::with_capacity(value.len() * 2));
    for c in value.chars() {
        if needs(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
