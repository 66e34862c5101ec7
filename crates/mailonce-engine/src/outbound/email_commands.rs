//! Commands on accepted emails: cancel, reschedule and resend.

use crate::{
    access::caller::Caller,
    control::policy_trace::{problem_with_steps, trace_refusal},
    handoff::transport_selector,
    outbound::{Outbound, content_guard::content_fingerprint, replay_cache::CachedEmail, send_receipt::SendReceipt},
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{email_not_found, key_mismatch, refusal_problem, unavailable},
        records::CreateOutcome,
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    control::{rule::RuleRef, stop::SendOrigin},
    handoff::envelope::Envelope,
    id::{ApiKeyId, EmailId, TeamId},
    key::{EmailKey, Key},
    operation::IdempotentResult,
    outbound::{
        accept::{GuardInput, NewEmail},
        email::{Channel, Email, EmailHead, EmailState, Guard},
        email_commands::{EmailChangeResult, EmailResendResult, RescheduleRequest},
        email_query::EmailDetail,
        holds::Holds,
        policy_trace::{PolicyKind, PolicyTrace},
        schedule::Schedule,
        suppressed_call::SuppressedReason,
        test_recipient::TestRecipient,
    },
    problem::{Code, Problem},
    time::Time,
};

/// The rule that requires approval, and the guards that hold an email.
type HoldReason = (Option<RuleRef>, Holds);

/// How to resend an email.
#[derive(Clone, Debug, Default)]
pub struct ResendRequest {
    /// Why.
    pub reason: Option<String>,
    /// Whether a refusal shows what each check decided.
    pub wants_policy: bool,
}

impl Outbound {
    /// Cancels an email unless an attempt may have left. `is_new` is false when an earlier call with the same key
    /// cancelled it.
    pub async fn cancel(
        &self,
        caller: &Caller,
        id: EmailId,
        keyed_call: Option<KeyedCall>,
    ) -> Result<CreateOutcome<Email>, Problem> {
        self.access.check_email_visible(caller, id).await?;
        let now = self.ctx.now();
        let operation = operation(caller, keyed_call.as_ref(), Vec::new(), now);
        match self.ctx.store.cancel(caller.team.id, id, operation, now).await.map_err(unavailable)? {
            IdempotentResult::Done(change) => {
                let email = self.email_or_problem(caller.team.id, change).await?;
                // A cancelled email needs no decision, so its escalation is closed.
                if email.state() == EmailState::Cancelled {
                    self.ctx.close_moot_escalation(&email).await;
                }
                Ok(CreateOutcome { value: email, is_new: true })
            }
            IdempotentResult::Replayed(_) => Ok(CreateOutcome { value: self.email(caller, id).await?, is_new: false }),
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// Moves a scheduled email to another time.
    pub async fn reschedule(&self, caller: &Caller, id: EmailId, schedule: &Schedule) -> Result<Email, Problem> {
        let now = self.ctx.now();
        if !schedule.is_within_limit(now) {
            return Err(Problem::for_field(Code::InvalidField, "scheduled_at", "scheduled_at is too far ahead"));
        }
        self.access.check_email_visible(caller, id).await?;
        let (team, due) = (caller.team.id, schedule.due_at(now));
        let new = RescheduleRequest { due_at: due, charges: self.budgets.charges_at(team, id, due).await? };
        let change = self.ctx.store.reschedule(team, id, new, now).await.map_err(unavailable)?;
        self.ctx.transports.wake_all();
        self.email_or_problem(team, change).await
    }

    async fn email_or_problem(&self, team: TeamId, change: EmailChangeResult) -> Result<Email, Problem> {
        match change {
            EmailChangeResult::Changed(email) => Ok(email),
            EmailChangeResult::Refused(refusal, email) => Err(refusal_problem(refusal, &email)),
            EmailChangeResult::OverBudget(exceeded) => Err(self.budgets.quota_exceeded(team, &exceeded).await),
            EmailChangeResult::Missing => Err(Problem::new(Code::NotFound, "there is no such email")),
        }
    }

    /// Creates the next version of an email, once.
    pub async fn resend(
        &self,
        caller: &Caller,
        id: EmailId,
        request: ResendRequest,
        keyed_call: Option<KeyedCall>,
    ) -> Result<SendReceipt, Problem> {
        let mut trace = PolicyTrace::default();
        let resent = self.resend_traced(caller, id, request.reason, keyed_call, &mut trace).await;
        // Most refusals are about the state of the email, and no check was asked.
        let shows_policy = request.wants_policy && trace.refuses();
        resent.map_err(|problem| if shows_policy { problem_with_steps(caller, problem, &trace) } else { problem })
    }

    async fn resend_traced(
        &self,
        caller: &Caller,
        id: EmailId,
        reason: Option<String>,
        keyed_call: Option<KeyedCall>,
        trace: &mut PolicyTrace,
    ) -> Result<SendReceipt, Problem> {
        let now = self.ctx.now();
        let detail = self.ctx.store.email_detail(caller.team.id, id).await.map_err(unavailable)?;
        let own = detail.filter(|detail| caller.may_see_sender(&detail.email.head.from));
        let detail = own.ok_or_else(|| email_not_found(id))?;
        if detail.email.resent_as.is_none() {
            self.check_sender_and_recipients(caller, &detail, trace).await?;
        }
        let operation = operation(caller, keyed_call.as_ref(), Vec::new(), now);
        let Some(body) = detail.body.or(detail.email.resent_as.map(|_| Vec::new())) else {
            return self.replay_resend(caller, &detail.email).await;
        };
        let envelopes = self.rebuild_envelopes(&detail.email, &body);
        if envelopes.is_empty() && detail.email.resent_as.is_none() {
            return Err(Problem::new(
                Code::NotFound,
                "the stored body of this email cannot be decoded; send a new email",
            ));
        }
        let (rule, holds) = self.check_resend(caller, &detail.email, &body, trace).await?;
        let by = (Some(caller.key.id), caller.channel);
        let mut new_email = self.build_next_version(by, &detail.email, body.into(), envelopes, now);
        new_email.guard_input.holds = holds;
        new_email.head.held_by = rule;
        new_email.head.reason = reason;
        new_email.head.call = caller.call.clone();
        new_email.guard_input.charges = self.budgets.charges(caller, &new_email).await?;
        self.budgets.trace_budgets(caller.team.id, &new_email.guard_input.charges, trace).await;
        new_email.head.policy = Some(trace.clone());
        let charges = new_email.guard_input.charges.clone();
        match self.ctx.store.resend(new_email, operation, now).await.map_err(unavailable)? {
            IdempotentResult::Done(EmailResendResult::First(email)) => {
                self.ctx.transports.wake_all();
                self.ctx.escalate_if_stuck(&email).await;
                let tightest_budget = self.budgets.tightest_budget(email.team, &charges).await;
                Ok(SendReceipt { tightest_budget, ..self.resend_receipt(caller, &email, true) })
            }
            IdempotentResult::Done(EmailResendResult::Replayed(email)) => {
                Ok(self.resend_receipt(caller, &email, false))
            }
            IdempotentResult::Done(EmailResendResult::Refused(refusal, email)) => Err(refusal_problem(refusal, &email)),
            IdempotentResult::Done(EmailResendResult::OverBudget(exceeded)) => {
                trace.record_budget(exceeded.policy_step());
                Err(self.budgets.quota_exceeded(caller.team.id, &exceeded).await)
            }
            IdempotentResult::Done(EmailResendResult::Missing) => Err(email_not_found(id)),
            IdempotentResult::Replayed(_) => {
                let email = self.email(caller, id).await?;
                self.replay_resend(caller, &email).await
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// Checks who resends an email to whom, before its next version is built.
    async fn check_sender_and_recipients(
        &self,
        caller: &Caller,
        detail: &EmailDetail,
        trace: &mut PolicyTrace,
    ) -> Result<(), Problem> {
        let head = &detail.email.head;
        let checked = Self::check_may_send_from(caller, &head.from);
        trace_refusal(trace, PolicyKind::Request, "request", checked)?;
        let (from, inbox, transport) = (head.from.as_str(), head.inbox, head.transport.as_deref());
        let (team, api_key) = (caller.team.id, Some(caller.key.id));
        let origin = SendOrigin { team, from, inbox, api_key, transport };
        self.control.stops.check_stops(origin, trace).await?;
        let content = detail.body.as_deref().and_then(|body| self.ctx.packer.unpack(body));
        let tags = content.map(|content| content.tags).unwrap_or_default();
        for (field, all) in [("to", &head.to), ("cc", &head.cc), ("bcc", &head.bcc)] {
            let checked = self.control.check_recipient_addresses(team, field, all, &tags).await;
            trace_refusal(trace, PolicyKind::Suppression, "suppressions", checked)?;
        }
        Ok(())
    }

    /// Checks whether an email may be resent, and returns what holds the new version. Rules apply as to any send. A
    /// key without the `admin` scope also can't override what a person decided.
    async fn check_resend(
        &self,
        caller: &Caller,
        email: &Email,
        body: &[u8],
        trace: &mut PolicyTrace,
    ) -> Result<HoldReason, Problem> {
        let Some(content) = self.ctx.packer.unpack(body).filter(|_| email.resent_as.is_none()) else {
            return Ok((None, Holds::NONE));
        };
        let rule = self.control.check_outbound_rules(caller.team.id, &content, trace).await?;
        let approval = Holds::from(rule.as_ref().map(|_| Guard::Approval));
        if caller.require_scope(ApiKeyScope::Admin).is_ok() {
            return Ok((rule, approval));
        }
        if email.head.answers.is_some() && !email.is_surely_unsent() && email.state().is_terminal() {
            let detail = format!("the message was already answered by email {}, which was sent", email.id);
            let problem = Problem::new(Code::AlreadyAnswered, detail).with_extension("email", email.id.to_string());
            return trace_refusal(trace, PolicyKind::Guard, "already_answered", Err(problem));
        }
        // An email that was held and then cancelled never passed its guards. A key that may not release it may not send
        // it either.
        if email.state() != EmailState::Cancelled {
            return Ok((rule, approval));
        }
        // What a budget held would leave by itself, so a person must approve it in place of the budget.
        let rejected = email.guard.filter(|guard| *guard == Guard::Budget).map(|_| Guard::Approval);
        Ok((rule, approval.union(email.holds).union(rejected.into())))
    }

    /// The receipt of the next version, or the problem when it can't be created because the body was deleted.
    async fn replay_resend(&self, caller: &Caller, email: &Email) -> Result<SendReceipt, Problem> {
        match email.resent_as {
            Some(id) => Ok(self.resend_receipt(caller, &self.email(caller, id).await?, false)),
            None => match email.may_resend(self.ctx.now()) {
                Err(refusal) => Err(refusal_problem(refusal, email)),
                Ok(()) => {
                    Err(Problem::new(Code::NotFound, "the body of this email is no longer stored; send a new email"))
                }
            },
        }
    }

    /// The receipt of the next version. A call that didn't create it is recorded there as suppressed.
    fn resend_receipt(&self, caller: &Caller, email: &Email, first: bool) -> SendReceipt {
        let call = (!first).then(|| caller.suppressed_call(SuppressedReason::KeyReplay, self.ctx.now()));
        let waiting = call.map_or(0, |call| self.suppressed_calls.record(email.team, email.id, call));
        self.receipt(caller, &CachedEmail::from(email), first, false, waiting)
    }

    /// The envelopes of the next version. They use the email's last transport, or the routed one when that is gone.
    /// The old handoffs can't be copied: after a failover they contain the envelopes of both transports.
    pub(crate) fn rebuild_envelopes(&self, email: &Email, body: &[u8]) -> Vec<Envelope> {
        let Some(content) = self.ctx.packer.unpack(body) else { return Vec::new() };
        let last = email.handoffs.last().map(|handoff| handoff.transport.as_str());
        let known = last.filter(|name| self.ctx.transports.selectable_names().contains(name));
        // A version that was sent again through another channel must not reach a next hop either.
        let was_simulated = last == Some(transport_selector::SANDBOX_FAULTS)
            && content.recipients().iter().all(|to| TestRecipient::parse(to).is_some());
        let channel = if was_simulated { Channel::Resend } else { email.head.channel };
        let select = || self.ctx.transports.select(&content, channel, self.ctx.entropy.next_u64());
        let transport = known.unwrap_or_else(select);
        self.ctx.transports.envelopes(transport, &content)
    }

    /// Builds version n+1 of an email. An intent gets its next version and the key derived from it. Any other email
    /// gets an internal key that callers cannot send.
    pub(crate) fn build_next_version(
        &self,
        (by, channel): (Option<ApiKeyId>, Channel),
        email: &Email,
        body: std::sync::Arc<[u8]>,
        envelopes: Vec<Envelope>,
        now: Time,
    ) -> NewEmail {
        let mut head = EmailHead::clone(&email.head);
        head.version += 1;
        head.resend_of = Some(email.id);
        head.created_at = now;
        head.caller = by;
        head.channel = channel;
        // The call trace and the policy trace belong to the previous version.
        head.call = None;
        head.policy = None;
        let derived_key = head.intent.as_mut().and_then(|intent| {
            intent.version += 1;
            let to: Vec<_> = head.to.iter().filter_map(|to| mailonce_core::address::Address::parse(to).ok()).collect();
            Key::parse(&intent.derive_key(&to)).ok()
        });
        // A keyless send of the same content is a duplicate of this version, so the guard needs its fingerprint.
        let content = self.ctx.packer.unpack(&body);
        let fingerprint = content.as_ref().map(|content| content_fingerprint(email.team, content));
        // So is a retry through a dialect: it is answered with this version, in the place that the email had in its batch.
        let is_repeatable = email.head.key.is_none() && email.head.channel.is_dialect();
        let identical = content
            .filter(|_| is_repeatable)
            .map(|content| self.content_guard.identical_check(&content, 0, head.identical_place));
        let key = derived_key.map_or(EmailKey::Version { of: email.id }, EmailKey::Given);
        head.key = Some(key.clone());
        NewEmail {
            id: EmailId(self.ctx.new_id(now)),
            team: email.team,
            shadow_keys: head.shadow_keys(email.team),
            first_wins: false,
            key: Some(key.hash(email.team)),
            head,
            digest: email.digest.clone(),
            ttl: email.ttl,
            envelopes,
            due_at: None,
            guard_input: GuardInput { fingerprint, identical, ..GuardInput::default() },
            body,
        }
    }
}
