//! Helpers for conversation tests: people who write mail and agents that reply.

use serde_json::{Value, json};

use crate::{
    call::{TestResponse, post},
    world::World,
};

/// A mail from a person to an agent.
pub(crate) struct TestMail<'a> {
    pub(crate) from: &'a str,
    pub(crate) id: &'a str,
    pub(crate) subject: &'a str,
    /// Additional header lines.
    pub(crate) extra_headers: String,
    pub(crate) text: &'a str,
}

impl Default for TestMail<'_> {
    fn default() -> Self {
        Self { from: "ann@shop.test", id: "1", subject: "Hello", extra_headers: String::new(), text: "How are you?" }
    }
}

impl TestMail<'_> {
    pub(crate) fn to_raw(&self) -> String {
        let Self { from, id, subject, extra_headers: head, text } = self;
        let to = "To: a@agents.test";
        format!("From: {from}\n{to}\nMessage-ID: <{id}@shop.test>\nSubject: {subject}\n{head}\n{text}\n")
    }
}

impl World {
    /// Receives a mail from a person in the inbox `a` and returns the message.
    pub(crate) async fn receive_message(&self, mail: TestMail<'_>) -> Value {
        self.receive_raw_message(&mail.to_raw()).await
    }

    /// Receives a raw mail in the inbox `a` and returns the message.
    pub(crate) async fn receive_raw_message(&self, raw: &str) -> Value {
        assert_eq!(self.receive_mail(&["a@agents.test"], raw).await.len(), 1);
        self.get("/v1/inboxes/a@agents.test/messages?limit=1").await.expect_status(200).rows().remove(0)
    }

    /// Replies to a message as an agent.
    pub(crate) async fn reply(&self, message: &Value, text: &str) -> TestResponse {
        self.reply_with(message, json!({ "text": text })).await
    }

    pub(crate) async fn reply_with(&self, message: &Value, body: Value) -> TestResponse {
        self.call(post(&reply_path(message)).json(&body)).await
    }

    /// Escalations, newest first.
    pub(crate) async fn escalations(&self, query: &str) -> Vec<Value> {
        self.get(&format!("/v1/escalations?limit=100&{query}")).await.expect_status(200).rows()
    }

    /// Resolves an escalation as a person.
    pub(crate) async fn resolve_escalation(&self, escalation: &Value, decision: &str) -> TestResponse {
        let path = format!("/v1/escalations/{}/resolve", str_field(escalation, "id"));
        self.post(&path, &json!({ "as": decision, "rev": escalation["rev"] })).await
    }

    /// Hands off what is due and returns how many emails have been sent so far.
    pub(crate) async fn hand_off_and_count_sent(&self) -> usize {
        self.hand_off_due().await;
        self.get("/v1/emails?limit=100&state=sent").await.expect_status(200).rows().len()
    }
}

pub(crate) fn reply_path(message: &Value) -> String {
    format!("/v1/messages/{}/reply", str_field(message, "id"))
}

/// A field that must be a string.
#[track_caller]
pub(crate) fn str_field<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_else(|| panic!("no {member} in {value}"))
}
