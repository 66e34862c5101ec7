//! Playing turns on two ledgers at once, and comparing them.

use mailonce_core::{
    call_trace::CallTrace,
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

use super::{
    HOUR, OTHER_TEAM, SANDBOX, T0, TEAM, TestStore, all_at_once, all_events,
    budgets::charge_at,
    chat::{self, ConversationAnswer, ConversationCall, ConversationState},
    deed::{HandoffCommand, REMOTE_IDS, lease_request, node_id, resolve_action},
    keyless_email, list_all_pages,
    mailroom::{self, InboundAnswer, InboundCall, InboundState},
    make_teams, next_id, next_version, open,
    rumour::{self, WebhookAnswer, WebhookCall, WebhookState},
    turn::{KeyChoice, OperationSpec, RandomCommand, RandomStep},
    work::{LeasedJob, job_of},
};

/// A call in full, the same for both ledgers.
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
    Act(TeamId, EmailId, HandoffAction, Option<KeyedOperation>),
    Inbound(InboundCall),
    Conversation(ConversationCall),
    Webhook(WebhookCall),
    Nothing,
}

/// What a ledger said.
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
    Act(IdempotentResult<HandoffActionResult>),
    Inbound(InboundAnswer),
    Conversation(ConversationAnswer),
    Webhook(WebhookAnswer),
    Done,
}

async fn call_store(store: &TestStore, request: StoreCall, now: Time) -> StoreAnswer {
    match request {
        StoreCall::Accept(wish) => StoreAnswer::Accept(store.accept(wish, now).await.unwrap()),
        StoreCall::Concurrent(wishes) => StoreAnswer::Concurrent(accept_together(store, wishes, now).await),
        StoreCall::Batch(batch) => StoreAnswer::Batch(store.accept_batch(batch, now).await.unwrap()),
        StoreCall::Cancel(team, id, call) => StoreAnswer::Cancel(store.cancel(team, id, call, now).await.unwrap()),
        StoreCall::Reschedule(team, id, new) => {
            StoreAnswer::Reschedule(store.reschedule(team, id, new, now).await.unwrap())
        }
        StoreCall::Resend(wish, call) => StoreAnswer::Resend(store.resend(wish, call, now).await.unwrap()),
        StoreCall::Capture(max) => {
            let taken = store.capture(SANDBOX, max, Some(now), now).await.unwrap();
            StoreAnswer::Capture(taken, store.next_handoff_due(SANDBOX).await.unwrap())
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
        StoreCall::Lease(wish) => StoreAnswer::Lease(store.lease_handoffs(wish, now).await.unwrap()),
        StoreCall::Recover(node, max) => StoreAnswer::Recover(store.recover_dead_nodes(node, max, now).await.unwrap()),
        StoreCall::Act(team, id, act, call) => {
            StoreAnswer::Act(store.apply_action(team, id, act, call, now).await.unwrap())
        }
        StoreCall::Inbound(mail) => StoreAnswer::Inbound(Box::pin(mailroom::call_store(store, mail, now)).await),
        StoreCall::Conversation(talk) => StoreAnswer::Conversation(Box::pin(chat::call_store(store, talk, now)).await),
        StoreCall::Webhook(tale) => StoreAnswer::Webhook(Box::pin(rumour::call_store(store, tale, now)).await),
        StoreCall::Nothing => StoreAnswer::Done,
    }
}

/// Two ledgers, one time.
pub(super) struct ModelComparison {
    /// Right by definition.
    model: TestStore,
    tested: TestStore,
    now: Time,
    /// Every email that was accepted, in order.
    emails: Vec<EmailId>,
    /// Every lease that was given, in order.
    jobs: Vec<(TeamId, LeasedJob)>,
    inbound: InboundState,
    conversations: ConversationState,
    webhooks: WebhookState,
}

impl ModelComparison {
    pub(super) fn new(engine: TestStore) -> Self {
        let model = open::memory().store;
        Self {
            model,
            tested: engine,
            now: T0,
            emails: Vec::new(),
            jobs: Vec::new(),
            inbound: InboundState::default(),
            conversations: ConversationState::default(),
            webhooks: WebhookState::default(),
        }
    }

    /// Makes the teams in both ledgers.
    pub(super) async fn create_teams(&self) {
        make_teams(&self.model).await;
        make_teams(&self.tested).await;
    }

    /// Plays one turn. Says what differs.
    pub(super) async fn run_step(&mut self, turn: &RandomStep) -> Result<(), String> {
        let request = self.call_for(turn).await;
        let (wanted, answer) = match request.clone() {
            StoreCall::Concurrent(wishes) => self.call_concurrently(turn.team(), wishes).await,
            request => {
                let wanted = Box::pin(call_store(&self.model, request.clone(), self.now)).await;
                (wanted, Box::pin(call_store(&self.tested, request, self.now)).await)
            }
        };
        check_same("answer", &wanted, &answer)?;
        self.record_emails(&wanted);
        self.record_jobs(&request, &wanted);
        if let (StoreCall::Inbound(mail), StoreAnswer::Inbound(said)) = (&request, &wanted) {
            self.inbound.record(mail, said);
        }
        if let StoreAnswer::Inbound(InboundAnswer::File(FileMessageResult::New(message, _))) = &wanted {
            self.conversations.record(message);
        }
        if let StoreAnswer::Webhook(word) = &wanted {
            self.webhooks.record(word);
        }
        Ok(())
    }

    /// Has the engine accept wishes at the same moment, and the model in the order of the engine's events. A wish whose
    /// key was bound writes no event and changes nothing, so that the model gets it last.
    async fn call_concurrently(&self, team: TeamId, wishes: Vec<NewEmail>) -> (StoreAnswer, StoreAnswer) {
        let found = accept_together(&self.tested, wishes.clone(), self.now).await;
        let order: Vec<Uuid> =
            all_events(&self.tested, team).await.iter().map(|event| event.event.subject_id).collect();
        let mut places: Vec<usize> = (0..wishes.len()).collect();
        places.sort_by_key(|place| order.iter().position(|about| *about == wishes[*place].id.0).unwrap_or(usize::MAX));
        let mut wanted = found.clone();
        for place in places {
            wanted[place] = self.model.accept(wishes[place].clone(), self.now).await.unwrap();
        }
        (StoreAnswer::Concurrent(wanted), StoreAnswer::Concurrent(found))
    }

    /// Compares everything there is to see.
    pub(super) async fn compare(&self) -> Result<(), String> {
        for team in [TEAM, OTHER_TEAM] {
            let wanted = view_team(&self.model, team, self.now).await;
            let found = view_team(&self.tested, team, self.now).await;
            check_same("emails", &wanted.emails, &found.emails)?;
            check_same("events", &wanted.events, &found.events)?;
            check_same("remote ids", &wanted.by_remote_id, &found.by_remote_id)?;
            for (held, other) in wanted.handoffs.iter().zip(&found.handoffs) {
                check_same("bytes", held, other)?;
            }
            for (key, other) in wanted.keys.iter().zip(&found.keys) {
                check_same("key", key, other)?;
            }
            let (wanted, found) =
                (&self.inbound.view_all(&self.model, team).await, &self.inbound.view_all(&self.tested, team).await);
            for (sight, other) in wanted.iter().zip(found) {
                check_same("mail", sight, other)?;
            }
            check_same("how much mail", &wanted.len(), &found.len())?;
            let (wanted, found) = (
                self.conversations.view_all(&self.model, team).await,
                self.conversations.view_all(&self.tested, team).await,
            );
            for (scene, other) in wanted.iter().zip(&found) {
                check_same("conversations", scene, other)?;
            }
            check_same("how many conversations", &wanted.len(), &found.len())?;
            let gossip = &self.webhooks;
            let (wanted, found) = (
                &gossip.view_all(&self.model, team, self.now).await,
                &gossip.view_all(&self.tested, team, self.now).await,
            );
            for (sight, other) in wanted.iter().zip(found) {
                check_same("what is told", sight, other)?;
            }
            check_same("how much is told", &wanted.len(), &found.len())?;
        }
        let (wanted, found) = (view_backlog(&self.model, self.now).await, view_backlog(&self.tested, self.now).await);
        check_same("backlog, doubts and what is stuck", &wanted, &found)
    }

    fn record_emails(&mut self, answer: &StoreAnswer) {
        let mut learn = |answer: &AcceptResult| {
            if let AcceptResult::First(email) = answer {
                self.emails.push(email.id);
            }
        };
        match answer {
            StoreAnswer::Accept(answer) => learn(answer),
            StoreAnswer::Concurrent(items) | StoreAnswer::Batch(BatchAcceptResult::Items(items)) => {
                items.iter().for_each(learn)
            }
            StoreAnswer::Resend(IdempotentResult::Done(EmailResendResult::First(email)))
            | StoreAnswer::Conversation(ConversationAnswer::Answer(ReplyResult::First(email, _))) => {
                self.emails.push(email.id)
            }
            _ => {}
        }
    }

    /// Notes which worker holds what, and under which attempt.
    fn record_jobs(&mut self, request: &StoreCall, answer: &StoreAnswer) {
        if let StoreAnswer::Lease(leased) = answer {
            self.jobs.extend(leased.iter().map(|leased| (leased.email.team, job_of(leased))));
        }
        let StoreAnswer::Act(IdempotentResult::Done(HandoffActionResult::Applied(HandoffActionStatus::Done, email))) =
            answer
        else {
            return;
        };
        let StoreCall::Act(team, id, act, _) = request else { return };
        match act {
            HandoffAction::Mark { lease: hold, .. } => {
                let attempt = email.handoffs.get(usize::from(hold.number)).map(|handoff| handoff.attempts);
                let same = |(_, job): &&mut (TeamId, LeasedJob)| {
                    job.id == *id && (job.hold.number, job.hold.fence) == (hold.number, hold.fence)
                };
                self.jobs.iter_mut().filter(same).for_each(|(_, job)| job.attempt = attempt);
            }
            HandoffAction::RetryInWindow { number, account, .. } => {
                let Some(handoff) = email.handoffs.get(usize::from(*number)) else { return };
                let (transport, account) = (handoff.transport.clone(), account.clone());
                let hold = LeaseRef { number: *number, fence: handoff.fence, transport, account };
                self.jobs.push((*team, LeasedJob { id: *id, hold, attempt: None }));
            }
            _ => {}
        }
    }

    /// An email by its place, from the latest.
    fn by_recency(&self, place: u8) -> EmailId {
        let place = usize::from(place) % self.emails.len().max(1);
        self.emails.iter().rev().nth(place).copied().unwrap_or_else(|| EmailId(next_id(self.now)))
    }

    fn operation(&self, team: TeamId, call: OperationSpec) -> KeyedOperation {
        let OperationSpec(name, asks) = call;
        let key = name.hash(team);
        KeyedOperation {
            team,
            key,
            digest: [asks; 32],
            response: vec![asks; 3],
            expires_at: self.now.plus(limits::OPERATION_RETENTION_MS),
        }
    }

    async fn call_for(&mut self, turn: &RandomStep) -> StoreCall {
        let (team, now) = (turn.team(), self.now);
        let operation = |call: &Option<OperationSpec>| call.map(|call| self.operation(team, call));
        match &turn.command {
            RandomCommand::Accept(sketch) => StoreCall::Accept(sketch.to_fixture(team, now).to_new_email(now)),
            RandomCommand::Concurrent(sketches) => StoreCall::Concurrent(
                sketches.iter().map(|sketch| sketch.to_fixture(team, now).to_new_email(now)).collect(),
            ),
            RandomCommand::Batch(call, sketches) => StoreCall::Batch(NewBatch {
                team,
                operation: operation(call),
                items: sketches.iter().map(|sketch| sketch.to_fixture(team, now).to_new_email(now)).collect(),
                strict: sketches.len().is_multiple_of(2),
            }),
            RandomCommand::Cancel(place, call) => StoreCall::Cancel(team, self.by_recency(*place), operation(call)),
            RandomCommand::Reschedule(place, ms) => {
                let due = now.plus(*ms);
                // Some count in the budget that the sketches count in.
                let charge = charge_at(1, 2, 8, HOUR, due.max(now));
                let charges = if place.is_multiple_of(2) { vec![charge] } else { Vec::new() };
                StoreCall::Reschedule(team, self.by_recency(*place), RescheduleRequest { due_at: due, charges })
            }
            RandomCommand::Resend(place, call) => {
                let operation = operation(call);
                StoreCall::Resend(self.next_version_of(team, self.by_recency(*place)).await, operation)
            }
            RandomCommand::Capture(max) => StoreCall::Capture(*max),
            RandomCommand::NoteSuppressed(place, count) => {
                StoreCall::NoteSuppressed(suppressed_note(team, self.by_recency(*place), *count, now))
            }
            RandomCommand::Extend(name, ms) => StoreCall::Extend(team, name.hash(team), Ttl(*ms)),
            RandomCommand::Forget(name) => StoreCall::Forget(team, name.hash(team)),
            RandomCommand::LookUpKey(name) => StoreCall::LookUpKey(team, name.hash(team)),
            RandomCommand::List(state, to, limit) => {
                let to = to.map(ToOwned::to_owned);
                StoreCall::List(team, EmailQuery { state: *state, to, limit: *limit, ..EmailQuery::default() })
            }
            RandomCommand::Sweep => StoreCall::Sweep,
            RandomCommand::Handoff(deed) => self.handoff_call(team, deed).await,
            RandomCommand::Inbound(errand) => {
                let operation = |call| self.operation(team, call);
                StoreCall::Inbound(self.inbound.call_for(team, errand, operation, now))
            }
            RandomCommand::Conversation(chat) => {
                let operation = |call| self.operation(team, call);
                StoreCall::Conversation(self.conversations.call_for(team, chat, operation, now))
            }
            RandomCommand::Webhook(rumour) => {
                let operation = |call| self.operation(team, call);
                StoreCall::Webhook(self.webhooks.call_for(team, rumour, operation, now))
            }
            RandomCommand::AdvanceTime(ms) => {
                self.now = now.plus(*ms);
                StoreCall::Nothing
            }
        }
    }

    async fn handoff_call(&self, team: TeamId, deed: &HandoffCommand) -> StoreCall {
        match deed {
            HandoffCommand::Lease { way, node, max, but, scheduled } => {
                StoreCall::Lease(lease_request(way, *node, *max, *but, *scheduled))
            }
            HandoffCommand::Recover { node: n, max } => StoreCall::Recover(node_id(*n), *max),
            HandoffCommand::Worker(place, labour) => {
                let place = usize::from(*place) % self.jobs.len().max(1);
                let Some((team, job)) = self.jobs.iter().rev().nth(place) else { return StoreCall::Nothing };
                StoreCall::Act(*team, job.id, labour.act(job, self.now), None)
            }
            HandoffCommand::Incident(place, number, lesson) => {
                StoreCall::Act(team, self.by_recency(*place), lesson.act(*number, self.now), None)
            }
            HandoffCommand::Resolve { email, number, choice, seen, call } => {
                let id = self.by_recency(*email);
                let found = self.model.email(team, id).await.unwrap();
                let act = resolve_action(found.as_ref(), *number, *choice, *seen);
                StoreCall::Act(team, id, act, call.map(|call| self.operation(team, call)))
            }
        }
    }

    /// A wish for the version after this email, whoever owns it.
    async fn next_version_of(&self, team: TeamId, id: EmailId) -> NewEmail {
        let mine = self.model.email(TEAM, id).await.unwrap();
        let previous = mine.or(self.model.email(OTHER_TEAM, id).await.unwrap());
        let draft = previous.as_ref().map_or_else(keyless_email, next_version);
        let mut wish = draft.team(team).to_new_email(self.now);
        wish.head.resend_of = Some(id);
        wish
    }
}

/// What wishes become that are accepted at the same moment, each in its place.
async fn accept_together(store: &TestStore, wishes: Vec<NewEmail>, now: Time) -> Vec<AcceptResult> {
    let work = wishes.into_iter().map(|wish| (store.clone(), wish));
    all_at_once(work.map(|(store, wish)| async move { store.accept(wish, now).await.unwrap() })).await
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

/// All that a team can see.
struct TeamView {
    emails: Vec<EmailDetail>,
    events: Vec<Event>,
    keys: Vec<(KeyHash, Option<KeyView>)>,
    /// The first handoff of each email, with its bytes.
    handoffs: Vec<Option<LeasedHandoff>>,
    by_remote_id: Vec<Option<(EmailId, u16)>>,
}

/// What waits, what is due to be looked at, and what is stuck.
async fn view_backlog(store: &TestStore, now: Time) -> BacklogView {
    // The same name at another account, so that both columns decide.
    let has = |name: &str, account: &str| TransportAccount { name: name.into(), account: account.into() };
    let mine = [has(SANDBOX, "A"), has("relay", "B")];
    BacklogView {
        backlog: store.backlog().await.unwrap(),
        doubts: store.due_unknown_handoffs(&mine, 1_000, now).await.unwrap(),
        stuck: store.held_or_unknown_emails(None, 1_000).await.unwrap(),
        orphans: store.orphan_backlogs(&["relay".into()], now).await.unwrap(),
        open: store.emails_open_at_transport(SANDBOX, None, 1_000).await.unwrap(),
    }
}

/// See [`waiting`].
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
    TeamView { emails, events: all_events(store, team).await, keys, handoffs: held, by_remote_id: remote }
}

fn check_same<T: PartialEq + Debug>(what: &str, wanted: &T, found: &T) -> Result<(), String> {
    if wanted == found {
        return Ok(());
    }
    Err(format!("{what}\n wanted {wanted:?}\n  found {found:?}"))
}
