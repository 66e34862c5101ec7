//! Runs the same steps on the memory store and on the store under test, and compares them.

use mailonce_core::{
    call_trace::CallTrace,
    control::audit::AuditPage,
    conversation::reply_guards::ReplyResult,
    events::event::Event,
    handoff::{
        action::{HandoffAction, HandoffActionStatus, LeaseRef},
        lease::{Backlog, HandoffActionResult, LeaseRequest, LeasedHandoff, OrphanBacklog, TransportAccount},
    },
    id::{EmailId, NodeId, TeamId},
    inbox::message::FileMessageResult,
    installation::{RecoveryCounts, SweepCounts},
    key::KeyHash,
    limits,
    operation::{IdempotentResult, KeyedOperation},
    outbound::{
        accept::{AcceptResult, BatchAcceptResult, NewBatch, NewEmail},
        email::{Channel, Email},
        email_commands::{EmailChangeResult, EmailResendResult, RescheduleRequest},
        email_query::{EmailDetail, EmailQuery},
        key_binding::{KeyBinding, KeyChangeResult, KeyView},
        suppressed_call::{SuppressedCall, SuppressedCalls, SuppressedReason},
    },
    time::Time,
    ttl::Ttl,
};
use std::fmt::Debug;
use uuid::Uuid;

use crate::conformance::{
    HOUR, OTHER_TEAM, SANDBOX, T0, TEAM, TestStore, all_at_once, all_events, create_teams,
    fixtures::{
        emails::charge_at,
        handoffs::{LeasedJob, job_of, node_id},
        open_store,
    },
    keyless_email, list_all_pages, next_id, next_version,
    random::{
        claims::{self, ClaimAnswer, ClaimCall, ClaimHistory},
        conversations::{self, ConversationAnswer, ConversationCall, ConversationState},
        handoffs::{HandoffCommand, REMOTE_IDS, lease_request, resolve_action},
        inbound::{self, InboundAnswer, InboundCall, InboundState},
        step::{KeyChoice, OperationSpec, RandomCommand, RandomStep},
        templates::{self, TemplateAnswer, TemplateCall, TemplateState},
        webhooks::{self, WebhookAnswer, WebhookCall, WebhookState},
    },
};

/// A complete call, the same for both stores.
#[derive(Clone, Debug)]
enum StoreCall {
    Accept(NewEmail),
    Concurrent(Vec<NewEmail>),
    Batch(NewBatch),
    Cancel(TeamId, EmailId, Option<KeyedOperation>),
    Reschedule(TeamId, EmailId, RescheduleRequest),
    Resend(NewEmail, Option<KeyedOperation>),
    Capture(usize),
    NoteSuppressed(SuppressedCalls),
    Extend(TeamId, KeyHash, Ttl),
    Forget(TeamId, KeyHash),
    LookUpKey(TeamId, KeyHash),
    List(TeamId, EmailQuery),
    Sweep,
    Lease(LeaseRequest),
    Recover(NodeId, usize),
    ApplyAction(TeamId, EmailId, HandoffAction, Option<KeyedOperation>),
    Inbound(InboundCall),
    Conversation(ConversationCall),
    Webhook(WebhookCall),
    Template(TemplateCall),
    Claim(ClaimCall),
    Nothing,
}

/// The answer of a store.
#[derive(Debug, PartialEq)]
enum StoreAnswer {
    Accept(AcceptResult),
    Concurrent(Vec<AcceptResult>),
    Batch(BatchAcceptResult),
    Cancel(IdempotentResult<EmailChangeResult>),
    Reschedule(EmailChangeResult),
    Resend(IdempotentResult<EmailResendResult>),
    Capture(usize, Option<Time>),
    Key(KeyChangeResult),
    LookUpKey(Box<(Option<KeyBinding>, Option<KeyView>)>),
    List(Vec<Email>),
    Sweep(SweepCounts),
    Lease(Vec<LeasedHandoff>),
    Recover(RecoveryCounts),
    ApplyAction(IdempotentResult<HandoffActionResult>),
    Inbound(InboundAnswer),
    Conversation(ConversationAnswer),
    Webhook(WebhookAnswer),
    Template(TemplateAnswer),
    Claim(ClaimAnswer),
    Done,
}

async fn call_store(store: &TestStore, request: StoreCall, now: Time) -> StoreAnswer {
    match request {
        StoreCall::Accept(new_email) => StoreAnswer::Accept(store.accept(new_email, now).await.unwrap()),
        StoreCall::Concurrent(new_emails) => StoreAnswer::Concurrent(accept_together(store, new_emails, now).await),
        StoreCall::Batch(batch) => StoreAnswer::Batch(store.accept_batch(batch, now).await.unwrap()),
        StoreCall::Cancel(team, id, call) => StoreAnswer::Cancel(store.cancel(team, id, call, now).await.unwrap()),
        StoreCall::Reschedule(team, id, new) => {
            StoreAnswer::Reschedule(store.reschedule(team, id, new, now).await.unwrap())
        }
        StoreCall::Resend(new_email, call) => StoreAnswer::Resend(store.resend(new_email, call, now).await.unwrap()),
        StoreCall::Capture(max) => {
            let captured = store.capture(SANDBOX, max, Some(now), now).await.unwrap();
            StoreAnswer::Capture(captured, store.next_handoff_due(SANDBOX).await.unwrap())
        }
        StoreCall::NoteSuppressed(note) => {
            store.record_suppressed_calls(vec![note], now).await.unwrap();
            StoreAnswer::Done
        }
        StoreCall::Extend(team, key, ttl) => StoreAnswer::Key(store.extend_key(team, key, ttl, now).await.unwrap()),
        StoreCall::Forget(team, key) => StoreAnswer::Key(store.forget_key(team, key, now).await.unwrap()),
        StoreCall::LookUpKey(team, key) => {
            let bound = store.key_binding(team, key, now).await.unwrap();
            StoreAnswer::LookUpKey(Box::new((bound, store.key(team, key, now).await.unwrap())))
        }
        StoreCall::List(team, query) => StoreAnswer::List(list_all_pages(store, team, query).await),
        StoreCall::Sweep => StoreAnswer::Sweep(store.sweep(1_000, now).await.unwrap()),
        StoreCall::Lease(request) => StoreAnswer::Lease(store.lease_handoffs(request, now).await.unwrap()),
        StoreCall::Recover(node, max) => StoreAnswer::Recover(store.recover_dead_nodes(node, max, now).await.unwrap()),
        StoreCall::ApplyAction(team, id, action, call) => {
            StoreAnswer::ApplyAction(store.apply_action(team, id, action, call, now).await.unwrap())
        }
        StoreCall::Inbound(request) => StoreAnswer::Inbound(Box::pin(inbound::call_store(store, request, now)).await),
        StoreCall::Conversation(request) => {
            StoreAnswer::Conversation(Box::pin(conversations::call_store(store, request, now)).await)
        }
        StoreCall::Webhook(request) => StoreAnswer::Webhook(Box::pin(webhooks::call_store(store, request, now)).await),
        StoreCall::Template(request) => {
            StoreAnswer::Template(Box::pin(templates::call_store(store, request, now)).await)
        }
        StoreCall::Claim(request) => StoreAnswer::Claim(Box::pin(claims::call_store(store, request, now)).await),
        StoreCall::Nothing => StoreAnswer::Done,
    }
}

/// The memory store and the store under test, with one clock.
pub(super) struct ModelComparison {
    /// The memory store. Its answers are the expected ones.
    model: TestStore,
    tested: TestStore,
    now: Time,
    /// All accepted emails, in order.
    emails: Vec<EmailId>,
    /// All handoff leases, in order.
    jobs: Vec<(TeamId, LeasedJob)>,
    inbound: InboundState,
    conversations: ConversationState,
    webhooks: WebhookState,
    templates: TemplateState,
    claims: ClaimHistory,
}

impl ModelComparison {
    pub(super) fn new(tested: TestStore) -> Self {
        let model = open_store::memory().store;
        Self {
            model,
            tested,
            now: T0,
            emails: Vec::new(),
            jobs: Vec::new(),
            inbound: InboundState::default(),
            conversations: ConversationState::default(),
            webhooks: WebhookState::default(),
            templates: TemplateState::default(),
            claims: ClaimHistory::default(),
        }
    }

    /// Creates the teams in both stores.
    pub(super) async fn create_teams(&self) {
        create_teams(&self.model).await;
        create_teams(&self.tested).await;
    }

    /// Runs one step. The error says what differs.
    pub(super) async fn run_step(&mut self, step: &RandomStep) -> Result<(), String> {
        let request = self.call_for(step).await;
        let (expected, answer) = match request.clone() {
            StoreCall::Concurrent(new_emails) => self.call_concurrently(step.team(), new_emails).await,
            request => {
                let expected = Box::pin(call_store(&self.model, request.clone(), self.now)).await;
                (expected, Box::pin(call_store(&self.tested, request, self.now)).await)
            }
        };
        check_same("answer", &expected, &answer)?;
        self.record_emails(&expected);
        self.record_jobs(&request, &expected);
        if let (StoreCall::Inbound(request), StoreAnswer::Inbound(answer)) = (&request, &expected) {
            self.inbound.record(request, answer);
        }
        if let StoreAnswer::Inbound(InboundAnswer::File(FileMessageResult::New(message, _))) = &expected {
            self.conversations.record(message);
        }
        if let StoreAnswer::Webhook(answer) = &expected {
            self.webhooks.record(answer);
        }
        if let StoreAnswer::Template(answer) = &expected {
            self.templates.record(answer);
        }
        if let StoreAnswer::Claim(answer) = &expected {
            self.claims.record(answer);
        }
        Ok(())
    }

    /// Accepts emails concurrently in the tested store, and in the model in the order of the tested store's events.
    /// An email whose key was bound writes no event and changes nothing, so the model gets it last.
    async fn call_concurrently(&self, team: TeamId, new_emails: Vec<NewEmail>) -> (StoreAnswer, StoreAnswer) {
        let found = accept_together(&self.tested, new_emails.clone(), self.now).await;
        let order: Vec<Uuid> =
            all_events(&self.tested, team).await.iter().map(|event| event.event.subject_id).collect();
        let mut indexes: Vec<usize> = (0..new_emails.len()).collect();
        indexes.sort_by_key(|index| {
            order.iter().position(|subject| *subject == new_emails[*index].id.0).unwrap_or(usize::MAX)
        });
        let mut expected = found.clone();
        for index in indexes {
            expected[index] = self.model.accept(new_emails[index].clone(), self.now).await.unwrap();
        }
        (StoreAnswer::Concurrent(expected), StoreAnswer::Concurrent(found))
    }

    /// Compares everything that can be read.
    pub(super) async fn compare(&self) -> Result<(), String> {
        for team in [TEAM, OTHER_TEAM] {
            let expected = view_team(&self.model, team, self.now).await;
            let found = view_team(&self.tested, team, self.now).await;
            check_same("emails", &expected.emails, &found.emails)?;
            check_same("events", &expected.events, &found.events)?;
            check_same("audit log", &expected.audit, &found.audit)?;
            check_same("remote ids", &expected.by_remote_id, &found.by_remote_id)?;
            for (held, other) in expected.handoffs.iter().zip(&found.handoffs) {
                check_same("bytes", held, other)?;
            }
            for (key, other) in expected.keys.iter().zip(&found.keys) {
                check_same("key", key, other)?;
            }
            let (expected, found) =
                (&self.inbound.view_all(&self.model, team).await, &self.inbound.view_all(&self.tested, team).await);
            for (view, other) in expected.iter().zip(found) {
                check_same("mail", view, other)?;
            }
            check_same("number of mail rows", &expected.len(), &found.len())?;
            let (expected, found) = (
                self.conversations.view_all(&self.model, team).await,
                self.conversations.view_all(&self.tested, team).await,
            );
            for (view, other) in expected.iter().zip(&found) {
                check_same("conversations", view, other)?;
            }
            check_same("number of conversation rows", &expected.len(), &found.len())?;
            let webhooks = &self.webhooks;
            let (expected, found) = (
                &webhooks.view_all(&self.model, team, self.now).await,
                &webhooks.view_all(&self.tested, team, self.now).await,
            );
            for (view, other) in expected.iter().zip(found) {
                check_same("webhooks", view, other)?;
            }
            check_same("number of webhook rows", &expected.len(), &found.len())?;
            let templates = &self.templates;
            let (expected, found) =
                (templates.view_all(&self.model, team).await, templates.view_all(&self.tested, team).await);
            check_same("templates", &expected, &found)?;
            let claims = &self.claims;
            let (expected, found) =
                (claims.view_all(&self.model, team).await, claims.view_all(&self.tested, team).await);
            check_same("claims", &expected, &found)?;
        }
        let unknown = async |store: &TestStore| store.unknown_claims(None, 1_000).await.unwrap();
        check_same("unknown claims", &unknown(&self.model).await, &unknown(&self.tested).await)?;
        let (expected, found) = (view_backlog(&self.model, self.now).await, view_backlog(&self.tested, self.now).await);
        check_same("backlog, unknown and held emails, orphans", &expected, &found)
    }

    fn record_emails(&mut self, answer: &StoreAnswer) {
        let mut record = |answer: &AcceptResult| {
            if let AcceptResult::First(email) = answer {
                self.emails.push(email.id);
            }
        };
        match answer {
            StoreAnswer::Accept(answer) => record(answer),
            StoreAnswer::Concurrent(items) | StoreAnswer::Batch(BatchAcceptResult::Items(items)) => {
                items.iter().for_each(record)
            }
            StoreAnswer::Resend(IdempotentResult::Done(EmailResendResult::First(email)))
            | StoreAnswer::Conversation(ConversationAnswer::Reply(ReplyResult::First(email, _))) => {
                self.emails.push(email.id)
            }
            _ => {}
        }
    }

    /// Records which handoffs are leased, and the attempt of each marker.
    fn record_jobs(&mut self, request: &StoreCall, answer: &StoreAnswer) {
        if let StoreAnswer::Lease(leased) = answer {
            self.jobs.extend(leased.iter().map(|leased| (leased.email.team, job_of(leased))));
        }
        let StoreAnswer::ApplyAction(IdempotentResult::Done(HandoffActionResult::Applied(
            HandoffActionStatus::Done,
            email,
        ))) = answer
        else {
            return;
        };
        let StoreCall::ApplyAction(team, id, action, _) = request else { return };
        match action {
            HandoffAction::Mark { lease, .. } => {
                let attempt = email.handoffs.get(usize::from(lease.number)).map(|handoff| handoff.attempts);
                let same = |(_, job): &&mut (TeamId, LeasedJob)| {
                    job.id == *id && (job.lease.number, job.lease.fence) == (lease.number, lease.fence)
                };
                self.jobs.iter_mut().filter(same).for_each(|(_, job)| job.attempt = attempt);
            }
            HandoffAction::RetryInWindow { number, account, .. } => {
                let Some(handoff) = email.handoffs.get(usize::from(*number)) else { return };
                let (transport, account) = (handoff.transport.clone(), account.clone());
                let lease = LeaseRef { number: *number, fence: handoff.fence, transport, account };
                self.jobs.push((*team, LeasedJob { id: *id, lease, attempt: None }));
            }
            _ => {}
        }
    }

    /// An email by its recency; 0 is the latest.
    fn by_recency(&self, recency: u8) -> EmailId {
        let recency = usize::from(recency) % self.emails.len().max(1);
        self.emails.iter().rev().nth(recency).copied().unwrap_or_else(|| EmailId(next_id(self.now)))
    }

    fn operation(&self, team: TeamId, call: OperationSpec) -> KeyedOperation {
        let OperationSpec(name, digest) = call;
        let key = name.hash(team);
        KeyedOperation {
            team,
            key,
            digest: [digest; 32],
            response: vec![digest; 3],
            expires_at: self.now.plus(limits::OPERATION_RETENTION_MS),
        }
    }

    async fn call_for(&mut self, step: &RandomStep) -> StoreCall {
        let (team, now) = (step.team(), self.now);
        let operation = |call: &Option<OperationSpec>| call.map(|call| self.operation(team, call));
        match &step.command {
            RandomCommand::Accept(spec) => StoreCall::Accept(spec.to_fixture(team, now).to_new_email(now)),
            RandomCommand::Concurrent(specs) => {
                StoreCall::Concurrent(specs.iter().map(|spec| spec.to_fixture(team, now).to_new_email(now)).collect())
            }
            RandomCommand::Batch(call, specs) => StoreCall::Batch(NewBatch {
                team,
                operation: operation(call),
                items: specs.iter().map(|spec| spec.to_fixture(team, now).to_new_email(now)).collect(),
                strict: specs.len().is_multiple_of(2),
            }),
            RandomCommand::Cancel(recency, call) => StoreCall::Cancel(team, self.by_recency(*recency), operation(call)),
            RandomCommand::Reschedule(recency, ms) => {
                let due = now.plus(*ms);
                // Some are charged to the budget that new emails are charged to.
                let charge = charge_at(1, 2, 8, HOUR, due.max(now));
                let charges = if recency.is_multiple_of(2) { vec![charge] } else { Vec::new() };
                StoreCall::Reschedule(team, self.by_recency(*recency), RescheduleRequest { due_at: due, charges })
            }
            RandomCommand::Resend(recency, call) => {
                let operation = operation(call);
                StoreCall::Resend(self.next_version_of(team, self.by_recency(*recency)).await, operation)
            }
            RandomCommand::Capture(max) => StoreCall::Capture(*max),
            RandomCommand::NoteSuppressed(recency, count) => {
                StoreCall::NoteSuppressed(suppressed_note(team, self.by_recency(*recency), *count, now))
            }
            RandomCommand::Extend(name, ms) => StoreCall::Extend(team, name.hash(team), Ttl(*ms)),
            RandomCommand::Forget(name) => StoreCall::Forget(team, name.hash(team)),
            RandomCommand::LookUpKey(name) => StoreCall::LookUpKey(team, name.hash(team)),
            RandomCommand::List(state, to, limit) => {
                let to = to.map(ToOwned::to_owned);
                StoreCall::List(team, EmailQuery { state: *state, to, limit: *limit, ..EmailQuery::default() })
            }
            RandomCommand::Sweep => StoreCall::Sweep,
            RandomCommand::Handoff(command) => self.handoff_call(team, command).await,
            RandomCommand::Inbound(command) => {
                let operation = |call| self.operation(team, call);
                StoreCall::Inbound(self.inbound.call_for(team, command, operation, now))
            }
            RandomCommand::Conversation(command) => {
                let operation = |call| self.operation(team, call);
                StoreCall::Conversation(self.conversations.call_for(team, command, operation, now))
            }
            RandomCommand::Webhook(command) => {
                let operation = |call| self.operation(team, call);
                StoreCall::Webhook(self.webhooks.call_for(team, command, operation, now))
            }
            RandomCommand::Template(command) => {
                let operation = |call| self.operation(team, call);
                StoreCall::Template(self.templates.call_for(team, command, operation, now))
            }
            RandomCommand::Claim(command) => {
                let operation = |call| self.operation(team, call);
                let call = self.claims.call_for(team, command, operation, now);
                call.map_or(StoreCall::Nothing, StoreCall::Claim)
            }
            RandomCommand::AdvanceTime(ms) => {
                self.now = now.plus(*ms);
                StoreCall::Nothing
            }
        }
    }

    async fn handoff_call(&self, team: TeamId, command: &HandoffCommand) -> StoreCall {
        match command {
            HandoffCommand::Lease { transport, node, max, exclude_domain, scheduled } => {
                StoreCall::Lease(lease_request(transport, *node, *max, *exclude_domain, *scheduled))
            }
            HandoffCommand::Recover { node: n, max } => StoreCall::Recover(node_id(*n), *max),
            HandoffCommand::Worker(recency, command) => {
                let recency = usize::from(*recency) % self.jobs.len().max(1);
                let Some((team, job)) = self.jobs.iter().rev().nth(recency) else { return StoreCall::Nothing };
                StoreCall::ApplyAction(*team, job.id, command.action(job, self.now), None)
            }
            HandoffCommand::Incident(recency, number, incident) => {
                StoreCall::ApplyAction(team, self.by_recency(*recency), incident.action(*number, self.now), None)
            }
            HandoffCommand::Resolve { email, number, resolution, is_current_rev, call } => {
                let id = self.by_recency(*email);
                let found = self.model.email(team, id).await.unwrap();
                let action = resolve_action(found.as_ref(), *number, *resolution, *is_current_rev);
                StoreCall::ApplyAction(team, id, action, call.map(|call| self.operation(team, call)))
            }
        }
    }

    /// The next version of this email, whichever team owns it.
    async fn next_version_of(&self, team: TeamId, id: EmailId) -> NewEmail {
        let mine = self.model.email(TEAM, id).await.unwrap();
        let previous = mine.or(self.model.email(OTHER_TEAM, id).await.unwrap());
        let fixture = previous.as_ref().map_or_else(keyless_email, next_version);
        let mut new_email = fixture.team(team).to_new_email(self.now);
        new_email.head.resend_of = Some(id);
        new_email
    }
}

/// Accepts emails concurrently and returns their results in the order of the emails.
async fn accept_together(store: &TestStore, new_emails: Vec<NewEmail>, now: Time) -> Vec<AcceptResult> {
    let work = new_emails.into_iter().map(|new_email| (store.clone(), new_email));
    all_at_once(work.map(|(store, new_email)| async move { store.accept(new_email, now).await.unwrap() })).await
}

fn suppressed_note(team: TeamId, email: EmailId, count: u8, now: Time) -> SuppressedCalls {
    let call = |i: u8| SuppressedCall {
        at: now.plus(i.into()),
        caller: None,
        channel: Channel::Http,
        reason: if i.is_multiple_of(2) { SuppressedReason::KeyReplay } else { SuppressedReason::Mismatch },
        call: CallTrace::from_parts(i.is_multiple_of(3).then(|| format!("call {i}")), None),
    };
    let kept = count.saturating_sub(limits::SUPPRESSED_CALLS_KEPT as u8);
    SuppressedCalls { team, email, count: count.into(), latest: (kept..count).map(call).collect() }
}

/// Everything that a team can read.
struct TeamView {
    emails: Vec<EmailDetail>,
    events: Vec<Event>,
    audit: AuditPage,
    keys: Vec<(KeyHash, Option<KeyView>)>,
    /// The first handoff of each email, with its body and frozen bytes.
    handoffs: Vec<Option<LeasedHandoff>>,
    by_remote_id: Vec<Option<(EmailId, u16)>>,
}

/// Reads the backlog, due unknown handoffs, held or unknown emails, and orphans.
async fn view_backlog(store: &TestStore, now: Time) -> BacklogView {
    // The second transport has another account, so that both columns matter.
    let account_at = |name: &str, account: &str| TransportAccount { name: name.into(), account: account.into() };
    let mine = [account_at(SANDBOX, "A"), account_at("relay", "B")];
    BacklogView {
        backlog: store.backlog().await.unwrap(),
        doubts: store.due_unknown_handoffs(&mine, 1_000, now).await.unwrap(),
        stuck: store.held_or_unknown_emails(None, 1_000).await.unwrap(),
        orphans: store.orphan_backlogs(&["relay".into()], now).await.unwrap(),
        open: store.emails_open_at_transport(SANDBOX, None, 1_000).await.unwrap(),
    }
}

/// What [`view_backlog`] reads.
#[derive(Debug, PartialEq)]
struct BacklogView {
    backlog: Backlog,
    doubts: Vec<(Email, u16)>,
    stuck: Vec<Email>,
    orphans: Vec<OrphanBacklog>,
    open: Vec<(TeamId, EmailId)>,
}

async fn view_team(store: &TestStore, team: TeamId, now: Time) -> TeamView {
    let (mut emails, mut held, mut remote) = (Vec::new(), Vec::new(), Vec::new());
    for email in list_all_pages(store, team, EmailQuery { limit: 40, ..EmailQuery::default() }).await {
        emails.push(store.email_detail(team, email.id).await.unwrap().unwrap());
        held.push(store.leased_handoff(team, email.id, 0).await.unwrap());
    }
    for name in REMOTE_IDS {
        remote.push(store.handoff_by_remote_id(team, name).await.unwrap());
    }
    let named = emails.iter().filter_map(|detail| detail.email.head.key.as_ref()).map(|name| name.hash(team));
    let mut hashes: Vec<KeyHash> = named.chain(KeyChoice::all().into_iter().map(|name| name.hash(team))).collect();
    hashes.sort_unstable();
    hashes.dedup();
    let mut keys = Vec::new();
    for key in hashes {
        keys.push((key, store.key(team, key, now).await.unwrap()));
    }
    let (events, audit) = (all_events(store, team).await, store.audit_page(team, 0, 10_000).await.unwrap());
    TeamView { emails, events, audit, keys, handoffs: held, by_remote_id: remote }
}

fn check_same<T: PartialEq + Debug>(what: &str, expected: &T, found: &T) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    Err(format!("{what}\n expected {expected:?}\n    found {found:?}"))
}
