//! What comes of a move. Whatever the ledger decides is decided by the core.

use mailonce_core::{
    dispatch::{self, Act, Choice, Plan, Verdict},
    doubt,
    email::Email,
    handoff::{Evidence, Says, Source, State, Step},
    port::transport::{Meaning, Phase, Reply},
};
use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
};

use super::{
    moves::Move,
    routes::{Route, Walked},
    row::{HOLDER, Row, bit, email},
    size::{ACCOUNT, Class, Flaw, SLACK_TICKS, Size, at},
    world::{Broken, Hold, Worker, World, is_gone},
};

/// How long a handoff is tried: twice, so that the last attempt is within reach.
const PLAN: Plan = Plan { max_attempts: 2, max_age_ms: i64::MAX, chance: 0 };

/// What plays the moves of a world.
#[derive(Debug)]
pub struct Player {
    /// The world's size.
    pub size: Size,
    /// Routes that were walked.
    pub walked: Walked,
    email: Email,
    legal: Legal,
}

/// Which moves are legal by which steps, as the core said when it was asked first.
#[derive(Debug, Default)]
struct Legal(RwLock<HashMap<(&'static [Step], State, State), bool>>);

impl Legal {
    fn allows(&self, steps: &'static [Step], from: State, to: State) -> bool {
        let key = (steps, from, to);
        if let Some(known) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return *known;
        }
        let allowed = from.leads_to(to, steps);
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key, allowed);
        allowed
    }
}

impl Player {
    /// A player of worlds of a size.
    pub fn new(size: Size) -> Option<Self> {
        Some(Self { size, walked: Walked::new(), email: email(size)?, legal: Legal::default() })
    }

    /// The world after a move.
    pub fn play(&self, before: &World, what: Move) -> World {
        let mut world = before.clone();
        match what {
            Move::Lease(number) => self.lease(&mut world, number),
            Move::Connect(worker) => self.connect(&mut world, worker),
            Move::TurnedAway(worker, meaning) => self.turned_away(&mut world, worker, meaning),
            Move::Mark(worker) => self.mark(&mut world, worker),
            Move::MarkUnsure(worker, durable) => self.mark_unsure(&mut world, worker, durable),
            Move::Wire(worker) => self.wire(&mut world, worker),
            Move::Answer(number, attempt, meaning) => self.answer(&mut world, number, attempt, meaning),
            Move::LoseReply(worker) => lose_reply(&mut world, worker),
            Move::Settle(worker, again) => self.settle(&mut world, worker, again),
            Move::Crash(worker) => world.workers[usize::from(worker)] = Worker::Idle,
            Move::Recover(number) => self.recover(&mut world, number),
            Move::Cancel => self.cancel(&mut world),
            Move::Repeat(number) => self.repeat(&mut world, number),
            Move::LookUp(number, found) => self.look_up(&mut world, number, found),
            Move::Policy(number) => self.policy(&mut world, number),
            Move::Event(number, says) => self.event(&mut world, number, says),
            Move::Resolve(number, choice) => self.resolve(&mut world, number, choice),
            Move::Tick => world.tick(),
            Move::Forget(number) => forget(&mut world, number),
        }
        world.settle_down();
        world
    }

    fn email_of(&self, world: &World) -> Email {
        let handoffs = world.rows.iter().enumerate().map(|(number, row)| row.unpack(number)).collect();
        Email { handoffs, ..self.email.clone() }
    }

    /// Writes what became of the email, and looks whether the way there was legal.
    fn save(&self, world: &mut World, email: &Email, steps: &'static [Step]) {
        for (row, handoff) in world.rows.iter_mut().zip(&email.handoffs) {
            let after = Row::pack(handoff);
            let leased = u8::from(after.fence != row.fence && after.state == State::Leased);
            if row.state != after.state && !self.legal.allows(steps, row.state, after.state) {
                world.broken = Some(Broken::Step);
            }
            if after.fence != row.fence + leased {
                world.broken = Some(Broken::Fence);
            }
            *row = after;
        }
    }

    fn act(&self, world: &mut World, act: &Act) -> Verdict {
        let mut email = self.email_of(world);
        let effects = email.act(act, at(world.now));
        self.save(world, &email, act.steps());
        effects.verdict
    }

    fn lease(&self, world: &mut World, number: u8) {
        let mut email = self.email_of(world);
        if email.lease(u16::from(number), HOLDER, at(world.now)) {
            self.save(world, &email, &[Step::Due, Step::Lease]);
            employ(world, number);
        }
    }

    fn repeat(&self, world: &mut World, number: u8) {
        let act = Act::Repeat { number: number.into(), holder: HOLDER, account: ACCOUNT.into() };
        if self.act(world, &act) == Verdict::Done {
            employ(world, number);
        }
    }

    fn connect(&self, world: &mut World, number: u8) {
        let worker = &mut world.workers[usize::from(number)];
        let Worker::Leased { hold, repeats } = *worker else { return };
        if let Some(since) = repeats {
            let mut seen = world.rows[usize::from(hold.handoff)];
            seen.doubt_since = Some(since);
            let seen = seen.unpack(usize::from(hold.handoff));
            if !doubt::window_is_open(&seen, self.size.way(), at(world.now)) {
                *worker = Worker::Idle;
                self.walked.count(Route::WindowClosed);
                let due = at(world.now);
                self.act(world, &Act::Park { hold: held(hold), due, why: String::new() });
                return;
            }
        }
        *worker = Worker::Ready { hold, since: world.now, wired: false };
    }

    fn turned_away(&self, world: &mut World, number: u8, meaning: Meaning) {
        let worker = &mut world.workers[usize::from(number)];
        if let Worker::Leased { hold, .. } = *worker {
            *worker = Worker::Told { hold, attempt: None, meaning };
        }
    }

    fn mark(&self, world: &mut World, number: u8) {
        let Worker::Ready { hold, since, wired } = world.workers[usize::from(number)] else { return };
        let hold = Hold { began: world.now, ..hold };
        let verdict = self.act(world, &Act::Mark { hold: held(hold), wire: None });
        let row = world.rows[usize::from(hold.handoff)];
        let attempt = row.attempts;
        world.workers[usize::from(number)] = match verdict {
            Verdict::Done if wired => Worker::Waiting { hold, attempt },
            Verdict::Done => Worker::Marked { hold, since, attempt },
            _ => {
                let cancelled = row.state == State::Cancelled;
                self.walked.count(if cancelled { Route::MarkerAfterCancel } else { Route::MarkerAfterTakeOver });
                Worker::Idle
            }
        };
    }

    fn mark_unsure(&self, world: &mut World, number: u8, durable: bool) {
        let Worker::Ready { hold, .. } = world.workers[usize::from(number)] else { return };
        if durable {
            self.act(world, &Act::Mark { hold: held(hold), wire: None });
        }
        world.workers[usize::from(number)] = Worker::Told { hold, attempt: None, meaning: Meaning::Deferred };
    }

    fn wire(&self, world: &mut World, number: u8) {
        let now = world.now;
        match world.workers[usize::from(number)] {
            Worker::Ready { hold, since, .. } => {
                let place = usize::from(hold.handoff);
                world.truth[place].write(world.rows[place].attempts + 1, since);
                world.workers[usize::from(number)] = Worker::Ready { hold, since, wired: true };
            }
            Worker::Marked { hold, since, attempt } => {
                let careless = self.size.flaw == Some(Flaw::OldConnection);
                let old = now - since > SLACK_TICKS && !careless;
                world.workers[usize::from(number)] = if old {
                    self.walked.count(Route::OldConnection);
                    Worker::Told { hold, attempt: Some(attempt), meaning: Meaning::Deferred }
                } else {
                    let since = if careless { now } else { since };
                    world.truth[usize::from(hold.handoff)].write(attempt, since);
                    Worker::Waiting { hold, attempt }
                };
            }
            _ => {}
        }
    }

    fn answer(&self, world: &mut World, number: u8, attempt: u8, meaning: Meaning) {
        let truth = &mut world.truth[usize::from(number)];
        truth.letters[usize::from(attempt - 1)] = None;
        if meaning == Meaning::Accepted {
            truth.take(self.size.class == Class::Keyed, world.now);
        }
        for worker in &mut world.workers {
            match *worker {
                Worker::Waiting { hold, attempt: its } if hold.handoff == number && its == attempt => {
                    *worker = Worker::Told { hold, attempt: Some(attempt), meaning };
                }
                _ => {}
            }
        }
    }

    fn settle(&self, world: &mut World, number: u8, again: bool) {
        let Worker::Told { hold, attempt, meaning } = world.workers[usize::from(number)] else { return };
        let place = usize::from(hold.handoff);
        let before = world.rows[place];
        let mut hold_now = held(hold);
        if self.size.flaw == Some(Flaw::FenceOfNow) {
            hold_now.fence = before.fence.into();
        }
        let act = Act::Settle {
            hold: hold_now,
            attempt: attempt.map(u32::from),
            began: at(hold.began),
            reply: Reply::new(meaning, Phase::Final, None, ""),
            plan: PLAN,
        };
        let verdict = self.act(world, &act);
        let after = world.rows[place];
        let settles_all = self.size.flaw == Some(Flaw::RefusalSettlesAll) && verdict == Verdict::Done;
        if settles_all && meaning == Meaning::Refused && before.is_repeat() {
            world.rows[place] = Row { state: State::Failed, doubts: 0, ..after };
        }
        self.tell_settled((before, after), attempt.is_some(), meaning, verdict);
        if again {
            self.walked.count(Route::SettledTwice);
        } else {
            world.workers[usize::from(number)] = Worker::Idle;
        }
    }

    /// Counts the route of an answer that was written down.
    fn tell_settled(&self, (before, after): (Row, Row), marked: bool, meaning: Meaning, verdict: Verdict) {
        let stale = verdict == Verdict::Stale;
        let route = match (meaning, after.state) {
            (Meaning::Accepted, State::Sent) if stale && before.state != State::Sent => Route::LateAcceptance,
            (Meaning::Accepted, State::Sent) if before.is_repeat() => Route::RepeatSettles,
            (Meaning::Refused | Meaning::Deferred, State::Queued) if stale && before.state == State::Unknown => {
                Route::LateRefusal
            }
            _ if stale => return,
            (Meaning::Refused, State::Unknown) if before.is_repeat() => Route::RepeatRefused,
            (Meaning::Refused, State::Failed) if marked => Route::RefusedAfter,
            (Meaning::Refused, State::Failed) => Route::RefusedBefore,
            (Meaning::Deferred, State::Queued) if marked => Route::Deferred,
            (Meaning::Deferred, State::Queued) if before.state == State::Sending => Route::MarkerUnsure,
            (Meaning::Deferred, State::Queued) => Route::MarkerNever,
            (Meaning::Deferred, State::Failed) => Route::GivenUp,
            (Meaning::Concurrent, State::Unknown) => Route::Concurrent,
            (Meaning::Mismatch, State::Unknown) => Route::Puzzle,
            _ => return,
        };
        self.walked.count(route);
    }

    fn recover(&self, world: &mut World, number: u8) {
        let place = usize::from(number);
        let before = world.rows[place];
        if self.size.flaw == Some(Flaw::SendingIsRetried) && before.state == State::Sending {
            world.rows[place] = Row { state: State::Queued, held: false, ..before };
            return;
        }
        self.act(world, &Act::Crash { number: number.into(), holder: HOLDER });
        self.walked.count(match (before.state, world.rows[place].state) {
            (State::Leased, State::Queued) => Route::LeaseLapsed,
            (State::Leased, State::Unknown) => Route::RepeatLapses,
            (State::Leased, _) => Route::PutAside,
            _ => Route::CrashAfterMarker,
        });
    }

    fn cancel(&self, world: &mut World) {
        let mut email = self.email_of(world);
        if email.cancel(at(world.now)).is_ok() {
            self.save(world, &email, &[Step::Cancel]);
            self.walked.count(Route::Cancelled);
        } else {
            self.walked.count(Route::CancelTooLate);
        }
    }

    fn look_up(&self, world: &mut World, number: u8, found: bool) {
        let place = usize::from(number);
        if found {
            self.walked.count(Route::LookUpFinds);
            self.act(world, &Act::Fact(fact(number, Source::LookUp, Says::Accepted)));
        } else if self.size.flaw == Some(Flaw::NegativeIsProof) {
            world.rows[place] = Row { state: State::Queued, doubts: 0, doubt_since: None, ..world.rows[place] };
        } else {
            if world.truth[place].taken > 0 {
                self.walked.count(Route::LookUpMisses);
            }
            let evidence = Some(fact(number, Source::LookUp, Says::NotFound));
            self.act(world, &Act::Wait { number: number.into(), evidence, next: None });
        }
    }

    fn policy(&self, world: &mut World, number: u8) {
        if self.act(world, &Act::ResendByPolicy { number: number.into() }) == Verdict::Done {
            world.truth[usize::from(number)].resends += 1;
            self.walked.count(Route::PolicyResends);
        }
    }

    fn event(&self, world: &mut World, number: u8, says: Says) {
        let place = usize::from(number);
        let before = world.rows[place].state;
        self.act(world, &Act::Fact(fact(number, Source::ProviderEvent, says)));
        match before {
            State::Unknown => self.walked.count(Route::EventSettles),
            State::Sending => self.walked.count(Route::EventOvertakes),
            State::Abandoned => self.walked.count(Route::EventCorrects),
            _ => {}
        }
        if !is_gone(world.rows[place].state) {
            world.broken = Some(Broken::Step);
        }
    }

    fn resolve(&self, world: &mut World, number: u8, choice: Choice) {
        let act = Act::Resolve { choice, rev: self.email.rev, handoff: Some(number.into()), reason: String::new() };
        if self.act(world, &act) != Verdict::Done {
            return;
        }
        let truth = &mut world.truth[usize::from(number)];
        match choice {
            Choice::Sent => truth.vouched = true,
            Choice::Resend => truth.resends += 1,
            Choice::Abandon => {}
        }
        self.walked.count(match choice {
            Choice::Sent => Route::PersonSent,
            Choice::Resend => Route::PersonResends,
            Choice::Abandon => Route::PersonAbandons,
        });
    }
}

/// An idle worker comes to know that it holds a handoff.
fn employ(world: &mut World, number: u8) {
    let row = world.rows[usize::from(number)];
    let hold = Hold { handoff: number, fence: row.fence, began: world.now };
    let repeats = if row.is_repeat() { row.doubt_since } else { None };
    if let Some(idle) = world.workers.iter_mut().find(|worker| **worker == Worker::Idle) {
        *idle = Worker::Leased { hold, repeats };
    }
}

fn lose_reply(world: &mut World, number: u8) {
    let worker = &mut world.workers[usize::from(number)];
    if let Worker::Waiting { hold, attempt } = *worker {
        *worker = Worker::Told { hold, attempt: Some(attempt), meaning: Meaning::Unknown };
    }
}

fn forget(world: &mut World, number: u8) {
    let row = &mut world.rows[usize::from(number)];
    *row = Row { state: State::Leased, attempts: row.attempts - 1, doubts: row.doubts & !bit(row.attempts), ..*row };
}

fn held(hold: Hold) -> dispatch::Hold {
    dispatch::Hold {
        number: hold.handoff.into(),
        fence: hold.fence.into(),
        transport: String::new(),
        account: ACCOUNT.into(),
    }
}

fn fact(number: u8, source: Source, says: Says) -> Evidence {
    Evidence { handoff: number.into(), attempt: None, at: at(0), source, says, detail: String::new(), once: None }
}
