//! A mailbox: what came to an inbox and what left from it, as one list, newest first; and a mail by its Message-ID.

use mailonce_core::{
    access::team::ApiKeyScope,
    id::{EmailId, TeamId},
    inbox::{
        Inbox,
        message::{Message, MessageFlag, MessagePosition, MessageQuery},
    },
    limits,
    outbound::{email::Email, email_query::EmailQuery},
    problem::Problem,
};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use crate::{Caller, Engine, conversation::threads::ThreadEntry, unavailable};

/// Messages read at a time.
const MESSAGE_PAGE_SIZE: usize = 50;
/// Emails of the team read at a time; those of other senders are passed over.
const EMAIL_PAGE_SIZE: usize = 100;
/// Message-IDs of emails that are kept at hand.
const CACHE_CAPACITY: usize = 65_536;

/// Emails by their Message-IDs, as far as this process has seen them: those follow from a secret and cannot be read
/// backwards.
#[derive(Default)]
pub(crate) struct MessageIdCache(Mutex<HashMap<(TeamId, String), EmailId>>);

impl MessageIdCache {
    pub(crate) fn get(&self, team: TeamId, message_id: &str) -> Option<EmailId> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.get(&(team, message_id.to_owned())).copied()
    }

    fn insert(&self, team: TeamId, message_id: &str, id: EmailId) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= CACHE_CAPACITY {
            names.clear();
        }
        names.insert((team, message_id.to_owned()), id);
    }
}

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
    engine: &'a Engine,
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
            let page = self.engine.messages(self.caller, self.inbox.id, query).await?;
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
            let page =
                self.engine.emails(self.caller, EmailQuery { before, limit: EMAIL_PAGE_SIZE, ..EmailQuery::default() });
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

impl Engine {
    /// What lies in a mailbox behind a place.
    pub fn read_mailbox<'a>(&'a self, caller: &'a Caller, inbox: &'a Inbox, place: MailboxCursor) -> MailboxReader<'a> {
        MailboxReader {
            engine: self,
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

    /// The Message-ID of an email, kept at hand so that the email is found by it again.
    pub fn cache_message_id(&self, email: &Email) -> String {
        let message_id = self.message_id(email);
        self.message_ids.insert(email.team, &message_id, email.id);
        message_id
    }

    /// Keeps at hand which email has a Message-ID.
    pub fn remember_message_id(&self, team: TeamId, message_id: &str, id: EmailId) {
        self.message_ids.insert(team, message_id, id);
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
        if let Some(email) = self.cached_email_by_message_id(caller, inbox, name).await? {
            return Ok(Some(ThreadEntry::Email(Box::new(email))));
        }
        if let Some(message) = self.message_by_message_id(caller, inbox, name).await? {
            return Ok(Some(ThreadEntry::Message(Box::new(message))));
        }
        let email = self.email_by_message_id(caller.team.id, name).await.map_err(unavailable)?;
        let email = email.filter(|email| email.head.from == inbox.address);
        Ok(email.map(|email| ThreadEntry::Email(Box::new(email))))
    }

    async fn cached_email_by_message_id(
        &self,
        caller: &Caller,
        inbox: &Inbox,
        name: &str,
    ) -> Result<Option<Email>, Problem> {
        let Some(id) = self.message_ids.get(caller.team.id, name) else { return Ok(None) };
        let email = self.store.email(caller.team.id, id).await.map_err(unavailable)?;
        Ok(email.filter(|email| email.head.from == inbox.address))
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
            let page = self.messages(caller, inbox.id, query).await?;
            let reused = |message: &Message| message.head.flags.contains(&MessageFlag::MessageIdReused);
            if let Some(message) = page.rows.into_iter().find(|message| !reused(message)) {
                return Ok(Some(message));
            }
            let Some(next) = page.next else { return Ok(None) };
            place = MessagePosition::Before(next);
        }
    }
}
