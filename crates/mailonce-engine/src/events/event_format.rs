//! Telling endpoints in the words of another service: what is known of an event is gathered here, worded elsewhere.

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

/// What is to be posted for a notice.
pub(crate) enum NoticeRequest {
    /// This.
    Post(OutgoingWebhook),
    /// Nothing: the dialect of the endpoint has no word for it.
    Skip(String),
    /// The secrets of the endpoint cannot be opened.
    SecretsUnavailable,
    /// The ledger could not tell what it is about.
    Retry(StoreError),
}

impl Events {
    /// What an endpoint is told, in its own words.
    pub(crate) async fn build_notice_request(
        &self,
        endpoint: &Endpoint,
        owed: &LeasedNotice,
        at: Time,
    ) -> NoticeRequest {
        let id = owed.notice.id.to_string();
        let Some(tongue) = &endpoint.config.tongue else {
            let body = self.to_event(endpoint, &owed.event).await;
            return self
                .signed_post(endpoint, id, body, at)
                .map_or(NoticeRequest::SecretsUnavailable, NoticeRequest::Post);
        };
        let worded = match self.format_event(endpoint, (&owed.event, &owed.notice), at).await {
            Ok(worded) => worded,
            Err(error) => return NoticeRequest::Retry(error),
        };
        let Some(worded) = worded else {
            let kind = owed.event.event.kind.as_str();
            return NoticeRequest::Skip(format!("{} has no word for {kind}, or it is not wanted", tongue.dialect));
        };
        match self.signed_post(endpoint, id, worded.body, at) {
            Some(mut post) => {
                post.headers.extend(worded.headers);
                NoticeRequest::Post(post)
            }
            None => NoticeRequest::SecretsUnavailable,
        }
    }

    /// An event in the words of an endpoint's dialect.
    pub(crate) async fn format_event(
        &self,
        endpoint: &Endpoint,
        (event, notice): (&mailonce_core::events::event::Event, &Notice),
        at: Time,
    ) -> Result<Option<FormattedEvent>, StoreError> {
        let secrets = self.endpoint_secrets(endpoint, at).unwrap_or_default();
        let (team, about) = (endpoint.team, event.event.subject_id);
        let (mut email, mut message, mut inbox, mut thread, mut text) = (None, None, None, None, None);
        match event.event.kind.subject_type() {
            "email" => {
                let detail = self.ctx.store.email_detail(team, EmailId(about)).await?;
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
                message = self.ctx.store.message(team, MessageId(about)).await?;
                if let Some(message) = &message {
                    inbox = self.ctx.store.inbox(team, message.inbox).await?;
                    thread = self.ctx.store.thread(team, message.thread).await?;
                    text = self.plain_text(message).await?;
                }
            }
            _ => {}
        }
        let telling = NoticeContext {
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
        Ok(self.ctx.deps.event_formatter.format_event(&telling))
    }
}

impl Events {
    /// What a message says, its codes and links hidden. `None` when its bytes are gone or cannot be shown.
    pub(crate) async fn plain_text(&self, message: &Message) -> Result<Option<String>, StoreError> {
        let packed = self.ctx.store.raw_message(message.team, message.id).await?;
        let Some(raw) = packed.and_then(|packed| self.ctx.packer.unpack_raw(&packed)) else { return Ok(None) };
        let hidden = !message.head.artifacts.is_empty();
        let drawn = run_blocking(move || render_body(&raw, MessageView::Plain, hidden, Vec::new(), "")).await;
        Ok(match drawn {
            Ok(RenderedBody::Plain { text }) => Some(text),
            _ => None,
        })
    }
}

/// An attempt at a notice that nobody is told of.
pub(crate) fn skipped_attempt(owed: &LeasedNotice, why: String, at: Time) -> (NoticeAttempt, WebhookVerdict) {
    let number = owed.notice.attempts;
    (NoticeAttempt { number, at, status: None, latency_ms: 0, response: why, error: None }, WebhookVerdict::Dropped)
}
