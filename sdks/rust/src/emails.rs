//! Sending. What identifies the email is an argument of its own: an intent, a key, or explicitly neither.

use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

use crate::{
    call::{Call, Caller, Idempotency, Parts, at},
    error::Error,
    once::{Item, Mails, Once, SendIdentity},
    page::Each,
    wire::{BatchReceipt, Email, EmailDetail, EmailPage, Mail, Reschedule, Resend, ResolveEmail, SendReceipt},
};

/// Filters for emails.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names of the query say what they are")]
pub struct EmailQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Calls for emails.
#[derive(Clone)]
pub struct Emails {
    caller: Arc<Caller>,
}

impl Emails {
    pub(crate) fn new(caller: &Arc<Caller>) -> Self {
        Self { caller: Arc::clone(caller) }
    }

    /// Sends an email once, no matter how often it is called with the same key or intent.
    pub fn send(&self, mail: Mail, once: impl Into<Once>) -> Call<SendReceipt> {
        let (intent, key, idempotency) = match once.into().0 {
            SendIdentity::Intent(intent) => (Some(intent), None, Idempotency::Inherent),
            SendIdentity::Both(intent, key) => (Some(intent), Some(key), Idempotency::Inherent),
            SendIdentity::Key(key) => (None, Some(key), Idempotency::Inherent),
            SendIdentity::None => (None, None, Idempotency::None),
        };
        let body = Item { mail, intent }.body();
        let parts = body.and_then(|body| Parts::post("/v1/emails".to_owned(), idempotency).body(&body));
        Call::new(&self.caller, parts.map(|parts| Parts { key, ..parts }))
    }

    /// Sends up to 1,000 emails; each is sent once, even if the batch is retried.
    pub fn batch(&self, mails: Mails) -> Call<BatchReceipt> {
        let idempotency = if mails.repeat { Idempotency::Inherent } else { Idempotency::None };
        let bodies: Result<Vec<Value>, Error> = mails.items.iter().map(Item::body).collect();
        let parts = bodies.and_then(|bodies| Parts::post("/v1/emails/batch".to_owned(), idempotency).body(&bodies));
        Call::new(&self.caller, parts.map(|parts| Parts { key: mails.key, ..parts }))
    }

    /// Returns an email with its attempts, evidence and timeline.
    pub fn get(&self, id: &str) -> Call<EmailDetail> {
        Call::new(&self.caller, at(id).map(|id| Parts::get(format!("/v1/emails/{id}"))))
    }

    /// A page of emails, newest first.
    pub fn list(&self, query: &EmailQuery) -> Call<EmailPage> {
        Call::new(&self.caller, Parts::get("/v1/emails".to_owned()).query(query))
    }

    /// All pages of `list`, one email after the other.
    pub fn each(&self, query: EmailQuery) -> Each<Email> {
        let emails = self.clone();
        Each::new(query.cursor.clone(), move |cursor| {
            let page = emails.list(&EmailQuery { cursor, ..query.clone() });
            async move { page.await.map(|page| (page.data, page.next_cursor)) }
        })
    }

    /// Cancels an email before it is handed off.
    pub fn cancel(&self, id: &str) -> Call<Email> {
        let parts = at(id).map(|id| Parts::post(format!("/v1/emails/{id}/cancel"), Idempotency::RandomKey));
        Call::new(&self.caller, parts)
    }

    /// Sends the email again on purpose, as its next version.
    pub fn resend(&self, id: &str, body: &Resend) -> Call<SendReceipt> {
        let parts =
            at(id).and_then(|id| Parts::post(format!("/v1/emails/{id}/resend"), Idempotency::RandomKey).body(body));
        Call::new(&self.caller, parts)
    }

    /// Records what happened to an email whose outcome is unknown.
    pub fn resolve(&self, id: &str, body: &ResolveEmail) -> Call<Email> {
        let parts =
            at(id).and_then(|id| Parts::post(format!("/v1/emails/{id}/resolve"), Idempotency::RandomKey).body(body));
        Call::new(&self.caller, parts)
    }

    /// Changes the time of a scheduled email: RFC 3339 with an offset, or `in 5 minutes`.
    pub fn reschedule(&self, id: &str, scheduled_at: impl Into<String>) -> Call<Email> {
        let body = Reschedule { scheduled_at: scheduled_at.into() };
        let parts = at(id)
            .and_then(|id| Parts::new(Method::PATCH, format!("/v1/emails/{id}"), Idempotency::Inherent).body(&body));
        Call::new(&self.caller, parts)
    }
}
