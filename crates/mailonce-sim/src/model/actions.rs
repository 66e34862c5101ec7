//! The actions that may happen next. Timers are not modelled: everything that can happen at some time may happen now.

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

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelAction {
    /// An idle worker leases a handoff.
    Lease(u8),
    /// A worker connects and checks the window.
    Connect(u8),
    /// A worker fails before its marker.
    RejectBeforeMarker(u8, ReplyMeaning),
    /// A worker commits its marker.
    Mark(u8),
    /// A worker's marker is committed or not, and it does not learn which.
    MarkUnconfirmed(u8, bool),
    /// A worker sends the bytes.
    SendBytes(u8),
    /// The next hop decides about an attempt.
    HopReply(u8, u8, ReplyMeaning),
    /// A worker's timeout passes.
    LoseReply(u8),
    /// A worker records its outcome. `true`: it does not learn that this succeeded, and will repeat it.
    RecordOutcome(u8, bool),
    /// A worker crashes.
    Crash(u8),
    /// A process's lease is revoked, whether it is dead or only slow.
    Recover(u8),
    /// The client cancels the email.
    Cancel,
    /// An idle worker repeats the attempts with unknown outcomes.
    Repeat(u8),
    /// A look-up finds the mail, or does not.
    LookUp(u8, bool),
    /// The email's policy resends it.
    ResendByPolicy(u8),
    /// The provider reports an event.
    ProviderEvent(u8, EvidenceFinding),
    /// An operator resolves it.
    Resolve(u8, Resolution),
    /// Time advances.
    Tick,
    /// The ledger loses its last marker. Only a deliberate bug allows it.
    LoseMarker(u8),
}

/// All actions that are possible in a state.
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
        // The core would wait ten minutes. No property may depend on that.
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

/// The replies of a next hop to an attempt. It never lies about whether it has the mail.
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
