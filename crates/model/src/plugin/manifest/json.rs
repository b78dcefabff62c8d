//! JSON text as the tree that the reader takes values off, with every place.
//!
//! The tree's parser is that of YAML, of which JSON is a part but for three things, and they are mended here without
//! moving anything: a tab between tokens, an escaped pair of surrogates, an escaped solidus.

use crate::workflow::{
    Problem, WorkflowError,
    error::Place,
    node::{self, Node},
};

pub(super) fn not_text(file: &str) -> WorkflowError {
    WorkflowError {
        file: file.to_owned(),
        problems: vec![Problem::new(Place::START, "", "the file is not UTF-8 text")],
        more: 0,
    }
}

/// The tree, and the values themselves.
pub(super) fn parse(text: &str) -> Result<(Node, serde_json::Value), Problem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > node::FILE_BYTES_MAX {
        let message = format!(
            "the file has {} bytes, at most {} are read",
            text.len(),
            node::FILE_BYTES_MAX
        );
        return Err(Problem::new(Place::START, "", message));
    }
    let value = serde_json::from_str(text).map_err(|error| {
        let place = Place {
            line: error.line().max(1) as u64,
            column: error.column().max(1) as u64,
        };
        // The place is printed in front already.
        let whole = error.to_string();
        let what = whole
            .rfind(" at line ")
            .map_or(whole.as_str(), |end| &whole[..end]);
        Problem::new(place, "", format!("this is no JSON: {what}"))
    })?;
    let tree = node::read(&as_yaml(text), "a plugin's manifest")?;
    Ok((tree, value))
}

fn as_yaml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    let mut in_string = false;
    while let Some(c) = rest.next() {
        match c {
            '"' => {
                in_string = !in_string;
                out.push(c);
            }
            '\t' if !in_string => out.push(' '),
            '\\' if in_string => escape(&mut rest, &mut out),
            c => out.push(c),
        }
    }
    out
}

/// The characters after a backslash of a string that is known to be good.
fn escape(rest: &mut std::str::Chars<'_>, out: &mut String) {
    match rest.next() {
        Some('/') => out.push('/'),
        Some('u') => {
            let first = hex(rest);
            let unit = match first {
                0xd800..0xdc00 => {
                    // A good JSON string has the other half here.
                    rest.nth(1);
                    0x1_0000 + ((first - 0xd800) << 10) + (hex(rest).wrapping_sub(0xdc00) & 0x3ff)
                }
                unit => unit,
            };
            match char::from_u32(unit) {
                Some(c) if c > '\u{ffff}' => out.push(c),
                _ => out.push_str(&format!("\\u{unit:04x}")),
            }
        }
        Some(c) => {
            out.push('\\');
            out.push(c);
        }
        None => {}
    }
}

fn hex(rest: &mut std::str::Chars<'_>) -> u32 {
    let digits = rest.by_ref().take(4).filter_map(|c| c.to_digit(16));
    digits.fold(0, |value, digit| value << 4 | digit)
}
