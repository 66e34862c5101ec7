//! Pages by `after` and `before`: the id of a row, and the rows on either side of it in a list that is newest first.

use mailonce_core::{
    id::EmailId,
    limits,
    outbound::{email::Email, email_query::EmailQuery},
    problem::{Code, Problem},
    time::Time,
};
use mailonce_engine::{Caller, Engine};
use serde::Deserialize;
use uuid::Uuid;

/// Rows of a page when nobody says.
const DEFAULT_LIMIT: usize = 20;
/// Rows of a short list that are looked at: lists of things that a team has few of.
pub(super) const MAX_SHORT_LIST: usize = 1_000;

/// Which page, as it was asked for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct DialectPageQuery {
    pub(super) limit: Option<String>,
    pub(super) after: Option<String>,
    pub(super) before: Option<String>,
}

/// Where a page lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PagePosition {
    First,
    After(Uuid),
    Before(Uuid),
}

/// Which page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageRequest {
    pub(super) position: PagePosition,
    pub(super) limit: usize,
}

/// Rows, and whether there are more in the direction that was asked for.
#[derive(Debug)]
pub(super) struct PageRows<T> {
    pub(super) rows: Vec<T>,
    pub(super) has_more: bool,
}

fn invalid_query(field: &str, detail: &str) -> Problem {
    Problem::for_field(Code::InvalidQuery, field, detail)
}

impl DialectPageQuery {
    pub(super) fn parse(&self) -> Result<PageRequest, Problem> {
        let limit = match self.limit.as_deref() {
            None => DEFAULT_LIMIT,
            Some(text) => {
                let limit = text.parse().ok().filter(|limit| (1..=limits::PAGE_ROWS).contains(limit));
                limit.ok_or_else(|| invalid_query("limit", "The `limit` must be a number between 1 and 100."))?
            }
        };
        let id = |field: &str, text: &str| {
            text.parse().map_err(|_not_an_id| invalid_query(field, &format!("The `{field}` must be a valid UUID.")))
        };
        let place = match (self.after.as_deref(), self.before.as_deref()) {
            (None, None) => PagePosition::First,
            (Some(after), None) => PagePosition::After(id("after", after)?),
            (None, Some(before)) => PagePosition::Before(id("before", before)?),
            (Some(_), Some(_)) => return Err(invalid_query("after", "Only one of `after` and `before` can be given.")),
        };
        Ok(PageRequest { position: place, limit })
    }
}

impl PageRequest {
    /// The page of a whole list, newest first.
    pub(super) fn slice_newest_first<T>(self, mut all: Vec<T>, id: impl Fn(&T) -> Uuid) -> PageRows<T> {
        let Self { position: place, limit } = self;
        match place {
            PagePosition::First => {}
            PagePosition::After(mark) => all.retain(|row| id(row) < mark),
            PagePosition::Before(mark) => {
                all.retain(|row| id(row) > mark);
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
    /// The page of a whole list that has an order of its own. A row that is not there has nothing beside it.
    pub(super) fn slice_in_order<T>(self, mut all: Vec<T>, id: impl Fn(&T) -> Uuid) -> PageRows<T> {
        let at = |mark: Uuid| all.iter().position(|row| id(row) == mark);
        let (from, to) = match self.position {
            PagePosition::First => (0, all.len()),
            PagePosition::After(mark) => (at(mark).map_or(all.len(), |at| at + 1), all.len()),
            PagePosition::Before(mark) => (0, at(mark).unwrap_or_default()),
        };
        let more = to - from > self.limit;
        let backwards = matches!(self.position, PagePosition::Before(_));
        let start = if backwards { to.saturating_sub(self.limit).max(from) } else { from };
        let end = to.min(start + self.limit);
        let rows = all.drain(start..end).collect();
        PageRows { rows, has_more: more }
    }
}

/// The instant that an id was made at.
fn created_at(id: Uuid) -> Time {
    Time(mailonce_core::id::ordered_bits(id) >> 12)
}

/// Emails, newest first.
pub(super) async fn emails(engine: &Engine, caller: &Caller, wish: PageRequest) -> Result<PageRows<Email>, Problem> {
    let before = match wish.position {
        PagePosition::First => None,
        PagePosition::After(mark) => Some(EmailId(mark)),
        PagePosition::Before(mark) => return emails_newer_than(engine, caller, mark, wish.limit).await,
    };
    // One more than asked for says whether there are more.
    let page = engine.emails(caller, EmailQuery { before, limit: wish.limit + 1, ..EmailQuery::default() }).await?;
    let (mut rows, more) = (page.rows, page.next.is_some());
    let more = more || rows.len() > wish.limit;
    rows.truncate(wish.limit);
    Ok(PageRows { rows, has_more: more })
}

/// The rows just above one. The list is only read downwards, so a window above the row is widened until it holds
/// enough of them.
async fn emails_newer_than(
    engine: &Engine,
    caller: &Caller,
    mark: Uuid,
    limit: usize,
) -> Result<PageRows<Email>, Problem> {
    let (since, now) = (created_at(mark), engine.now());
    let mut window = 1_000;
    loop {
        let until = since.plus(window);
        let mut rows = emails_between(engine, caller, since, until).await?;
        rows.retain(|email| email.id.0 > mark);
        if rows.len() > limit || until > now {
            let more = rows.len() > limit;
            rows.drain(..rows.len().saturating_sub(limit));
            return Ok(PageRows { rows, has_more: more });
        }
        window *= 4;
    }
}

/// Every email of a span of time, newest first.
async fn emails_between(engine: &Engine, caller: &Caller, since: Time, until: Time) -> Result<Vec<Email>, Problem> {
    let mut query =
        EmailQuery { since: Some(since), until: Some(until), limit: limits::PAGE_ROWS, ..EmailQuery::default() };
    let mut all = Vec::new();
    loop {
        let page = engine.emails(caller, query.clone()).await?;
        all.extend(page.rows);
        query.before = page.next;
        if page.next.is_none() {
            return Ok(all);
        }
        if all.len() > limits::SCAN_ROWS {
            return Err(invalid_query("before", "Too many emails follow this one; page with `after` from the newest."));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_lie_on_either_side_of_a_row() {
        let all: Vec<Uuid> = (1..=5).rev().map(Uuid::from_u128).collect();
        let page = |place, limit| {
            let rows = PageRequest { position: place, limit }.slice_newest_first(all.clone(), |id| *id);
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
