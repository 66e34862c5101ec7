//! The dialects: how each words a mail and an answer, and what its contract promises.

use serde_json::{Value, json};
use std::time::Duration;

use super::{answer::Seen, cases::Case};
use crate::cli::http::Answer;
use mailonce_transport::http::base::escaped;

/// Characters of a stranger's words that are shown.
const WORDS: usize = 60;
/// What is waited after a 429 that does not say how long.
const USUAL_PAUSE: Duration = Duration::from_secs(1);

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Dialect {
    Mailonce,
    Resend,
    Usesend,
    Agentmail,
}

/// What a contract says about a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promise {
    /// This, in these words.
    Made(&'static str),
    /// Nothing; why.
    NotMade(&'static str),
}

impl Dialect {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Mailonce => "mailonce",
            Self::Resend => "resend",
            Self::Usesend => "usesend",
            Self::Agentmail => "agentmail",
        }
    }

    /// Where a mail is posted.
    pub(super) fn send_path(self, from: &str) -> String {
        match self {
            Self::Mailonce => "/v1/emails".into(),
            Self::Resend => "/emails".into(),
            Self::Usesend => "/api/v1/emails".into(),
            Self::Agentmail => format!("/v0/inboxes/{}/messages/send", escaped(from)),
        }
    }

    /// Where several are posted, if the dialect has that.
    pub(super) fn batch_path(self) -> Option<&'static str> {
        match self {
            Self::Mailonce => Some("/v1/emails/batch"),
            Self::Resend => Some("/emails/batch"),
            Self::Usesend => Some("/api/v1/emails/batch"),
            Self::Agentmail => None,
        }
    }

    /// A small mail. All four share these names; AgentMail knows the sender by the path.
    pub(super) fn mail(self, from: &str, to: &str, subject: &str, text: &str) -> Value {
        let mut mail = json!({ "from": from, "to": [to], "subject": subject, "text": text });
        if let (Self::Agentmail, Some(members)) = (self, mail.as_object_mut()) {
            members.remove("from");
        }
        mail
    }

    /// Reads an answer.
    pub(super) fn read(self, answer: &Answer) -> Seen {
        let status = answer.status;
        if status == 429 {
            // Proxies say it too, in words of their own.
            return Seen::Limited(pause(answer));
        }
        let Ok(body) = serde_json::from_slice::<Value>(&answer.body) else {
            return Seen::Odd(status, "without JSON".into());
        };
        match status {
            200..=299 => self.taken(answer, &body),
            400..=499 => self.refused(status, &body),
            _ => Seen::Odd(status, self.name(&body)),
        }
    }

    fn taken(self, answer: &Answer, body: &Value) -> Seen {
        let status = answer.status;
        let field = match self {
            Self::Mailonce | Self::Resend => "id",
            Self::Usesend => "emailId",
            Self::Agentmail => "message_id",
        };
        let one = |item: &Value| item[field].as_str().filter(|id| !id.is_empty()).map(str::to_owned);
        let ids: Option<Vec<String>> = match body["data"].as_array() {
            Some(items) => items.iter().map(one).collect(),
            None => one(body).map(|id| vec![id]),
        };
        let Some(ids) = ids.filter(|ids| !ids.is_empty()) else {
            return Seen::Odd(status, format!("without {field}"));
        };
        let marked = answer.headers.get("idempotent-replayed").is_some_and(|value| value == "true");
        match (self, status, marked) {
            (Self::Mailonce, 202, false) => Seen::Taken { status, ids, replayed: Some(false) },
            (Self::Mailonce, 200, true) => Seen::Taken { status, ids, replayed: Some(true) },
            (Self::Mailonce, ..) => Seen::Odd(status, format!("with idempotent-replayed {marked}")),
            (_, 200, _) => Seen::Taken { status, ids, replayed: None },
            _ => Seen::Odd(status, "in the place of 200".into()),
        }
    }

    fn refused(self, status: u16, body: &Value) -> Seen {
        let name = self.name(body);
        match (self, status, name.as_str()) {
            (Self::Mailonce, 422, "key_mismatch") => Seen::OtherRequest(status),
            (Self::Mailonce, 400, "invalid_key") => Seen::BadKey(status),
            (Self::Resend, 409, "invalid_idempotent_request") => Seen::OtherRequest(status),
            (Self::Resend, 409, "concurrent_idempotent_requests") => Seen::InFlight(status),
            (Self::Resend, 400, "invalid_idempotency_key") => Seen::BadKey(status),
            // One code for two things: only the words tell them apart.
            (Self::Usesend, 409, "NOT_UNIQUE") if message(&body["error"]).contains("in progress") => {
                Seen::InFlight(status)
            }
            (Self::Usesend, 409, "NOT_UNIQUE") => Seen::OtherRequest(status),
            (Self::Usesend, 400, "BAD_REQUEST") if message(&body["error"]).contains("Idempotency-Key") => {
                Seen::BadKey(status)
            }
            (Self::Agentmail, 409, _) => Seen::OtherRequest(status),
            _ => Seen::Refused(status, name),
        }
    }

    /// What the dialect calls an error.
    fn name(self, body: &Value) -> String {
        let name = match self {
            Self::Mailonce => &body["code"],
            Self::Resend | Self::Agentmail => &body["name"],
            Self::Usesend => &body["error"]["code"],
        };
        name.as_str().unwrap_or_default().chars().filter(|c| !c.is_control()).take(WORDS).collect()
    }

    /// Whether an equal request may be told so, and should come again.
    pub(super) fn is_busy(self, seen: &Seen) -> bool {
        match seen {
            Seen::InFlight(_) => true,
            // AgentMail does not say how it tells a request under way; its SDK tries again on every 409.
            Seen::OtherRequest(_) => self == Self::Agentmail,
            _ => false,
        }
    }

    /// What the dialect's contract says about a case.
    pub(super) fn promise(self, case: Case) -> Promise {
        use Promise::{Made, NotMade};
        match (case, self) {
            (Case::Twice, Self::Mailonce) => Made("202, then 200 replayed, one id"),
            (Case::Twice, _) => Made("200 twice, one id"),
            (Case::TwoKeys, _) => Made("two ids"),
            (Case::Race, Self::Mailonce) => Made("one id, one 202, nobody turned away"),
            (Case::Race, _) => Made("one id, once nobody is in flight"),
            (Case::OtherBody, Self::Mailonce) => Made("422 key_mismatch; the first stands"),
            (Case::OtherBody, Self::Resend) => Made("409 invalid_idempotent_request; the first stands"),
            (Case::OtherBody, Self::Usesend) => Made("409 NOT_UNIQUE; the first stands"),
            (Case::OtherBody, Self::Agentmail) => Made("409; the first stands"),
            (Case::AfterRefusal, Self::Mailonce | Self::Usesend) => Made("4xx, then taken under the same key"),
            (Case::AfterRefusal, _) => NotMade("nothing is said about keys of refused requests"),
            (Case::CutHead | Case::CutBody | Case::CutAnswer, _) => Made("the retry is taken, and again one id"),
            (Case::BatchTwice, Self::Mailonce) => Made("202, then 200 replayed, the same ids in order"),
            (Case::BatchOther, Self::Mailonce) => Made("422 key_mismatch"),
            (Case::BatchOther, Self::Resend | Self::Usesend) => Made("409"),
            (Case::BatchTwice | Case::BatchOther | Case::Across, Self::Agentmail) => NotMade("there is no batch"),
            (Case::BatchTwice, _) => Made("200 twice, the same ids in order"),
            (Case::Across, Self::Mailonce) => Made("422 key_mismatch both ways"),
            (Case::Across, Self::Usesend) => Made("409 NOT_UNIQUE both ways"),
            (Case::Across, Self::Resend) => NotMade("nothing is said about one key at two routes"),
            (Case::LongKey, Self::Mailonce) => Made("256 taken; 257: 400 invalid_key"),
            (Case::LongKey, Self::Resend) => Made("256 taken; 257: 400 invalid_idempotency_key"),
            (Case::LongKey, Self::Usesend) => Made("256 taken; 257: 400 BAD_REQUEST"),
            (Case::EmptyKey, Self::Mailonce) => Made("400 invalid_key"),
            (Case::EmptyKey, Self::Resend) => Made("400 invalid_idempotency_key"),
            (Case::EmptyKey, Self::Usesend) => NotMade("nothing is said about an empty header"),
            (Case::LongKey | Case::EmptyKey, Self::Agentmail) => NotMade("nothing is said about a key's length"),
            (Case::QuotedKey, Self::Mailonce) => Made("the same key as without quotes"),
            (Case::QuotedKey, _) => NotMade("nothing is said about quotes"),
        }
    }
}

fn message(error: &Value) -> &str {
    error["message"].as_str().unwrap_or_default()
}

/// How long the server wants to be left alone, within reason.
fn pause(answer: &Answer) -> Duration {
    let told = answer.headers.get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    told.map_or(USUAL_PAUSE, |seconds: u64| Duration::from_secs(seconds.clamp(1, 30)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::{HeaderMap, body::Bytes};

    #[test]
    fn who_is_told_to_wait_waits_whoever_said_so_and_in_which_words() {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "3".parse().unwrap());
        for body in ["", "<html>slow down</html>", r#"{"name":"rate_limit_exceeded"}"#] {
            let answer = Answer { status: 429, headers: headers.clone(), body: Bytes::from_static(body.as_bytes()) };
            assert_eq!(Dialect::Resend.read(&answer), Seen::Limited(Duration::from_secs(3)), "{body}");
        }
    }
}
