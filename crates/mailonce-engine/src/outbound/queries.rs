//! Queries of emails.

use crate::{
    access::caller::Caller,
    outbound::Outbound,
    runtime::{
        context::Context,
        problems::{email_not_found, unavailable},
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::{EmailId, TeamId, first_id_at},
    limits,
    outbound::{
        content::{Attachment, EmailContent},
        email::Email,
        email_query::{EmailDetail, EmailQuery, EmailStats, ResultPage},
    },
    problem::{Code, Problem},
    time::Time,
};
use uuid::Uuid;

/// The maximum difference between the time in an email's id and its `created_at`, in milliseconds.
const ID_TIME_SLACK_MS: i64 = 60_000;

/// An email with its decoded content.
#[derive(Debug)]
pub struct EmailView {
    /// The stored email.
    pub detail: EmailDetail,
    /// The content; `None` once it was deleted.
    pub content: Option<EmailContent>,
}

/// An attachment of an email, counted from 0; `None` without one, or once the content was deleted. The caller checks who
/// may see the email.
pub(crate) async fn stored_attachment(
    ctx: &Context,
    team: TeamId,
    id: EmailId,
    number: usize,
) -> Result<Option<Attachment>, Problem> {
    let detail = ctx.store.email_detail(team, id).await.map_err(unavailable)?;
    let content = detail.and_then(|detail| detail.body).and_then(|body| ctx.packer.unpack(&body));
    Ok(content.and_then(|content| content.attachments.into_iter().nth(number)))
}

impl Outbound {
    /// One email.
    pub async fn email(&self, caller: &Caller, id: EmailId) -> Result<Email, Problem> {
        self.access.visible_email(caller, id).await
    }

    /// One email with its content and history.
    pub async fn email_view(&self, caller: &Caller, id: EmailId) -> Result<EmailView, Problem> {
        let detail = self.ctx.store.email_detail(caller.team.id, id).await.map_err(unavailable)?;
        let own = detail.filter(|detail| caller.may_see_sender(&detail.email.head.from));
        let detail = own.ok_or_else(|| email_not_found(id))?;
        let content = detail.body.as_deref().and_then(|body| self.ctx.packer.unpack(body));
        Ok(EmailView { detail, content })
    }

    /// An attachment of an email, counted from 0 as in its content.
    pub async fn attachment(&self, caller: &Caller, id: EmailId, number: usize) -> Result<Attachment, Problem> {
        let email = self.email(caller, id).await?;
        let attachment = stored_attachment(&self.ctx, email.team, id, number).await?;
        attachment.ok_or_else(|| Problem::new(Code::NotFound, format!("email {id} has no attachment {number}")))
    }

    /// Emails, newest first.
    pub async fn emails(&self, caller: &Caller, query: EmailQuery) -> Result<ResultPage<Email>, Problem> {
        let from = caller.inbox_restriction.as_ref().map(|restriction| restriction.addresses());
        self.ctx.store.emails(caller.team.id, EmailQuery { from, ..query }).await.map_err(unavailable)
    }

    /// Statistics of each of these spans of time, from one bound to the next. Emails count by the time in their ids.
    pub async fn email_stats(&self, caller: &Caller, bounds: &[Time]) -> Result<Vec<EmailStats>, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        caller.require_unrestricted_key()?;
        let id = |at: Time| EmailId(first_id_at(at));
        let mut spans = Vec::with_capacity(bounds.len());
        for span in bounds.windows(2) {
            let &[from, to] = span else { continue };
            spans.push(self.ctx.store.email_stats(caller.team.id, id(from), id(to)).await.map_err(unavailable)?);
        }
        Ok(spans)
    }

    /// How many emails were accepted in a span of time.
    pub async fn count_emails(
        &self,
        caller: &Caller,
        since: Option<Time>,
        until: Option<Time>,
    ) -> Result<u64, Problem> {
        let id = |at: Time| EmailId(first_id_at(at));
        // The time in an id is only approximate. Near both ends of the span, each email is compared by its own time.
        let from = since.map_or(EmailId(Uuid::nil()), |at| id(at.plus(ID_TIME_SLACK_MS)));
        let to = until.map_or(EmailId(Uuid::max()), |at| id(at.plus(-ID_TIME_SLACK_MS)));
        let query = EmailQuery { since, until, ..EmailQuery::default() };
        if caller.inbox_restriction.is_some() {
            return self.count_between(caller, (EmailId(Uuid::nil()), EmailId(Uuid::max())), query).await;
        }
        let Some((since, until)) = since.zip(until).filter(|_| from >= to) else {
            let mut count = self.ctx.store.count_emails(caller.team.id, from, to).await.map_err(unavailable)?;
            if let Some(since) = since {
                count += self.count_between(caller, (id(since.plus(-ID_TIME_SLACK_MS)), from), query.clone()).await?;
            }
            if let Some(until) = until {
                count += self.count_between(caller, (to, id(until.plus(ID_TIME_SLACK_MS))), query).await?;
            }
            return Ok(count);
        };
        self.count_between(caller, (id(since.plus(-ID_TIME_SLACK_MS)), id(until.plus(ID_TIME_SLACK_MS))), query).await
    }

    /// Counts the emails that match a query and have ids in a range, one by one.
    async fn count_between(
        &self,
        caller: &Caller,
        (from, to): (EmailId, EmailId),
        mut query: EmailQuery,
    ) -> Result<u64, Problem> {
        (query.before, query.limit) = (Some(to), limits::PAGE_ROWS);
        let mut count = 0;
        loop {
            let page = self.emails(caller, query.clone()).await?;
            count += page.rows.iter().filter(|email| email.id >= from).count() as u64;
            query.before = page.next.filter(|next| *next > from);
            if query.before.is_none() {
                return Ok(count);
            }
        }
    }
}
