//! Classifies IP addresses. A tenant's URL may only lead to public ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The class of an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressClass {
    /// A host on the public Internet.
    Public,
    /// This machine.
    Loopback,
    /// A private network (RFC 1918, unique local IPv6).
    Private,
    /// Link-local, where clouds serve instance metadata.
    LinkLocal,
    /// Platform services of a cloud at an address that looks public.
    Metadata,
    /// Carrier-grade NAT (RFC 6598).
    Shared,
    /// Multicast or broadcast.
    Multicast,
    /// An IPv4 address embedded in IPv6, or a tunnel: the real destination is hidden.
    Tunnelled,
    /// Reserved, for documentation or benchmarks, or unassigned.
    Reserved,
}

impl AddressClass {
    /// Classifies an address.
    pub fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => classify_v4(ip),
            IpAddr::V6(ip) => classify_v6(ip),
        }
    }

    /// The wording for error messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::Metadata => "a cloud metadata service",
            Self::Shared => "shared (carrier-grade NAT)",
            Self::Multicast => "multicast",
            Self::Tunnelled => "tunnelled",
            Self::Reserved => "reserved",
        }
    }
}

fn classify_v4(ip: Ipv4Addr) -> AddressClass {
    match ip.octets() {
        [127, ..] => AddressClass::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => AddressClass::Private,
        [169, 254, ..] => AddressClass::LinkLocal,
        // The platform services of Azure and, inside 192.0.0.0/24, of Oracle Cloud.
        [168, 63, 129, 16] | [192, 0, 0, 192] => AddressClass::Metadata,
        [100, 64..=127, ..] => AddressClass::Shared,
        [224..=239, ..] | [255, 255, 255, 255] => AddressClass::Multicast,
        // 6to4 relays.
        [192, 88, 99, _] => AddressClass::Tunnelled,
        [0 | 240..=255, ..] | [192, 0, 0 | 2, _] | [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => {
            AddressClass::Reserved
        }
        _ => AddressClass::Public,
    }
}

fn classify_v6(ip: Ipv6Addr) -> AddressClass {
    let s = ip.segments();
    if ip.is_loopback() {
        return AddressClass::Loopback;
    }
    if ip.is_unspecified() {
        return AddressClass::Reserved;
    }
    match s {
        // IPv4 in IPv6: mapped, compatible and translated.
        [0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => AddressClass::Tunnelled,
        // NAT64 with its well-known and its local prefix, 6to4, Teredo.
        [0x64, 0xff9b, ..] | [0x2002, ..] | [0x2001, 0, ..] => AddressClass::Tunnelled,
        // ISATAP: an IPv4 address as the second half of any prefix.
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => AddressClass::Tunnelled,
        [0xfc00..=0xfdff, ..] => AddressClass::Private,
        // Link-local, and the deprecated site-local range.
        [0xfe80..=0xfeff, ..] => AddressClass::LinkLocal,
        [0xff00..=0xffff, ..] => AddressClass::Multicast,
        // Of the rest only 2000::/3 is allocated, except protocol assignments and documentation prefixes.
        [0x2001, 1..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => AddressClass::Reserved,
        [0x2000..=0x3fff, ..] => AddressClass::Public,
        _ => AddressClass::Reserved,
    }
}

/// Whether an address is on the public Internet.
pub fn is_public(ip: IpAddr) -> bool {
    AddressClass::of(ip) == AddressClass::Public
}
