//! Unknown outcomes: what is done about them without a person, and what a person may do.
//!
//! The decision itself is [`mailonce_core::doubt::next`]; here it is carried out, and each way out is written down.

use mailonce_core::{
    dispatch::{Act, Choice, Verdict},
    doubt::{self, Next},
    email::{Email, EmailState},
    handoff::{Evidence, Says, Source},
    id::{EmailId, NodeId, TeamId},
    mutant,
    port::{
        store::{Acted, Once},
        transport::{Asked as LookUp, Found, Recovery},
    },
    problem::Problem,
    team::Scope,
    time::Time,
};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

use crate::{
    Asked, Caller, Engine,
    change::{missing, refused, taken},
    operation,
    panics::caught,
    unavailable,
    ways::Way,
};

/// Doubts looked at in one round.
const AT_ONCE: usize = 64;
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a repeat waits for a way that rests or is full, in milliseconds.
const WAY_RESTS_MS: i64 = 2_000;
/// How long one waits over which a worker panicked, in milliseconds.
const PANICKED_MS: i64 = 60_000;

/// Handoffs that somebody of this process is finding out about.
#[derive(Default)]
pub(crate) struct AtWork(Mutex<HashSet<(EmailId, u16)>>);

impl AtWork {
    fn begin(&self, id: EmailId, number: u16) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((id, number))
    }

    fn end(&self, id: EmailId, number: u16) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(id, number));
    }
}

impl Engine {
    /// Looks after unknown outcomes until `stop` changes.
    pub(crate) async fn look_after_doubts(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            match self.store.doubts(&self.ways.accounts(), AT_ONCE, self.now()).await {
                Ok(doubts) => {
                    for (email, number) in doubts {
                        if !self.is_paused() && self.at_work.begin(email.id, number) {
                            let engine = Arc::clone(&self);
                            tokio::spawn(async move {
                                let id = email.id;
                                engine.find_out_or_wait(email, number).await;
                                engine.at_work.end(id, number);
                            });
                        }
                    }
                }
                Err(error) => tracing::warn!(%error, "looking for unknown outcomes"),
            }
            tokio::select! {
                biased;
                () = self.doubted.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                _ = stop.changed() => {}
            }
            // A fresh doubt is due a moment later; rounds stay apart however many there are.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Finds out about one. When the worker panics, it is looked at again later.
    async fn find_out_or_wait(self: &Arc<Self>, email: Email, number: u16) {
        let worker = Box::pin(Arc::clone(self).find_out(email.clone(), number));
        if let Err(why) = caught(worker).await {
            tracing::error!(why, email = %email.id, handoff = number, "looking after an unknown outcome panicked");
            self.metrics.panicked("doubt");
            self.wait(&email, number, None, Some(self.now().plus(PANICKED_MS))).await;
        }
    }

    async fn find_out(self: Arc<Self>, email: Email, number: u16) {
        let Some(handoff) = email.handoffs.get(usize::from(number)) else { return };
        // A process that does not have the transport decides nothing: it cannot know what the next hop remembers.
        let Some(way) = self.ways.get(&handoff.transport).cloned() else { return };
        match doubt::next(handoff, email.head.on_unknown, self.doubt_way(&way), self.now()) {
            Next::Repeat => self.repeat(&way, &email, number).await,
            Next::LookUp => {
                self.look_up(&way, &email, number).await;
            }
            Next::Resend => {
                // Nothing is sent again that the next hop may have learnt of by now.
                let asks = matches!(way.capability().recovery, Recovery::LookUp { .. });
                if asks && self.look_up(&way, &email, number).await {
                    return;
                }
                self.insist(email.team, email.id, Act::ResendByPolicy { number }).await;
                self.metrics.resolved("policy");
                self.ways.wake();
            }
            Next::Wait(next) => self.wait(&email, number, None, next).await,
        }
    }

    async fn wait(&self, email: &Email, number: u16, evidence: Option<Evidence>, next: Option<Time>) {
        self.insist(email.team, email.id, Act::Wait { number, evidence, next }).await;
    }

    /// The same bytes under the same key at the same account, while the provider surely remembers it.
    async fn repeat(self: &Arc<Self>, way: &Arc<Way>, email: &Email, number: u16) {
        if way.room(self.outside.in_flight, self.time.even()) == 0 {
            let next = self.now().plus(WAY_RESTS_MS);
            return self.wait(email, number, None, Some(next)).await;
        }
        let under_way = way.begin(None);
        let account = way.transport.account().to_owned();
        let Some(name) = self.introduced().await else { return };
        let act = Act::Repeat { number, holder: name.id, account };
        let held = match self.store.act(email.team, email.id, act, None, self.now()).await {
            Ok(Once::Done(Acted::Email(Verdict::Done, held))) => held,
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(%error, "repeating");
                return self.lost_lease(&error, &name);
            }
        };
        crate::failpoint!("repeat");
        let fence = |email: &Email| email.handoffs.get(usize::from(number)).map(|handoff| handoff.fence);
        match self.store.leased(email.team, email.id, number).await {
            // Taken over meanwhile: whoever holds it now does not need us.
            Ok(Some(leased)) if fence(&leased.email) != fence(&held) => {}
            Ok(Some(leased)) => {
                let engine = Arc::clone(self);
                Box::pin(engine.deliver_or_give_back(Arc::clone(way), leased, under_way, name.id)).await;
            }
            // The lease ends with this process at the latest; until then nobody else may try.
            Ok(None) => self.give_back(email, number, name.id).await,
            Err(error) => {
                tracing::warn!(%error, email = %email.id, handoff = number, "a repeat was put off");
                self.give_back(email, number, name.id).await;
            }
        }
    }

    async fn give_back(&self, email: &Email, number: u16, holder: NodeId) {
        let act = Act::Crash { number, holder };
        self.insist(email.team, email.id, act).await;
    }

    /// Asks the next hop, and writes down what it said. True when it has the mail.
    async fn look_up(&self, way: &Way, email: &Email, number: u16) -> bool {
        let Some(handoff) = email.handoffs.get(usize::from(number)) else { return false };
        let now = self.now();
        let asked = LookUp {
            email: email.id,
            handoff: number,
            recipients: handoff.recipients.clone(),
            message_id: self.message_id(email),
            key: self.downstream_key(email, number),
            since: handoff.work.doubt_since.unwrap_or(now),
            now,
        };
        let fact = |says: Says, detail: String| Evidence {
            handoff: number,
            attempt: None,
            at: now,
            source: Source::LookUp,
            says,
            detail,
            once: None,
        };
        let next = Some(doubt::look_again_at(handoff, email.head.on_unknown, now));
        crate::failpoint!("before-look-up");
        let found = way.transport.look_up(asked).await;
        crate::failpoint!("after-look-up");
        match found {
            Found::Yes { remote_id, text } => {
                let name = remote_id.map(|id| format!(" ({id})")).unwrap_or_default();
                self.insist(email.team, email.id, Act::Fact(fact(Says::Accepted, format!("{text}{name}")))).await;
                self.metrics.resolved("look_up");
                return true;
            }
            Found::No if mutant!("not-found-is-proof") => {
                let mut proof = fact(Says::NotAccepted, "it knows of no such mail".into());
                proof.attempt = handoff.work.doubts.first().copied();
                self.insist(email.team, email.id, Act::Fact(proof)).await;
            }
            Found::Silent(why) if mutant!("silence-is-proof") => {
                self.insist(email.team, email.id, Act::Fact(fact(Says::Accepted, why))).await;
            }
            Found::No => {
                let evidence = fact(Says::NotFound, "it knows of no such mail; that is no proof".into());
                self.wait(email, number, Some(evidence), next).await;
            }
            Found::Silent(why) => self.wait(email, number, Some(fact(Says::Silent, why)), next).await,
        }
        false
    }

    /// A person decides what became of an unknown email.
    pub async fn resolve(
        &self,
        caller: &Caller,
        id: EmailId,
        wish: Resolve,
        asked: Option<Asked>,
    ) -> Result<Email, Problem> {
        caller.need(Scope::Admin)?;
        self.check_own_email(caller, id).await?;
        let now = self.now();
        let operation = operation(caller, asked.as_ref(), Vec::new(), now);
        let act = Act::Resolve {
            choice: wish.choice,
            rev: wish.rev,
            handoff: wish.handoff,
            reason: wish.reason.unwrap_or_else(|| "no reason given".into()),
        };
        match self.store.act(caller.team.id, id, act, operation, now).await.map_err(unavailable)? {
            Once::Done(Acted::Email(Verdict::Refused(refusal), email)) => Err(refused(refusal, &email)),
            Once::Done(Acted::Email(_, email)) => {
                self.metrics.resolved("person");
                self.ways.wake();
                Ok(email)
            }
            Once::Done(Acted::Missing) => Err(missing(id)),
            Once::Repeated(_) => self.email(caller, id).await,
            Once::Mismatch(bound) => Err(taken(&bound)),
        }
    }

    /// A fact from outside about a handoff of a team. False when the email is not this team's.
    pub async fn learn(&self, team: TeamId, id: EmailId, fact: Evidence) -> Result<bool, Problem> {
        match self.store.act(team, id, Act::Fact(fact), None, self.now()).await.map_err(unavailable)? {
            Once::Done(Acted::Email(_, _)) => Ok(true),
            _ => Ok(false),
        }
    }

    /// The email once it is settled, or as it is when the time is up.
    pub async fn settled(&self, caller: &Caller, id: EmailId, patience: Duration) -> Result<Option<Email>, Problem> {
        let key = self.watch_key(caller);
        let deadline = tokio::time::Instant::now() + patience;
        let mut pause = Duration::from_millis(5);
        loop {
            key.check()?;
            let email = self.store.email(caller.team.id, id).await.map_err(unavailable)?;
            let over = |email: &Email| {
                email.state().is_terminal() || matches!(email.state(), EmailState::Unknown | EmailState::Held)
            };
            if email.as_ref().is_none_or(over) || tokio::time::Instant::now() + pause > deadline {
                return Ok(email);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }
}

/// What a person decides.
#[derive(Clone, Debug)]
pub struct Resolve {
    /// What.
    pub choice: Choice,
    /// The rev that was seen.
    pub rev: u32,
    /// Which handoff; every unknown one when none is named.
    pub handoff: Option<u16>,
    /// Why.
    pub reason: Option<String>,
}
