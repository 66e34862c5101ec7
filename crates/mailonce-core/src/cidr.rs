//! CIDR blocks of IP addresses, such as `10.0.0.0/8`.

use serde::{Deserialize, Serialize};
use std::{fmt, net::IpAddr, str::FromStr};

/// A CIDR block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    base: IpAddr,
    bits: u32,
}

impl Cidr {
    /// Whether the block contains an address. An IPv4-mapped IPv6 address does not match an IPv4 block.
    pub fn contains_ip(&self, ip: IpAddr) -> bool {
        match (self.base, ip) {
            (IpAddr::V4(base), IpAddr::V4(ip)) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
                base.to_bits() & mask == ip.to_bits() & mask
            }
            (IpAddr::V6(base), IpAddr::V6(ip)) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
                base.to_bits() & mask == ip.to_bits() & mask
            }
            _ => false,
        }
    }

    /// Whether the block contains all of another block.
    pub fn contains_block(&self, other: &Self) -> bool {
        self.bits <= other.bits && self.contains_ip(other.base)
    }
}

impl TryFrom<String> for Cidr {
    type Error = CidrError;

    fn try_from(text: String) -> Result<Self, CidrError> {
        text.parse()
    }
}

impl From<Cidr> for String {
    fn from(block: Cidr) -> Self {
        block.to_string()
    }
}

/// Why a text is not a CIDR block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a block of addresses such as 10.0.0.0/8 or fd00::/8")]
pub struct CidrError(String);

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let not = || CidrError(text.to_owned());
        let (base, bits) = text.split_once('/').map_or((text, None), |(base, bits)| (base, Some(bits)));
        let base: IpAddr = base.parse().map_err(|_error| not())?;
        let most = if base.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_error| not())?;
        let block = Self { base, bits };
        if bits > most {
            return Err(not());
        }
        Ok(block)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_what_is_in_them() {
        for (block, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("192.168.7.9", "192.168.7.9", "192.168.7.8"),
            ("0.0.0.0/0", "8.8.8.8", "::ffff:8.8.8.8"),
            ("fd00::/8", "fd12::1", "fe80::1"),
            ("::/0", "2600::1", "1.2.3.4"),
            ("127.0.0.2/32", "127.0.0.2", "127.0.0.1"),
        ] {
            let block: Cidr = block.parse().unwrap();
            assert!(block.contains_ip(inside.parse().unwrap()), "{block} {inside}");
            assert!(!block.contains_ip(outside.parse().unwrap()), "{block} {outside}");
        }
        for bad in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/", "10.0.0.0/-1", "host/8", "10.0.0.0/8/8"] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_block_contains_smaller_ones() {
        let contains =
            |outer: &str, inner: &str| outer.parse::<Cidr>().unwrap().contains_block(&inner.parse::<Cidr>().unwrap());
        assert!(contains("10.0.0.0/8", "10.9.0.0/16") && contains("10.0.0.0/8", "10.0.0.0/8"));
        assert!(contains("::/0", "fd00::/8") && contains("10.0.0.0/8", "10.1.2.3"));
        assert!(!contains("10.9.0.0/16", "10.0.0.0/8") && !contains("10.0.0.0/8", "11.0.0.0/16"));
        assert!(!contains("0.0.0.0/0", "::1") && !contains("::/0", "10.0.0.1"));
    }
}
