//! Sending. What names the wish is an argument of its own: an intent, a key, or the way around both that says so.

use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

use crate::{
    call::{Call, Caller, Naming, Parts, at},
    error::Error,
    once::{Item, Mails, Name, Once},
    page::Each,
    wire::{BatchReceipt, Email, EmailDetail, EmailPage, Mail, Reschedule, Resend, ResolveEmail, SendReceipt},
};

/// Which emails.
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

/// Emails of the server.
#[derive(Clone)]
pub struct Emails {
    caller: Arc<Caller>,
}

impl Emails {
    pub(crate) fn new(caller: &Arc<Caller>) -> Self {
        Self { caller: Arc::clone(caller) }
    }

    /// Sends a mail once, however often it is called under one name.
    pub fn send(&self, mail: Mail, once: impl Into<Once>) -> Call<SendReceipt> {
        let (intent, key, naming) = match once.into().0 {
            Name::Intent(intent) => (Some(intent), None, Naming::Nature),
            Name::Both(intent, key) => (Some(intent), Some(key), Naming::Nature),
            Name::Key(key) => (None, Some(key), Naming::Nature),
            Name::Nothing => (None, None, Naming::Nothing),
        };
        let body = Item { mail, intent }.body();
        let parts = body.and_then(|body| Parts::post("/v1/emails".to_owned(), naming).body(&body));
        Call::new(&self.caller, parts.map(|parts| Parts { key, ..parts }))
    }

    /// Sends up to 1,000 mails; every item is sent once, also when the batch is repeated.
    pub fn batch(&self, mails: Mails) -> Call<BatchReceipt> {
        let naming = if mails.repeat { Naming::Nature } else { Naming::Nothing };
        let bodies: Result<Vec<Value>, Error> = mails.items.iter().map(Item::body).collect();
        let parts = bodies.and_then(|bodies| Parts::post("/v1/emails/batch".to_owned(), naming).body(&bodies));
        Call::new(&self.caller, parts.map(|parts| Parts { key: mails.key, ..parts }))
    }

    /// One email with everything about it.
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

    /// Takes an email back before it is handed off.
    pub fn cancel(&self, id: &str) -> Call<Email> {
        let parts = at(id).map(|id| Parts::post(format!("/v1/emails/{id}/cancel"), Naming::Mint));
        Call::new(&self.caller, parts)
    }

    /// Sends it again on purpose: one version more, once.
    pub fn resend(&self, id: &str, body: &Resend) -> Call<SendReceipt> {
        let parts = at(id).and_then(|id| Parts::post(format!("/v1/emails/{id}/resend"), Naming::Mint).body(body));
        Call::new(&self.caller, parts)
    }

    /// Says what became of an email whose outcome is unknown.
    pub fn resolve(&self, id: &str, body: &ResolveEmail) -> Call<Email> {
        let parts = at(id).and_then(|id| Parts::post(format!("/v1/emails/{id}/resolve"), Naming::Mint).body(body));
        Call::new(&self.caller, parts)
    }

    /// Gives a scheduled email another time: RFC 3339 with an offset, or `in 5 minutes`.
    pub fn reschedule(&self, id: &str, scheduled_at: impl Into<String>) -> Call<Email> {
        let body = Reschedule { scheduled_at: scheduled_at.into() };
        let parts =
            at(id).and_then(|id| Parts::new(Method::PATCH, format!("/v1/emails/{id}"), Naming::Nature).body(&body));
        Call::new(&self.caller, parts)
    }
}
