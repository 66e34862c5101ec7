//! Accepting: who is the first of a key.

use mailonce_core::{
    email::{Email, Guard, Refusal},
    id::{EmailId, TeamId},
    key::KeyHash,
    mutant,
    port::store::{Accept, Bound, Once, Operation, Resend, Wish},
    time::Time,
};

use super::{Target, World, ordered_bits};

impl World {
    /// Binds a key to an email, or says what it is bound to.
    pub(super) fn accept(&mut self, wish: Wish, now: Time) -> Accept {
        let bound = wish.key.and_then(|key| self.bound(wish.team, key, now));
        if let Some(bound) = bound.filter(|_| !mutant!("key-ignored")) {
            return Accept::Bound(bound);
        }
        if let Some(exceeded) = self.over_budget(&wish, now) {
            return Accept::OverBudget(exceeded);
        }
        self.charge_budgets(&wish);
        let overlaps = self.overlaps(&wish, now) && !mutant!("overlap-ignored");
        let alike = self.looks_duplicate(&wish, now) && !mutant!("likeness-ignored");
        let guard = overlaps.then_some(Guard::Overlaps).or(wish.care.hold);
        let guard = guard.or(alike.then_some(Guard::LooksDuplicate));
        let likeness = wish.care.likeness.clone();
        let (key, slots) = (wish.key, wish.slots.clone());
        let bind = key.map_or(0, |key| self.keys.get(&(wish.team, key)).map_or(0, |row| row.bind) + 1);
        let (email, body) = wish.become_email(bind, guard, now);
        self.bind(&email, key, &slots, now);
        self.bodies.insert(email.id, body.to_vec());
        self.last_id = self.last_id.max(ordered_bits(email.id.0));
        self.save(&email, email.accepted_event());
        self.note_likeness(likeness, &email, now);
        Accept::First(email)
    }

    fn bind(&mut self, email: &Email, key: Option<KeyHash>, slots: &[KeyHash], now: Time) {
        let earlier = email.head.earlier_slots(email.team);
        for slot in slots.iter().copied().chain(earlier).filter(|_| !mutant!("slots-unbound")) {
            let taken = self.keys.get(&(email.team, slot)).and_then(|row| row.slot);
            if !taken.is_some_and(|id| self.occupies(id, now)) {
                self.keys.entry((email.team, slot)).or_default().slot = Some(email.id);
            }
        }
        if let Some(key) = key {
            let row = self.keys.entry((email.team, key)).or_default();
            row.bind = email.bind;
            row.target = Some(Target::Email(email.id));
            row.forgotten_at = None;
            row.gone_at = None;
        }
    }

    /// What a key is bound to and remembered for.
    pub(super) fn bound(&self, team: TeamId, key: KeyHash, now: Time) -> Option<Bound> {
        let forget_by = self.time.forget_by(now);
        match self.keys.get(&(team, key))?.target.as_ref()? {
            Target::Email(id) => {
                let email = self.emails.get(id)?;
                (!email.is_forgotten(forget_by)).then(|| Bound::Email(email.clone()))
            }
            Target::Operation { digest, expires_at, .. } => {
                (*expires_at > forget_by).then_some(Bound::Operation { digest: *digest })
            }
        }
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
        row.forgotten_at = None;
        row.gone_at = None;
        row.target = Some(Target::Operation {
            digest: operation.digest,
            answer: operation.answer.clone(),
            expires_at: operation.expires_at,
        });
    }

    /// Makes the next version of an email, once.
    pub(super) fn resend(&mut self, wish: Wish, operation: Option<&Operation>, now: Time) -> Once<Resend> {
        let Some(mut previous) = wish.head.resend_of.and_then(|id| self.of_team(wish.team, id)) else {
            return Once::Done(Resend::Missing);
        };
        if let Some(answer) = operation.and_then(|operation| self.repeat_of(operation, now)) {
            return answer;
        }
        let answer = self.next_version(&mut previous, wish, now);
        if let (Some(operation), Once::Done(Resend::First(_) | Resend::Repeated(_))) = (operation, &answer) {
            self.bind_operation(operation);
        }
        answer
    }

    fn next_version(&mut self, previous: &mut Email, wish: Wish, now: Time) -> Once<Resend> {
        if let Some(email) = previous.resent_as.and_then(|id| self.of_team(wish.team, id)) {
            return Once::Done(Resend::Repeated(email));
        }
        let before = previous.clone();
        let event = match previous.make_way(wish.care.takes_back, now) {
            Ok(event) => event,
            Err(refusal) => return Once::Done(Resend::Refused(refusal, previous.clone())),
        };
        if let Some(exceeded) = self.over_budget(&wish, now) {
            return Once::Done(Resend::OverBudget(exceeded));
        }
        event.into_iter().for_each(|event| self.save(previous, event));
        if !self.still_answers(previous) {
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
        if let Resend::First(email) = &answer {
            self.turn_over(&before, email, now);
        }
        Once::Done(answer)
    }
}
