//! Postmark: `GET /messages/inbound/{id}/dump` or `/details` is one mail, `GET /messages/inbound` lists, newest first.
//!
//! The dump is not in Postmark's reference, only in its clients; where there is none, the details have everything but
//! the contents of files.

use mailonce_core::{
    inbound::provider_mail::{FetchError, FetchedMail, MailListEntry, MailListPage, ProviderMailRef},
    time::Time,
};
use serde_json::Value;

use super::{AccountClient, MAX_ENCODED_MAIL_BYTES, MAX_JSON_BYTES, check_mail_size};
use crate::http::{ProviderRequest, base::percent_encode};

pub(super) const DEFAULT_BASE_URL: &str = "https://api.postmarkapp.com";
/// Mails of one page.
const PAGE_SIZE: usize = 100;
/// Postmark lists no more than this, however it is asked.
const MAX_LISTED: usize = 10_000;
/// Dates are days in New York; a day earlier is surely early enough.
const DAY_MS: i64 = 86_400_000;
/// What it calls a mail that it does not have.
const NOT_FOUND: i64 = 701;

pub(super) async fn fetch(desk: &AccountClient<'_>, notice: &ProviderMailRef) -> Result<FetchedMail, FetchError> {
    let path = format!("/messages/inbound/{}", percent_encode(&notice.id));
    match get_json(desk, format!("{path}/dump"), MAX_ENCODED_MAIL_BYTES).await {
        Ok(dump) => match dump.get("Body").and_then(Value::as_str) {
            Some(raw) if !raw.is_empty() => return check_mail_size(raw.as_bytes().to_vec()),
            _ => {}
        },
        Err(later @ FetchError::Temporary { .. }) => return Err(later),
        Err(FetchError::NotFound(_) | FetchError::Permanent(_)) => {}
    }
    get_json(desk, format!("{path}/details"), MAX_JSON_BYTES).await.map(FetchedMail::Fields)
}

async fn get_json(desk: &AccountClient<'_>, path: String, most: usize) -> Result<Value, FetchError> {
    let call = ProviderRequest::get(path).with_header("X-Postmark-Server-Token", desk.account.api_key.as_str());
    let answer = desk.send(&desk.base, call, most).await?;
    let code = answer.json_object().and_then(|body| body.get("ErrorCode")?.as_i64());
    if answer.status == 422 && code == Some(NOT_FOUND) {
        return Err(FetchError::NotFound("postmark does not have this mail".into()));
    }
    let body = desk.successful_body(answer)?;
    serde_json::from_slice(&body).map_err(|_not_json| desk.retry_later("the answer is no JSON object"))
}

pub(super) async fn list(
    desk: &AccountClient<'_>,
    since: Time,
    page: Option<&str>,
) -> Result<MailListPage, FetchError> {
    let offset: usize = page.and_then(|page| page.parse().ok()).unwrap_or_default();
    let from: String = since.plus(-DAY_MS).to_string().chars().take(10).collect();
    let path = format!("/messages/inbound?count={PAGE_SIZE}&offset={offset}&fromdate={from}");
    let mut list = get_json(desk, path, MAX_JSON_BYTES).await?;
    let Some(Value::Array(mails)) = list.get_mut("InboundMessages").map(Value::take) else {
        return Err(desk.retry_later("the list has no InboundMessages"));
    };
    let total = list.get("TotalCount").and_then(Value::as_u64).unwrap_or_default() as usize;
    let next = offset + PAGE_SIZE;
    let more = !mails.is_empty() && next < total && next + PAGE_SIZE <= MAX_LISTED;
    let at = |mail: &Value| mail.get("Date").and_then(Value::as_str).and_then(Time::parse);
    let mails = mails.into_iter().map(|about| MailListEntry { at: at(&about), fields: about }).collect();
    Ok(MailListPage { mails, next: more.then(|| next.to_string()) })
}
