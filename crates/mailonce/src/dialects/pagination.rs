//! Cursor pagination with `after` and `before`: the id of a row selects the rows on either side, newest first.

use mailonce_core::{
    id::EmailId,
    limits,
    outbound::{email::Email, email_query::EmailQuery},
    problem::Problem,
    time::Time,
};
use mailonce_engine::{Caller, Engine};
use serde::Deserialize;
use uuid::Uuid;

/// Default number of rows per page.
const DEFAULT_LIMIT: usize = 20;
/// Maximum rows read for lists that are short for every team, such as domains or inboxes.
pub(super) const MAX_SHORT_LIST: usize = 1_000;

/// The pagination parameters of a request, not parsed yet.
#[derive(Debug, Default, Deserialize)]
pub(super) struct DialectPageQuery {
    pub(super) limit: Option<String>,
    pub(super) after: Option<String>,
    pub(super) before: Option<String>,
}

/// The position of a page: the first one, or next to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PagePosition {
    First,
    After(Uuid),
    Before(Uuid),
}

/// A parsed request for a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageRequest {
    pub(super) position: PagePosition,
    pub(super) limit: usize,
}

/// Rows, and whether there are more in the requested direction.
#[derive(Debug)]
pub(super) struct PageRows<T> {
    pub(super) rows: Vec<T>,
    pub(super) has_more: bool,
}

impl DialectPageQuery {
    pub(super) fn parse(&self) -> Result<PageRequest, Problem> {
        let limit = match self.limit.as_deref() {
            None => DEFAULT_LIMIT,
            Some(text) => {
                let limit = text.parse().ok().filter(|limit| (1..=limits::PAGE_ROWS).contains(limit));
                limit
                    .ok_or_else(|| Problem::invalid_query("limit", "The `limit` must be a number between 1 and 100."))?
            }
        };
        let id = |field: &str, text: &str| {
            text.parse()
                .map_err(|_not_an_id| Problem::invalid_query(field, format!("The `{field}` must be a valid UUID.")))
        };
        let position = match (self.after.as_deref(), self.before.as_deref()) {
            (None, None) => PagePosition::First,
            (Some(after), None) => PagePosition::After(id("after", after)?),
            (None, Some(before)) => PagePosition::Before(id("before", before)?),
            (Some(_), Some(_)) => return Err(Problem::invalid_query("after", "Use only one of `after` and `before`.")),
        };
        Ok(PageRequest { position, limit })
    }
}

impl PageRequest {
    /// Cuts the page out of a complete list that is sorted newest first.
    pub(super) fn slice_newest_first<T>(self, mut all: Vec<T>, id: impl Fn(&T) -> Uuid) -> PageRows<T> {
        let Self { position, limit } = self;
        match position {
            PagePosition::First => {}
            PagePosition::After(cursor) => all.retain(|row| id(row) < cursor),
            PagePosition::Before(cursor) => {
                all.retain(|row| id(row) > cursor);
                let more = all.len() > limit;
                all.drain(..all.len().saturating_sub(limit));
                return PageRows { rows: all, has_more: more };
            }
        }
        let more = all.len() > limit;
        all.truncate(limit);
        PageRows { rows: all, has_more: more }
    }
}

impl PageRequest {
    /// Cuts the page out of a complete list in any order. The page is empty if the cursor row is not in the list.
    pub(super) fn slice_in_order<T>(self, mut all: Vec<T>, id: impl Fn(&T) -> Uuid) -> PageRows<T> {
        let at = |cursor: Uuid| all.iter().position(|row| id(row) == cursor);
        let (from, to) = match self.position {
            PagePosition::First => (0, all.len()),
            PagePosition::After(cursor) => (at(cursor).map_or(all.len(), |at| at + 1), all.len()),
            PagePosition::Before(cursor) => (0, at(cursor).unwrap_or_default()),
        };
        let more = to - from > self.limit;
        let backwards = matches!(self.position, PagePosition::Before(_));
        let start = if backwards { to.saturating_sub(self.limit).max(from) } else { from };
        let end = to.min(start + self.limit);
        let rows = all.drain(start..end).collect();
        PageRows { rows, has_more: more }
    }
}

/// The creation time that an id holds.
fn created_at(id: Uuid) -> Time {
    Time(mailonce_core::id::ordered_bits(id) >> 12)
}

/// A page of emails, newest first.
pub(super) async fn emails(engine: &Engine, caller: &Caller, request: PageRequest) -> Result<PageRows<Email>, Problem> {
    let before = match request.position {
        PagePosition::First => None,
        PagePosition::After(cursor) => Some(EmailId(cursor)),
        PagePosition::Before(cursor) => return emails_newer_than(engine, caller, cursor, request.limit).await,
    };
    // One extra row shows whether there are more.
    let page = engine
        .outbound
        .emails(caller, EmailQuery { before, limit: request.limit + 1, ..EmailQuery::default() })
        .await?;
    let (mut rows, more) = (page.rows, page.next.is_some());
    let more = more || rows.len() > request.limit;
    rows.truncate(request.limit);
    Ok(PageRows { rows, has_more: more })
}

/// The emails just newer than the cursor. The store reads only from new to old, so the time window after the cursor is
/// widened until it holds enough emails.
async fn emails_newer_than(
    engine: &Engine,
    caller: &Caller,
    cursor: Uuid,
    limit: usize,
) -> Result<PageRows<Email>, Problem> {
    let (since, now) = (created_at(cursor), engine.ctx.now());
    let mut window = 1_000;
    loop {
        let until = since.plus(window);
        let mut rows = emails_between(engine, caller, since, until).await?;
        rows.retain(|email| email.id.0 > cursor);
        if rows.len() > limit || until > now {
            let more = rows.len() > limit;
            rows.drain(..rows.len().saturating_sub(limit));
            return Ok(PageRows { rows, has_more: more });
        }
        window *= 4;
    }
}

/// All emails of a time range, newest first.
async fn emails_between(engine: &Engine, caller: &Caller, since: Time, until: Time) -> Result<Vec<Email>, Problem> {
    let mut query =
        EmailQuery { since: Some(since), until: Some(until), limit: limits::PAGE_ROWS, ..EmailQuery::default() };
    let mut all = Vec::new();
    loop {
        let page = engine.outbound.emails(caller, query.clone()).await?;
        all.extend(page.rows);
        query.before = page.next;
        if page.next.is_none() {
            return Ok(all);
        }
        if all.len() > limits::SCAN_ROWS {
            return Err(Problem::invalid_query(
                "before",
                "Too many emails are newer than this one; start with the newest and page with `after`.",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_lie_on_either_side_of_a_row() {
        let all: Vec<Uuid> = (1..=5).rev().map(Uuid::from_u128).collect();
        let page = |position, limit| {
            let rows = PageRequest { position, limit }.slice_newest_first(all.clone(), |id| *id);
            (rows.rows.iter().map(Uuid::as_u128).collect::<Vec<_>>(), rows.has_more)
        };
        let three = Uuid::from_u128(3);
        assert_eq!(page(PagePosition::First, 2), (vec![5, 4], true));
        assert_eq!(page(PagePosition::After(three), 2), (vec![2, 1], false));
        assert_eq!(page(PagePosition::Before(three), 2), (vec![5, 4], false));
        assert_eq!(page(PagePosition::Before(Uuid::from_u128(1)), 2), (vec![3, 2], true));
        assert_eq!(page(PagePosition::After(Uuid::from_u128(1)), 2), (vec![], false));
    }

    #[test]
    fn pages_are_asked_for_in_one_way_at_a_time() {
        let text = |text: &str| Some(text.to_owned());
        let id = Uuid::from_u128(7).to_string();
        let good = DialectPageQuery { limit: text("100"), after: text(&id), before: None }.parse().unwrap();
        assert_eq!((good.limit, good.position), (100, PagePosition::After(Uuid::from_u128(7))));
        for (limit, after, before) in [
            (text("0"), None, None),
            (text("101"), None, None),
            (text("x"), None, None),
            (None, text("x"), None),
            (None, text(&id), text(&id)),
        ] {
            assert!(DialectPageQuery { limit, after, before }.parse().is_err());
        }
    }
}
