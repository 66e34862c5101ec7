//! Postmark: `GET /messages/inbound/{id}/dump` or `/details` returns one mail; `GET /messages/inbound` lists, newest
//! first.
//!
//! The dump is not in Postmark's API reference, only in its client libraries. Without it we use the details, which have
//! everything except the contents of attachments.

use mailonce_core::{
    inbound::provider_mail::{FetchError, FetchedMail, MailListEntry, MailListPage, ProviderMailRef},
    time::Time,
};
use serde_json::Value;

use super::{AccountClient, MAX_ENCODED_MAIL_BYTES, MAX_JSON_BYTES, check_mail_size};
use crate::http::{ProviderRequest, base::percent_encode};

pub(super) const DEFAULT_BASE_URL: &str = "https://api.postmarkapp.com";
/// Entries per page.
const PAGE_SIZE: usize = 100;
/// Postmark's limit for `count + offset`.
const MAX_LISTED: usize = 10_000;
/// Postmark reads dates in Eastern time. Starting one day earlier is safe in every time zone.
const DAY_MS: i64 = 86_400_000;
/// Postmark's error code for an unknown mail.
const NOT_FOUND: i64 = 701;

pub(super) async fn fetch(client: &AccountClient<'_>, notice: &ProviderMailRef) -> Result<FetchedMail, FetchError> {
    let path = format!("/messages/inbound/{}", percent_encode(&notice.id));
    match get_json(client, format!("{path}/dump"), MAX_ENCODED_MAIL_BYTES).await {
        Ok(dump) => match dump.get("Body").and_then(Value::as_str) {
            Some(raw) if !raw.is_empty() => return check_mail_size(raw.as_bytes().to_vec()),
            _ => {}
        },
        Err(later @ FetchError::Temporary { .. }) => return Err(later),
        Err(FetchError::NotFound(_) | FetchError::Permanent(_)) => {}
    }
    get_json(client, format!("{path}/details"), MAX_JSON_BYTES).await.map(FetchedMail::Fields)
}

async fn get_json(client: &AccountClient<'_>, path: String, max_bytes: usize) -> Result<Value, FetchError> {
    let call = ProviderRequest::get(path).with_header("X-Postmark-Server-Token", client.account.api_key.as_str());
    let response = client.send(&client.base, call, max_bytes).await?;
    let code = response.json_object().and_then(|body| body.get("ErrorCode")?.as_i64());
    if response.status == 422 && code == Some(NOT_FOUND) {
        return Err(FetchError::NotFound("postmark does not have this mail".into()));
    }
    let body = client.successful_body(response)?;
    serde_json::from_slice(&body).map_err(|_not_json| client.retry_later("the response is not a JSON object"))
}

pub(super) async fn list(
    client: &AccountClient<'_>,
    since: Time,
    page: Option<&str>,
) -> Result<MailListPage, FetchError> {
    let offset: usize = page.and_then(|page| page.parse().ok()).unwrap_or_default();
    let from: String = since.plus(-DAY_MS).to_string().chars().take(10).collect();
    let path = format!("/messages/inbound?count={PAGE_SIZE}&offset={offset}&fromdate={from}");
    let mut list = get_json(client, path, MAX_JSON_BYTES).await?;
    let Some(Value::Array(mails)) = list.get_mut("InboundMessages").map(Value::take) else {
        return Err(client.retry_later("the list has no InboundMessages"));
    };
    let total = list.get("TotalCount").and_then(Value::as_u64).unwrap_or_default() as usize;
    let next = offset + PAGE_SIZE;
    let has_more = !mails.is_empty() && next < total && next + PAGE_SIZE <= MAX_LISTED;
    let at = |mail: &Value| mail.get("Date").and_then(Value::as_str).and_then(Time::parse);
    let mails = mails.into_iter().map(|entry| MailListEntry { at: at(&entry), fields: entry }).collect();
    Ok(MailListPage { mails, next: has_more.then(|| next.to_string()) })
}
