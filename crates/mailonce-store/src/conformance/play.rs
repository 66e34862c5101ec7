//! Playing turns on two ledgers at once, and comparing them.

use mailonce_core::{
    call::CallMark,
    conversation::answer::Answered,
    dispatch::{Act, Hold, Verdict},
    email::{Channel, Email},
    event::Event,
    id::{EmailId, NodeId, TeamId},
    key::KeyHash,
    limits,
    message::Filed,
    port::store::{
        Accept, AcceptBatch, Acted, Backlog, BatchWish, Bound, Change, EmailDetail, EmailQuery, KeyChange, KeyView,
        LeaseWish, Leased, NewDue, Once, Operation, Orphans, Recovered, Resend, Suppressed, SuppressedCall,
        SuppressedReason, Swept, TransportAccount, Wish,
    },
    time::Time,
    ttl::Ttl,
};
use std::fmt::Debug;
use uuid::Uuid;

use super::{
    HOUR, Ledger, OTHER, SANDBOX, T0, TEAM, all_at_once,
    budgets::charge,
    chat::{self, Parlour, Talk, Told},
    deed::{Deed, REMOTE, lease_wish, node, resolve},
    events, keyless,
    mailroom::{self, Mail, Mailroom, Said},
    make_teams, next_id, next_version, open, pages,
    rumour::{self, Gossip, Tale, Word},
    turn::{Call, Name, Turn, Verb},
    work::{Job, job},
};

/// A call in full, the same for both ledgers.
#[derive(Clone, Debug)]
enum Request {
    Accept(Wish),
    Together(Vec<Wish>),
    Batch(BatchWish),
    Cancel(TeamId, EmailId, Option<Operation>),
    Reschedule(TeamId, EmailId, NewDue),
    Resend(Wish, Option<Operation>),
    Capture(usize),
    Note(Suppressed),
    Extend(TeamId, KeyHash, Ttl),
    Forget(TeamId, KeyHash),
    Look(TeamId, KeyHash),
    List(TeamId, EmailQuery),
    Sweep,
    Lease(LeaseWish),
    Recover(NodeId, usize),
    Act(TeamId, EmailId, Act, Option<Operation>),
    Mail(Mail),
    Talk(Talk),
    Tale(Tale),
    Nothing,
}

/// What a ledger said.
#[derive(Debug, PartialEq)]
enum Answer {
    Accept(Accept),
    Together(Vec<Accept>),
    Batch(AcceptBatch),
    Cancel(Once<Change>),
    Reschedule(Change),
    Resend(Once<Resend>),
    Capture(usize, Option<Time>),
    Key(KeyChange),
    Look(Box<(Option<Bound>, Option<KeyView>)>),
    List(Vec<Email>),
    Sweep(Swept),
    Lease(Vec<Leased>),
    Recover(Recovered),
    Act(Once<Acted>),
    Mail(Said),
    Talk(Told),
    Tale(Word),
    Done,
}

async fn ask(store: &Ledger, request: Request, now: Time) -> Answer {
    match request {
        Request::Accept(wish) => Answer::Accept(store.accept(wish, now).await.unwrap()),
        Request::Together(wishes) => Answer::Together(accept_together(store, wishes, now).await),
        Request::Batch(batch) => Answer::Batch(store.accept_batch(batch, now).await.unwrap()),
        Request::Cancel(team, id, call) => Answer::Cancel(store.cancel(team, id, call, now).await.unwrap()),
        Request::Reschedule(team, id, new) => Answer::Reschedule(store.reschedule(team, id, new, now).await.unwrap()),
        Request::Resend(wish, call) => Answer::Resend(store.resend(wish, call, now).await.unwrap()),
        Request::Capture(max) => {
            let taken = store.capture(SANDBOX, max, Some(now), now).await.unwrap();
            Answer::Capture(taken, store.next_due(SANDBOX).await.unwrap())
        }
        Request::Note(note) => {
            store.note_suppressed(vec![note], now).await.unwrap();
            Answer::Done
        }
        Request::Extend(team, key, ttl) => Answer::Key(store.extend_key(team, key, ttl, now).await.unwrap()),
        Request::Forget(team, key) => Answer::Key(store.forget_key(team, key, now).await.unwrap()),
        Request::Look(team, key) => {
            let bound = store.bound(team, key, now).await.unwrap();
            Answer::Look(Box::new((bound, store.key(team, key, now).await.unwrap())))
        }
        Request::List(team, query) => Answer::List(pages(store, team, query).await),
        Request::Sweep => Answer::Sweep(store.sweep(1_000, now).await.unwrap()),
        Request::Lease(wish) => Answer::Lease(store.lease(wish, now).await.unwrap()),
        Request::Recover(node, max) => Answer::Recover(store.recover(node, max, now).await.unwrap()),
        Request::Act(team, id, act, call) => Answer::Act(store.act(team, id, act, call, now).await.unwrap()),
        Request::Mail(mail) => Answer::Mail(Box::pin(mailroom::ask(store, mail, now)).await),
        Request::Talk(talk) => Answer::Talk(Box::pin(chat::ask(store, talk, now)).await),
        Request::Tale(tale) => Answer::Tale(Box::pin(rumour::ask(store, tale, now)).await),
        Request::Nothing => Answer::Done,
    }
}

/// Two ledgers, one time.
pub(super) struct World {
    /// Right by definition.
    model: Ledger,
    engine: Ledger,
    now: Time,
    /// Every email that was accepted, in order.
    known: Vec<EmailId>,
    /// Every lease that was given, in order.
    jobs: Vec<(TeamId, Job)>,
    mailroom: Mailroom,
    parlour: Parlour,
    gossip: Gossip,
}

impl World {
    pub(super) fn new(engine: Ledger) -> Self {
        let model = open::memory().store;
        Self {
            model,
            engine,
            now: T0,
            known: Vec::new(),
            jobs: Vec::new(),
            mailroom: Mailroom::default(),
            parlour: Parlour::default(),
            gossip: Gossip::default(),
        }
    }

    /// Makes the teams in both ledgers.
    pub(super) async fn begin(&self) {
        make_teams(&self.model).await;
        make_teams(&self.engine).await;
    }

    /// Plays one turn. Says what differs.
    pub(super) async fn play(&mut self, turn: &Turn) -> Result<(), String> {
        let request = self.request(turn).await;
        let (wanted, answer) = match request.clone() {
            Request::Together(wishes) => self.ask_together(turn.team(), wishes).await,
            request => {
                let wanted = Box::pin(ask(&self.model, request.clone(), self.now)).await;
                (wanted, Box::pin(ask(&self.engine, request, self.now)).await)
            }
        };
        same("answer", &wanted, &answer)?;
        self.learn(&wanted);
        self.learn_work(&request, &wanted);
        if let (Request::Mail(mail), Answer::Mail(said)) = (&request, &wanted) {
            self.mailroom.learn(mail, said);
        }
        if let Answer::Mail(Said::File(Filed::New(message, _))) = &wanted {
            self.parlour.learn(message);
        }
        if let Answer::Tale(word) = &wanted {
            self.gossip.learn(word);
        }
        Ok(())
    }

    /// Has the engine accept wishes at the same moment, and the model in the order of the engine's events. A wish whose
    /// key was bound writes no event and changes nothing, so that the model gets it last.
    async fn ask_together(&self, team: TeamId, wishes: Vec<Wish>) -> (Answer, Answer) {
        let found = accept_together(&self.engine, wishes.clone(), self.now).await;
        let order: Vec<Uuid> = events(&self.engine, team).await.iter().map(|event| event.event.about).collect();
        let mut places: Vec<usize> = (0..wishes.len()).collect();
        places.sort_by_key(|place| order.iter().position(|about| *about == wishes[*place].id.0).unwrap_or(usize::MAX));
        let mut wanted = found.clone();
        for place in places {
            wanted[place] = self.model.accept(wishes[place].clone(), self.now).await.unwrap();
        }
        (Answer::Together(wanted), Answer::Together(found))
    }

    /// Compares everything there is to see.
    pub(super) async fn compare(&self) -> Result<(), String> {
        for team in [TEAM, OTHER] {
            let wanted = view(&self.model, team, self.now).await;
            let found = view(&self.engine, team, self.now).await;
            same("emails", &wanted.emails, &found.emails)?;
            same("events", &wanted.events, &found.events)?;
            same("remote ids", &wanted.remote, &found.remote)?;
            for (held, other) in wanted.held.iter().zip(&found.held) {
                same("bytes", held, other)?;
            }
            for (key, other) in wanted.keys.iter().zip(&found.keys) {
                same("key", key, other)?;
            }
            let (wanted, found) =
                (&self.mailroom.view(&self.model, team).await, &self.mailroom.view(&self.engine, team).await);
            for (sight, other) in wanted.iter().zip(found) {
                same("mail", sight, other)?;
            }
            same("how much mail", &wanted.len(), &found.len())?;
            let (wanted, found) =
                (self.parlour.view(&self.model, team).await, self.parlour.view(&self.engine, team).await);
            for (scene, other) in wanted.iter().zip(&found) {
                same("conversations", scene, other)?;
            }
            same("how many conversations", &wanted.len(), &found.len())?;
            let gossip = &self.gossip;
            let (wanted, found) =
                (&gossip.view(&self.model, team, self.now).await, &gossip.view(&self.engine, team, self.now).await);
            for (sight, other) in wanted.iter().zip(found) {
                same("what is told", sight, other)?;
            }
            same("how much is told", &wanted.len(), &found.len())?;
        }
        let (wanted, found) = (waiting(&self.model, self.now).await, waiting(&self.engine, self.now).await);
        same("backlog, doubts and what is stuck", &wanted, &found)
    }

    fn learn(&mut self, answer: &Answer) {
        let mut learn = |answer: &Accept| {
            if let Accept::First(email) = answer {
                self.known.push(email.id);
            }
        };
        match answer {
            Answer::Accept(answer) => learn(answer),
            Answer::Together(items) | Answer::Batch(AcceptBatch::Items(items)) => items.iter().for_each(learn),
            Answer::Resend(Once::Done(Resend::First(email)))
            | Answer::Talk(Told::Answer(Answered::First(email, _))) => self.known.push(email.id),
            _ => {}
        }
    }

    /// Notes which worker holds what, and under which attempt.
    fn learn_work(&mut self, request: &Request, answer: &Answer) {
        if let Answer::Lease(leased) = answer {
            self.jobs.extend(leased.iter().map(|leased| (leased.email.team, job(leased))));
        }
        let Answer::Act(Once::Done(Acted::Email(Verdict::Done, email))) = answer else { return };
        let Request::Act(team, id, act, _) = request else { return };
        match act {
            Act::Mark { hold, .. } => {
                let attempt = email.handoffs.get(usize::from(hold.number)).map(|handoff| handoff.attempts);
                let same = |(_, job): &&mut (TeamId, Job)| {
                    job.id == *id && (job.hold.number, job.hold.fence) == (hold.number, hold.fence)
                };
                self.jobs.iter_mut().filter(same).for_each(|(_, job)| job.attempt = attempt);
            }
            Act::Repeat { number, account, .. } => {
                let Some(handoff) = email.handoffs.get(usize::from(*number)) else { return };
                let (transport, account) = (handoff.transport.clone(), account.clone());
                let hold = Hold { number: *number, fence: handoff.fence, transport, account };
                self.jobs.push((*team, Job { id: *id, hold, attempt: None }));
            }
            _ => {}
        }
    }

    /// An email by its place, from the latest.
    fn named(&self, place: u8) -> EmailId {
        let place = usize::from(place) % self.known.len().max(1);
        self.known.iter().rev().nth(place).copied().unwrap_or_else(|| EmailId(next_id(self.now)))
    }

    fn operation(&self, team: TeamId, call: Call) -> Operation {
        let Call(name, asks) = call;
        let key = name.hash(team);
        Operation {
            team,
            key,
            digest: [asks; 32],
            answer: vec![asks; 3],
            expires_at: self.now.plus(limits::OPERATION_MS),
        }
    }

    async fn request(&mut self, turn: &Turn) -> Request {
        let (team, now) = (turn.team(), self.now);
        let operation = |call: &Option<Call>| call.map(|call| self.operation(team, call));
        match &turn.verb {
            Verb::Accept(sketch) => Request::Accept(sketch.draft(team, now).wish(now)),
            Verb::Together(sketches) => {
                Request::Together(sketches.iter().map(|sketch| sketch.draft(team, now).wish(now)).collect())
            }
            Verb::Batch(call, sketches) => Request::Batch(BatchWish {
                team,
                operation: operation(call),
                items: sketches.iter().map(|sketch| sketch.draft(team, now).wish(now)).collect(),
                strict: sketches.len().is_multiple_of(2),
            }),
            Verb::Cancel(place, call) => Request::Cancel(team, self.named(*place), operation(call)),
            Verb::Reschedule(place, ms) => {
                let due = now.plus(*ms);
                // Some count in the budget that the sketches count in.
                let charge = charge(1, 2, 8, HOUR, due.max(now));
                let charges = if place.is_multiple_of(2) { vec![charge] } else { Vec::new() };
                Request::Reschedule(team, self.named(*place), NewDue { due, charges })
            }
            Verb::Resend(place, call) => {
                let operation = operation(call);
                Request::Resend(self.next_version(team, self.named(*place)).await, operation)
            }
            Verb::Capture(max) => Request::Capture(*max),
            Verb::Note(place, count) => Request::Note(note(team, self.named(*place), *count, now)),
            Verb::Extend(name, ms) => Request::Extend(team, name.hash(team), Ttl(*ms)),
            Verb::Forget(name) => Request::Forget(team, name.hash(team)),
            Verb::Look(name) => Request::Look(team, name.hash(team)),
            Verb::List(state, to, limit) => {
                let to = to.map(ToOwned::to_owned);
                Request::List(team, EmailQuery { state: *state, to, limit: *limit, ..EmailQuery::default() })
            }
            Verb::Sweep => Request::Sweep,
            Verb::Deed(deed) => self.deed(team, deed).await,
            Verb::Errand(errand) => {
                let operation = |call| self.operation(team, call);
                Request::Mail(self.mailroom.mail(team, errand, operation, now))
            }
            Verb::Chat(chat) => {
                let operation = |call| self.operation(team, call);
                Request::Talk(self.parlour.talk(team, chat, operation, now))
            }
            Verb::Rumour(rumour) => {
                let operation = |call| self.operation(team, call);
                Request::Tale(self.gossip.tale(team, rumour, operation, now))
            }
            Verb::Later(ms) => {
                self.now = now.plus(*ms);
                Request::Nothing
            }
        }
    }

    async fn deed(&self, team: TeamId, deed: &Deed) -> Request {
        match deed {
            Deed::Lease { way, node, max, but, scheduled } => {
                Request::Lease(lease_wish(way, *node, *max, *but, *scheduled))
            }
            Deed::Recover { node: n, max } => Request::Recover(node(*n), *max),
            Deed::Work(place, labour) => {
                let place = usize::from(*place) % self.jobs.len().max(1);
                let Some((team, job)) = self.jobs.iter().rev().nth(place) else { return Request::Nothing };
                Request::Act(*team, job.id, labour.act(job, self.now), None)
            }
            Deed::Learn(place, number, lesson) => {
                Request::Act(team, self.named(*place), lesson.act(*number, self.now), None)
            }
            Deed::Resolve { email, number, choice, seen, call } => {
                let id = self.named(*email);
                let found = self.model.email(team, id).await.unwrap();
                let act = resolve(found.as_ref(), *number, *choice, *seen);
                Request::Act(team, id, act, call.map(|call| self.operation(team, call)))
            }
        }
    }

    /// A wish for the version after this email, whoever owns it.
    async fn next_version(&self, team: TeamId, id: EmailId) -> Wish {
        let mine = self.model.email(TEAM, id).await.unwrap();
        let previous = mine.or(self.model.email(OTHER, id).await.unwrap());
        let draft = previous.as_ref().map_or_else(keyless, next_version);
        let mut wish = draft.team(team).wish(self.now);
        wish.head.resend_of = Some(id);
        wish
    }
}

/// What wishes become that are accepted at the same moment, each in its place.
async fn accept_together(store: &Ledger, wishes: Vec<Wish>, now: Time) -> Vec<Accept> {
    let work = wishes.into_iter().map(|wish| (store.clone(), wish));
    all_at_once(work.map(|(store, wish)| async move { store.accept(wish, now).await.unwrap() })).await
}

fn note(team: TeamId, email: EmailId, count: u8, now: Time) -> Suppressed {
    let call = |i: u8| SuppressedCall {
        at: now.plus(i.into()),
        caller: None,
        channel: Channel::Http,
        reason: if i.is_multiple_of(2) { SuppressedReason::KeyReplay } else { SuppressedReason::Mismatch },
        call: CallMark::of(i.is_multiple_of(3).then(|| format!("call {i}")), None),
    };
    let kept = count.saturating_sub(limits::SUPPRESSED_KEPT as u8);
    Suppressed { team, email, count: count.into(), latest: (kept..count).map(call).collect() }
}

/// All that a team can see.
struct View {
    emails: Vec<EmailDetail>,
    events: Vec<Event>,
    keys: Vec<(KeyHash, Option<KeyView>)>,
    /// The first handoff of each email, with its bytes.
    held: Vec<Option<Leased>>,
    remote: Vec<Option<(EmailId, u16)>>,
}

/// What waits, what is due to be looked at, and what is stuck.
async fn waiting(store: &Ledger, now: Time) -> Waiting {
    // The same name at another account, so that both columns decide.
    let has = |name: &str, account: &str| TransportAccount { name: name.into(), account: account.into() };
    let mine = [has(SANDBOX, "A"), has("relay", "B")];
    Waiting {
        backlog: store.backlog().await.unwrap(),
        doubts: store.doubts(&mine, 1_000, now).await.unwrap(),
        stuck: store.stuck(None, 1_000).await.unwrap(),
        orphans: store.orphans(&["relay".into()], now).await.unwrap(),
        open: store.open_at(SANDBOX, None, 1_000).await.unwrap(),
    }
}

/// See [`waiting`].
#[derive(Debug, PartialEq)]
struct Waiting {
    backlog: Backlog,
    doubts: Vec<(Email, u16)>,
    stuck: Vec<Email>,
    orphans: Vec<Orphans>,
    open: Vec<(TeamId, EmailId)>,
}

async fn view(store: &Ledger, team: TeamId, now: Time) -> View {
    let (mut emails, mut held, mut remote) = (Vec::new(), Vec::new(), Vec::new());
    for email in pages(store, team, EmailQuery { limit: 40, ..EmailQuery::default() }).await {
        emails.push(store.email_detail(team, email.id).await.unwrap().unwrap());
        held.push(store.leased(team, email.id, 0).await.unwrap());
    }
    for name in REMOTE {
        remote.push(store.by_remote_id(team, name).await.unwrap());
    }
    let named = emails.iter().filter_map(|detail| detail.email.head.key.as_ref()).map(|name| name.hash(team));
    let mut hashes: Vec<KeyHash> = named.chain(Name::all().into_iter().map(|name| name.hash(team))).collect();
    hashes.sort_unstable();
    hashes.dedup();
    let mut keys = Vec::new();
    for key in hashes {
        keys.push((key, store.key(team, key, now).await.unwrap()));
    }
    View { emails, events: events(store, team).await, keys, held, remote }
}

fn same<T: PartialEq + Debug>(what: &str, wanted: &T, found: &T) -> Result<(), String> {
    if wanted == found {
        return Ok(());
    }
    Err(format!("{what}\n wanted {wanted:?}\n  found {found:?}"))
}
