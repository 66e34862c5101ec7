//! Nylas: HMAC over the raw body, without a timestamp or an id. Retries are detected by the message id.

use super::{HookRejection, HookRequest};
use crate::hooks::verification;

pub(crate) fn verify(keys: &[Vec<u8>], request: &HookRequest<'_>) -> Result<(), HookRejection> {
    let signature = request.required_header("x-nylas-signature")?;
    let signature = verification::decode_hex32(signature)
        .ok_or_else(|| HookRejection::Malformed("the signature is not hex".into()))?;
    verification::verify_any_hmac(keys, &[request.body], &[signature])
}

/// The challenge that Nylas sends to a new webhook URL and expects back. Only letters, digits, `-`, `_` and `.` are
/// echoed, so that nobody can make this server return other content.
pub fn challenge_response(query: &str) -> Option<&str> {
    let mut values = query.split('&').filter_map(|pair| pair.strip_prefix("challenge="));
    let value = values.next()?;
    let is_plain = value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    (is_plain && (1..=256).contains(&value.len())).then_some(value)
}
