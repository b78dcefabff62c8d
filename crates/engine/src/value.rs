//! What crosses the border of an isolate: data, copied. What stays inside is held by references.

use bytes::Bytes;

use crate::{Crossing, CrossingKind, EngineError, JsonLimits, isolate::State, json, raw};

/// How deep data may be nested. Deeper data, and data that contains itself, does not cross.
const MAX_DEPTH: usize = 64;
/// V8 aborts the process for longer strings.
const MAX_STRING_BYTES: usize = (1 << 29) - 24;

/// Data, as it is on both sides of the border.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    #[default]
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    /// An integer that a `Number` would not hold exactly.
    BigInt(i64),
    String(String),
    /// An `ArrayBuffer` or a view of one; in the other direction always a `Uint8Array`.
    Bytes(Bytes),
    List(Vec<Value>),
    /// The enumerable own properties of an object. Functions and symbols among them count as undefined.
    Object(Vec<(String, Value)>),
    /// What a JSON text means. Outwards only where a host function asks for it: see [`crate::Native::Values`].
    Json(Json),
}

/// A JSON text on its way into an isolate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json {
    pub text: String,
    /// Where there is one: the property `body` of the value, which is then an object.
    pub body: Option<String>,
    pub limits: JsonLimits,
}

/// A value that stays in its isolate, held from outside, on the isolate's thread.
#[derive(Debug, Clone)]
pub struct Reference(pub(crate) v8::Global<v8::Value>);

/// What a function inside is called with.
#[derive(Debug, Clone)]
pub enum Argument {
    Value(Value),
    Reference(Reference),
}

impl From<Value> for Argument {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

impl From<&Reference> for Argument {
    fn from(reference: &Reference) -> Self {
        Self::Reference(reference.clone())
    }
}

impl Argument {
    pub(crate) fn to_v8<'s>(
        &self,
        scope: &mut v8::PinScope<'s, '_>,
    ) -> Result<v8::Local<'s, v8::Value>, EngineError> {
        match self {
            Self::Value(value) => value.to_v8(scope),
            Self::Reference(reference) => Ok(v8::Local::new(scope, &reference.0)),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl Value {
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub fn as_bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// A property of an object; undefined where there is none.
    pub fn get(&self, name: &str) -> &Value {
        let Self::Object(properties) = self else {
            return &Self::Undefined;
        };
        let found = properties.iter().find(|(key, _)| key == name);
        found.map_or(&Self::Undefined, |(_, value)| value)
    }

    pub fn object<const N: usize>(properties: [(&str, Value); N]) -> Self {
        Self::Object(
            properties
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    }

    /// Makes the value inside the isolate of the scope.
    pub(crate) fn to_v8<'s>(
        &self,
        scope: &mut v8::PinScope<'s, '_>,
    ) -> Result<v8::Local<'s, v8::Value>, EngineError> {
        Ok(match self {
            Self::Undefined => v8::undefined(scope).into(),
            Self::Null => v8::null(scope).into(),
            Self::Bool(value) => v8::Boolean::new(scope, *value).into(),
            Self::Number(value) => v8::Number::new(scope, *value).into(),
            Self::BigInt(value) => v8::BigInt::new_from_i64(scope, *value).into(),
            Self::String(text) => string(scope, text)?.into(),
            Self::Bytes(bytes) => bytes_to_v8(scope, bytes)?,
            Self::List(items) => list_to_v8(scope, items)?,
            Self::Object(properties) => object_to_v8(scope, properties)?,
            Self::Json(json) => json_to_v8(scope, json)?,
        })
    }

    /// Copies a value out of its isolate.
    pub(crate) fn from_v8(
        scope: &mut v8::PinScope<'_, '_>,
        value: v8::Local<v8::Value>,
    ) -> Result<Self, EngineError> {
        from_v8_at(scope, value, 0)
    }

    /// Copies a value out where its text or bytes are no longer than `bytes_max`, which is looked at first. What is
    /// neither, and no other simple value, comes as JSON.
    pub(crate) fn from_v8_within(
        scope: &mut v8::PinScope<'_, '_>,
        value: v8::Local<v8::Value>,
        bytes_max: usize,
    ) -> Result<Self, EngineError> {
        let len = if let Ok(text) = v8::Local::<v8::String>::try_from(value) {
            text.length()
        } else if let Ok(view) = v8::Local::<v8::ArrayBufferView>::try_from(value) {
            view.byte_length()
        } else if let Ok(buffer) = v8::Local::<v8::ArrayBuffer>::try_from(value) {
            buffer.byte_length()
        } else if value.is_object() && bytes_max < usize::MAX {
            let limits = JsonLimits::of_bytes(bytes_max);
            let text = json::write(scope, value, "an argument", &limits)?;
            let body = None;
            return Ok(Self::Json(Json { text, body, limits }));
        } else {
            0
        };
        if len > bytes_max {
            return Err(EngineError::Crossing(Crossing {
                kind: CrossingKind::TooLarge,
                path: "an argument".to_owned(),
                reason: format!("has {len} bytes, and may have {bytes_max}"),
            }));
        }
        Self::from_v8(scope, value)
    }
}

/// See [`crate::Isolate::own_properties`].
pub(crate) fn own_properties(
    scope: &mut v8::PinScope<'_, '_>,
    value: v8::Local<v8::Value>,
    most: u32,
) -> Result<Vec<(String, Reference)>, EngineError> {
    let Ok(object) = v8::Local::<v8::Object>::try_from(value) else {
        return Ok(Vec::new());
    };
    if value.is_proxy() {
        return Ok(Vec::new());
    }
    crate::error::catch(scope, |scope| {
        let names = object.get_own_property_names(scope, own_names())?;
        let mut properties = Vec::new();
        for index in 0..names.length().min(most) {
            let name = names.get_index(scope, index)?;
            let Ok(key) = v8::Local::<v8::Name>::try_from(name) else {
                continue;
            };
            let descriptor = object.get_own_property_descriptor(scope, key)?;
            let Ok(descriptor) = v8::Local::<v8::Object>::try_from(descriptor) else {
                continue;
            };
            let value_name = v8::String::new(scope, "value")?;
            if !descriptor.has_own_property(scope, value_name.into())? {
                continue;
            }
            let value = descriptor.get(scope, value_name.into())?;
            let name = name.to_rust_string_lossy(scope);
            properties.push((name, Reference(v8::Global::new(scope, value))));
        }
        Some(properties)
    })
}

pub(crate) fn string<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    text: &str,
) -> Result<v8::Local<'s, v8::String>, EngineError> {
    if text.len() > MAX_STRING_BYTES {
        return Err(too_large("the text", text.len()));
    }
    v8::String::new(scope, text).ok_or_else(|| too_large("the text", text.len()))
}

fn too_large(what: &str, len: usize) -> EngineError {
    EngineError::Value(format!("{what} of {len} bytes is too large"))
}

/// V8 ends the process where a buffer cannot be had, so the limit is asked first.
fn bytes_to_v8<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    bytes: &Bytes,
) -> Result<v8::Local<'s, v8::Value>, EngineError> {
    if State::of(scope).buffers_left() < bytes.len() {
        return Err(too_large("a buffer", bytes.len()));
    }
    let buffer = v8::ArrayBuffer::new(scope, bytes.len());
    raw::fill(buffer, bytes);
    let array = v8::Uint8Array::new(scope, buffer, 0, bytes.len());
    Ok(array
        .ok_or_else(|| too_large("a buffer", bytes.len()))?
        .into())
}

fn list_to_v8<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    items: &[Value],
) -> Result<v8::Local<'s, v8::Value>, EngineError> {
    let items = items
        .iter()
        .map(|item| item.to_v8(scope))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(v8::Array::new_with_elements(scope, &items).into())
}

fn json_to_v8<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    json: &Json,
) -> Result<v8::Local<'s, v8::Value>, EngineError> {
    let value = json::read(scope, &json.text, "the value", &json.limits)?;
    if let (Some(body), Ok(object)) = (&json.body, v8::Local::<v8::Object>::try_from(value)) {
        let (name, body) = (string(scope, "body")?, string(scope, body)?);
        object.create_data_property(scope, name.into(), body.into());
    }
    Ok(value)
}

fn object_to_v8<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    properties: &[(String, Value)],
) -> Result<v8::Local<'s, v8::Value>, EngineError> {
    let object = v8::Object::new(scope);
    for (name, value) in properties {
        let name = string(scope, name)?;
        let value = value.to_v8(scope)?;
        object.create_data_property(scope, name.into(), value);
    }
    Ok(object.into())
}

fn from_v8_at(
    scope: &mut v8::PinScope<'_, '_>,
    value: v8::Local<v8::Value>,
    depth: usize,
) -> Result<Value, EngineError> {
    if depth > MAX_DEPTH {
        let reason = format!("it is nested more than {MAX_DEPTH} deep, or contains itself");
        return Err(EngineError::Value(reason));
    }
    if value.is_null() {
        Ok(Value::Null)
    } else if value.is_boolean() {
        Ok(Value::Bool(value.is_true()))
    } else if let Ok(number) = v8::Local::<v8::Number>::try_from(value) {
        Ok(Value::Number(number.value()))
    } else if let Ok(text) = v8::Local::<v8::String>::try_from(value) {
        Ok(Value::String(text.to_rust_string_lossy(scope)))
    } else if let Ok(number) = v8::Local::<v8::BigInt>::try_from(value) {
        match number.i64_value() {
            (number, true) => Ok(Value::BigInt(number)),
            _ => Err(EngineError::Value(
                "a BigInt needs more than 64 bits".into(),
            )),
        }
    } else if value.is_function() || value.is_symbol() || !value.is_object() {
        Ok(Value::Undefined)
    } else {
        object_from_v8(scope, value, depth)
    }
}

fn object_from_v8(
    scope: &mut v8::PinScope<'_, '_>,
    value: v8::Local<v8::Value>,
    depth: usize,
) -> Result<Value, EngineError> {
    if let Ok(view) = v8::Local::<v8::ArrayBufferView>::try_from(value) {
        return Ok(Value::Bytes(view_bytes(view)));
    }
    if let Ok(buffer) = v8::Local::<v8::ArrayBuffer>::try_from(value) {
        let store = buffer.get_backing_store();
        return Ok(Value::Bytes(
            store.iter().map(std::cell::Cell::get).collect(),
        ));
    }
    let object = v8::Local::<v8::Object>::try_from(value)
        .map_err(|_| EngineError::Value("it is no object".into()))?;
    if let Ok(array) = v8::Local::<v8::Array>::try_from(value) {
        return (0..array.length())
            .map(|index| {
                let item = crate::error::catch(scope, |scope| array.get_index(scope, index))?;
                from_v8_at(scope, item, depth + 1)
            })
            .collect::<Result<_, _>>()
            .map(Value::List);
    }
    let names = crate::error::catch(scope, |scope| {
        object.get_own_property_names(scope, own_names())
    })?;
    let mut properties = Vec::new();
    for index in 0..names.length() {
        let name = crate::error::catch(scope, |scope| names.get_index(scope, index))?;
        let item = crate::error::catch(scope, |scope| object.get(scope, name))?;
        let name = name.to_rust_string_lossy(scope);
        properties.push((name, from_v8_at(scope, item, depth + 1)?));
    }
    Ok(Value::Object(properties))
}

pub(crate) fn own_names() -> v8::GetPropertyNamesArgs {
    v8::GetPropertyNamesArgs {
        mode: v8::KeyCollectionMode::OwnOnly,
        property_filter: v8::PropertyFilter::ONLY_ENUMERABLE | v8::PropertyFilter::SKIP_SYMBOLS,
        index_filter: v8::IndexFilter::IncludeIndices,
        key_conversion: v8::KeyConversionMode::ConvertToString,
    }
}

fn view_bytes(view: v8::Local<v8::ArrayBufferView>) -> Bytes {
    let mut bytes = vec![0; view.byte_length()];
    let copied = view.copy_contents(&mut bytes);
    bytes.truncate(copied);
    bytes.into()
}
