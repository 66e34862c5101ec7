//! Messages, and the codes and links in them: reading, replying once, consuming once.

use bytes::Bytes;
use hyper::header;
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;

use crate::{
    call::{Call, Caller, Idempotency, Parts, at},
    error::Error,
    http::Answer,
    wire::{
        Acknowledgement, AcknowledgementResult, Artifact, ArtifactApplied, ArtifactPage, Consume, ConsumedArtifact,
        Forward, RenderedMessage, Reply, SendReceipt,
    },
};

/// Calls for messages.
#[derive(Clone)]
pub struct Messages {
    caller: Arc<Caller>,
}

/// Bytes, with the content type that their sender declared.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Download {
    /// The declared content type; do not trust it.
    pub content_type: String,
    /// The content.
    pub content: Bytes,
}

fn download(answer: &Answer) -> Download {
    let kind = answer.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    Download { content_type: kind.unwrap_or("application/octet-stream").to_owned(), content: answer.body.clone() }
}

impl Messages {
    pub(crate) fn new(caller: &Arc<Caller>) -> Self {
        Self { caller: Arc::clone(caller) }
    }

    fn post(&self, id: &str, verb: &str, idempotency: Idempotency, body: &impl Serialize) -> Result<Parts, Error> {
        Parts::post(format!("/v1/messages/{}/{verb}", at(id)?), idempotency).body(body)
    }

    /// Returns a message in the view for models, `min`.
    pub fn get(&self, id: &str) -> Call<RenderedMessage> {
        Call::new(&self.caller, at(id).map(|id| Parts::get(format!("/v1/messages/{id}"))))
    }

    /// Returns a message in the view `min`, `plain` or `full`.
    pub fn view(&self, id: &str, view: &str) -> Call<RenderedMessage> {
        let parts = at(id).and_then(|id| Parts::get(format!("/v1/messages/{id}")).query(&json!({ "view": view })));
        Call::new(&self.caller, parts)
    }

    /// The message as received. Treat the bytes as hostile.
    pub fn raw(&self, id: &str) -> Call<Download> {
        let parts = at(id).map(|id| Parts::get(format!("/v1/messages/{id}/raw")));
        Call::reading(&self.caller, parts.map(any_kind), |answer| Some(download(answer)))
    }

    /// The content of an attachment, by its number `n`. Treat the bytes as hostile.
    pub fn attachment(&self, id: &str, n: u64) -> Call<Download> {
        let parts = at(id).map(|id| Parts::get(format!("/v1/messages/{id}/attachments/{n}")));
        Call::reading(&self.caller, parts.map(any_kind), |answer| Some(download(answer)))
    }

    /// The codes and links found in a message.
    pub fn artifacts(&self, id: &str) -> Call<ArtifactPage> {
        Call::new(&self.caller, at(id).map(|id| Parts::get(format!("/v1/messages/{id}/artifacts"))))
    }

    /// Replies to a message once, even if a retry has another text. The message identifies the reply, so it needs no key.
    pub fn reply(&self, id: &str, body: &Reply) -> Call<SendReceipt> {
        Call::new(&self.caller, self.post(id, "reply", Idempotency::Inherent, body))
    }

    /// Forwards a message, once to the same recipients.
    pub fn forward(&self, id: &str, body: &Forward) -> Call<SendReceipt> {
        Call::new(&self.caller, self.post(id, "forward", Idempotency::Inherent, body))
    }

    /// Marks a message from `next` as done.
    pub fn ack(&self, id: &str, body: &Acknowledgement) -> Call<AcknowledgementResult> {
        Call::new(&self.caller, self.post(id, "ack", Idempotency::RandomKey, body))
    }

    /// Returns a message from `next`; others may lease it after `delay_s`.
    pub fn nack(&self, id: &str, body: &Acknowledgement) -> Call<AcknowledgementResult> {
        Call::new(&self.caller, self.post(id, "nack", Idempotency::RandomKey, body))
    }

    /// Extends the lease of a message from `next`.
    pub fn extend(&self, id: &str, body: &Acknowledgement) -> Call<AcknowledgementResult> {
        Call::new(&self.caller, self.post(id, "extend", Idempotency::RandomKey, body))
    }
}

fn any_kind(mut parts: Parts) -> Parts {
    parts.headers.push((header::ACCEPT.as_str(), "*/*".to_owned()));
    parts
}

/// Calls for codes and links.
#[derive(Clone)]
pub struct Artifacts {
    caller: Arc<Caller>,
}

/// The artifact in a response.
pub(crate) fn taken(answer: &Answer) -> Option<Artifact> {
    serde_json::from_slice::<ConsumedArtifact>(&answer.body).ok().map(|taken| taken.artifact)
}

impl Artifacts {
    pub(crate) fn new(caller: &Arc<Caller>) -> Self {
        Self { caller: Arc::clone(caller) }
    }

    fn post(&self, id: &str, verb: &str, body: &impl Serialize) -> Call<Artifact> {
        let parts =
            at(id).and_then(|id| Parts::post(format!("/v1/artifacts/{id}/{verb}"), Idempotency::Inherent).body(body));
        Call::reading(&self.caller, parts, taken)
    }

    /// Returns a code or link, masked until it is consumed.
    pub fn get(&self, id: &str) -> Call<Artifact> {
        Call::new(&self.caller, at(id).map(|id| Parts::get(format!("/v1/artifacts/{id}"))))
    }

    /// Consumes a code or link once. The same `for` gets it again; another one fails with `already_consumed`.
    pub fn consume(&self, id: &str, body: &Consume) -> Call<Artifact> {
        self.post(id, "consume", body)
    }

    /// Reports that the code or link was used.
    pub fn applied(&self, id: &str, body: &ArtifactApplied) -> Call<Artifact> {
        self.post(id, "applied", body)
    }
}
