//! A mailbox: the received and sent mail of an inbox as one list, newest first. Also finds a mail by its Message-ID.

use crate::{
    access::caller::Caller,
    conversation::{Conversations, threads::ThreadEntry},
    runtime::problems::unavailable,
};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::EmailId,
    inbox::{
        Inbox,
        message::{Message, MessageFlag, MessagePosition, MessageQuery},
    },
    limits,
    outbound::{email::Email, email_query::EmailQuery},
    problem::Problem,
};
use std::collections::VecDeque;

/// Messages per page read from the store.
const MESSAGE_PAGE_SIZE: usize = 50;
/// Emails of the team per page read from the store; those of other senders are skipped.
const EMAIL_PAGE_SIZE: usize = 100;

/// A pagination cursor in a mailbox. The next page holds older mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailboxCursor {
    /// The sequence number of the last message that was returned.
    pub message: u64,
    /// The last email that was returned or skipped.
    pub email: Option<EmailId>,
}

impl Default for MailboxCursor {
    fn default() -> Self {
        Self { message: u64::MAX, email: None }
    }
}

/// Reads a mailbox mail by mail, newest first.
pub struct InboxHistory<'a> {
    conversations: &'a Conversations,
    caller: &'a Caller,
    inbox: &'a Inbox,
    messages: VecDeque<Message>,
    emails: VecDeque<Email>,
    /// The cursor of the next page of messages; `None` at the end.
    next_messages: Option<u64>,
    /// The cursor of the next page of emails: `None` at the end, `Some(None)` for the first page.
    next_emails: Option<Option<EmailId>>,
    scanned: usize,
    cursor: MailboxCursor,
}

impl InboxHistory<'_> {
    /// The next mail. `None` at the end, or when the scan limit of one call is reached. In the latter case
    /// [`Self::next_cursor`] is `Some`.
    pub async fn next(&mut self) -> Result<Option<ThreadEntry>, Problem> {
        self.fetch_messages().await?;
        if !self.fetch_emails().await? {
            return Ok(None);
        }
        let email_first = match (self.messages.front(), self.emails.front()) {
            (Some(message), Some(email)) => email.head.created_at > message.received_at,
            (message, _) => message.is_none(),
        };
        if email_first {
            let Some(email) = self.emails.pop_front() else { return Ok(None) };
            self.cursor.email = Some(email.id);
            return Ok(Some(ThreadEntry::Email(Box::new(email))));
        }
        let Some(message) = self.messages.pop_front() else { return Ok(None) };
        self.cursor.message = message.seq;
        Ok(Some(ThreadEntry::Message(Box::new(message))))
    }

    async fn fetch_messages(&mut self) -> Result<(), Problem> {
        while let Some(seq) = self.next_messages.filter(|_| self.messages.is_empty()) {
            let query = MessageQuery {
                position: MessagePosition::Before(seq),
                limit: MESSAGE_PAGE_SIZE,
                ..MessageQuery::default()
            };
            let page = self.conversations.inboxes.messages(self.caller, self.inbox.id, query).await?;
            self.scanned += page.rows.len();
            self.messages.extend(page.rows);
            self.next_messages = page.next;
        }
        Ok(())
    }

    /// Reads emails of this inbox. Returns false when the scan limit is reached before one was found.
    async fn fetch_emails(&mut self) -> Result<bool, Problem> {
        while let Some(before) = self.next_emails.filter(|_| self.emails.is_empty()) {
            if self.scanned >= limits::SCAN_ROWS {
                return Ok(false);
            }
            let page = self
                .conversations
                .outbound
                .emails(self.caller, EmailQuery { before, limit: EMAIL_PAGE_SIZE, ..EmailQuery::default() });
            let page = page.await?;
            self.scanned += EMAIL_PAGE_SIZE;
            let own = page.rows.into_iter().filter(|email| email.head.from == self.inbox.address);
            self.emails.extend(own);
            self.next_emails = page.next.map(Some);
            if self.emails.is_empty() {
                // This page has no email of this inbox, so the cursor can skip it.
                self.cursor.email = page.next.or(self.cursor.email);
            }
        }
        Ok(true)
    }

    /// The cursor for the next call; `None` at the end of the mailbox.
    pub fn next_cursor(&self) -> Option<MailboxCursor> {
        let left = !self.messages.is_empty() || !self.emails.is_empty();
        (left || self.next_messages.is_some() || self.next_emails.is_some()).then_some(self.cursor)
    }
}

impl Conversations {
    /// Reads a mailbox from a cursor on.
    pub fn read_mailbox<'a>(&'a self, caller: &'a Caller, inbox: &'a Inbox, cursor: MailboxCursor) -> InboxHistory<'a> {
        InboxHistory {
            conversations: self,
            caller,
            inbox,
            messages: VecDeque::new(),
            emails: VecDeque::new(),
            next_messages: Some(cursor.message),
            next_emails: Some(cursor.email),
            scanned: 0,
            cursor,
        }
    }

    /// The mail with this Message-ID that an inbox received or sent. When several messages use the same Message-ID, the
    /// first one is returned.
    pub async fn find_by_message_id(
        &self,
        caller: &Caller,
        inbox: &Inbox,
        message_id: &str,
    ) -> Result<Option<ThreadEntry>, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        if let Some(email) = self.outbound.cached_email_by_message_id(caller, inbox, message_id).await? {
            return Ok(Some(ThreadEntry::Email(Box::new(email))));
        }
        if let Some(message) = self.message_by_message_id(caller, inbox, message_id).await? {
            return Ok(Some(ThreadEntry::Message(Box::new(message))));
        }
        let email = self.outbound.email_by_message_id(caller.team.id, message_id).await.map_err(unavailable)?;
        let email = email.filter(|email| email.head.from == inbox.address);
        Ok(email.map(|email| ThreadEntry::Email(Box::new(email))))
    }

    async fn message_by_message_id(
        &self,
        caller: &Caller,
        inbox: &Inbox,
        message_id: &str,
    ) -> Result<Option<Message>, Problem> {
        let mut position = MessagePosition::Before(u64::MAX);
        loop {
            let message_id = Some(message_id.to_owned());
            let query = MessageQuery { message_id, position, limit: MESSAGE_PAGE_SIZE, ..MessageQuery::default() };
            let page = self.inboxes.messages(caller, inbox.id, query).await?;
            let reused = |message: &Message| message.head.flags.contains(&MessageFlag::MessageIdReused);
            if let Some(message) = page.rows.into_iter().find(|message| !reused(message)) {
                return Ok(Some(message));
            }
            let Some(next) = page.next else { return Ok(None) };
            position = MessagePosition::Before(next);
        }
    }
}
