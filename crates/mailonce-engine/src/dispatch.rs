//! Handing over: lease what is due, go to the point of no return, commit the marker, let the bytes go, settle.
//!
//! One loop per way out leases and spawns; [`Engine::deliver`] is the life of one attempt. The order of its steps is
//! the promise: nothing irrevocable before the marker is durable, and whatever is learnt after it is written down
//! for as long as the process lives.

use mailonce_core::{
    dispatch::{Act, Hold, Verdict},
    doubt,
    email::Email,
    handoff::{Evidence, Handoff, Says, Source},
    id::{EmailId, NodeId},
    mutant,
    port::{
        store::{Acted, LeaseWish, Leased, Once, StoreError},
        transport::{Meaning, Parcel, Phase, Reply, Shape},
    },
    time::Time,
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    Engine,
    holder::Name,
    signers::Unsigned,
    ways::{FAULTS, UnderWay, Way},
};

/// Handoffs leased in one commit.
const LEASED_AT_ONCE: usize = 64;
/// The longest sleep of a loop; wake-ups make it shorter, and a lost one costs no more than this.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long hand-overs that are under way may take to end when we stop. The others are found unknown at the start.
const FAREWELL: Duration = Duration::from_secs(10);
/// The longest pause between two tries to write an answer down.
const WRITE_AGAIN: Duration = Duration::from_secs(2);
/// How long a handoff waits that had to be given back, in milliseconds.
const PARKED_MS: i64 = 1_000;

impl Engine {
    /// Hands over by one way until `stop` changes, then lets what is under way end.
    pub(crate) async fn work(self: Arc<Self>, way: Arc<Way>, mut stop: watch::Receiver<bool>) {
        let mut under_way = JoinSet::new();
        while !*stop.borrow() {
            let taken = self.take(&way, &mut under_way).await;
            while under_way.try_join_next().is_some() {}
            if taken {
                continue;
            }
            tokio::select! {
                biased;
                () = way.wake.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                _ = stop.changed() => {}
            }
        }
        let ended = async { while under_way.join_next().await.is_some() {} };
        if tokio::time::timeout(FAREWELL, ended).await.is_err() {
            tracing::warn!(transport = way.transport.name(), "some hand-overs did not end in time");
        }
    }

    /// Leases what there is room for and sets it going. True when there may be more.
    async fn take(self: &Arc<Self>, way: &Arc<Way>, under_way: &mut JoinSet<()>) -> bool {
        if self.is_paused() {
            return false;
        }
        if !way.is_open_for_work(self.time.even()) {
            return self.divert(way).await;
        }
        let room = way.room(self.outside.in_flight, self.time.even()).min(LEASED_AT_ONCE);
        if room == 0 {
            return false;
        }
        let Some(name) = self.introduced().await else { return false };
        let wish = self.lease_wish(way, name.id, room);
        let room = wish.max;
        crate::failpoint!("before-lease");
        let leased = self.lease(wish, &name).await;
        if !leased.is_empty() {
            crate::failpoint!("after-lease");
        }
        let more = leased.len() == room;
        for leased in leased {
            let guard = way.begin(self.throttled_domain(way, &leased));
            let (engine, way, name) = (Arc::clone(self), Arc::clone(way), Arc::clone(&name));
            under_way.spawn(async move {
                engine.deliver_or_give_back(way, leased, guard, name.id).await;
                drop(name);
            });
        }
        more
    }

    /// Leases. What the ledger does not confirm may be leased all the same, and nobody could say what it is: so it is
    /// left to whoever takes over from a name that is not heard of any more.
    async fn lease(&self, wish: LeaseWish, name: &Arc<Name>) -> Vec<Leased> {
        self.store.lease(wish, self.now()).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "leasing");
            self.lost_lease(&error, name);
            Vec::new()
        })
    }

    /// The name to lease under. The ledger has heard of it lately: else others would take at once what is leased under
    /// it, which is so for a new name and after a sleep.
    pub(crate) async fn introduced(&self) -> Option<Arc<Name>> {
        let (name, even) = (self.holder.current(), self.time.even());
        if !name.is_heard(even) && !mutant!("unheard-name") {
            let heard = self.say_alive(name.id).await;
            heard.map_err(|error| tracing::warn!(%error, "saying that this process lives")).ok()?;
            name.heard(even);
        }
        Some(name)
    }

    /// Goes on under another name when a lease may be lost.
    pub(crate) fn lost_lease(&self, error: &StoreError, name: &Arc<Name>) {
        if matches!(error, StoreError::Unknown(_)) && !mutant!("lost-lease-kept") {
            self.holder.renew(name, &*self.chance);
        }
    }

    /// A wish that cannot bring more for one domain than it may still have, whatever is due.
    fn lease_wish(&self, way: &Way, node: NodeId, max: usize) -> LeaseWish {
        let throttled = self.outside.per_domain.filter(|_| way.capability().shape == Shape::PerRecipient);
        let (but, most) = throttled.map_or((Vec::new(), max), |most| way.throttle(most));
        LeaseWish {
            transport: way.transport.name().to_owned(),
            node,
            max: max.min(most),
            but,
            scheduled_by: self.time.earlier(),
        }
    }

    /// Sends what waits for a way that rests by another one, when there is one. True when there may be more.
    async fn divert(&self, way: &Arc<Way>) -> bool {
        if !self.ways.has_other(way.transport.name(), self.time.even()) {
            return false;
        }
        let Some(name) = self.introduced().await else { return false };
        let leased = self.lease(self.lease_wish(way, name.id, LEASED_AT_ONCE), &name).await;
        let mut moved = false;
        for leased in &leased {
            let Some(handoff) = leased.email.handoffs.get(usize::from(leased.number)) else { continue };
            let hold = Hold {
                number: handoff.number,
                fence: handoff.fence,
                transport: handoff.transport.clone(),
                account: way.transport.account().to_owned(),
            };
            let due = handoff.due_at.unwrap_or_else(|| self.now());
            let park = Act::Park { hold, due, why: format!("{} rests", way.transport.name()) };
            if let Some(email) = self.insist(leased.email.team, leased.email.id, park).await {
                moved |= self.fail_over(way, &email, leased.number).await;
            }
        }
        moved && leased.len() == LEASED_AT_ONCE
    }

    fn throttled_domain(&self, way: &Way, leased: &Leased) -> Option<String> {
        self.outside.per_domain.filter(|_| way.capability().shape == Shape::PerRecipient)?;
        let handoff = leased.email.handoffs.get(usize::from(leased.number))?;
        handoff.recipients.first()?.rsplit_once('@').map(|(_, domain)| domain.to_owned())
    }

    /// One attempt, from lease to settled.
    pub(crate) async fn deliver(self: Arc<Self>, way: Arc<Way>, leased: Leased, _under_way: UnderWay) {
        let Some(handoff) = leased.email.handoffs.get(usize::from(leased.number)).cloned() else { return };
        let hold = Hold {
            number: handoff.number,
            fence: handoff.fence,
            transport: handoff.transport.clone(),
            account: way.transport.account().to_owned(),
        };
        let try_ = Try { email: leased.email.clone(), handoff, hold, began: self.now() };
        let (bytes, fresh) = match self.frozen(&way, &leased).await {
            Ok(frozen) => frozen,
            Err(Unsigned::NotNow(why)) => return self.park(&try_, &why).await,
            Err(Unsigned::Never(why)) => {
                let reply = Reply::new(Meaning::Refused, Phase::Connect, None, &why);
                return self.settle(&way, &try_, None, try_.began, reply).await;
            }
        };
        let parcel = self.parcel(&try_, &bytes);
        crate::failpoint!("approach");
        let ready = match way.transport.approach(parcel).await {
            Ok(ready) => ready,
            Err(reply) => return self.settle(&way, &try_, None, try_.began, reply).await,
        };
        if try_.handoff.is_repeat() && !self.window_is_open(&way, &try_.handoff) {
            drop(ready);
            return self.park(&try_, "the provider's window closed").await;
        }
        crate::failpoint!("before-marker");
        // A sleep may lie between the lease and this, and a ledger that cannot be told will not confirm the marker either.
        drop(self.introduced().await);
        let marked_at = self.now();
        let wire = fresh.then(|| self.bodies.pack_frozen(&bytes));
        let marked = self.store.act(
            try_.email.team,
            try_.email.id,
            Act::Mark { hold: try_.hold.clone(), wire },
            None,
            marked_at,
        );
        match marked.await {
            Ok(Once::Done(Acted::Email(verdict, email)))
                if verdict == Verdict::Done || mutant!("stale-worker-goes-on") =>
            {
                crate::failpoint!("after-marker");
                let attempt = email.handoffs.get(usize::from(leased.number)).map(|handoff| handoff.attempts);
                let patience = Duration::from_millis(way.capability().patience_ms.max(1) as u64);
                let patience = if mutant!("waits-for-ever") { Duration::from_hours(9_999) } else { patience };
                let reply = tokio::time::timeout(patience, ready.hand_over())
                    .await
                    .unwrap_or_else(|_late| Reply::new(Meaning::Unknown, Phase::Final, None, "no answer in time"));
                crate::failpoint!("after-answer");
                self.settle(&way, &try_, attempt, marked_at, reply).await;
            }
            Ok(_) => {
                // Cancelled, or taken over: nothing left.
                drop(ready);
                self.metrics.stale_marker();
            }
            Err(error) => {
                // The marker may be durable or not; either way nothing left, and that can be written down.
                if mutant!("unconfirmed-marker-goes-on") {
                    let reply = ready.hand_over().await;
                    return self.settle(&way, &try_, None, marked_at, reply).await;
                }
                drop(ready);
                tracing::warn!(%error, "the marker could not be confirmed");
                let text = "the ledger did not confirm the marker; nothing was handed over";
                let reply = Reply::new(Meaning::Deferred, Phase::Data, None, text);
                self.settle(&way, &try_, None, marked_at, reply).await;
            }
        }
    }

    fn window_is_open(&self, way: &Way, handoff: &Handoff) -> bool {
        doubt::window_is_open(handoff, self.doubt_way(way), self.now())
    }

    pub(crate) fn doubt_way<'a>(&self, way: &'a Way) -> doubt::Way<'a> {
        let capability = way.capability();
        doubt::Way {
            recovery: capability.recovery,
            patience_ms: capability.patience_ms,
            account: way.transport.account(),
            earlier: self.time.earlier(),
            later: self.time.later(),
            measured_since: self.time.measured_since(),
        }
    }

    fn parcel(&self, try_: &Try, bytes: &Arc<[u8]>) -> Parcel {
        let attempt = try_.handoff.attempts + 1;
        let (return_path, envelope_id) = self.return_path(&try_.email, try_.handoff.number, attempt);
        Parcel {
            team: try_.email.team,
            email: try_.email.id,
            handoff: try_.handoff.number,
            attempt,
            return_path,
            envelope_id,
            recipients: try_.handoff.recipients.clone(),
            key: self.downstream_key(&try_.email, try_.handoff.number),
            bytes: Arc::clone(bytes),
        }
    }

    /// Writes an answer down, however long it takes: an accepted mail whose answer is lost would become a question.
    async fn settle(&self, way: &Way, try_: &Try, attempt: Option<u32>, began: Time, reply: Reply) {
        let news = way.learn(&reply, self.time.even());
        self.metrics.attempted_handoff(way.transport.name(), reply.meaning);
        let accepted = matches!(reply.meaning, Meaning::Accepted | Meaning::Repeated);
        if accepted && try_.handoff.is_repeat() {
            self.metrics.resolved("window");
            self.metrics.provider_deduplicated();
        }
        let act = Act::Settle {
            hold: try_.hold.clone(),
            attempt,
            began,
            reply,
            plan: self.outside.plan(self.chance.number()),
        };
        let settled = self.insist(try_.email.team, try_.email.id, act).await;
        crate::failpoint!("after-settle");
        if accepted && way.transport.name() == FAULTS {
            self.misbehave(try_).await;
        }
        if let Some(email) = settled {
            self.fail_over(way, &email, try_.handoff.number).await;
        }
        self.doubted.notify_one();
        if news {
            self.tell_of_way(way).await;
        }
    }

    async fn park(&self, try_: &Try, why: &str) {
        let due = self.now().plus(PARKED_MS);
        let act = Act::Park { hold: try_.hold.clone(), due, why: why.to_owned() };
        self.insist(try_.email.team, try_.email.id, act).await;
    }

    /// Writes an act down, trying again for as long as the process lives.
    pub(crate) async fn insist(&self, team: mailonce_core::id::TeamId, id: EmailId, act: Act) -> Option<Email> {
        let mut pause = Duration::from_millis(20);
        loop {
            match self.store.act(team, id, act.clone(), None, self.now()).await {
                Ok(Once::Done(Acted::Email(_, email))) => return Some(email),
                Ok(_) => return None,
                Err(error) => {
                    tracing::warn!(%error, "writing down what happened to a handoff");
                    if self.store.stopped().is_some() || mutant!("written-down-once") {
                        return None;
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(WRITE_AGAIN);
        }
    }

    /// Sends a handoff that was never begun, or definitely put off, by another way when this one rests.
    async fn fail_over(&self, way: &Way, email: &Email, number: u16) -> bool {
        let Some(handoff) = email.handoffs.get(usize::from(number)) else { return false };
        let waits = handoff.state == mailonce_core::handoff::State::Queued && !handoff.is_in_doubt();
        let waits = waits || mutant!("doubt-rerouted");
        // A caller that named a way out meant it.
        if !waits || email.head.transport.is_some() || way.is_open_for_work(self.time.even()) {
            return false;
        }
        let leased = match self.store.leased(email.team, email.id, number).await {
            Ok(Some(leased)) => leased,
            Ok(None) => return false,
            Err(error) => {
                // It stays queued where it is, and the loop of its transport tries again while the breaker is open.
                tracing::warn!(%error, email = %email.id, handoff = number, "a failover was put off");
                return false;
            }
        };
        let Some(content) = leased.body.as_deref().and_then(|body| self.bodies.unpack(body)) else { return false };
        let Some(to) = self.ways.instead_of(way.transport.name(), &content, self.time.even()) else { return false };
        let from = way.transport.name().to_owned();
        let act = if to.capability().shape == way.capability().shape {
            Act::Reroute { number, from, to: to.transport.name().to_owned() }
        } else {
            Act::Redirect { from, envelopes: self.ways.envelopes(to.transport.name(), &content) }
        };
        self.insist(email.team, email.id, act).await;
        self.ways.wake();
        true
    }

    /// What the sandbox's misbehaving addresses do after they took a mail.
    async fn misbehave(&self, try_: &Try) {
        let local = try_.handoff.recipients.first().and_then(|to| to.split('@').next()).unwrap_or_default();
        let says = match local.to_ascii_lowercase().as_str() {
            "bounce" => Says::Bounced,
            "complain" => Says::Complained,
            _ => return,
        };
        let fact = Evidence {
            handoff: try_.handoff.number,
            attempt: None,
            at: self.now(),
            source: Source::ProviderEvent,
            says,
            detail: "as this address of the sandbox always does".into(),
            once: Some(format!("sandbox-{}", try_.handoff.number)),
        };
        self.insist(try_.email.team, try_.email.id, Act::Fact(fact)).await;
    }
}

/// What an attempt is about.
struct Try {
    email: Email,
    handoff: Handoff,
    hold: Hold,
    began: Time,
}
