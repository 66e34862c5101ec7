//! Security headers for every response, which restrict what browsers do with it.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
/// One year, for this host only.
const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// Adds the headers that the handler did not set. Responses contain mail and secrets, so they must not be cached unless
/// the handler allows it.
pub(super) fn add_secure_headers(headers: &mut HeaderMap, tls: bool) {
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (RESOURCE_POLICY, HeaderValue::from_static("same-origin")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ] {
        headers.entry(name).or_insert(value);
    }
    if tls {
        headers.entry(header::STRICT_TRANSPORT_SECURITY).or_insert(HSTS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_handler_set_stays() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=60"));
        add_secure_headers(&mut headers, false);
        assert_eq!(headers[header::CACHE_CONTROL], "max-age=60");
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert!(!headers.contains_key(header::STRICT_TRANSPORT_SECURITY));
        add_secure_headers(&mut headers, true);
        assert_eq!(headers[header::STRICT_TRANSPORT_SECURITY], HSTS);
    }
}
