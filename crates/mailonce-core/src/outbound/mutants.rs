//! Mutants of accepted and cancelled emails. Compiled only with the feature `failpoints`; see [`crate::mutant`].

use crate::{
    handoff::HandoffState,
    mutant::is_on,
    outbound::email::{Email, EmailChangeRefusal, EmailState},
    time::Time,
};

/// Alters an email at its acceptance.
pub(super) fn alter_new_email(email: &mut Email, now: Time) {
    if is_on("recipient-dropped") && email.handoffs.len() > 1 {
        email.handoffs.pop();
    }
    if is_on("handoff-doubled")
        && let Some(mut copy) = email.handoffs.first().cloned()
    {
        copy.number = email.handoffs.len() as u16;
        email.handoffs.push(copy);
    }
    if is_on("guard-without-hold") {
        for handoff in email.handoffs.iter_mut().filter(|handoff| handoff.state == HandoffState::Held) {
            (handoff.state, handoff.due_at) = (HandoffState::Queued, handoff.due_at.or(Some(now)));
        }
    }
}

/// Alters an email that is to be cancelled, or refuses to cancel it.
pub(super) fn alter_cancelled_email(email: &mut Email) -> Result<(), EmailChangeRefusal> {
    let has_unsent = email.handoffs.iter().any(|handoff| handoff.state.is_surely_unsent());
    if is_on("cancel-needs-all") && has_unsent && email.state() != EmailState::Cancelled {
        return Err(EmailChangeRefusal::TooLate);
    }
    for handoff in &mut email.handoffs {
        if is_on("cancel-in-doubt") {
            handoff.progress.attempts_in_doubt.clear();
        }
        match handoff.state {
            HandoffState::Unknown if is_on("cancel-in-doubt") => handoff.state = HandoffState::Queued,
            HandoffState::Sending if is_on("cancel-after-marker") => handoff.state = HandoffState::Leased,
            _ => {}
        }
    }
    Ok(())
}
