//! The value table: how values of an isolate are written as JSON, and how JSON becomes values inside. The rules are in
//! `docs/plugins/values.md`.
//!
//! The writer asks V8 itself what each value is and never calls the isolate's own `JSON`, nor anything else that code
//! inside could have replaced. It reads each property once, and stops where a limit is passed.

use std::{fmt::Write as _, pin::pin};

use crate::{EngineError, error::catch};

/// What data may cross the border of an isolate as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonLimits {
    /// Of the JSON text.
    pub bytes_max: usize,
    /// How many lists and objects may lie in each other.
    pub depth_max: usize,
    /// Of all objects together.
    pub keys_max: usize,
}

impl JsonLimits {
    pub const DEPTH_MAX: usize = 64;
    pub const KEYS_MAX: usize = 100_000;

    /// The usual limits of depth and keys.
    #[must_use]
    pub const fn of_bytes(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            depth_max: Self::DEPTH_MAX,
            keys_max: Self::KEYS_MAX,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrossingKind {
    /// It is something that has no form as data.
    NotData,
    /// The text would be longer, deeper, or have more keys than the limits allow.
    TooLarge,
    /// A text that is no JSON.
    NotJson,
}

/// Why a value does not cross, and where in it the trouble is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}{}{reason}", if path.is_empty() { "" } else { " " })]
pub struct Crossing {
    pub kind: CrossingKind,
    /// The way to the value: `result.items[3].price`.
    pub path: String,
    /// `is a BigInt; …`
    pub reason: String,
}

/// A path longer than this is shown without its middle.
const PATH_CHARS_MAX: usize = 160;

enum Step {
    Key(String),
    Index(u32),
}

pub(crate) struct Writer<'l> {
    limits: &'l JsonLimits,
    root: &'l str,
    text: String,
    keys: usize,
    path: Vec<Step>,
}

/// Writes a value as JSON. `root` is what the value is called where something about it is wrong.
pub(crate) fn write(
    scope: &mut v8::PinScope<'_, '_>,
    value: v8::Local<v8::Value>,
    root: &str,
    limits: &JsonLimits,
) -> Result<String, EngineError> {
    let mut writer = Writer::new(root, limits);
    writer.value(scope, value, &[])?;
    Ok(writer.text)
}

/// Writes arguments as one JSON list.
pub(crate) fn write_arguments(
    scope: &mut v8::PinScope<'_, '_>,
    arguments: &v8::FunctionCallbackArguments,
    limits: &JsonLimits,
) -> Result<String, EngineError> {
    let mut writer = Writer::new("arguments", limits);
    writer.text.push('[');
    for index in 0..arguments.length() {
        writer.comma(index == 0);
        writer.path.push(Step::Index(index.unsigned_abs()));
        writer.value(scope, arguments.get(index), &[])?;
        writer.path.pop();
    }
    writer.text.push(']');
    Ok(writer.text)
}

impl<'l> Writer<'l> {
    fn new(root: &'l str, limits: &'l JsonLimits) -> Self {
        Self {
            limits,
            root,
            text: String::new(),
            keys: 0,
            path: Vec::new(),
        }
    }

    fn value(
        &mut self,
        scope: &mut v8::PinScope<'_, '_>,
        value: v8::Local<v8::Value>,
        around: &[v8::Local<v8::Value>],
    ) -> Result<(), EngineError> {
        if value.is_null_or_undefined() {
            self.text.push_str("null");
        } else if value.is_boolean() {
            self.text
                .push_str(if value.is_true() { "true" } else { "false" });
        } else if let Ok(number) = v8::Local::<v8::Number>::try_from(value) {
            self.number(scope, number)?;
        } else if let Ok(text) = v8::Local::<v8::String>::try_from(value) {
            self.string(scope, text)?;
        } else if let Ok(date) = v8::Local::<v8::Date>::try_from(value) {
            self.date(date)?;
        } else if let Some(reason) = refusal(scope, value) {
            return Err(self.not_data(reason));
        } else {
            self.container(scope, value, around)?;
        }
        self.room_for(0)
    }

    fn number(
        &mut self,
        scope: &mut v8::PinScope<'_, '_>,
        number: v8::Local<v8::Number>,
    ) -> Result<(), EngineError> {
        let value = number.value();
        if !value.is_finite() {
            let reason = format!("is {value}, which JSON cannot say; give null or a string");
            return Err(self.not_data(reason.replace("inf,", "Infinity,")));
        }
        #[expect(clippy::cast_possible_truncation, reason = "what is cut is looked for")]
        let whole = value as i64;
        #[expect(clippy::cast_precision_loss, reason = "that is what is compared")]
        if whole as f64 == value && whole.unsigned_abs() < 1 << 53 {
            let _ = write!(self.text, "{whole}");
        } else if let Some(text) = number.to_string(scope) {
            self.text.push_str(&text.to_rust_string_lossy(scope));
        }
        Ok(())
    }

    /// A surrogate that stands alone becomes U+FFFD.
    fn string(
        &mut self,
        scope: &mut v8::PinScope<'_, '_>,
        text: v8::Local<v8::String>,
    ) -> Result<(), EngineError> {
        // Before it is copied: each unit of it needs a byte at least.
        self.room_for(text.length())?;
        let text = text.to_rust_string_lossy(scope);
        escape(&mut self.text, &text);
        Ok(())
    }

    fn date(&mut self, date: v8::Local<v8::Date>) -> Result<(), EngineError> {
        let Some(text) = crate::date::iso(date.value_of()) else {
            let reason = "is a Date that is no date (NaN); give null or a string";
            return Err(self.not_data(reason.into()));
        };
        escape(&mut self.text, &text);
        Ok(())
    }

    fn container(
        &mut self,
        scope: &mut v8::PinScope<'_, '_>,
        value: v8::Local<v8::Value>,
        around: &[v8::Local<v8::Value>],
    ) -> Result<(), EngineError> {
        if around.contains(&value) {
            return Err(self.not_data("contains itself; data must end somewhere".into()));
        }
        if around.len() >= self.limits.depth_max {
            let deep = self.limits.depth_max;
            return Err(self.too_large(format!(
                "is nested more than {deep} deep, which is too deep; give a flatter value"
            )));
        }
        let mut around = around.to_vec();
        around.push(value);
        match v8::Local::<v8::Array>::try_from(value) {
            Ok(list) => self.list(scope, list, &around),
            Err(_) => self.object(scope, value, &around),
        }
    }

    fn list(
        &mut self,
        scope: &mut v8::PinScope<'_, '_>,
        list: v8::Local<v8::Array>,
        around: &[v8::Local<v8::Value>],
    ) -> Result<(), EngineError> {
        // Each element needs two bytes at least.
        self.room_for(list.length() as usize * 2)?;
        self.text.push('[');
        for index in 0..list.length() {
            self.comma(index == 0);
            self.path.push(Step::Index(index));
            let scope = pin!(v8::HandleScope::new(scope));
            let scope = &mut scope.init();
            let item = self.read(scope, |scope| list.get_index(scope, index))?;
            self.value(scope, item, around)?;
            self.path.pop();
        }
        self.text.push(']');
        Ok(())
    }

    fn object(
        &mut self,
        scope: &mut v8::PinScope<'_, '_>,
        value: v8::Local<v8::Value>,
        around: &[v8::Local<v8::Value>],
    ) -> Result<(), EngineError> {
        let object = v8::Local::<v8::Object>::try_from(value)
            .map_err(|_| self.not_data("is no data".into()))?;
        let names = self.read(scope, |scope| {
            object.get_own_property_names(scope, crate::value::own_names())
        })?;
        self.keys += names.length() as usize;
        if self.keys > self.limits.keys_max {
            let keys = self.limits.keys_max;
            return Err(self.too_large(format!("has, with the rest, more than {keys} keys")));
        }
        self.text.push('{');
        let mut is_first = true;
        for index in 0..names.length() {
            let scope = pin!(v8::HandleScope::new(scope));
            let scope = &mut scope.init();
            let name = self.read(scope, |scope| names.get_index(scope, index))?;
            let Ok(key) = v8::Local::<v8::String>::try_from(name) else {
                continue;
            };
            self.room_for(key.length())?;
            let key = key.to_rust_string_lossy(scope);
            self.path.push(Step::Key(key.clone()));
            let item = self.read(scope, |scope| object.get(scope, name))?;
            if !item.is_undefined() {
                self.comma(is_first);
                is_first = false;
                escape(&mut self.text, &key);
                self.text.push(':');
                self.value(scope, item, around)?;
            }
            self.path.pop();
        }
        self.text.push('}');
        Ok(())
    }

    fn comma(&mut self, is_first: bool) {
        if !is_first {
            self.text.push(',');
        }
    }

    /// Reads what may be a getter of the author's.
    fn read<'s, R>(
        &self,
        scope: &mut v8::PinScope<'s, '_>,
        read: impl FnOnce(&mut v8::PinScope<'s, '_>) -> Option<R>,
    ) -> Result<R, EngineError> {
        catch(scope, read).map_err(|error| match error {
            EngineError::Thrown(thrown) => self.not_data(format!(
                "cannot be read: its getter threw {}",
                thrown.message
            )),
            other => other,
        })
    }

    fn room_for(&self, more: usize) -> Result<(), EngineError> {
        if self.text.len().saturating_add(more) <= self.limits.bytes_max {
            return Ok(());
        }
        let most = self.limits.bytes_max;
        Err(self.too_large(format!(
            "is too large: all of it may have {most} bytes as JSON"
        )))
    }

    fn not_data(&self, reason: String) -> EngineError {
        self.error(CrossingKind::NotData, reason)
    }

    fn too_large(&self, reason: String) -> EngineError {
        self.error(CrossingKind::TooLarge, reason)
    }

    fn error(&self, kind: CrossingKind, reason: String) -> EngineError {
        EngineError::Crossing(Crossing {
            kind,
            path: self.shown_path(),
            reason,
        })
    }

    fn shown_path(&self) -> String {
        let mut path = self.root.to_owned();
        for step in &self.path {
            let _ = match step {
                Step::Index(index) => write!(path, "[{index}]"),
                Step::Key(key) if is_name(key) => write!(path, ".{key}"),
                Step::Key(key) => write!(path, "[{key:?}]"),
            };
        }
        let count = path.chars().count();
        if count <= PATH_CHARS_MAX {
            return path;
        }
        let half = PATH_CHARS_MAX / 2;
        let start: String = path.chars().take(half).collect();
        let end: String = path.chars().skip(count - half).collect();
        format!("{start}…{end}")
    }
}

fn is_name(key: &str) -> bool {
    let mut chars = key.chars();
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '$';
    chars
        .next()
        .is_some_and(|first| is_part(first) && !first.is_ascii_digit())
        && chars.all(is_part)
}

/// Why a value has no form as data; none for lists and plain objects.
fn refusal(scope: &mut v8::PinScope<'_, '_>, value: v8::Local<v8::Value>) -> Option<String> {
    let kinds = [
        (
            value.is_big_int(),
            "is a BigInt; give a number or a string, such as String(value)",
        ),
        (
            value.is_symbol(),
            "is a symbol; give a string, such as its description",
        ),
        (
            value.is_proxy(),
            "is a Proxy; give a copy, such as { ...value }",
        ),
        (value.is_function(), "is a function, which is no data"),
        (
            value.is_promise(),
            "is a Promise; await it, and give what it comes to",
        ),
        (
            value.is_native_error(),
            "is an Error; give its message, or throw it",
        ),
        (value.is_map(), "is a Map; give Object.fromEntries(value)"),
        (value.is_set(), "is a Set; give [...value]"),
        (
            value.is_array_buffer_view() || value.is_array_buffer(),
            "holds bytes; give host.crypto.base64.encode(value)",
        ),
        (
            value.is_arguments_object(),
            "is an arguments object; give [...value]",
        ),
        (
            value.is_module_namespace_object(),
            "is a module; give what it exports",
        ),
    ];
    if let Some((_, reason)) = kinds.iter().find(|(is_so, _)| *is_so) {
        return Some((*reason).to_owned());
    }
    if value.is_array() {
        return None;
    }
    let object = v8::Local::<v8::Object>::try_from(value).ok()?;
    let prototype = object.get_prototype(scope)?;
    let plain = v8::Object::new(scope).get_prototype(scope)?;
    if prototype == plain {
        return None;
    }
    if prototype.is_null() {
        return Some("has no prototype; give a plain object, such as { ...value }".to_owned());
    }
    let class = object.get_constructor_name().to_rust_string_lossy(scope);
    let class: String = class.chars().take(60).collect();
    Some(format!(
        "is an object of the class {class}; give a plain object, such as {{ ...value }}"
    ))
}

fn escape(into: &mut String, text: &str) {
    into.push('"');
    let mut from = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        into.push_str(&text[from..at]);
        from = at + 1;
        match byte {
            b'"' => into.push_str("\\\""),
            b'\\' => into.push_str("\\\\"),
            b'\n' => into.push_str("\\n"),
            b'\r' => into.push_str("\\r"),
            b'\t' => into.push_str("\\t"),
            byte => {
                let _ = write!(into, "\\u{byte:04x}");
            }
        }
    }
    into.push_str(&text[from..]);
    into.push('"');
}

/// Makes the value that a JSON text means, where it is within the limits.
pub(crate) fn read<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    text: &str,
    root: &str,
    limits: &JsonLimits,
) -> Result<v8::Local<'s, v8::Value>, EngineError> {
    check(text, limits).map_err(|(kind, reason)| {
        EngineError::Crossing(Crossing {
            kind,
            path: root.to_owned(),
            reason,
        })
    })?;
    let string = crate::value::string(scope, text)?;
    catch(scope, |scope| v8::json::parse(scope, string)).map_err(|error| match error {
        EngineError::Thrown(thrown) => EngineError::Crossing(Crossing {
            kind: CrossingKind::NotJson,
            path: root.to_owned(),
            reason: format!("is no JSON: {}", thrown.message),
        }),
        other => other,
    })
}

/// Whether a text is within the limits, if it is JSON at all: that is V8's to say.
pub fn check(text: &str, limits: &JsonLimits) -> Result<(), (CrossingKind, String)> {
    if text.len() > limits.bytes_max {
        let (len, most) = (text.len(), limits.bytes_max);
        let reason = format!("is too large: it has {len} bytes, and may have {most}");
        return Err((CrossingKind::TooLarge, reason));
    }
    let (mut depth, mut keys) = (0usize, 0usize);
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_string(bytes, at),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b':' => keys += 1,
            b'0'..=b'9' => {
                let end = end_of_number(bytes, at);
                if !is_finite(&text[at..end]) {
                    let reason = "has a number that no Number can hold".to_owned();
                    return Err((CrossingKind::NotData, reason));
                }
                at = end - 1;
            }
            _ => {}
        }
        if depth > limits.depth_max {
            let deep = limits.depth_max;
            let reason = format!("is nested more than {deep} deep, which is too deep");
            return Err((CrossingKind::TooLarge, reason));
        }
        if keys > limits.keys_max {
            let most = limits.keys_max;
            let reason = format!("has more than {most} keys");
            return Err((CrossingKind::TooLarge, reason));
        }
        at += 1;
    }
    Ok(())
}

/// Where the quote is that ends the string which begins here.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

fn end_of_number(bytes: &[u8], start: usize) -> usize {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    let len = bytes[start..]
        .iter()
        .take_while(|byte| is_part(byte))
        .count();
    start + len
}

/// Numbers of common length need no look.
fn is_finite(number: &str) -> bool {
    if number.len() <= 300 && !number.contains(['e', 'E']) {
        return true;
    }
    number.parse::<f64>().is_ok_and(f64::is_finite)
}
