//! The little of DNS's wire format (RFC 1035, RFC 6891) that a stub needs: one question in, addresses out.

use std::net::IpAddr;

const HEADER: usize = 12;
const MAX_NAME: usize = 255;
const QR: u16 = 0x8000;
const TC: u16 = 0x0200;
const RD: u16 = 0x0100;
const RA: u16 = 0x0080;
const OPCODE: u16 = 0x7800;
const CLASS_IN: u16 = 1;
const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const TYPE_OPT: u16 = 41;
/// What fits in a packet without EDNS, and the most that is sent with it.
const PLAIN_BYTES: usize = 512;
const EDNS_BYTES: usize = 1_232;
const TTL_S: u32 = 30;

/// One question, with what its answer must repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    id: u16,
    flags: u16,
    /// The name, type and class exactly as they came, case included.
    wire: Vec<u8>,
    qtype: u16,
    qclass: u16,
    /// The name as text; None where it has bytes that no host name has.
    pub(crate) name: Option<String>,
    /// The largest UDP answer that the asker takes.
    udp_bytes: usize,
}

/// Kinds of answers, by their response codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Addresses(Vec<IpAddr>),
    Failed,
    NoSuchName,
    NotImplemented,
    Refused,
}

/// What carries the answer decides how long it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Udp,
    Tcp,
}

impl Question {
    /// Reads a query. None for everything that is not a well-formed query with one question: such packets
    /// get no answer at all.
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        let id = word(packet, 0)?;
        let flags = word(packet, 2)?;
        let counts = [word(packet, 4)?, word(packet, 6)?, word(packet, 8)?];
        let additional = word(packet, 10)?;
        if flags & QR != 0 || counts != [1, 0, 0] || additional > 1 {
            return None;
        }
        let (name, end) = read_name(packet, HEADER)?;
        let (qtype, qclass) = (word(packet, end)?, word(packet, end + 2)?);
        let wire = packet.get(HEADER..end + 4)?.to_vec();
        let rest = packet.get(end + 4..)?;
        let udp_bytes = match additional {
            0 => rest.is_empty().then_some(PLAIN_BYTES)?,
            _ => read_opt(rest)?.clamp(PLAIN_BYTES, EDNS_BYTES),
        };
        Some(Self {
            id,
            flags,
            wire,
            qtype,
            qclass,
            name,
            udp_bytes,
        })
    }

    /// What can be said without looking at the name, if it is anything but an ordinary query.
    pub(crate) fn unusual(&self) -> Option<Answer> {
        match (self.flags & OPCODE, self.qclass) {
            (0, CLASS_IN) => None,
            (0, _) => Some(Answer::Refused),
            _ => Some(Answer::NotImplemented),
        }
    }

    /// Writes an answer. Over UDP, what does not fit becomes an empty answer that says "ask by TCP".
    pub(crate) fn answer(&self, answer: &Answer, transport: Transport) -> Vec<u8> {
        let records = self.records(answer);
        let whole = self.write(answer, &records, 0);
        match transport {
            Transport::Udp if whole.len() > self.udp_bytes => self.write(answer, &[], TC),
            _ => whole,
        }
    }

    /// The addresses of the family that was asked for. Another type of record exists for no name here.
    fn records(&self, answer: &Answer) -> Vec<IpAddr> {
        let is_asked = |address: &&IpAddr| match address {
            IpAddr::V4(_) => self.qtype == TYPE_A,
            IpAddr::V6(_) => self.qtype == TYPE_AAAA,
        };
        match answer {
            Answer::Addresses(found) => found.iter().filter(is_asked).copied().collect(),
            _ => Vec::new(),
        }
    }

    fn write(&self, answer: &Answer, records: &[IpAddr], truncated: u16) -> Vec<u8> {
        let code: u16 = match answer {
            Answer::Addresses(_) => 0,
            Answer::Failed => 2,
            Answer::NoSuchName => 3,
            Answer::NotImplemented => 4,
            Answer::Refused => 5,
        };
        let flags = QR | (self.flags & (OPCODE | RD)) | RA | truncated | code;
        let count = u16::try_from(records.len()).unwrap_or(u16::MAX);
        let mut packet = Vec::with_capacity(PLAIN_BYTES);
        for word in [self.id, flags, 1, count, 0, 0] {
            packet.extend(word.to_be_bytes());
        }
        packet.extend(&self.wire);
        for address in records.iter().take(usize::from(count)) {
            self.write_record(&mut packet, *address);
        }
        packet
    }

    fn write_record(&self, packet: &mut Vec<u8>, address: IpAddr) {
        // A pointer to the question's name.
        packet.extend([0xc0, 0x0c]);
        packet.extend(self.qtype.to_be_bytes());
        packet.extend(CLASS_IN.to_be_bytes());
        packet.extend(TTL_S.to_be_bytes());
        match address {
            IpAddr::V4(v4) => {
                packet.extend([0, 4]);
                packet.extend(v4.octets());
            }
            IpAddr::V6(v6) => {
                packet.extend([0, 16]);
                packet.extend(v6.octets());
            }
        }
    }
}

fn word(packet: &[u8], at: usize) -> Option<u16> {
    let bytes = packet.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes(bytes.try_into().ok()?))
}

/// Reads an uncompressed name: its text, where it can be a host's, and where it ends. A question has
/// nothing before it that a pointer could rightly point to.
fn read_name(packet: &[u8], start: usize) -> Option<(Option<String>, usize)> {
    let mut at = start;
    let mut text = Some(String::new());
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        if length > 63 {
            return None;
        }
        let label = packet.get(at..at + length)?;
        at += length;
        if at - start >= MAX_NAME {
            return None;
        }
        let is_host = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        text = text.filter(|_| label.iter().all(is_host)).map(|mut text| {
            if !text.is_empty() {
                text.push('.');
            }
            text.extend(label.iter().map(|byte| char::from(*byte)));
            text
        });
    }
    Some((text, at))
}

/// Reads the one additional record that a query may have, and gives the size of answers it asks for.
fn read_opt(rest: &[u8]) -> Option<usize> {
    let is_opt = *rest.first()? == 0 && word(rest, 1)? == TYPE_OPT;
    let size = word(rest, 3)?;
    let length = usize::from(word(rest, 9)?);
    (is_opt && rest.len() == 11 + length).then_some(usize::from(size))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use proptest::prelude::*;

    use super::*;

    pub(super) fn query(name: &str, qtype: u16) -> Vec<u8> {
        let mut packet = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.').filter(|label| !label.is_empty()) {
            packet.push(u8::try_from(label.len()).unwrap());
            packet.extend(label.as_bytes());
        }
        packet.push(0);
        packet.extend(qtype.to_be_bytes());
        packet.extend([0, 1]);
        packet
    }

    #[test]
    fn a_question_is_read_and_repeated_in_its_answer() {
        let question = Question::parse(&query("Api.Example.com", TYPE_A)).unwrap();
        assert_eq!(question.name.as_deref(), Some("Api.Example.com"));
        let both = Answer::Addresses(vec![
            "8.8.4.4".parse().unwrap(),
            "2606:4700::1".parse().unwrap(),
        ]);
        let packet = question.answer(&both, Transport::Udp);
        assert_eq!(packet[..8], [0x12, 0x34, 0x81, 0x80, 0, 1, 0, 1]);
        assert!(packet.ends_with(&[0, 4, 8, 8, 4, 4]));
    }

    #[test]
    fn what_is_no_query_gets_no_answer() {
        let good = query("a.b", TYPE_A);
        assert!(Question::parse(&good).is_some());
        for (at, value) in [
            (2, 0x81),
            (5, 0),
            (5, 2),
            (7, 1),
            (9, 1),
            (11, 1),
            (11, 2),
            (12, 0xc0),
            (12, 64),
        ] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(Question::parse(&bad), None, "byte {at} = {value:#x}");
        }
        for end in 0..good.len() {
            assert_eq!(Question::parse(&good[..end]), None, "cut at {end}");
        }
        let mut trailing = good;
        trailing.push(0);
        assert_eq!(Question::parse(&trailing), None);
    }

    #[test]
    fn a_dot_or_odd_byte_inside_a_label_is_no_host_name() {
        for label in [&b"a.b"[..], b"a b", b"a\0b", b"\xff", b"*"] {
            let mut packet = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            packet.push(u8::try_from(label.len()).unwrap());
            packet.extend(label);
            packet.extend([0, 0, 1, 0, 1]);
            assert_eq!(Question::parse(&packet).unwrap().name, None, "{label:?}");
        }
    }

    #[test]
    fn a_long_answer_is_cut_over_udp_and_whole_over_tcp() {
        let question = Question::parse(&query("a.b", TYPE_AAAA)).unwrap();
        let many = Answer::Addresses(vec!["2606:4700::1".parse().unwrap(); 64]);
        let udp = question.answer(&many, Transport::Udp);
        assert!(udp.len() <= PLAIN_BYTES);
        assert_eq!(
            (udp[2] & 2, udp[7]),
            (2, 0),
            "TC is set and no record is there"
        );
        let tcp = question.answer(&many, Transport::Tcp);
        assert_eq!((tcp[2] & 2, tcp[7]), (0, 64));
    }

    proptest! {
        /// No packet makes the parser panic, and every answer repeats the question it was for.
        #[test]
        fn any_packet_is_read_or_dropped(packet in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Some(question) = Question::parse(&packet) {
                let answer = question.answer(&Answer::NoSuchName, Transport::Udp);
                prop_assert_eq!(&answer[..2], &packet[..2]);
                prop_assert_eq!(&answer[12..], &question.wire[..]);
            }
        }

        /// The same with a well-formed head, so that names and what follows them are reached.
        #[test]
        fn any_question_is_read_or_dropped(tail in proptest::collection::vec(any::<u8>(), 0..300), opt in 0u8..2) {
            let mut packet = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, opt];
            packet.extend(tail);
            if let Some(question) = Question::parse(&packet) {
                prop_assert!(question.answer(&Answer::Failed, Transport::Tcp).len() >= HEADER);
            }
        }
    }
}
