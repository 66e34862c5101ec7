//! A thread in AgentMail's format. A sent email without a reply counts as a thread of its own.

use mailonce_core::{
    id::{EmailId, InboxId, ThreadId},
    inbox::Inbox,
    problem::{Code, Problem},
};
use mailonce_engine::conversation::threads::ThreadEntry;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::dialects::agentmail::{
    message_view::{self, AgentMailMessage},
    request::RequestContext,
};

/// A thread with its emails, oldest first.
pub(super) struct AgentMailThread {
    pub(super) id: Uuid,
    pub(super) inbox: Inbox,
    /// The labels of the thread itself, without those of its emails.
    pub(super) thread_labels: Vec<String>,
    /// Whether the thread is stored; false for a sent email without a reply.
    pub(super) has_row: bool,
    pub(super) mails: Vec<AgentMailMessage>,
}

fn missing_thread(id: Uuid) -> Problem {
    Problem::new(Code::NotFound, format!("there is no thread {id}"))
}

impl AgentMailThread {
    /// Finds the thread with this id.
    pub(super) async fn find(ctx: &RequestContext, id: Uuid) -> Result<Self, Problem> {
        let (inbox, thread_labels, has_row, entries) =
            match ctx.engine.conversations.thread_view(&ctx.caller, ThreadId(id)).await {
                Ok(view) => (view.thread.inbox, view.thread.details.labels, true, view.entries),
                Err(problem) if problem.code == Code::NotFound => {
                    let (inbox, entries) = Self::find_single_email(ctx, id).await?;
                    (inbox, Vec::new(), false, entries)
                }
                Err(problem) => return Err(problem),
            };
        let inbox = ctx.engine.inboxes.inbox(&ctx.caller, inbox).await.map_err(|_not_theirs| missing_thread(id))?;
        let mut mails = Vec::with_capacity(entries.len());
        for entry in entries {
            let mail = AgentMailMessage::load(ctx, entry).await?;
            mails.extend((!mail.labels.hidden).then_some(mail));
        }
        if mails.is_empty() {
            return Err(missing_thread(id));
        }
        Ok(Self { id, inbox, thread_labels, has_row, mails })
    }

    async fn find_single_email(ctx: &RequestContext, id: Uuid) -> Result<(InboxId, Vec<ThreadEntry>), Problem> {
        let not_found = |problem: Problem| if problem.code == Code::NotFound { missing_thread(id) } else { problem };
        let email = ctx.engine.outbound.email(&ctx.caller, EmailId(id)).await.map_err(not_found)?;
        if email.head.thread.is_some() {
            return Err(missing_thread(id));
        }
        let inbox = ctx.engine.inboxes.inbox_by_address(&ctx.caller, &email.head.from).await.map_err(not_found)?;
        Ok((inbox.id, vec![ThreadEntry::Email(Box::new(email))]))
    }

    /// The labels of the thread and of all its emails.
    pub(super) fn labels(&self) -> Vec<String> {
        let mut all = self.thread_labels.clone();
        for label in self.mails.iter().flat_map(AgentMailMessage::labels) {
            if !all.contains(&label) {
                all.push(label);
            }
        }
        all
    }

    /// The thread as a list item.
    pub(super) fn list_item(&self, ctx: &RequestContext) -> Map<String, Value> {
        let (Some(first), Some(last)) = (self.mails.first(), self.mails.last()) else { return Map::new() };
        let latest = |received: bool| {
            let has_direction = |mail: &&AgentMailMessage| matches!(mail.entry, ThreadEntry::Message(_)) == received;
            self.mails.iter().rev().find(has_direction).map(|mail| mail.timestamp().to_string())
        };
        let unique = |all: Vec<String>| {
            all.into_iter().fold(Vec::new(), |mut distinct: Vec<String>, value| {
                if !distinct.contains(&value) {
                    distinct.push(value);
                }
                distinct
            })
        };
        let files: Vec<Value> = self.mails.iter().flat_map(AgentMailMessage::attachments).collect();
        let mut body = json!({
            "inbox_id": self.inbox.address,
            "thread_id": self.id.to_string(),
            "labels": self.labels(),
            "timestamp": last.timestamp().to_string(),
            "senders": unique(self.mails.iter().map(AgentMailMessage::from).collect()),
            "recipients": unique(self.mails.iter().flat_map(|mail| mail.recipients().concat()).collect()),
            "subject": first.subject(),
            "preview": last.preview(),
            "last_message_id": message_view::public_id(ctx, &last.entry),
            "message_count": self.mails.len(),
            "size": self.mails.iter().map(AgentMailMessage::size).sum::<u64>(),
            "updated_at": self.mails.iter().map(AgentMailMessage::updated_at).fold(last.timestamp(), Ord::max).to_string(),
            "created_at": first.timestamp().to_string(),
        });
        for (name, at) in [("received_timestamp", latest(true)), ("sent_timestamp", latest(false))] {
            if let Some(at) = at {
                body[name] = at.into();
            }
        }
        if !files.is_empty() {
            body["attachments"] = files.into();
        }
        match body {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }

    /// The thread with a page of its emails. The first page holds the newest ones; each page is sorted oldest first.
    pub(super) async fn full_json(&self, ctx: &RequestContext, skip: usize, limit: usize) -> Result<Value, Problem> {
        let mut body = self.list_item(ctx);
        let end = self.mails.len().saturating_sub(skip);
        let begin = end.saturating_sub(limit);
        let mut messages = Vec::new();
        for mail in self.mails.get(begin..end).unwrap_or_default() {
            messages.push(mail.full_json(ctx, &self.inbox).await?);
        }
        body.insert("count".to_owned(), messages.len().into());
        body.insert("limit".to_owned(), limit.into());
        body.insert("messages".to_owned(), messages.into());
        if begin > 0 {
            let next = super::query::encode_page_token(&[(skip + limit) as u128]);
            body.insert("next_page_token".to_owned(), next.into());
        }
        Ok(Value::Object(body))
    }
}
