//! A mailbox: what came to an inbox and what left from it, as one list, newest first; and a mail by its Message-ID.

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

/// Messages read at a time.
const MESSAGE_PAGE_SIZE: usize = 50;
/// Emails of the team read at a time; those of other senders are passed over.
const EMAIL_PAGE_SIZE: usize = 100;

/// A place in a mailbox: behind it lies what is older.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailboxCursor {
    /// The number of the last message that was seen.
    pub message: u64,
    /// The last email that was seen.
    pub email: Option<EmailId>,
}

impl Default for MailboxCursor {
    fn default() -> Self {
        Self { message: u64::MAX, email: None }
    }
}

/// What lies in a mailbox, one mail after the other, newest first.
pub struct MailboxReader<'a> {
    conversations: &'a Conversations,
    caller: &'a Caller,
    inbox: &'a Inbox,
    messages: VecDeque<Message>,
    emails: VecDeque<Email>,
    /// Where the next messages lie; `None` at the end.
    next_messages: Option<u64>,
    /// Whether there may be more emails, and behind which.
    next_emails: Option<Option<EmailId>>,
    scanned: usize,
    cursor: MailboxCursor,
}

impl MailboxReader<'_> {
    /// The next mail. `None` at the end, or when more was looked at than one call may: [`Self::rest`] tells.
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

    /// False when enough was looked at and nothing found.
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
                // Nothing of this inbox lies before: whoever goes on begins here.
                self.cursor.email = page.next.or(self.cursor.email);
            }
        }
        Ok(true)
    }

    /// Where to go on; `None` when nothing is left.
    pub fn next_cursor(&self) -> Option<MailboxCursor> {
        let left = !self.messages.is_empty() || !self.emails.is_empty();
        (left || self.next_messages.is_some() || self.next_emails.is_some()).then_some(self.cursor)
    }
}

impl Conversations {
    /// What lies in a mailbox behind a place.
    pub fn read_mailbox<'a>(&'a self, caller: &'a Caller, inbox: &'a Inbox, place: MailboxCursor) -> MailboxReader<'a> {
        MailboxReader {
            conversations: self,
            caller,
            inbox,
            messages: VecDeque::new(),
            emails: VecDeque::new(),
            next_messages: Some(place.message),
            next_emails: Some(place.email),
            scanned: 0,
            cursor: place,
        }
    }

    /// The mail with this Message-ID in an inbox, received by it or sent from it. Of several messages that claim the
    /// same one, the first.
    pub async fn find_by_message_id(
        &self,
        caller: &Caller,
        inbox: &Inbox,
        name: &str,
    ) -> Result<Option<ThreadEntry>, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        if let Some(email) = self.outbound.cached_email_by_message_id(caller, inbox, name).await? {
            return Ok(Some(ThreadEntry::Email(Box::new(email))));
        }
        if let Some(message) = self.message_by_message_id(caller, inbox, name).await? {
            return Ok(Some(ThreadEntry::Message(Box::new(message))));
        }
        let email = self.outbound.email_by_message_id(caller.team.id, name).await.map_err(unavailable)?;
        let email = email.filter(|email| email.head.from == inbox.address);
        Ok(email.map(|email| ThreadEntry::Email(Box::new(email))))
    }

    async fn message_by_message_id(
        &self,
        caller: &Caller,
        inbox: &Inbox,
        name: &str,
    ) -> Result<Option<Message>, Problem> {
        let mut place = MessagePosition::Before(u64::MAX);
        loop {
            let message_id = Some(name.to_owned());
            let query =
                MessageQuery { message_id, position: place, limit: MESSAGE_PAGE_SIZE, ..MessageQuery::default() };
            let page = self.inboxes.messages(caller, inbox.id, query).await?;
            let reused = |message: &Message| message.head.flags.contains(&MessageFlag::MessageIdReused);
            if let Some(message) = page.rows.into_iter().find(|message| !reused(message)) {
                return Ok(Some(message));
            }
            let Some(next) = page.next else { return Ok(None) };
            place = MessagePosition::Before(next);
        }
    }
}
