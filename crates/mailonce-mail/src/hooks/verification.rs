//! What the schemes share: keyed hashes, comparisons that take the same time whatever they find, and freshness.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use mailonce_core::time::Time;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use super::{HookRejection, HookRequest, SharedSecret};

/// HMAC-SHA256 of parts that follow each other. Keys of any length are fine; `None` cannot happen and is no match.
pub(crate) fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> Option<[u8; 32]> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    parts.iter().for_each(|part| mac.update(part));
    Some(mac.finalize().into_bytes().into())
}

/// Whether any of the keys gives any of the signatures. All are tried, so that time tells nothing.
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

/// Compares by hash, so that not even the length of a secret shows.
fn secrets_equal(given: &[u8], secret: &[u8]) -> Choice {
    Sha256::digest(given).ct_eq(&Sha256::digest(secret))
}

/// A signed time against ours.
pub(crate) fn check_freshness(signed: Time, now: Time, tolerance_ms: i64) -> Result<(), HookRejection> {
    let off_ms = now.since(signed);
    if off_ms.saturating_abs() <= tolerance_ms { Ok(()) } else { Err(HookRejection::Stale { off_ms }) }
}

/// Whole seconds or milliseconds, digits only: what is signed is exactly what was read.
pub(crate) fn parse_timestamp(text: &str, what: &str) -> Result<i64, HookRejection> {
    let plain = !text.is_empty() && text.len() <= 18 && text.bytes().all(|b| b.is_ascii_digit());
    let number = if plain { text.parse().ok() } else { None };
    number.ok_or_else(|| HookRejection::Malformed(format!("{what} is not a whole number")))
}

/// 32 bytes as hex. `None` when it is anything else.
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

/// 32 bytes as base64. `None` when it is anything else.
pub(crate) fn decode_base64_32(text: &str) -> Option<[u8; 32]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

/// Whether a request brings one of the secrets of a provider that signs nothing.
pub(crate) fn verify_shared_secret(knocks: &[SharedSecret], request: &HookRequest<'_>) -> Result<(), HookRejection> {
    let mut found = Choice::from(0);
    let mut nothing = knocks.first().map(SharedSecret::location);
    for knock in knocks {
        if let Some((given, secret)) = presented_and_expected(knock, request)? {
            found |= secrets_equal(&given, &secret);
            nothing = None;
        }
    }
    match nothing {
        Some(place) => Err(HookRejection::MissingHeader(place)),
        None => require_match(found),
    }
}

/// What was brought and what should have been. `None` when nothing was.
fn presented_and_expected(
    knock: &SharedSecret,
    request: &HookRequest<'_>,
) -> Result<Option<(Vec<u8>, Vec<u8>)>, HookRejection> {
    let authorization = |scheme: &str| -> Result<Option<&str>, HookRejection> {
        let value = request.header("authorization")?;
        let words = value.and_then(|value| value.split_once(' '));
        Ok(words.filter(|(word, _)| word.eq_ignore_ascii_case(scheme)).map(|(_, rest)| rest.trim()))
    };
    Ok(match knock {
        SharedSecret::Basic { user, password } => {
            let given = authorization("basic")?.and_then(|text| STANDARD.decode(text).ok());
            given.map(|given| (given, format!("{user}:{password}").into_bytes()))
        }
        SharedSecret::Bearer(token) => {
            authorization("bearer")?.map(|given| (given.as_bytes().to_vec(), token.as_bytes().to_vec()))
        }
        SharedSecret::Header { name, value } => {
            let given = request
                .header_named(name)
                .map_err(|why| HookRejection::Malformed(format!("the token's header {why}")))?;
            given.map(|given| (given.as_bytes().to_vec(), value.as_bytes().to_vec()))
        }
        SharedSecret::Query { name, value } => {
            request.query_parameter(name).map(|given| (given.as_bytes().to_vec(), value.as_bytes().to_vec()))
        }
    })
}
