//! A stream of threads, the latest activity first: of one inbox, or of the whole team.

use mailonce_core::{
    conversation::thread::{Thread, ThreadQuery},
    id::{EmailId, ThreadId},
    inbox::Inbox,
    limits,
    outbound::{email::Email, email_query::EmailQuery},
    problem::{Code, Problem},
    time::Time,
};
use mailonce_engine::conversation::mailbox_reader::{InboxHistory, MailboxCursor};
use std::collections::VecDeque;
use uuid::Uuid;

use super::{
    messages::{page_token, parse_page_token},
    query::encode_page_token,
};
use crate::dialects::agentmail::{message_view, request::AgentMailRequest, thread_view::AgentMailThread};

/// The threads after a cursor.
pub(super) enum ThreadStream<'a> {
    /// Of one inbox, derived from its emails.
    Inbox(&'a AgentMailRequest, InboxHistory<'a>),
    /// Of all inboxes of the team.
    Team(Box<TeamThreadStream<'a>>),
}

/// A position in the threads of a team.
#[derive(Clone, Copy, Default)]
struct StreamPosition {
    thread: Option<(Time, ThreadId)>,
    email: Option<EmailId>,
}

/// The threads of a team: stored threads and sent emails without a reply, merged by time.
pub(super) struct TeamThreadStream<'a> {
    call: &'a AgentMailRequest,
    threads: VecDeque<Thread>,
    emails: VecDeque<Email>,
    /// The cursor of the next thread page; the outer `None` means that no threads are left.
    more_threads: Option<Option<(Time, ThreadId)>>,
    /// The cursor of the next email page; the outer `None` means that no emails are left.
    more_emails: Option<Option<EmailId>>,
    /// The last thread and the last email that were returned or skipped.
    last_seen: StreamPosition,
}

impl<'a> ThreadStream<'a> {
    /// The threads after the page token of the query.
    pub(super) fn after_page_token(call: &'a AgentMailRequest, inbox: Option<&'a Inbox>) -> Result<Self, Problem> {
        if let Some(inbox) = inbox {
            return Ok(Self::Inbox(
                call,
                call.engine.conversations.read_mailbox(&call.caller, inbox, parse_page_token(&call.query)?),
            ));
        }
        let Some([at, thread, email]) = call.query.page_token::<3>()? else { return Ok(Self::all(call, None)) };
        let at = Time(i64::try_from(at).unwrap_or(i64::MAX));
        let thread = (thread != 0).then(|| (at, ThreadId(Uuid::from_u128(thread))));
        let email = (email != 0).then(|| EmailId(Uuid::from_u128(email)));
        Ok(Self::Team(Box::new(TeamThreadStream::after(call, StreamPosition { thread, email }))))
    }

    /// All threads.
    pub(super) fn all(call: &'a AgentMailRequest, inbox: Option<&'a Inbox>) -> Self {
        match inbox {
            Some(inbox) => {
                Self::Inbox(call, call.engine.conversations.read_mailbox(&call.caller, inbox, MailboxCursor::default()))
            }
            None => Self::Team(Box::new(TeamThreadStream::after(call, StreamPosition::default()))),
        }
    }

    /// The next thread; `None` at the end, or at the scan limit of one request. `next_page_token` tells which.
    pub(super) async fn next(&mut self) -> Result<Option<AgentMailThread>, Problem> {
        match self {
            Self::Team(team) => team.next().await,
            Self::Inbox(call, mailbox) => {
                while let Some(entry) = mailbox.next().await? {
                    // The thread was returned with its latest email, so its older emails are skipped.
                    let is_latest = |thread: &AgentMailThread| {
                        thread
                            .mails
                            .last()
                            .is_some_and(|mail| message_view::entry_id(&mail.entry) == message_view::entry_id(&entry))
                    };
                    if let Some(thread) =
                        find_visible(call, message_view::thread_id_of(&entry)).await?.filter(is_latest)
                    {
                        return Ok(Some(thread));
                    }
                }
                Ok(None)
            }
        }
    }

    /// The page token of the next page; `None` at the end.
    pub(super) fn next_page_token(&self) -> Option<String> {
        match self {
            Self::Inbox(_, mailbox) => mailbox.next_cursor().map(page_token),
            Self::Team(team) => team.next_page_token(),
        }
    }
}

/// The thread, unless it is hidden from the caller or all its emails are deleted.
async fn find_visible(call: &AgentMailRequest, id: Uuid) -> Result<Option<AgentMailThread>, Problem> {
    match AgentMailThread::find(call, id).await {
        Ok(thread) => Ok(Some(thread)),
        Err(problem) if problem.code == Code::NotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

impl<'a> TeamThreadStream<'a> {
    fn after(call: &'a AgentMailRequest, position: StreamPosition) -> Self {
        let (threads, emails) = (VecDeque::new(), VecDeque::new());
        Self {
            call,
            threads,
            emails,
            more_threads: Some(position.thread),
            more_emails: Some(position.email),
            last_seen: position,
        }
    }

    async fn next(&mut self) -> Result<Option<AgentMailThread>, Problem> {
        loop {
            self.fetch().await?;
            let email_first = match (self.threads.front(), self.emails.front()) {
                (Some(thread), Some(email)) => email.head.created_at > thread.last_activity_at,
                (thread, _) => thread.is_none(),
            };
            let thread = if email_first {
                let Some(email) = self.emails.pop_front() else { return Ok(None) };
                self.last_seen.email = Some(email.id);
                // A thread with a reply is stored, so the stored threads include it.
                find_visible(self.call, email.id.0).await?.filter(|thread| !thread.has_row)
            } else {
                let Some(thread) = self.threads.pop_front() else { return Ok(None) };
                self.last_seen.thread = Some((thread.last_activity_at, thread.id));
                find_visible(self.call, thread.id.0).await?
            };
            if thread.is_some() {
                return Ok(thread);
            }
        }
    }

    async fn fetch(&mut self) -> Result<(), Problem> {
        let Self { call, .. } = self;
        while let Some(before) = self.more_threads.filter(|_| self.threads.is_empty()) {
            let query = ThreadQuery { before, limit: limits::PAGE_ROWS, ..ThreadQuery::default() };
            let page = call.engine.conversations.threads(&call.caller, query).await?;
            self.threads.extend(page.rows);
            self.more_threads = page.next.map(Some);
        }
        while let Some(before) = self.more_emails.filter(|_| self.emails.is_empty()) {
            let query = EmailQuery { before, limit: limits::PAGE_ROWS, ..EmailQuery::default() };
            let page = call.engine.outbound.emails(&call.caller, query).await?;
            self.emails.extend(page.rows.into_iter().filter(|email| email.head.thread.is_none()));
            self.more_emails = page.next.map(Some);
            if self.emails.is_empty() {
                // No email of this page is a thread of its own, so the next request can continue after it.
                self.last_seen.email = page.next.or(self.last_seen.email);
            }
        }
        Ok(())
    }

    fn next_page_token(&self) -> Option<String> {
        let left = !self.threads.is_empty() || !self.emails.is_empty();
        let more = left || self.more_threads.is_some() || self.more_emails.is_some();
        let StreamPosition { thread, email } = self.last_seen;
        let (at, thread) = thread.map_or((0, 0), |(at, id)| (u128::try_from(at.0).unwrap_or_default(), id.0.as_u128()));
        more.then(|| encode_page_token(&[at, thread, email.map_or(0, |id| id.0.as_u128())]))
    }
}
