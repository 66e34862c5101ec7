//! Sending: a send request creates one email, or is answered with the email that its key already has.

use crate::{
    access::caller::Caller,
    control::{
        budgets::BudgetRoom,
        policy_trace::{decided_steps, problem_with_steps, trace_refusal},
    },
    outbound::{
        Outbound,
        content_guard::{ComparisonSet, is_keyless_dialect_send},
        keyed_send::{KeyedSend, OnMismatch, ReplayComparison, SendRequest, differences, identify_send},
        replay_cache::CachedEmail,
        reply_terms::ReplyTerms,
        send_receipt::{SendReceipt, message_id},
    },
    runtime::problems::unavailable,
};
use mailonce_core::{
    address::NamedAddress,
    control::{budget::ExceededBudget, rule::RuleRef, stop::SendOrigin},
    id::EmailId,
    inbox::message::Message,
    key::{EmailKey, InstallSecret, Key, KeyHash},
    limits,
    operation::KeyedOperation,
    outbound::{
        accept::{AcceptResult, BatchAcceptResult, GuardInput, NewBatch, NewEmail},
        digest::{Digest, DigestField, identity_hash},
        email::{Channel, Email, EmailHead, EmailState, Guard},
        holds::Holds,
        key_binding::KeyBinding,
        policy_trace::{PolicyKind, PolicyTrace},
        suppressed_call::SuppressedReason,
    },
    problem::{Code, Problem},
    time::Time,
    ttl::{self},
};
use std::{collections::BTreeMap, sync::Arc};

/// The answer to a batch: a receipt or a problem for each item.
#[derive(Debug)]
pub struct BatchReceipt {
    /// Receipts in the order of the items; `None` where `errors` has an entry.
    pub items: Vec<Option<SendReceipt>>,
    /// The problems, each with the index of its item.
    pub errors: Vec<(usize, Problem)>,
    /// Whether every item was answered with an earlier email.
    pub replayed: bool,
}

impl Outbound {
    /// Accepts an email once. The same key again gets the same email.
    pub fn send<'a>(
        &'a self,
        caller: &'a Caller,
        request: SendRequest,
    ) -> impl Future<Output = Result<SendReceipt, Problem>> + Send + 'a {
        self.ctx.metrics.record_send_attempt(caller.channel);
        // This runs outside the future, so that hundreds of calls that wait for their commit don't each hold the
        // request twice.
        self.send_keyed(caller, identify_send(caller, request, None))
    }

    async fn send_keyed(&self, caller: &Caller, mut keyed: KeyedSend) -> Result<SendReceipt, Problem> {
        let now = self.ctx.now();
        if let Some(token) = &keyed.request.distinct_token
            && let Some(sent) = Box::pin(self.release_by_distinct_token(caller, &keyed, token, None)).await?
        {
            return Ok(sent);
        }
        // The key is looked up before any check, so that a retry is never refused. The cache answers most retries and
        // `accept` the others. Only a request that fails a check needs an extra lookup.
        if let Some(cached) = keyed.key_hash.and_then(|hash| self.cached_email(hash, now)) {
            return self.replay(caller, &keyed, &cached, now);
        }
        let mut trace = PolicyTrace::default();
        let new_email = match self.guarded_email(caller, &mut keyed, now, &mut trace).await {
            Ok(new_email) => new_email,
            Err(problem) => {
                let problem = with_policy(caller, &keyed, problem, &trace);
                return self.replay_or(caller, &keyed, problem, now).await;
            }
        };
        let (body, charges) = (Arc::clone(&new_email.body), new_email.guard_input.charges.clone());
        match self.ctx.store.accept(*new_email, now).await.map_err(unavailable)? {
            AcceptResult::First(email) => {
                self.content_guard.record(caller, &keyed, &body, now);
                self.ctx.escalate_if_stuck(&email).await;
                let receipt = self.first_receipt(caller, &email);
                Ok(SendReceipt { tightest_budget: self.budgets.tightest_budget(email.team, &charges).await, ..receipt })
            }
            AcceptResult::KeyBound(bound) => self.replay_bound(caller, &keyed, bound, now),
            AcceptResult::Identical(email) => Ok(self.replay_identical(caller, &email, now)),
            AcceptResult::OverBudget(exceeded) => {
                let problem = self.budgets.quota_exceeded(caller.team.id, &exceeded).await;
                trace.record_budget(exceeded.policy_step());
                Err(with_policy(caller, &keyed, problem, &trace))
            }
        }
    }

    /// Renders the template, if it has one, runs policies and guards, and builds the new email. What they decided is added to `trace` and to the email. Boxed
    /// because it is large and is moved often.
    pub(crate) async fn guarded_email(
        &self,
        caller: &Caller,
        keyed: &mut KeyedSend,
        now: Time,
        trace: &mut PolicyTrace,
    ) -> Result<Box<NewEmail>, Problem> {
        let rule = self.check_policy(caller, keyed, now, trace).await?;
        let holds = rule.as_ref().map(|_| Guard::Approval).into();
        let mut new_email = Box::new(self.build_email(caller, keyed, now));
        new_email.head.inbox =
            self.budgets.inbox_of_sender(caller.team.id, &new_email.head.from).await.map_err(unavailable)?;
        new_email.head.held_by = rule;
        new_email.guard_input =
            self.content_guard.evaluate(caller, keyed, (holds, &ComparisonSet::default()), now, trace).await?;
        new_email.guard_input.charges = self.budgets.charges(caller, &new_email).await?;
        self.budgets.trace_budgets(caller.team.id, &new_email.guard_input.charges, trace).await;
        new_email.head.policy = Some(trace.clone());
        Ok(new_email)
    }

    /// The receipt of the email that the key is bound to, or the problem when it is unbound.
    pub(crate) async fn replay_or(
        &self,
        caller: &Caller,
        keyed: &KeyedSend,
        problem: Problem,
        now: Time,
    ) -> Result<SendReceipt, Problem> {
        if let Some(cached) = self.bound_email(caller, keyed, now).await? {
            return self.replay(caller, keyed, &cached, now);
        }
        let repeated = self.repeated_email(caller, keyed, now).await?;
        repeated.map(|email| self.replay_identical(caller, &email, now)).ok_or(problem)
    }

    /// Replays an email whose request can't be rebuilt because its subject was deleted, such as the message it
    /// answered. Returns the problem when the key is unbound.
    pub async fn replay_compared_fields(
        &self,
        caller: &Caller,
        request: SendRequest,
        ReplayComparison { answers, fields }: ReplayComparison,
        problem: Problem,
    ) -> Result<SendReceipt, Problem> {
        let now = self.ctx.now();
        let keyed = KeyedSend { answers, compared_fields: Some(fields), ..identify_send(caller, request, None) };
        match self.bound_email(caller, &keyed, now).await? {
            Some(first)
                if caller.may_see_sender(&first.from) && (answers.is_none() || first.in_reply_to == answers) =>
            {
                self.replay(caller, &keyed, &first, now)
            }
            _ => Err(problem),
        }
    }

    /// Releases the held look-alike that the distinct token names. Returns `None` when the token names no email that
    /// its sender may confirm. A held reply is released only if nothing new happened in its thread that its author
    /// must see.
    pub(crate) async fn release_by_distinct_token(
        &self,
        caller: &Caller,
        keyed: &KeyedSend,
        token: &str,
        answers: Option<(&Message, &ReplyTerms)>,
    ) -> Result<Option<SendReceipt>, Problem> {
        let team = caller.team.id;
        let Some(id) = self.content_guard.email_of_distinct_token(team, token) else { return Ok(None) };
        let found = self.ctx.store.email(team, id).await.map_err(unavailable)?;
        let own = found.filter(|email| caller.may_see_sender(&email.head.from));
        let Some(email) = own.filter(Email::may_sender_confirm) else { return Ok(None) };
        Self::check_may_send_from(caller, keyed.request.content.from.to_address().as_str())?;
        let cached = CachedEmail::from(&email);
        let fields = differences(keyed, &cached, &self.ctx.secret);
        let own = email.head.key.as_ref().map(|name| name.hash(team));
        if keyed.key_hash.is_some() && keyed.key_hash != own {
            let detail = format!("the token belongs to email {id}, which has a different key or none");
            return Err(Problem::new(Code::KeyMismatch, detail).with_extension("original_email", id.to_string()));
        }
        if email.head.answers != keyed.answers {
            let detail = format!("the token belongs to email {id}, which does not answer the same message");
            return Err(Problem::new(Code::KeyMismatch, detail).with_extension("original_email", id.to_string()));
        }
        // Without a key, different content means a different email, and releasing would send the held content instead.
        if !fields.is_empty() && (keyed.email_key.is_none() || !keyed.tolerates_difference(&fields)) {
            return Err(token_mismatch(&cached, &fields));
        }
        if let Some((message, terms)) = answers.filter(|_| email.state() == EmailState::Held) {
            self.check_thread_unchanged(message, terms).await?;
        }
        let released = self.budgets.release_hold(team, id, Guard::LooksDuplicate, false).await.map_err(unavailable)?;
        let Some(released) = released else { return Ok(None) };
        self.ctx.close_moot_escalation(&released).await;
        Ok(Some(self.receipt(caller, &CachedEmail::from(&released), false, !fields.is_empty(), 0)))
    }

    pub(crate) fn cached_email(&self, hash: KeyHash, now: Time) -> Option<Arc<CachedEmail>> {
        if self.ctx.is_single_node { self.replay_cache.get(hash, now) } else { None }
    }

    async fn bound_email(&self, caller: &Caller, keyed: &KeyedSend, now: Time) -> Result<Option<CachedEmail>, Problem> {
        Ok(self.bound_email_of_key(caller, keyed, now).await?.as_ref().map(CachedEmail::from))
    }

    /// The email that the key of a send is bound to.
    pub(crate) async fn bound_email_of_key(
        &self,
        caller: &Caller,
        keyed: &KeyedSend,
        now: Time,
    ) -> Result<Option<Email>, Problem> {
        let Some(hash) = keyed.key_hash else { return Ok(None) };
        let bound = self.ctx.store.key_binding(caller.team.id, hash, now).await.map_err(unavailable)?;
        bound.map(|bound| email_of_binding(keyed, bound)).transpose()
    }

    pub(crate) fn replay_bound(
        &self,
        caller: &Caller,
        keyed: &KeyedSend,
        bound: KeyBinding,
        now: Time,
    ) -> Result<SendReceipt, Problem> {
        let email = email_of_binding(keyed, bound)?;
        self.replay(caller, keyed, &CachedEmail::from(&email), now)
    }

    /// The receipt for a call without a key that repeats an email just accepted.
    pub(crate) fn replay_identical(&self, caller: &Caller, email: &Email, now: Time) -> SendReceipt {
        let reason = SuppressedReason::Identical;
        self.ctx.metrics.record_deduplicated(caller.channel, reason);
        let waiting = self.suppressed_calls.record(caller.team.id, email.id, caller.suppressed_call(reason, now));
        let receipt = self.receipt(caller, &CachedEmail::from(email), false, false, waiting);
        SendReceipt { is_identical_repeat: true, ..receipt }
    }

    /// The recent identical email that a call without a key repeats although a check refuses it: like a retry under a
    /// key, it is answered all the same.
    async fn repeated_email(&self, caller: &Caller, keyed: &KeyedSend, now: Time) -> Result<Option<Email>, Problem> {
        if !is_keyless_dialect_send(caller, keyed) {
            return Ok(None);
        }
        let mut new_email = self.build_email(caller, keyed, now);
        let (compared, trace) = (ComparisonSet::default(), &mut PolicyTrace::default());
        new_email.guard_input =
            self.content_guard.evaluate(caller, keyed, (Holds::NONE, &compared), now, trace).await?;
        match self.ctx.store.simulate_accept(new_email, now).await.map_err(unavailable)? {
            AcceptResult::Identical(email) => Ok(Some(email).filter(|email| caller.may_see_sender(&email.head.from))),
            _ => Ok(None),
        }
    }

    /// The receipt for a call that repeats what created the email. Nothing is recorded.
    pub fn repeat_receipt(&self, caller: &Caller, email: &Email) -> SendReceipt {
        self.receipt(caller, &CachedEmail::from(email), false, false, 0)
    }

    /// The receipt for the call that created the email.
    pub(crate) fn first_receipt(&self, caller: &Caller, email: &Email) -> SendReceipt {
        email.handoffs.iter().for_each(|handoff| self.ctx.transports.wake_one(&handoff.transport));
        let cached = &CachedEmail::from(email);
        self.ctx.metrics.record_accepted(cached.ttl_ms, cached.key.is_some());
        self.receipt(caller, cached, true, false, 0)
    }

    /// The receipt for a call whose key was already bound.
    pub(crate) fn replay(
        &self,
        caller: &Caller,
        keyed: &KeyedSend,
        cached: &CachedEmail,
        now: Time,
    ) -> Result<SendReceipt, Problem> {
        if !caller.may_see_sender(&cached.from) {
            let detail = "this idempotency key belongs to an email of an inbox that the API key may not use";
            return Err(Problem::new(Code::SenderNotAllowed, detail));
        }
        let fields = differences(keyed, cached, &self.ctx.secret);
        let reason = match (fields.is_empty(), keyed.tolerates_difference(&fields)) {
            (true, _) => SuppressedReason::KeyReplay,
            (false, true) => SuppressedReason::PayloadDiffers,
            (false, false) => SuppressedReason::Mismatch,
        };
        self.ctx.metrics.record_deduplicated(caller.channel, reason);
        self.ctx.metrics.record_key_hit(now.since(cached.created_at), cached.ttl_ms);
        let waiting = self.suppressed_calls.record(caller.team.id, cached.id, caller.suppressed_call(reason, now));
        if reason == SuppressedReason::Mismatch {
            return Err(payload_mismatch(keyed.email_key.as_ref(), cached, &fields));
        }
        Ok(self.receipt(caller, cached, false, !fields.is_empty(), waiting))
    }

    pub(crate) fn receipt(
        &self,
        caller: &Caller,
        cached: &CachedEmail,
        first: bool,
        payload_differs: bool,
        waiting: u64,
    ) -> SendReceipt {
        SendReceipt {
            id: cached.id,
            state: cached.state,
            rev: cached.rev,
            message_id: message_id(&self.ctx.secret, caller.team.id, cached),
            created_at: cached.created_at,
            guard: cached.guard,
            holds: cached.holds,
            first,
            key: cached.key.as_ref().map(EmailKey::display_name),
            expires_at: cached.expires_at,
            suppressed: cached.suppressed + waiting,
            payload_differs,
            is_identical_repeat: false,
            distinct_token: cached
                .is_held_look_alike()
                .then(|| self.content_guard.distinct_token(caller.team.id, cached.id)),
            thread: cached.thread,
            fence: None,
            resent_as: cached.resent_as,
            tightest_budget: None,
            policy: None,
        }
    }

    pub(crate) fn build_email(&self, caller: &Caller, keyed: &KeyedSend, now: Time) -> NewEmail {
        let content = &keyed.request.content;
        let addresses = |list: &[NamedAddress]| list.iter().map(|mailbox| mailbox.to_address().into()).collect();
        let head = EmailHead {
            from: content.from.to_address().into(),
            to: content.to_addresses().into_iter().map(String::from).collect(),
            cc: addresses(&content.cc),
            bcc: addresses(&content.bcc),
            subject: content.subject.clone(),
            key: keyed.email_key.clone(),
            intent: keyed.request.intent.clone(),
            created_at: now,
            on_unknown: keyed.request.on_unknown.unwrap_or(self.ctx.deps.handoff.on_unknown),
            caller: caller.api_key_id(),
            channel: caller.channel,
            version: keyed.request.intent.as_ref().map_or(1, |intent| intent.version),
            transport: keyed.request.transport.clone(),
            resend_of: None,
            reason: None,
            answers: keyed.answers,
            thread: None,
            call: caller.call.clone(),
            held_by: None,
            policy: None,
            inbox: None,
            template: keyed.template.clone(),
            identical_place: keyed.identical_place,
            erased: None,
        };
        let routed = || self.ctx.transports.select(content, caller.channel, self.ctx.entropy.next_u64());
        let transport = keyed.request.transport.as_deref().unwrap_or_else(routed);
        NewEmail {
            id: EmailId(self.ctx.new_id(now)),
            team: caller.team.id,
            shadow_keys: head.shadow_keys(caller.team.id),
            head,
            digest: keyed.digest.clone(),
            key: keyed.key_hash,
            first_wins: keyed.on_mismatch == OnMismatch::FirstWins,
            ttl: keyed.request.ttl.unwrap_or(ttl::DEFAULT),
            envelopes: self.ctx.transports.envelopes(transport, content),
            due_at: content
                .scheduled_at
                .as_ref()
                .map(|schedule| schedule.due_at(now))
                .filter(|due| *due > self.ctx.time.schedule_cutoff()),
            body: self.ctx.packer.pack(content).into(),
            guard_input: GuardInput::default(),
        }
    }

    /// Checks that depend on the time, the caller, the configuration or the team's records. A retry of an accepted
    /// email skips them. Renders the template, so that the rules and every later check see the finished email. Returns the rule that requires approval, if one does.
    async fn check_policy(
        &self,
        caller: &Caller,
        keyed: &mut KeyedSend,
        now: Time,
        trace: &mut PolicyTrace,
    ) -> Result<Option<RuleRef>, Problem> {
        trace_refusal(trace, PolicyKind::Request, "request", self.check_request(caller, keyed, now))?;
        let rendered = Box::pin(self.templates.render_send(caller, keyed)).await;
        trace_refusal(trace, PolicyKind::Request, "template", rendered)?;
        let content = &keyed.request.content;
        let from = content.from.lowercased();
        // A reply comes from an inbox of the team, which may be at a domain of the installation.
        let own = keyed.answers.is_some()
            && self.ctx.inbound.local_domains.iter().any(|domain| domain == content.from.domain());
        if !own {
            let checked = self.access.domains.check_sender(caller.team.id, &from).await;
            trace_refusal(trace, PolicyKind::Sender, "sender", checked)?;
        }
        let transport = keyed.request.transport.as_deref();
        let (team, api_key) = (caller.team.id, Some(caller.key.id));
        let inbox = self.budgets.inbox_of_sender(team, &from).await.map_err(unavailable)?;
        let origin = SendOrigin { team, from: &from, inbox, api_key, transport };
        self.control.stops.check_stops(origin, trace).await?;
        let checked = self.control.check_recipients(team, content).await;
        trace_refusal(trace, PolicyKind::Suppression, "suppressions", checked)?;
        self.control.check_outbound_rules(team, content, trace).await
    }

    fn check_request(&self, caller: &Caller, keyed: &KeyedSend, now: Time) -> Result<(), Problem> {
        let request = &keyed.request;
        if let Some(problem) = &request.refusal {
            return Err(problem.clone());
        }
        if !keyed.is_keyed() && caller.team.require_keys {
            return Err(Problem::new(
                Code::KeyRequired,
                "this team requires an idempotency key or an intent for every send",
            ));
        }
        Self::check_may_send_from(caller, &request.content.from.lowercased())?;
        let fault = |path: &str, message: &str| Err(Problem::invalid_field(path, message));
        if request.content.scheduled_at.as_ref().is_some_and(|schedule| !schedule.is_within_limit(now)) {
            return fault(
                "scheduled_at",
                &format!("must be at most {} days ahead", limits::SCHEDULE_AHEAD_MS / 86_400_000),
            );
        }
        // Most requests name no transport and skip this lookup.
        if let Some(requested) = &request.transport {
            let names = self.ctx.transports.selectable_names();
            if !names.contains(&requested.as_str()) {
                let known = names.join(", ");
                return fault("transport", &format!("must be a configured transport: {known}"));
            }
        }
        if request.distinct_token.is_some() {
            return fault("distinct_token", "does not belong to a held email");
        }
        Ok(())
    }

    /// Accepts a batch. Invalid items get an entry in `errors`; when `strict`, the first invalid item refuses the
    /// whole batch.
    pub async fn send_batch(
        &self,
        caller: &Caller,
        key: Option<Key>,
        items: Vec<Result<SendRequest, Problem>>,
        strict: bool,
    ) -> Result<BatchReceipt, Problem> {
        let now = self.ctx.now();
        let channel = if caller.channel.is_dialect() { caller.channel } else { Channel::Batch };
        let caller = &Caller { channel, ..caller.clone() };
        let digest = batch_digest(&items, strict);
        let mut faults = Vec::new();
        let (mut keyed_items, mut checks, mut repeated) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (count, mut identical_counts) = (items.len(), BTreeMap::new());
        for (index, item) in items.into_iter().enumerate() {
            self.ctx.metrics.record_send_attempt(channel);
            let position = key.clone().map(|key| (key, index as u32));
            let prepared = match item.map(|item| self.identify_item(caller, item, position, &mut identical_counts)) {
                Ok(keyed) => self.prepare_item(caller, keyed, now).await,
                Err(problem) => Err(problem),
            };
            match prepared {
                Ok(PreparedItem::Checked(checked)) => {
                    checks.insert(index, (checked.rule, checked.trace));
                    keyed_items.insert(index, checked.keyed);
                }
                Ok(PreparedItem::Repeated(receipt)) => {
                    repeated.insert(index, *receipt);
                }
                Err(problem) if strict => return Err(with_item_index(index, problem)),
                Err(problem) => faults.push((index, problem)),
            }
        }
        if let Some((index, problem)) = find_batch_conflict(&keyed_items) {
            if strict {
                return Err(with_item_index(index, problem));
            }
            keyed_items.remove(&index);
            faults.push((index, problem));
        }
        // The batch key lives as long as the longest key of its items.
        let longest_ttl =
            keyed_items.values().map(|item| item.request.ttl.unwrap_or(ttl::DEFAULT).0).max().unwrap_or_default();
        // A batch without a valid item is a validation error, and validation errors don't bind the key.
        let operation = key.filter(|_| !keyed_items.is_empty()).map(|key| KeyedOperation {
            team: caller.team.id,
            key: EmailKey::Given(key).hash(caller.team.id),
            digest,
            response: Vec::new(),
            expires_at: now.plus(longest_ttl),
        });
        let new_emails = self.guarded_batch(caller, &keyed_items, checks, now).await?;
        let bodies: Vec<Arc<[u8]>> = new_emails.iter().map(|new_email| Arc::clone(&new_email.body)).collect();
        let charges = new_emails.iter().map(|new_email| new_email.guard_input.charges.clone()).collect();
        let traces = wanted_traces(&keyed_items, &new_emails);
        let batch = NewBatch { team: caller.team.id, operation, items: new_emails, strict };
        match self.ctx.store.accept_batch(batch, now).await.map_err(unavailable)? {
            BatchAcceptResult::Items(answers) => {
                for ((item, body), answer) in keyed_items.values().zip(&bodies).zip(&answers) {
                    if let AcceptResult::First(_) = answer {
                        self.content_guard.record(caller, item, body, now);
                    }
                }
                let rooms = self.budgets.tightest_budgets(caller.team.id, charges).await;
                let answers = answers.into_iter().zip(rooms.into_iter().zip(traces)).collect();
                let mut receipt = self.batch_receipt(caller, (count, keyed_items), answers, faults, now).await;
                repeated.into_iter().for_each(|(index, item)| receipt.items[index] = Some(item));
                Ok(receipt)
            }
            BatchAcceptResult::BatchKeyMismatch(bound) => Err(batch_mismatch(&bound)),
            BatchAcceptResult::ItemKeyMismatch(position, bound) => {
                Err(batch_conflict(&keyed_items, position, &bound, &self.ctx.secret))
            }
            BatchAcceptResult::OverBudget(position, exceeded) => {
                Err(self.batch_over_budget(caller, &keyed_items, (position, traces), &exceeded).await)
            }
        }
    }

    /// The refusal of a strict batch because of the item at a position, for which a budget has no room.
    async fn batch_over_budget(
        &self,
        caller: &Caller,
        keyed_items: &BTreeMap<usize, KeyedSend>,
        (position, mut traces): (usize, Vec<PolicyTrace>),
        exceeded: &ExceededBudget,
    ) -> Problem {
        let Some((index, item)) = keyed_items.iter().nth(position) else {
            return self.budgets.quota_exceeded(caller.team.id, exceeded).await;
        };
        let problem = self.over_budget_problem(caller, item, exceeded, traces.swap_remove(position)).await;
        with_item_index(*index, problem)
    }

    /// The refusal of a batch item for which a budget has no room.
    async fn over_budget_problem(
        &self,
        caller: &Caller,
        item: &KeyedSend,
        exceeded: &ExceededBudget,
        mut trace: PolicyTrace,
    ) -> Problem {
        let problem = self.budgets.quota_exceeded(caller.team.id, exceeded).await;
        trace.record_budget(exceeded.policy_step());
        with_policy(caller, item, problem, &trace)
    }

    /// Builds the new emails of a batch and runs the guards. Each item is also compared with the items before it.
    async fn guarded_batch(
        &self,
        caller: &Caller,
        keyed_items: &BTreeMap<usize, KeyedSend>,
        mut checks: BTreeMap<usize, (Option<RuleRef>, PolicyTrace)>,
        now: Time,
    ) -> Result<Vec<NewEmail>, Problem> {
        let mut new_emails = Vec::with_capacity(keyed_items.len());
        // A set of its own: items that are not accepted in the end must not be remembered.
        let compared = ComparisonSet::for_batch();
        for (index, item) in keyed_items {
            let mut new_email = self.build_email(caller, item, now);
            new_email.head.inbox =
                self.budgets.inbox_of_sender(caller.team.id, &new_email.head.from).await.map_err(unavailable)?;
            let (rule, mut trace) = checks.remove(index).unwrap_or_default();
            new_email.head.held_by = rule;
            let holds = new_email.head.held_by.as_ref().map(|_| Guard::Approval).into();
            new_email.guard_input =
                self.content_guard.evaluate(caller, item, (holds, &compared), now, &mut trace).await?;
            new_email.guard_input.charges = self.budgets.charges(caller, &new_email).await?;
            self.budgets.trace_budgets(caller.team.id, &new_email.guard_input.charges, &mut trace).await;
            new_email.head.policy = Some(trace);
            compared.record_item(caller.team.id, item, &new_email.body, now);
            new_emails.push(new_email);
        }
        Ok(new_emails)
    }

    /// Derives an item's key. An item that may repeat a recent email also gets its place among the identical items
    /// before it, whether or not a check refuses one of them.
    fn identify_item(
        &self,
        caller: &Caller,
        request: SendRequest,
        batch_position: Option<(Key, u32)>,
        identical_counts: &mut BTreeMap<[u8; 16], u32>,
    ) -> KeyedSend {
        let mut keyed = identify_send(caller, request, batch_position);
        if is_keyless_dialect_send(caller, &keyed) {
            let identity = identity_hash(&keyed.request.content, &self.ctx.secret);
            let count = identical_counts.entry(identity).or_default();
            keyed.identical_place = Some(*count).filter(|place| *place > 0);
            *count += 1;
        }
        keyed
    }

    /// Checks an item. A bound key is looked up before the item is refused.
    async fn prepare_item(&self, caller: &Caller, mut keyed: KeyedSend, now: Time) -> Result<PreparedItem, Problem> {
        let mut trace = PolicyTrace::default();
        let checked = self.check_policy(caller, &mut keyed, now, &mut trace).await;
        if checked.is_ok() && keyed.request.intent.is_none() {
            return checked.map(|rule| PreparedItem::Checked(Box::new(CheckedItem { keyed, rule, trace })));
        }
        match self.bound_email(caller, &keyed, now).await? {
            // Without its wording it must not reach the accept, not even to be answered there.
            Some(cached) if keyed.request.content.awaits_rendering() => {
                self.replay(caller, &keyed, &cached, now).map(|receipt| PreparedItem::Repeated(Box::new(receipt)))
            }
            Some(cached) => {
                let fields = differences(&keyed, &cached, &self.ctx.secret);
                if fields.is_empty() || keyed.tolerates_difference(&fields) {
                    let trace = PolicyTrace::default();
                    Ok(PreparedItem::Checked(Box::new(CheckedItem { keyed, rule: None, trace })))
                } else {
                    Err(payload_mismatch(keyed.email_key.as_ref(), &cached, &fields))
                }
            }
            None => match checked {
                Ok(rule) => Ok(PreparedItem::Checked(Box::new(CheckedItem { keyed, rule, trace }))),
                // It is answered here and not accepted below, where it would skip the check that refused it.
                Err(problem) => match self.repeated_email(caller, &keyed, now).await? {
                    Some(email) => Ok(PreparedItem::Repeated(Box::new(self.replay_identical(caller, &email, now)))),
                    None => Err(with_policy(caller, &keyed, problem, &trace)),
                },
            },
        }
    }

    async fn batch_receipt(
        &self,
        caller: &Caller,
        (count, keyed_items): (usize, BTreeMap<usize, KeyedSend>),
        answers: Vec<(AcceptResult, (Option<BudgetRoom>, PolicyTrace))>,
        mut faults: Vec<(usize, Problem)>,
        now: Time,
    ) -> BatchReceipt {
        let mut items: BTreeMap<usize, SendReceipt> = BTreeMap::new();
        let mut replayed = count > faults.len();
        for ((index, item), (answer, (room, trace))) in keyed_items.iter().zip(answers) {
            let policy = answer.email().filter(|_| item.request.wants_policy).map(|email| decided_steps(caller, email));
            let answer = match answer {
                AcceptResult::First(email) => {
                    replayed = false;
                    Ok(SendReceipt { tightest_budget: room, ..self.first_receipt(caller, &email) })
                }
                AcceptResult::KeyBound(bound) => self.replay_bound(caller, item, bound, now),
                AcceptResult::Identical(email) => Ok(self.replay_identical(caller, &email, now)),
                AcceptResult::OverBudget(exceeded) => {
                    Err(self.over_budget_problem(caller, item, &exceeded, trace).await)
                }
            };
            match answer {
                Ok(sent) => {
                    items.insert(*index, SendReceipt { policy, ..sent });
                }
                Err(problem) => faults.push((*index, problem)),
            }
        }
        faults.sort_by_key(|(index, _)| *index);
        BatchReceipt { items: (0..count).map(|index| items.remove(&index)).collect(), errors: faults, replayed }
    }
}

/// The email that a key is bound to. A key may also be bound to another operation.
pub(crate) fn email_of_binding(keyed: &KeyedSend, bound: KeyBinding) -> Result<Email, Problem> {
    match bound {
        KeyBinding::Email(email) => Ok(email),
        KeyBinding::Operation { .. } => Err(key_used_elsewhere(keyed.email_key.as_ref())),
    }
}

/// What the checks of a batch item found.
enum PreparedItem {
    Checked(Box<CheckedItem>),
    /// A check refuses it, but it repeats an accepted email, and this is the answer.
    Repeated(Box<SendReceipt>),
}

/// A batch item that passed the checks, with the rule that requires approval, if one does.
struct CheckedItem {
    keyed: KeyedSend,
    rule: Option<RuleRef>,
    trace: PolicyTrace,
}

/// Adds to a refusal what each check decided, if the caller asked for it.
pub(crate) fn with_policy(caller: &Caller, keyed: &KeyedSend, problem: Problem, trace: &PolicyTrace) -> Problem {
    if keyed.request.wants_policy { problem_with_steps(caller, problem, trace) } else { problem }
}

/// What the checks decided about each item of a batch, as far as a refusal shows it.
fn wanted_traces(keyed_items: &BTreeMap<usize, KeyedSend>, new_emails: &[NewEmail]) -> Vec<PolicyTrace> {
    let trace = |(item, new_email): (&KeyedSend, &NewEmail)| {
        let wanted = new_email.head.policy.as_ref().filter(|_| item.request.wants_policy);
        wanted.cloned().unwrap_or_default()
    };
    keyed_items.values().zip(new_emails).map(trace).collect()
}

/// The first item that has the same key as an earlier item but differs from it.
fn find_batch_conflict(keyed_items: &BTreeMap<usize, KeyedSend>) -> Option<(usize, Problem)> {
    let mut firsts: BTreeMap<KeyHash, &KeyedSend> = BTreeMap::new();
    for (index, item) in keyed_items {
        let Some(hash) = item.key_hash else { continue };
        let first = firsts.entry(hash).or_insert(item);
        let fields = first.digest.differences(&item.digest);
        if !fields.is_empty() && !item.tolerates_difference(&fields) {
            let fields: Vec<&str> = fields.iter().map(|field| field.name()).collect();
            let detail =
                format!("an earlier item of this batch has the same key and differs in: {}", fields.join(", "));
            return Some((*index, Problem::new(Code::KeyMismatch, detail).with_extension("differing_fields", fields)));
        }
    }
    None
}

/// The digest of a batch: its items in order, and whether it is strict.
fn batch_digest(items: &[Result<SendRequest, Problem>], strict: bool) -> [u8; 32] {
    let meaning = |item: &Result<SendRequest, Problem>| match item {
        Ok(request) => Digest::of_content(&request.content).full_hash(),
        Err(_) => [0; 32],
    };
    let body: Vec<u8> = items.iter().flat_map(meaning).collect();
    mailonce_core::outbound::digest::operation_digest("batch", if strict { "strict" } else { "permissive" }, &body)
}

pub(crate) fn payload_mismatch(name: Option<&EmailKey>, original: &CachedEmail, fields: &[DigestField]) -> Problem {
    let fields: Vec<&str> = fields.iter().map(|field| field.name()).collect();
    let key = name.map(EmailKey::display_name).unwrap_or_default();
    let detail = format!("the key `{key}` belongs to email {}, which differs in: {}", original.id, fields.join(", "));
    Problem::new(Code::KeyMismatch, detail)
        .with_extension("differing_fields", fields)
        .with_extension("original_email", original.id.to_string())
        .with_extension("key", key)
}

/// The problem for a distinct token that came with a different email.
fn token_mismatch(held: &CachedEmail, fields: &[DigestField]) -> Problem {
    let fields: Vec<&str> = fields.iter().map(|field| field.name()).collect();
    let detail = format!("the token belongs to a different email: {} differs in: {}", held.id, fields.join(", "));
    Problem::new(Code::KeyMismatch, detail)
        .with_extension("differing_fields", fields)
        .with_extension("original_email", held.id.to_string())
}

fn key_used_elsewhere(name: Option<&EmailKey>) -> Problem {
    let key = name.map(EmailKey::display_name).unwrap_or_default();
    let detail = format!("the key `{key}` was used for another operation or batch");
    Problem::new(Code::KeyMismatch, detail)
        .with_extension("differing_fields", vec!["operation"])
        .with_extension("key", key)
}

/// The problem for a batch item whose key was bound to another email in the meantime. `position` counts only valid
/// items.
fn batch_conflict(
    keyed_items: &BTreeMap<usize, KeyedSend>,
    position: usize,
    bound: &KeyBinding,
    secret: &InstallSecret,
) -> Problem {
    let Some((index, item)) = keyed_items.iter().nth(position) else { return batch_mismatch(bound) };
    let problem = match bound {
        KeyBinding::Email(email) => {
            let cached = CachedEmail::from(email);
            payload_mismatch(item.email_key.as_ref(), &cached, &differences(item, &cached, secret))
        }
        KeyBinding::Operation { .. } => key_used_elsewhere(item.email_key.as_ref()),
    };
    with_item_index(*index, problem)
}

fn batch_mismatch(bound: &KeyBinding) -> Problem {
    match bound {
        KeyBinding::Email(email) => {
            Problem::new(Code::KeyMismatch, format!("this key belongs to the single email {}", email.id))
                .with_extension("differing_fields", vec!["operation"])
                .with_extension("original_email", email.id.to_string())
        }
        KeyBinding::Operation { .. } => {
            Problem::new(Code::KeyMismatch, "this key was used for a batch or call with another body")
                .with_extension("differing_fields", vec!["body"])
        }
    }
}

/// Adds the index of a batch item to a problem.
fn with_item_index(index: usize, mut problem: Problem) -> Problem {
    let path = problem.field.take().map_or_else(|| format!("[{index}]"), |field| format!("[{index}].{field}"));
    problem.detail = format!("item {index}: {}", problem.detail);
    problem.field = Some(path);
    problem.with_extension("index", index)
}
