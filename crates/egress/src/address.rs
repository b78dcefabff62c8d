//! What kind of address an address is. Only [`AddressClass::Public`] is reachable by default.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
};

use serde::Serialize;

/// The kinds of addresses, by the registries of special-purpose addresses (RFC 6890, IANA).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressClass {
    Public,
    Loopback,
    Private,
    /// Carrier-grade NAT, RFC 6598.
    Shared,
    UniqueLocal,
    /// Network benchmarks, RFC 2544 and RFC 5180.
    Benchmarking,
    /// An address of this very machine, whatever its range.
    OwnMachine,
    LinkLocal,
    SiteLocal,
    /// Where a cloud hands out credentials.
    Metadata,
    Unspecified,
    Multicast,
    Documentation,
    Discard,
    /// An IPv4 address written as IPv6 (`::ffff:0:0/96`, `::/96`): judged by neither table alone.
    EmbeddedIpv4,
    /// NAT64, 6to4 or Teredo: a tunnel to an IPv4 address that this filter would not see.
    Translation,
    Reserved,
}

impl AddressClass {
    /// Judges an address by its range alone.
    pub fn of(address: IpAddr) -> Self {
        if METADATA.contains(&address) {
            return Self::Metadata;
        }
        match address {
            IpAddr::V4(v4) => of_v4(v4),
            IpAddr::V6(v6) => of_v6(v6),
        }
    }

    /// Judges an address by its range, and then by asking the kernel whether it is this machine's own.
    pub fn here(address: IpAddr) -> Self {
        match Self::of(address) {
            Self::Public if is_own(address) => Self::OwnMachine,
            class => class,
        }
    }

    /// Whether an operator's permission for the very host ([`crate::AllowPrivate`]) opens this kind.
    /// Metadata services, link-local and everything that is not a machine's ordinary address stay shut.
    pub const fn can_be_permitted(self) -> bool {
        matches!(
            self,
            Self::Loopback
                | Self::Private
                | Self::Shared
                | Self::UniqueLocal
                | Self::Benchmarking
                | Self::OwnMachine
        )
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::Shared => "carrier-grade NAT",
            Self::UniqueLocal => "unique local",
            Self::Benchmarking => "benchmarking",
            Self::OwnMachine => "this machine's own",
            Self::LinkLocal => "link-local",
            Self::SiteLocal => "site-local",
            Self::Metadata => "cloud metadata",
            Self::Unspecified => "unspecified",
            Self::Multicast => "multicast",
            Self::Documentation => "documentation",
            Self::Discard => "discard-only",
            Self::EmbeddedIpv4 => "IPv4 written as IPv6",
            Self::Translation => "IPv4 behind IPv6 translation",
            Self::Reserved => "reserved",
        })
    }
}

/// Metadata services, as their clouds document them. Those in public or private ranges are why this list exists.
const METADATA: &[IpAddr] = &[
    // Most clouds; ECS task credentials; Amazon's and Google's time and metadata.
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    // Alibaba Cloud, in the carrier-grade NAT range.
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    // Azure's WireServer, in a public range.
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    // Oracle Cloud (classic).
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    // Amazon EC2, EKS Pod Identity, Google, Scaleway.
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x23)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0042, 0, 0, 0, 0, 0, 0x42)),
];

/// IANA's IPv4 special-purpose registry and the multicast and reserved classes: network, prefix, kind.
const V4: &[([u8; 4], u32, AddressClass)] = &[
    ([0, 0, 0, 0], 8, AddressClass::Unspecified),
    ([10, 0, 0, 0], 8, AddressClass::Private),
    ([100, 64, 0, 0], 10, AddressClass::Shared),
    ([127, 0, 0, 0], 8, AddressClass::Loopback),
    ([169, 254, 0, 0], 16, AddressClass::LinkLocal),
    ([172, 16, 0, 0], 12, AddressClass::Private),
    ([192, 0, 0, 0], 24, AddressClass::Reserved),
    ([192, 0, 2, 0], 24, AddressClass::Documentation),
    // The retired relays of 6to4 (RFC 7526).
    ([192, 88, 99, 0], 24, AddressClass::Translation),
    ([192, 168, 0, 0], 16, AddressClass::Private),
    ([198, 18, 0, 0], 15, AddressClass::Benchmarking),
    ([198, 51, 100, 0], 24, AddressClass::Documentation),
    ([203, 0, 113, 0], 24, AddressClass::Documentation),
    ([224, 0, 0, 0], 4, AddressClass::Multicast),
    ([240, 0, 0, 0], 4, AddressClass::Reserved),
];

/// IANA's IPv6 special-purpose registry; the first match counts, so narrow ranges come first.
const V6: &[([u16; 8], u32, AddressClass)] = &[
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, AddressClass::Unspecified),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, AddressClass::Loopback),
    (
        [0, 0, 0, 0, 0, 0xffff, 0, 0],
        96,
        AddressClass::EmbeddedIpv4,
    ),
    ([0, 0, 0, 0, 0, 0, 0, 0], 96, AddressClass::EmbeddedIpv4),
    (
        [0x64, 0xff9b, 0, 0, 0, 0, 0, 0],
        96,
        AddressClass::Translation,
    ),
    (
        [0x64, 0xff9b, 1, 0, 0, 0, 0, 0],
        48,
        AddressClass::Translation,
    ),
    ([0x100, 0, 0, 0, 0, 0, 0, 0], 64, AddressClass::Discard),
    // Teredo, then benchmarking, then the rest of the protocol assignments around them.
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, AddressClass::Translation),
    (
        [0x2001, 2, 0, 0, 0, 0, 0, 0],
        48,
        AddressClass::Benchmarking,
    ),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, AddressClass::Reserved),
    (
        [0x2001, 0xdb8, 0, 0, 0, 0, 0, 0],
        32,
        AddressClass::Documentation,
    ),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, AddressClass::Translation),
    (
        [0x3fff, 0, 0, 0, 0, 0, 0, 0],
        20,
        AddressClass::Documentation,
    ),
    // Global unicast: all else that is public lies in here.
    ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3, AddressClass::Public),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, AddressClass::UniqueLocal),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, AddressClass::LinkLocal),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, AddressClass::SiteLocal),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, AddressClass::Multicast),
];

fn of_v4(address: Ipv4Addr) -> AddressClass {
    let bits = address.to_bits();
    let covers = |net: &[u8; 4], prefix: u32| {
        let shift = 32 - prefix;
        bits >> shift == Ipv4Addr::from(*net).to_bits() >> shift
    };
    V4.iter()
        .find(|(net, prefix, _)| covers(net, *prefix))
        .map_or(AddressClass::Public, |(_, _, class)| *class)
}

/// What no range names is not public: IPv6 assigns public addresses in `2000::/3` only.
fn of_v6(address: Ipv6Addr) -> AddressClass {
    let bits = address.to_bits();
    let covers = |net: &[u16; 8], prefix: u32| {
        let shift = 128 - prefix;
        bits >> shift == Ipv6Addr::from(*net).to_bits() >> shift
    };
    V6.iter()
        .find(|(net, prefix, _)| covers(net, *prefix))
        .map_or(AddressClass::Reserved, |(_, _, class)| *class)
}

/// The kernel sends to an own address from that very address. Connecting a datagram socket asks for the
/// route and sends nothing; where there is no route there is no own address either.
fn is_own(address: IpAddr) -> bool {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let source = || -> std::io::Result<IpAddr> {
        let socket = UdpSocket::bind(any)?;
        // The discard port: any would do, nothing is sent to it.
        socket.connect((address, 9))?;
        Ok(socket.local_addr()?.ip())
    };
    source().is_ok_and(|source| source == address)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    /// N15 and case 52: both ends of every range, and their neighbours outside.
    #[test]
    fn n15_every_special_range_is_named_to_its_ends() {
        use AddressClass as C;
        for (text, class) in [
            ("0.0.0.0", C::Unspecified),
            ("0.255.255.255", C::Unspecified),
            ("1.0.0.0", C::Public),
            ("9.255.255.255", C::Public),
            ("10.0.0.0", C::Private),
            ("10.255.255.255", C::Private),
            ("11.0.0.0", C::Public),
            ("100.63.255.255", C::Public),
            ("100.64.0.0", C::Shared),
            ("100.127.255.255", C::Shared),
            ("100.128.0.0", C::Public),
            ("100.100.100.200", C::Metadata),
            ("126.255.255.255", C::Public),
            ("127.0.0.1", C::Loopback),
            ("127.255.255.255", C::Loopback),
            ("128.0.0.0", C::Public),
            ("168.63.129.16", C::Metadata),
            ("169.253.255.255", C::Public),
            ("169.254.0.0", C::LinkLocal),
            ("169.254.169.254", C::Metadata),
            ("169.254.255.255", C::LinkLocal),
            ("169.255.0.0", C::Public),
            ("172.15.255.255", C::Public),
            ("172.16.0.0", C::Private),
            ("172.31.255.255", C::Private),
            ("172.32.0.0", C::Public),
            ("192.0.0.0", C::Reserved),
            ("192.0.0.192", C::Metadata),
            ("192.0.0.255", C::Reserved),
            ("192.0.1.0", C::Public),
            ("192.0.2.1", C::Documentation),
            ("192.88.99.1", C::Translation),
            ("192.167.255.255", C::Public),
            ("192.168.0.0", C::Private),
            ("192.168.255.255", C::Private),
            ("192.169.0.0", C::Public),
            ("198.17.255.255", C::Public),
            ("198.18.0.0", C::Benchmarking),
            ("198.19.255.255", C::Benchmarking),
            ("198.20.0.0", C::Public),
            ("198.51.100.7", C::Documentation),
            ("203.0.113.7", C::Documentation),
            ("223.255.255.255", C::Public),
            ("224.0.0.0", C::Multicast),
            ("239.255.255.255", C::Multicast),
            ("240.0.0.0", C::Reserved),
            ("255.255.255.255", C::Reserved),
            ("8.8.8.8", C::Public),
        ] {
            assert_eq!(AddressClass::of(text.parse().unwrap()), class, "{text}");
        }
    }

    /// Case 52: the IPv6 forms.
    #[test]
    fn case_52_every_form_of_ipv6_is_named() {
        use AddressClass as C;
        for (text, class) in [
            ("::", C::Unspecified),
            ("::1", C::Loopback),
            ("::ffff:127.0.0.1", C::EmbeddedIpv4),
            ("::ffff:169.254.169.254", C::EmbeddedIpv4),
            ("::ffff:8.8.8.8", C::EmbeddedIpv4),
            ("::127.0.0.1", C::EmbeddedIpv4),
            ("::ffff:0:127.0.0.1", C::Reserved),
            ("64:ff9b::7f00:1", C::Translation),
            ("64:ff9b::808:808", C::Translation),
            ("64:ff9b:1::a00:1", C::Translation),
            ("64:ff9b:2::1", C::Reserved),
            ("100::1", C::Discard),
            ("100:0:0:1::1", C::Reserved),
            ("1fff::1", C::Reserved),
            ("2001::1", C::Translation),
            ("2001:0:7f00:1::", C::Translation),
            ("2001:1::1", C::Reserved),
            ("2001:2::1", C::Benchmarking),
            ("2001:20::1", C::Reserved),
            ("2001:1ff::1", C::Reserved),
            ("2001:200::1", C::Public),
            ("2001:db8::1", C::Documentation),
            ("2001:4860:4860::8888", C::Public),
            ("2002:7f00:1::", C::Translation),
            ("2002:a9fe:a9fe::", C::Translation),
            ("2003::1", C::Public),
            ("2606:4700::1111", C::Public),
            ("3fff:0::1", C::Documentation),
            ("3fff:1000::1", C::Public),
            ("4000::1", C::Reserved),
            ("5f00::1", C::Reserved),
            ("fc00::1", C::UniqueLocal),
            ("fd00:ec2::254", C::Metadata),
            ("fd20:ce::254", C::Metadata),
            ("fdff::1", C::UniqueLocal),
            ("fe80::1", C::LinkLocal),
            ("febf::1", C::LinkLocal),
            ("fec0::1", C::SiteLocal),
            ("feff::1", C::SiteLocal),
            ("ff02::1", C::Multicast),
        ] {
            assert_eq!(AddressClass::of(text.parse().unwrap()), class, "{text}");
        }
    }

    /// The operator's permission never opens metadata, link-local or anything that hides another address.
    #[test]
    fn only_ordinary_private_ranges_can_be_permitted() {
        for text in [
            "127.0.0.1",
            "10.1.2.3",
            "fd12::1",
            "100.64.1.1",
            "198.18.0.1",
        ] {
            assert!(
                AddressClass::of(text.parse().unwrap()).can_be_permitted(),
                "{text}"
            );
        }
        for text in [
            "169.254.169.254",
            "169.254.1.1",
            "fd00:ec2::254",
            "100.100.100.200",
            "fe80::1",
            "0.0.0.0",
            "224.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::",
            "255.255.255.255",
        ] {
            assert!(
                !AddressClass::of(text.parse().unwrap()).can_be_permitted(),
                "{text}"
            );
        }
    }
}
