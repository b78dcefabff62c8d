//! What an invocation can say of its own failure (P7), in words for the plugin's author.

use bulkhead_engine::{CrossingKind, EngineError, JsError};
use bulkhead_wire::pipe::{Failure, Position, failure::Reason};

/// How many characters a message may have (P7).
pub(crate) const MESSAGE_CHARS_MAX: usize = 500;
/// Functions of a stack that are told.
const STACK_MAX: usize = 32;
/// Characters of a name in a stack.
const NAME_CHARS_MAX: usize = 200;

pub(crate) const HEAP_LIMIT: &str =
    "the memory limit was reached: keep less at once, or work in smaller parts";

pub(crate) const NEVER_SETTLES: &str = "the handler's promise can never settle: it waits, and no call to host is under \
     way that could wake it. Is a promise made by hand never resolved?";

/// When something went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Time {
    Load,
    Run,
}

pub(crate) fn failure(reason: Reason, message: &str, time: Time) -> Failure {
    Failure {
        reason: reason.into(),
        message: cut(message, MESSAGE_CHARS_MAX),
        stack: Vec::new(),
        at_load: time == Time::Load,
    }
}

/// What the engine says happened, where `thrown` is what it is called that something was thrown.
pub(crate) fn of_engine(error: &EngineError, thrown: Reason, time: Time) -> Failure {
    match error {
        EngineError::Thrown(error) => of_thrown(error, thrown, time),
        EngineError::HeapLimit => failure(Reason::HeapLimit, HEAP_LIMIT, time),
        EngineError::Crossing(crossing) => {
            let reason = match crossing.kind {
                CrossingKind::TooLarge => Reason::ResultTooLarge,
                CrossingKind::NotData | CrossingKind::NotJson => Reason::ResultNotData,
            };
            failure(reason, &crossing.to_string(), time)
        }
        EngineError::Terminated(_) | EngineError::Value(_) => {
            failure(Reason::ResultNotData, &error.to_string(), time)
        }
    }
}

pub(crate) fn of_thrown(error: &JsError, reason: Reason, time: Time) -> Failure {
    let mut stack: Vec<Position> = error
        .frames
        .iter()
        .take(STACK_MAX)
        .map(|frame| Position {
            function: cut(&frame.function, NAME_CHARS_MAX),
            file: cut(&frame.place.file, NAME_CHARS_MAX),
            line: frame.place.line,
            column: frame.place.column,
        })
        .collect();
    if let (true, Some(place)) = (stack.is_empty(), &error.place) {
        stack.push(Position {
            function: String::new(),
            file: cut(&place.file, NAME_CHARS_MAX),
            line: place.line,
            column: place.column,
        });
    }
    Failure {
        stack,
        ..failure(reason, &error.message, time)
    }
}

/// The first characters of a text; where some are missing, the last of them says so.
pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some(_) => text
            .chars()
            .take(chars_max - 1)
            .chain(std::iter::once('…'))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::cut;

    /// P7: a message is cut between characters, to 500 of them.
    #[test]
    fn p7_a_text_is_cut_between_characters() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äö…");
        assert_eq!(cut(&"😀".repeat(501), 500).chars().count(), 500);
    }
}
