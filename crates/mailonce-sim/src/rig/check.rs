//! The judge: pure functions from what the rig was told and what the server shows to what was broken.

use super::history::{Call, End, History};
use super::ledger::{Ledger, Row};
use super::wish::Wish;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// A promise that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// An answered email is not there any more.
    Lost,
    /// One key was answered with different emails.
    TwoIds,
    /// More than one call was told that it made the email.
    TwoFirsts,
    /// More than one email exists for one wish, or for one item of it.
    Duplicated,
    /// Two emails have the same key.
    SharedKey,
    /// An item of a batch was answered with the email of another item.
    OutOfOrder,
    /// Some items of a batch exist and some do not.
    Torn,
    /// An email that nobody asked for.
    Unasked,
    /// An answer that is neither a `2xx` nor a `503`.
    Refusal,
    /// A wish that was asked for again and again, and never answered.
    Unanswered,
    /// The numbers of the events do not go 1, 2, 3 …
    Gap,
    /// An email does not have exactly one `email.accepted` or `email.held`.
    Births,
    /// An email was told of before it was accepted, or handed over twice.
    Told,
    /// Events about an email that is not there.
    Ghost,
    /// An event that was read before reads differently now, or is gone.
    Rewritten,
}

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Which one.
    pub rule: Rule,
    /// The wish, recipient, key, id or number that it is about.
    pub about: String,
    /// What was found.
    pub found: String,
}

impl Violation {
    fn new(rule: Rule, about: impl ToString, found: impl Into<String>) -> Self {
        Self { rule, about: about.to_string(), found: found.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}: {}", self.rule, self.about, self.found)
    }
}

/// What must be so at any time: nothing lost, nothing twice, nothing torn.
pub fn check(history: &History, ledger: &Ledger) -> Vec<Violation> {
    let wishes = history.by_wish();
    let mut found = Vec::new();
    check_answers(&wishes, &mut found);
    check_emails(&wishes, ledger, &mut found);
    check_slots(&wishes, &ledger.emails, &mut found);
    found.sort();
    found.dedup();
    found
}

/// What must be so in the end, when every wish was asked for once more: all that, and every wish was answered, and
/// the events tell the same story.
pub fn check_settled(history: &History, ledger: &Ledger) -> Vec<Violation> {
    let mut found = check(history, ledger);
    let unanswered = |wish: &Wish| Violation::new(Rule::Unanswered, wish, "no 2xx");
    found.extend(history.open().iter().map(unanswered));
    check_events(ledger, &mut found);
    found.sort();
    found.dedup();
    found
}

/// What the answers alone must agree on.
fn check_answers(wishes: &BTreeMap<Wish, Vec<&Call>>, found: &mut Vec<Violation>) {
    for (wish, calls) in wishes {
        let (mut ids, mut firsts) = (BTreeSet::new(), 0);
        for call in calls {
            match &call.end {
                End::Ok { first, ids: told } => {
                    ids.insert(told.clone());
                    firsts += usize::from(*first);
                }
                // Could not tell; whether it happened is as open as without an answer.
                End::Unknown | End::Refused { status: 503, .. } => {}
                End::Refused { status, code } => {
                    found.push(Violation::new(Rule::Refusal, wish, format!("{status} {code}")));
                }
            }
        }
        if ids.len() > 1 {
            found.push(Violation::new(Rule::TwoIds, wish, format!("{ids:?}")));
        }
        if firsts > 1 {
            found.push(Violation::new(Rule::TwoFirsts, wish, format!("{firsts} times 202")));
        }
    }
}

/// Every answered id exists, and is the email of its own place.
fn check_emails(wishes: &BTreeMap<Wish, Vec<&Call>>, ledger: &Ledger, found: &mut Vec<Violation>) {
    let by_id: HashMap<&str, &Row> = ledger.emails.iter().map(|row| (row.id.as_str(), row)).collect();
    for (wish, calls) in wishes {
        let slots = wish.slots();
        let answered = calls.iter().filter_map(|call| match &call.end {
            End::Ok { ids, .. } => Some(ids),
            _ => None,
        });
        for (id, slot) in answered.flat_map(|ids| ids.iter().zip(&slots)) {
            match by_id.get(id.as_str()) {
                None => found.push(Violation::new(Rule::Lost, slot, id)),
                Some(row) if row.to != *slot => {
                    found.push(Violation::new(Rule::OutOfOrder, slot, format!("{id} is to {}", row.to)));
                }
                Some(_) => {}
            }
        }
    }
}

/// Every email was asked for, and is the only one of its kind; a batch is there as a whole or not at all.
fn check_slots(wishes: &BTreeMap<Wish, Vec<&Call>>, emails: &[Row], found: &mut Vec<Violation>) {
    let mut by_slot: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut by_key: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut items: BTreeMap<Wish, BTreeSet<&str>> = BTreeMap::new();
    for row in emails {
        by_slot.entry(&row.to).or_default().push(row.id.clone());
        by_key.entry(&row.key).or_default().push(row.id.clone());
        match Wish::of_slot(&row.to).filter(|wish| wishes.contains_key(wish)) {
            Some(wish) => drop(items.entry(wish).or_default().insert(&row.to)),
            None => found.push(Violation::new(Rule::Unasked, &row.to, &row.id)),
        }
    }
    for (slot, ids) in by_slot.into_iter().filter(|(_, ids)| ids.len() > 1) {
        found.push(Violation::new(Rule::Duplicated, slot, ids.join(" ")));
    }
    for (key, ids) in by_key.into_iter().filter(|(_, ids)| ids.len() > 1) {
        found.push(Violation::new(Rule::SharedKey, key, ids.join(" ")));
    }
    for (wish, slots) in items {
        if slots.len() != wish.size() {
            let (some, all) = (slots.len(), wish.size());
            found.push(Violation::new(Rule::Torn, wish, format!("{some} of {all} items")));
        }
    }
}

/// The events are numbered without gaps, and tell of each email's acceptance once and before anything else.
fn check_events(ledger: &Ledger, found: &mut Vec<Violation>) {
    for (expected, event) in (1..).zip(&ledger.events) {
        if event.seq != expected {
            found.push(Violation::new(Rule::Gap, expected, format!("{} stands there", event.seq)));
            break;
        }
    }
    let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for event in ledger.events.iter().filter(|event| event.kind.starts_with("email.")) {
        kinds.entry(&event.about).or_default().push(&event.kind);
    }
    let born = |kind: &&str| matches!(*kind, "email.accepted" | "email.held");
    for row in &ledger.emails {
        let told = kinds.remove(row.id.as_str()).unwrap_or_default();
        let count = told.iter().copied().filter(|kind| born(kind)).count();
        if count != 1 {
            found.push(Violation::new(Rule::Births, &row.id, format!("{count} times")));
        }
        let sent = told.iter().filter(|kind| **kind == "email.sent").count();
        if sent > 1 || told.first().is_some_and(|kind| !born(kind)) {
            found.push(Violation::new(Rule::Told, &row.id, told.join(" ")));
        }
    }
    for (id, told) in kinds {
        found.push(Violation::new(Rule::Ghost, id, told.join(" ")));
    }
}

/// What was read of the events before must read the same now.
pub fn check_reread(before: &Ledger, now: &Ledger) -> Vec<Violation> {
    let mut found = Vec::new();
    for (index, event) in before.events.iter().enumerate() {
        if now.events.get(index) != Some(event) {
            let now = now.events.get(index);
            found.push(Violation::new(Rule::Rewritten, event.seq, format!("{event:?} is now {now:?}")));
        }
    }
    found
}
