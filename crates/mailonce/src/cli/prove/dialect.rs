//! The dialects: the requests and responses of each API, and what its documentation promises.

use serde_json::{Value, json};
use std::time::Duration;

use super::case::ProveCase;
use crate::cli::http_client::Answer;
use crate::cli::prove::call_result::CallResult;
use mailonce_transport::http::base::percent_encode;

/// Characters of an error name that are shown.
const MAX_SHOWN_CHARS: usize = 60;
/// Delay after a 429 without Retry-After.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The API of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TargetDialect {
    Mailonce,
    Resend,
    #[value(name = "usesend")]
    UseSend,
    Agentmail,
}

/// What the documentation of an API promises about a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DialectPromise {
    /// A promise.
    Made(&'static str),
    /// No promise, and why.
    NotMade(&'static str),
}

impl TargetDialect {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Mailonce => "mailonce",
            Self::Resend => "resend",
            Self::UseSend => "usesend",
            Self::Agentmail => "agentmail",
        }
    }

    /// The path of a send.
    pub(super) fn send_path(self, from: &str) -> String {
        match self {
            Self::Mailonce => "/v1/emails".into(),
            Self::Resend => "/emails".into(),
            Self::UseSend => "/api/v1/emails".into(),
            Self::Agentmail => format!("/v0/inboxes/{}/messages/send", percent_encode(from)),
        }
    }

    /// The path of a batch, if the dialect has batches.
    pub(super) fn batch_path(self) -> Option<&'static str> {
        match self {
            Self::Mailonce => Some("/v1/emails/batch"),
            Self::Resend => Some("/emails/batch"),
            Self::UseSend => Some("/api/v1/emails/batch"),
            Self::Agentmail => None,
        }
    }

    /// A small email. All four APIs share these names; AgentMail takes the sender from the path.
    pub(super) fn mail(self, from: &str, to: &str, subject: &str, text: &str) -> Value {
        let mut mail = json!({ "from": from, "to": [to], "subject": subject, "text": text });
        if let (Self::Agentmail, Some(members)) = (self, mail.as_object_mut()) {
            members.remove("from");
        }
        mail
    }

    /// Classifies a response.
    pub(super) fn parse_response(self, answer: &Answer) -> CallResult {
        let status = answer.status;
        if status == 429 {
            // Whatever the body is: the 429 of a proxy has another one.
            return CallResult::RateLimited(retry_after(answer));
        }
        let Ok(body) = serde_json::from_slice::<Value>(&answer.body) else {
            return CallResult::Unexpected(status, "without JSON".into());
        };
        match status {
            200..=299 => self.parse_accepted(answer, &body),
            400..=499 => self.parse_refusal(status, &body),
            _ => CallResult::Unexpected(status, self.error_name(&body)),
        }
    }

    fn parse_accepted(self, answer: &Answer, body: &Value) -> CallResult {
        let status = answer.status;
        let field = match self {
            Self::Mailonce | Self::Resend => "id",
            Self::UseSend => "emailId",
            Self::Agentmail => "message_id",
        };
        let one = |item: &Value| item[field].as_str().filter(|id| !id.is_empty()).map(str::to_owned);
        let ids: Option<Vec<String>> = match body["data"].as_array() {
            Some(items) => items.iter().map(one).collect(),
            None => one(body).map(|id| vec![id]),
        };
        let Some(ids) = ids.filter(|ids| !ids.is_empty()) else {
            return CallResult::Unexpected(status, format!("without {field}"));
        };
        let marked = answer.headers.get("idempotent-replayed").is_some_and(|value| value == "true");
        match (self, status, marked) {
            (Self::Mailonce, 202, false) => CallResult::Accepted { status, ids, replayed: Some(false) },
            (Self::Mailonce, 200, true) => CallResult::Accepted { status, ids, replayed: Some(true) },
            (Self::Mailonce, ..) => CallResult::Unexpected(status, format!("with idempotent-replayed {marked}")),
            (_, 200, _) => CallResult::Accepted { status, ids, replayed: None },
            _ => CallResult::Unexpected(status, "instead of 200".into()),
        }
    }

    fn parse_refusal(self, status: u16, body: &Value) -> CallResult {
        let name = self.error_name(body);
        match (self, status, name.as_str()) {
            (Self::Mailonce, 422, "key_mismatch") => CallResult::KeyMismatch(status),
            (Self::Mailonce, 400, "invalid_key") => CallResult::InvalidKey(status),
            (Self::Resend, 409, "invalid_idempotent_request") => CallResult::KeyMismatch(status),
            (Self::Resend, 409, "concurrent_idempotent_requests") => CallResult::InFlight(status),
            (Self::Resend, 400, "invalid_idempotency_key") => CallResult::InvalidKey(status),
            // useSend has one code for both; only the message differs.
            (Self::UseSend, 409, "NOT_UNIQUE") if error_message(&body["error"]).contains("in progress") => {
                CallResult::InFlight(status)
            }
            (Self::UseSend, 409, "NOT_UNIQUE") => CallResult::KeyMismatch(status),
            (Self::UseSend, 400, "BAD_REQUEST") if error_message(&body["error"]).contains("Idempotency-Key") => {
                CallResult::InvalidKey(status)
            }
            (Self::Agentmail, 409, _) => CallResult::KeyMismatch(status),
            _ => CallResult::Refused(status, name),
        }
    }

    /// The error name in the response.
    fn error_name(self, body: &Value) -> String {
        let name = match self {
            Self::Mailonce => &body["code"],
            Self::Resend | Self::Agentmail => &body["name"],
            Self::UseSend => &body["error"]["code"],
        };
        name.as_str().unwrap_or_default().chars().filter(|c| !c.is_control()).take(MAX_SHOWN_CHARS).collect()
    }

    /// Whether the response means that the same request is running and should be retried.
    pub(super) fn is_busy(self, seen: &CallResult) -> bool {
        match seen {
            CallResult::InFlight(_) => true,
            // AgentMail does not document its response to a running request; its SDK retries every 409.
            CallResult::KeyMismatch(_) => self == Self::Agentmail,
            _ => false,
        }
    }

    /// The promise of the dialect about a case.
    pub(super) fn promise(self, case: ProveCase) -> DialectPromise {
        use DialectPromise::{Made, NotMade};
        match (case, self) {
            (ProveCase::SameKeyTwice, Self::Mailonce) => Made("202, then 200 replayed, one id"),
            (ProveCase::SameKeyTwice, _) => Made("200 twice, one id"),
            (ProveCase::DifferentKeys, _) => Made("two ids"),
            (ProveCase::ConcurrentCalls, Self::Mailonce) => Made("one id, one 202, no client refused"),
            (ProveCase::ConcurrentCalls, _) => Made("one id, after retries"),
            (ProveCase::KeyReusedForOtherBody, Self::Mailonce) => Made("422 key_mismatch; the first email is kept"),
            (ProveCase::KeyReusedForOtherBody, Self::Resend) => {
                Made("409 invalid_idempotent_request; the first email is kept")
            }
            (ProveCase::KeyReusedForOtherBody, Self::UseSend) => Made("409 NOT_UNIQUE; the first email is kept"),
            (ProveCase::KeyReusedForOtherBody, Self::Agentmail) => Made("409; the first email is kept"),
            (ProveCase::RetryAfterRefusal, Self::Mailonce | Self::UseSend) => {
                Made("4xx, then accepted with the same key")
            }
            (ProveCase::RetryAfterRefusal, _) => NotMade("keys of refused requests are not documented"),
            (
                ProveCase::DisconnectAfterHead | ProveCase::DisconnectMidBody | ProveCase::DisconnectBeforeResponse,
                _,
            ) => Made("the retry is accepted, one id"),
            (ProveCase::SameBatchTwice, Self::Mailonce) => Made("202, then 200 replayed, the same ids in order"),
            (ProveCase::KeyReusedForOtherBatch, Self::Mailonce) => Made("422 key_mismatch"),
            (ProveCase::KeyReusedForOtherBatch, Self::Resend | Self::UseSend) => Made("409"),
            (
                ProveCase::SameBatchTwice | ProveCase::KeyReusedForOtherBatch | ProveCase::KeyAcrossSendAndBatch,
                Self::Agentmail,
            ) => NotMade("no batch"),
            (ProveCase::SameBatchTwice, _) => Made("200 twice, the same ids in order"),
            (ProveCase::KeyAcrossSendAndBatch, Self::Mailonce) => Made("422 key_mismatch both ways"),
            (ProveCase::KeyAcrossSendAndBatch, Self::UseSend) => Made("409 NOT_UNIQUE both ways"),
            (ProveCase::KeyAcrossSendAndBatch, Self::Resend) => NotMade("one key at two routes is not documented"),
            (ProveCase::LongKey, Self::Mailonce) => Made("256 accepted; 257: 400 invalid_key"),
            (ProveCase::LongKey, Self::Resend) => Made("256 accepted; 257: 400 invalid_idempotency_key"),
            (ProveCase::LongKey, Self::UseSend) => Made("256 accepted; 257: 400 BAD_REQUEST"),
            (ProveCase::EmptyKey, Self::Mailonce) => Made("400 invalid_key"),
            (ProveCase::EmptyKey, Self::Resend) => Made("400 invalid_idempotency_key"),
            (ProveCase::EmptyKey, Self::UseSend) => NotMade("an empty header is not documented"),
            (ProveCase::LongKey | ProveCase::EmptyKey, Self::Agentmail) => {
                NotMade("the length of keys is not documented")
            }
            (ProveCase::QuotedKey, Self::Mailonce) => Made("the same key as without quotes"),
            (ProveCase::QuotedKey, _) => NotMade("quotes are not documented"),
        }
    }
}

fn error_message(error: &Value) -> &str {
    error["message"].as_str().unwrap_or_default()
}

/// The value of Retry-After, limited to 30 s.
fn retry_after(answer: &Answer) -> Duration {
    let seconds = answer.headers.get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    seconds.map_or(DEFAULT_RETRY_AFTER, |seconds: u64| Duration::from_secs(seconds.clamp(1, 30)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::{HeaderMap, body::Bytes};

    #[test]
    fn a_429_response_is_a_rate_limit_whatever_its_body() {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "3".parse().unwrap());
        for body in ["", "<html>slow down</html>", r#"{"name":"rate_limit_exceeded"}"#] {
            let answer = Answer { status: 429, headers: headers.clone(), body: Bytes::from_static(body.as_bytes()) };
            assert_eq!(
                TargetDialect::Resend.parse_response(&answer),
                CallResult::RateLimited(Duration::from_secs(3)),
                "{body}"
            );
        }
    }
}
