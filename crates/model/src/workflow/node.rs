//! A YAML file as a tree whose every node knows its place. Reading types off the tree, instead of off
//! the parser, is what lets one pass report every problem of a file at once.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::Spanned;

use super::error::{Place, Problem};

/// The largest workflow file that is read.
pub const FILE_BYTES_MAX: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) place: Place,
}

#[derive(Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Whole(i64),
    Decimal(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order of the file, repeated keys included.
    Map(Vec<(Key, Node)>),
}

#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) place: Place,
}

impl Node {
    /// What the node is, for "found …".
    pub(crate) fn found(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => format!("the truth value {value}"),
            Value::Whole(value) => format!("the number {value}"),
            Value::Decimal(value) => format!("the number {value}"),
            Value::Text(text) => format!("the text {:?}", cut(text)),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
        }
    }
}

/// The beginning of a text that is too long to repeat whole.
pub(crate) fn cut(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Reads one YAML document. Sizes, depth and the expansion of aliases are bounded; merge keys are
/// refused, because what a phase may do must be written where it is used.
pub(crate) fn read(text: &str, what: &str) -> Result<Node, Problem> {
    if text.len() > FILE_BYTES_MAX {
        let size = format!("{} bytes, at most {FILE_BYTES_MAX} are read", text.len());
        return Err(Problem::new(
            Place::START,
            "",
            format!("the file has {size}"),
        ));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 50_000,
            max_nodes: 25_000,
            max_aliases: 1_000,
            max_anchors: 200,
            max_depth: 32,
            max_documents: 1,
            max_recorded_anchor_events: 20_000,
            max_recorded_anchor_bytes: FILE_BYTES_MAX,
            max_total_scalar_bytes: 2 * FILE_BYTES_MAX,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 20_000,
            max_replay_stack_depth: 8,
            max_alias_expansions_per_anchor: 200,
        },
        // Repetitions are reported by the reader, all of them, with both places.
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::PassThrough,
        merge_keys: serde_saphyr::MergeKeyPolicy::Error,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    let tree: Spanned<Value> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| syntax(&error, what))?;
    Ok(Node::from(tree))
}

fn syntax(error: &serde_saphyr::Error, file: &str) -> Problem {
    let place = error.location().map_or(Place::START, Place::from);
    // The parser repeats the place at the end of its sentence; it is printed in front already.
    let whole = error.without_snippet().to_string();
    let what = match whole.rfind(" at line ") {
        _ if whole.contains("Documents {") => "it holds more than one document",
        _ if whole.starts_with("budget breached") => {
            "it is too large, too deep or repeats too much"
        }
        Some(end) => &whole[..end],
        None => &whole,
    };
    Problem::new(place, "", format!("this is not the YAML of {file}: {what}"))
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Self {
        Self {
            place: Place::from(spanned.referenced),
            value: spanned.value,
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Whole(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        let whole = i64::try_from(value).map(Value::Whole);
        whole.map_err(|_| E::custom(format!("the number {value} is too large")))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        if value.is_finite() {
            return Ok(Value::Decimal(value));
        }
        Err(E::custom("a number must be finite"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = list.next_element::<Spanned<Value>>()? {
            nodes.push(Node::from(node));
        }
        Ok(Value::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<Value>>()? {
            let key = Node::from(key);
            let place = key.place;
            let Value::Text(name) = key.value else {
                let found = key.found();
                return Err(A::Error::custom(format!(
                    "a key must be a text, not {found}"
                )));
            };
            let node = map.next_value::<Spanned<Value>>()?;
            entries.push((Key { name, place }, Node::from(node)));
        }
        Ok(Value::Map(entries))
    }
}
