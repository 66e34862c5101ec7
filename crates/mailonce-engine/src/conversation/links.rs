//! Signed links that download attachments and raw mail without a credential until they expire.

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

/// How long a link is valid, in milliseconds.
pub const LINK_TTL_MS: i64 = 3_600_000;

/// What a link downloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkTarget {
    /// The raw bytes of a received message.
    Raw(MessageId),
    /// An attachment of a received message.
    File(MessageId, usize),
    /// An attachment of a sent email.
    SentFile(EmailId, usize),
    /// The composed MIME bytes of a sent email, without a DKIM signature.
    SentRaw(EmailId),
    /// An attachment of a draft.
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
    Problem::new(Code::NotFound, "this link is invalid or has expired")
}

impl Conversations {
    /// Creates a signed token for a download, and returns it with its expiry. Raw bytes need the scope `secrets`.
    pub fn create_link(&self, caller: &Caller, target: LinkTarget) -> Result<(String, Time), Problem> {
        caller.require_scope(if matches!(target, LinkTarget::Raw(_) | LinkTarget::SentRaw(_)) {
            ApiKeyScope::Secrets
        } else {
            ApiKeyScope::Read
        })?;
        let expires_at = self.ctx.now().plus(LINK_TTL_MS);
        let signed_part = format!("{}.{}.{}", target.token_prefix(), caller.team.id, expires_at.0);
        let mac = crate::runtime::hex::hex(&self.ctx.secret.mac("link", &[signed_part.as_bytes()]));
        Ok((format!("{signed_part}.{mac}"), expires_at))
    }

    /// Verifies a token and reads the bytes that it links to.
    pub async fn open_link(&self, token: &str) -> Result<AttachmentBytes, Problem> {
        let (signed_part, mac) = token.rsplit_once('.').ok_or_else(link_not_found)?;
        let expected_mac = crate::runtime::hex::hex(&self.ctx.secret.mac("link", &[signed_part.as_bytes()]));
        if !bool::from(expected_mac.as_bytes().ct_eq(mac.as_bytes())) {
            return Err(link_not_found());
        }
        let (target, team, expires_at) = parse_token(signed_part).ok_or_else(link_not_found)?;
        if expires_at <= self.ctx.time.later_time() {
            return Err(link_not_found());
        }
        match target {
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
        let bytes =
            bytes.map_err(|error| Problem::new(Code::Internal, format!("the email cannot be composed: {error}")))?;
        let (filename, content_type) = (Some("message.eml".to_owned()), "message/rfc822".to_owned());
        Ok(AttachmentBytes { filename, content_type, bytes })
    }

    async fn read_linked_draft_file(&self, team: TeamId, id: Uuid, number: usize) -> Result<AttachmentBytes, Problem> {
        let record = self.ctx.store.record(team, RecordKind::Draft, id).await.map_err(unavailable)?;
        let details = self.drafts.unpack_draft(&record.ok_or_else(link_not_found)?)?.details;
        let file = details.files.into_iter().nth(number).ok_or_else(link_not_found)?;
        let bytes = STANDARD.decode(file.content).map_err(|_not_base64| link_not_found())?;
        let content_type = attachment_media_type(file.content_type.as_deref(), file.filename.as_deref());
        Ok(AttachmentBytes { filename: file.filename, content_type, bytes })
    }
}

/// Parses the signed part of a token.
fn parse_token(signed_part: &str) -> Option<(LinkTarget, TeamId, Time)> {
    let parts: Vec<&str> = signed_part.split('.').collect();
    let [kind, id, number, team, expires_at] = parts.as_slice() else { return None };
    Some((LinkTarget::parse(kind, id, number)?, team.parse().ok()?, Time(expires_at.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_say_what_they_were_made_for() {
        let id = Uuid::from_u128(7);
        let team = TeamId(Uuid::from_u128(8));
        for target in
            [LinkTarget::Raw(MessageId(id)), LinkTarget::File(MessageId(id), 3), LinkTarget::SentFile(EmailId(id), 0)]
        {
            let signed_part = format!("{}.{team}.99", target.token_prefix());
            assert_eq!(parse_token(&signed_part), Some((target, team, Time(99))));
        }
        for bad in ["", "raw", "raw.x.0.y.1", "what.a.0.b.1"] {
            assert_eq!(parse_token(bad), None, "{bad}");
        }
    }
}
