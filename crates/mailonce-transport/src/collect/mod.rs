//! Mail that providers hold: one GET on one connection, bounded in size and time, and what its status means.
//!
//! | file | what it holds |
//! |---|---|
//! | `resend` `postmark` `nylas` | one provider each: its paths and the form of its answers |
//!
//! A tenant may name the address of an API, so every address is asked of a guard before it is dialled, and no redirect
//! is followed.

mod nylas;
mod postmark;
mod resend;

use async_trait::async_trait;
use bytes::Bytes;
use mailonce_core::{
    limits,
    port::collect::{Account, Collect, Given, Notice, Page, Withheld},
    time::Time,
};
use serde_json::Value;
use std::time::Duration;

use crate::http::{
    BadSetting, Call, Guard, Secret,
    base::Base,
    wire::{Answer, Cut, Door},
};

/// How long connecting may take, and again the answer: both together less than a delivery may be read.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of an answer that lists or describes: texts may be long, files are not in it.
const TOLD_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of a mail inside JSON, where half of them may be escaped.
const PACKED_BYTES: usize = 2 * limits::MAIL_BYTES;

/// Asks providers for mail.
#[derive(Clone)]
pub struct Collector {
    guard: Option<Guard>,
    plain: bool,
}

impl Collector {
    /// `guard` says which addresses may be dialled; `plain` whether an API without TLS may be asked.
    pub fn new(guard: Option<Guard>, plain: bool) -> Self {
        Self { guard, plain }
    }

    /// Where an account's API begins.
    fn base(&self, account: &Account) -> Result<Base, String> {
        let usual = match account.provider {
            "resend" => resend::USUAL_URL,
            "postmark" => postmark::USUAL_URL,
            "nylas" => nylas::USUAL_URL,
            other => return Err(format!("mail is not fetched from {other}")),
        };
        let base = Base::parse(account.base_url.as_deref().unwrap_or(usual)).map_err(|BadSetting(why)| why)?;
        if !base.https && !self.plain {
            return Err(format!("{} is not https", base.url));
        }
        Ok(base)
    }

    fn desk<'a>(&'a self, account: &'a Account) -> Result<Desk<'a>, Withheld> {
        let base = self.base(account).map_err(Withheld::Never)?;
        Ok(Desk { collector: self, base, api_key: Secret::new(account.api_key.clone()), account })
    }
}

/// One account's API.
struct Desk<'a> {
    collector: &'a Collector,
    base: Base,
    api_key: Secret,
    account: &'a Account,
}

impl Desk<'_> {
    /// The answer to a question, whatever its status.
    async fn ask(&self, base: &Base, call: Call, most: usize) -> Result<Answer, Withheld> {
        let later = |why: String| Withheld::Later { why: self.hushed(why), pause_ms: None };
        let door = Door::new(base.clone(), self.collector.guard.clone(), PATIENCE, PATIENCE, &[]);
        let mut door = door.map_err(|BadSetting(why)| Withheld::Never(why))?;
        door.most = most;
        let request = call.request(base).map_err(Withheld::Never)?;
        let line = door.knock().await.map_err(|reply| later(reply.text))?;
        line.ask(request).await.map_err(|lost| later(lost.reply().text))
    }

    /// The body of a success.
    async fn get(&self, call: Call, most: usize) -> Result<Bytes, Withheld> {
        self.body(self.ask(&self.base, call, most).await?)
    }

    /// The JSON object of a success.
    async fn object(&self, call: Call, most: usize) -> Result<Value, Withheld> {
        let body = self.get(call, most).await?;
        match serde_json::from_slice::<Value>(&body) {
            Ok(value) if value.is_object() => Ok(value),
            // Somebody else's page, or one that broke off: the provider itself may answer later.
            _ => Err(self.later("the answer is no JSON object")),
        }
    }

    /// The body of an answer, when it is a success.
    fn body(&self, answer: Answer) -> Result<Bytes, Withheld> {
        let (status, pause_ms) = (answer.status, answer.pause_ms());
        let text = || self.hushed(format!("{} answered {status}: {}", self.account.provider, answer.excerpt()));
        match status {
            200 => match answer.body {
                Ok(body) => Ok(body),
                Err(cut @ Cut::TooLong(_)) => Err(Withheld::Never(cut.to_string())),
                Err(cut @ Cut::Short(_)) => Err(Withheld::Later { why: cut.to_string(), pause_ms: None }),
            },
            404 | 410 => Err(Withheld::Gone(text())),
            // A credential can be given anew, a redirect is not followed and may end.
            300..=399 | 401..=403 | 407 | 408 | 425 | 429 | 500.. => Err(Withheld::Later { why: text(), pause_ms }),
            _ => Err(Withheld::Never(text())),
        }
    }

    fn later(&self, why: &str) -> Withheld {
        Withheld::Later { why: format!("{}: {why}", self.account.provider), pause_ms: None }
    }

    /// Words without our own credential, should somebody quote it.
    fn hushed(&self, text: String) -> String {
        if self.account.api_key.is_empty() { text } else { text.replace(&self.account.api_key, "…") }
    }
}

/// A mail that is not larger than any mail may be.
fn bounded(raw: Vec<u8>) -> Result<Given, Withheld> {
    if raw.len() > limits::MAIL_BYTES {
        return Err(Withheld::Never(format!("the mail is larger than {} bytes", limits::MAIL_BYTES)));
    }
    Ok(Given::Mime(raw))
}

#[async_trait]
impl Collect for Collector {
    fn check(&self, account: &Account) -> Result<(), String> {
        self.base(account).map(drop)
    }

    async fn fetch(&self, account: &Account, notice: &Notice) -> Result<Given, Withheld> {
        let desk = self.desk(account)?;
        match account.provider {
            "resend" => resend::fetch(&desk, notice).await,
            "postmark" => postmark::fetch(&desk, notice).await,
            _ => nylas::fetch(&desk, notice).await,
        }
    }

    async fn list(&self, account: &Account, since: Time, page: Option<&str>) -> Result<Page, Withheld> {
        let desk = self.desk(account)?;
        match account.provider {
            "resend" => resend::list(&desk, page).await,
            "postmark" => postmark::list(&desk, since, page).await,
            other => Err(Withheld::Never(format!("{other} is not asked for a list"))),
        }
    }
}
