//! Messages, and the codes and links in them: reading, answering once, taking once.

use bytes::Bytes;
use hyper::header;
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;

use crate::{
    call::{Call, Caller, Naming, Parts, at},
    error::Error,
    http::Answer,
    wire::{
        Acknowledgement, AcknowledgementResult, Artifact, ArtifactApplied, ArtifactPage, Consume, ConsumedArtifact,
        Forward, RenderedMessage, Reply, SendReceipt,
    },
};

/// Messages of the server.
#[derive(Clone)]
pub struct Messages {
    caller: Arc<Caller>,
}

/// Bytes, with what their sender says they are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Download {
    /// The type that was declared; never trust it.
    pub content_type: String,
    /// The bytes themselves.
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

    fn post(&self, id: &str, verb: &str, naming: Naming, body: &impl Serialize) -> Result<Parts, Error> {
        Parts::post(format!("/v1/messages/{}/{verb}", at(id)?), naming).body(body)
    }

    /// As a model should see it.
    pub fn get(&self, id: &str) -> Call<RenderedMessage> {
        Call::new(&self.caller, at(id).map(|id| Parts::get(format!("/v1/messages/{id}"))))
    }

    /// As `min`, `plain` or `full`.
    pub fn view(&self, id: &str, view: &str) -> Call<RenderedMessage> {
        let parts = at(id).and_then(|id| Parts::get(format!("/v1/messages/{id}")).query(&json!({ "view": view })));
        Call::new(&self.caller, parts)
    }

    /// The bytes as they travelled. They are hostile.
    pub fn raw(&self, id: &str) -> Call<Download> {
        let parts = at(id).map(|id| Parts::get(format!("/v1/messages/{id}/raw")));
        Call::reading(&self.caller, parts.map(any_kind), |answer| Some(download(answer)))
    }

    /// The bytes of an attachment, by its `n`. They are hostile.
    pub fn attachment(&self, id: &str, n: u64) -> Call<Download> {
        let parts = at(id).map(|id| Parts::get(format!("/v1/messages/{id}/attachments/{n}")));
        Call::reading(&self.caller, parts.map(any_kind), |answer| Some(download(answer)))
    }

    /// What was found in it.
    pub fn artifacts(&self, id: &str) -> Call<ArtifactPage> {
        Call::new(&self.caller, at(id).map(|id| Parts::get(format!("/v1/messages/{id}/artifacts"))))
    }

    /// Answers a message once, whatever the words. The message is the name of the wish; it needs no key.
    pub fn reply(&self, id: &str, body: &Reply) -> Call<SendReceipt> {
        Call::new(&self.caller, self.post(id, "reply", Naming::Nature, body))
    }

    /// Passes a message on, once to the same people.
    pub fn forward(&self, id: &str, body: &Forward) -> Call<SendReceipt> {
        Call::new(&self.caller, self.post(id, "forward", Naming::Nature, body))
    }

    /// Done with a message that `next` gave.
    pub fn ack(&self, id: &str, body: &Acknowledgement) -> Call<AcknowledgementResult> {
        Call::new(&self.caller, self.post(id, "ack", Naming::Mint, body))
    }

    /// Cannot do it; others may, after `delay_s`.
    pub fn nack(&self, id: &str, body: &Acknowledgement) -> Call<AcknowledgementResult> {
        Call::new(&self.caller, self.post(id, "nack", Naming::Mint, body))
    }

    /// Needs more time.
    pub fn extend(&self, id: &str, body: &Acknowledgement) -> Call<AcknowledgementResult> {
        Call::new(&self.caller, self.post(id, "extend", Naming::Mint, body))
    }
}

fn any_kind(mut parts: Parts) -> Parts {
    parts.headers.push((header::ACCEPT.as_str(), "*/*".to_owned()));
    parts
}

/// Codes and links of the server.
#[derive(Clone)]
pub struct Artifacts {
    caller: Arc<Caller>,
}

/// An answer that holds an artifact and nothing else.
pub(crate) fn taken(answer: &Answer) -> Option<Artifact> {
    serde_json::from_slice::<ConsumedArtifact>(&answer.body).ok().map(|taken| taken.artifact)
}

impl Artifacts {
    pub(crate) fn new(caller: &Arc<Caller>) -> Self {
        Self { caller: Arc::clone(caller) }
    }

    fn post(&self, id: &str, verb: &str, body: &impl Serialize) -> Call<Artifact> {
        let parts = at(id).and_then(|id| Parts::post(format!("/v1/artifacts/{id}/{verb}"), Naming::Nature).body(body));
        Call::reading(&self.caller, parts, taken)
    }

    /// One of them, masked until it was taken.
    pub fn get(&self, id: &str) -> Call<Artifact> {
        Call::new(&self.caller, at(id).map(|id| Parts::get(format!("/v1/artifacts/{id}"))))
    }

    /// Takes it once. The same `for` gets it again, any other is refused: `already_consumed`.
    pub fn consume(&self, id: &str, body: &Consume) -> Call<Artifact> {
        self.post(id, "consume", body)
    }

    /// Reports that it was used.
    pub fn applied(&self, id: &str, body: &ArtifactApplied) -> Call<Artifact> {
        self.post(id, "applied", body)
    }
}
