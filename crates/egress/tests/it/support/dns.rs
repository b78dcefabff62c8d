//! A real name server on loopback, UDP and TCP on one port, whose zone is a function.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, UdpSocket},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

/// What the server does with one question.
pub(crate) enum Reply {
    Addresses(Vec<IpAddr>),
    /// A chain of aliases that ends at addresses.
    Chain(Vec<String>, Vec<IpAddr>),
    NxDomain,
    /// No answer for this long, then one address.
    Slow(Duration, IpAddr),
}

/// Gets the lower-case name and how often that name was asked for with this type before.
type Zone = dyn Fn(&str, usize) -> Reply + Send + Sync;

#[derive(Clone)]
pub(crate) struct DnsServer {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<(String, u16)>>>,
    zone: Arc<Zone>,
}

pub(crate) fn reply(addresses: &[&str]) -> Reply {
    Reply::Addresses(addresses.iter().map(|text| text.parse().unwrap()).collect())
}

impl DnsServer {
    pub(crate) fn start(zone: impl Fn(&str, usize) -> Reply + Send + Sync + 'static) -> Self {
        let (udp, tcp) = bind_both();
        let server = Self {
            address: udp.local_addr().unwrap(),
            asked: Arc::default(),
            zone: Arc::new(zone),
        };
        let (for_udp, for_tcp) = (server.clone(), server.clone());
        thread::spawn(move || for_udp.serve_udp(&udp));
        thread::spawn(move || for_tcp.serve_tcp(&tcp));
        server
    }

    /// The names that were asked for, with the types of records.
    pub(crate) fn asked(&self) -> Vec<(String, u16)> {
        self.asked.lock().unwrap().clone()
    }

    fn serve_udp(&self, socket: &UdpSocket) {
        let mut packet = [0; 2_048];
        while let Ok((size, from)) = socket.recv_from(&mut packet) {
            let (server, query) = (self.clone(), packet[..size].to_vec());
            let socket = socket.try_clone().unwrap();
            thread::spawn(move || {
                let mut answer = server.answer(&query);
                if answer.len() > 1_232 {
                    // Truncated: the header and the question alone.
                    let end = question_end(&query);
                    answer.truncate(end);
                    answer[2] |= 2;
                    answer[6..8].fill(0);
                }
                let _ = socket.send_to(&answer, from);
            });
        }
    }

    fn serve_tcp(&self, listener: &TcpListener) {
        for stream in listener.incoming() {
            let (server, Ok(mut stream)) = (self.clone(), stream) else {
                return;
            };
            thread::spawn(move || {
                let mut length = [0; 2];
                while stream.read_exact(&mut length).is_ok() {
                    let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
                    stream.read_exact(&mut query).unwrap();
                    let answer = server.answer(&query);
                    let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
                    let _ = stream.write_all(&[&length[..], &answer].concat());
                }
            });
        }
    }

    fn answer(&self, query: &[u8]) -> Vec<u8> {
        let end = question_end(query);
        let name = read_name(query);
        let qtype = u16::from_be_bytes([query[end - 4], query[end - 3]]);
        let before = {
            let mut asked = self.asked.lock().unwrap();
            let before = asked
                .iter()
                .filter(|a| **a == (name.clone(), qtype))
                .count();
            asked.push((name.clone(), qtype));
            before
        };
        let (code, chain, addresses) = match (self.zone)(&name, before) {
            Reply::Addresses(found) => (0, Vec::new(), found),
            Reply::Chain(chain, found) => (0, chain, found),
            Reply::NxDomain => (3, Vec::new(), Vec::new()),
            Reply::Slow(time, address) => {
                thread::sleep(time);
                (0, Vec::new(), vec![address])
            }
        };
        let mut records = Vec::new();
        let mut owner = name;
        for alias in chain {
            records.push((owner, 5, wire_name(&alias)));
            owner = alias;
        }
        for address in addresses {
            match address {
                IpAddr::V4(v4) if qtype == 1 => {
                    records.push((owner.clone(), 1, v4.octets().to_vec()))
                }
                IpAddr::V6(v6) if qtype == 28 => {
                    records.push((owner.clone(), 28, v6.octets().to_vec()))
                }
                _ => {}
            }
        }
        write_answer(&query[..end], code, &records)
    }
}

fn bind_both() -> (UdpSocket, TcpListener) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()) {
            return (udp, tcp);
        }
    }
}

fn question_end(query: &[u8]) -> usize {
    let mut at = 12;
    while query[at] != 0 {
        at += 1 + usize::from(query[at]);
    }
    at + 5
}

fn read_name(query: &[u8]) -> String {
    let (mut at, mut labels) = (12, Vec::new());
    while query[at] != 0 {
        let length = usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..at + 1 + length]).to_lowercase());
        at += 1 + length;
    }
    labels.join(".")
}

fn wire_name(name: &str) -> Vec<u8> {
    let mut wire = Vec::new();
    for label in name.split('.') {
        wire.push(u8::try_from(label.len()).unwrap());
        wire.extend(label.as_bytes());
    }
    wire.push(0);
    wire
}

fn write_answer(query: &[u8], code: u8, records: &[(String, u16, Vec<u8>)]) -> Vec<u8> {
    let mut packet = query.to_vec();
    packet[2..4].copy_from_slice(&[0x81, 0x80 | code]);
    let count = u16::try_from(records.len()).unwrap();
    packet[6..8].copy_from_slice(&count.to_be_bytes());
    packet[8..12].fill(0);
    for (owner, rtype, data) in records {
        match *owner == read_name(query) {
            true => packet.extend([0xc0, 0x0c]),
            false => packet.extend(wire_name(owner)),
        }
        packet.extend(rtype.to_be_bytes());
        packet.extend([0, 1, 0, 0, 0, 0]);
        packet.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        packet.extend(data);
    }
    packet
}
