//! Sending a notice: one HTTP request to a webhook endpoint of a team.

use async_trait::async_trait;

use crate::events::{
    notice::WebhookError,
    webhook::{OutgoingWebhook, WebhookResult},
};

/// Sends webhooks.
#[async_trait]
pub trait WebhookClient: Send + Sync + 'static {
    /// Refuses a URL that could never be called, without any request.
    fn check_url(&self, url: &str) -> Result<(), String>;
    /// Sends one request. Follows no redirect, never retries, and returns within its own timeout.
    async fn post(&self, post: OutgoingWebhook) -> WebhookResult;
}

/// No network: every webhook fails.
#[derive(Clone, Copy, Debug)]
pub struct NoWebhooks;

#[async_trait]
impl WebhookClient for NoWebhooks {
    fn check_url(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    async fn post(&self, _: OutgoingWebhook) -> WebhookResult {
        WebhookResult { response: Err((WebhookError::Connect, "no network is wired".into())), latency_ms: 0 }
    }
}
