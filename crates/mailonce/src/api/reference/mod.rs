//! The API reference at `/docs`: a page, and the viewer that it loads.
//!
//! The viewer is Scalar, vendored from npm (`docs/decisions/0046`). It loads nothing from other hosts, and the content
//! security policy of the page would refuse it.

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderValue, header},
    response::{Html, IntoResponse, Response},
};
use std::{io::Read as _, sync::LazyLock};

use super::served_file::ServedFile;

/// `dist/browser/standalone.js` of `@scalar/api-reference` 1.72.1, compressed with `gzip -9n`.
static VIEWER_GZIP: &[u8] = include_bytes!("scalar.js.gz");
/// SHA-256 of the vendored file before it was compressed.
const VIEWER_SHA256: &str = "bf091006bdc3af6067af77c2f534812e3e633e94a94e87138069f570f33b762c";

/// Scalar adds style elements, which is why inline styles are allowed. Scripts come from this server alone, and calls of
/// "Test Request" go to this server alone.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src 'self' data:; \
                      font-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Browse the API reference.
#[utoipa::path(get, path = "/docs", operation_id = "read_docs_page", tag = "system", security(()), responses((status = 200, description = "An HTML page", body = String, content_type = "text/html")))]
pub(super) async fn page() -> Response {
    let mut page = Html(include_str!("page.html")).into_response();
    page.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    page
}

/// Serves the viewer.
pub(super) async fn viewer(headers: HeaderMap) -> Response {
    static ETAG: LazyLock<String> = LazyLock::new(|| format!("\"{}\"", &VIEWER_SHA256[..16]));
    let file = ServedFile {
        content_type: "text/javascript; charset=utf-8",
        etag: &ETAG,
        gzip: Bytes::from_static(VIEWER_GZIP),
    };
    file.respond(&headers, || Bytes::from_static(&UNPACKED_VIEWER))
}

/// For clients that do not accept gzip.
static UNPACKED_VIEWER: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut unpacked = Vec::new();
    match flate2::read::GzDecoder::new(VIEWER_GZIP).read_to_end(&mut unpacked) {
        Ok(_) => unpacked,
        // The tests unpack it, so that this does not happen.
        Err(_) => Vec::new(),
    }
});

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::hex::format_hash;
    use sha2::{Digest as _, Sha256};

    #[test]
    fn the_viewer_is_the_vendored_file() {
        let digest = format_hash(&Sha256::digest(&*UNPACKED_VIEWER).into());
        assert_eq!(digest, VIEWER_SHA256);
        assert!(VIEWER_GZIP.len() <= 1_300_000, "{} bytes", VIEWER_GZIP.len());
    }

    #[test]
    fn the_page_names_no_other_host_and_needs_no_inline_script() {
        let page = include_str!("page.html");
        assert!(!page.contains("//") || !page.contains("http"), "{page}");
        assert!(!POLICY.contains("unsafe-eval") && !POLICY.contains("script-src 'unsafe-inline'"));
        for script in page.split("<script").skip(1) {
            let (_, body) = script.split_once('>').unwrap();
            assert!(body.starts_with("</script>"), "an inline script would not run: {body}");
        }
    }
}
