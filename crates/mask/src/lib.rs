//! Taking secrets out of everything that is kept (R17): byte streams, texts, JSON, events.
//!
//! A masker knows the values of one phase's secrets and looks for all their [forms](patterns) at once.
//! Where several fit, the leftmost counts, and of those the longest. It stands at one place, before the
//! log and event stores, so nothing is kept that did not pass it.

mod events;
pub mod patterns;
mod stream;

use std::{borrow::Cow, fmt, sync::Arc};

use aho_corasick::{AhoCorasick, MatchKind};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

pub use events::EventMasker;
use patterns::Pattern;
pub use stream::StreamMasker;

/// Replaces the secrets of one phase by their names. Cheap to clone.
#[derive(Clone)]
pub struct Masker {
    rules: Arc<Rules>,
}

struct Rules {
    search: AhoCorasick,
    /// For each pattern of `search`, what stands in its place.
    replacements: Vec<Arc<str>>,
    beginnings: Beginnings,
}

impl fmt::Debug for Masker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Masker({} forms)", self.rules.replacements.len())
    }
}

/// Too many forms for one automaton: only thousands of secrets in one phase come here.
#[derive(Debug, thiserror::Error)]
#[error("the secrets of this phase have too many forms to be masked together; name fewer secrets")]
pub struct TooManySecrets(#[source] aho_corasick::BuildError);

impl Masker {
    /// A masker for these names and values. Values of fewer than 8 bytes are not looked for; they are
    /// refused when a secret is set.
    pub fn new<'a>(
        secrets: impl IntoIterator<Item = (&'a str, &'a SecretString)>,
    ) -> Result<Self, TooManySecrets> {
        let mut all: Vec<(Pattern, Arc<str>)> = Vec::new();
        for (name, value) in secrets {
            let replacement: Arc<str> = format!("[masked:{name}]").into();
            let forms = patterns::patterns(value.expose_secret());
            all.extend(
                forms
                    .into_iter()
                    .map(|form| (form, Arc::clone(&replacement))),
            );
        }
        all.sort_by(|a, b| a.0.as_slice().cmp(&b.0));
        all.dedup_by(|a, b| a.0 == b.0);
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(all.iter().map(|(form, _)| form.as_slice()))
            .map_err(TooManySecrets)?;
        let (forms, replacements) = all.into_iter().unzip();
        Ok(Self {
            rules: Arc::new(Rules {
                search,
                replacements,
                beginnings: Beginnings::new(forms),
            }),
        })
    }

    /// A masker for one stream, with its own memory of what was cut.
    pub fn stream(&self) -> StreamMasker {
        StreamMasker::new(self.clone())
    }

    /// Masks a whole text.
    pub fn mask_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if !self.rules.search.is_match(text) {
            return Cow::Borrowed(text);
        }
        let mut out = Vec::with_capacity(text.len());
        self.mask_into(text.as_bytes(), &mut out);
        // Forms begin and end between characters, so this never finds anything to mend.
        Cow::Owned(String::from_utf8_lossy(&out).into_owned())
    }

    /// Masks every text in a JSON value, the keys of objects too.
    pub fn mask_json(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(masked) = self.mask_text(text) {
                    *text = masked;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_json(item)),
            Value::Object(fields) => {
                if fields.keys().any(|key| self.rules.search.is_match(key)) {
                    *fields = std::mem::take(fields)
                        .into_iter()
                        .map(|(key, field)| (self.mask_text(&key).into_owned(), field))
                        .collect();
                }
                fields.values_mut().for_each(|field| self.mask_json(field));
            }
            _ => {}
        }
    }

    /// Masks bytes after which nothing comes.
    pub fn mask_into(&self, bytes: &[u8], out: &mut Vec<u8>) {
        let mut done = 0;
        for found in self.rules.search.find_iter(bytes) {
            out.extend_from_slice(&bytes[done..found.start()]);
            out.extend_from_slice(self.replacement(&found));
            done = found.end();
        }
        out.extend_from_slice(&bytes[done..]);
    }

    /// Masks what no later byte can change, and returns how much that is.
    ///
    /// A match is certain where nothing at or before its start could become a longer or earlier one:
    /// that is, where no tail that begins at or before it is the beginning of a form.
    fn mask_decided(&self, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let beginnings = &self.rules.beginnings;
        let mut open = beginnings.first_open(bytes, 0);
        let mut done = 0;
        for found in self.rules.search.find_iter(bytes) {
            if found.start() >= open {
                break;
            }
            out.extend_from_slice(&bytes[done..found.start()]);
            out.extend_from_slice(self.replacement(&found));
            done = found.end();
            if open < done {
                open = beginnings.first_open(bytes, done);
            }
        }
        out.extend_from_slice(&bytes[done..open]);
        open
    }

    fn replacement(&self, found: &aho_corasick::Match) -> &[u8] {
        self.rules.replacements[found.pattern().as_usize()].as_bytes()
    }
}

/// Answers whether a tail is the beginning of a form.
struct Beginnings {
    /// Sorted, so all forms with a common beginning are neighbours.
    forms: Vec<Pattern>,
    longest: usize,
    /// Which first bytes, and which first two bytes, any form has: turns most tails away at once.
    first: [bool; 256],
    first_two: Box<[u64; 1024]>,
}

impl Beginnings {
    fn new(forms: Vec<Pattern>) -> Self {
        let mut first = [false; 256];
        let mut first_two = Box::new([0; 1024]);
        for form in &forms {
            first[usize::from(form[0])] = true;
            let two = pair(form);
            first_two[two / 64] |= 1 << (two % 64);
        }
        Self {
            longest: forms.iter().map(|form| form.len()).max().unwrap_or(0),
            forms,
            first,
            first_two,
        }
    }

    /// The first place from `from` on where a form may have begun that is not complete yet; the end of
    /// the bytes where there is none.
    fn first_open(&self, bytes: &[u8], from: usize) -> usize {
        let start = bytes.len().saturating_sub(self.longest.saturating_sub(1));
        (start.max(from)..bytes.len())
            .find(|&at| self.is_beginning(&bytes[at..]))
            .unwrap_or(bytes.len())
    }

    /// Whether a form begins with the tail and goes on after it.
    fn is_beginning(&self, tail: &[u8]) -> bool {
        if tail.len() == 1 {
            return self.first[usize::from(tail[0])];
        }
        let two = pair(tail);
        if self.first_two[two / 64] & (1 << (two % 64)) == 0 {
            return false;
        }
        let at = self.forms.partition_point(|form| form.as_slice() < tail);
        let longer = |form: &Pattern| form.len() > tail.len() && form.starts_with(tail);
        self.forms[at..].iter().take(2).any(longer)
    }
}

fn pair(bytes: &[u8]) -> usize {
    usize::from(bytes[0]) << 8 | usize::from(bytes[1])
}
