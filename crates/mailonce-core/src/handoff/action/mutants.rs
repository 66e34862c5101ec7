//! Mutants of actions: each alters an action or the email before the action takes effect, or its effects afterwards.
//! Compiled only with the feature `failpoints`; see [`crate::mutant`].

use super::{Effects, HandoffAction, HandoffActionStatus};
use crate::{
    handoff::{EvidenceFinding, Handoff, HandoffState, Outcome, Transition, reply::ReplyMeaning},
    mutant::{is_any_on, is_on},
    outbound::email::Email,
    time::Time,
};

/// Applies an action with the enabled mutant.
pub(super) fn apply_action(email: &mut Email, original: &HandoffAction, now: Time) -> Effects {
    if !is_any_on() {
        return email.run_action(original, now);
    }
    let (before, mut action) = (email.clone(), original.clone());
    alter_action(&mut action, email);
    alter_email(email, &action, now);
    let mut effects = email.run_action(&action, now);
    if let HandoffAction::RecordOutcome { reply, .. } = original {
        // Only the decision is wrong: the attempt keeps the reply that it got.
        effects.attempts.iter_mut().for_each(|attempt| attempt.outcome = Some(Outcome::from_meaning(reply.meaning)));
    }
    alter_effects(&mut effects, email, &before, &action);
    effects
}

fn alter_action(action: &mut HandoffAction, email: &Email) {
    let handoff = |number: u16| email.handoffs.get(usize::from(number));
    match action {
        HandoffAction::Mark { lease, .. }
        | HandoffAction::ReturnLease { lease, .. }
        | HandoffAction::RecordOutcome { lease, .. }
            if is_on("any-fence") =>
        {
            lease.fence = handoff(lease.number).map_or(lease.fence, |handoff| handoff.fence);
        }
        HandoffAction::RecordOutcome { lease, reply, .. }
            if handoff(lease.number).is_some_and(|handoff| handoff.fence == lease.fence) =>
        {
            reply.meaning = alter_meaning(reply.meaning);
        }
        HandoffAction::CheckLater { number, evidence: Some(evidence), .. }
            if evidence.finding == EvidenceFinding::NotFound && is_on("not-found-is-proof") =>
        {
            evidence.finding = EvidenceFinding::NotAccepted;
            evidence.attempt = handoff(*number).and_then(|handoff| handoff.progress.attempts_in_doubt.first().copied());
            *action = HandoffAction::AddEvidence(evidence.clone());
        }
        HandoffAction::AddEvidence(evidence) if is_on("fact-of-another-handoff") => evidence.handoff = 0,
        HandoffAction::Resolve { rev, .. } if is_on("stale-rev-obeyed") => *rev = email.rev,
        _ => {}
    }
}

fn alter_meaning(meaning: ReplyMeaning) -> ReplyMeaning {
    match meaning {
        ReplyMeaning::Unknown if is_on("unknown-is-refused") => ReplyMeaning::Refused,
        ReplyMeaning::Unknown if is_on("unknown-is-deferred") => ReplyMeaning::Deferred,
        ReplyMeaning::Unknown if is_on("unknown-is-accepted") => ReplyMeaning::Accepted,
        ReplyMeaning::Refused if is_on("refused-is-unknown") => ReplyMeaning::Unknown,
        ReplyMeaning::Refused if is_on("refused-is-accepted") => ReplyMeaning::Accepted,
        ReplyMeaning::Accepted if is_on("accepted-is-deferred") => ReplyMeaning::Deferred,
        ReplyMeaning::Accepted if is_on("accepted-is-refused") => ReplyMeaning::Refused,
        ReplyMeaning::Deferred if is_on("deferred-is-accepted") => ReplyMeaning::Accepted,
        ReplyMeaning::Deferred if is_on("deferred-is-unknown") => ReplyMeaning::Unknown,
        ReplyMeaning::Fault if is_on("fault-is-unknown") => ReplyMeaning::Unknown,
        ReplyMeaning::Concurrent if is_on("concurrent-is-refused") => ReplyMeaning::Refused,
        ReplyMeaning::Mismatch if is_on("mismatch-is-refused") => ReplyMeaning::Refused,
        ReplyMeaning::Repeated if is_on("repeated-is-refused") => ReplyMeaning::Refused,
        read => read,
    }
}

fn alter_email(email: &mut Email, action: &HandoffAction, now: Time) {
    match action {
        HandoffAction::RecordOutcome { lease, reply, .. } if reply.meaning == ReplyMeaning::Refused => {
            let Some(handoff) = email.handoff_mut(lease.number) else { return };
            if is_on("refusal-ends-doubt") || (is_on("given-up-in-doubt") && handoff.progress.retry_despite_doubt) {
                handoff.progress.attempts_in_doubt.clear();
            }
        }
        HandoffAction::Crash { number, .. } => match email.handoff_mut(*number) {
            Some(handoff) if handoff.state == HandoffState::Sending && is_on("crash-requeues-sending") => {
                handoff.state = HandoffState::Leased;
            }
            Some(handoff) if handoff.state == HandoffState::Leased && is_on("crash-doubts-leased") => {
                handoff.state = HandoffState::Sending;
            }
            _ => {}
        },
        HandoffAction::ResendByPolicy { number } if is_on("policy-twice") => {
            email.handoff_mut(*number).into_iter().for_each(|handoff| handoff.progress.resent = false);
        }
        HandoffAction::AddEvidence(evidence) => {
            let Some(handoff) = email.handoff_mut(evidence.handoff) else { return };
            let is_failed = matches!(handoff.state, HandoffState::Bounced | HandoffState::Complained);
            match evidence.finding {
                EvidenceFinding::NotAccepted if evidence.attempt.is_some() && is_on("one-refusal-clears-all") => {
                    handoff.progress.attempts_in_doubt.clear();
                }
                EvidenceFinding::Delivered if is_failed && is_on("bounce-undone") => handoff.state = HandoffState::Sent,
                _ => {}
            }
        }
        HandoffAction::FailOverHandoff { number, .. } if is_on("doubt-rerouted") => {
            let unknown = |handoff: &&mut Handoff| handoff.state == HandoffState::Unknown;
            let Some(handoff) = email.handoff_mut(*number).filter(unknown) else { return };
            handoff.progress.attempts_in_doubt.clear();
            handoff.apply_transition(Transition::Retry, now).ok();
        }
        _ => {}
    }
}

fn alter_effects(effects: &mut Effects, email: &mut Email, before: &Email, action: &HandoffAction) {
    let is_stale = effects.status == HandoffActionStatus::Stale;
    match action {
        HandoffAction::Crash { .. } if is_on("crash-untold") => effects.events.clear(),
        HandoffAction::RecordOutcome { .. } if is_stale && is_on("late-reply-dropped") => {
            *email = before.clone();
            *effects = Effects::from_status(HandoffActionStatus::Stale);
        }
        HandoffAction::RecordOutcome { started_at, .. } if is_on("window-slides") => {
            for (handoff, before) in email.handoffs.iter_mut().zip(&before.handoffs) {
                if handoff.progress.attempts_in_doubt.len() > before.progress.attempts_in_doubt.len() {
                    handoff.progress.in_doubt_since = Some(*started_at);
                }
            }
        }
        HandoffAction::ResendByPolicy { .. } | HandoffAction::Resolve { .. } if is_on("resend-unflagged") => {
            for (handoff, before) in email.handoffs.iter_mut().zip(&before.handoffs) {
                handoff.progress.may_duplicate = before.progress.may_duplicate;
            }
        }
        HandoffAction::AddEvidence(evidence) => {
            let handoff = before.handoffs.get(usize::from(evidence.handoff));
            let is_unknown = handoff.is_some_and(|handoff| handoff.state == HandoffState::Unknown);
            let is_delay = evidence.finding == EvidenceFinding::Delayed;
            if (is_on("proof-only-of-doubts") && !is_unknown) || (is_on("delay-proves-nothing") && is_delay) {
                *email = before.clone();
                effects.events.clear();
                effects.changed = false;
            }
        }
        _ => {}
    }
}
