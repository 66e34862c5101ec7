//! Nylas: `GET /v3/grants/{grant}/messages/{id}?fields=raw_mime` is the mail as it travelled.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use mailonce_core::port::collect::{Given, Notice, Withheld};
use serde_json::Value;

use super::{Desk, PACKED_BYTES, bounded};
use crate::http::{Call, base::escaped};

pub(super) const USUAL_URL: &str = "https://api.us.nylas.com";
/// Base64 for URLs, with or without its padding.
const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(super) async fn fetch(desk: &Desk<'_>, notice: &Notice) -> Result<Given, Withheld> {
    let grant = notice.grant.as_deref().ok_or_else(|| Withheld::Never("the notice names no grant".into()))?;
    let path = format!("/v3/grants/{}/messages/{}?fields=raw_mime", escaped(grant), escaped(&notice.id));
    let answer = desk.object(Call::get(path).bearer(&desk.api_key), PACKED_BYTES).await?;
    let packed = answer.pointer("/data/raw_mime").and_then(Value::as_str).filter(|packed| !packed.is_empty());
    let packed = packed.ok_or_else(|| desk.later("the message has no raw_mime"))?;
    bounded(BASE64URL.decode(packed).map_err(|_not_base64| desk.later("raw_mime is no base64"))?)
}
