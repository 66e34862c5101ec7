//! An outgoing webhook and the response to it.

use crate::events::notice::WebhookError;
use std::fmt;

/// One webhook request.
#[derive(Clone)]
pub struct OutgoingWebhook {
    /// The URL of the receiver.
    pub url: String,
    /// The id of the notice. It is the same on every attempt, so that the receiver can detect a repeat.
    pub id: String,
    /// When this attempt is made, in seconds since 1970.
    pub timestamp_s: i64,
    /// The signing secrets, newest first.
    pub secrets: Vec<Vec<u8>>,
    /// Additional headers that the team configured.
    pub headers: Vec<(String, String)>,
    /// The JSON body.
    pub body: Vec<u8>,
}

impl fmt::Debug for OutgoingWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post").field("id", &self.id).field("at", &self.timestamp_s).finish_non_exhaustive()
    }
}

/// The result of one webhook request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookResult {
    /// The response, or why there is none.
    pub response: Result<WebhookResponse, (WebhookError, String)>,
    /// How long the request took, in milliseconds.
    pub latency_ms: u32,
}

/// The response of a receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookResponse {
    /// The HTTP status.
    pub status: u16,
    /// The `Retry-After` header, unparsed.
    pub retry_after: Option<String>,
    /// The `webhook-delivery` header. With `abort-message` the receiver asks not to get this notice again.
    pub delivery_directive: Option<String>,
    /// The beginning of the body.
    pub excerpt: String,
}

impl WebhookResponse {
    /// One of the two response headers that mailonce evaluates.
    pub fn header(&self, name: &str) -> Option<&str> {
        match name {
            "retry-after" => self.retry_after.as_deref(),
            "webhook-delivery" => self.delivery_directive.as_deref(),
            _ => None,
        }
    }
}
