//! Where an API begins: scheme, host, port and path prefix.

use hyper::Uri;

use super::TransportConfigError;

/// A base URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    /// Whether it is reached by TLS.
    pub is_https: bool,
    /// Without the brackets of an IPv6 address.
    pub host: String,
    /// The scheme's own, unless the URL names one.
    pub port: u16,
    /// For the Host header: with the port only when it is not the scheme's own.
    pub authority: String,
    /// Without a slash at its end.
    pub path_prefix: String,
    /// The URL in one spelling, for the account's fingerprint.
    pub url: String,
}

impl BaseUrl {
    /// Takes a URL apart. Credentials and queries are refused.
    pub fn parse(url: &str) -> Result<Self, TransportConfigError> {
        let bad = |why: &str| TransportConfigError(format!("`{url}` {why}"));
        let uri: Uri = url.parse().map_err(|e| bad(&format!("cannot be read: {e}")))?;
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(bad("does not begin with http:// or https://")),
        };
        let named = uri.authority().ok_or_else(|| bad("names no host"))?;
        if named.as_str().contains('@') {
            return Err(bad("holds a user name: credentials have fields of their own"));
        }
        if uri.query().is_some() {
            return Err(bad("has a query"));
        }
        let usual = if https { 443 } else { 80 };
        let port = named.port_u16().unwrap_or(usual);
        let shown = named.host().to_ascii_lowercase();
        let authority = if port == usual { shown.clone() } else { format!("{shown}:{port}") };
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let scheme = if https { "https" } else { "http" };
        let url = format!("{scheme}://{authority}{prefix}");
        let host = shown.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { is_https: https, host, port, authority, path_prefix: prefix, url })
    }
}

/// A path segment or query value, escaped.
pub fn percent_encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let base = BaseUrl::parse("https://API.example.com/v1/").unwrap();
        assert_eq!((base.is_https, base.host.as_str(), base.port), (true, "api.example.com", 443));
        assert_eq!((base.authority.as_str(), base.path_prefix.as_str()), ("api.example.com", "/v1"));
        let base = BaseUrl::parse("http://[::1]:8025").unwrap();
        assert_eq!((base.host.as_str(), base.authority.as_str(), base.path_prefix.as_str()), ("::1", "[::1]:8025", ""));
        assert_eq!(BaseUrl::parse("https://a.test:443").unwrap().url, BaseUrl::parse("https://a.test/").unwrap().url);
    }

    #[test]
    fn what_is_no_base_is_refused() {
        for url in ["", "api.example.com", "ftp://a.test", "https://u:p@a.test", "https://a.test/?x=1", "/v1"] {
            assert!(BaseUrl::parse(url).is_err(), "{url}");
        }
    }
}
