//! Taking work from an inbox: the oldest messages that nobody works on, each with the lease of its thread; and what an
//! agent says about them afterwards.

use mailonce_core::{
    conversation::{
        escalation::{Escalation, Matter, Reason},
        thread::{NextAsk, Offer, Settled, Thread},
        turn::{Held, OFFERS, Settling},
    },
    id::{InboxId, MessageId},
    message::{Message, MessagePlace, MessageQuery, MessageState},
    port::store::Once,
    problem::{Code, Problem},
    team::Scope,
    time::Time,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::Instant;

use crate::{
    Asked, Caller, Engine,
    change::taken,
    inboxes::{may_use, missing},
    open_keys::key_refused,
    operation,
    reply::{leased, token_hash},
    threads::{LeaseView, shown},
    unavailable,
};

/// How often the ledger is asked while somebody waits: leases lapse and pauses end without anybody telling.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// The oldest messages that are looked at before any is given.
const LOOKED_AT: usize = 50;
/// Messages that one call may take.
pub const AT_ONCE: usize = 10;

/// A wish for work.
#[derive(Clone, Debug)]
pub struct NextRequest {
    /// At most so many messages.
    pub limit: usize,
    /// How long each lease is to last, in milliseconds.
    pub ttl_ms: i64,
    /// How long to wait for one.
    pub wait: Duration,
    /// Who asks.
    pub holder: String,
}

/// A message to work on, with the lease of its thread.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The message.
    pub message: Message,
    /// The lease.
    pub lease: LeaseView,
    /// What people wrote in the thread since: an answer must name it in `seen`.
    pub newer: Vec<MessageId>,
}

impl Taken {
    fn new(message: Message, token: String, thread: &Thread) -> Self {
        let newer = thread.unseen(message.seq, &[]).collect();
        Self { message, lease: shown(token, thread), newer }
    }
}

/// What was given, for whoever asks again under the same key.
#[derive(Serialize, Deserialize)]
struct Given {
    tokens: Vec<String>,
}

impl Engine {
    /// Takes messages of an inbox to work on, and waits for one if there is none.
    pub async fn next(
        &self,
        caller: &Caller,
        inbox: InboxId,
        request: NextRequest,
        asked: Option<Asked>,
    ) -> Result<Vec<Taken>, Problem> {
        caller.need(Scope::Reply)?;
        let found = self.store.inbox(caller.team.id, inbox).await.map_err(unavailable)?;
        found.filter(|inbox| may_use(caller, inbox)).ok_or_else(|| missing(inbox))?;
        let deadline = Instant::now() + request.wait;
        let waiting = self.inbound.waiters.at(inbox);
        let mut key = self.watch_key(caller);
        loop {
            let woken = waiting.notify.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            let taken = self.take_next(caller, inbox, &request, asked.as_ref()).await?;
            if !taken.is_empty() || Instant::now() >= deadline {
                return Ok(taken);
            }
            tokio::select! {
                biased;
                () = woken => {}
                () = key.over() => return Err(key_refused()),
                () = tokio::time::sleep_until(deadline.min(Instant::now() + ASK_EVERY)) => {}
            }
        }
    }

    async fn take_next(
        &self,
        caller: &Caller,
        inbox: InboxId,
        request: &NextRequest,
        asked: Option<&Asked>,
    ) -> Result<Vec<Taken>, Problem> {
        let (team, now) = (caller.team.id, self.now());
        if !self.was_asked(caller, asked).await? && !self.has_work(caller, inbox, now).await? {
            return Ok(Vec::new());
        }
        let tokens: Vec<String> = (0..request.limit).map(|_| self.lease_token()).collect();
        let answer = self.sealed(asked, &Given { tokens: tokens.clone() });
        let ask = NextAsk {
            inbox,
            holder: request.holder.clone(),
            ttl_ms: request.ttl_ms,
            tokens: tokens.iter().map(|token| token_hash(token)).collect(),
        };
        let operation = operation(caller, asked, answer, now);
        match self.store.next_messages(team, ask, operation, now).await.map_err(unavailable)? {
            Once::Done(offers) => Ok(offers.into_iter().filter_map(|offer| given(&tokens, offer)).collect()),
            Once::Repeated(answer) => {
                let Given { tokens } = self.unsealed(asked, &answer)?;
                self.given_before(caller, inbox, &tokens).await
            }
            Once::Mismatch(bound) => Err(taken(&bound)),
        }
    }

    /// Whether there may be something to take. A message that was offered too often is asked about before it is
    /// skipped, so that a crash in between loses nothing.
    async fn has_work(&self, caller: &Caller, inbox: InboxId, now: Time) -> Result<bool, Problem> {
        let state = Some(MessageState::Unanswered);
        let query = MessageQuery { state, place: MessagePlace::After(0), limit: LOOKED_AT, ..MessageQuery::default() };
        let page = self.store.messages(caller.team.id, inbox, query).await.map_err(unavailable)?;
        for message in page.rows.iter().filter(|message| message.marks.turn.offers >= OFFERS) {
            self.ask_about_unanswered(caller, message).await?;
        }
        Ok(page.rows.iter().any(|message| message.may_be_offered(now)) || page.next.is_some())
    }

    async fn ask_about_unanswered(&self, caller: &Caller, message: &Message) -> Result<(), Problem> {
        let thread = self.store.thread(caller.team.id, message.thread).await.map_err(unavailable)?;
        let now = self.now();
        if !message.may_be_offered(now) || thread.is_some_and(|thread| thread.lease_at(now).is_some()) {
            return Ok(());
        }
        let about = Matter {
            message: Some(message.id),
            thread: Some(message.thread),
            inbox: Some(message.inbox),
            ..Matter::default()
        };
        self.ask(caller.team.id, Escalation::open(Reason::Unanswered, about, None)).await;
        Ok(())
    }

    /// What was taken under the same key before, as far as its leases still hold.
    async fn given_before(&self, caller: &Caller, inbox: InboxId, tokens: &[String]) -> Result<Vec<Taken>, Problem> {
        let query = MessageQuery { place: MessagePlace::After(0), limit: LOOKED_AT, ..MessageQuery::default() };
        let query = MessageQuery { state: Some(MessageState::Unanswered), ..query };
        let page = self.store.messages(caller.team.id, inbox, query).await.map_err(unavailable)?;
        let mut given = Vec::new();
        for message in page.rows {
            let thread = self.store.thread(caller.team.id, message.thread).await.map_err(unavailable)?;
            let Some(thread) = thread else { continue };
            let named = thread.about.lease.as_ref().is_some_and(|lease| lease.message == Some(message.id));
            let token = tokens.iter().find(|token| named && thread.is_latest(&token_hash(token)));
            given.extend(token.map(|token| Taken::new(message, token.clone(), &thread)));
        }
        given.iter_mut().for_each(|taken| taken.message.state = MessageState::Leased);
        Ok(given)
    }

    /// What an agent says about a message that it holds.
    pub async fn settle_message(
        &self,
        caller: &Caller,
        id: MessageId,
        lease: &str,
        how: Settling,
    ) -> Result<Taken, Problem> {
        caller.need(Scope::Reply)?;
        let no_such = || Problem::new(Code::NotFound, format!("there is no message {id}"));
        let team = caller.team.id;
        let message = self.store.message(team, id).await.map_err(unavailable)?.ok_or_else(no_such)?;
        let inbox = self.store.inbox(team, message.inbox).await.map_err(unavailable)?;
        inbox.filter(|inbox| may_use(caller, inbox)).ok_or_else(no_such)?;
        let now = self.now();
        let held = Held { message: id, token: token_hash(lease) };
        match self.store.settle_message(team, held, how, now).await.map_err(unavailable)? {
            Settled::Done(message, thread) => {
                // The next of its thread, or itself a little later, may be offered to whoever waits.
                self.inbound.waiters.wake(message.inbox);
                let mut messages = [message];
                self.derive_states(team, &mut messages).await.map_err(unavailable)?;
                let [message] = messages;
                Ok(Taken::new(message, lease.to_owned(), &thread))
            }
            // Said before: nobody took the thread since, and the message is as it was left.
            Settled::Stale(message, thread) if was_said(&message, &thread, how) => {
                Ok(Taken::new(message, lease.to_owned(), &thread))
            }
            Settled::Stale(_, thread) => Err(leased(&thread, now)),
            Settled::Missing => Err(no_such()),
        }
    }
}

fn was_said(message: &Message, thread: &Thread, how: Settling) -> bool {
    let left = match how {
        Settling::Ack => message.state != MessageState::Unanswered,
        Settling::Nack { .. } => message.marks.turn.not_before.is_some(),
        Settling::Extend { .. } => false,
    };
    left && thread.about.lease.is_none()
}

fn given(tokens: &[String], offer: Offer) -> Option<Taken> {
    let Offer { mut message, thread, token } = offer;
    message.state = MessageState::Leased;
    Some(Taken::new(message, tokens.get(token)?.clone(), &thread))
}
