//! Reading emails: queries, pages and details.

use crate::{
    handoff::{Attempt, Evidence, HandoffState},
    id::EmailId,
    key::KeyHash,
    outbound::{
        email::{Email, EmailState},
        suppressed_call::SuppressedCall,
    },
    time::Time,
};
use std::collections::BTreeMap;

/// An email with its content and history.
#[derive(Clone, Debug, PartialEq)]
pub struct EmailDetail {
    /// The email.
    pub email: Email,
    /// The packed content. `None` once it was deleted.
    pub body: Option<Vec<u8>>,
    /// Its attempts, in order.
    pub attempts: Vec<Attempt>,
    /// Evidence about the attempts, in the order in which it was recorded.
    pub evidence: Vec<Evidence>,
    /// The latest suppressed calls, newest first.
    pub suppressed_calls: Vec<SuppressedCall>,
}

/// A filter for a list of emails.
#[derive(Clone, Debug, Default)]
pub struct EmailQuery {
    /// In this state.
    pub state: Option<EmailState>,
    /// To this bare address.
    pub to: Option<String>,
    /// From one of these bare addresses.
    pub from: Option<Vec<String>>,
    /// Under this key.
    pub key: Option<KeyHash>,
    /// With an idempotency key of the caller that starts with this. An empty text means any key.
    pub key_prefix: Option<String>,
    /// With calls that were answered with this email instead of a new one.
    pub has_duplicates: bool,
    /// Accepted at or after.
    pub since: Option<Time>,
    /// Accepted before.
    pub until: Option<Time>,
    /// Older than this email.
    pub before: Option<EmailId>,
    /// The maximum number of emails.
    pub limit: usize,
}

impl EmailQuery {
    /// The state that the filter asks for, if few emails are in it. Stores find those by an index instead of a scan.
    pub fn rare_state(&self) -> Option<EmailState> {
        use EmailState as S;
        self.state.filter(|state| {
            matches!(state, S::Held | S::Unknown | S::Failed | S::Bounced | S::Complained | S::Abandoned | S::Cancelled)
        })
    }

    /// Whether an email passes the filter. The page position (`before`, `limit`) is not checked.
    pub fn matches(&self, email: &Email) -> bool {
        let head = &email.head;
        let named = |to: &String| head.to.iter().chain(&head.cc).chain(&head.bcc).any(|address| address == to);
        self.state.is_none_or(|state| email.state() == state)
            && self.to.as_ref().is_none_or(named)
            && self.from.as_ref().is_none_or(|all| all.iter().any(|from| from.eq_ignore_ascii_case(&head.from)))
            && self.key.is_none_or(|key| head.key.as_ref().is_some_and(|name| name.hash(email.team) == key))
            && self.key_prefix.as_ref().is_none_or(|prefix| head.given_key().is_some_and(|key| key.starts_with(prefix)))
            && (!self.has_duplicates || email.suppressed > 0)
            && self.since.is_none_or(|since| head.created_at >= since)
            && self.until.is_none_or(|until| head.created_at < until)
    }
}

/// How many emails were accepted in a span of time, and what became of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmailStats {
    /// Accepted emails.
    pub accepted: u64,
    /// Calls that were answered with one of these emails instead of a new one.
    pub duplicates: u64,
    /// Their handoffs, by current state. An email to several recipients may have several.
    pub handoffs: BTreeMap<HandoffState, u64>,
}

impl EmailStats {
    /// Adds the numbers of another span.
    pub fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.duplicates += other.duplicates;
        for (state, count) in &other.handoffs {
            *self.handoffs.entry(*state).or_default() += count;
        }
    }
}

/// A page, newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultPage<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// The cursor of the next page; `None` at the end. A page shorter than its limit may still have a next page.
    pub next: Option<EmailId>,
}
