//! The ground a careful verb stands on: the keys it locked, the emails behind them, and what it decided about them.
//!
//! Everything is loaded first, decided here without the database, and written at the end. The decisions are the
//! core's; the order in which they are asked is the model's.

use mailonce_core::{
    email::{Email, Guard, Refusal},
    event::NewEvent,
    handoff::{Attempt, Evidence, Handoff},
    id::{EmailId, TeamId},
    key::KeyHash,
    port::store::{Accept, Bound, CommitTime, Once, Operation, Resend, Swept, Wish},
    time::Time,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    control::budget::Counters,
    conversation::talk::Talk,
    row::{KeyRow, Scope, Target},
};

/// See the module's words.
#[derive(Default)]
pub(super) struct Ground {
    /// Says which keys count as forgotten.
    pub time: Arc<CommitTime>,
    /// Every locked key, as it is now.
    pub keys: BTreeMap<Scope, KeyRow>,
    /// Every locked key, as it was read.
    pub read: BTreeMap<Scope, KeyRow>,
    /// The emails behind them.
    pub emails: BTreeMap<EmailId, Email>,
    /// Emails to insert, in order, with their bodies and events.
    pub fresh: Vec<(EmailId, Arc<[u8]>, NewEvent)>,
    /// Emails to update, each with the moment up to which it is swept.
    pub changed: BTreeMap<EmailId, Time>,
    /// Events to tell, in order, after those of the fresh ones.
    pub events: Vec<(TeamId, NewEvent)>,
    /// Attempts to note, in order.
    pub attempts: Vec<(TeamId, EmailId, Attempt)>,
    /// Facts to note, in order.
    pub evidence: Vec<(TeamId, EmailId, Evidence)>,
    /// Bytes to freeze, each for a transport.
    pub wires: Vec<(Scoped, String, Arc<[u8]>)>,
    /// Handoffs to add to emails.
    pub appended: Vec<(Scoped, Handoff)>,
    /// Emails whose body is dropped.
    pub bodiless: Vec<Scoped>,
    /// Emails whose last trace goes.
    pub gone: Vec<Scoped>,
    /// Threads and their messages, and what guards remember.
    pub talk: Talk,
    /// How much of budgets is used.
    pub budgets: Counters,
}

/// An email of a team.
pub(super) type Scoped = (TeamId, EmailId);

impl Ground {
    /// The email, if it is this team's.
    pub(super) fn of_team(&self, team: TeamId, id: EmailId) -> Option<Email> {
        self.emails.get(&id).filter(|email| email.team == team).cloned()
    }

    /// Notes what an email became, and tells of it.
    pub(super) fn save(&mut self, email: &Email, event: NewEvent) {
        self.events.push((email.team, event));
        // What is due already and was not swept yet must stay due.
        self.changed.insert(email.id, Time(i64::MIN));
        self.emails.insert(email.id, email.clone());
    }

    /// Whether anything is to be written at all.
    pub(super) fn is_untouched(&self) -> bool {
        self.keys == self.read
            && self.fresh.is_empty()
            && self.changed.is_empty()
            && self.events.is_empty()
            && self.evidence.is_empty()
            && self.attempts.is_empty()
            && self.talk.is_untouched()
            && self.budgets.is_untouched()
    }

    /// Binds a key to an email, or says what it is bound to.
    pub(super) fn accept(&mut self, wish: Wish, now: Time) -> Accept {
        if let Some(bound) = wish.key.and_then(|key| self.bound(wish.team, key, now)) {
            return Accept::Bound(bound);
        }
        if let Some(exceeded) = self.over_budget(&wish, now) {
            return Accept::OverBudget(exceeded);
        }
        self.charge_budgets(&wish);
        let overlaps = self.overlaps(&wish, now).then_some(Guard::Overlaps);
        let alike = self.looks_duplicate(&wish, now).then_some(Guard::LooksDuplicate);
        let guard = overlaps.or(wish.care.hold).or(alike);
        let likeness = wish.care.likeness.clone();
        let (key, slots) = (wish.key, wish.slots.clone());
        let bind = key.map_or(0, |key| self.keys.get(&(wish.team, key)).map_or(0, |row| row.bind) + 1);
        let (email, body) = wish.become_email(bind, guard, now);
        self.bind(&email, key, &slots, now);
        if let Some(likeness) = likeness {
            self.note_likeness(email.team, likeness, email.id, now);
        }
        self.fresh.push((email.id, body, email.accepted_event()));
        self.emails.insert(email.id, email.clone());
        Accept::First(email)
    }

    fn bind(&mut self, email: &Email, key: Option<KeyHash>, slots: &[KeyHash], now: Time) {
        for slot in slots.iter().copied().chain(email.head.earlier_slots(email.team)) {
            let taken = self.keys.get(&(email.team, slot)).and_then(|row| row.slot);
            if !taken.is_some_and(|id| self.occupies(id, now)) {
                self.keys.entry((email.team, slot)).or_default().slot = Some(email.id);
            }
        }
        if let Some(key) = key {
            let row = self.keys.entry((email.team, key)).or_default();
            row.bind = email.bind;
            row.target = Some(Target::Email(email.id));
            (row.forgotten_at, row.tombstone_until) = (None, None);
        }
    }

    /// What a key is bound to and remembered for.
    pub(super) fn bound(&self, team: TeamId, key: KeyHash, now: Time) -> Option<Bound> {
        let row = self.keys.get(&(team, key))?;
        bound_to(row.target.as_ref(), |id| self.emails.get(&id), self.time.forget_by(now))
    }

    /// Whether the same intent already went, or is going, to some of these recipients.
    fn overlaps(&self, wish: &Wish, now: Time) -> bool {
        let stands_for = |key: KeyHash| {
            let row = self.keys.get(&(wish.team, key));
            row.and_then(|row| row.slot).is_some_and(|id| self.occupies(id, now))
        };
        let bound_alone = |key: KeyHash| matches!(self.bound(wish.team, key, now), Some(Bound::Email(email)) if self.occupies(email.id, now));
        wish.key.is_some_and(stands_for) || wish.slots.iter().any(|slot| stands_for(*slot) || bound_alone(*slot))
    }

    fn occupies(&self, id: EmailId, now: Time) -> bool {
        self.emails.get(&id).is_some_and(|email| email.occupies_slots(self.time.forget_by(now)))
    }

    /// The answer to an operation whose key is bound already. `None` when it is free.
    pub(super) fn repeat_of<T>(&self, operation: &Operation, now: Time) -> Option<Once<T>> {
        match self.bound(operation.team, operation.key, now)? {
            Bound::Operation { digest } if digest == operation.digest => {
                let row = self.keys.get(&(operation.team, operation.key));
                let answer = row.and_then(|row| match &row.target {
                    Some(Target::Operation { answer, .. }) => Some(answer.clone()),
                    _ => None,
                });
                Some(Once::Repeated(answer.unwrap_or_default()))
            }
            other => Some(Once::Mismatch(other)),
        }
    }

    /// Binds the free key of an operation that was done.
    pub(super) fn bind_operation(&mut self, operation: &Operation) {
        let row = self.keys.entry((operation.team, operation.key)).or_default();
        row.bind += 1;
        (row.forgotten_at, row.tombstone_until) = (None, None);
        row.target = Some(Target::Operation {
            digest: operation.digest,
            answer: operation.answer.clone(),
            expires_at: operation.expires_at,
        });
    }

    /// Makes the next version of an email, once.
    /// `replaced` says that another email answered its message since.
    pub(super) fn resend(
        &mut self,
        wish: Wish,
        operation: Option<&Operation>,
        replaced: bool,
        now: Time,
    ) -> Once<Resend> {
        let Some(mut previous) = wish.head.resend_of.and_then(|id| self.of_team(wish.team, id)) else {
            return Once::Done(Resend::Missing);
        };
        if let Some(answer) = operation.and_then(|operation| self.repeat_of(operation, now)) {
            return answer;
        }
        let answer = self.next_version(&mut previous, wish, replaced, now);
        if let (Some(operation), Once::Done(Resend::First(_) | Resend::Repeated(_))) = (operation, &answer) {
            self.bind_operation(operation);
        }
        answer
    }

    fn next_version(&mut self, previous: &mut Email, wish: Wish, replaced: bool, now: Time) -> Once<Resend> {
        if let Some(email) = previous.resent_as.and_then(|id| self.of_team(wish.team, id)) {
            return Once::Done(Resend::Repeated(email));
        }
        let event = match previous.make_way(wish.care.takes_back, now) {
            Ok(event) => event,
            Err(refusal) => return Once::Done(Resend::Refused(refusal, previous.clone())),
        };
        if let Some(exceeded) = self.over_budget(&wish, now) {
            return Once::Done(Resend::OverBudget(exceeded));
        }
        event.into_iter().for_each(|event| self.save(previous, event));
        if replaced {
            return Once::Done(Resend::Refused(Refusal::Replaced, previous.clone()));
        }
        let answer = match self.accept(wish, now) {
            Accept::First(email) => Resend::First(email),
            Accept::Bound(Bound::Email(email)) => Resend::Repeated(email),
            Accept::Bound(other) => return Once::Mismatch(other),
            Accept::OverBudget(exceeded) => return Once::Done(Resend::OverBudget(exceeded)),
        };
        if let Resend::First(email) | Resend::Repeated(email) = &answer {
            let event = previous.mark_resent(email.id, now);
            self.save(previous, event);
        }
        Once::Done(answer)
    }

    /// Forgets what is due to be forgotten of one email.
    pub(super) fn sweep(&mut self, email: &Email, now: Time, swept: &mut Swept) {
        let scoped = (email.team, email.id);
        if email.is_forgotten(now) && self.forget(email, email.expires_at().unwrap_or(now)) {
            swept.keys += 1;
        }
        if email.body_until().is_some_and(|at| at <= now) {
            self.bodiless.push(scoped);
        }
        if email.traces_until().is_some_and(|at| at <= now) {
            if self.bury(email) {
                swept.tombstones += 1;
            }
            self.gone.push(scoped);
        } else {
            self.changed.insert(email.id, now);
        }
    }

    /// Lets go of an email's key and slots.
    fn forget(&mut self, email: &Email, at: Time) -> bool {
        for slot in email.head.all_slots(email.team) {
            if let Some(row) = self.keys.get_mut(&(email.team, slot))
                && row.slot == Some(email.id)
            {
                row.slot = None;
            }
        }
        let Some(key) = email.head.key.as_ref().map(|name| name.hash(email.team)) else {
            return false;
        };
        let Some(row) = self.keys.get_mut(&(email.team, key)) else {
            return false;
        };
        if row.target != Some(Target::Email(email.id)) {
            return false;
        }
        row.target = None;
        row.forgotten_at = Some(at);
        true
    }

    /// Removes the tombstone of an email's key. The row stays while another email stands for its recipient.
    fn bury(&mut self, email: &Email) -> bool {
        let Some(key) = email.head.key.as_ref().map(|name| name.hash(email.team)) else {
            return false;
        };
        let Some(row) = self.keys.get_mut(&(email.team, key)) else {
            return false;
        };
        let stands = row.target.is_none() && row.bind == email.bind;
        if stands {
            *row = KeyRow { slot: row.slot, ..KeyRow::default() };
        }
        stands
    }
}

/// What a target comes to at `now`, when its email can be looked up.
pub(super) fn bound_to<'a>(
    target: Option<&Target>,
    email: impl FnOnce(EmailId) -> Option<&'a Email>,
    now: Time,
) -> Option<Bound> {
    match target? {
        Target::Email(id) => {
            let email = email(*id)?;
            (!email.is_forgotten(now)).then(|| Bound::Email(email.clone()))
        }
        Target::Operation { digest, expires_at, .. } => {
            (*expires_at > now).then_some(Bound::Operation { digest: *digest })
        }
    }
}

/// The scopes that an email's own row in the ledger touches: its key and its slots.
pub(super) fn scopes_of(email: &Email) -> BTreeSet<Scope> {
    let key = email.head.key.as_ref().map(|name| name.hash(email.team));
    key.into_iter().chain(email.head.all_slots(email.team)).map(|hash| (email.team, hash)).collect()
}

/// The scopes of a wish: its key and its slots.
pub(super) fn scopes_of_wish(wish: &Wish) -> impl Iterator<Item = Scope> + '_ {
    let earlier = wish.head.earlier_slots(wish.team);
    wish.key.into_iter().chain(wish.slots.iter().copied()).chain(earlier).map(|hash| (wish.team, hash))
}
