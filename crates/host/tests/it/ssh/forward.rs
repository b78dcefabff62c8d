//! Ports and sockets in both directions.

use std::{net::SocketAddr, path::PathBuf};

use bulkhead_host::{Command, DuplexStream, Endpoint, Host};
use bulkhead_test_hosts::Sshd;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
};

use super::{host, output};

/// Says something, ends its own direction, and reads the other one to its end.
async fn ask(mut stream: DuplexStream, words: &[u8]) -> Vec<u8> {
    stream.write_all(words).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    answer
}

/// Reads everything before it answers: both ends of file must pass.
async fn echo(mut stream: impl bulkhead_host::Duplex) {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    all.reverse();
    stream.write_all(&all).await.unwrap();
    stream.shutdown().await.unwrap();
}

#[tokio::test]
async fn h1_ports_and_sockets_of_the_machine_are_reached() {
    let sshd = Sshd::start();
    let host = host(&sshd);
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let path = sshd.dir().join("service");
    let unix = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    for _ in 0..2 {
        let serve = async { echo(tcp.accept().await.unwrap().0).await };
        let connect =
            async { ask(host.connect(Endpoint::Tcp(address)).await.unwrap(), b"abc").await };
        let ((), answer) = tokio::join!(serve, connect);
        assert_eq!(answer, b"cba");
        let serve = async { echo(unix.accept().await.unwrap().0).await };
        let connect = async {
            ask(
                host.connect(Endpoint::Unix(path.clone())).await.unwrap(),
                b"xyz",
            )
            .await
        };
        let ((), answer) = tokio::join!(serve, connect);
        assert_eq!(answer, b"zyx");
    }
    drop(tcp);
    let refused = host.connect(Endpoint::Tcp(address)).await.err().unwrap();
    assert!(
        refused.to_string().contains(&address.to_string()),
        "{refused}"
    );
    let absent = PathBuf::from("/absent/socket");
    assert!(host.connect(Endpoint::Unix(absent)).await.is_err());
    host.teardown().await.unwrap();
}

#[tokio::test]
async fn h1_the_machine_reaches_listeners_of_ours_until_they_are_dropped() {
    let sshd = Sshd::start();
    let host = host(&sshd);
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let mut listener = host.listen(Endpoint::Tcp(any)).await.unwrap();
    let Endpoint::Tcp(address) = listener.endpoint() else {
        panic!("a port was asked for");
    };
    assert_ne!(address.port(), 0);
    let serve = async { echo(listener.accept().await.unwrap()).await };
    let connect = async { ask(Box::new(TcpStream::connect(address).await.unwrap()), b"abc").await };
    let ((), answer) = tokio::join!(serve, connect);
    assert_eq!(answer, b"cba");
    // A stream outlives its listener.
    let (held, theirs) = tokio::join!(listener.accept(), TcpStream::connect(address));
    drop(listener);
    let ((), answer) = tokio::join!(echo(held.unwrap()), ask(Box::new(theirs.unwrap()), b"1234"));
    assert_eq!(answer, b"4321");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while TcpStream::connect(address).await.is_ok() {
        assert!(std::time::Instant::now() < deadline, "it still listens");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let path = sshd.home().join("socket");
    for _ in 0..2 {
        // Twice: nothing may be left lying there that hinders the second.
        let mut listener = host.listen(Endpoint::Unix(path.clone())).await.unwrap();
        let serve = async { echo(listener.accept().await.unwrap()).await };
        let connect =
            async { ask(Box::new(UnixStream::connect(&path).await.unwrap()), b"xyz").await };
        let ((), answer) = tokio::join!(serve, connect);
        assert_eq!(answer, b"zyx");
        drop(listener);
        while path.exists() {
            assert!(
                std::time::Instant::now() < deadline,
                "the socket is still there"
            );
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    assert_eq!(output(&host, Command::new(["echo", "x"])).await, "x\n");
    host.teardown().await.unwrap();
}

/// Both sides speak at once, much, and each ends its own direction when it has said all.
#[tokio::test]
async fn h1_both_directions_of_a_stream_carry_much_and_end_by_themselves() {
    const MUCH: usize = 4 << 20;
    let sshd = Sshd::start();
    let host = host(&sshd);
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let near = host.connect(Endpoint::Tcp(address)).await.unwrap();
    let (far, _) = tcp.accept().await.unwrap();
    let talk = |name: &'static str, stream: DuplexStream| async move {
        let (mut reads, mut writes) = tokio::io::split(stream);
        let sends = async {
            writes.write_all(&vec![7; MUCH]).await.expect(name);
            writes.shutdown().await.expect(name);
        };
        let mut heard = Vec::new();
        let ((), read) = tokio::join!(sends, reads.read_to_end(&mut heard));
        read.expect(name);
        heard.len()
    };
    let heard = tokio::join!(talk("near", near), talk("far", Box::new(far)));
    assert_eq!(heard, (MUCH, MUCH));
    host.teardown().await.unwrap();
}
