//! The address of the client: the peer of the connection, or the address that a trusted proxy reports in
//! `X-Forwarded-For`.
//!
//! [`ClientAddress`] is an extension of every request that came through the HTTP listener. Read it with
//! [`ClientAddress::of`]. Requests that tests pass to the router directly have none.
//!
//! Only proxies in `http.trusted_proxies` are trusted, because any client can send the header. Each proxy appends the
//! address of its own peer, so the list is read from the right, past trusted proxies, up to the first other address.

use anyhow::Context as _;
use axum::http::{Extensions, HeaderMap};
use mailonce_transport::egress::Cidr;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The header in which proxies report their clients.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// The address of the client. IPv4-mapped IPv6 addresses are converted to IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddress(pub IpAddr);

impl ClientAddress {
    /// The client's address, if the request came through the listener.
    pub fn of(extensions: &Extensions) -> Option<IpAddr> {
        extensions.get::<Self>().map(|address| address.0)
    }
}

/// The blocks of `http.trusted_proxies`.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(Vec<Cidr>);

impl TrustedProxies {
    /// Parses blocks such as `10.0.0.0/8`. A single address is a block of one.
    pub fn parse(blocks: &[String]) -> anyhow::Result<Self> {
        let blocks = blocks.iter().map(|block| block.parse::<Cidr>().context("http.trusted_proxies"));
        Ok(Self(blocks.collect::<anyhow::Result<_>>()?))
    }

    /// Whether an address belongs to a trusted proxy.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.0.iter().any(|block| block.contains_ip(ip))
    }

    /// The client behind a peer: the rightmost address in `X-Forwarded-For` that is not a trusted proxy. An untrusted
    /// peer is itself the client. If the list ends or cannot be parsed, the last trusted hop is the client.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> ClientAddress {
        let mut client = peer.to_canonical();
        if !self.contains(client) {
            return ClientAddress(client);
        }
        for hop in headers.get_all(FORWARDED_FOR).iter().rev().flat_map(|value| value.as_bytes().rsplit(|b| *b == b','))
        {
            let Some(address) = std::str::from_utf8(hop).ok().and_then(parse_hop) else { break };
            client = address;
            if !self.contains(client) {
                break;
            }
        }
        ClientAddress(client)
    }
}

/// Parses an address as proxies write it: bare, in brackets, or with a port.
fn parse_hop(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    let with_port = || text.parse::<SocketAddr>().ok().map(|at| at.ip());
    text.parse().ok().or_else(bracketed).or_else(with_port).map(|ip: IpAddr| ip.to_canonical())
}

/// The network of a client, for limits: an IPv4 address, or the first 64 bits of an IPv6 address.
pub(crate) fn network_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & (u128::from(u64::MAX) << 64)))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn client(trusted: &[&str], peer: &str, forwarded: &[&str]) -> String {
        let blocks: Vec<String> = trusted.iter().map(ToString::to_string).collect();
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(FORWARDED_FOR, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let ClientAddress(ip) = TrustedProxies::parse(&blocks).unwrap().client(peer.parse().unwrap(), &headers);
        ip.to_string()
    }

    #[test]
    fn headers_of_untrusted_peers_are_ignored() {
        assert_eq!(client(&[], "192.0.2.1", &["198.51.100.7"]), "192.0.2.1");
        assert_eq!(client(&["10.0.0.0/8"], "192.0.2.1", &["10.0.0.1"]), "192.0.2.1");
        assert_eq!(client(&["10.0.0.0/8"], "127.0.0.1", &["198.51.100.7"]), "127.0.0.1");
    }

    #[test]
    fn a_trusted_proxy_names_its_caller() {
        let trusted = ["10.0.0.0/8", "fd00::/8"];
        for (peer, forwarded, expected) in [
            ("10.0.0.1", &["198.51.100.7"][..], "198.51.100.7"),
            ("10.0.0.1", &["203.0.113.9, 198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["203.0.113.9 ,\t198.51.100.7,10.0.0.2 , 10.9.9.9"], "198.51.100.7"),
            ("10.0.0.1", &["203.0.113.9", "198.51.100.7", "10.0.0.2"], "198.51.100.7"),
            ("fd00::1", &["2001:db8::7"], "2001:db8::7"),
            ("fd00::1", &["[2001:db8::7]"], "2001:db8::7"),
            ("fd00::1", &["[2001:db8::7]:4711"], "2001:db8::7"),
            ("10.0.0.1", &["198.51.100.7:4711"], "198.51.100.7"),
            ("10.0.0.1", &["10.0.0.5, 10.0.0.2"], "10.0.0.5"),
            ("10.0.0.1", &[], "10.0.0.1"),
        ] {
            assert_eq!(client(&trusted, peer, forwarded), expected, "{peer} {forwarded:?}");
        }
    }

    #[test]
    fn ipv4_inside_ipv6_is_ipv4() {
        assert_eq!(client(&["10.0.0.0/8"], "::ffff:10.0.0.1", &["::ffff:198.51.100.7"]), "198.51.100.7");
        assert_eq!(client(&["10.0.0.0/8"], "10.0.0.1", &["198.51.100.7, ::ffff:10.0.0.2"]), "198.51.100.7");
        assert_eq!(client(&[], "::ffff:192.0.2.1", &[]), "192.0.2.1");
    }

    #[test]
    fn what_cannot_be_read_ends_the_list_at_the_hop_that_reported_it() {
        let trusted = ["10.0.0.0/8"];
        for (forwarded, expected) in [
            ("unknown", "10.0.0.1"),
            ("", "10.0.0.1"),
            ("198.51.100.7, _hidden, 10.0.0.2", "10.0.0.2"),
            ("198.51.100.7,", "10.0.0.1"),
            ("198.51.100.7:99999", "10.0.0.1"),
            ("198.51.100.777", "10.0.0.1"),
            ("198.51.100.7\u{e9}", "10.0.0.1"),
        ] {
            assert_eq!(client(&trusted, "10.0.0.1", &[forwarded]), expected, "{forwarded}");
        }
    }

    #[test]
    fn what_is_no_block_is_refused() {
        let wrong = TrustedProxies::parse(&["10.0.0.0/99".to_owned()]).unwrap_err();
        assert!(format!("{wrong:#}").contains("http.trusted_proxies: `10.0.0.0/99`"), "{wrong:#}");
    }

    #[test]
    fn half_an_ipv6_address_is_one_network() {
        let of = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.2"), of("192.0.2.1"));
    }
}
