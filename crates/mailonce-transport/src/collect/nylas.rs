//! Nylas: `GET /v3/grants/{grant}/messages/{id}?fields=raw_mime` returns the raw mail.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use mailonce_core::inbound::provider_mail::{FetchError, FetchedMail, ProviderMailRef};
use serde_json::Value;

use super::{AccountClient, MAX_ENCODED_MAIL_BYTES, check_mail_size};
use crate::http::{ProviderRequest, base::percent_encode};

pub(super) const DEFAULT_BASE_URL: &str = "https://api.us.nylas.com";
/// Base64 for URLs, with or without its padding.
const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(super) async fn fetch(client: &AccountClient<'_>, notice: &ProviderMailRef) -> Result<FetchedMail, FetchError> {
    let grant =
        notice.grant.as_deref().ok_or_else(|| FetchError::Permanent("the notification has no grant id".into()))?;
    let path = format!("/v3/grants/{}/messages/{}?fields=raw_mime", percent_encode(grant), percent_encode(&notice.id));
    let body = client.get_json(ProviderRequest::get(path).with_bearer(&client.api_key), MAX_ENCODED_MAIL_BYTES).await?;
    let encoded = body.pointer("/data/raw_mime").and_then(Value::as_str).filter(|encoded| !encoded.is_empty());
    let encoded = encoded.ok_or_else(|| client.retry_later("the message has no raw_mime"))?;
    check_mail_size(BASE64URL.decode(encoded).map_err(|_not_base64| client.retry_later("raw_mime is not base64"))?)
}
