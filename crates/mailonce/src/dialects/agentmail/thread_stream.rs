//! Threads one after the other, those with the latest news first: of one inbox, or of the whole team.

use mailonce_core::{
    conversation::thread::{Thread, ThreadQuery},
    id::{EmailId, ThreadId},
    inbox::Inbox,
    limits,
    outbound::{email::Email, email_query::EmailQuery},
    problem::{Code, Problem},
    time::Time,
};
use mailonce_engine::inbox::mailbox_reader::{MailboxCursor, MailboxReader};
use std::collections::VecDeque;
use uuid::Uuid;

use super::{
    messages::{page_token, parse_page_token},
    query::encode_page_token,
};
use crate::dialects::agentmail::{message_view, request::AgentMailRequest, thread_view::AgentMailThread};

/// Threads behind a place.
pub(super) enum ThreadStream<'a> {
    /// Of one inbox, by what was said in it.
    Inbox(&'a AgentMailRequest, MailboxReader<'a>),
    /// Of every inbox.
    Team(Box<TeamThreadStream<'a>>),
}

/// Threads of a team: those that the ledger has rows for, and mails of ours that nobody answered yet, merged by time.
pub(super) struct TeamThreadStream<'a> {
    call: &'a AgentMailRequest,
    threads: VecDeque<Thread>,
    emails: VecDeque<Email>,
    /// Whether there may be more threads, and behind which.
    more_threads: Option<Option<(Time, ThreadId)>>,
    /// Whether there may be more emails, and behind which.
    more_emails: Option<Option<EmailId>>,
    /// The last ones that were seen.
    last_seen: (Option<(Time, ThreadId)>, Option<EmailId>),
}

impl<'a> ThreadStream<'a> {
    /// Those behind the place that the query names.
    pub(super) fn after_page_token(call: &'a AgentMailRequest, inbox: Option<&'a Inbox>) -> Result<Self, Problem> {
        if let Some(inbox) = inbox {
            return Ok(Self::Inbox(
                call,
                call.engine.read_mailbox(&call.caller, inbox, parse_page_token(&call.query)?),
            ));
        }
        let Some([at, thread, email]) = call.query.page_token::<3>()? else { return Ok(Self::all(call, None)) };
        let at = Time(i64::try_from(at).unwrap_or(i64::MAX));
        let thread = (thread != 0).then(|| (at, ThreadId(Uuid::from_u128(thread))));
        let email = (email != 0).then(|| EmailId(Uuid::from_u128(email)));
        Ok(Self::Team(Box::new(TeamThreadStream::after(call, (thread, email)))))
    }

    /// All of them.
    pub(super) fn all(call: &'a AgentMailRequest, inbox: Option<&'a Inbox>) -> Self {
        match inbox {
            Some(inbox) => Self::Inbox(call, call.engine.read_mailbox(&call.caller, inbox, MailboxCursor::default())),
            None => Self::Team(Box::new(TeamThreadStream::after(call, (None, None)))),
        }
    }

    /// The next one; `None` at the end, or when more was looked at than one call may: [`Self::rest`] tells.
    pub(super) async fn next(&mut self) -> Result<Option<AgentMailThread>, Problem> {
        match self {
            Self::Team(team) => team.next().await,
            Self::Inbox(call, mailbox) => {
                while let Some(said) = mailbox.next().await? {
                    // Whoever meets an older mail of a thread has seen the thread before.
                    let is_latest = |talk: &AgentMailThread| {
                        talk.mails
                            .last()
                            .is_some_and(|mail| message_view::entry_id(&mail.entry) == message_view::entry_id(&said))
                    };
                    if let Some(talk) = find_visible(call, message_view::thread_id_of(&said)).await?.filter(is_latest) {
                        return Ok(Some(talk));
                    }
                }
                Ok(None)
            }
        }
    }

    /// The words of the place to go on from; `None` when nothing is left.
    pub(super) fn next_page_token(&self) -> Option<String> {
        match self {
            Self::Inbox(_, mailbox) => mailbox.next_cursor().map(page_token),
            Self::Team(team) => team.next_page_token(),
        }
    }
}

/// The thread, if the caller may see it and something is left of it.
async fn find_visible(call: &AgentMailRequest, id: Uuid) -> Result<Option<AgentMailThread>, Problem> {
    match AgentMailThread::find(call, id).await {
        Ok(talk) => Ok(Some(talk)),
        Err(problem) if problem.code == Code::NotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

impl<'a> TeamThreadStream<'a> {
    fn after(call: &'a AgentMailRequest, place: (Option<(Time, ThreadId)>, Option<EmailId>)) -> Self {
        let (threads, emails) = (VecDeque::new(), VecDeque::new());
        Self { call, threads, emails, more_threads: Some(place.0), more_emails: Some(place.1), last_seen: place }
    }

    async fn next(&mut self) -> Result<Option<AgentMailThread>, Problem> {
        loop {
            self.fetch().await?;
            let email_first = match (self.threads.front(), self.emails.front()) {
                (Some(thread), Some(email)) => email.head.created_at > thread.last_activity_at,
                (thread, _) => thread.is_none(),
            };
            let talk = if email_first {
                let Some(email) = self.emails.pop_front() else { return Ok(None) };
                self.last_seen.1 = Some(email.id);
                // One that was answered has a row, and comes with that.
                find_visible(self.call, email.id.0).await?.filter(|talk| !talk.has_row)
            } else {
                let Some(thread) = self.threads.pop_front() else { return Ok(None) };
                self.last_seen.0 = Some((thread.last_activity_at, thread.id));
                find_visible(self.call, thread.id.0).await?
            };
            if talk.is_some() {
                return Ok(talk);
            }
        }
    }

    async fn fetch(&mut self) -> Result<(), Problem> {
        let Self { call, .. } = self;
        while let Some(before) = self.more_threads.filter(|_| self.threads.is_empty()) {
            let query = ThreadQuery { before, limit: limits::PAGE_ROWS, ..ThreadQuery::default() };
            let page = call.engine.threads(&call.caller, query).await?;
            self.threads.extend(page.rows);
            self.more_threads = page.next.map(Some);
        }
        while let Some(before) = self.more_emails.filter(|_| self.emails.is_empty()) {
            let query = EmailQuery { before, limit: limits::PAGE_ROWS, ..EmailQuery::default() };
            let page = call.engine.emails(&call.caller, query).await?;
            self.emails.extend(page.rows.into_iter().filter(|email| email.head.thread.is_none()));
            self.more_emails = page.next.map(Some);
            if self.emails.is_empty() {
                // Nothing lies before: whoever goes on begins here.
                self.last_seen.1 = page.next.or(self.last_seen.1);
            }
        }
        Ok(())
    }

    fn next_page_token(&self) -> Option<String> {
        let left = !self.threads.is_empty() || !self.emails.is_empty();
        let more = left || self.more_threads.is_some() || self.more_emails.is_some();
        let (thread, email) = self.last_seen;
        let (at, thread) = thread.map_or((0, 0), |(at, id)| (u128::try_from(at.0).unwrap_or_default(), id.0.as_u128()));
        more.then(|| encode_page_token(&[at, thread, email.map_or(0, |id| id.0.as_u128())]))
    }
}
