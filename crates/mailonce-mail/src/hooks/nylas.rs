//! Nylas: HMAC over the raw body, without a time or an id. A repeat is found by the name of the mail.

use super::{HookRejection, HookRequest};
use crate::hooks::verification;

pub(crate) fn verify(keys: &[Vec<u8>], request: &HookRequest<'_>) -> Result<(), HookRejection> {
    let signature = request.required_header("x-nylas-signature")?;
    let signature = verification::decode_hex32(signature)
        .ok_or_else(|| HookRejection::Malformed("the signature is not hex".into()))?;
    verification::verify_any_hmac(keys, &[request.body], &[signature])
}

/// What Nylas asks an address before it posts there: to say the same again. Letters and digits only, so that nobody
/// can make this server say anything else.
pub fn challenge_response(query: &str) -> Option<&str> {
    let mut values = query.split('&').filter_map(|pair| pair.strip_prefix("challenge="));
    let value = values.next()?;
    let plain = value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    (plain && (1..=256).contains(&value.len())).then_some(value)
}
