//! Git's packet lines: the frame of both protocols, parsed strictly and within bounds.

use crate::names::{Oid, RefName};

/// The longest packet that git sends, header included.
const MAX_PACKET: usize = 65_520;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    Data(&'a [u8]),
    Flush,
    Delimiter,
    ResponseEnd,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the request is not well-formed: {0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Takes one packet off the front. `None` means that more bytes are needed.
pub(crate) fn take<'a>(bytes: &mut &'a [u8]) -> Result<Option<Packet<'a>>, Malformed> {
    let Some(head) = bytes.get(..4) else {
        return Ok(None);
    };
    let digits =
        std::str::from_utf8(head).map_err(|_| Malformed("a packet's length is not a number"))?;
    let length = usize::from_str_radix(digits, 16)
        .map_err(|_| Malformed("a packet's length is not a number"))?;
    let packet = match length {
        0 => Packet::Flush,
        1 => Packet::Delimiter,
        2 => Packet::ResponseEnd,
        4..=MAX_PACKET => match bytes.get(4..length) {
            Some(data) => Packet::Data(data),
            None => return Ok(None),
        },
        _ => return Err(Malformed("a packet has an impossible length")),
    };
    *bytes = &bytes[length.max(4)..];
    Ok(Some(packet))
}

pub(crate) fn push(out: &mut Vec<u8>, data: &[u8]) {
    debug_assert!(data.len() + 4 <= MAX_PACKET, "a packet that we write fits");
    out.extend(format!("{:04x}", data.len() + 4).bytes());
    out.extend(data);
}

pub(crate) fn flush(out: &mut Vec<u8>) {
    out.extend(b"0000");
}

/// One ref update that a push asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefUpdate {
    pub(crate) name: RefName,
    pub(crate) old: Oid,
    pub(crate) new: Oid,
}

/// The head of a push: its ref updates and capabilities. The pack follows after `length` bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PushHead {
    pub(crate) updates: Vec<RefUpdate>,
    pub(crate) capabilities: Vec<String>,
    pub(crate) length: usize,
}

/// Parses the ref updates of a push. `None` means that more bytes are needed.
pub(crate) fn push_head(bytes: &[u8]) -> Result<Option<PushHead>, Malformed> {
    let mut rest = bytes;
    let mut head = PushHead {
        updates: Vec::new(),
        capabilities: Vec::new(),
        length: 0,
    };
    loop {
        match take(&mut rest)? {
            None => return Ok(None),
            Some(Packet::Flush) => {
                head.length = bytes.len() - rest.len();
                return Ok(Some(head));
            }
            Some(Packet::Data(line)) => command(line, &mut head)?,
            Some(_) => return Err(Malformed("an unexpected packet among the ref updates")),
        }
    }
}

fn command(line: &[u8], head: &mut PushHead) -> Result<(), Malformed> {
    let (line, capabilities) = match line.iter().position(|&byte| byte == 0) {
        Some(end) => (&line[..end], Some(&line[end + 1..])),
        None => (line, None),
    };
    if let Some(capabilities) = capabilities {
        let text = String::from_utf8_lossy(capabilities);
        head.capabilities
            .extend(text.split_whitespace().map(str::to_owned));
    }
    if line.starts_with(b"push-cert") {
        return Err(Malformed(
            "signed pushes are not accepted: push without --signed",
        ));
    }
    if line.starts_with(b"shallow ") {
        return Err(Malformed(
            "a push from a shallow clone is not accepted: fetch the whole branch first",
        ));
    }
    let text = std::str::from_utf8(line).map_err(|_| Malformed("a ref name is not UTF-8"))?;
    let mut words = text.trim_end_matches('\n').splitn(3, ' ');
    let (Some(old), Some(new), Some(name)) = (words.next(), words.next(), words.next()) else {
        return Err(Malformed("a ref update is incomplete"));
    };
    head.updates.push(RefUpdate {
        name: name
            .parse()
            .map_err(|_| Malformed("a ref name is not acceptable"))?,
        old: old
            .parse()
            .map_err(|_| Malformed("an object id is not one"))?,
        new: new
            .parse()
            .map_err(|_| Malformed("an object id is not one"))?,
    });
    Ok(())
}

/// What a fetch request asks for, read from its body before git sees it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct FetchHead {
    /// The protocol-v2 command; `None` for the older protocols.
    pub(crate) command: Option<String>,
    pub(crate) wants: Vec<Oid>,
    /// Wants by name, which the gateway does not offer.
    pub(crate) want_refs: bool,
    pub(crate) filter: bool,
}

pub(crate) fn fetch_head(body: &[u8]) -> Result<FetchHead, Malformed> {
    let mut rest = body;
    let mut head = FetchHead::default();
    while let Some(packet) = take(&mut rest)? {
        let Packet::Data(line) = packet else { continue };
        let line = String::from_utf8_lossy(line);
        let (word, value) = line
            .trim_end_matches('\n')
            .split_once([' ', '='])
            .unwrap_or((&line, ""));
        match word {
            "command" if head.command.is_none() => head.command = Some(value.to_owned()),
            "command" => return Err(Malformed("a request has two commands")),
            "want" => {
                let oid = value.split([' ', '\0']).next().unwrap_or_default();
                head.wants.push(
                    oid.parse()
                        .map_err(|_| Malformed("a want is not an object id"))?,
                );
            }
            "want-ref" => head.want_refs = true,
            "filter" => head.filter = true,
            _ => {}
        }
    }
    if rest.is_empty() {
        Ok(head)
    } else {
        Err(Malformed("the last packet is incomplete"))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]
    use proptest::prelude::*;

    use super::*;

    fn packets(lines: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            push(&mut out, line);
        }
        flush(&mut out);
        out
    }

    #[test]
    fn a_push_head_is_complete_only_with_its_flush() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let line = format!("{a} {b} refs/heads/x\0 report-status side-band-64k");
        let mut bytes = packets(&[line.as_bytes()]);
        for end in 0..bytes.len() {
            assert_eq!(push_head(&bytes[..end]).unwrap(), None);
        }
        bytes.extend(b"PACK");
        let head = push_head(&bytes).unwrap().unwrap();
        assert_eq!(head.length, bytes.len() - 4);
        assert_eq!(head.updates[0].name.as_str(), "refs/heads/x");
        assert_eq!(head.capabilities, ["report-status", "side-band-64k"]);
    }

    #[test]
    fn certificates_shallow_pushes_and_odd_lengths_are_refused() {
        assert!(push_head(&packets(&[b"push-cert\0x"])).is_err());
        assert!(push_head(&packets(&[b"shallow aaaa"])).is_err());
        assert!(push_head(b"0003").is_err());
        assert!(push_head(b"fff5").is_err());
        assert!(push_head(b"zzzz").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parsers_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = push_head(&bytes);
            let _ = fetch_head(&bytes);
        }
    }
}
