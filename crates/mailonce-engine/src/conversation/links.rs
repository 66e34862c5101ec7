//! Links to bytes that open without a credential, for a while. They are signed, so that nobody else makes one.

use crate::{
    access::caller::Caller,
    conversation::Conversations,
    inbox::messages::AttachmentBytes,
    runtime::problems::{self, unavailable},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::{EmailId, MessageId, TeamId},
    problem::{Code, Problem},
    record::RecordKind,
    time::Time,
};
pub use mailonce_mail::compose::attachment_media_type;
use mailonce_mail::parse;
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

/// How long a link opens, in milliseconds.
pub const LINK_TTL_MS: i64 = 3_600_000;

/// What a link leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkTarget {
    /// A message as it travelled.
    Raw(MessageId),
    /// A file of a message.
    File(MessageId, usize),
    /// A file of an email that was sent.
    SentFile(EmailId, usize),
    /// An email as it is composed, before anybody signs it.
    SentRaw(EmailId),
    /// A file of a draft.
    DraftFile(Uuid, usize),
}

impl LinkTarget {
    fn token_prefix(self) -> String {
        match self {
            Self::Raw(id) => format!("raw.{id}.0"),
            Self::File(id, number) => format!("file.{id}.{number}"),
            Self::SentFile(id, number) => format!("sent.{id}.{number}"),
            Self::SentRaw(id) => format!("email.{id}.0"),
            Self::DraftFile(id, number) => format!("draft.{id}.{number}"),
        }
    }

    fn parse(kind: &str, id: &str, number: &str) -> Option<Self> {
        let number: usize = number.parse().ok()?;
        match kind {
            "raw" => Some(Self::Raw(id.parse().ok()?)),
            "file" => Some(Self::File(id.parse().ok()?, number)),
            "sent" => Some(Self::SentFile(id.parse().ok()?, number)),
            "email" => Some(Self::SentRaw(id.parse().ok()?)),
            "draft" => Some(Self::DraftFile(id.parse().ok()?, number)),
            _ => None,
        }
    }
}

fn link_not_found() -> Problem {
    Problem::new(Code::NotFound, "this link leads nowhere, or no longer")
}

impl Conversations {
    /// A token that opens something of the caller's, and until when. Bytes as they travelled need `secrets`.
    pub fn create_link(&self, caller: &Caller, linked: LinkTarget) -> Result<(String, Time), Problem> {
        caller.require_scope(if matches!(linked, LinkTarget::Raw(_) | LinkTarget::SentRaw(_)) {
            ApiKeyScope::Secrets
        } else {
            ApiKeyScope::Read
        })?;
        let ends_at = self.ctx.now().plus(LINK_TTL_MS);
        let words = format!("{}.{}.{}", linked.token_prefix(), caller.team.id, ends_at.0);
        let mac = crate::runtime::hex::hex(&self.ctx.secret.mac("link", &[words.as_bytes()]));
        Ok((format!("{words}.{mac}"), ends_at))
    }

    /// What a token leads to.
    pub async fn open_link(&self, token: &str) -> Result<AttachmentBytes, Problem> {
        let (words, mac) = token.rsplit_once('.').ok_or_else(link_not_found)?;
        let own = crate::runtime::hex::hex(&self.ctx.secret.mac("link", &[words.as_bytes()]));
        if !bool::from(own.as_bytes().ct_eq(mac.as_bytes())) {
            return Err(link_not_found());
        }
        let (linked, team, ends_at) = parse_token(words).ok_or_else(link_not_found)?;
        if ends_at <= self.ctx.time.later_time() {
            return Err(link_not_found());
        }
        match linked {
            LinkTarget::Raw(id) => self.read_linked_message(team, id, None).await,
            LinkTarget::File(id, number) => self.read_linked_message(team, id, Some(number)).await,
            LinkTarget::SentFile(id, number) => self.read_linked_attachment(team, id, number).await,
            LinkTarget::SentRaw(id) => self.read_linked_raw_email(team, id).await,
            LinkTarget::DraftFile(id, number) => self.read_linked_draft_file(team, id, number).await,
        }
    }

    async fn read_linked_message(
        &self,
        team: TeamId,
        id: MessageId,
        number: Option<usize>,
    ) -> Result<AttachmentBytes, Problem> {
        let message = self.ctx.store.message(team, id).await.map_err(unavailable)?.ok_or_else(link_not_found)?;
        let raw = self.inboxes.raw_bytes(&message).await?.ok_or_else(link_not_found)?;
        let Some(number) = number else {
            let (filename, content_type) = (Some("message.eml".to_owned()), "message/rfc822".to_owned());
            return Ok(AttachmentBytes { filename, content_type, bytes: raw });
        };
        let parsed = parse::parse(&raw);
        let file = parsed.attachments.get(number).ok_or_else(link_not_found)?;
        let (filename, content_type) = (file.filename.clone(), file.content_type.clone());
        Ok(AttachmentBytes { filename, content_type, bytes: file.decode(&raw) })
    }

    async fn read_linked_attachment(
        &self,
        team: TeamId,
        id: EmailId,
        number: usize,
    ) -> Result<AttachmentBytes, Problem> {
        let detail = self
            .ctx
            .store
            .email_detail(team, id)
            .await
            .map_err(unavailable)?
            .ok_or_else(|| problems::email_not_found(id))?;
        let content =
            detail.body.as_deref().and_then(|body| self.ctx.packer.unpack(body)).ok_or_else(link_not_found)?;
        let file = content.attachments.into_iter().nth(number).ok_or_else(link_not_found)?;
        let content_type = attachment_media_type(file.content_type.as_deref(), file.filename.as_deref());
        Ok(AttachmentBytes { filename: file.filename, content_type, bytes: file.bytes })
    }
}

impl Conversations {
    async fn read_linked_raw_email(&self, team: TeamId, id: EmailId) -> Result<AttachmentBytes, Problem> {
        let detail = self
            .ctx
            .store
            .email_detail(team, id)
            .await
            .map_err(unavailable)?
            .ok_or_else(|| problems::email_not_found(id))?;
        let mut content =
            detail.body.as_deref().and_then(|body| self.ctx.packer.unpack(body)).ok_or_else(link_not_found)?;
        let bytes = self.handoffs.compose_mime(&detail.email, &mut content, detail.email.head.created_at);
        let bytes = bytes.map_err(|error| Problem::new(Code::Internal, format!("cannot be composed: {error}")))?;
        let (filename, content_type) = (Some("message.eml".to_owned()), "message/rfc822".to_owned());
        Ok(AttachmentBytes { filename, content_type, bytes })
    }

    async fn read_linked_draft_file(&self, team: TeamId, id: Uuid, number: usize) -> Result<AttachmentBytes, Problem> {
        let record = self.ctx.store.record(team, RecordKind::Draft, id).await.map_err(unavailable)?;
        let about = self.drafts.unpack_draft(&record.ok_or_else(link_not_found)?)?.details;
        let file = about.files.into_iter().nth(number).ok_or_else(link_not_found)?;
        let bytes = STANDARD.decode(file.content).map_err(|_not_base64| link_not_found())?;
        let content_type = attachment_media_type(file.content_type.as_deref(), file.filename.as_deref());
        Ok(AttachmentBytes { filename: file.filename, content_type, bytes })
    }
}

/// The parts of a token, without its signature.
fn parse_token(words: &str) -> Option<(LinkTarget, TeamId, Time)> {
    let parts: Vec<&str> = words.split('.').collect();
    let [kind, id, number, team, ends] = parts.as_slice() else { return None };
    Some((LinkTarget::parse(kind, id, number)?, team.parse().ok()?, Time(ends.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_say_what_they_were_made_for() {
        let id = Uuid::from_u128(7);
        let team = TeamId(Uuid::from_u128(8));
        for linked in
            [LinkTarget::Raw(MessageId(id)), LinkTarget::File(MessageId(id), 3), LinkTarget::SentFile(EmailId(id), 0)]
        {
            let words = format!("{}.{team}.99", linked.token_prefix());
            assert_eq!(parse_token(&words), Some((linked, team, Time(99))));
        }
        for bad in ["", "raw", "raw.x.0.y.1", "what.a.0.b.1"] {
            assert_eq!(parse_token(bad), None, "{bad}");
        }
    }
}
