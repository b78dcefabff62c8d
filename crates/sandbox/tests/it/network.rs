//! The network inside: loopback and the door's sockets.

use std::{
    io::{Read as _, Write as _},
    net::SocketAddr,
};

use bulkhead_sandbox::{BoundSocket, Listener};

use crate::support::{one, place, plan, say, shell};

/// D5: sockets are made inside, also below 1024, and served from outside.
#[tokio::test]
async fn d5_listeners_are_served_from_outside() {
    let place = place().await;
    let mut plan = plan();
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    plan.listeners = vec![
        Listener::tcp(at(80)),
        Listener::udp(at(53)),
        Listener::tcp("[::1]:8080".parse().unwrap()),
    ];
    let sandbox = place.engine.create(plan).await.unwrap();
    let sockets = sandbox.take_listeners();
    assert!(sandbox.take_listeners().is_empty(), "they are given once");
    let [
        BoundSocket::Tcp(http),
        BoundSocket::Udp(dns),
        BoundSocket::Tcp(six),
    ] = &sockets[..]
    else {
        panic!("{sockets:?}");
    };
    assert_eq!(http.local_addr().unwrap(), at(80));
    assert_eq!(dns.local_addr().unwrap(), at(53));
    assert_eq!(six.local_addr().unwrap().port(), 8080);
    http.set_nonblocking(false).unwrap();
    let served = http.try_clone().unwrap();
    let serving = tokio::task::spawn_blocking(move || {
        let (mut stream, _) = served.accept().unwrap();
        let mut asked = [0; 4];
        stream.read_exact(&mut asked).unwrap();
        stream.write_all(b"from outside\n").unwrap();
        asked
    });
    let script = "exec 3<>/dev/tcp/127.0.0.1/80; printf ping >&3; cat <&3";
    let said = say(
        &sandbox,
        bulkhead_sandbox::ProcessSpec::new(["bash", "-c", script]),
    )
    .await;
    assert_eq!(said.stdout, "from outside\n", "{said:?}");
    assert_eq!(&serving.await.unwrap(), b"ping");
}

/// R6: there is no way out: no route, no other interface, no listener of the host's.
#[tokio::test]
async fn r6_there_is_no_way_out() {
    let place = place().await;
    let host = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = host.local_addr().unwrap().port();
    let script = format!(
        "for a in 1.1.1.1/443 169.254.169.254/80 127.0.0.1/{port}; do \
           bash -c \"exec 3<>/dev/tcp/$a\" 2>/dev/null && echo reached $a; done; \
         tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; cat /proc/net/route | wc -l"
    );
    let (said, _) = one(&place.engine, plan(), &script).await;
    assert_eq!(said.stdout, "lo\n1\n", "{said:?}");
}

/// R6: servers on loopback work inside: agents start some.
#[tokio::test]
async fn r6_own_servers_work() {
    let place = place().await;
    let sandbox = place.engine.create(plan()).await.unwrap();
    let said = say(&sandbox, shell("cd /tmp && (python3 -m http.server 8000 >/dev/null 2>&1 & echo $! > pid); \
        for i in $(seq 100); do python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8000/\").status)' 2>/dev/null && break; \
        sleep 0.1; done; kill $(cat pid)")).await;
    assert_eq!(said.stdout, "200\n", "{said:?}");
}
