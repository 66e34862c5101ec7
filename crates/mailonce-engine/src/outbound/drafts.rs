//! Drafts: mails that are not to be sent yet. A draft is sent once by its nature: its key follows from what it is.

use mailonce_core::{
    access::team::ApiKeyScope,
    id::{EmailId, InboxId},
    key::Key,
    limits,
    ports::store::IdempotentResult,
    problem::{Code, FieldError, Problem},
    record::{CreateRecordResult, Record, RecordChangeResult, RecordEdit, RecordKind},
    time::Time,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use uuid::Uuid;

use crate::{
    Caller, Engine, KeyedCall, operation,
    outbound::email_commands::key_mismatch,
    runtime::records::{self, CreateOutcome, CursorPage},
    unavailable,
};

/// A file of a draft.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraftFile {
    /// Its id in the draft.
    pub id: String,
    /// File name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// Base64.
    pub content: String,
    /// MIME type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// For inline images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_id: Option<String>,
}

/// What a draft says. It may lack anything that a mail needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraftDetails {
    /// The inbox it is to be sent from.
    pub inbox: InboxId,
    /// Makes its creation repeatable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Recipients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// Copies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cc: Vec<String>,
    /// Hidden copies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bcc: Vec<String>,
    /// Where answers go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reply_to: Vec<String>,
    /// Subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// HTML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// Files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<DraftFile>,
    /// The message it answers, as its writer named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<String>,
    /// The message it passes on, as its writer named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_of: Option<String>,
    /// Whether everybody who got the message gets the answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reply_all: bool,
    /// When it is to be sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_at: Option<Time>,
    /// When it last changed.
    pub updated_at: Time,
    /// How often it was taken back after it was scheduled: each time it needs another key.
    #[serde(default)]
    pub turn: u32,
    /// The email that it became or is to become.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<EmailId>,
    /// Whether it was sent for good: it is a draft no more and says what it said.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sent: bool,
    /// The email of the turn before: it must be known not to go before anything else is made of the draft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owed: Option<EmailId>,
    /// Whether it was removed: nothing is made of it any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
}

/// A draft as its team sees it.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Its id.
    pub id: Uuid,
    /// Its rev.
    pub rev: u32,
    /// When it was made.
    pub created_at: Time,
    /// What it says.
    pub details: DraftDetails,
}

impl DraftDetails {
    /// An empty one.
    pub fn empty(inbox: InboxId, now: Time) -> Self {
        Self {
            inbox,
            client_id: None,
            labels: Vec::new(),
            to: Vec::new(),
            cc: Vec::new(),
            bcc: Vec::new(),
            reply_to: Vec::new(),
            subject: None,
            text: None,
            html: None,
            files: Vec::new(),
            in_reply_to: None,
            forward_of: None,
            reply_all: false,
            send_at: None,
            updated_at: now,
            turn: 0,
            email: None,
            sent: false,
            owed: None,
            removed: false,
        }
    }

    fn check(&self) -> Result<(), Problem> {
        let fault = |path: &str, text: String| Err(Problem::from(vec![FieldError::new(path, text)]));
        if self.files.len() > limits::ATTACHMENTS {
            return fault("attachments", format!("has more than {} files", limits::ATTACHMENTS));
        }
        let octets: usize = self.files.iter().map(|file| file.content.len() / 4 * 3).sum();
        if octets > limits::ATTACHMENT_BYTES {
            return fault("attachments", format!("has more than {} octets", limits::ATTACHMENT_BYTES));
        }
        let people = self.to.len() + self.cc.len() + self.bcc.len();
        if people > limits::RECIPIENTS {
            return fault("to", format!("names {people} recipients with cc and bcc; {} fit", limits::RECIPIENTS));
        }
        if self.labels.len() > limits::MESSAGE_LABELS {
            return fault("labels", format!("has more than {} labels", limits::MESSAGE_LABELS));
        }
        Ok(())
    }
}

pub(crate) fn draft_not_found(id: impl std::fmt::Display) -> Problem {
    Problem::new(Code::NotFound, format!("there is no draft {id}"))
}

impl Engine {
    /// A draft as its team sees it.
    pub(crate) fn unpack_draft(&self, record: &Record) -> Result<Draft, Problem> {
        let about = self.packer.unpack_text(&record.json).map(Cow::into_owned);
        let about = about.ok_or_else(|| Problem::new(Code::Internal, "the draft cannot be opened"))?;
        let about = records::decode(&Record { json: about, ..record.clone() })?;
        Ok(Draft { id: record.id, rev: record.rev, created_at: record.created_at, details: about })
    }

    /// What the record of a draft is to say.
    pub(crate) fn pack_draft(&self, about: &DraftDetails) -> Result<String, Problem> {
        Ok(self.packer.pack_text(records::encode(about)?))
    }

    /// Makes a draft. With the same `client_id` the same one again.
    pub async fn create_draft(&self, caller: &Caller, about: &DraftDetails) -> Result<CreateOutcome<Draft>, Problem> {
        caller.require_scope(ApiKeyScope::Send)?;
        about.check()?;
        self.inbox(caller, about.inbox).await?;
        let (now, kind) = (self.now(), RecordKind::Draft);
        let id = self.new_id(now);
        let name = about.client_id.as_ref().map_or_else(|| id.to_string(), |client_id| format!("client {client_id}"));
        let about = self.pack_draft(about)?;
        let record = Record { team: caller.team.id, kind, id, name, rev: 1, created_at: now, json: about };
        match self.store.create_record(record, None).await.map_err(unavailable)? {
            IdempotentResult::Done(CreateRecordResult::Created(record)) => {
                Ok(CreateOutcome { value: self.unpack_draft(&record)?, is_new: true })
            }
            IdempotentResult::Done(CreateRecordResult::NameTaken(record)) => {
                Ok(CreateOutcome { value: self.unpack_draft(&record)?, is_new: false })
            }
            // No key was given.
            IdempotentResult::Replayed(_) | IdempotentResult::KeyMismatch(_) => Err(draft_not_found(id)),
        }
    }

    /// One draft of an inbox that the caller may use, sent or not.
    pub async fn draft(&self, caller: &Caller, id: Uuid) -> Result<Draft, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        let draft = self.unpack_draft(&self.team_record(caller, RecordKind::Draft, id).await?)?;
        self.inbox(caller, draft.details.inbox).await.map_err(|_not_theirs| draft_not_found(id))?;
        Ok(draft)
    }

    /// Drafts of the caller's team, newest first, sent ones too.
    pub async fn drafts(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<CursorPage<Draft>, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        let mut page =
            self.team_records(caller, RecordKind::Draft, before, limit, |record| self.unpack_draft(record)).await?;
        page.rows.retain(|draft| caller.may_access_inboxes(&[draft.details.inbox]));
        Ok(page)
    }

    /// Makes of a draft what it is to say, if it is still as it was seen. The key of a call is bound with it; true when
    /// that was done before.
    pub async fn change_draft(
        &self,
        caller: &Caller,
        seen: &Draft,
        about: &DraftDetails,
        asked: Option<KeyedCall>,
    ) -> Result<(Draft, bool), Problem> {
        caller.require_scope(ApiKeyScope::Send)?;
        about.check()?;
        let (now, team, kind) = (self.now(), caller.team.id, RecordKind::Draft);
        let edit = RecordEdit { team, kind, id: seen.id, rev: seen.rev, json: self.pack_draft(about)? };
        let operation = operation(caller, asked.as_ref(), Vec::new(), now);
        match self.store.change_record(edit, operation, now).await.map_err(unavailable)? {
            IdempotentResult::Done(RecordChangeResult::Changed(record)) => Ok((self.unpack_draft(&record)?, false)),
            IdempotentResult::Done(RecordChangeResult::Stale(record)) => {
                let detail = format!("the draft {} changed meanwhile", seen.id);
                Err(Problem::new(Code::StaleRev, detail).with_extension("rev", record.rev))
            }
            IdempotentResult::Done(RecordChangeResult::Missing) => Err(draft_not_found(seen.id)),
            IdempotentResult::Replayed(_) => Ok((self.draft(caller, seen.id).await?, true)),
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// The key of a wish that follows from something by its nature, such as the sending of a draft. Nobody can say it
    /// who does not have the install secret.
    pub fn derived_key(&self, caller: &Caller, purpose: &str, of: Uuid, turn: u32) -> Result<Key, Problem> {
        let parts: [&[u8]; 4] = [caller.team.id.0.as_bytes(), purpose.as_bytes(), of.as_bytes(), &turn.to_be_bytes()];
        let mac = self.secret.mac("own-key", &parts);
        let text = format!("{purpose}_{of}_{}", crate::hex(&mac[..16]));
        Key::parse(&text).map_err(|error| Problem::new(Code::Internal, error.to_string()))
    }
}
