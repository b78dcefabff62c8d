//! Connecting to one of several checked addresses, and judging where the connection really ended.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use tokio::{net::TcpStream, time};

use crate::{address::AddressClass, decision::Why};

/// How long one address may take before the next is tried beside it (RFC 8305, section 5).
const STAGGER: Duration = Duration::from_millis(250);

/// Whether private addresses count as reachable for the host in question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Private {
    Refused,
    Permitted,
}

/// Keeps the addresses that may be connected to. With none left, the first refusal is the reason.
pub(crate) fn filter(addresses: &[IpAddr], private: Private) -> Result<Vec<IpAddr>, Why> {
    let mut refusal = None;
    let mut kept = Vec::with_capacity(addresses.len());
    for address in addresses {
        match judge(*address, private) {
            Ok(()) => kept.push(*address),
            Err(class) => {
                refusal.get_or_insert(Why::Address {
                    address: *address,
                    class,
                });
            }
        }
    }
    match refusal {
        Some(why) if kept.is_empty() => Err(why),
        _ => Ok(interleave(kept)),
    }
}

fn judge(address: IpAddr, private: Private) -> Result<(), AddressClass> {
    match AddressClass::here(address) {
        AddressClass::Public => Ok(()),
        class if private == Private::Permitted && class.can_be_permitted() => Ok(()),
        class => Err(class),
    }
}

/// Alternates the two families, so that a machine without one of them loses one stagger at most.
fn interleave(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let (mut v6, mut v4): (Vec<_>, Vec<_>) = addresses.into_iter().partition(IpAddr::is_ipv6);
    v6.reverse();
    v4.reverse();
    let mut mixed = Vec::with_capacity(v4.len() + v6.len());
    while !(v4.is_empty() && v6.is_empty()) {
        mixed.extend(v4.pop());
        mixed.extend(v6.pop());
    }
    mixed
}

/// Connects to the first address that answers, starting the next one when one fails or is slow.
pub(crate) async fn race(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut waiting = addresses.iter().copied();
    let mut running = FuturesUnordered::new();
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        if let Some(address) = waiting.next() {
            running.push(TcpStream::connect(address));
        }
        if running.is_empty() {
            return Err(failure);
        }
        let slow = async {
            match waiting.len() {
                0 => std::future::pending().await,
                _ => time::sleep(STAGGER).await,
            }
        };
        tokio::select! {
            Some(result) = running.next() => match result {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = error,
            },
            () = slow => {}
        }
    }
}

/// Judges the far end of a connection that stands: it must be a checked address, and its kind is looked
/// up anew, so that neither a second resolution nor a changed route can slip in between (N17).
pub(crate) fn check_peer(
    stream: &TcpStream,
    checked: &[SocketAddr],
    private: Private,
) -> Result<(), Why> {
    let unknown = IpAddr::from([0, 0, 0, 0]);
    let peer = stream.peer_addr().ok();
    let local = stream.local_addr().ok().map(|local| local.ip());
    judge_peer(peer, local, checked, private).map_err(|class| Why::Peer {
        address: peer.map_or(unknown, |peer| peer.ip()),
        class,
    })
}

fn judge_peer(
    peer: Option<SocketAddr>,
    local: Option<IpAddr>,
    checked: &[SocketAddr],
    private: Private,
) -> Result<(), AddressClass> {
    let peer = peer.ok_or(AddressClass::Unspecified)?;
    judge(peer.ip(), private)?;
    if !checked.contains(&peer) {
        return Err(AddressClass::of(peer.ip()));
    }
    // An own address is reached from itself, even where the route was not yet there before.
    if local == Some(peer.ip()) && private == Private::Refused {
        return Err(AddressClass::OwnMachine);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_not_public_is_left_out_of_a_mixed_answer() {
        let mixed = [
            ip("10.0.0.1"),
            ip("203.0.114.9"),
            ip("::1"),
            ip("2606:4700::1"),
        ];
        let kept = filter(&mixed, Private::Refused).unwrap();
        assert_eq!(kept, [ip("203.0.114.9"), ip("2606:4700::1")]);
        let none = filter(&mixed[..1], Private::Refused).unwrap_err();
        assert_eq!(
            none,
            Why::Address {
                address: ip("10.0.0.1"),
                class: AddressClass::Private
            }
        );
        assert_eq!(
            filter(&mixed[..1], Private::Permitted).unwrap(),
            [ip("10.0.0.1")]
        );
    }

    /// N17: a peer that was not in the checked answer, or is not public, ends the connection.
    #[test]
    fn n17_the_peer_is_judged_again() {
        let checked = [SocketAddr::new(ip("203.0.114.9"), 443)];
        let judge = |peer: &str, local: &str| {
            judge_peer(
                Some(peer.parse().unwrap()),
                Some(ip(local)),
                &checked,
                Private::Refused,
            )
        };
        assert_eq!(judge("203.0.114.9:443", "198.51.100.1"), Ok(()));
        assert_eq!(
            judge("203.0.114.8:443", "198.51.100.1"),
            Err(AddressClass::Public)
        );
        assert_eq!(
            judge("203.0.114.9:80", "198.51.100.1"),
            Err(AddressClass::Public)
        );
        assert_eq!(
            judge("127.0.0.1:443", "127.0.0.1"),
            Err(AddressClass::Loopback)
        );
        assert_eq!(
            judge("203.0.114.9:443", "203.0.114.9"),
            Err(AddressClass::OwnMachine)
        );
        assert_eq!(
            judge_peer(None, None, &checked, Private::Refused),
            Err(AddressClass::Unspecified)
        );
    }
}
