//! Mail by webhook: stores the mail of a verified request for its local recipients. The response follows the commit.

use crate::{
    access::sources::{LiveSource, SourceRef},
    inbound::{
        Inbound,
        hooks::ProviderHookSummary,
        receive::{IntakeMail, RecipientRoute},
    },
    runtime::problems::unavailable,
};
use mailonce_core::{
    inbound::{
        delivery::{DeliveryFormat, Intake, ReceiveResult as Arrived},
        provider_mail::ProviderMailRef,
    },
    limits,
    ports::store::StoreError,
    problem::{Code, Problem},
};
use mailonce_mail::hooks::{self, HookMail, HookRequest, Kind, MailBytes};

impl Inbound {
    /// The mail in a request. `None` when the source doesn't receive mail or the request carries none.
    pub(crate) fn parse_hook_mail(
        &self,
        source: &LiveSource,
        request: &HookRequest<'_>,
    ) -> Result<Option<HookMail>, Problem> {
        if !source.scope.inbound {
            return Ok(None);
        }
        hooks::parse_mail(source.kind, request).map_err(|why| {
            tracing::warn!(source = %source.id, kind = source.kind.as_str(), %why, "a webhook's mail cannot be parsed");
            self.ctx.metrics.record_provider_event(source.kind.as_str(), "unreadable");
            // A provider drops a mail that gets a 4xx. So a mail that we cannot parse gets a 503 and is retried.
            // A caller that uses our own format gets the error at once.
            let code = if source.kind == Kind::Standard { Code::InvalidJson } else { Code::Unavailable };
            Problem::new(code, why.to_string())
        })
    }

    /// Stores a mail from a webhook. Duplicates and unknown recipients are results, not errors.
    pub(crate) async fn store_hook_mail(
        &self,
        source: SourceRef,
        mail: HookMail,
    ) -> Result<ProviderHookSummary, Problem> {
        self.ingest_mail(source, mail, Intake::Hook).await.map_err(unavailable)
    }

    /// Stores a mail from a webhook or a poll, and counts the results.
    pub(crate) async fn ingest_mail(
        &self,
        source: SourceRef,
        mail: HookMail,
        intake: Intake,
    ) -> Result<ProviderHookSummary, StoreError> {
        let recipients = self.local_recipients(source, &mail).await?;
        let (form, raw) = stored_form(mail.content, mail.location.as_ref())?;
        let mut summary = ProviderHookSummary::default();
        for recipients in recipients.chunks(limits::INBOUND_RECIPIENTS) {
            let incoming = IntakeMail {
                intake,
                source: Some((source.team, source.id)),
                provider_delivery_id: Some(mail.dedupe_key.clone()),
                ip: None,
                helo: None,
                sender: mail.envelope_sender.clone(),
                recipients: recipients.to_vec(),
                form,
                raw: raw.clone(),
            };
            let arrived = self.receive_mail(incoming).await?;
            for result in arrived {
                let (count, outcome) = match result {
                    Arrived::Stored(_) => (&mut summary.accepted, "accepted"),
                    Arrived::Duplicate { .. } => (&mut summary.duplicate, "duplicate"),
                    Arrived::Refused(_) => (&mut summary.refused, "refused"),
                };
                *count += 1;
                self.ctx.metrics.record_provider_event(source.kind.as_str(), outcome);
            }
        }
        Ok(summary)
    }

    /// The recipients of a mail. Without envelope recipients, those header recipients that belong to the source's team.
    /// When none does, the first recipient, so that a refused delivery records the mail.
    async fn local_recipients(&self, source: SourceRef, mail: &HookMail) -> Result<Vec<String>, StoreError> {
        if mail.has_envelope_recipients {
            return Ok(mail.recipients.clone());
        }
        let mut local = Vec::new();
        for recipient in &mail.recipients {
            let route = self.route_recipient(mail.envelope_sender.as_deref(), recipient).await?;
            let is_own = match &route {
                RecipientRoute::Inbox(inbox) | RecipientRoute::Expired(inbox) | RecipientRoute::Blocked(inbox) => {
                    inbox.team == source.team
                }
                RecipientRoute::ReturnPath(team, _) => *team == source.team,
                RecipientRoute::UnknownInbox | RecipientRoute::NotLocal => false,
            };
            if is_own {
                local.push(recipient.clone());
            }
        }
        if local.is_empty() {
            local.extend(mail.recipients.first().cloned());
        }
        Ok(local)
    }
}

/// What is stored for a mail: its bytes, or the reference by which to fetch it.
fn stored_form(
    content: Option<MailBytes>,
    notice: Option<&ProviderMailRef>,
) -> Result<(DeliveryFormat, Vec<u8>), StoreError> {
    match (content, notice) {
        (Some(MailBytes { raw, is_rebuilt: false }), _) => Ok((DeliveryFormat::Mime, raw)),
        (Some(MailBytes { raw, is_rebuilt: true }), _) => Ok((DeliveryFormat::Rebuilt, raw)),
        (None, notice) => {
            let json = serde_json::to_vec(&notice.cloned().unwrap_or_default());
            json.map(|json| (DeliveryFormat::Notice, json)).map_err(|error| StoreError::Unreachable(error.to_string()))
        }
    }
}
