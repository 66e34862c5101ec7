//! What may happen next. Nothing waits for its turn: whatever could happen at any time may happen now.

use mailonce_core::{
    dispatch::Choice,
    doubt::{self, Next},
    email::OnUnknown,
    handoff::{Says, State},
    port::transport::Meaning,
};

use super::{
    size::{Class, Flaw, Size, at},
    world::{Worker, World},
};

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// An idle worker leases a handoff.
    Lease(u8),
    /// A worker connects and looks at the window.
    Connect(u8),
    /// A worker is turned away before the point of no return.
    TurnedAway(u8, Meaning),
    /// A worker commits its marker.
    Mark(u8),
    /// A worker's marker is committed or not, and it cannot learn which.
    MarkUnsure(u8, bool),
    /// A worker lets the bytes go.
    Wire(u8),
    /// The next hop decides about an attempt of a handoff.
    Answer(u8, u8, Meaning),
    /// A worker waits no longer.
    LoseReply(u8),
    /// A worker writes down what it knows. `true`: it does not learn that it was written, and will write it again.
    Settle(u8, bool),
    /// A worker dies.
    Crash(u8),
    /// What a process held is taken from it, whether it is dead or only slow.
    Recover(u8),
    /// The caller takes the email back.
    Cancel,
    /// The attempts in doubt are repeated by an idle worker.
    Repeat(u8),
    /// The next hop is asked, and finds the mail or not.
    LookUp(u8, bool),
    /// The email's own policy sends it again.
    Policy(u8),
    /// The next hop tells what became of a mail.
    Event(u8, Says),
    /// A person decides.
    Resolve(u8, Choice),
    /// Time passes.
    Tick,
    /// The ledger forgets its last marker. Only a flaw allows it.
    Forget(u8),
}

/// All that may happen in a world.
pub fn moves(size: Size, world: &World, all: &mut Vec<Move>) {
    for (number, worker) in (0..).zip(&world.workers) {
        of_worker(size, number, *worker, all);
    }
    for number in 0..size.handoffs {
        of_handoff(size, world, number, all);
    }
    all.push(Move::Cancel);
    if world.now < size.ticks() {
        all.push(Move::Tick);
    }
}

fn of_worker(size: Size, number: u8, worker: Worker, all: &mut Vec<Move>) {
    match worker {
        Worker::Idle => return,
        Worker::Leased { .. } => {
            all.push(Move::Connect(number));
            all.extend([Meaning::Refused, Meaning::Fault].map(|meaning| Move::TurnedAway(number, meaning)));
        }
        Worker::Ready { wired, .. } => {
            if size.flaw == Some(Flaw::WireFirst) && !wired {
                all.push(Move::Wire(number));
            } else {
                all.push(Move::Mark(number));
                all.extend([true, false].map(|durable| Move::MarkUnsure(number, durable)));
            }
        }
        Worker::Marked { .. } => all.push(Move::Wire(number)),
        Worker::Waiting { .. } => all.push(Move::LoseReply(number)),
        Worker::Told { .. } => all.extend([true, false].map(|again| Move::Settle(number, again))),
    }
    all.push(Move::Crash(number));
}

fn of_handoff(size: Size, world: &World, number: u8, all: &mut Vec<Move>) {
    let place = usize::from(number);
    let (row, truth) = (&world.rows[place], &world.truth[place]);
    let is_free = world.workers.contains(&Worker::Idle) && row.fence < size.leases;
    if is_free && matches!(row.state, State::Queued | State::Scheduled) {
        all.push(Move::Lease(number));
    }
    if row.held {
        all.push(Move::Recover(number));
    }
    for attempt in truth.under_way() {
        all.extend(answers(size.class).iter().map(|meaning| Move::Answer(number, attempt, *meaning)));
    }
    if truth.taken > 0 {
        all.push(Move::Event(number, Says::Accepted));
        let news: &[Says] = if size.news { &[Says::Delivered, Says::Bounced, Says::Complained] } else { &[] };
        all.extend(news.iter().map(|says| Move::Event(number, *says)));
    }
    if row.state == State::Unknown {
        all.extend(Choice::ALL.iter().map(|choice| Move::Resolve(number, *choice)));
        // The core would wait ten minutes. No law may depend on that.
        if size.on_unknown == OnUnknown::Resend {
            all.push(Move::Policy(number));
        }
        let next = doubt::next(&row.unpack(place), OnUnknown::Hold, size.way(), at(world.now));
        if next == Next::Repeat && is_free {
            all.push(Move::Repeat(number));
        }
        if next == Next::LookUp {
            all.push(Move::LookUp(number, false));
            if truth.taken > 0 {
                all.push(Move::LookUp(number, true));
            }
        }
    }
    if size.flaw == Some(Flaw::LostMarker) && row.state == State::Sending {
        all.push(Move::Forget(number));
    }
}

/// What a next hop may say to an attempt. It never lies about having a mail, or not having it.
fn answers(class: Class) -> &'static [Meaning] {
    match class {
        Class::Keyed => {
            &[Meaning::Accepted, Meaning::Deferred, Meaning::Refused, Meaning::Concurrent, Meaning::Mismatch]
        }
        Class::LookUp | Class::Keyless => &[Meaning::Accepted, Meaning::Deferred, Meaning::Refused],
    }
}
