//! The play's part for conversations: what random agents and people do about messages and threads. Few tokens, few
//! people, so that they often meet.

use mailonce_core::{
    conversation::{
        caps::ReplyCaps,
        message_progress::{Acknowledgement, MessageLeaseRef, ReplySlot},
        reply_guards::{NewReply, ReplyResult},
        thread::{
            AcknowledgeResult, MessageLeaseSpec, MessageOffer, Thread, ThreadEdit, ThreadLeaseResult, ThreadLeaseSpec,
            ThreadQuery,
        },
    },
    id::{EmailId, TeamId, ThreadId},
    inbox::message::Message,
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};

use super::{
    DAY, HOUR, MINUTE, SECOND, TestStore,
    talk::{UNLIMITED_CAPS, reply_with},
    turn::{EmailSpec, KeyChoice, OperationSpec, SplitMix64},
};

const TOKENS: u8 = 3;

/// What is done. Messages are named by their place, counted from the latest, and name their threads and inboxes too.
#[derive(Clone, Debug)]
pub(super) enum ConversationCommand {
    Answer { message: u8, sketch: EmailSpec, slot: u8, token: Option<u8>, seen: bool, soft: bool, cap: u8, person: u8 },
    Lease { message: u8, token: u8, renew: bool, ttl_ms: i64, call: Option<OperationSpec> },
    Release(u8, u8),
    Next { message: u8, count: u8, ttl_ms: i64, call: Option<OperationSpec> },
    Settle(u8, u8, Acknowledgement),
    Edit(u8, Option<bool>),
}

impl ConversationCommand {
    pub(super) fn random(chance: &mut SplitMix64) -> Self {
        let call = |chance: &mut SplitMix64| {
            chance.maybe_one_in(4, |chance| OperationSpec(KeyChoice::for_operation(chance), chance.below(2)))
        };
        let (message, token) = (chance.below(4), chance.below(TOKENS));
        let ttl_ms = chance.pick(&[SECOND, MINUTE, HOUR]);
        match chance.below(24) {
            0..=9 => Self::Answer {
                message,
                sketch: EmailSpec::for_reply(chance),
                slot: chance.pick(&[0, 0, 0, 1, 2, 3]),
                token: chance.maybe_one_in(2, |chance| chance.below(TOKENS)),
                seen: !chance.one_in(3),
                soft: chance.one_in(2),
                cap: chance.below(4),
                person: chance.below(3),
            },
            10..=12 => Self::Lease { message, token, renew: chance.one_in(3), ttl_ms, call: call(chance) },
            13 => Self::Release(message, token),
            14..=17 => Self::Next { message, count: chance.below(TOKENS + 1), ttl_ms, call: call(chance) },
            18..=21 => Self::Settle(
                message,
                token,
                chance.pick(&[
                    Acknowledgement::Ack,
                    Acknowledgement::Nack { delay_ms: MINUTE },
                    Acknowledgement::Extend { ttl_ms: HOUR },
                ]),
            ),
            _ => Self::Edit(message, chance.maybe_one_in(2, |chance| chance.one_in(2))),
        }
    }
}

/// A call in full, the same for both ledgers.
#[derive(Clone, Debug)]
pub(super) enum ConversationCall {
    Answer(Box<NewReply>),
    Lease(TeamId, ThreadId, ThreadLeaseSpec, Option<KeyedOperation>),
    Release(TeamId, ThreadId, String),
    Next(TeamId, MessageLeaseSpec, Option<KeyedOperation>),
    Settle(TeamId, MessageLeaseRef, Acknowledgement),
    Edit(TeamId, ThreadId, ThreadEdit),
    Nothing,
}

/// What a ledger said.
#[derive(Debug, PartialEq)]
pub(super) enum ConversationAnswer {
    Answer(ReplyResult),
    Lease(IdempotentResult<ThreadLeaseResult>),
    Thread(Option<Thread>),
    Next(IdempotentResult<Vec<MessageOffer>>),
    Settle(AcknowledgeResult),
    Nothing,
}

pub(super) async fn call_store(store: &TestStore, talk: ConversationCall, now: Time) -> ConversationAnswer {
    match talk {
        ConversationCall::Answer(wish) => ConversationAnswer::Answer(store.accept_reply(*wish, now).await.unwrap()),
        ConversationCall::Lease(team, id, ask, call) => {
            ConversationAnswer::Lease(store.lease_thread(team, id, ask, call, now).await.unwrap())
        }
        ConversationCall::Release(team, id, token) => {
            ConversationAnswer::Thread(store.release_thread(team, id, &token, now).await.unwrap())
        }
        ConversationCall::Next(team, ask, call) => {
            ConversationAnswer::Next(store.lease_messages(team, ask, call, now).await.unwrap())
        }
        ConversationCall::Settle(team, held, how) => {
            ConversationAnswer::Settle(store.acknowledge_message(team, held, how, now).await.unwrap())
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

/// Every message that was filed, in order.
#[derive(Default)]
pub(super) struct ConversationState(Vec<Message>);

impl ConversationState {
    pub(super) fn record(&mut self, message: &Message) {
        self.0.push(message.clone());
    }

    fn by_recency(&self, place: u8) -> Option<&Message> {
        self.0.iter().rev().nth(usize::from(place) % self.0.len().max(1))
    }

    /// The call that a chat stands for.
    pub(super) fn call_for(
        &self,
        team: TeamId,
        chat: &ConversationCommand,
        operation: impl Fn(OperationSpec) -> KeyedOperation,
        now: Time,
    ) -> ConversationCall {
        self.try_call_for(team, chat, operation, now).unwrap_or(ConversationCall::Nothing)
    }

    fn try_call_for(
        &self,
        team: TeamId,
        chat: &ConversationCommand,
        operation: impl Fn(OperationSpec) -> KeyedOperation,
        now: Time,
    ) -> Option<ConversationCall> {
        Some(match chat {
            ConversationCommand::Answer { message, .. } => {
                let message = Message { team, ..self.by_recency(*message)?.clone() };
                ConversationCall::Answer(Box::new(self.new_reply(&message, chat, now)?))
            }
            ConversationCommand::Lease { message, token: n, renew, ttl_ms, call } => {
                let ask = ThreadLeaseSpec {
                    renew: renew.then(|| token(*n)),
                    token: token(*n),
                    holder: format!("agent {n}"),
                    ttl_ms: *ttl_ms,
                };
                ConversationCall::Lease(team, self.by_recency(*message)?.thread, ask, call.map(operation))
            }
            ConversationCommand::Release(message, n) => {
                ConversationCall::Release(team, self.by_recency(*message)?.thread, token(*n))
            }
            ConversationCommand::Next { message, count, ttl_ms, call } => {
                let tokens = (0..*count).map(token).collect();
                let inbox = self.by_recency(*message)?.inbox;
                ConversationCall::Next(
                    team,
                    MessageLeaseSpec { inbox, holder: "next".into(), ttl_ms: *ttl_ms, tokens },
                    call.map(operation),
                )
            }
            ConversationCommand::Settle(message, n, how) => ConversationCall::Settle(
                team,
                MessageLeaseRef { message: self.by_recency(*message)?.id, token_hash: token(*n) },
                *how,
            ),
            ConversationCommand::Edit(message, handled) => {
                let labels = handled.is_none().then(|| vec!["hot".into()]);
                ConversationCall::Edit(
                    team,
                    self.by_recency(*message)?.thread,
                    ThreadEdit { labels, handled: *handled },
                )
            }
        })
    }

    fn new_reply(&self, message: &Message, chat: &ConversationCommand, now: Time) -> Option<NewReply> {
        let ConversationCommand::Answer { sketch, slot, token: n, seen, soft, cap, person, .. } = chat else {
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
            ..reply_with(message, &sketch.to_fixture(message.team, now), now)
        })
    }

    /// Everything there is to see of a team's conversations.
    pub(super) async fn view_all(&self, store: &TestStore, team: TeamId) -> Vec<ConversationView> {
        let mut seen = Vec::new();
        let mut query = ThreadQuery { limit: 3, ..ThreadQuery::default() };
        loop {
            let page = store.threads(team, query.clone()).await.unwrap();
            query.before = page.last().map(|thread| (thread.last_activity_at, thread.id));
            seen.push(ConversationView::Threads(page));
            if query.before.is_none() {
                break;
            }
        }
        let hot = ThreadQuery { label: Some("hot".into()), handled: Some(false), limit: 2, ..ThreadQuery::default() };
        seen.push(ConversationView::Threads(store.threads(team, hot).await.unwrap()));
        for message in &self.0 {
            seen.push(ConversationView::Thread(store.thread(team, message.thread).await.unwrap()));
            seen.push(ConversationView::Emails(store.thread_emails(team, message.thread, None, 100).await.unwrap()));
            let inside = ThreadQuery { inbox: Some(message.inbox), limit: 100, ..ThreadQuery::default() };
            seen.push(ConversationView::Threads(store.threads(team, inside).await.unwrap()));
        }
        seen
    }
}

/// One thing that was looked at.
#[derive(Debug, PartialEq)]
pub(super) enum ConversationView {
    Threads(Vec<Thread>),
    Thread(Option<Thread>),
    Emails(Vec<EmailId>),
}
