//! Agents that answer letters: several, on any node, together and at once. They take leases and sleep past their end,
//! answer the same message twice and in other words, show tokens that they lost, and retry what got no answer.

use super::client::{Clients, Told, failed};
use super::desk;
use super::mail::Place;
use super::town::Town;
use crate::proof::history::{Call, End, Verb};
use mailonce_core::{
    conversation::turn::Settling,
    id::{MessageId, ThreadId},
    key::Key,
    message::Message,
    port::store::StoreError,
    problem::{Code, Problem},
};
use mailonce_engine::{
    Engine,
    next::{NextRequest, Taken},
    reply::{ForwardRequest, ReplyRequest},
    threads::LeaseRequest,
    view::Sent,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Rounds after healing in which agents of some worlds take work and do nothing.
const IDLE_ROUNDS: usize = 7;
/// One of so many worlds has them.
const IDLE_WORLDS: u64 = 5;
/// How often an agent asks again when it got no answer.
const TRIES: usize = 3;

/// Tokens of leases that somebody held.
type Tokens = Arc<Mutex<Vec<String>>>;

/// All agents.
#[derive(Clone)]
pub(super) struct Agents {
    clients: Clients,
    tokens: Tokens,
}

/// One agent at a desk.
#[derive(Clone)]
struct Agent {
    clients: Clients,
    tokens: Tokens,
    engine: Arc<Engine>,
    place: Place,
    /// What is in the desk, as it was when it looked.
    known: Vec<Message>,
}

/// What an answer is made of.
#[derive(Clone, Default)]
struct Words {
    lease: Option<String>,
    seen: Vec<MessageId>,
    follow_up: u32,
    way: u64,
    key: Option<String>,
}

impl Agents {
    pub(super) fn new(clients: &Clients) -> Self {
        Self { clients: clients.clone(), tokens: Tokens::default() }
    }

    /// One step: some agents do something.
    pub(super) async fn work(&self, town: &Town) -> Result<(), StoreError> {
        let desks: Vec<&Place> = town.places.iter().filter(|place| place.desk).collect();
        for _ in 0..town.shared.between(1, 4) {
            let place = desks[town.shared.below(desks.len() as u64) as usize];
            let known = desk::messages(town, place).await?;
            if let Some(engine) = town.any_engine() {
                tokio::spawn(self.agent(engine, place, known).turn());
            }
        }
        Ok(())
    }

    fn agent(&self, engine: Arc<Engine>, place: &Place, known: Vec<Message>) -> Agent {
        Agent { clients: self.clients.clone(), tokens: Arc::clone(&self.tokens), engine, place: place.clone(), known }
    }

    /// After healing agents answer whatever is left, in some worlds only after they did nothing for long.
    pub(super) async fn attend(&self, town: &Town, round: usize) -> Result<(), StoreError> {
        let idle = town.shared.plan.seed.is_multiple_of(IDLE_WORLDS) && round < IDLE_ROUNDS;
        for place in town.places.iter().filter(|place| place.desk) {
            let known = desk::messages(town, place).await?;
            let Some(engine) = town.any_engine() else { continue };
            let agent = self.agent(engine, place, known);
            for taken in agent.next(10, 1_000).await {
                if !idle {
                    let words = Words { lease: Some(taken.lease.token), seen: agent.all(), ..Words::default() };
                    agent.reply(taken.message.id, words).await;
                }
            }
        }
        Ok(())
    }
}

impl Agent {
    fn below(&self, bound: u64) -> u64 {
        self.clients.shared.below(bound)
    }

    fn all(&self) -> Vec<MessageId> {
        self.known.iter().map(|message| message.id).collect()
    }

    fn some(&self) -> Option<&Message> {
        let at = (!self.known.is_empty()).then(|| self.below(self.known.len() as u64) as usize);
        at.and_then(|at| self.known.get(at))
    }

    fn tokens(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn sleep(&self) {
        let ms = self.clients.shared.pick(&[0, 0, 5, 400, 1_500]);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    async fn turn(self) {
        match self.below(10) {
            0..=3 => {
                for taken in self.next(self.clients.shared.between(1, 2) as usize, self.ttl()).await {
                    self.sleep().await;
                    Box::pin(self.handle(taken)).await;
                }
            }
            4 => self.lease().await,
            5..=7 => Box::pin(self.answer_unasked()).await,
            8 => self.answer_late().await,
            _ => {
                if let Some(message) = self.some() {
                    self.forward(message.id, None).await;
                }
            }
        }
    }

    fn ttl(&self) -> i64 {
        self.clients.shared.pick(&[1_000, 1_000, 20_000, 120_000])
    }

    async fn next(&self, limit: usize, ttl_ms: i64) -> Vec<Taken> {
        let holder = format!("agent-{}", self.below(3));
        let request = NextRequest { limit, ttl_ms, wait: Duration::ZERO, holder };
        let caller = &self.clients.callers[self.place.number];
        // What could not be told is offered again when its lease is over.
        let taken = self.engine.next(caller, self.place.id, request, None).await.unwrap_or_default();
        self.tokens().extend(taken.iter().map(|taken| taken.lease.token.clone()));
        taken
    }

    /// What an agent does with a message that it was offered.
    async fn handle(&self, taken: Taken) {
        let (id, token) = (taken.message.id, taken.lease.token);
        let seen = if self.below(4) == 0 { Vec::new() } else { self.all() };
        let words = Words { lease: Some(token.clone()), seen, way: self.below(2), ..Words::default() };
        match self.below(10) {
            0..=3 => {
                self.reply(id, words).await;
                if self.below(2) == 0 {
                    self.settle(id, &token, Settling::Ack).await;
                }
            }
            4 => {
                // The model calls its tool again, in other words.
                let again = Words { way: words.way + 1, ..words.clone() };
                tokio::join!(self.reply(id, words), self.reply(id, again));
            }
            5 => {
                self.settle(id, &token, Settling::Extend { ttl_ms: self.ttl() }).await;
                self.sleep().await;
                self.reply(id, words).await;
            }
            6 => {
                self.settle(id, &token, Settling::Nack { delay_ms: self.clients.shared.pick(&[0, 2_000, 60_000]) })
                    .await
            }
            7 => self.settle(id, &token, Settling::Ack).await,
            8 => self.forward(id, Some(token)).await,
            // It forgets.
            _ => {}
        }
    }

    /// Takes the lease of a thread by hand.
    async fn lease(&self) {
        let Some(message) = self.some() else { return };
        let (caller, thread) = (&self.clients.callers[self.place.number], message.thread);
        let request = LeaseRequest { renew: None, holder: "by-hand".into(), ttl_ms: self.ttl() };
        let Ok(lease) = self.engine.lease_thread(caller, thread, request, None).await else { return };
        self.tokens().push(lease.token.clone());
        self.sleep().await;
        if self.below(2) == 0 {
            let words = Words { lease: Some(lease.token.clone()), seen: self.all(), ..Words::default() };
            self.reply(message.id, words).await;
        }
        if self.below(2) == 0 {
            self.release(thread, &lease.token).await;
        }
    }

    async fn release(&self, thread: ThreadId, token: &str) {
        let caller = &self.clients.callers[self.place.number];
        // One that is not given back lapses.
        let _lapses = self.engine.release_thread(caller, thread, token).await;
    }

    /// Answers some message without a lease, sometimes twice at once, sometimes without having looked.
    async fn answer_unasked(&self) {
        let Some(message) = self.some() else { return };
        let seen = if self.below(2) == 0 { Vec::new() } else { self.all() };
        let key = (self.below(3) == 0).then(|| format!("answer-{}", message.id));
        let follow_up = u32::from(self.below(6) == 0);
        let key = key.filter(|_| follow_up == 0);
        let words = Words { lease: None, seen, follow_up, way: self.below(2), key };
        if self.below(3) > 0 {
            return self.reply(message.id, words).await;
        }
        let again = Words { way: words.way + self.below(2), ..words.clone() };
        tokio::join!(self.reply(message.id, words), self.reply(message.id, again));
    }

    /// Comes back with a token of long ago.
    async fn answer_late(&self) {
        let old = self.tokens().clone();
        let (Some(message), false) = (self.some(), old.is_empty()) else { return };
        let token = old[self.below(old.len() as u64) as usize].clone();
        if self.below(4) == 0 {
            return self.settle(message.id, &token, Settling::Ack).await;
        }
        self.reply(message.id, Words { lease: Some(token), seen: self.all(), ..Words::default() }).await;
    }

    async fn settle(&self, id: MessageId, token: &str, how: Settling) {
        let caller = &self.clients.callers[self.place.number];
        // A lease that was lost tells nothing; the message is somebody else's.
        let _others = self.engine.settle_message(caller, id, token, how).await;
    }

    async fn reply(&self, id: MessageId, words: Words) {
        let request = || ReplyRequest {
            text: Some(format!("This answers {id} in way {}.", words.way)),
            follow_up: words.follow_up,
            seen: words.seen.clone(),
            lease: words.lease.clone(),
            key: words.key.as_deref().and_then(|key| Key::parse(key).ok()),
            ..ReplyRequest::default()
        };
        let caller = &self.clients.callers[self.place.number];
        for _ in 0..TRIES {
            let call = self.begin();
            if self.end(call, self.engine.reply(caller, id, request()).await) {
                return;
            }
            self.sleep().await;
        }
    }

    async fn forward(&self, id: MessageId, lease: Option<String>) {
        let (caller, call) = (&self.clients.callers[self.place.number], self.begin());
        let to = vec!["boss@people.example".to_owned()];
        let request = ForwardRequest { to, text: Some("Please look.".into()), lease, ..ForwardRequest::default() };
        self.end(call, self.engine.forward(caller, id, request).await);
    }

    fn begin(&self) -> usize {
        let mut call = Call::new(0, &desk::team(&self.place), Verb::Reply);
        let codes = ["self", "automatic", "leased", "newer_message", "key_mismatch"];
        call.may_fail = codes.map(str::to_owned).to_vec();
        self.clients.shared.invoke(call)
    }

    /// Writes down how it ended. False when there was no answer.
    fn end(&self, call: usize, answer: Result<Sent, Problem>) -> bool {
        let told = !answer.as_ref().is_err_and(|problem| problem.code == Code::Unavailable);
        let end = match answer {
            Ok(sent) => {
                self.clients.learn(Told { id: sent.id, team: self.place.number, key: None });
                End::Ok { first: sent.first, ids: vec![sent.id.to_string()] }
            }
            Err(problem) => failed(&problem),
        };
        self.clients.shared.end(call, end, false);
        told
    }
}
