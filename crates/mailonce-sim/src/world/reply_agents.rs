//! Agents that reply to mail: several at once, on any node. They take leases and sleep past their end, reply to the
//! same message twice with other text, show lost tokens, and retry unanswered calls.

use crate::proof::history::{CallKind, CallOutcome, CallRecord};
use crate::world::clients::{KnownEmail, SimulatedClients, failure_outcome};
use crate::world::cluster::SimulatedCluster;
use crate::world::code_mail::SimulatedInbox;
use crate::world::conversation_mail;
use mailonce_core::{
    conversation::message_progress::Acknowledgement,
    id::{MessageId, ThreadId},
    inbox::message::Message,
    key::Key,
    ports::store::StoreError,
    problem::{Code, Problem},
};
use mailonce_engine::{
    Engine,
    conversation::{
        reply::{ForwardRequest, ReplyRequest},
        threads::NewThreadLease,
        work_queue::{WorkItem, WorkRequest},
    },
    outbound::send_receipt::SendReceipt,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Rounds after all faults ended in which the agents of some worlds take work and do nothing.
const IDLE_ROUNDS: usize = 7;
/// One of this many worlds has such agents.
const IDLE_WORLD_EVERY: u64 = 5;
/// How many times an agent makes a call that gets no answer, including the first.
const CALL_TRIES: usize = 3;

/// Tokens of earlier leases.
type SharedLeaseTokens = Arc<Mutex<Vec<String>>>;

/// All agents.
#[derive(Clone)]
pub(super) struct ReplyAgents {
    clients: SimulatedClients,
    tokens: SharedLeaseTokens,
}

/// One agent of an inbox.
#[derive(Clone)]
struct ReplyAgent {
    clients: SimulatedClients,
    tokens: SharedLeaseTokens,
    engine: Arc<Engine>,
    inbox: SimulatedInbox,
    /// The messages of the inbox when the agent read it.
    messages: Vec<Message>,
}

/// The content of a reply.
#[derive(Clone, Default)]
struct ReplyDraft {
    lease: Option<String>,
    seen: Vec<MessageId>,
    follow_up: u32,
    wording: u64,
    key: Option<String>,
}

impl ReplyAgents {
    pub(super) fn new(clients: &SimulatedClients) -> Self {
        Self { clients: clients.clone(), tokens: SharedLeaseTokens::default() }
    }

    /// One step: some agents act.
    pub(super) async fn run_step(&self, cluster: &SimulatedCluster) -> Result<(), StoreError> {
        let agent_inboxes: Vec<&SimulatedInbox> = cluster.inboxes.iter().filter(|inbox| inbox.has_agents).collect();
        for _ in 0..cluster.shared.between(1, 4) {
            let inbox = agent_inboxes[cluster.shared.below(agent_inboxes.len() as u64) as usize];
            let known = conversation_mail::inbox_messages(cluster, inbox).await?;
            if let Some(engine) = cluster.any_engine() {
                tokio::spawn(self.agent(engine, inbox, known).act_once());
            }
        }
        Ok(())
    }

    fn agent(&self, engine: Arc<Engine>, inbox: &SimulatedInbox, known: Vec<Message>) -> ReplyAgent {
        ReplyAgent {
            clients: self.clients.clone(),
            tokens: Arc::clone(&self.tokens),
            engine,
            inbox: inbox.clone(),
            messages: known,
        }
    }

    /// After all faults ended, agents reply to everything that is left, in some worlds after a long idle time.
    pub(super) async fn answer_remaining(&self, cluster: &SimulatedCluster, round: usize) -> Result<(), StoreError> {
        let idle = cluster.shared.plan.seed.is_multiple_of(IDLE_WORLD_EVERY) && round < IDLE_ROUNDS;
        for inbox in cluster.inboxes.iter().filter(|inbox| inbox.has_agents) {
            let known = conversation_mail::inbox_messages(cluster, inbox).await?;
            let Some(engine) = cluster.any_engine() else { continue };
            let agent = self.agent(engine, inbox, known);
            for taken in agent.lease_messages(10, 1_000).await {
                if !idle {
                    let text = ReplyDraft {
                        lease: Some(taken.lease.token),
                        seen: agent.message_ids(),
                        ..ReplyDraft::default()
                    };
                    agent.reply(taken.message.id, text).await;
                }
            }
        }
        Ok(())
    }
}

impl ReplyAgent {
    fn below(&self, bound: u64) -> u64 {
        self.clients.shared.below(bound)
    }

    fn message_ids(&self) -> Vec<MessageId> {
        self.messages.iter().map(|message| message.id).collect()
    }

    fn pick_message(&self) -> Option<&Message> {
        let at = (!self.messages.is_empty()).then(|| self.below(self.messages.len() as u64) as usize);
        at.and_then(|at| self.messages.get(at))
    }

    fn tokens(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn sleep(&self) {
        let ms = self.clients.shared.pick(&[0, 0, 5, 400, 1_500]);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    async fn act_once(self) {
        match self.below(10) {
            0..=3 => {
                for taken in
                    self.lease_messages(self.clients.shared.between(1, 2) as usize, self.draw_lease_ttl()).await
                {
                    self.sleep().await;
                    Box::pin(self.handle_offer(taken)).await;
                }
            }
            4 => self.lease_thread().await,
            5..=7 => Box::pin(self.reply_without_lease()).await,
            8 => self.reply_with_old_token().await,
            _ => {
                if let Some(message) = self.pick_message() {
                    self.forward_message(message.id, None).await;
                }
            }
        }
    }

    fn draw_lease_ttl(&self) -> i64 {
        self.clients.shared.pick(&[1_000, 1_000, 20_000, 120_000])
    }

    async fn lease_messages(&self, limit: usize, ttl_ms: i64) -> Vec<WorkItem> {
        let holder = format!("agent-{}", self.below(3));
        let request = WorkRequest { limit, ttl_ms, wait: Duration::ZERO, holder };
        let caller = &self.clients.callers[self.inbox.number];
        // An unanswered message is offered again when its lease expires.
        let taken =
            self.engine.conversations.lease_messages(caller, self.inbox.id, request, None).await.unwrap_or_default();
        self.tokens().extend(taken.iter().map(|taken| taken.lease.token.clone()));
        taken
    }

    /// What an agent does with a message that it leased.
    async fn handle_offer(&self, taken: WorkItem) {
        let (id, token) = (taken.message.id, taken.lease.token);
        let seen = if self.below(4) == 0 { Vec::new() } else { self.message_ids() };
        let text = ReplyDraft { lease: Some(token.clone()), seen, wording: self.below(2), ..ReplyDraft::default() };
        match self.below(10) {
            0..=3 => {
                self.reply(id, text).await;
                if self.below(2) == 0 {
                    self.acknowledge_ignoring_lost_lease(id, &token, Acknowledgement::Ack).await;
                }
            }
            4 => {
                // The model repeats its tool call with other text.
                let again = ReplyDraft { wording: text.wording + 1, ..text.clone() };
                tokio::join!(self.reply(id, text), self.reply(id, again));
            }
            5 => {
                self.acknowledge_ignoring_lost_lease(
                    id,
                    &token,
                    Acknowledgement::Extend { ttl_ms: self.draw_lease_ttl() },
                )
                .await;
                self.sleep().await;
                self.reply(id, text).await;
            }
            6 => {
                self.acknowledge_ignoring_lost_lease(
                    id,
                    &token,
                    Acknowledgement::Nack { delay_ms: self.clients.shared.pick(&[0, 2_000, 60_000]) },
                )
                .await
            }
            7 => self.acknowledge_ignoring_lost_lease(id, &token, Acknowledgement::Ack).await,
            8 => self.forward_message(id, Some(token)).await,
            // The agent forgets the message.
            _ => {}
        }
    }

    /// Takes the lease of a thread explicitly.
    async fn lease_thread(&self) {
        let Some(message) = self.pick_message() else { return };
        let (caller, thread) = (&self.clients.callers[self.inbox.number], message.thread);
        let request = NewThreadLease { renew: None, holder: "by-hand".into(), ttl_ms: self.draw_lease_ttl() };
        let Ok(lease) = self.engine.conversations.lease_thread(caller, thread, request, None).await else { return };
        self.tokens().push(lease.token.clone());
        self.sleep().await;
        if self.below(2) == 0 {
            let text =
                ReplyDraft { lease: Some(lease.token.clone()), seen: self.message_ids(), ..ReplyDraft::default() };
            self.reply(message.id, text).await;
        }
        if self.below(2) == 0 {
            self.release_thread(thread, &lease.token).await;
        }
    }

    async fn release_thread(&self, thread: ThreadId, token: &str) {
        let caller = &self.clients.callers[self.inbox.number];
        // A lease that is not released expires.
        let _lapses = self.engine.conversations.release_thread(caller, thread, token).await;
    }

    /// Replies without a lease, sometimes twice at once, sometimes without reading the thread.
    async fn reply_without_lease(&self) {
        let Some(message) = self.pick_message() else { return };
        let seen = if self.below(2) == 0 { Vec::new() } else { self.message_ids() };
        let key = (self.below(3) == 0).then(|| format!("answer-{}", message.id));
        let follow_up = u32::from(self.below(6) == 0);
        let key = key.filter(|_| follow_up == 0);
        let text = ReplyDraft { lease: None, seen, follow_up, wording: self.below(2), key };
        if self.below(3) > 0 {
            return self.reply(message.id, text).await;
        }
        let again = ReplyDraft { wording: text.wording + self.below(2), ..text.clone() };
        tokio::join!(self.reply(message.id, text), self.reply(message.id, again));
    }

    /// Uses an old token.
    async fn reply_with_old_token(&self) {
        let old = self.tokens().clone();
        let (Some(message), false) = (self.pick_message(), old.is_empty()) else { return };
        let token = old[self.below(old.len() as u64) as usize].clone();
        if self.below(4) == 0 {
            return self.acknowledge_ignoring_lost_lease(message.id, &token, Acknowledgement::Ack).await;
        }
        self.reply(message.id, ReplyDraft { lease: Some(token), seen: self.message_ids(), ..ReplyDraft::default() })
            .await;
    }

    async fn acknowledge_ignoring_lost_lease(&self, id: MessageId, token: &str, how: Acknowledgement) {
        let caller = &self.clients.callers[self.inbox.number];
        // A lost lease is no error: another agent has the message.
        let _others = self.engine.conversations.acknowledge_message(caller, id, token, how).await;
    }

    async fn reply(&self, id: MessageId, text: ReplyDraft) {
        let request = || ReplyRequest {
            text: Some(format!("This answers {id} in way {}.", text.wording)),
            follow_up: text.follow_up,
            seen: text.seen.clone(),
            lease: text.lease.clone(),
            key: text.key.as_deref().and_then(|key| Key::parse(key).ok()),
            ..ReplyRequest::default()
        };
        let caller = &self.clients.callers[self.inbox.number];
        for _ in 0..CALL_TRIES {
            let call = self.begin_call();
            if self.end_call(call, self.engine.conversations.reply(caller, id, request()).await) {
                return;
            }
            self.sleep().await;
        }
    }

    async fn forward_message(&self, id: MessageId, lease: Option<String>) {
        let (caller, call) = (&self.clients.callers[self.inbox.number], self.begin_call());
        let to = vec!["boss@people.example".to_owned()];
        let request = ForwardRequest { to, text: Some("Please look.".into()), lease, ..ForwardRequest::default() };
        self.end_call(call, self.engine.conversations.forward(caller, id, request).await);
    }

    fn begin_call(&self) -> usize {
        let mut call = CallRecord::new(0, &conversation_mail::team_of_inbox(&self.inbox), CallKind::Reply);
        let codes = ["self", "automatic", "leased", "newer_message", "key_mismatch"];
        call.may_fail = codes.map(str::to_owned).to_vec();
        self.clients.shared.begin_call(call)
    }

    /// Records the outcome. Returns false if there was none.
    fn end_call(&self, call: usize, answer: Result<SendReceipt, Problem>) -> bool {
        let is_final = !answer.as_ref().is_err_and(|problem| problem.code == Code::Unavailable);
        let end = match answer {
            Ok(sent) => {
                self.clients.remember_email(KnownEmail { id: sent.id, team: self.inbox.number, key: None });
                CallOutcome::Ok { first: sent.first, ids: vec![sent.id.to_string()] }
            }
            Err(problem) => failure_outcome(&problem),
        };
        self.clients.shared.end_call(call, end, false);
        is_final
    }
}
