//! The listeners of a door in a network namespace that has nothing but loopback, served from outside of it.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener as StdTcpListener, TcpStream as StdTcpStream, UdpSocket as StdUdpSocket},
    os::fd::AsFd,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use bulkhead_door::{DoorLimits, DoorListeners};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::{io::AsyncWriteExt, net::TcpListener};

use crate::support::{door, read_until, zone};

/// A namespace, as long as its one process lives.
struct Namespace(Child);

impl Namespace {
    fn new() -> Self {
        let mut child = Command::new("unshare")
            .args([
                "--net",
                "--",
                "sh",
                "-c",
                "ip link set lo up && echo up && exec sleep 600",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "up\n");
        Self(child)
    }

    /// Runs on a thread of its own inside the namespace; the thread's end is the way out.
    fn inside<T: Send + 'static>(
        &self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let namespace = File::open(format!("/proc/{}/ns/net", self.0.id())).unwrap();
        thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            run()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// D5: inside there is only `lo`, and on it the door; what it lets through arrives from outside. Needs root.
#[tokio::test]
async fn a_door_in_a_real_namespace_is_the_only_way_out() {
    let namespace = Namespace::new();
    let listeners = namespace.inside(|| {
        let proxy = StdTcpListener::bind("127.0.0.1:3128").unwrap();
        let udp = StdUdpSocket::bind("127.0.0.1:53").unwrap();
        let tcp = StdTcpListener::bind("127.0.0.1:53").unwrap();
        DoorListeners {
            proxy: Some(proxy),
            dns_udp: Some(udp),
            dns_tcp: Some(tcp),
            forwards: Vec::new(),
        }
    });
    let outside = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = outside.local_addr().unwrap().port();
    let allowed = format!("good.test.com:{port}");
    let names = zone();
    let (_door, _log) = door(
        &[&allowed],
        DoorLimits::default(),
        &names,
        listeners.join().unwrap(),
    );

    let client = namespace.inside(move || {
        let direct = StdTcpStream::connect(("127.0.0.1", port)).is_err();
        let anywhere = StdTcpStream::connect_timeout(&"93.184.215.14:80".parse().unwrap(), Duration::from_secs(5)).is_err();
        let refused = exchange("CONNECT evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 403");
        let tunnel = exchange(&format!("CONNECT {allowed} HTTP/1.1\r\nHost: x\r\n\r\n"), b"from outside");
        // The resolver's own way in: what the system's tools would do with `nameserver 127.0.0.1`.
        let socket = StdUdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let question = b"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04good\x04test\x03com\x00\x00\x01\x00\x01";
        socket.send_to(question, "127.0.0.1:53").unwrap();
        let mut answer = [0; 512];
        let size = socket.recv(&mut answer).unwrap();
        (direct, anywhere, refused, tunnel, answer[..size].ends_with(&[127, 0, 0, 1]))
    });
    let serving = async {
        let (mut stream, _) = outside.accept().await.unwrap();
        stream.write_all(b"from outside").await.unwrap();
        let _ = read_until(&mut stream, "bye").await;
    };
    serving.await;
    let (direct, anywhere, refused, tunnel, resolved) =
        tokio::task::spawn_blocking(|| client.join().unwrap())
            .await
            .unwrap();
    assert!(direct && anywhere, "nothing but the door is reachable");
    assert!(
        refused && tunnel && resolved,
        "{refused} {tunnel} {resolved}"
    );
}

/// Sends a request to the proxy and reads until the answer holds this.
fn exchange(request: &str, expected: &[u8]) -> bool {
    let mut stream = StdTcpStream::connect("127.0.0.1:3128").unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = Vec::new();
    let mut byte = [0];
    while !text
        .windows(expected.len())
        .any(|window| window == expected)
    {
        match stream.read(&mut byte) {
            Ok(1) => text.push(byte[0]),
            _ => return false,
        }
    }
    let _ = stream.write_all(b"bye");
    true
}
