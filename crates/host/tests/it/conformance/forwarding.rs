//! Ports and sockets of the host, from both sides.

use std::net::{Ipv4Addr, SocketAddr};

use bulkhead_host::{DuplexStream, Endpoint, Host, HostError, Listener};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Maker, Place, soon};

const BULK: usize = 4 << 20;

pub(crate) async fn section(maker: &impl Maker) {
    let place = Place::new(maker).await;
    let port = Endpoint::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let socket = Endpoint::Unix(place.path("a socket"));
    for at in [port, socket] {
        both_ways(&place, at.clone()).await;
        several(&place, at.clone()).await;
        nobody_there(&place, at).await;
    }
    place.end().await;
}

async fn pair(host: &dyn Host, listener: &mut Box<dyn Listener>) -> (DuplexStream, DuplexStream) {
    let at = listener.endpoint();
    let both = async { tokio::try_join!(host.connect(at), listener.accept()) };
    soon("a connection", both).await.unwrap()
}

/// Listening on the host and connecting to it, each through this side.
async fn both_ways(place: &Place, at: Endpoint) {
    let mut listener = place.host.listen(at).await.unwrap();
    if let Endpoint::Tcp(address) = listener.endpoint() {
        assert_ne!(address.port(), 0);
    }
    let (near, far) = pair(&*place.host, &mut listener).await;
    let sent: Vec<u8> = (0..=250).cycle().take(BULK).collect();
    let (one, other) = tokio::join!(talk(near, &sent), talk(far, &sent));
    assert!(one == sent && other == sent);
}

/// Sends everything, says that this was all, and still hears what the other side says.
async fn talk(stream: DuplexStream, sent: &[u8]) -> Vec<u8> {
    let (mut reads, mut writes) = tokio::io::split(stream);
    let sends = async {
        writes.write_all(sent).await.unwrap();
        writes.shutdown().await.unwrap();
    };
    let hears = async {
        let mut heard = Vec::new();
        reads.read_to_end(&mut heard).await.unwrap();
        heard
    };
    let both = async { tokio::join!(sends, hears) };
    soon("both directions", both).await.1
}

async fn several(place: &Place, at: Endpoint) {
    let mut listener = place.host.listen(at).await.unwrap();
    let mut pairs = Vec::new();
    for _ in 0..10 {
        pairs.push(pair(&*place.host, &mut listener).await);
    }
    // Those that are there stay when nobody listens any more.
    drop(listener);
    for (n, (near, far)) in (0_u8..).zip(&mut pairs) {
        near.write_all(&[n]).await.unwrap();
        near.flush().await.unwrap();
        let mut byte = [0];
        soon("a byte", far.read_exact(&mut byte)).await.unwrap();
        assert_eq!(byte[0], n);
    }
}

async fn nobody_there(place: &Place, at: Endpoint) {
    let listener = place.host.listen(at).await.unwrap();
    let at = listener.endpoint();
    drop(listener);
    let refused = async {
        loop {
            match place.host.connect(at.clone()).await {
                Err(error) => return error,
                // The listening ends in the background.
                Ok(mut stream) => {
                    let mut byte = [0];
                    if !matches!(stream.read(&mut byte).await, Ok(1..)) {
                        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                    }
                }
            }
        }
    };
    let error = soon("a refusal", refused).await;
    assert!(matches!(error, HostError::Forward { .. }), "{error:?}");
}
