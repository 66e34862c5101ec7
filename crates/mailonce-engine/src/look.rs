//! Looking at emails and events.

use mailonce_core::{
    content::Content,
    email::Email,
    event::{Cursor, Event},
    id::EmailId,
    limits, mutant,
    port::store::{EmailDetail, EmailQuery, Page},
    problem::Problem,
};

use crate::{Caller, Engine, change::missing, pack, seen::Glimpse, tail::EventWish, unavailable, view};

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

    /// Wanted events after a cursor, in order, and where to go on: it may be past the last of them.
    pub async fn events(
        &self,
        caller: &Caller,
        after: Option<Cursor>,
        limit: usize,
        wish: &EventWish,
    ) -> Result<(Vec<Event>, Option<Cursor>), Problem> {
        let (team, begin) = (caller.team.id, self.seq_of(after)?);
        let (mut after, mut found) = (begin, Vec::new());
        while found.len() < limit && after - begin < limits::SCAN_ROWS as u64 {
            let want = (limit - found.len()).max(if wish.is_everything() { 1 } else { limits::EVENT_ROWS });
            let page = self.store.events(team, after, want).await.map_err(unavailable)?;
            let Some(last) = page.last() else { break };
            let (page_end, whole) = (last.seq, page.len() == want);
            let room = limit - found.len();
            found.extend(page.into_iter().filter(|event| wish.wants_event(event)).take(room));
            after = if found.len() == limit { found.last().map_or(page_end, |event| event.seq) } else { page_end };
            if !whole {
                break;
            }
        }
        if after == begin {
            self.check_place(team, begin).await?;
            return Ok((found, None));
        }
        Ok((found, Some(self.cursor(after))))
    }
}
