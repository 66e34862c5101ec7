//! Webhooks in the format of another service, the dialect of an endpoint. This file collects the data about an event;
//! the event formatter of the dialect builds the body.

use crate::{
    events::Events,
    inbox::messages::{MessageView, RenderedBody, render_body},
    runtime::blocking::run_blocking,
};
use mailonce_core::{
    events::{
        endpoint::Endpoint,
        formatted_event::{EmailEvent, FormattedEvent, NoticeContext},
        notice::{LeasedNotice, Notice, NoticeAttempt, WebhookVerdict},
        webhook::OutgoingWebhook,
    },
    id::{EmailId, MessageId},
    inbox::message::Message,
    ports::store::StoreError,
    time::Time,
};

/// The request to send for a notice.
pub(crate) enum NoticeRequest {
    /// Send this webhook.
    Post(OutgoingWebhook),
    /// Send nothing, for this reason: the dialect has no such event, or the endpoint doesn't want it.
    Skip(String),
    /// The secrets of the endpoint cannot be decrypted.
    SecretsUnavailable,
    /// The store failed to read the data of the event.
    Retry(StoreError),
}

impl Events {
    /// Builds the request for a notice, in the format of its endpoint.
    pub(crate) async fn build_notice_request(
        &self,
        endpoint: &Endpoint,
        leased: &LeasedNotice,
        at: Time,
    ) -> NoticeRequest {
        let id = leased.notice.id.to_string();
        let Some(dialect) = &endpoint.config.dialect else {
            let body = self.to_event(endpoint, &leased.event).await;
            return self
                .signed_post(endpoint, id, body, at)
                .map_or(NoticeRequest::SecretsUnavailable, NoticeRequest::Post);
        };
        let formatted = match self.format_event(endpoint, (&leased.event, &leased.notice), at).await {
            Ok(formatted) => formatted,
            Err(error) => return NoticeRequest::Retry(error),
        };
        let Some(formatted) = formatted else {
            let kind = leased.event.event.kind.as_str();
            return NoticeRequest::Skip(format!(
                "{} has no event for {kind}, or the endpoint does not want it",
                dialect.dialect
            ));
        };
        match self.signed_post(endpoint, id, formatted.body, at) {
            Some(mut post) => {
                post.headers.extend(formatted.headers);
                NoticeRequest::Post(post)
            }
            None => NoticeRequest::SecretsUnavailable,
        }
    }

    /// An event in the format of an endpoint's dialect. `None` when the dialect drops it.
    pub(crate) async fn format_event(
        &self,
        endpoint: &Endpoint,
        (event, notice): (&mailonce_core::events::event::Event, &Notice),
        at: Time,
    ) -> Result<Option<FormattedEvent>, StoreError> {
        let secrets = self.endpoint_secrets(endpoint, at).unwrap_or_default();
        let (team, subject) = (endpoint.team, event.event.subject_id);
        let (mut email, mut message, mut inbox, mut thread, mut text) = (None, None, None, None, None);
        match event.event.kind.subject_type() {
            "email" => {
                let detail = self.ctx.store.email_detail(team, EmailId(subject)).await?;
                if let Some(detail) = &detail {
                    let from = [detail.email.head.from.clone()];
                    inbox = self.ctx.store.inbox_by_address(&from).await?.filter(|inbox| inbox.team == team);
                }
                email = detail.map(|detail| EmailEvent {
                    message_id: self.ctx.message_id(&detail.email),
                    content: detail.body.as_deref().and_then(|body| self.ctx.packer.unpack(body)),
                    email: detail.email,
                });
            }
            "message" => {
                message = self.ctx.store.message(team, MessageId(subject)).await?;
                if let Some(message) = &message {
                    inbox = self.ctx.store.inbox(team, message.inbox).await?;
                    thread = self.ctx.store.thread(team, message.thread).await?;
                    text = self.plain_text(message).await?;
                }
            }
            _ => {}
        }
        let context = NoticeContext {
            event,
            notice,
            endpoint,
            email,
            message,
            inbox,
            thread,
            text,
            secrets: &secrets,
            attempted_at: at,
        };
        Ok(self.ctx.deps.event_formatter.format_event(&context))
    }
}

impl Events {
    /// The text of a message, with codes and links hidden. `None` when its bytes are no longer stored or cannot be
    /// rendered.
    pub(crate) async fn plain_text(&self, message: &Message) -> Result<Option<String>, StoreError> {
        let packed = self.ctx.store.raw_message(message.team, message.id).await?;
        let Some(raw) = packed.and_then(|packed| self.ctx.packer.unpack_raw(&packed)) else { return Ok(None) };
        let hidden = !message.head.artifacts.is_empty();
        let rendered = run_blocking(move || render_body(&raw, MessageView::Plain, hidden, Vec::new(), "")).await;
        Ok(match rendered {
            Ok(RenderedBody::Plain { text }) => Some(text),
            _ => None,
        })
    }
}

/// The attempt of a notice that is dropped without a request.
pub(crate) fn skipped_attempt(leased: &LeasedNotice, why: String, at: Time) -> (NoticeAttempt, WebhookVerdict) {
    let number = leased.notice.attempts;
    (NoticeAttempt { number, at, status: None, latency_ms: 0, response: why, error: None }, WebhookVerdict::Dropped)
}
