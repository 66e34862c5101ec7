//! Postmark: `GET /messages/inbound/{id}/dump` or `/details` is one mail, `GET /messages/inbound` lists, newest first.
//!
//! The dump is not in Postmark's reference, only in its clients; where there is none, the details have everything but
//! the contents of files.

use mailonce_core::{
    port::collect::{Given, Listed, Notice, Page, Withheld},
    time::Time,
};
use serde_json::Value;

use super::{Desk, PACKED_BYTES, TOLD_BYTES, bounded};
use crate::http::{Call, base::escaped};

pub(super) const USUAL_URL: &str = "https://api.postmarkapp.com";
/// Mails of one page.
const PAGE: usize = 100;
/// Postmark lists no more than this, however it is asked.
const LISTED: usize = 10_000;
/// Dates are days in New York; a day earlier is surely early enough.
const DAY_MS: i64 = 86_400_000;
/// What it calls a mail that it does not have.
const NOT_FOUND: i64 = 701;

pub(super) async fn fetch(desk: &Desk<'_>, notice: &Notice) -> Result<Given, Withheld> {
    let path = format!("/messages/inbound/{}", escaped(&notice.id));
    match object(desk, format!("{path}/dump"), PACKED_BYTES).await {
        Ok(dump) => match dump.get("Body").and_then(Value::as_str) {
            Some(raw) if !raw.is_empty() => return bounded(raw.as_bytes().to_vec()),
            _ => {}
        },
        Err(later @ Withheld::Later { .. }) => return Err(later),
        Err(Withheld::Gone(_) | Withheld::Never(_)) => {}
    }
    object(desk, format!("{path}/details"), TOLD_BYTES).await.map(Given::Fields)
}

async fn object(desk: &Desk<'_>, path: String, most: usize) -> Result<Value, Withheld> {
    let call = Call::get(path).with("X-Postmark-Server-Token", desk.account.api_key.as_str());
    let answer = desk.ask(&desk.base, call, most).await?;
    let code = answer.object().and_then(|body| body.get("ErrorCode")?.as_i64());
    if answer.status == 422 && code == Some(NOT_FOUND) {
        return Err(Withheld::Gone("postmark does not have this mail".into()));
    }
    let body = desk.body(answer)?;
    serde_json::from_slice(&body).map_err(|_not_json| desk.later("the answer is no JSON object"))
}

pub(super) async fn list(desk: &Desk<'_>, since: Time, page: Option<&str>) -> Result<Page, Withheld> {
    let offset: usize = page.and_then(|page| page.parse().ok()).unwrap_or_default();
    let from: String = since.plus(-DAY_MS).to_string().chars().take(10).collect();
    let path = format!("/messages/inbound?count={PAGE}&offset={offset}&fromdate={from}");
    let mut list = object(desk, path, TOLD_BYTES).await?;
    let Some(Value::Array(mails)) = list.get_mut("InboundMessages").map(Value::take) else {
        return Err(desk.later("the list has no InboundMessages"));
    };
    let total = list.get("TotalCount").and_then(Value::as_u64).unwrap_or_default() as usize;
    let next = offset + PAGE;
    let more = !mails.is_empty() && next < total && next + PAGE <= LISTED;
    let at = |mail: &Value| mail.get("Date").and_then(Value::as_str).and_then(Time::parse);
    let mails = mails.into_iter().map(|about| Listed { at: at(&about), about }).collect();
    Ok(Page { mails, next: more.then(|| next.to_string()) })
}
