//! What can go wrong inside an isolate, with its place in the source.

use std::{fmt, pin::pin};

use crate::{
    Crossing, Value,
    isolate::{State, Trust},
};

/// The names of scripts that belong to the program and not to the author of a plug begin so; places in them are
/// passed over when an error's place is looked for.
const OWN_SCRIPTS: &str = "bulkhead:";

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// It threw, or the promise that it returned was rejected.
    #[error("{0}")]
    Thrown(JsError),
    /// A [`Handle`](crate::Handle) ended it, at a place in the author's script where it was in one.
    #[error("its execution was ended{}", at(.0))]
    Terminated(Option<Place>),
    #[error("its memory limit was reached")]
    HeapLimit,
    /// A value cannot leave or enter the isolate.
    #[error("a value cannot cross between JavaScript and its host: {0}")]
    Value(String),
    /// A value cannot cross as JSON; it names the part that cannot.
    #[error(transparent)]
    Crossing(#[from] Crossing),
}

fn at(place: &Option<Place>) -> String {
    place
        .as_ref()
        .map_or_else(String::new, |place| format!(" at {place}"))
}

/// A line and column in a source, both counted from one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub file: String,
    pub line: u32,
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A value that was thrown, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsError {
    /// As JavaScript shows it: `TypeError: x is not a function`.
    pub message: String,
    /// Its property `code`, as errors of a file system have one.
    pub code: Option<String>,
    /// Where it was thrown, the innermost place in a script of the author's.
    pub place: Option<Place>,
    /// All places, innermost first, one a line.
    pub stack: Option<String>,
    /// The same as data, in scripts of the author's only. Known where the isolate's code is not trusted.
    pub frames: Box<[Frame]>,
}

/// One function on the way to where something was thrown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Empty where the function has no name.
    pub function: String,
    pub place: Place,
}

impl fmt::Display for JsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.place {
            Some(place) => write!(f, " ({place})"),
            None => Ok(()),
        }
    }
}

/// An error that a host function throws into JavaScript.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Thrown {
    pub message: String,
    /// Properties of the error object beside its message: `code`, `path`.
    pub properties: Vec<(String, Value)>,
    pub kind: ThrownKind,
}

/// The class of the error object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ThrownKind {
    #[default]
    Error,
    TypeError,
    RangeError,
}

impl Thrown {
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..Self::default()
        }
    }

    pub fn type_error(message: impl Into<String>) -> Self {
        Self {
            kind: ThrownKind::TypeError,
            ..Self::new(message)
        }
    }

    pub fn range_error(message: impl Into<String>) -> Self {
        Self {
            kind: ThrownKind::RangeError,
            ..Self::new(message)
        }
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.properties.push((name.to_owned(), value));
        self
    }

    pub(crate) fn to_exception<'s>(
        &self,
        scope: &mut v8::PinScope<'s, '_>,
    ) -> v8::Local<'s, v8::Value> {
        let message =
            v8::String::new(scope, &self.message).unwrap_or_else(|| v8::String::empty(scope));
        let error = match self.kind {
            ThrownKind::Error => v8::Exception::error(scope, message),
            ThrownKind::TypeError => v8::Exception::type_error(scope, message),
            ThrownKind::RangeError => v8::Exception::range_error(scope, message),
        };
        let Some(object) = error.to_object(scope) else {
            return error;
        };
        for (name, value) in &self.properties {
            if let (Some(name), Ok(value)) = (v8::String::new(scope, name), value.to_v8(scope)) {
                object.create_data_property(scope, name.into(), value);
            }
        }
        error
    }
}

/// Runs something that may throw, and turns what it threw into words.
pub(crate) fn catch<'s, R>(
    scope: &mut v8::PinScope<'s, '_>,
    run: impl FnOnce(&mut v8::PinScope<'s, '_>) -> Option<R>,
) -> Result<R, EngineError> {
    let scope = pin!(v8::TryCatch::new(scope));
    let scope = &mut scope.init();
    if let Some(result) = run(scope) {
        return Ok(result);
    }
    if scope.has_terminated() {
        return Err(EngineError::Terminated(None));
    }
    let message = scope.message();
    let Some(exception) = scope.exception() else {
        return Err(EngineError::Terminated(None));
    };
    scope.reset();
    Err(EngineError::Thrown(describe(scope, exception, message)))
}

/// A thrown value in words. Where its own stack says no place, the place of the message is taken: that of a syntax
/// error, say.
pub(crate) fn describe(
    scope: &mut v8::PinScope<'_, '_>,
    exception: v8::Local<v8::Value>,
    message: Option<v8::Local<v8::Message>>,
) -> JsError {
    if State::of(scope).trust == Trust::Nobody {
        return describe_quietly(scope, exception, message);
    }
    let stack = property(scope, exception, "stack").map(|stack| frames_of(&stack));
    let place = stack
        .as_deref()
        .and_then(first_place)
        .or_else(|| message.and_then(|message| place_of(scope, message)));
    JsError {
        message: words(scope, exception),
        code: property(scope, exception, "code"),
        place,
        stack: stack.filter(|stack| !stack.is_empty()),
        frames: Box::default(),
    }
}

/// The same without running any code of the isolate's: no getter, no `toString`, no `prepareStackTrace`.
fn describe_quietly(
    scope: &mut v8::PinScope<'_, '_>,
    exception: v8::Local<v8::Value>,
    message: Option<v8::Local<v8::Message>>,
) -> JsError {
    let trace = v8::Exception::get_stack_trace(scope, exception)
        .or_else(|| message.and_then(|message| message.get_stack_trace(scope)));
    let frames = trace.map_or_else(Box::default, |trace| frames(scope, trace));
    let place = frames
        .first()
        .map(|frame| frame.place.clone())
        .or_else(|| message.and_then(|message| place_of(scope, message)));
    JsError {
        message: quiet_words(scope, exception),
        code: None,
        place,
        stack: None,
        frames,
    }
}

/// To read a longer text, V8 would first put its parts together, for which there may be no memory.
const WORDS_UNITS_MAX: usize = 1 << 20;

/// What a value says, as V8 shows it without running any code.
pub(crate) fn quiet_words(scope: &mut v8::PinScope<'_, '_>, value: v8::Local<v8::Value>) -> String {
    let Some(text) = value.to_detail_string(scope) else {
        return "a value without words".to_owned();
    };
    match text.length() {
        0..=WORDS_UNITS_MAX => text.to_rust_string_lossy(scope),
        units => format!("a text of {units} characters, which is too long to be shown"),
    }
}

fn frames(scope: &mut v8::PinScope<'_, '_>, trace: v8::Local<v8::StackTrace>) -> Box<[Frame]> {
    (0..trace.get_frame_count())
        .filter_map(|index| {
            let frame = trace.get_frame(scope, index)?;
            let function = frame.get_function_name(scope);
            Some(Frame {
                place: place_of_frame(scope, frame)?,
                function: function
                    .map_or_else(String::new, |name| name.to_rust_string_lossy(scope)),
            })
        })
        .collect()
}

fn place_of_frame(
    scope: &mut v8::PinScope<'_, '_>,
    frame: v8::Local<v8::StackFrame>,
) -> Option<Place> {
    let file = frame.get_script_name(scope)?.to_rust_string_lossy(scope);
    Some(Place {
        line: u32::try_from(frame.get_line_number()).ok()?,
        column: u32::try_from(frame.get_column()).ok()?,
        file: plain(&file)?,
    })
}

/// The words that JavaScript itself would show, without running any code of the value's.
fn words(scope: &mut v8::PinScope<'_, '_>, exception: v8::Local<v8::Value>) -> String {
    if !exception.is_native_error() {
        return exception.to_detail_string(scope).map_or_else(
            || "a value without words".to_owned(),
            |text| text.to_rust_string_lossy(scope),
        );
    }
    let name = property(scope, exception, "name").unwrap_or_else(|| "Error".to_owned());
    match property(scope, exception, "message") {
        Some(message) if !message.is_empty() => format!("{name}: {message}"),
        _ => name,
    }
}

fn property(
    scope: &mut v8::PinScope<'_, '_>,
    exception: v8::Local<v8::Value>,
    name: &str,
) -> Option<String> {
    let scope = pin!(v8::TryCatch::new(scope));
    let scope = &mut scope.init();
    let object = v8::Local::<v8::Object>::try_from(exception).ok()?;
    let name = v8::String::new(scope, name)?;
    let value = object.get(scope, name.into())?;
    let text = v8::Local::<v8::String>::try_from(value).ok()?;
    Some(text.to_rust_string_lossy(scope))
}

/// The lines of a stack that are places: its first lines repeat the message.
fn frames_of(stack: &str) -> String {
    let frames: Vec<&str> = stack
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("at "))
        .collect();
    frames.join("\n")
}

/// The innermost place in a script of the author's, of what runs now.
pub(crate) fn current_place(scope: &mut v8::PinScope<'_, '_>) -> Option<Place> {
    let stack = v8::StackTrace::current_stack_trace(scope, 32)?;
    (0..stack.get_frame_count()).find_map(|index| {
        let frame = stack.get_frame(scope, index)?;
        place_of_frame(scope, frame)
    })
}

/// The file that a script's name means; none for the program's own scripts.
fn plain(name: &str) -> Option<String> {
    (!name.starts_with(OWN_SCRIPTS))
        .then(|| name.strip_prefix("file://").unwrap_or(name).to_owned())
}

fn first_place(frames: &str) -> Option<Place> {
    frames.lines().filter_map(parse_frame).find(|place| {
        !place.file.starts_with(OWN_SCRIPTS)
            && place.file != "native"
            && !place.file.starts_with('<')
    })
}

/// `at onSession (/plugs/a.ts:3:9)`, `at async f (…)` or `at /plugs/a.ts:3:9`.
fn parse_frame(frame: &str) -> Option<Place> {
    let frame = frame.strip_prefix("at ")?;
    let place = match (frame.find(" ("), frame.strip_suffix(')')) {
        (Some(open), Some(inside)) => &inside[open + 2..],
        _ => frame.strip_prefix("async ").unwrap_or(frame),
    };
    let (rest, column) = place.rsplit_once(':')?;
    let (file, line) = rest.rsplit_once(':')?;
    Some(Place {
        file: file.strip_prefix("file://").unwrap_or(file).to_owned(),
        line: line.parse().ok()?,
        column: column.parse().ok()?,
    })
}

fn place_of(scope: &mut v8::PinScope<'_, '_>, message: v8::Local<v8::Message>) -> Option<Place> {
    let file = message.get_script_resource_name(scope)?;
    let file = v8::Local::<v8::String>::try_from(file).ok()?;
    Some(Place {
        file: plain(&file.to_rust_string_lossy(scope))?,
        line: u32::try_from(message.get_line_number(scope)?).ok()?,
        column: u32::try_from(message.get_start_column())
            .ok()?
            .checked_add(1)?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Place, parse_frame};

    #[test]
    fn frames_are_read_in_all_their_forms() {
        let place = |file: &str| {
            Some(Place {
                file: file.to_owned(),
                line: 3,
                column: 9,
            })
        };
        let frames = [
            ("at onSession (/plugs/a.ts:3:9)", "/plugs/a.ts"),
            ("at async onSession (/a (b)/a.ts:3:9)", "/a (b)/a.ts"),
            ("at /plugs/a.ts:3:9", "/plugs/a.ts"),
            ("at async /plugs/a.ts:3:9", "/plugs/a.ts"),
            (
                "at new A (bulkhead:prelude/fs.js:3:9)",
                "bulkhead:prelude/fs.js",
            ),
        ];
        for (frame, file) in frames {
            assert_eq!(parse_frame(frame), place(file), "{frame}");
        }
        assert_eq!(parse_frame("at Array.map (<anonymous>)"), None);
        assert_eq!(parse_frame("Error: at nothing"), None);
    }
}
