//! Looking at emails and events.

use mailonce_core::{
    content::Content,
    email::Email,
    event::{Cursor, Event},
    id::EmailId,
    mutant,
    port::store::{EmailDetail, EmailQuery, Page},
    problem::{Code, Problem},
};

use crate::{Caller, Engine, change::missing, pack, seen::Glimpse, unavailable, view};

/// Everything about one email, unpacked.
#[derive(Debug)]
pub struct EmailView {
    /// What the ledger holds.
    pub detail: EmailDetail,
    /// The content; `None` once it was dropped.
    pub content: Option<Content>,
}

impl Engine {
    /// One email.
    pub async fn email(&self, caller: &Caller, id: EmailId) -> Result<Email, Problem> {
        let email = self.store.email(caller.team.id, id).await.map_err(unavailable)?;
        email.ok_or_else(|| missing(id))
    }

    /// Everything about one email.
    pub async fn email_view(&self, caller: &Caller, id: EmailId) -> Result<EmailView, Problem> {
        let detail = self.store.email_detail(caller.team.id, id).await.map_err(unavailable)?;
        let detail = detail.ok_or_else(|| missing(id))?;
        let content = detail.body.as_deref().and_then(pack::unpack);
        Ok(EmailView { detail, content })
    }

    /// Emails, newest first.
    pub async fn emails(&self, caller: &Caller, query: EmailQuery) -> Result<Page<Email>, Problem> {
        self.store.emails(caller.team.id, query).await.map_err(unavailable)
    }

    /// The Message-ID of an email, with angle brackets.
    pub fn message_id(&self, email: &Email) -> String {
        let mut glimpse = Glimpse::from(email);
        if mutant!("message-id-anew") {
            glimpse.bind += email.rev;
        }
        view::message_id(&self.secret, email.team, &glimpse)
    }

    /// Events after a cursor, in order.
    pub async fn events(
        &self,
        caller: &Caller,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Vec<(Cursor, Event)>, Problem> {
        let after = match after {
            Some(cursor) if cursor.epoch != self.epoch => {
                return Err(Problem::new(Code::CursorReset, "this cursor is from before a restore"));
            }
            Some(cursor) => cursor.seq,
            None => 0,
        };
        let events = self.store.events(caller.team.id, after, limit).await.map_err(unavailable)?;
        Ok(events.into_iter().map(|event| (Cursor { epoch: self.epoch, seq: event.seq }, event)).collect())
    }
}
