//! Drafts: emails that are not to be sent yet. The idempotency key of a send is derived from the draft, so that a
//! draft is sent at most once.

use crate::{
    access::caller::Caller,
    outbound::Drafts,
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
        records::{self, CreateOutcome, CursorPage},
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::{EmailId, InboxId},
    limits,
    operation::IdempotentResult,
    outbound::content::RawAttachment,
    problem::{Code, Problem},
    record::{CreateRecordResult, Record, RecordChangeResult, RecordEdit, RecordKind},
    time::Time,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use uuid::Uuid;

/// An attachment of a draft.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraftFile {
    /// The attachment's id within the draft.
    pub id: String,
    /// The file name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// The content in base64.
    pub content: String,
    /// The MIME type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The Content-ID, for inline images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_id: Option<String>,
}

impl From<&DraftFile> for RawAttachment {
    fn from(file: &DraftFile) -> Self {
        Self {
            filename: file.filename.clone(),
            content: file.content.clone(),
            content_type: file.content_type.clone(),
            content_id: file.content_id.clone(),
        }
    }
}

/// The content and state of a draft. Fields that an email requires may be missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraftDetails {
    /// The inbox to send from.
    pub inbox: InboxId,
    /// The caller's own id. Creating a draft with the same id again returns the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The recipients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// The cc recipients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cc: Vec<String>,
    /// The bcc recipients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bcc: Vec<String>,
    /// The Reply-To addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reply_to: Vec<String>,
    /// The subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The HTML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// The attachments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<DraftFile>,
    /// The message that it replies to, as the author named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<String>,
    /// The message that it forwards, as the author named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_of: Option<String>,
    /// Whether to reply to all recipients of the message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reply_all: bool,
    /// When to send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_at: Option<Time>,
    /// When it was last changed.
    pub updated_at: Time,
    /// The number of the send cycle. It grows each time a scheduled draft is unscheduled, because the next send needs
    /// a new key.
    #[serde(default)]
    #[serde(rename = "turn")]
    pub send_cycle: u32,
    /// The email that the draft became or is scheduled to become.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<EmailId>,
    /// Whether it was sent. A sent draft can no longer change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sent: bool,
    /// The email of the previous cycle. Its cancel must be completed before anything else is done with the draft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "owed")]
    pub email_to_cancel: Option<EmailId>,
    /// Whether it was removed. No email is created from a removed draft.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
}

/// A draft.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Its id.
    pub id: Uuid,
    /// Its rev.
    pub rev: u32,
    /// When it was created.
    pub created_at: Time,
    /// Its content and state.
    pub details: DraftDetails,
}

impl DraftDetails {
    /// The attachments of the email that the draft becomes.
    pub fn attachments(&self) -> Vec<RawAttachment> {
        self.files.iter().map(RawAttachment::from).collect()
    }

    /// An empty draft.
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
            send_cycle: 0,
            email: None,
            sent: false,
            email_to_cancel: None,
            removed: false,
        }
    }

    fn check(&self) -> Result<(), Problem> {
        let fault = |path: &str, text: String| Err(Problem::invalid_field(path, text));
        if self.files.len() > limits::ATTACHMENTS {
            return fault("attachments", format!("must have at most {} files", limits::ATTACHMENTS));
        }
        let bytes: usize = self.files.iter().map(|file| file.content.len() / 4 * 3).sum();
        if bytes > limits::ATTACHMENT_BYTES {
            return fault("attachments", format!("must have at most {} bytes in total", limits::ATTACHMENT_BYTES));
        }
        let recipients = self.to.len() + self.cc.len() + self.bcc.len();
        if recipients > limits::RECIPIENTS {
            return fault(
                "to",
                format!("names {recipients} recipients with cc and bcc; at most {} fit one email", limits::RECIPIENTS),
            );
        }
        if self.labels.len() > limits::MESSAGE_LABELS {
            return fault("labels", format!("must have at most {} labels", limits::MESSAGE_LABELS));
        }
        Ok(())
    }
}

pub(crate) fn draft_not_found(id: impl std::fmt::Display) -> Problem {
    Problem::new(Code::NotFound, format!("there is no draft {id}"))
}

impl Drafts {
    /// Decodes the record of a draft.
    pub(crate) fn unpack_draft(&self, record: &Record) -> Result<Draft, Problem> {
        let json = self.ctx.packer.unpack_text(&record.json).map(Cow::into_owned);
        let json = json.ok_or_else(|| Problem::new(Code::Internal, "the draft cannot be decrypted"))?;
        let details = records::decode(&Record { json, ..record.clone() })?;
        Ok(Draft { id: record.id, rev: record.rev, created_at: record.created_at, details })
    }

    /// Encodes the record of a draft.
    pub(crate) fn pack_draft(&self, details: &DraftDetails) -> Result<String, Problem> {
        Ok(self.ctx.packer.pack_text(records::encode(details)?))
    }

    /// Creates a draft. The same `client_id` again returns the first draft, and so does the same idempotency key.
    pub async fn create_draft(
        &self,
        caller: &Caller,
        details: &DraftDetails,
        keyed_call: Option<KeyedCall>,
    ) -> Result<CreateOutcome<Draft>, Problem> {
        caller.require_scope(ApiKeyScope::Send)?;
        details.check()?;
        self.inboxes.inbox(caller, details.inbox).await?;
        let (now, kind) = (self.ctx.now(), RecordKind::Draft);
        let id = self.ctx.new_id(now);
        let name = details.client_id.as_ref().map_or_else(|| id.to_string(), |client_id| format!("client {client_id}"));
        let json = self.pack_draft(details)?;
        let record = Record { team: caller.team.id, kind, id, name, rev: 1, created_at: now, json };
        let operation = operation(caller, keyed_call.as_ref(), id.as_bytes().to_vec(), now);
        match self.ctx.store.create_record(record, operation).await.map_err(unavailable)? {
            IdempotentResult::Done(CreateRecordResult::Created(record)) => {
                Ok(CreateOutcome { value: self.unpack_draft(&record)?, is_new: true })
            }
            IdempotentResult::Done(CreateRecordResult::NameTaken(record)) => {
                Ok(CreateOutcome { value: self.unpack_draft(&record)?, is_new: false })
            }
            IdempotentResult::Replayed(answer) => {
                let first = Uuid::from_slice(&answer).map_err(|_bytes| draft_not_found("of this key"))?;
                Ok(CreateOutcome { value: self.draft(caller, first).await?, is_new: false })
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// One draft of an inbox that the caller may use, sent or not.
    pub async fn draft(&self, caller: &Caller, id: Uuid) -> Result<Draft, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        let draft = self.unpack_draft(&self.ctx.team_record(caller, RecordKind::Draft, id).await?)?;
        self.inboxes.inbox(caller, draft.details.inbox).await.map_err(|_not_theirs| draft_not_found(id))?;
        Ok(draft)
    }

    /// Drafts of the caller's team, newest first, including sent ones.
    pub async fn drafts(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<CursorPage<Draft>, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        let mut page =
            self.ctx.team_records(caller, RecordKind::Draft, before, limit, |record| self.unpack_draft(record)).await?;
        page.rows.retain(|draft| caller.may_access_inboxes(&[draft.details.inbox]));
        Ok(page)
    }

    /// Changes a draft if its rev is still the one in `seen`. Binds the call's key in the same commit. Returns true
    /// when an earlier call with the key made the change.
    pub async fn change_draft(
        &self,
        caller: &Caller,
        seen: &Draft,
        details: &DraftDetails,
        keyed_call: Option<KeyedCall>,
    ) -> Result<(Draft, bool), Problem> {
        caller.require_scope(ApiKeyScope::Send)?;
        details.check()?;
        let (now, team, kind) = (self.ctx.now(), caller.team.id, RecordKind::Draft);
        let edit = RecordEdit { team, kind, id: seen.id, rev: seen.rev, json: self.pack_draft(details)? };
        let operation = operation(caller, keyed_call.as_ref(), Vec::new(), now);
        match self.ctx.store.change_record(edit, operation, now).await.map_err(unavailable)? {
            IdempotentResult::Done(RecordChangeResult::Changed(record)) => Ok((self.unpack_draft(&record)?, false)),
            IdempotentResult::Done(RecordChangeResult::Stale(record)) => {
                let detail = format!("the draft {} has changed since it was read", seen.id);
                Err(Problem::new(Code::StaleRev, detail).with_extension("rev", record.rev))
            }
            IdempotentResult::Done(RecordChangeResult::Missing) => Err(draft_not_found(seen.id)),
            IdempotentResult::Replayed(_) => Ok((self.draft(caller, seen.id).await?, true)),
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }
}
