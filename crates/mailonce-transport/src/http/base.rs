//! The base URL of an API: scheme, host, port and path prefix.

use hyper::Uri;

use super::TransportConfigError;

/// A parsed base URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    /// Whether the scheme is `https`.
    pub is_https: bool,
    /// The host; an IPv6 address without its brackets.
    pub host: String,
    /// The port; the scheme's default unless the URL has one.
    pub port: u16,
    /// The value of the `Host` header: with the port only if it is not the scheme's default.
    pub authority: String,
    /// The path without a trailing slash.
    pub path_prefix: String,
    /// The normalized URL, for the account's fingerprint.
    pub url: String,
}

impl BaseUrl {
    /// Parses a URL. Credentials and queries are rejected.
    pub fn parse(url: &str) -> Result<Self, TransportConfigError> {
        let bad = |why: &str| TransportConfigError(format!("`{url}` {why}"));
        let uri: Uri = url.parse().map_err(|e| bad(&format!("is not a valid URL: {e}")))?;
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(bad("does not begin with http:// or https://")),
        };
        let uri_authority = uri.authority().ok_or_else(|| bad("has no host"))?;
        if uri_authority.as_str().contains('@') {
            return Err(bad("contains a user name: set credentials in their own fields"));
        }
        if uri.query().is_some() {
            return Err(bad("has a query"));
        }
        let default_port = if is_https { 443 } else { 80 };
        let port = uri_authority.port_u16().unwrap_or(default_port);
        let uri_host = uri_authority.host().to_ascii_lowercase();
        let authority = if port == default_port { uri_host.clone() } else { format!("{uri_host}:{port}") };
        let path_prefix = uri.path().trim_end_matches('/').to_owned();
        let scheme = if is_https { "https" } else { "http" };
        let url = format!("{scheme}://{authority}{path_prefix}");
        let host = uri_host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { is_https, host, port, authority, path_prefix, url })
    }
}

/// Percent-encodes a path segment or query value.
pub fn percent_encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_into_their_parts() {
        let base = BaseUrl::parse("https://API.example.com/v1/").unwrap();
        assert_eq!((base.is_https, base.host.as_str(), base.port), (true, "api.example.com", 443));
        assert_eq!((base.authority.as_str(), base.path_prefix.as_str()), ("api.example.com", "/v1"));
        let base = BaseUrl::parse("http://[::1]:8025").unwrap();
        assert_eq!((base.host.as_str(), base.authority.as_str(), base.path_prefix.as_str()), ("::1", "[::1]:8025", ""));
        assert_eq!(BaseUrl::parse("https://a.test:443").unwrap().url, BaseUrl::parse("https://a.test/").unwrap().url);
    }

    #[test]
    fn invalid_base_urls_are_rejected() {
        for url in ["", "api.example.com", "ftp://a.test", "https://u:p@a.test", "https://a.test/?x=1", "/v1"] {
            assert!(BaseUrl::parse(url).is_err(), "{url}");
        }
    }
}
