//! Responses that browsers save as a file.

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};

/// The bytes of an attachment of outgoing email, as a file to save. No cache keeps them.
pub(crate) fn attachment_response(bytes: Vec<u8>, filename: Option<&str>) -> Response {
    let mut response = bytes.into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    set_download_headers(&mut response, filename.unwrap_or("attachment"));
    response
}

/// Makes browsers download the response instead of rendering untrusted content on this origin.
pub(crate) fn set_download_headers(response: &mut Response, name: &str) {
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || "-_. ".contains(*c)).collect();
    let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{plain}\""));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_DISPOSITION, disposition.unwrap_or(HeaderValue::from_static("attachment")));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
}
