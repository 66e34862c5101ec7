//! Files of the binary that clients load: compressed where they accept it, and not again while they have not changed.

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

/// A file that is served.
pub(super) struct ServedFile {
    pub(super) content_type: &'static str,
    /// Entity tag, in quotes.
    pub(super) etag: &'static str,
    /// The file, compressed with gzip.
    pub(super) gzip: &'static [u8],
}

impl ServedFile {
    /// The response to a request with these headers. `plain` is the file for clients that do not accept gzip.
    pub(super) fn respond(&self, headers: &HeaderMap, plain: impl FnOnce() -> &'static [u8]) -> Response {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
        let is_known = text(header::IF_NONE_MATCH).split(',').any(|tag| tag.trim() == self.etag);
        let takes_gzip = text(header::ACCEPT_ENCODING).split(',').any(|coding| {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
            name.trim().eq_ignore_ascii_case("gzip") && weight.replace(' ', "") != "q=0"
        });
        let mut response = match (is_known, takes_gzip) {
            (true, _) => StatusCode::NOT_MODIFIED.into_response(),
            (false, true) => Bytes::from_static(self.gzip).into_response(),
            (false, false) => Bytes::from_static(plain()).into_response(),
        };
        let answer = response.headers_mut();
        answer.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        answer.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        answer.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        answer.extend(HeaderValue::from_str(self.etag).ok().map(|tag| (header::ETAG, tag)));
        if takes_gzip && !is_known {
            answer.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}
