//! What a plugin's `host` asks of the platform: one message a function, and one answer. The protobuf file has their
//! shapes, units and limits.

pub use crate::generated::platform::v1::*;

use call::Call as Asked;

impl Call {
    /// The number of the asked function in [`crate::methods`]. None where the sender is newer than this reader.
    pub fn method(&self) -> Option<u32> {
        self.call.as_ref().map(Asked::method)
    }
}

/// The numbers of the oneofs' variants, which protobuf knows and prost does not say.
macro_rules! numbers {
    ($($variant:ident = $number:literal),+ $(,)?) => {
        impl Asked {
            pub const fn method(&self) -> u32 {
                match self {
                    $(Self::$variant(_) => $number),+
                }
            }
        }

        impl answer::Answer {
            /// Of the function that it answers; none for an error, which answers any.
            pub const fn method(&self) -> Option<u32> {
                match self {
                    Self::Error(_) => None,
                    $(Self::$variant(_) => Some($number)),+
                }
            }
        }
    };
}

numbers!(
    GetSecret = 3,
    SessionMessages = 30,
    SessionPost = 31,
    SessionSendError = 32,
    SessionTodosList = 33,
    SessionTodosSet = 34,
    SessionTimersList = 35,
    SessionTimersSet = 36,
    SessionTimersCancel = 37,
    SessionLlmComplete = 38,
    SessionInfo = 39,
    AgentsList = 50,
    AgentsAsk = 51,
    AgentsSend = 52,
    ModelsList = 55,
    WorkspaceRead = 60,
    WorkspaceWrite = 61,
    WorkspaceList = 62,
    WorkspaceStat = 63,
    WorkspaceRemove = 64,
    WorkspaceMove = 65,
    LlmComplete = 70,
    DecideNoul = 75,
    DecideChoose = 76,
    DecideScore = 77,
    MediaUpload = 80,
    MediaTranscode = 81,
    MediaInfo = 82,
    SshCommand = 90,
    ConnectionSend = 95,
);

impl Error {
    pub fn new(code: error::Code, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
        }
    }

    /// The answer to a call that a platform does not carry out.
    pub fn unavailable(path: &str) -> Self {
        let message = format!("host.{path} is not offered here");
        Self::new(error::Code::Unavailable, message)
    }
}

impl From<Error> for Answer {
    fn from(error: Error) -> Self {
        Self {
            answer: Some(answer::Answer::Error(error)),
        }
    }
}

impl error::Code {
    /// As programs see it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Denied => "denied",
            Self::NotFound => "not_found",
            Self::BadRequest => "bad_request",
            Self::Limit => "limit",
            Self::Unspecified | Self::Failed => "failed",
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use prost::Message;

    use super::*;
    use crate::methods::{METHODS, Where};

    /// P4: every function that the platform carries out has a message of its own under its number, and no other has.
    #[test]
    fn p4_the_messages_are_those_of_the_table_of_methods() {
        for number in 1..=200_u32 {
            let is_platforms = METHODS
                .iter()
                .any(|m| m.number == number && m.carried_out == Where::Platform);
            // A field of that number, with an empty message in it.
            let mut bytes = Vec::new();
            prost::encoding::encode_key(
                number,
                prost::encoding::WireType::LengthDelimited,
                &mut bytes,
            );
            bytes.push(0);
            let call = Call::decode(bytes.as_slice()).unwrap();
            let expected = is_platforms.then_some(number);
            assert_eq!(call.method(), expected, "Call's field {number}");
            let answer = Answer::decode(bytes.as_slice()).unwrap();
            let answers = answer.answer.map(|answer| answer.method());
            let expected_answer = if number == 1 {
                Some(None)
            } else {
                expected.map(Some)
            };
            assert_eq!(answers, expected_answer, "Answer's {number}");
        }
    }
}
