//! Pages by `after` and `before`: the id of a row, and the rows on either side of it in a list that is newest first.

use mailonce_core::{
    email::Email,
    id::EmailId,
    limits,
    port::store::EmailQuery,
    problem::{Code, Problem},
    time::Time,
};
use mailonce_engine::{Caller, Engine};
use serde::Deserialize;
use uuid::Uuid;

/// Rows of a page when nobody says.
const USUAL: usize = 20;
/// Rows of a short list that are looked at: lists of things that a team has few of.
pub(super) const FEW: usize = 1_000;

/// Which page, as it was asked for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Query {
    pub(super) limit: Option<String>,
    pub(super) after: Option<String>,
    pub(super) before: Option<String>,
}

/// Where a page lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    First,
    After(Uuid),
    Before(Uuid),
}

/// Which page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) place: Place,
    pub(super) limit: usize,
}

/// Rows, and whether there are more in the direction that was asked for.
#[derive(Debug)]
pub(super) struct Rows<T> {
    pub(super) rows: Vec<T>,
    pub(super) more: bool,
}

fn fault(field: &str, detail: &str) -> Problem {
    Problem::field(Code::InvalidQuery, field, detail)
}

impl Query {
    pub(super) fn read(&self) -> Result<Wish, Problem> {
        let limit = match self.limit.as_deref() {
            None => USUAL,
            Some(text) => {
                let limit = text.parse().ok().filter(|limit| (1..=limits::PAGE_ROWS).contains(limit));
                limit.ok_or_else(|| fault("limit", "The `limit` must be a number between 1 and 100."))?
            }
        };
        let id = |field: &str, text: &str| {
            text.parse().map_err(|_not_an_id| fault(field, &format!("The `{field}` must be a valid UUID.")))
        };
        let place = match (self.after.as_deref(), self.before.as_deref()) {
            (None, None) => Place::First,
            (Some(after), None) => Place::After(id("after", after)?),
            (None, Some(before)) => Place::Before(id("before", before)?),
            (Some(_), Some(_)) => return Err(fault("after", "Only one of `after` and `before` can be given.")),
        };
        Ok(Wish { place, limit })
    }
}

impl Wish {
    /// The page of a whole list, newest first.
    pub(super) fn of<T>(self, mut all: Vec<T>, id: impl Fn(&T) -> Uuid) -> Rows<T> {
        let Self { place, limit } = self;
        match place {
            Place::First => {}
            Place::After(mark) => all.retain(|row| id(row) < mark),
            Place::Before(mark) => {
                all.retain(|row| id(row) > mark);
                let more = all.len() > limit;
                all.drain(..all.len().saturating_sub(limit));
                return Rows { rows: all, more };
            }
        }
        let more = all.len() > limit;
        all.truncate(limit);
        Rows { rows: all, more }
    }
}

impl Wish {
    /// The page of a whole list that has an order of its own. A row that is not there has nothing beside it.
    pub(super) fn along<T>(self, mut all: Vec<T>, id: impl Fn(&T) -> Uuid) -> Rows<T> {
        let at = |mark: Uuid| all.iter().position(|row| id(row) == mark);
        let (from, to) = match self.place {
            Place::First => (0, all.len()),
            Place::After(mark) => (at(mark).map_or(all.len(), |at| at + 1), all.len()),
            Place::Before(mark) => (0, at(mark).unwrap_or_default()),
        };
        let more = to - from > self.limit;
        let backwards = matches!(self.place, Place::Before(_));
        let start = if backwards { to.saturating_sub(self.limit).max(from) } else { from };
        let end = to.min(start + self.limit);
        let rows = all.drain(start..end).collect();
        Rows { rows, more }
    }
}

/// The instant that an id was made at.
fn made_at(id: Uuid) -> Time {
    Time(mailonce_core::id::ordered_bits(id) >> 12)
}

/// Emails, newest first.
pub(super) async fn emails(engine: &Engine, caller: &Caller, wish: Wish) -> Result<Rows<Email>, Problem> {
    let before = match wish.place {
        Place::First => None,
        Place::After(mark) => Some(EmailId(mark)),
        Place::Before(mark) => return newer(engine, caller, mark, wish.limit).await,
    };
    // One more than asked for says whether there are more.
    let page = engine.emails(caller, EmailQuery { before, limit: wish.limit + 1, ..EmailQuery::default() }).await?;
    let (mut rows, more) = (page.rows, page.next.is_some());
    let more = more || rows.len() > wish.limit;
    rows.truncate(wish.limit);
    Ok(Rows { rows, more })
}

/// The rows just above one. The list is only read downwards, so a window above the row is widened until it holds
/// enough of them.
async fn newer(engine: &Engine, caller: &Caller, mark: Uuid, limit: usize) -> Result<Rows<Email>, Problem> {
    let (since, now) = (made_at(mark), engine.now());
    let mut window = 1_000;
    loop {
        let until = since.plus(window);
        let mut rows = between(engine, caller, since, until).await?;
        rows.retain(|email| email.id.0 > mark);
        if rows.len() > limit || until > now {
            let more = rows.len() > limit;
            rows.drain(..rows.len().saturating_sub(limit));
            return Ok(Rows { rows, more });
        }
        window *= 4;
    }
}

/// Every email of a span of time, newest first.
async fn between(engine: &Engine, caller: &Caller, since: Time, until: Time) -> Result<Vec<Email>, Problem> {
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
            return Err(fault("before", "Too many emails follow this one; page with `after` from the newest."));
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
            let rows = Wish { place, limit }.of(all.clone(), |id| *id);
            (rows.rows.iter().map(Uuid::as_u128).collect::<Vec<_>>(), rows.more)
        };
        let three = Uuid::from_u128(3);
        assert_eq!(page(Place::First, 2), (vec![5, 4], true));
        assert_eq!(page(Place::After(three), 2), (vec![2, 1], false));
        assert_eq!(page(Place::Before(three), 2), (vec![5, 4], false));
        assert_eq!(page(Place::Before(Uuid::from_u128(1)), 2), (vec![3, 2], true));
        assert_eq!(page(Place::After(Uuid::from_u128(1)), 2), (vec![], false));
    }

    #[test]
    fn pages_are_asked_for_in_one_way_at_a_time() {
        let text = |text: &str| Some(text.to_owned());
        let id = Uuid::from_u128(7).to_string();
        let good = Query { limit: text("100"), after: text(&id), before: None }.read().unwrap();
        assert_eq!((good.limit, good.place), (100, Place::After(Uuid::from_u128(7))));
        for (limit, after, before) in [
            (text("0"), None, None),
            (text("101"), None, None),
            (text("x"), None, None),
            (None, text("x"), None),
            (None, text(&id), text(&id)),
        ] {
            assert!(Query { limit, after, before }.read().is_err());
        }
    }
}
