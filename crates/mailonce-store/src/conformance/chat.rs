//! The play's part for conversations: what random agents and people do about messages and threads. Few tokens, few
//! people, so that they often meet.

use mailonce_core::{
    conversation::{
        answer::{AnswerWish, Answered},
        caps::Caps,
        thread::{LeaseAsk, Leasing, NextAsk, Offer, Settled, Thread, ThreadEdit, ThreadQuery},
        turn::{Held, Settling, Slot},
    },
    id::{EmailId, TeamId, ThreadId},
    message::Message,
    port::store::{Once, Operation},
    time::Time,
};

use super::{
    DAY, HOUR, Ledger, MINUTE, SECOND,
    talk::{LOOSE, answers},
    turn::{Call, Chance, Name, Sketch},
};

const TOKENS: u8 = 3;

/// What is done. Messages are named by their place, counted from the latest, and name their threads and inboxes too.
#[derive(Clone, Debug)]
pub(super) enum Chat {
    Answer { message: u8, sketch: Sketch, slot: u8, token: Option<u8>, seen: bool, soft: bool, cap: u8, person: u8 },
    Lease { message: u8, token: u8, renew: bool, ttl_ms: i64, call: Option<Call> },
    Release(u8, u8),
    Next { message: u8, count: u8, ttl_ms: i64, call: Option<Call> },
    Settle(u8, u8, Settling),
    Edit(u8, Option<bool>),
}

impl Chat {
    pub(super) fn random(chance: &mut Chance) -> Self {
        let call = |chance: &mut Chance| chance.maybe(4, |chance| Call(Name::of_call(chance), chance.below(2)));
        let (message, token) = (chance.below(4), chance.below(TOKENS));
        let ttl_ms = chance.pick(&[SECOND, MINUTE, HOUR]);
        match chance.below(24) {
            0..=9 => Self::Answer {
                message,
                sketch: Sketch::of_answer(chance),
                slot: chance.pick(&[0, 0, 0, 1, 2, 3]),
                token: chance.maybe(2, |chance| chance.below(TOKENS)),
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
                chance.pick(&[Settling::Ack, Settling::Nack { delay_ms: MINUTE }, Settling::Extend { ttl_ms: HOUR }]),
            ),
            _ => Self::Edit(message, chance.maybe(2, |chance| chance.one_in(2))),
        }
    }
}

/// A call in full, the same for both ledgers.
#[derive(Clone, Debug)]
pub(super) enum Talk {
    Answer(Box<AnswerWish>),
    Lease(TeamId, ThreadId, LeaseAsk, Option<Operation>),
    Release(TeamId, ThreadId, String),
    Next(TeamId, NextAsk, Option<Operation>),
    Settle(TeamId, Held, Settling),
    Edit(TeamId, ThreadId, ThreadEdit),
    Nothing,
}

/// What a ledger said.
#[derive(Debug, PartialEq)]
pub(super) enum Told {
    Answer(Answered),
    Lease(Once<Leasing>),
    Thread(Option<Thread>),
    Next(Once<Vec<Offer>>),
    Settle(Settled),
    Nothing,
}

pub(super) async fn ask(store: &Ledger, talk: Talk, now: Time) -> Told {
    match talk {
        Talk::Answer(wish) => Told::Answer(store.answer(*wish, now).await.unwrap()),
        Talk::Lease(team, id, ask, call) => Told::Lease(store.lease_thread(team, id, ask, call, now).await.unwrap()),
        Talk::Release(team, id, token) => Told::Thread(store.release_thread(team, id, &token, now).await.unwrap()),
        Talk::Next(team, ask, call) => Told::Next(store.next_messages(team, ask, call, now).await.unwrap()),
        Talk::Settle(team, held, how) => Told::Settle(store.settle_message(team, held, how, now).await.unwrap()),
        Talk::Edit(team, id, edit) => Told::Thread(store.change_thread(team, id, edit, now).await.unwrap()),
        Talk::Nothing => Told::Nothing,
    }
}

fn token(n: u8) -> String {
    format!("t{n}")
}

/// Every message that was filed, in order.
#[derive(Default)]
pub(super) struct Parlour(Vec<Message>);

impl Parlour {
    pub(super) fn learn(&mut self, message: &Message) {
        self.0.push(message.clone());
    }

    fn named(&self, place: u8) -> Option<&Message> {
        self.0.iter().rev().nth(usize::from(place) % self.0.len().max(1))
    }

    /// The call that a chat stands for.
    pub(super) fn talk(&self, team: TeamId, chat: &Chat, operation: impl Fn(Call) -> Operation, now: Time) -> Talk {
        self.try_talk(team, chat, operation, now).unwrap_or(Talk::Nothing)
    }

    fn try_talk(&self, team: TeamId, chat: &Chat, operation: impl Fn(Call) -> Operation, now: Time) -> Option<Talk> {
        Some(match chat {
            Chat::Answer { message, .. } => {
                let message = Message { team, ..self.named(*message)?.clone() };
                Talk::Answer(Box::new(self.answer(&message, chat, now)?))
            }
            Chat::Lease { message, token: n, renew, ttl_ms, call } => {
                let ask = LeaseAsk {
                    renew: renew.then(|| token(*n)),
                    token: token(*n),
                    holder: format!("agent {n}"),
                    ttl_ms: *ttl_ms,
                };
                Talk::Lease(team, self.named(*message)?.thread, ask, call.map(operation))
            }
            Chat::Release(message, n) => Talk::Release(team, self.named(*message)?.thread, token(*n)),
            Chat::Next { message, count, ttl_ms, call } => {
                let tokens = (0..*count).map(token).collect();
                let inbox = self.named(*message)?.inbox;
                Talk::Next(team, NextAsk { inbox, holder: "next".into(), ttl_ms: *ttl_ms, tokens }, call.map(operation))
            }
            Chat::Settle(message, n, how) => {
                Talk::Settle(team, Held { message: self.named(*message)?.id, token: token(*n) }, *how)
            }
            Chat::Edit(message, handled) => {
                let labels = handled.is_none().then(|| vec!["hot".into()]);
                Talk::Edit(team, self.named(*message)?.thread, ThreadEdit { labels, handled: *handled })
            }
        })
    }

    fn answer(&self, message: &Message, chat: &Chat, now: Time) -> Option<AnswerWish> {
        let Chat::Answer { sketch, slot, token: n, seen, soft, cap, person, .. } = chat else { return None };
        let caps = match cap {
            0 => Caps { per_window: 1, ..LOOSE },
            1 => Caps { per_day: 2, window_ms: DAY, ..LOOSE },
            2 => Caps { per_person: 1, ..LOOSE },
            _ => LOOSE,
        };
        Some(AnswerWish {
            slot: if *slot < 2 { Slot::Reply((*slot).into()) } else { Slot::Forward(format!("p{slot}")) },
            lease: n.map(token),
            seen: self.0.iter().filter(|_| *seen).map(|message| message.id).collect(),
            answers_soft: *soft,
            caps,
            person: Some([*person; 16]).filter(|_| *person > 0),
            ..answers(message, &sketch.draft(message.team, now), now)
        })
    }

    /// Everything there is to see of a team's conversations.
    pub(super) async fn view(&self, store: &Ledger, team: TeamId) -> Vec<Scene> {
        let mut seen = Vec::new();
        let mut query = ThreadQuery { limit: 3, ..ThreadQuery::default() };
        loop {
            let page = store.threads(team, query.clone()).await.unwrap();
            query.before = page.last().map(|thread| (thread.latest_at, thread.id));
            seen.push(Scene::Threads(page));
            if query.before.is_none() {
                break;
            }
        }
        let hot = ThreadQuery { label: Some("hot".into()), handled: Some(false), limit: 2, ..ThreadQuery::default() };
        seen.push(Scene::Threads(store.threads(team, hot).await.unwrap()));
        for message in &self.0 {
            seen.push(Scene::Thread(store.thread(team, message.thread).await.unwrap()));
            seen.push(Scene::Emails(store.thread_emails(team, message.thread, None, 100).await.unwrap()));
            let inside = ThreadQuery { inbox: Some(message.inbox), limit: 100, ..ThreadQuery::default() };
            seen.push(Scene::Threads(store.threads(team, inside).await.unwrap()));
        }
        seen
    }
}

/// One thing that was looked at.
#[derive(Debug, PartialEq)]
pub(super) enum Scene {
    Threads(Vec<Thread>),
    Thread(Option<Thread>),
    Emails(Vec<EmailId>),
}
