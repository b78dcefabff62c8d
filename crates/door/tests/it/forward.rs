//! Forwards (D5) from a port inside to a Unix socket outside.

use std::net::TcpListener as StdTcpListener;

use bulkhead_door::{DoorLimits, DoorListeners, Forward};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UnixListener},
};

use crate::support::{door, read_all, zone};

#[tokio::test]
async fn a_forward_is_exact_and_half_closes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gateway.sock");
    let socket = UnixListener::bind(&path).unwrap();
    let listener = StdTcpListener::bind("127.0.0.1:0").unwrap();
    let inside_address = listener.local_addr().unwrap();
    let listeners = DoorListeners {
        forwards: vec![Forward { listener, path }],
        ..DoorListeners::default()
    };
    let (_door, _log) = door(&[], DoorLimits::default(), &zone(), listeners);
    let mut inside = TcpStream::connect(inside_address).await.unwrap();
    let (mut outside, _) = socket.accept().await.unwrap();
    let sent: Vec<u8> = (0..3_000_000u32)
        .map(|n| n.wrapping_mul(40_503).to_le_bytes()[1])
        .collect();
    let copy = sent.clone();
    let up = async {
        inside.write_all(&copy).await.unwrap();
        inside.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let _ = tokio::join!(up, outside.read_to_end(&mut received));
    assert!(
        received == sent,
        "{} of {} bytes",
        received.len(),
        sent.len()
    );
    outside.write_all(b"answer").await.unwrap();
    drop(outside);
    assert_eq!(read_all(&mut inside).await, "answer");
}

#[tokio::test]
async fn a_missing_socket_closes_the_connection() {
    let listener = StdTcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let path = "/nonexistent/gateway.sock".into();
    let listeners = DoorListeners {
        forwards: vec![Forward { listener, path }],
        ..DoorListeners::default()
    };
    let (_door, _log) = door(&[], DoorLimits::default(), &zone(), listeners);
    let mut inside = TcpStream::connect(address).await.unwrap();
    assert_eq!(read_all(&mut inside).await, "");
}
