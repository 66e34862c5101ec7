//! The dashboard: a web page that shows what was sent, what was stopped and what waits for a person.
//!
//! Its source is in `web/`, and the built files in `web/dist` are part of the binary, also of a build for development, so that the
//! tests see what a release serves. `npm run dev` in `web/` shows changes without a build. The page uses the public API only.

use axum::{
    Router,
    body::Bytes,
    extract::Path,
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::{IntoResponse as _, Redirect, Response},
    routing::get,
};
use mailonce_core::{
    hex::format_hash,
    problem::{Code, Problem, shorten},
};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};
use uuid::Uuid;

use super::served_file::{ServedFile, gzip};
use crate::http::{
    app::{ApiResult, App},
    params::PathParam,
    problem::ApiError,
};

/// The built files.
#[derive(rust_embed::Embed)]
#[folder = "../../web/dist"]
struct DashboardFiles;

/// Addresses of the pages. The browser decides which page it shows, so all of them are one file.
const PAGES: [&str; 11] = [
    "/needs-you",
    "/emails",
    "/live",
    "/inboxes",
    "/messages",
    "/threads",
    "/duplicates",
    "/keys",
    "/webhooks",
    "/stops",
    "/setup",
];

/// The styles of received mail.
const MAIL_STYLES: &str = "mail.css";

/// Scripts and styles come from this server alone, and nothing is loaded from elsewhere. Received HTML is shown in frames
/// without any rights, whose own policy is in their document.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      font-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types mailonce-mail";

/// The routes of the pages and their files. They are no part of the API and not in its document.
pub(super) fn routes() -> Router<App> {
    let mut router = Router::new().route("/", get(page)).route("/assets/{file}", get(asset));
    router = router.route("/approve/{id}", get(earlier_address_of_question));
    for path in PAGES {
        router = router.route(path, get(page)).route(&format!("{path}/{{*rest}}"), get(page));
    }
    router
}

async fn page(headers: HeaderMap) -> Response {
    let mut response = respond(&headers, "index.html", "text/html; charset=utf-8");
    let answer = response.headers_mut();
    answer.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    answer.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    answer.insert(HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin"));
    response
}

/// The address that the page of a question had before. Older messages link to it.
async fn earlier_address_of_question(PathParam(id): PathParam) -> ApiResult {
    let missing = |_not_an_id| Problem::new(Code::NotFound, format!("there is no escalation {}", shorten(&id)));
    let id = Uuid::try_parse(&id).map_err(missing)?;
    Ok(Redirect::to(&format!("/needs-you/{id}")).into_response())
}

async fn asset(Path(file): Path<String>, headers: HeaderMap) -> Response {
    let content_type = match file.rsplit_once('.') {
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => return not_found(&file),
    };
    let mut response = respond(&headers, &format!("assets/{file}"), content_type);
    // The frames of received mail have an origin of their own, and load this style sheet alone.
    if file == MAIL_STYLES {
        let policy = HeaderName::from_static("cross-origin-resource-policy");
        response.headers_mut().insert(policy, HeaderValue::from_static("cross-origin"));
    }
    response
}

fn not_found(file: &str) -> Response {
    ApiError(Problem::new(Code::NotFound, format!("the dashboard has no file {}", shorten(file)))).into_response()
}

fn respond(headers: &HeaderMap, name: &str, content_type: &'static str) -> Response {
    let Some(file) = DashboardFiles::get(name) else { return not_found(name) };
    let hash = file.metadata.sha256_hash();
    let etag = format!("\"{}\"", &format_hash(&hash)[..16]);
    let plain = Bytes::from_owner(file.data);
    let served = ServedFile { content_type, etag: &etag, gzip: compress_once(hash, &plain) };
    let mut response = served.respond(headers, || plain);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The file, compressed with gzip. Each content is compressed once.
fn compress_once(hash: [u8; 32], plain: &Bytes) -> Bytes {
    static COMPRESSED: Mutex<Option<HashMap<[u8; 32], Bytes>>> = Mutex::new(None);
    let mut compressed = COMPRESSED.lock().unwrap_or_else(PoisonError::into_inner);
    let files = compressed.get_or_insert_with(HashMap::new);
    files.entry(hash).or_insert_with(|| gzip(plain)).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit of all files together, compressed.
    const MAX_BYTES: usize = 200_000;

    #[test]
    fn all_files_together_stay_small() {
        let total: usize =
            DashboardFiles::iter().map(|name| gzip(&DashboardFiles::get(&name).unwrap().data).len()).sum();
        assert!(total <= MAX_BYTES, "{total} bytes");
    }

    #[test]
    fn the_page_needs_no_inline_script_or_style() {
        let page = DashboardFiles::get("index.html").unwrap().data;
        let page = std::str::from_utf8(&page).unwrap();
        assert!(!POLICY.contains("unsafe") && !page.contains("<style") && !page.contains(" style="));
        for script in page.split("<script").skip(1) {
            let (_, body) = script.split_once('>').unwrap();
            assert!(body.starts_with("</script>"), "an inline script would not run: {body}");
        }
    }
}
