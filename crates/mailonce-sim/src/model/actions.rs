//! What may happen next. Nothing waits for its turn: whatever could happen at any time may happen now.

use mailonce_core::{
    handoff::{
        EvidenceFinding, HandoffState,
        action::Resolution,
        reply::ReplyMeaning,
        unknown::{self, RecoveryAction},
    },
    outbound::email::OnUnknown,
};

use crate::model::{
    config::{ModelConfig, ModelHopClass, SeededBug, tick_start},
    state::{ModelState, ModelWorker},
};

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelAction {
    /// An idle worker leases a handoff.
    Lease(u8),
    /// A worker connects and looks at the window.
    Connect(u8),
    /// A worker is turned away before the point of no return.
    RejectBeforeMarker(u8, ReplyMeaning),
    /// A worker commits its marker.
    Mark(u8),
    /// A worker's marker is committed or not, and it cannot learn which.
    MarkUnconfirmed(u8, bool),
    /// A worker lets the bytes go.
    SendBytes(u8),
    /// The next hop decides about an attempt of a handoff.
    HopReply(u8, u8, ReplyMeaning),
    /// A worker waits no longer.
    LoseReply(u8),
    /// A worker writes down what it knows. `true`: it does not learn that it was written, and will write it again.
    RecordOutcome(u8, bool),
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
    ResendByPolicy(u8),
    /// The next hop tells what became of a mail.
    ProviderEvent(u8, EvidenceFinding),
    /// A person decides.
    Resolve(u8, Resolution),
    /// Time passes.
    Tick,
    /// The ledger forgets its last marker. Only a flaw allows it.
    LoseMarker(u8),
}

/// All that may happen in a world.
pub fn possible_actions(size: ModelConfig, world: &ModelState, all: &mut Vec<ModelAction>) {
    for (number, worker) in (0..).zip(&world.workers) {
        worker_actions(size, number, *worker, all);
    }
    for number in 0..size.handoffs {
        handoff_actions(size, world, number, all);
    }
    all.push(ModelAction::Cancel);
    if world.now < size.max_ticks() {
        all.push(ModelAction::Tick);
    }
}

fn worker_actions(size: ModelConfig, number: u8, worker: ModelWorker, all: &mut Vec<ModelAction>) {
    match worker {
        ModelWorker::Idle => return,
        ModelWorker::Leased { .. } => {
            all.push(ModelAction::Connect(number));
            all.extend(
                [ReplyMeaning::Refused, ReplyMeaning::Fault]
                    .map(|meaning| ModelAction::RejectBeforeMarker(number, meaning)),
            );
        }
        ModelWorker::Ready { wired, .. } => {
            if size.flaw == Some(SeededBug::WireFirst) && !wired {
                all.push(ModelAction::SendBytes(number));
            } else {
                all.push(ModelAction::Mark(number));
                all.extend([true, false].map(|durable| ModelAction::MarkUnconfirmed(number, durable)));
            }
        }
        ModelWorker::Marked { .. } => all.push(ModelAction::SendBytes(number)),
        ModelWorker::Waiting { .. } => all.push(ModelAction::LoseReply(number)),
        ModelWorker::KnowsOutcome { .. } => {
            all.extend([true, false].map(|again| ModelAction::RecordOutcome(number, again)))
        }
    }
    all.push(ModelAction::Crash(number));
}

fn handoff_actions(size: ModelConfig, world: &ModelState, number: u8, all: &mut Vec<ModelAction>) {
    let index = usize::from(number);
    let (row, truth) = (&world.rows[index], &world.truth[index]);
    let is_free = world.workers.contains(&ModelWorker::Idle) && row.fence < size.leases;
    if is_free && matches!(row.state, HandoffState::Queued | HandoffState::Scheduled) {
        all.push(ModelAction::Lease(number));
    }
    if row.is_leased {
        all.push(ModelAction::Recover(number));
    }
    for attempt in truth.undecided() {
        all.extend(possible_replies(size.class).iter().map(|meaning| ModelAction::HopReply(number, attempt, *meaning)));
    }
    if truth.accepted_mails > 0 {
        all.push(ModelAction::ProviderEvent(number, EvidenceFinding::Accepted));
        let news: &[EvidenceFinding] = if size.news {
            &[EvidenceFinding::Delivered, EvidenceFinding::Bounced, EvidenceFinding::Complained]
        } else {
            &[]
        };
        all.extend(news.iter().map(|says| ModelAction::ProviderEvent(number, *says)));
    }
    if row.state == HandoffState::Unknown {
        all.extend(Resolution::ALL.iter().map(|choice| ModelAction::Resolve(number, *choice)));
        // The core would wait ten minutes. No law may depend on that.
        if size.on_unknown == OnUnknown::Resend {
            all.push(ModelAction::ResendByPolicy(number));
        }
        let next = unknown::next_recovery_action(
            &row.unpack(index),
            OnUnknown::Hold,
            size.recovery_input(),
            tick_start(world.now),
        );
        if next == RecoveryAction::RetryInWindow && is_free {
            all.push(ModelAction::Repeat(number));
        }
        if next == RecoveryAction::LookUp {
            all.push(ModelAction::LookUp(number, false));
            if truth.accepted_mails > 0 {
                all.push(ModelAction::LookUp(number, true));
            }
        }
    }
    if size.flaw == Some(SeededBug::LostMarker) && row.state == HandoffState::Sending {
        all.push(ModelAction::LoseMarker(number));
    }
}

/// What a next hop may say to an attempt. It never lies about having a mail, or not having it.
fn possible_replies(class: ModelHopClass) -> &'static [ReplyMeaning] {
    match class {
        ModelHopClass::Keyed => &[
            ReplyMeaning::Accepted,
            ReplyMeaning::Deferred,
            ReplyMeaning::Refused,
            ReplyMeaning::Concurrent,
            ReplyMeaning::Mismatch,
        ],
        ModelHopClass::LookUp | ModelHopClass::Keyless => {
            &[ReplyMeaning::Accepted, ReplyMeaning::Deferred, ReplyMeaning::Refused]
        }
    }
}
