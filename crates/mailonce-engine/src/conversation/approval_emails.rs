//! The email that tells a person of questions.
//!
//! It goes to a transport directly and is not stored, so that nobody but its recipient can read the links in it. It is sent
//! at most once for each attempt, and not again when its outcome is unknown.

use mailonce_core::{
    handoff::{
        capabilities::PayloadFormat,
        reply::ReplyMeaning,
        transport_request::{FrozenEnvelope, OutboundMail},
    },
    id::{EmailId, TeamId},
    outbound::{
        content::{EmailContent, RawContent},
        email::Channel,
    },
};
use mailonce_mail::compose::{self, AutoSubmitted, ComposeInput};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

use crate::{
    access::{people::PersonView, sending_domains::FreezeError},
    conversation::{Escalations, notification_targets::describe, notifications::DueNotice},
    handoff::transport_selector::{LOCAL_TRANSPORT, OutboundRoute},
    runtime::hex::hex,
};

impl Escalations {
    /// Sends one email about these questions to a person.
    pub(super) async fn email_questions(
        &self,
        team: TeamId,
        person: &PersonView,
        from: &str,
        notices: &[DueNotice],
    ) -> Result<(), String> {
        let Some((first, address)) = notices.first().zip(person.person.address.clone()) else { return Ok(()) };
        let subject = match notices.len() {
            1 => format!("{} {}", first.view.escalation.reason.question(), describe(&first.view)),
            count => format!("{count} questions wait for your decision"),
        };
        let raw = RawContent {
            from: from.to_owned(),
            to: vec![address],
            subject: subject.split_whitespace().collect::<Vec<_>>().join(" "),
            text: Some(self.text(notices)?),
            ..RawContent::default()
        };
        let content = EmailContent::validate(raw).map_err(|faults| format!("{faults:?}"))?;
        let sender = content.from.to_address();
        self.access.check_sender(team, sender.as_str()).await.map_err(|problem| problem.detail)?;
        let name = self.ctx.transports.select(&content, Channel::Http, self.ctx.entropy.next_u64());
        let route = self.ctx.transports.get(name).filter(|_| name != LOCAL_TRANSPORT);
        let Some(route) = route else {
            tracing::info!(
                "no transport leads to people, so a notification stays unsent: only the sandbox is configured"
            );
            return Ok(());
        };
        self.send_unrecorded(team, route, &content, first).await
    }

    fn text(&self, notices: &[DueNotice]) -> Result<String, String> {
        let mut parts = Vec::with_capacity(notices.len() + 1);
        for DueNotice { record, link, view } in notices {
            let (question, url) = (view.escalation.reason.question(), self.link_url(record.id)?);
            let about = describe(view);
            parts.push(format!("{question}\n{about}\n\nLook and decide until {}:\n{url}\n", link.expires_at));
        }
        parts.push(
            "-- \nOpening a link changes nothing; a button on the page decides. The links are yours alone: do not \
                    forward them.\n"
                .to_owned(),
        );
        Ok(parts.join("\n"))
    }

    /// Hands an email to a transport without storing it.
    async fn send_unrecorded(
        &self,
        team: TeamId,
        route: &OutboundRoute,
        content: &EmailContent,
        notice: &DueNotice,
    ) -> Result<(), String> {
        let (id, now) = (EmailId(notice.record.id), self.ctx.now());
        let from = content.from.to_address();
        let attempt = notice.link.notification.as_ref().map_or(1, |notification| notification.attempts);
        // The same key for every attempt, so that a provider that knows the first one does not send a second.
        let mac = self.ctx.secret.mac("approval-email", &[notice.record.id.as_bytes()]);
        let mut key = [0; 16];
        key.copy_from_slice(&mac[..16]);
        let message_id = format!("<{}@{}>", hex(&mac[16..]), from.domain());
        let mime = match route.capability().payload_format {
            PayloadFormat::Content => None,
            PayloadFormat::Mime => {
                let plain = compose::compose(&ComposeInput {
                    content,
                    message_id: &message_id,
                    date: now,
                    id,
                    in_reply_to: &[],
                    references: &[],
                    auto_submitted: Some(AutoSubmitted::Generated),
                    loop_marker: Some(&self.ctx.loop_mark(team)),
                });
                let plain = plain.map_err(|error| error.to_string())?;
                let signed = self.access.sign_mail((team, from.as_str()), plain, now).await;
                Some(signed.map_err(|(FreezeError::Temporary(why) | FreezeError::Permanent(why))| why)?)
            }
        };
        let key = Uuid::from_bytes(key);
        let mail = OutboundMail { id, content, message_id: &message_id, created_at: now, key, mime: mime.as_deref() };
        let bytes: Arc<[u8]> = route.transport.freeze(&mail).map_err(|error| error.to_string())?.into();
        let envelope = FrozenEnvelope {
            team,
            email: id,
            handoff: 0,
            attempt,
            return_path: from.as_str().to_owned(),
            envelope_id: hex(&mac[8..16]),
            recipients: content.recipients().iter().map(|to| (*to).to_owned()).collect(),
            key,
            bytes,
        };
        hand_over(route, envelope).await
    }
}

/// Makes one attempt. An unknown outcome counts as sent: a person who asks is better than a person who is asked twice.
async fn hand_over(route: &OutboundRoute, envelope: FrozenEnvelope) -> Result<(), String> {
    let timeout = Duration::from_millis(route.capability().timeout_ms.max(1) as u64);
    let prepared = tokio::time::timeout(timeout, route.transport.prepare(envelope)).await;
    let prepared = prepared.map_err(|_elapsed| "the transport did not answer in time".to_owned())?;
    let ready = prepared.map_err(|reply| reply.text)?;
    let Ok(reply) = tokio::time::timeout(timeout, ready.hand_over()).await else { return Ok(()) };
    match reply.meaning {
        ReplyMeaning::Deferred | ReplyMeaning::Refused | ReplyMeaning::Fault | ReplyMeaning::Concurrent => {
            Err(reply.text)
        }
        ReplyMeaning::Accepted | ReplyMeaning::Repeated | ReplyMeaning::Mismatch | ReplyMeaning::Unknown => Ok(()),
    }
}
