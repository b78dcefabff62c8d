//! The DNS stub (D5), asked by packets of our own.

use std::{net::SocketAddr, time::Duration};

use bulkhead_door::Asked;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    time::timeout,
};

use crate::support::open;

const A: u16 = 1;
const TXT: u16 = 16;
const AAAA: u16 = 28;

fn question(name: &str, qtype: u16) -> Vec<u8> {
    let mut packet = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        packet.push(u8::try_from(label.len()).unwrap());
        packet.extend(label.as_bytes());
    }
    packet.push(0);
    packet.extend(qtype.to_be_bytes());
    packet.extend([0, 1]);
    packet
}

async fn by_udp(server: SocketAddr, packet: &[u8]) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(packet, server).await.unwrap();
    let mut answer = vec![0; 2_048];
    let size = timeout(Duration::from_secs(5), socket.recv(&mut answer))
        .await
        .ok()?
        .unwrap();
    answer.truncate(size);
    Some(answer)
}

async fn by_tcp(server: SocketAddr, packet: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server).await.unwrap();
    stream
        .write_u16(u16::try_from(packet.len()).unwrap())
        .await
        .unwrap();
    stream.write_all(packet).await.unwrap();
    let length = stream.read_u16().await.unwrap();
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await.unwrap();
    answer
}

/// The response code, the number of answers, and whether it was truncated.
fn summary(answer: &[u8]) -> (u8, u8, bool) {
    (answer[3] & 15, answer[7], answer[2] & 2 != 0)
}

#[tokio::test]
async fn allowed_names_are_answered_and_filtered() {
    let mut test = open(&[
        "public.test.com",
        "*.sub.test.com",
        "private.test.com",
        "good.test.com",
        "missing.example",
    ]);
    let ask = async |name: &str, qtype| by_udp(test.dns, &question(name, qtype)).await.unwrap();
    let v4 = ask("Public.TEST.com", A).await;
    assert_eq!(
        summary(&v4),
        (0, 1, false),
        "the private address is left out"
    );
    assert!(v4.ends_with(&[93, 184, 215, 14]));
    assert_eq!(
        v4[12..12 + 17],
        question("Public.TEST.com", A)[12..12 + 17],
        "the question is repeated as it was"
    );
    let v6 = ask("public.test.com", AAAA).await;
    assert_eq!(summary(&v6), (0, 1, false));
    assert_eq!(
        summary(&ask("public.test.com", TXT).await),
        (0, 0, false),
        "no other records"
    );
    // Case 52: the name is allowed, its addresses are not.
    assert_eq!(summary(&ask("private.test.com", A).await), (3, 0, false));
    // Permitted by the operator and named: the private address is the answer.
    assert!(ask("good.test.com", A).await.ends_with(&[127, 0, 0, 1]));
    assert_eq!(summary(&ask("missing.example", A).await), (3, 0, false));
    let record = test.log.recv().await.unwrap();
    assert!(record.allowed && record.asked == Asked::Name && record.host == "public.test.com");
}

/// What is not allowed does not exist, and no question about it leaves: DNS carries nothing out.
#[tokio::test]
async fn refused_names_are_never_asked_for() {
    let mut test = open(&["good.test.com", "*.sub.test.com"]);
    for name in [
        "evil.example",
        "secret.data.evil.example",
        "x.good.test.com",
        "sub.test.com",
        "localhost",
        "metadata.google.internal",
        "127.0.0.1",
    ] {
        let answer = by_udp(test.dns, &question(name, A)).await.unwrap();
        assert_eq!(summary(&answer), (3, 0, false), "{name}");
    }
    assert!(test.names.asked().is_empty(), "{:?}", test.names.asked());
    assert_eq!(test.log.recv().await.unwrap().host, "evil.example");
}

#[tokio::test]
async fn long_answers_are_cut_over_udp_and_whole_over_tcp() {
    let test = open(&["many.test.com"]);
    let packet = question("many.test.com", A);
    assert_eq!(
        summary(&by_udp(test.dns, &packet).await.unwrap()),
        (0, 0, true)
    );
    assert_eq!(summary(&by_tcp(test.dns, &packet).await), (0, 59, false));
    // With EDNS more fits: the size that was asked for counts.
    let mut edns = packet.clone();
    edns[11] = 1;
    edns.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        summary(&by_udp(test.dns, &edns).await.unwrap()),
        (0, 59, false)
    );
}

#[tokio::test]
async fn malformed_packets_are_dropped_and_the_next_is_answered() {
    let test = open(&["good.test.com"]);
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let good = question("good.test.com", A);
    let mut response = good.clone();
    response[2] |= 0x80;
    let mut pointer = good.clone();
    pointer[12] = 0xc0;
    for bad in [
        &b""[..],
        b"x",
        &good[..good.len() - 1],
        &response,
        &pointer,
        &[0xff; 900],
    ] {
        socket.send_to(bad, test.dns).await.unwrap();
    }
    socket.send_to(&good, test.dns).await.unwrap();
    let mut answer = [0; 512];
    let size = timeout(Duration::from_secs(10), socket.recv(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        summary(&answer[..size]),
        (0, 1, false),
        "the only answer is to the only question"
    );
    let mut other_class = good.clone();
    *other_class.last_mut().unwrap() = 3;
    assert_eq!(summary(&by_udp(test.dns, &other_class).await.unwrap()).0, 5);
    let mut other_opcode = good;
    other_opcode[2] = 0x28;
    assert_eq!(
        summary(&by_udp(test.dns, &other_opcode).await.unwrap()).0,
        4
    );
}
