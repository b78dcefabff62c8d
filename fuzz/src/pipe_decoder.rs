//! The frames that come up from an invocation's process.

use bulkhead_wire::pipe::{
    Call, Decoder, Done, FrameError, Framed, FromInvocation, Log, Ready, Waiting, done, encode, from_invocation::Frame,
};

/// The first byte says in which pieces the others come.
pub fn pipe_decoder(data: &[u8]) {
    let Some((piece, bytes)) = data.split_first() else {
        return;
    };
    let in_pieces = decode(bytes, usize::from(*piece).max(1));
    let at_once = decode(bytes, bytes.len().max(1));
    assert_eq!(in_pieces, at_once, "the same bytes, in other pieces");
    for message in &in_pieces.0 {
        let again = encode(message).expect("what was decoded can be encoded");
        let (messages, error) = decode(&again, again.len());
        assert_eq!((messages.as_slice(), error), ([message.clone()].as_slice(), None));
    }
}

fn decode(bytes: &[u8], piece: usize) -> (Vec<FromInvocation>, Option<FrameError>) {
    let mut decoder = Decoder::<FromInvocation>::default();
    let mut messages = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.push(piece);
        loop {
            match decoder.take() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => {
                    if let FrameError::TooLong { len, max } = &error {
                        assert!(len > max && *max == FromInvocation::BYTES_MAX);
                    }
                    return (messages, Some(error));
                }
            }
        }
    }
    (messages, None)
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let done = Done {
        outcome: Some(done::Outcome::ResultJson("{\"a\":[1,2]}".into())),
        ..Done::default()
    };
    let frames = [
        Frame::Ready(Ready {}),
        Frame::Call(Call { id: 1, method: 4, arguments_json: "[\"https://a.example\"]".into() }),
        Frame::Log(Log { level: 2, text: "words".into() }),
        Frame::Waiting(Waiting {}),
        Frame::Done(done),
    ];
    let encoded = frames.map(|frame| encode(&FromInvocation { frame: Some(frame) }).unwrap_or_default());
    let mut seeds: Vec<_> = encoded.iter().map(|bytes| [&[3], bytes.as_slice()].concat()).collect();
    seeds.push([&[7], encoded.concat().as_slice()].concat());
    seeds
}
