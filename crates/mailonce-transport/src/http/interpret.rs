//! The default meaning of an HTTP status, for responses that a provider module does not handle itself.
//!
//! The rule is the same for all providers: only a documented acceptance counts as accepted, only an explicit refusal as
//! refused, and everything else is unknown.

use hyper::header;
use mailonce_core::handoff::reply::{AttemptPhase, ReplyMeaning, TransportReply};
use serde_json::Value;

use crate::http::connection::{ProviderRequestError, ProviderResponse};

/// The longest `Retry-After` that is honoured, in seconds.
const MAX_RETRY_AFTER_S: i64 = 3_600;
/// How many characters of an unrecognized response are quoted.
const MAX_EXCERPT_CHARS: usize = 200;

impl ProviderResponse {
    /// The body, if it is a JSON object.
    pub(crate) fn json_object(&self) -> Option<Value> {
        let body = self.body.as_ref().ok()?;
        serde_json::from_slice::<Value>(body).ok().filter(Value::is_object)
    }

    /// The string at a JSON pointer of the body.
    pub(crate) fn str_at(&self, pointer: &str) -> Option<String> {
        let value = self.json_object()?;
        let text = value.pointer(pointer)?.as_str()?.trim();
        Some(text.to_owned()).filter(|text| !text.is_empty())
    }

    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The `Retry-After` delay. Only seconds count: a date would need a clock in sync with the provider's.
    pub(crate) fn retry_after_ms(&self) -> Option<i64> {
        let seconds = self.header("retry-after")?.trim().parse::<i64>().ok()?;
        (seconds >= 0).then(|| seconds.min(MAX_RETRY_AFTER_S) * 1_000)
    }

    /// A short quotation of a body in an unrecognized format.
    pub(crate) fn excerpt(&self) -> String {
        match &self.body {
            Err(why) => why.to_string(),
            Ok(body) if body.is_empty() => "an empty response".into(),
            Ok(body) => {
                let text: String = String::from_utf8_lossy(body).chars().take(MAX_EXCERPT_CHARS).collect();
                let kind = self.header("content-type").unwrap_or("no content type");
                format!("an unrecognized response ({kind}): {text}")
            }
        }
    }

    /// A reply of the final phase, after the point of no return.
    pub(crate) fn reply(&self, meaning: ReplyMeaning, text: &str) -> TransportReply {
        TransportReply::new(meaning, AttemptPhase::Final, Some(self.status), text)
    }

    /// The provider accepted the mail under this id.
    pub(crate) fn accepted_reply(&self, id: String, text: &str) -> TransportReply {
        self.reply(ReplyMeaning::Accepted, text).with_remote_id(Some(id))
    }

    /// The default meaning of the status. `error_text` is the provider's error message, if the body has one.
    pub(crate) fn reply_by_status(&self, provider: &str, error_text: Option<String>) -> TransportReply {
        let text = error_text.unwrap_or_else(|| self.excerpt());
        let reply = |meaning| self.reply(meaning, &text);
        match self.status {
            200..300 => {
                self.reply(ReplyMeaning::Unknown, &format!("not an acceptance that {provider} documents: {text}"))
            }
            300..400 => {
                let location = self.header(header::LOCATION.as_str()).unwrap_or("no location");
                self.reply(
                    ReplyMeaning::Unknown,
                    &format!("redirected to {location}, not followed; the outcome is unknown"),
                )
            }
            // 407 is the 401 of a proxy. These statuses blame the transport's credentials or account, not the mail.
            401 | 402 | 403 | 407 => reply(ReplyMeaning::Fault),
            // A 409 proves nothing unless the provider says which conflict it means.
            408 | 409 | 425 => reply(ReplyMeaning::Unknown),
            429 => reply(ReplyMeaning::Deferred).with_retry_after(self.retry_after_ms()),
            400..500 => reply(ReplyMeaning::Refused),
            _ => reply(ReplyMeaning::Unknown),
        }
    }
}

impl ProviderRequestError {
    /// The meaning of a missing response.
    pub(crate) fn into_reply(self) -> TransportReply {
        match self {
            Self::Stale(age) => {
                let text = format!("the connection was too old ({age:?}); nothing was written");
                TransportReply::new(ReplyMeaning::Deferred, AttemptPhase::Connect, None, &text)
            }
            Self::Unsent(why) => {
                let text = format!("the connection closed before the request was written: {why}");
                TransportReply::new(ReplyMeaning::Fault, AttemptPhase::Connect, None, &text)
            }
            Self::NoResponse(why) => TransportReply::new(ReplyMeaning::Unknown, AttemptPhase::Final, None, &why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::HeaderMap;

    fn answer(status: u16, body: &str) -> ProviderResponse {
        ProviderResponse { status, headers: HeaderMap::new(), body: Ok(body.to_owned().into()) }
    }

    #[test]
    fn each_status_has_its_meaning() {
        let table = [
            (200, ReplyMeaning::Unknown),
            (204, ReplyMeaning::Unknown),
            (302, ReplyMeaning::Unknown),
            (400, ReplyMeaning::Refused),
            (401, ReplyMeaning::Fault),
            (402, ReplyMeaning::Fault),
            (403, ReplyMeaning::Fault),
            (404, ReplyMeaning::Refused),
            (407, ReplyMeaning::Fault),
            (408, ReplyMeaning::Unknown),
            (409, ReplyMeaning::Unknown),
            (413, ReplyMeaning::Refused),
            (415, ReplyMeaning::Refused),
            (422, ReplyMeaning::Refused),
            (425, ReplyMeaning::Unknown),
            (429, ReplyMeaning::Deferred),
            (500, ReplyMeaning::Unknown),
            (502, ReplyMeaning::Unknown),
            (503, ReplyMeaning::Unknown),
            (599, ReplyMeaning::Unknown),
        ];
        for (status, meaning) in table {
            let reply = answer(status, "<html>").reply_by_status("Anyone", None);
            assert_eq!(
                (reply.meaning, reply.code, reply.phase),
                (meaning, Some(status), AttemptPhase::Final),
                "{status}"
            );
        }
    }

    #[test]
    fn retry_after_is_in_seconds_and_at_most_an_hour() {
        for (header, expected_ms) in [
            ("2", Some(2_000)),
            ("0", Some(0)),
            ("999999", Some(3_600_000)),
            ("-1", None),
            ("Sun, 15 Nov 2026 04:00:00 GMT", None),
        ] {
            let mut response = answer(429, "");
            response.headers.insert("retry-after", header.parse().unwrap());
            assert_eq!(response.reply_by_status("Anyone", None).retry_after_ms, expected_ms, "{header}");
        }
    }
}
