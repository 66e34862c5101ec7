//! An address that a tenant named, taken apart by the rules that browsers follow, so that no spelling hides a host.

use mailonce_core::limits;
use std::net::IpAddr;
use url::{Host, Url};

/// Endings of names that mean something else in every house, and names without any dot.
const INTERNAL_SUFFIXES: [&str; 20] = [
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "svc",
    "cluster",
    "consul",
    "docker",
    "kubernetes",
    "arpa",
    "onion",
    "i2p",
    "alt",
    "invalid",
    "workgroup",
];

/// An `http` or `https` address of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetUrl {
    /// Whether it is reached by TLS.
    pub is_https: bool,
    /// A name in lower case, or an address without brackets.
    pub host: String,
    /// The address, when the host is one.
    pub ip_literal: Option<IpAddr>,
    /// The port that is dialled.
    pub port: u16,
    /// For the `Host` header.
    pub authority: String,
    /// Path and query.
    pub path_and_query: String,
}

impl TargetUrl {
    /// Takes an address apart. Whatever is spelt in an unusual way is refused, whatever it would mean.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > limits::URL_CHARS {
            return Err(format!("is longer than {} characters", limits::URL_CHARS));
        }
        // Readers of addresses disagree about these: some drop them, some take them for slashes.
        if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
            return Err("holds a blank, a backslash or a character beyond ASCII".into());
        }
        let url = Url::parse(text).map_err(|error| format!("is no address: {error}"))?;
        let https = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err("does not begin with https://".into()),
        };
        if !url.username().is_empty() || url.password().is_some() || written_authority(text).contains('@') {
            return Err("holds a user name or a password".into());
        }
        if url.fragment().is_some() {
            return Err("has a fragment, which nobody would receive".into());
        }
        let port = url.port_or_known_default().filter(|port| *port != 0).ok_or("names port 0")?;
        let (host, literal) = check_host(&url, text)?;
        let shown = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let authority = url.port().map_or_else(|| shown.clone(), |port| format!("{shown}:{port}"));
        let target = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        Ok(Self { is_https: https, host, ip_literal: literal, port, authority, path_and_query: target })
    }

    /// Whether the name is one that only an inner network knows.
    pub fn is_internal(&self) -> bool {
        let last = self.host.rsplit('.').next().unwrap_or_default();
        self.ip_literal.is_none() && (!self.host.contains('.') || INTERNAL_SUFFIXES.contains(&last))
    }
}

/// Host and port as they were written.
fn written_authority(text: &str) -> &str {
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

/// The host, and that it was written as it is read: `0x7f.1` and `%6c%6f` are read as something else.
fn check_host(url: &Url, text: &str) -> Result<(String, Option<IpAddr>), String> {
    let (host, literal) = match url.host().ok_or("names no host")? {
        Host::Domain(name) => (name.to_owned(), None),
        Host::Ipv4(ip) => (ip.to_string(), Some(IpAddr::V4(ip))),
        Host::Ipv6(ip) => (ip.to_string(), Some(IpAddr::V6(ip))),
    };
    if literal.is_none_or(|ip| ip.is_ipv4()) {
        let shown = written_authority(text).split(':').next().unwrap_or_default();
        if !shown.eq_ignore_ascii_case(&host) {
            return Err("spells its host in an unusual way".into());
        }
    }
    let name = host.strip_suffix('.').unwrap_or(&host);
    if name.is_empty() || name.len() > 253 || name.split('.').any(|label| label.is_empty() || label.len() > 63) {
        return Err("names no host".into());
    }
    Ok((name.to_owned(), literal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_apart() {
        let place = TargetUrl::parse("https://Hooks.Example.com:8443/in?x=1").unwrap();
        assert_eq!((place.is_https, place.host.as_str(), place.port), (true, "hooks.example.com", 8443));
        assert_eq!((place.authority.as_str(), place.path_and_query.as_str()), ("hooks.example.com:8443", "/in?x=1"));
        let place = TargetUrl::parse("http://[::1]:80/").unwrap();
        assert_eq!((place.authority.as_str(), place.port), ("[::1]", 80));
        assert_eq!(TargetUrl::parse("https://a.test.").unwrap().host, "a.test");
        assert_eq!(TargetUrl::parse("https://a.test").unwrap().path_and_query, "/");
    }
}
