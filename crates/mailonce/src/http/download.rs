//! Responses that browsers save as a file.

use axum::{
    http::{HeaderValue, header},
    response::Response,
};

/// Makes browsers download the response instead of rendering untrusted content on this origin.
pub(crate) fn set_download_headers(response: &mut Response, name: &str) {
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || "-_. ".contains(*c)).collect();
    let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{plain}\""));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_DISPOSITION, disposition.unwrap_or(HeaderValue::from_static("attachment")));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
}
