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
    conversation::{Notifications, notification_attempts::DueNotice, notification_targets::describe},
    handoff::transport_selector::{LOCAL_TRANSPORT, OutboundRoute},
    runtime::hex::hex,
};

/// How long a transport may prepare an attempt, in milliseconds. Nothing has been sent until then.
const PREPARE_LIMIT_MS: i64 = 120_000;

/// How long preparing and handing over may take with a transport, in milliseconds.
fn attempt_timeouts_ms(route: &OutboundRoute) -> (i64, i64) {
    let timeout_ms = route.capability().timeout_ms.max(1);
    (timeout_ms.min(PREPARE_LIMIT_MS), timeout_ms)
}

/// How long an attempt with a transport can take, in milliseconds.
pub(super) fn attempt_limit_ms(route: &OutboundRoute) -> i64 {
    let (prepare, hand_over) = attempt_timeouts_ms(route);
    prepare.saturating_add(hand_over)
}

impl Notifications {
    /// Sends one email about these questions to a person.
    pub(super) async fn email_questions(
        &self,
        team: TeamId,
        person: &PersonView,
        from: &str,
        (route, notices): (&OutboundRoute, &[DueNotice]),
    ) -> Result<(), String> {
        let (content, _) = self.email_of_questions(team, person, from, notices).await?;
        self.send_unrecorded(team, route, &content, notices).await
    }

    /// The email about these questions, and the transport that leads to the person. Fails when none can be sent.
    pub(super) async fn email_of_questions(
        &self,
        team: TeamId,
        person: &PersonView,
        from: &str,
        notices: &[DueNotice],
    ) -> Result<(EmailContent, Arc<OutboundRoute>), String> {
        let address = person.person.address.clone().ok_or("the person has no address")?;
        let subject = match notices {
            [one] => format!("{} {}", one.view.escalation.reason.question(), describe(&one.view)),
            _ => format!("{} questions wait for your decision", notices.len()),
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
        self.access.domains.check_sender(team, sender.as_str()).await.map_err(|problem| problem.detail)?;
        // An inbox may have been created there since the setting was made.
        self.access.check_approval_sender(&sender).await.map_err(|problem| problem.detail)?;
        let name = self.ctx.transports.select(&content, Channel::Http, self.ctx.entropy.next_u64());
        let route = self.ctx.transports.get(name).filter(|_| name != LOCAL_TRANSPORT);
        let route = route.ok_or("no transport leads to people: only the sandbox is configured")?;
        Ok((content, Arc::clone(route)))
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

    /// From what the key and the Message-ID of an email are made. It is the same for every attempt, so that a provider
    /// that knows the first one does not send a second. With another question, sender or recipient it is another email.
    fn email_mac(&self, content: &EmailContent, notices: &[DueNotice]) -> [u8; 32] {
        let addresses = [content.from.to_address().as_str().to_owned(), content.recipients().join(",")];
        let mut parts: Vec<&[u8]> = addresses.iter().map(String::as_bytes).collect();
        // A question that was asked again has a new deadline.
        let deadlines: Vec<[u8; 8]> = notices.iter().map(|notice| notice.link.expires_at.0.to_be_bytes()).collect();
        parts.extend(notices.iter().map(|notice| notice.record.id.as_bytes().as_slice()));
        parts.extend(deadlines.iter().map(<[u8; 8]>::as_slice));
        self.ctx.secret.mac("approval-email", &parts)
    }

    /// Hands an email to a transport without storing it.
    async fn send_unrecorded(
        &self,
        team: TeamId,
        route: &OutboundRoute,
        content: &EmailContent,
        notices: &[DueNotice],
    ) -> Result<(), String> {
        let first = notices.first().ok_or("there is no question")?;
        let (id, now) = (EmailId(first.record.id), self.ctx.now());
        let from = content.from.to_address();
        let attempt = first.attempts().max(1);
        let mac = self.email_mac(content, notices);
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
                let signed = self.access.domains.sign_mail((team, from.as_str()), plain, now).await;
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
            // Not null, which some relays refuse. No inbox has this address, so no agent reads a bounce or a reply.
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
    let (prepare_ms, hand_over_ms) = attempt_timeouts_ms(route);
    let (prepare_timeout, timeout) =
        (Duration::from_millis(prepare_ms as u64), Duration::from_millis(hand_over_ms as u64));
    let prepared = tokio::time::timeout(prepare_timeout, route.transport.prepare(envelope)).await;
    let prepared = prepared.map_err(|_elapsed| "the transport did not answer in time".to_owned())?;
    let ready = prepared.map_err(|reply| reply.text)?;
    let Ok(reply) = tokio::time::timeout(timeout, ready.hand_over()).await else { return Ok(()) };
    match reply.meaning {
        ReplyMeaning::Deferred
        | ReplyMeaning::Refused
        | ReplyMeaning::Fault
        | ReplyMeaning::Concurrent
        | ReplyMeaning::Mismatch => Err(reply.text),
        ReplyMeaning::Accepted | ReplyMeaning::Repeated | ReplyMeaning::Unknown => Ok(()),
    }
}
