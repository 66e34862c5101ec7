//! Locks a draft while it is sent, so that each draft becomes one email.

use mailonce_core::problem::{Code, Problem};
use mailonce_engine::{
    Caller, Engine, KeyedCall,
    outbound::{
        draft_send_cycles::SendCycleEnd,
        drafts::{Draft, DraftDetails},
    },
};

/// Locks the draft against changes; `None` if it changed meanwhile. The same transaction binds the idempotency key.
pub(super) async fn lock_for_sending(
    engine: &Engine,
    caller: &Caller,
    draft: &Draft,
    mut keyed_call: Option<KeyedCall>,
) -> Result<Option<Draft>, Problem> {
    if draft.details.sent && keyed_call.is_none() {
        return Ok(Some(draft.clone()));
    }
    let details = DraftDetails { sent: true, ..draft.details.clone() };
    loop {
        match engine.drafts.change_draft(caller, draft, &details, keyed_call.take()).await {
            Ok((draft, false)) => return Ok(Some(draft)),
            // A replay of this key. A draft that is neither locked nor changed since is locked now, without the key.
            Ok((current, true)) if current.details.sent => return Ok(Some(current)),
            Ok((current, true)) if current.rev != draft.rev => return Ok(None),
            Ok((_, true)) => {}
            Err(problem) if problem.code == Code::StaleRev => return Ok(None),
            Err(problem) => return Err(problem),
        }
    }
}

/// Unlocks a draft that could not be sent or scheduled, and returns the cause as an error. Returns `Ok` when the caller
/// should read the draft again. If the outcome is unknown, the draft stays locked and a retry finds out.
pub(super) async fn reopen(engine: &Engine, caller: &Caller, draft: &Draft, cause: Problem) -> Result<(), Problem> {
    if matches!(cause.code, Code::Unavailable | Code::Internal | Code::Timeout) {
        return Err(cause);
    }
    let turn = draft.details.send_cycle + 1;
    let details = DraftDetails { sent: false, send_at: None, send_cycle: turn, ..draft.details.clone() };
    match engine.drafts.end_send_cycle(caller, draft, &details).await? {
        SendCycleEnd::Ended(_) => Err(cause),
        // Another request sent it.
        SendCycleEnd::AlreadySent(email) => engine.drafts.record_draft_email(caller, draft, email).await.map(drop),
        // Another request ended this send cycle and bound its key. That caused the mismatch, so it is no error: the
        // caller reads the draft again.
        SendCycleEnd::Changed if cause.code == Code::KeyMismatch => Ok(()),
        SendCycleEnd::Changed => Err(cause),
    }
}
