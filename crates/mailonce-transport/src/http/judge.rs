//! What an answer's status means, before a provider's own words are heard.
//!
//! The rule is the same everywhere: a refusal must be worded as one, a proof must be worded as the provider documents
//! it, and everything else is unknown.

use hyper::header;
use mailonce_core::port::transport::{Meaning, Phase, Reply};
use serde_json::Value;

use super::wire::{Answer, Lost};

/// The longest pause a provider may ask for, in seconds.
const PAUSE_S: i64 = 3_600;
/// Characters of an answer in no known form that are shown.
const EXCERPT_CHARS: usize = 200;

impl Answer {
    /// The body as a JSON object, when it is one.
    pub(crate) fn object(&self) -> Option<Value> {
        let body = self.body.as_ref().ok()?;
        serde_json::from_slice::<Value>(body).ok().filter(Value::is_object)
    }

    /// The text at a pointer of the JSON body.
    pub(crate) fn word(&self, pointer: &str) -> Option<String> {
        let value = self.object()?;
        let text = value.pointer(pointer)?.as_str()?.trim();
        Some(text.to_owned()).filter(|text| !text.is_empty())
    }

    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The pause asked for. Only seconds count: a date would need a clock that agrees with the provider's.
    pub(crate) fn pause_ms(&self) -> Option<i64> {
        let seconds = self.header("retry-after")?.trim().parse::<i64>().ok()?;
        (seconds >= 0).then(|| seconds.min(PAUSE_S) * 1_000)
    }

    /// The body in a few printable words, for an answer that is in no form we know.
    pub(crate) fn excerpt(&self) -> String {
        match &self.body {
            Err(why) => why.to_string(),
            Ok(body) if body.is_empty() => "an empty answer".into(),
            Ok(body) => {
                let text: String = String::from_utf8_lossy(body).chars().take(EXCERPT_CHARS).collect();
                let kind = self.header("content-type").unwrap_or("no type");
                format!("an answer in an unknown form ({kind}): {text}")
            }
        }
    }

    /// A reply after the point of no return.
    pub(crate) fn means(&self, meaning: Meaning, text: &str) -> Reply {
        Reply::new(meaning, Phase::Final, Some(self.status), text)
    }

    /// The mail was taken under this id.
    pub(crate) fn taken(&self, id: String, text: &str) -> Reply {
        self.means(Meaning::Accepted, text).named(Some(id))
    }

    /// What the status says by itself. `said` are the provider's own words, where the body holds some.
    pub(crate) fn by_status(&self, who: &str, said: Option<String>) -> Reply {
        let text = said.unwrap_or_else(|| self.excerpt());
        let reply = |meaning| self.means(meaning, &text);
        match self.status {
            200..300 => self.means(Meaning::Unknown, &format!("not an acceptance as {who} documents it: {text}")),
            300..400 => {
                let to = self.header(header::LOCATION.as_str()).unwrap_or("nowhere");
                self.means(Meaning::Unknown, &format!("redirected to {to}, not followed: somebody read the request"))
            }
            // 407 is a proxy's own 401: in both the way out is at fault, not the mail.
            401 | 402 | 403 | 407 => reply(Meaning::Fault),
            // A conflict proves nothing until the provider says which one it means.
            408 | 409 | 425 => reply(Meaning::Unknown),
            429 => reply(Meaning::Deferred).after(self.pause_ms()),
            400..500 => reply(Meaning::Refused),
            _ => reply(Meaning::Unknown),
        }
    }
}

impl Lost {
    /// What it means that there is no answer.
    pub(crate) fn reply(self) -> Reply {
        match self {
            Self::Stale(age) => {
                let text = format!("the connection was {age:?} old, too old to be trusted; nothing was written");
                Reply::new(Meaning::Deferred, Phase::Connect, None, &text)
            }
            Self::Unsent(why) => {
                let text = format!("the connection ended before the request was written: {why}");
                Reply::new(Meaning::Fault, Phase::Connect, None, &text)
            }
            Self::Silent(why) => Reply::new(Meaning::Unknown, Phase::Final, None, &why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::HeaderMap;

    fn answer(status: u16, body: &str) -> Answer {
        Answer { status, headers: HeaderMap::new(), body: Ok(body.to_owned().into()) }
    }

    #[test]
    fn each_status_has_its_meaning() {
        let table = [
            (200, Meaning::Unknown),
            (204, Meaning::Unknown),
            (302, Meaning::Unknown),
            (400, Meaning::Refused),
            (401, Meaning::Fault),
            (402, Meaning::Fault),
            (403, Meaning::Fault),
            (404, Meaning::Refused),
            (407, Meaning::Fault),
            (408, Meaning::Unknown),
            (409, Meaning::Unknown),
            (413, Meaning::Refused),
            (415, Meaning::Refused),
            (422, Meaning::Refused),
            (425, Meaning::Unknown),
            (429, Meaning::Deferred),
            (500, Meaning::Unknown),
            (502, Meaning::Unknown),
            (503, Meaning::Unknown),
            (599, Meaning::Unknown),
        ];
        for (status, meaning) in table {
            let reply = answer(status, "<html>").by_status("Anyone", None);
            assert_eq!((reply.meaning, reply.code, reply.phase), (meaning, Some(status), Phase::Final), "{status}");
        }
    }

    #[test]
    fn a_pause_is_in_seconds_and_at_most_an_hour() {
        for (given, pause) in [
            ("2", Some(2_000)),
            ("0", Some(0)),
            ("999999", Some(3_600_000)),
            ("-1", None),
            ("Sun, 15 Nov 2026 04:00:00 GMT", None),
        ] {
            let mut answer = answer(429, "");
            answer.headers.insert("retry-after", given.parse().unwrap());
            assert_eq!(answer.by_status("Anyone", None).retry_after_ms, pause, "{given}");
        }
    }
}
