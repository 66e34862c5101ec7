//! A mailbox: what came to an inbox and what left from it, as one list, newest first; and a mail by its Message-ID.

use mailonce_core::{
    email::Email,
    id::{EmailId, TeamId},
    inbox::Inbox,
    limits,
    message::{Message, MessageFlag, MessagePlace, MessageQuery},
    port::store::EmailQuery,
    problem::Problem,
    team::Scope,
};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use crate::{Caller, Engine, threads::Said, unavailable};

/// Messages read at a time.
const MESSAGES: usize = 50;
/// Emails of the team read at a time; those of other senders are passed over.
const EMAILS: usize = 100;
/// Message-IDs of emails that are kept at hand.
const NAMES: usize = 65_536;

/// Emails by their Message-IDs, as far as this process has seen them: those follow from a secret and cannot be read
/// backwards.
#[derive(Default)]
pub(crate) struct EmailNames(Mutex<HashMap<(TeamId, String), EmailId>>);

impl EmailNames {
    pub(crate) fn get(&self, team: TeamId, message_id: &str) -> Option<EmailId> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.get(&(team, message_id.to_owned())).copied()
    }

    fn note(&self, team: TeamId, message_id: &str, id: EmailId) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= NAMES {
            names.clear();
        }
        names.insert((team, message_id.to_owned()), id);
    }
}

/// A place in a mailbox: behind it lies what is older.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailPlace {
    /// The number of the last message that was seen.
    pub message: u64,
    /// The last email that was seen.
    pub email: Option<EmailId>,
}

impl Default for MailPlace {
    fn default() -> Self {
        Self { message: u64::MAX, email: None }
    }
}

/// What lies in a mailbox, one mail after the other, newest first.
pub struct Mailbox<'a> {
    engine: &'a Engine,
    caller: &'a Caller,
    inbox: &'a Inbox,
    messages: VecDeque<Message>,
    emails: VecDeque<Email>,
    /// Where the next messages lie; `None` at the end.
    more_messages: Option<u64>,
    /// Whether there may be more emails, and behind which.
    more_emails: Option<Option<EmailId>>,
    looked: usize,
    place: MailPlace,
}

impl Mailbox<'_> {
    /// The next mail. `None` at the end, or when more was looked at than one call may: [`Self::rest`] tells.
    pub async fn next(&mut self) -> Result<Option<Said>, Problem> {
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
            self.place.email = Some(email.id);
            return Ok(Some(Said::Email(Box::new(email))));
        }
        let Some(message) = self.messages.pop_front() else { return Ok(None) };
        self.place.message = message.seq;
        Ok(Some(Said::Message(Box::new(message))))
    }

    async fn fetch_messages(&mut self) -> Result<(), Problem> {
        while let Some(seq) = self.more_messages.filter(|_| self.messages.is_empty()) {
            let query = MessageQuery { place: MessagePlace::Before(seq), limit: MESSAGES, ..MessageQuery::default() };
            let page = self.engine.messages(self.caller, self.inbox.id, query).await?;
            self.looked += page.rows.len();
            self.messages.extend(page.rows);
            self.more_messages = page.next;
        }
        Ok(())
    }

    /// False when enough was looked at and nothing found.
    async fn fetch_emails(&mut self) -> Result<bool, Problem> {
        while let Some(before) = self.more_emails.filter(|_| self.emails.is_empty()) {
            if self.looked >= limits::SCAN_ROWS {
                return Ok(false);
            }
            let page = self.engine.emails(self.caller, EmailQuery { before, limit: EMAILS, ..EmailQuery::default() });
            let page = page.await?;
            self.looked += EMAILS;
            let own = page.rows.into_iter().filter(|email| email.head.from == self.inbox.address);
            self.emails.extend(own);
            self.more_emails = page.next.map(Some);
            if self.emails.is_empty() {
                // Nothing of this inbox lies before: whoever goes on begins here.
                self.place.email = page.next.or(self.place.email);
            }
        }
        Ok(true)
    }

    /// Where to go on; `None` when nothing is left.
    pub fn rest(&self) -> Option<MailPlace> {
        let left = !self.messages.is_empty() || !self.emails.is_empty();
        (left || self.more_messages.is_some() || self.more_emails.is_some()).then_some(self.place)
    }
}

impl Engine {
    /// What lies in a mailbox behind a place.
    pub fn mailbox<'a>(&'a self, caller: &'a Caller, inbox: &'a Inbox, place: MailPlace) -> Mailbox<'a> {
        Mailbox {
            engine: self,
            caller,
            inbox,
            messages: VecDeque::new(),
            emails: VecDeque::new(),
            more_messages: Some(place.message),
            more_emails: Some(place.email),
            looked: 0,
            place,
        }
    }

    /// The Message-ID of an email, kept at hand so that the email is found by it again.
    pub fn known_message_id(&self, email: &Email) -> String {
        let message_id = self.message_id(email);
        self.email_names.note(email.team, &message_id, email.id);
        message_id
    }

    /// Keeps at hand which email has a Message-ID.
    pub fn note_message_id(&self, team: TeamId, message_id: &str, id: EmailId) {
        self.email_names.note(team, message_id, id);
    }

    /// The mail with this Message-ID in an inbox, received by it or sent from it. Of several messages that claim the
    /// same one, the first.
    pub async fn mail_named(&self, caller: &Caller, inbox: &Inbox, name: &str) -> Result<Option<Said>, Problem> {
        caller.need(Scope::Read)?;
        if let Some(email) = self.email_at_hand(caller, inbox, name).await? {
            return Ok(Some(Said::Email(Box::new(email))));
        }
        if let Some(message) = self.message_named(caller, inbox, name).await? {
            return Ok(Some(Said::Message(Box::new(message))));
        }
        let email = self.email_named(caller.team.id, name).await.map_err(unavailable)?;
        let email = email.filter(|email| email.head.from == inbox.address);
        Ok(email.map(|email| Said::Email(Box::new(email))))
    }

    async fn email_at_hand(&self, caller: &Caller, inbox: &Inbox, name: &str) -> Result<Option<Email>, Problem> {
        let Some(id) = self.email_names.get(caller.team.id, name) else { return Ok(None) };
        let email = self.store.email(caller.team.id, id).await.map_err(unavailable)?;
        Ok(email.filter(|email| email.head.from == inbox.address))
    }

    async fn message_named(&self, caller: &Caller, inbox: &Inbox, name: &str) -> Result<Option<Message>, Problem> {
        let mut place = MessagePlace::Before(u64::MAX);
        loop {
            let message_id = Some(name.to_owned());
            let query = MessageQuery { message_id, place, limit: MESSAGES, ..MessageQuery::default() };
            let page = self.messages(caller, inbox.id, query).await?;
            let reused = |message: &Message| message.head.flags.contains(&MessageFlag::MessageIdReused);
            if let Some(message) = page.rows.into_iter().find(|message| !reused(message)) {
                return Ok(Some(message));
            }
            let Some(next) = page.next else { return Ok(None) };
            place = MessagePlace::Before(next);
        }
    }
}
