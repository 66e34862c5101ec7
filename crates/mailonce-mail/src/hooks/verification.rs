//! Shared by the providers' signature schemes: HMAC, constant-time comparison and freshness checks.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use mailonce_core::time::Time;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use super::{HookRejection, HookRequest, SharedSecret};

/// HMAC-SHA256 over concatenated parts. HMAC accepts any key length, so `None` cannot happen; it would not match.
pub(crate) fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> Option<[u8; 32]> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    parts.iter().for_each(|part| mac.update(part));
    Some(mac.finalize().into_bytes().into())
}

/// Checks whether any key produces any of the signatures. All are compared, so that the time reveals nothing.
pub(crate) fn verify_any_hmac(keys: &[Vec<u8>], parts: &[&[u8]], signatures: &[[u8; 32]]) -> Result<(), HookRejection> {
    let mut found = Choice::from(0);
    for sum in keys.iter().filter_map(|key| hmac_sha256(key, parts)) {
        for signature in signatures {
            found |= sum.ct_eq(signature);
        }
    }
    require_match(found)
}

fn require_match(found: Choice) -> Result<(), HookRejection> {
    if bool::from(found) { Ok(()) } else { Err(HookRejection::BadSignature) }
}

/// Compares hashes, so that not even the length of a secret is revealed.
fn secrets_equal(presented: &[u8], secret: &[u8]) -> Choice {
    Sha256::digest(presented).ct_eq(&Sha256::digest(secret))
}

/// Compares the signed timestamp with our clock.
pub(crate) fn check_freshness(signed: Time, now: Time, tolerance_ms: i64) -> Result<(), HookRejection> {
    let off_ms = now.since(signed);
    if off_ms.saturating_abs() <= tolerance_ms { Ok(()) } else { Err(HookRejection::Stale { off_ms }) }
}

/// Parses a timestamp of digits only, so that the parsed value is exactly what was signed.
pub(crate) fn parse_timestamp(text: &str, what: &str) -> Result<i64, HookRejection> {
    let plain = !text.is_empty() && text.len() <= 18 && text.bytes().all(|b| b.is_ascii_digit());
    let number = if plain { text.parse().ok() } else { None };
    number.ok_or_else(|| HookRejection::Malformed(format!("{what} is not a whole number")))
}

/// Decodes 32 bytes of hex. `None` for anything else.
pub(crate) fn decode_hex32(text: &str) -> Option<[u8; 32]> {
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != 32 || !odd.is_empty() {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = (hex_digit(*high)? << 4) | hex_digit(*low)?;
    }
    Some(bytes)
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// Decodes 32 bytes of base64. `None` for anything else.
pub(crate) fn decode_base64_32(text: &str) -> Option<[u8; 32]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

/// Checks the shared secret of a provider that does not sign its requests.
pub(crate) fn verify_shared_secret(
    shared_secrets: &[SharedSecret],
    request: &HookRequest<'_>,
) -> Result<(), HookRejection> {
    let mut found = Choice::from(0);
    let mut missing_from = shared_secrets.first().map(SharedSecret::location);
    for shared_secret in shared_secrets {
        if let Some((presented, expected)) = presented_and_expected(shared_secret, request)? {
            found |= secrets_equal(&presented, &expected);
            missing_from = None;
        }
    }
    match missing_from {
        Some(location) => Err(HookRejection::MissingHeader(location)),
        None => require_match(found),
    }
}

/// The presented and the expected secret. `None` if the request has no secret.
fn presented_and_expected(
    shared_secret: &SharedSecret,
    request: &HookRequest<'_>,
) -> Result<Option<(Vec<u8>, Vec<u8>)>, HookRejection> {
    let authorization = |scheme: &str| -> Result<Option<&str>, HookRejection> {
        let value = request.header("authorization")?;
        let words = value.and_then(|value| value.split_once(' '));
        Ok(words.filter(|(word, _)| word.eq_ignore_ascii_case(scheme)).map(|(_, rest)| rest.trim()))
    };
    Ok(match shared_secret {
        SharedSecret::Basic { user, password } => {
            let presented = authorization("basic")?.and_then(|text| STANDARD.decode(text).ok());
            presented.map(|presented| (presented, format!("{user}:{password}").into_bytes()))
        }
        SharedSecret::Bearer(token) => {
            authorization("bearer")?.map(|presented| (presented.as_bytes().to_vec(), token.as_bytes().to_vec()))
        }
        SharedSecret::Header { name, value } => {
            let presented = request
                .header_named(name)
                .map_err(|why| HookRejection::Malformed(format!("the token's header {why}")))?;
            presented.map(|presented| (presented.as_bytes().to_vec(), value.as_bytes().to_vec()))
        }
        SharedSecret::Query { name, value } => {
            request.query_parameter(name).map(|presented| (presented.as_bytes().to_vec(), value.as_bytes().to_vec()))
        }
    })
}
