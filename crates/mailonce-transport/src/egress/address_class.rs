//! What an address is for. Only the open Internet may be dialled on a tenant's word.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressClass {
    /// Any host of the open Internet.
    Public,
    /// This machine.
    Loopback,
    /// Somebody's own network.
    Private,
    /// This link, where clouds answer for their metadata.
    LinkLocal,
    /// A cloud's own services at an address that looks public.
    Metadata,
    /// The network between a provider and its customers.
    Shared,
    /// Many hosts at a time, or all of them.
    Multicast,
    /// An address inside an address: what it leads to is not what it looks like.
    Tunnelled,
    /// Reserved, for documentation, for tests, or none at all.
    Reserved,
}

impl AddressClass {
    /// What an address is for.
    pub fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => classify_v4(ip),
            IpAddr::V6(ip) => classify_v6(ip),
        }
    }

    /// For the words of a refusal.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Loopback => "of this machine",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::Metadata => "a cloud's metadata",
            Self::Shared => "a provider's own",
            Self::Multicast => "multicast",
            Self::Tunnelled => "an address inside an address",
            Self::Reserved => "reserved",
        }
    }
}

fn classify_v4(ip: Ipv4Addr) -> AddressClass {
    match ip.octets() {
        [127, ..] => AddressClass::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => AddressClass::Private,
        [169, 254, ..] => AddressClass::LinkLocal,
        // Azure's platform and, inside 192.0.0.0/24, Oracle's.
        [168, 63, 129, 16] | [192, 0, 0, 192] => AddressClass::Metadata,
        [100, 64..=127, ..] => AddressClass::Shared,
        [224..=239, ..] | [255, 255, 255, 255] => AddressClass::Multicast,
        // Relays of 6to4.
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
        // Link-local, and what used to be site-local.
        [0xfe80..=0xfeff, ..] => AddressClass::LinkLocal,
        [0xff00..=0xffff, ..] => AddressClass::Multicast,
        // Of the rest only 2000::/3 is given out, and not all of it: protocol assignments and documentation.
        [0x2001, 1..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => AddressClass::Reserved,
        [0x2000..=0x3fff, ..] => AddressClass::Public,
        _ => AddressClass::Reserved,
    }
}

/// Whether an address is one of the open Internet.
pub fn is_public(ip: IpAddr) -> bool {
    AddressClass::of(ip) == AddressClass::Public
}
