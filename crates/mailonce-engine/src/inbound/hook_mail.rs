//! Mail by hooks: what a proven request brings is kept for whom it is for. The answer comes after the commit.

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
    /// The mail in a request, if its source may bring any and this is one.
    pub(crate) fn parse_hook_mail(
        &self,
        source: &LiveSource,
        request: &HookRequest<'_>,
    ) -> Result<Option<HookMail>, Problem> {
        if !source.scope.inbound {
            return Ok(None);
        }
        hooks::parse_mail(source.kind, request).map_err(|why| {
            tracing::warn!(source = %source.id, kind = source.kind.as_str(), %why, "a provider's mail cannot be read");
            self.ctx.metrics.record_provider_event(source.kind.as_str(), "unreadable");
            // A provider drops for good what gets a 4xx, and a mail that we do not understand today must not be lost.
            // Whoever writes our own format learns at once what is wrong with it.
            let code = if source.kind == Kind::Standard { Code::InvalidJson } else { Code::Unavailable };
            Problem::new(code, why.to_string())
        })
    }

    /// Keeps a mail. What came before, or is for nobody here, is an answer and not a fault.
    pub(crate) async fn store_hook_mail(
        &self,
        source: SourceRef,
        mail: HookMail,
    ) -> Result<ProviderHookSummary, Problem> {
        self.ingest_mail(source, mail, Intake::Hook).await.map_err(unavailable)
    }

    /// The same, whichever way a source told of it.
    pub(crate) async fn ingest_mail(
        &self,
        source: SourceRef,
        mail: HookMail,
        intake: Intake,
    ) -> Result<ProviderHookSummary, StoreError> {
        let recipients = self.local_recipients(source, &mail).await?;
        let (form, raw) = stored_form(mail.content, mail.location.as_ref())?;
        let mut received = ProviderHookSummary::default();
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
            for one in arrived {
                let (count, word) = match one {
                    Arrived::Stored(_) => (&mut received.accepted, "kept"),
                    Arrived::Duplicate { .. } => (&mut received.duplicate, "duplicate"),
                    Arrived::Refused(_) => (&mut received.refused, "refused"),
                };
                *count += 1;
                self.ctx.metrics.record_provider_event(source.kind.as_str(), word);
            }
        }
        Ok(received)
    }

    /// Whom a mail is for. Where the envelope is not told, those of whom the mail names that are here; when nobody is,
    /// the first, so that there is a row which says so.
    async fn local_recipients(&self, source: SourceRef, mail: &HookMail) -> Result<Vec<String>, StoreError> {
        if mail.has_envelope_recipients {
            return Ok(mail.recipients.clone());
        }
        let mut here = Vec::new();
        for recipient in &mail.recipients {
            let place = self.route_recipient(mail.envelope_sender.as_deref(), recipient).await?;
            let own = match &place {
                RecipientRoute::Inbox(inbox) | RecipientRoute::Expired(inbox) | RecipientRoute::Blocked(inbox) => {
                    inbox.team == source.team
                }
                RecipientRoute::ReturnPath(team, _) => *team == source.team,
                RecipientRoute::UnknownInbox | RecipientRoute::NotLocal => false,
            };
            if own {
                here.push(recipient.clone());
            }
        }
        if here.is_empty() {
            here.extend(mail.recipients.first().cloned());
        }
        Ok(here)
    }
}

/// What is kept of a mail: its bytes, else where it is.
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
