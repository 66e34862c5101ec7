//! Files of the binary that clients load: compressed where they accept it, and not again while they have not changed.

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use std::io::Write as _;

/// Compresses a file with gzip, as small as it gets.
pub(super) fn gzip(plain: &[u8]) -> Bytes {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    // Writing to memory does not fail.
    encoder.write_all(plain).and_then(|()| encoder.finish()).unwrap_or_default().into()
}

/// A file that is served.
pub(super) struct ServedFile<'a> {
    pub(super) content_type: &'static str,
    /// Entity tag, in quotes.
    pub(super) etag: &'a str,
    /// The file, compressed with gzip.
    pub(super) gzip: Bytes,
}

impl ServedFile<'_> {
    /// The response to a request with these headers. `plain` is the file for clients that do not accept gzip.
    pub(super) fn respond(self, headers: &HeaderMap, plain: impl FnOnce() -> Bytes) -> Response {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
        let is_known = text(header::IF_NONE_MATCH).split(',').any(|tag| tag.trim() == self.etag);
        let takes_gzip = text(header::ACCEPT_ENCODING).split(',').any(|coding| {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
            name.trim().eq_ignore_ascii_case("gzip") && weight.replace(' ', "") != "q=0"
        });
        let mut response = match (is_known, takes_gzip) {
            (true, _) => StatusCode::NOT_MODIFIED.into_response(),
            (false, true) => self.gzip.into_response(),
            (false, false) => plain().into_response(),
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
