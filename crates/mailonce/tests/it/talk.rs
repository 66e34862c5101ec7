//! People who write, agents who answer: what tests of conversations share.

use serde_json::{Value, json};

use crate::{
    call::{Answer, post},
    world::World,
};

/// A mail of a person to an agent.
pub(crate) struct Letter<'a> {
    pub(crate) from: &'a str,
    pub(crate) id: &'a str,
    pub(crate) subject: &'a str,
    /// Further header lines.
    pub(crate) head: String,
    pub(crate) text: &'a str,
}

impl Default for Letter<'_> {
    fn default() -> Self {
        Self { from: "ann@shop.test", id: "1", subject: "Hello", head: String::new(), text: "How are you?" }
    }
}

impl Letter<'_> {
    pub(crate) fn raw(&self) -> String {
        let Self { from, id, subject, head, text } = self;
        let to = "To: a@agents.test";
        format!("From: {from}\n{to}\nMessage-ID: <{id}@shop.test>\nSubject: {subject}\n{head}\n{text}\n")
    }
}

impl World {
    /// A person writes to the inbox `a`, and this is the message.
    pub(crate) async fn hears(&self, letter: Letter<'_>) -> Value {
        self.hears_raw(&letter.raw()).await
    }

    /// A mail comes to the inbox `a`, and this is the message.
    pub(crate) async fn hears_raw(&self, raw: &str) -> Value {
        assert_eq!(self.arrives(&["a@agents.test"], raw).await.len(), 1);
        self.get("/v1/inboxes/a@agents.test/messages?limit=1").await.is(200).rows().remove(0)
    }

    /// An agent answers.
    pub(crate) async fn reply(&self, message: &Value, text: &str) -> Answer {
        self.reply_with(message, json!({ "text": text })).await
    }

    pub(crate) async fn reply_with(&self, message: &Value, body: Value) -> Answer {
        self.call(post(&reply_path(message)).json(&body)).await
    }

    /// Questions for people, newest first.
    pub(crate) async fn questions(&self, query: &str) -> Vec<Value> {
        self.get(&format!("/v1/escalations?limit=100&{query}")).await.is(200).rows()
    }

    /// A person decides a question.
    pub(crate) async fn decide(&self, question: &Value, decision: &str) -> Answer {
        let path = format!("/v1/escalations/{}/resolve", word(question, "id"));
        self.post(&path, &json!({ "as": decision, "rev": question["rev"] })).await
    }

    /// How many emails were sent by now.
    pub(crate) async fn sent(&self) -> usize {
        self.hand_over().await;
        self.get("/v1/emails?limit=100&state=sent").await.is(200).rows().len()
    }
}

pub(crate) fn reply_path(message: &Value) -> String {
    format!("/v1/messages/{}/reply", word(message, "id"))
}

/// A member that must be text.
#[track_caller]
pub(crate) fn word<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_else(|| panic!("no {member} in {value}"))
}
