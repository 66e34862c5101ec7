//! Links to bytes that open without a credential, for a while. They are signed, so that nobody else makes one.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::{
    id::{EmailId, MessageId, TeamId},
    problem::{Code, Problem},
    record::RecordKind,
    team::Scope,
    time::Time,
};
pub use mailonce_mail::compose::kind_of;
use mailonce_mail::parse;
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

use crate::{Caller, Engine, change, messages::AttachmentBytes, unavailable};

/// How long a link opens, in milliseconds.
pub const LINK_MS: i64 = 3_600_000;

/// What a link leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linked {
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

impl Linked {
    fn words(self) -> String {
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

fn no_such_link() -> Problem {
    Problem::new(Code::NotFound, "this link leads nowhere, or no longer")
}

impl Engine {
    /// A token that opens something of the caller's, and until when. Bytes as they travelled need `secrets`.
    pub fn link(&self, caller: &Caller, linked: Linked) -> Result<(String, Time), Problem> {
        caller.need(if matches!(linked, Linked::Raw(_) | Linked::SentRaw(_)) {
            Scope::Secrets
        } else {
            Scope::Read
        })?;
        let ends_at = self.now().plus(LINK_MS);
        let words = format!("{}.{}.{}", linked.words(), caller.team.id, ends_at.0);
        let mac = crate::hex(&self.secret.mac("link", &[words.as_bytes()]));
        Ok((format!("{words}.{mac}"), ends_at))
    }

    /// What a token leads to.
    pub async fn open_link(&self, token: &str) -> Result<AttachmentBytes, Problem> {
        let (words, mac) = token.rsplit_once('.').ok_or_else(no_such_link)?;
        let own = crate::hex(&self.secret.mac("link", &[words.as_bytes()]));
        if !bool::from(own.as_bytes().ct_eq(mac.as_bytes())) {
            return Err(no_such_link());
        }
        let (linked, team, ends_at) = read(words).ok_or_else(no_such_link)?;
        if ends_at <= self.time.later() {
            return Err(no_such_link());
        }
        match linked {
            Linked::Raw(id) => self.linked_message(team, id, None).await,
            Linked::File(id, number) => self.linked_message(team, id, Some(number)).await,
            Linked::SentFile(id, number) => self.linked_email(team, id, number).await,
            Linked::SentRaw(id) => self.linked_letter(team, id).await,
            Linked::DraftFile(id, number) => self.linked_draft(team, id, number).await,
        }
    }

    async fn linked_message(
        &self,
        team: TeamId,
        id: MessageId,
        number: Option<usize>,
    ) -> Result<AttachmentBytes, Problem> {
        let message = self.store.message(team, id).await.map_err(unavailable)?.ok_or_else(no_such_link)?;
        let raw = self.bytes_of(&message).await?.ok_or_else(no_such_link)?;
        let Some(number) = number else {
            let (filename, content_type) = (Some("message.eml".to_owned()), "message/rfc822".to_owned());
            return Ok(AttachmentBytes { filename, content_type, bytes: raw });
        };
        let parsed = parse::parse(&raw);
        let file = parsed.attachments.get(number).ok_or_else(no_such_link)?;
        let (filename, content_type) = (file.filename.clone(), file.content_type.clone());
        Ok(AttachmentBytes { filename, content_type, bytes: file.bytes(&raw) })
    }

    async fn linked_email(&self, team: TeamId, id: EmailId, number: usize) -> Result<AttachmentBytes, Problem> {
        let detail =
            self.store.email_detail(team, id).await.map_err(unavailable)?.ok_or_else(|| change::missing(id))?;
        let content = detail.body.as_deref().and_then(|body| self.bodies.unpack(body)).ok_or_else(no_such_link)?;
        let file = content.attachments.into_iter().nth(number).ok_or_else(no_such_link)?;
        let content_type = kind_of(file.content_type.as_deref(), file.filename.as_deref());
        Ok(AttachmentBytes { filename: file.filename, content_type, bytes: file.bytes })
    }
}

impl Engine {
    async fn linked_letter(&self, team: TeamId, id: EmailId) -> Result<AttachmentBytes, Problem> {
        let detail =
            self.store.email_detail(team, id).await.map_err(unavailable)?.ok_or_else(|| change::missing(id))?;
        let mut content = detail.body.as_deref().and_then(|body| self.bodies.unpack(body)).ok_or_else(no_such_link)?;
        let bytes = self.composed(&detail.email, &mut content, detail.email.head.created_at);
        let bytes = bytes.map_err(|error| Problem::new(Code::Internal, format!("cannot be composed: {error}")))?;
        let (filename, content_type) = (Some("message.eml".to_owned()), "message/rfc822".to_owned());
        Ok(AttachmentBytes { filename, content_type, bytes })
    }

    async fn linked_draft(&self, team: TeamId, id: Uuid, number: usize) -> Result<AttachmentBytes, Problem> {
        let record = self.store.record(team, RecordKind::Draft, id).await.map_err(unavailable)?;
        let about = self.draft_view(&record.ok_or_else(no_such_link)?)?.about;
        let file = about.files.into_iter().nth(number).ok_or_else(no_such_link)?;
        let bytes = STANDARD.decode(file.content).map_err(|_not_base64| no_such_link())?;
        let content_type = kind_of(file.content_type.as_deref(), file.filename.as_deref());
        Ok(AttachmentBytes { filename: file.filename, content_type, bytes })
    }
}

/// The parts of a token, without its signature.
fn read(words: &str) -> Option<(Linked, TeamId, Time)> {
    let parts: Vec<&str> = words.split('.').collect();
    let [kind, id, number, team, ends] = parts.as_slice() else { return None };
    Some((Linked::parse(kind, id, number)?, team.parse().ok()?, Time(ends.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_say_what_they_were_made_for() {
        let id = Uuid::from_u128(7);
        let team = TeamId(Uuid::from_u128(8));
        for linked in [Linked::Raw(MessageId(id)), Linked::File(MessageId(id), 3), Linked::SentFile(EmailId(id), 0)] {
            let words = format!("{}.{team}.99", linked.words());
            assert_eq!(read(&words), Some((linked, team, Time(99))));
        }
        for bad in ["", "raw", "raw.x.0.y.1", "what.a.0.b.1"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
