//! Changing what was accepted: taking back, moving, sending again on purpose.

use mailonce_core::{
    email::{Channel, Email, EmailHead, EmailState, Guard, Refusal},
    id::{ApiKeyId, EmailId, TeamId},
    key::{Key, KeyName},
    port::store::{Bound, Care, Change, Envelope, NewDue, Once, Resend, SuppressedReason, Wish},
    problem::{Code, Problem},
    rule::RuleName,
    schedule::Schedule,
    team::Scope,
    time::Time,
};

use crate::{
    Asked, Caller, Engine, content_guard::likeness_of, operation, records::Made, seen::Glimpse, unavailable,
    view::Sent, ways,
};

/// The rule that holds an email, and the guard.
type HeldBy = (Option<RuleName>, Option<Guard>);

impl Engine {
    /// Takes an email back, if nothing can have left yet. Not the first when its key did so before.
    pub async fn cancel(&self, caller: &Caller, id: EmailId, asked: Option<Asked>) -> Result<Made<Email>, Problem> {
        self.check_own_email(caller, id).await?;
        let now = self.now();
        let operation = operation(caller, asked.as_ref(), Vec::new(), now);
        match self.store.cancel(caller.team.id, id, operation, now).await.map_err(unavailable)? {
            Once::Done(change) => {
                let thing = self.changed(caller.team.id, change).await?;
                // Nobody is to decide about what its sender took back.
                if thing.guard.is_some() {
                    self.close_moot(&thing).await;
                }
                Ok(Made { thing, first: true })
            }
            Once::Repeated(_) => Ok(Made { thing: self.email(caller, id).await?, first: false }),
            Once::Mismatch(bound) => Err(taken(&bound)),
        }
    }

    /// Moves a scheduled email to another time.
    pub async fn reschedule(&self, caller: &Caller, id: EmailId, schedule: &Schedule) -> Result<Email, Problem> {
        let now = self.now();
        if !schedule.fits(now) {
            return Err(Problem::field(Code::InvalidField, "scheduled_at", "scheduled_at is too far ahead"));
        }
        self.check_own_email(caller, id).await?;
        let (team, due) = (caller.team.id, schedule.due(now));
        let new = NewDue { due, charges: self.charges_at(team, id, due).await? };
        let change = self.store.reschedule(team, id, new, now).await.map_err(unavailable)?;
        self.ways.wake();
        self.changed(team, change).await
    }

    async fn changed(&self, team: TeamId, change: Change) -> Result<Email, Problem> {
        match change {
            Change::Email(email) => Ok(email),
            Change::Refused(refusal, email) => Err(refused(refusal, &email)),
            Change::OverBudget(exceeded) => Err(self.quota_exceeded(team, &exceeded).await),
            Change::Missing => Err(Problem::new(Code::NotFound, "there is no such email")),
        }
    }

    /// Makes the next version of an email, once.
    pub async fn resend(
        &self,
        caller: &Caller,
        id: EmailId,
        reason: Option<String>,
        asked: Option<Asked>,
    ) -> Result<Sent, Problem> {
        let now = self.now();
        let detail = self.store.email_detail(caller.team.id, id).await.map_err(unavailable)?;
        let own = detail.filter(|detail| caller.may_see_from(&detail.email.head.from));
        let detail = own.ok_or_else(|| missing(id))?;
        if detail.email.resent_as.is_none() {
            let head = &detail.email.head;
            Self::may_send_from(caller, &head.from)?;
            for (field, all) in [("to", &head.to), ("cc", &head.cc), ("bcc", &head.bcc)] {
                self.check_addresses(caller.team.id, field, all).await?;
            }
        }
        let operation = operation(caller, asked.as_ref(), Vec::new(), now);
        let Some(body) = detail.body.or(detail.email.resent_as.map(|_| Vec::new())) else {
            return self.repeat_resend(caller, &detail.email).await;
        };
        let envelopes = self.envelopes_again(&detail.email, &body);
        if envelopes.is_empty() && detail.email.resent_as.is_none() {
            return Err(Problem::new(Code::NotFound, "the body of this email cannot be read; send it anew"));
        }
        let (rule, hold) = self.check_resend(caller, &detail.email, &body).await?;
        let by = (Some(caller.key.id), caller.channel);
        let mut wish = self.next_version(by, &detail.email, body.into(), envelopes, now);
        wish.care.hold = hold;
        wish.head.held_by = rule;
        wish.head.reason = reason;
        wish.head.call = caller.call.clone();
        wish.care.charges = self.charges(caller, &wish).await?;
        match self.store.resend(wish, operation, now).await.map_err(unavailable)? {
            Once::Done(Resend::First(email)) => {
                self.ways.wake();
                self.ask_about(&email).await;
                Ok(self.resent(caller, &email, true))
            }
            Once::Done(Resend::Repeated(email)) => Ok(self.resent(caller, &email, false)),
            Once::Done(Resend::Refused(refusal, email)) => Err(refused(refusal, &email)),
            Once::Done(Resend::OverBudget(exceeded)) => Err(self.quota_exceeded(caller.team.id, &exceeded).await),
            Once::Done(Resend::Missing) => Err(missing(id)),
            Once::Repeated(_) => {
                let email = self.email(caller, id).await?;
                self.repeat_resend(caller, &email).await
            }
            Once::Mismatch(bound) => Err(taken(&bound)),
        }
    }

    /// What stands against a next version: rules as for any mail, and for an agent's key what a person decided. By whom
    /// it is to be held, if so.
    async fn check_resend(&self, caller: &Caller, email: &Email, body: &[u8]) -> Result<HeldBy, Problem> {
        let Some(content) = self.bodies.unpack(body).filter(|_| email.resent_as.is_none()) else {
            return Ok((None, None));
        };
        let rule = self.check_team_rules(caller.team.id, &content).await?;
        let approval = rule.as_ref().map(|_| Guard::Approval);
        if caller.need(Scope::Admin).is_ok() {
            return Ok((rule, approval));
        }
        let unsent = matches!(email.state(), EmailState::Failed | EmailState::Cancelled);
        if email.head.answers.is_some() && !unsent && email.state().is_terminal() {
            let detail = format!("the message was answered by email {}, which left", email.id);
            return Err(Problem::new(Code::AlreadyAnswered, detail).with("email", email.id.to_string()));
        }
        // What was held and then taken back never passed its guard. Whoever may not release it may not send it either.
        let rejected = email.guard.filter(|_| email.state() == EmailState::Cancelled);
        Ok((rule, approval.or(rejected)))
    }

    /// The answer when the next version exists already, or cannot be made because the body is gone.
    async fn repeat_resend(&self, caller: &Caller, email: &Email) -> Result<Sent, Problem> {
        match email.resent_as {
            Some(id) => Ok(self.resent(caller, &self.email(caller, id).await?, false)),
            None => match email.may_resend(self.now()) {
                Err(refusal) => Err(refused(refusal, email)),
                Ok(()) => Err(Problem::new(Code::NotFound, "the body of this email is no longer kept; send it anew")),
            },
        }
    }

    /// The answer with the next version. A call that did not make it leaves a row there.
    fn resent(&self, caller: &Caller, email: &Email, first: bool) -> Sent {
        let call = (!first).then(|| caller.suppressed(SuppressedReason::KeyReplay, self.now()));
        let waiting = call.map_or(0, |call| self.suppressions.note(email.team, email.id, call));
        self.sent(caller, &Glimpse::from(email), first, false, waiting)
    }

    /// The envelopes of the next version: by the way the email was to take last, divided anew. The old handoffs say
    /// too much, because an email that changed its way has the envelopes of both.
    pub(crate) fn envelopes_again(&self, email: &Email, body: &[u8]) -> Vec<Envelope> {
        let Some(content) = self.bodies.unpack(body) else { return Vec::new() };
        let last = email.handoffs.last().map(|handoff| handoff.transport.as_str()).filter(|name| !ways::is_inner(name));
        let known = last.filter(|name| self.ways.names().contains(name));
        let way = known.unwrap_or_else(|| self.ways.first(&content, self.chance.number()));
        self.ways.envelopes(way, &content)
    }

    /// The wish for version n+1 of version n. An intent counts on; any other email gets a name no caller can say.
    pub(crate) fn next_version(
        &self,
        (by, channel): (Option<ApiKeyId>, Channel),
        email: &Email,
        body: std::sync::Arc<[u8]>,
        envelopes: Vec<Envelope>,
        now: Time,
    ) -> Wish {
        let mut head = EmailHead::clone(&email.head);
        head.version += 1;
        head.resend_of = Some(email.id);
        head.created_at = now;
        head.caller = by;
        head.channel = channel;
        // The call that made the version before made that one alone.
        head.call = None;
        let counted_on = head.intent.as_mut().and_then(|intent| {
            intent.version += 1;
            let to: Vec<_> = head.to.iter().filter_map(|to| mailonce_core::address::Address::parse(to).ok()).collect();
            Key::parse(&intent.key(&to)).ok()
        });
        // Who says the same without a key while it is on its way says it twice.
        let likeness = self.bodies.unpack(&body).map(|content| likeness_of(email.team, &content));
        let name = counted_on.map_or(KeyName::Version { of: email.id }, KeyName::Given);
        head.key = Some(name.clone());
        Wish {
            id: EmailId(self.new_id(now)),
            team: email.team,
            slots: head.slots(email.team),
            first_wins: false,
            key: Some(name.hash(email.team)),
            head,
            digest: email.digest.clone(),
            ttl: email.ttl,
            envelopes,
            due: None,
            care: Care { likeness, ..Care::default() },
            body,
        }
    }
}

/// The problem for an id that is not there.
pub(crate) fn missing(id: EmailId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no email {id}"))
}

pub(crate) fn refused(refusal: Refusal, email: &Email) -> Problem {
    let (code, why) = match refusal {
        Refusal::TooLate => (Code::TooLate, "it can no longer be taken back"),
        Refusal::NotScheduled => (Code::NotScheduled, "it has no time to change"),
        Refusal::NotTerminal => (Code::NotTerminal, "it is not finished"),
        Refusal::UseResolve => (Code::UseResolve, "nobody can tell whether it arrived"),
        Refusal::BudgetSpent => (Code::BudgetSpent, "it was already sent again today"),
        Refusal::StaleRev => (Code::StaleRev, "it changed since you looked"),
        Refusal::NotUnknown => (Code::NotUnknown, "nothing about it is unknown"),
        Refusal::Replaced => (Code::AlreadyAnswered, "another email answered its message since"),
    };
    let state = email.state().word();
    Problem::new(code, format!("email {} is {state}: {why}", email.id)).with("state", state).with("rev", email.rev)
}

/// The problem for a key that belongs to something else.
pub(crate) fn taken(bound: &Bound) -> Problem {
    match bound {
        Bound::Email(email) => Problem::new(Code::KeyMismatch, format!("this key belongs to email {}", email.id))
            .with("differs", vec!["operation"])
            .with("original", email.id.to_string()),
        Bound::Operation { .. } => Problem::new(Code::KeyMismatch, "this key was used for another call")
            .with("differs", vec!["operation, path or body"]),
    }
}
