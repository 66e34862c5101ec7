//! Random steps of agents and people with messages and threads. There are few tokens and few people, so that steps
//! often collide.

use mailonce_core::{
    conversation::{
        caps::ReplyCaps,
        message_progress::{Acknowledgement, MessageLeaseRef},
        reply_guards::{NewReply, ReplyResult},
        thread::{
            AcknowledgeResult, MessageLeaseSpec, MessageOffer, Thread, ThreadEdit, ThreadLeaseResult, ThreadLeaseSpec,
            ThreadQuery,
        },
    },
    id::{EmailId, TeamId, ThreadId},
    inbox::{message::Message, progress::ReplySlot},
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};

use crate::conformance::{
    DAY, HOUR, MINUTE, SECOND, TestStore,
    fixtures::conversations::{UNLIMITED_CAPS, reply_with},
    random::step::{EmailSpec, KeyChoice, OperationSpec, SplitMix64},
};

const TOKENS: u8 = 3;

/// What is done. A message is named by its recency (0 is the latest) and also names its thread and inbox.
#[derive(Clone, Debug)]
pub(super) enum ConversationCommand {
    Reply { message: u8, spec: EmailSpec, slot: u8, token: Option<u8>, seen: bool, soft: bool, cap: u8, person: u8 },
    LeaseThread { message: u8, token: u8, renew: bool, ttl_ms: i64, call: Option<OperationSpec> },
    ReleaseThread(u8, u8),
    LeaseMessages { message: u8, count: u8, ttl_ms: i64, call: Option<OperationSpec> },
    Acknowledge(u8, u8, Acknowledgement),
    Edit(u8, Option<bool>),
}

impl ConversationCommand {
    pub(super) fn random(rng: &mut SplitMix64) -> Self {
        let call = |rng: &mut SplitMix64| {
            rng.maybe_one_in(4, |rng| OperationSpec(KeyChoice::for_operation(rng), rng.below(2)))
        };
        let (message, token) = (rng.below(4), rng.below(TOKENS));
        let ttl_ms = rng.pick(&[SECOND, MINUTE, HOUR]);
        match rng.below(24) {
            0..=9 => Self::Reply {
                message,
                spec: EmailSpec::for_reply(rng),
                slot: rng.pick(&[0, 0, 0, 1, 2, 3]),
                token: rng.maybe_one_in(2, |rng| rng.below(TOKENS)),
                seen: !rng.one_in(3),
                soft: rng.one_in(2),
                cap: rng.below(4),
                person: rng.below(3),
            },
            10..=12 => Self::LeaseThread { message, token, renew: rng.one_in(3), ttl_ms, call: call(rng) },
            13 => Self::ReleaseThread(message, token),
            14..=17 => Self::LeaseMessages { message, count: rng.below(TOKENS + 1), ttl_ms, call: call(rng) },
            18..=21 => Self::Acknowledge(
                message,
                token,
                rng.pick(&[
                    Acknowledgement::Ack,
                    Acknowledgement::Nack { delay_ms: MINUTE },
                    Acknowledgement::Extend { ttl_ms: HOUR },
                ]),
            ),
            _ => Self::Edit(message, rng.maybe_one_in(2, |rng| rng.one_in(2))),
        }
    }
}

/// A complete call, the same for both stores.
#[derive(Clone, Debug)]
pub(super) enum ConversationCall {
    Reply(Box<NewReply>),
    LeaseThread(TeamId, ThreadId, ThreadLeaseSpec, Option<KeyedOperation>),
    ReleaseThread(TeamId, ThreadId, String),
    LeaseMessages(TeamId, MessageLeaseSpec, Option<KeyedOperation>),
    Acknowledge(TeamId, MessageLeaseRef, Acknowledgement),
    Edit(TeamId, ThreadId, ThreadEdit),
    Nothing,
}

/// The answer of a store.
#[derive(Debug, PartialEq)]
pub(super) enum ConversationAnswer {
    Reply(ReplyResult),
    LeaseThread(IdempotentResult<ThreadLeaseResult>),
    Thread(Option<Thread>),
    LeaseMessages(IdempotentResult<Vec<MessageOffer>>),
    Acknowledge(AcknowledgeResult),
    Nothing,
}

pub(super) async fn call_store(store: &TestStore, request: ConversationCall, now: Time) -> ConversationAnswer {
    match request {
        ConversationCall::Reply(reply) => ConversationAnswer::Reply(store.accept_reply(*reply, now).await.unwrap()),
        ConversationCall::LeaseThread(team, id, spec, call) => {
            ConversationAnswer::LeaseThread(store.lease_thread(team, id, spec, call, now).await.unwrap())
        }
        ConversationCall::ReleaseThread(team, id, token) => {
            ConversationAnswer::Thread(store.release_thread(team, id, &token, now).await.unwrap())
        }
        ConversationCall::LeaseMessages(team, spec, call) => {
            ConversationAnswer::LeaseMessages(store.lease_messages(team, spec, call, now).await.unwrap())
        }
        ConversationCall::Acknowledge(team, lease, acknowledgement) => {
            ConversationAnswer::Acknowledge(store.acknowledge_message(team, lease, acknowledgement, now).await.unwrap())
        }
        ConversationCall::Edit(team, id, edit) => {
            ConversationAnswer::Thread(store.change_thread(team, id, edit, now).await.unwrap())
        }
        ConversationCall::Nothing => ConversationAnswer::Nothing,
    }
}

fn token(n: u8) -> String {
    format!("t{n}")
}

/// All filed messages, in order.
#[derive(Default)]
pub(super) struct ConversationState(Vec<Message>);

impl ConversationState {
    pub(super) fn record(&mut self, message: &Message) {
        self.0.push(message.clone());
    }

    fn by_recency(&self, recency: u8) -> Option<&Message> {
        self.0.iter().rev().nth(usize::from(recency) % self.0.len().max(1))
    }

    /// Turns a command into a call. Nothing if the command names a message that does not exist.
    pub(super) fn call_for(
        &self,
        team: TeamId,
        command: &ConversationCommand,
        operation: impl Fn(OperationSpec) -> KeyedOperation,
        now: Time,
    ) -> ConversationCall {
        self.try_call_for(team, command, operation, now).unwrap_or(ConversationCall::Nothing)
    }

    fn try_call_for(
        &self,
        team: TeamId,
        command: &ConversationCommand,
        operation: impl Fn(OperationSpec) -> KeyedOperation,
        now: Time,
    ) -> Option<ConversationCall> {
        Some(match command {
            ConversationCommand::Reply { message, .. } => {
                let message = Message { team, ..self.by_recency(*message)?.clone() };
                ConversationCall::Reply(Box::new(self.new_reply(&message, command, now)?))
            }
            ConversationCommand::LeaseThread { message, token: n, renew, ttl_ms, call } => {
                let spec = ThreadLeaseSpec {
                    renew: renew.then(|| token(*n)),
                    token: token(*n),
                    holder: format!("agent {n}"),
                    ttl_ms: *ttl_ms,
                };
                ConversationCall::LeaseThread(team, self.by_recency(*message)?.thread, spec, call.map(operation))
            }
            ConversationCommand::ReleaseThread(message, n) => {
                ConversationCall::ReleaseThread(team, self.by_recency(*message)?.thread, token(*n))
            }
            ConversationCommand::LeaseMessages { message, count, ttl_ms, call } => {
                let tokens = (0..*count).map(token).collect();
                let inbox = self.by_recency(*message)?.inbox;
                ConversationCall::LeaseMessages(
                    team,
                    MessageLeaseSpec { inbox, holder: "next".into(), ttl_ms: *ttl_ms, tokens },
                    call.map(operation),
                )
            }
            ConversationCommand::Acknowledge(message, n, acknowledgement) => ConversationCall::Acknowledge(
                team,
                MessageLeaseRef { message: self.by_recency(*message)?.id, token_hash: token(*n) },
                *acknowledgement,
            ),
            ConversationCommand::Edit(message, handled) => {
                let labels = handled.is_none().then(|| vec!["hot".into()]);
                ConversationCall::Edit(
                    team,
                    self.by_recency(*message)?.thread,
                    ThreadEdit { labels, handled: *handled, ..ThreadEdit::default() },
                )
            }
        })
    }

    fn new_reply(&self, message: &Message, command: &ConversationCommand, now: Time) -> Option<NewReply> {
        let ConversationCommand::Reply { spec, slot, token: n, seen, soft, cap, person, .. } = command else {
            return None;
        };
        let caps = match cap {
            0 => ReplyCaps { per_window: 1, ..UNLIMITED_CAPS },
            1 => ReplyCaps { per_day: 2, window_ms: DAY, ..UNLIMITED_CAPS },
            2 => ReplyCaps { per_person: 1, ..UNLIMITED_CAPS },
            _ => UNLIMITED_CAPS,
        };
        Some(NewReply {
            slot: if *slot < 2 { ReplySlot::Reply((*slot).into()) } else { ReplySlot::Forward(format!("p{slot}")) },
            lease_token_hash: n.map(token),
            seen: self.0.iter().filter(|_| *seen).map(|message| message.id).collect(),
            may_answer_soft_automatic: *soft,
            caps,
            recipient_hash: Some([*person; 16]).filter(|_| *person > 0),
            ..reply_with(message, &spec.to_fixture(message.team, now), now)
        })
    }

    /// All conversation data that a team can read.
    pub(super) async fn view_all(&self, store: &TestStore, team: TeamId) -> Vec<ConversationView> {
        let mut views = Vec::new();
        let mut query = ThreadQuery { limit: 3, ..ThreadQuery::default() };
        loop {
            let page = store.threads(team, query.clone()).await.unwrap();
            query.before = page.last().map(|thread| (thread.last_activity_at, thread.id));
            views.push(ConversationView::Threads(page));
            if query.before.is_none() {
                break;
            }
        }
        let hot = ThreadQuery { label: Some("hot".into()), handled: Some(false), limit: 2, ..ThreadQuery::default() };
        views.push(ConversationView::Threads(store.threads(team, hot).await.unwrap()));
        for message in &self.0 {
            views.push(ConversationView::Thread(store.thread(team, message.thread).await.unwrap()));
            views.push(ConversationView::Emails(store.thread_emails(team, message.thread, None, 100).await.unwrap()));
            let inside = ThreadQuery { inbox: Some(message.inbox), limit: 100, ..ThreadQuery::default() };
            views.push(ConversationView::Threads(store.threads(team, inside).await.unwrap()));
        }
        views
    }
}

/// One result of a read.
#[derive(Debug, PartialEq)]
pub(super) enum ConversationView {
    Threads(Vec<Thread>),
    Thread(Option<Thread>),
    Emails(Vec<EmailId>),
}
