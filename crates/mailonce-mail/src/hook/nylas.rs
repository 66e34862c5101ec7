//! Nylas: HMAC over the raw body, without a time or an id. A repeat is found by the name of the mail.

use super::{HookRequest, Reject, proof};

pub(super) fn verify(keys: &[Vec<u8>], request: &HookRequest<'_>) -> Result<(), Reject> {
    let signature = request.required("x-nylas-signature")?;
    let signature = proof::hex32(signature).ok_or_else(|| Reject::Malformed("the signature is not hex".into()))?;
    proof::any_hmac(keys, &[request.body], &[signature])
}

/// What Nylas asks an address before it posts there: to say the same again. Letters and digits only, so that nobody
/// can make this server say anything else.
pub fn challenge(query: &str) -> Option<&str> {
    let mut values = query.split('&').filter_map(|pair| pair.strip_prefix("challenge="));
    let value = values.next()?;
    let plain = value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    (plain && (1..=256).contains(&value.len())).then_some(value)
}
