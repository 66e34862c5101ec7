//! Mail by hooks: what a proven request brings is kept for whom it is for. The answer comes after the commit.

use mailonce_core::{
    delivery::{Form, Intake, Received as Arrived},
    limits,
    port::{collect::Notice, store::StoreError},
    problem::{Code, Problem},
};
use mailonce_mail::hook::{self, Bytes, HookRequest, Kind, Mail};

use crate::{
    Engine,
    hook::Received,
    receive::{Incoming, Place},
    sources::{LiveSource, Teller},
    unavailable,
};

impl Engine {
    /// The mail in a request, if its source may bring any and this is one.
    pub(crate) fn mail_in(&self, source: &LiveSource, request: &HookRequest<'_>) -> Result<Option<Mail>, Problem> {
        if !source.takes.inbound {
            return Ok(None);
        }
        hook::mail(source.kind, request).map_err(|why| {
            tracing::warn!(source = %source.id, kind = source.kind.word(), %why, "a provider's mail cannot be read");
            self.metrics.reported(source.kind.word(), "unreadable");
            // A provider drops for good what gets a 4xx, and a mail that we do not understand today must not be lost.
            // Whoever writes our own format learns at once what is wrong with it.
            let code = if source.kind == Kind::Standard { Code::InvalidJson } else { Code::Unavailable };
            Problem::new(code, why.to_string())
        })
    }

    /// Keeps a mail. What came before, or is for nobody here, is an answer and not a fault.
    pub(crate) async fn keep_mail(&self, source: Teller, mail: Mail) -> Result<Received, Problem> {
        self.tell_mail(source, mail, Intake::Hook).await.map_err(unavailable)
    }

    /// The same, whichever way a source told of it.
    pub(crate) async fn tell_mail(&self, source: Teller, mail: Mail, intake: Intake) -> Result<Received, StoreError> {
        let recipients = self.recipients_of(source, &mail).await?;
        let (form, raw) = kept_as(mail.content, mail.notice.as_ref())?;
        let mut received = Received::default();
        for recipients in recipients.chunks(limits::ENVELOPE_RECIPIENTS) {
            let incoming = Incoming {
                intake,
                source: Some((source.team, source.id)),
                name: Some(mail.name.clone()),
                ip: None,
                helo: None,
                sender: mail.sender.clone(),
                recipients: recipients.to_vec(),
                form,
                raw: raw.clone(),
            };
            let arrived = self.take_mail(incoming).await?;
            for one in arrived {
                let (count, word) = match one {
                    Arrived::Kept(_) => (&mut received.kept, "kept"),
                    Arrived::Duplicate { .. } => (&mut received.duplicate, "duplicate"),
                    Arrived::Refused(_) => (&mut received.refused, "refused"),
                };
                *count += 1;
                self.metrics.reported(source.kind.word(), word);
            }
        }
        Ok(received)
    }

    /// Whom a mail is for. Where the envelope is not told, those of whom the mail names that are here; when nobody is,
    /// the first, so that there is a row which says so.
    async fn recipients_of(&self, source: Teller, mail: &Mail) -> Result<Vec<String>, StoreError> {
        if mail.envelope {
            return Ok(mail.recipients.clone());
        }
        let mut here = Vec::new();
        for recipient in &mail.recipients {
            let place = self.place_of(mail.sender.as_deref(), recipient).await?;
            let own = match &place {
                Place::Inbox(inbox) | Place::Expired(inbox) | Place::Blocked(inbox) => inbox.team == source.team,
                Place::Return(team, _) => *team == source.team,
                Place::Unknown | Place::Elsewhere => false,
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
fn kept_as(content: Option<Bytes>, notice: Option<&Notice>) -> Result<(Form, Vec<u8>), StoreError> {
    match (content, notice) {
        (Some(Bytes { raw, rebuilt: false }), _) => Ok((Form::Mime, raw)),
        (Some(Bytes { raw, rebuilt: true }), _) => Ok((Form::Rebuilt, raw)),
        (None, notice) => {
            let json = serde_json::to_vec(&notice.cloned().unwrap_or_default());
            json.map(|json| (Form::Notice, json)).map_err(|error| StoreError::Unreachable(error.to_string()))
        }
    }
}
