//! Mutants of the reply guards. Compiled only with the feature `failpoints`; see [`crate::mutant`].

use super::reply_guards::{NewReply, ReplyVerdict};
use crate::{mutant::is_on, outbound::email::Guard};

/// Accepts a reply although a guard refuses it.
pub(super) fn alter_verdict(reply: &NewReply, verdict: ReplyVerdict) -> ReplyVerdict {
    let is_ignored = match verdict {
        ReplyVerdict::Refuse(Guard::Itself, _) => is_on("own-mail-answered"),
        ReplyVerdict::Refuse(Guard::Automatic, _) => is_on("automatic-mail-answered"),
        ReplyVerdict::Refuse(Guard::Leased, _) => {
            is_on("thread-lease-ignored") || (is_on("lost-lease-obeyed") && reply.lease_token_hash.is_some())
        }
        ReplyVerdict::Refuse(Guard::NewerMessage, _) => is_on("newer-message-ignored"),
        ReplyVerdict::AlreadyAnswered(_) => is_on("answered-twice"),
        _ => false,
    };
    if is_ignored { ReplyVerdict::Accept(None) } else { verdict }
}
