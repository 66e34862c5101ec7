//! Changing: one email at a time by a rule of the core, and envelopes that go to the sandbox.

use deadpool_postgres::Transaction;
use mailonce_core::{
    email::{Email, Refusal},
    event::NewEvent,
    id::{EmailId, TeamId},
    key::KeyHash,
    port::store::{Bound, Change, KeyChange, NewDue, Once, Operation, Resend, Wish},
    time::Time,
    ttl::Ttl,
};
use std::collections::BTreeSet;
use uuid::Uuid;

use super::{
    Ledger,
    accept::bound_in,
    careful::{load, load_more, lock_emails, lock_scopes, read_many},
    control::budget,
    conversation::{likeness, still_answers, turn_over},
    ground::{Ground, Scoped, scopes_of, scopes_of_wish},
    row::{Scope, read_emails},
    trouble::{Tried, Trouble},
    write::ask,
};

/// Due envelopes in their order, as many as no other worker holds. The email's row is the lock; its handoffs are read
/// again once it is held, because this statement may have seen them as they were before.
const DUE: &str = "
    SELECT h.team, h.email, h.number
      FROM handoffs h JOIN emails e ON e.team = h.team AND e.id = h.email
     WHERE h.transport = $1 AND h.state IN ('queued', 'scheduled') AND h.due_at IS NOT NULL AND h.due_at <= $2
       AND (h.state = 'queued' OR h.due_at <= $4::bigint)
     ORDER BY h.due_at, h.email, h.number LIMIT $3
       FOR UPDATE OF e SKIP LOCKED";

const NEXT_DUE: &str = "
    SELECT due_at FROM handoffs
     WHERE transport = $1 AND state IN ('queued', 'scheduled') AND due_at IS NOT NULL
     ORDER BY due_at LIMIT 1";

/// What a rule of the core says to an email.
type Ruled = Result<Option<NewEvent>, Refusal>;

impl Ledger {
    /// Binds the key of an operation that changes nothing else, once.
    pub(super) async fn bind_once(&self, operation: &Operation, now: Time) -> Tried<Once<()>> {
        let scopes: BTreeSet<Scope> = BTreeSet::from([(operation.team, operation.key)]);
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        lock_scopes(&tx, &scopes).await?;
        let mut ground = load(&tx, &self.time, &scopes, &[]).await?;
        let answer = ground.repeat_of(operation, now);
        if answer.is_none() {
            ground.bind_operation(operation);
        }
        self.settle(tx, &ground, 1).await?;
        Ok(answer.unwrap_or(Once::Done(())))
    }

    /// Takes an email back.
    pub(super) async fn cancel(
        &self,
        team: TeamId,
        id: EmailId,
        operation: Option<&Operation>,
        now: Time,
    ) -> Tried<Once<Change>> {
        self.change(team, id, operation, now, |email| email.cancel(self.time.of(now))).await
    }

    /// Moves a scheduled email to another time, and its charges with it.
    pub(super) async fn reschedule(&self, team: TeamId, id: EmailId, new: &NewDue, now: Time) -> Tried<Change> {
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        lock_emails(&tx, &BTreeSet::from([(team, id)])).await?;
        let mut ground = load(&tx, &self.time, &BTreeSet::new(), &[(team, id)]).await?;
        let answer = match ground.of_team(team, id) {
            Some(email) => rescheduled(&tx, &mut ground, email, new, now).await?,
            None => Change::Missing,
        };
        self.settle(tx, &ground, 1).await?;
        Ok(answer)
    }

    /// Changes one email by a rule of the core, under the key of an operation when there is one.
    async fn change(
        &self,
        team: TeamId,
        id: EmailId,
        operation: Option<&Operation>,
        now: Time,
        rule: impl FnOnce(&mut Email) -> Ruled + Send,
    ) -> Tried<Once<Change>> {
        let scopes: BTreeSet<Scope> = operation.iter().map(|operation| (operation.team, operation.key)).collect();
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        lock_scopes(&tx, &scopes).await?;
        lock_emails(&tx, &BTreeSet::from([(team, id)])).await?;
        let mut ground = load(&tx, &self.time, &scopes, &[(team, id)]).await?;
        let before = ground.of_team(team, id);
        let answer = changed(&mut ground, (team, id), operation, now, rule);
        if let (Some(before), Once::Done(Change::Email(email))) = (&before, &answer) {
            turn_over(&tx, &mut ground, (before, email), self.time.of(now)).await?;
        }
        self.settle(tx, &ground, 1).await?;
        Ok(answer)
    }

    /// Makes the next version of an email, once.
    pub(super) async fn resend(&self, wish: &Wish, operation: Option<&Operation>, now: Time) -> Tried<Once<Resend>> {
        let Some(previous) = wish.head.resend_of else {
            return Ok(Once::Done(Resend::Missing));
        };
        let mut scopes: BTreeSet<Scope> = scopes_of_wish(wish).collect();
        scopes.extend(operation.iter().map(|operation| (operation.team, operation.key)));
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        lock_scopes(&tx, &scopes).await?;
        lock_emails(&tx, &BTreeSet::from([(wish.team, previous)])).await?;
        let mut ground = load(&tx, &self.time, &scopes, &[(wish.team, previous)]).await?;
        let next = ground.emails.get(&previous).and_then(|email| email.resent_as);
        load_more(&tx, &mut ground, next.map(|id| (wish.team, id)).into_iter()).await?;
        likeness::hold(&tx, &mut ground, std::iter::once(wish)).await?;
        let before = ground.of_team(wish.team, previous);
        let replaced = match &before {
            Some(email) => !still_answers(&tx, &mut ground, email).await?,
            None => false,
        };
        budget::lock(&tx, &mut ground, std::iter::once(wish)).await?;
        let answer = ground.resend(wish.clone(), operation, replaced, now);
        if let (Some(before), Once::Done(Resend::First(email))) = (&before, &answer) {
            turn_over(&tx, &mut ground, (before, email), now).await?;
        }
        self.settle(tx, &ground, 1).await?;
        Ok(answer)
    }

    /// Hands up to `max` due envelopes to the sandbox, in one commit. How many were.
    pub(super) async fn capture(
        &self,
        transport: &str,
        max: usize,
        scheduled_by: Option<Time>,
        now: Time,
    ) -> Tried<usize> {
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        let mut due: Vec<(Scoped, u16)> = Vec::new();
        let scheduled_by = scheduled_by.map(|at| at.0);
        for row in ask(&tx, DUE, &[&transport, &now.0, &(max as i64), &scheduled_by]).await? {
            let scoped = (TeamId(row.try_get::<_, Uuid>(0)?), EmailId(row.try_get::<_, Uuid>(1)?));
            due.push((scoped, row.try_get::<_, i32>(2)? as u16));
        }
        let held: BTreeSet<Scoped> = due.iter().map(|(scoped, _)| *scoped).collect();
        let mut ground = Ground::default();
        let emails = read_emails(&read_many(&tx, &held).await?, 0)?;
        ground.emails = emails.into_iter().map(|email| (email.id, email)).collect();
        let mut captured = 0;
        let at = self.time.of(now);
        for ((team, id), number) in due {
            let Some(mut email) = ground.of_team(team, id) else {
                continue;
            };
            if let Some((attempt, event)) = email.capture(number, at) {
                ground.attempts.push((team, id, attempt));
                ground.save(&email, event);
                captured += 1;
            }
        }
        self.settle(tx, &ground, 1).await?;
        Ok(captured)
    }

    /// When the next envelope for a transport is due.
    pub(super) async fn next_due(&self, transport: &str) -> Tried<Option<Time>> {
        let rows = ask(&self.link.client().await?, NEXT_DUE, &[&transport]).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?.map(Time))
    }

    /// Gives a key another memory.
    pub(super) async fn extend_key(&self, team: TeamId, key: KeyHash, ttl: Ttl, now: Time) -> Tried<KeyChange> {
        self.change_key(team, key, now, |email| Some(email.extend(ttl, now))).await
    }

    /// Forgets a key now, if its email is terminal.
    pub(super) async fn forget_key(&self, team: TeamId, key: KeyHash, now: Time) -> Tried<KeyChange> {
        self.change_key(team, key, now, |email| email.state().is_terminal().then(|| email.forget(now))).await
    }

    /// Changes how long a key is remembered. Every scope of its email is locked, because who else is decided by them
    /// must see either the old memory or the new one.
    async fn change_key(
        &self,
        team: TeamId,
        key: KeyHash,
        now: Time,
        rule: impl FnOnce(&mut Email) -> Option<NewEvent> + Send,
    ) -> Tried<KeyChange> {
        let found = self.find_one(team, key).await?;
        let Some(Bound::Email(seen)) = bound_in(&found, (team, key), self.time.forget_by(now)) else {
            return Ok(KeyChange::Missing);
        };
        let mut scopes = scopes_of(&seen);
        scopes.insert((team, key));
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        lock_scopes(&tx, &scopes).await?;
        lock_emails(&tx, &BTreeSet::from([(team, seen.id)])).await?;
        let mut ground = load(&tx, &self.time, &scopes, &[]).await?;
        let answer = key_changed(&mut ground, (team, key), seen.id, now, rule);
        self.settle(tx, &ground, 1).await?;
        answer
    }
}

/// What becomes of an email that is to move. The budgets have a say only when it can be moved at all.
async fn rescheduled(
    tx: &Transaction<'_>,
    ground: &mut Ground,
    before: Email,
    new: &NewDue,
    now: Time,
) -> Tried<Change> {
    let mut email = before.clone();
    let event = match email.reschedule(new.due, now) {
        Ok(event) => event,
        Err(refusal) => return Ok(Change::Refused(refusal, email)),
    };
    if let Some(exceeded) = budget::move_charges(tx, ground, &before, &new.charges, now).await? {
        return Ok(Change::OverBudget(exceeded));
    }
    ground.save(&email, event);
    Ok(Change::Email(email))
}

/// What becomes of an email under a rule, and of the key of the operation that asked for it.
fn changed(
    ground: &mut Ground,
    (team, id): Scoped,
    operation: Option<&Operation>,
    now: Time,
    rule: impl FnOnce(&mut Email) -> Ruled,
) -> Once<Change> {
    if let Some(answer) = operation.and_then(|operation| ground.repeat_of(operation, now)) {
        return answer;
    }
    let Some(mut email) = ground.of_team(team, id) else {
        return Once::Done(Change::Missing);
    };
    match rule(&mut email) {
        Ok(event) => {
            if let Some(event) = event {
                ground.save(&email, event);
            }
            // Only what was done is remembered: a refusal may turn into a success later.
            if let Some(operation) = operation {
                ground.bind_operation(operation);
            }
            Once::Done(Change::Email(email))
        }
        Err(refusal) => Once::Done(Change::Refused(refusal, email)),
    }
}

/// What becomes of a key's memory under a rule. Only the email that was `seen` is locked.
fn key_changed(
    ground: &mut Ground,
    (team, key): Scope,
    seen: EmailId,
    now: Time,
    rule: impl FnOnce(&mut Email) -> Option<NewEvent>,
) -> Tried<KeyChange> {
    let Some(Bound::Email(mut email)) = ground.bound(team, key, now) else {
        return Ok(KeyChange::Missing);
    };
    if email.id != seen {
        return Err(Trouble::Again("the key was bound to another email meanwhile".into()));
    }
    let Some(event) = rule(&mut email) else {
        return Ok(KeyChange::NotTerminal(email));
    };
    ground.save(&email, event);
    Ok(KeyChange::Done(email))
}
