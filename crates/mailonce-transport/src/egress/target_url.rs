//! Parses a tenant's URL by the WHATWG rules that browsers follow, so that no spelling can disguise the host.

use mailonce_core::limits;
use std::net::IpAddr;
use url::{Host, Url};

/// Last labels of names that only resolve inside a private network. Names without a dot count as internal too.
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

/// A parsed `http` or `https` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetUrl {
    /// Whether the scheme is `https`.
    pub is_https: bool,
    /// A host name in lower case, or an IP address without brackets.
    pub host: String,
    /// The address, if the host is an IP address.
    pub ip_literal: Option<IpAddr>,
    /// The port that is dialled.
    pub port: u16,
    /// The value of the `Host` header.
    pub authority: String,
    /// Path and query.
    pub path_and_query: String,
}

impl TargetUrl {
    /// Parses a URL. Every unusual spelling is rejected, whatever it would mean.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > limits::URL_CHARS {
            return Err(format!("is longer than {} characters", limits::URL_CHARS));
        }
        // URL parsers disagree about these characters: some drop them, some read them as slashes.
        if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
            return Err("contains whitespace, a backslash or a non-ASCII character".into());
        }
        let url = Url::parse(text).map_err(|error| format!("is not a URL: {error}"))?;
        let is_https = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err("does not begin with https://".into()),
        };
        if !url.username().is_empty() || url.password().is_some() || written_authority(text).contains('@') {
            return Err("contains a user name or a password".into());
        }
        if url.fragment().is_some() {
            return Err("has a fragment (#), which is never sent to the server".into());
        }
        let port = url.port_or_known_default().filter(|port| *port != 0).ok_or("has port 0")?;
        let (host, ip_literal) = check_host(&url, text)?;
        let bracketed_host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let authority = url.port().map_or_else(|| bracketed_host.clone(), |port| format!("{bracketed_host}:{port}"));
        let path_and_query =
            url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        Ok(Self { is_https, host, ip_literal, port, authority, path_and_query })
    }

    /// Whether the host name is internal: it has no dot, or a last label used in private networks.
    pub fn is_internal(&self) -> bool {
        let last = self.host.rsplit('.').next().unwrap_or_default();
        self.ip_literal.is_none() && (!self.host.contains('.') || INTERNAL_SUFFIXES.contains(&last))
    }
}

/// Host and port exactly as written in the URL.
fn written_authority(text: &str) -> &str {
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

/// The host. Rejects spellings that parse to another host, such as `0x7f.1` or `%6c%6f`.
fn check_host(url: &Url, text: &str) -> Result<(String, Option<IpAddr>), String> {
    let (host, ip_literal) = match url.host().ok_or("has no host")? {
        Host::Domain(name) => (name.to_owned(), None),
        Host::Ipv4(ip) => (ip.to_string(), Some(IpAddr::V4(ip))),
        Host::Ipv6(ip) => (ip.to_string(), Some(IpAddr::V6(ip))),
    };
    if ip_literal.is_none_or(|ip| ip.is_ipv4()) {
        let written_host = written_authority(text).split(':').next().unwrap_or_default();
        if !written_host.eq_ignore_ascii_case(&host) {
            return Err("spells its host in a non-canonical form".into());
        }
    }
    let name = host.strip_suffix('.').unwrap_or(&host);
    if name.is_empty() || name.len() > 253 || name.split('.').any(|label| label.is_empty() || label.len() > 63) {
        return Err("has no valid host name".into());
    }
    Ok((name.to_owned(), ip_literal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_parsed_into_its_parts() {
        let target = TargetUrl::parse("https://Hooks.Example.com:8443/in?x=1").unwrap();
        assert_eq!((target.is_https, target.host.as_str(), target.port), (true, "hooks.example.com", 8443));
        assert_eq!((target.authority.as_str(), target.path_and_query.as_str()), ("hooks.example.com:8443", "/in?x=1"));
        let target = TargetUrl::parse("http://[::1]:80/").unwrap();
        assert_eq!((target.authority.as_str(), target.port), ("[::1]", 80));
        assert_eq!(TargetUrl::parse("https://a.test.").unwrap().host, "a.test");
        assert_eq!(TargetUrl::parse("https://a.test").unwrap().path_and_query, "/");
    }
}
