//! Calls that an earlier email answered.

use crate::{
    call_trace::CallTrace,
    id::{ApiKeyId, EmailId, TeamId},
    outbound::email::Channel,
    time::Time,
};

/// A call that was answered with an earlier email.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SuppressedCall {
    /// When the call was made.
    pub at: Time,
    /// The API key of the call.
    pub caller: Option<ApiKeyId>,
    /// The channel of the call.
    pub channel: Channel,
    /// Why the call created no email.
    pub reason: SuppressedReason,
    /// The caller's own ids for the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallTrace>,
}

crate::string_enum::string_enum! {
    /// Why a call created no email.
    SuppressedReason {
        /// Same key, same meaning.
        KeyReplay = "key_replay",
        /// Same key, other wording; the first email was returned.
        PayloadDiffers = "payload_differs",
        /// Same key, other meaning; the call was refused.
        Mismatch = "mismatch",
        /// Another reply to a message that has its reply.
        AlreadyAnswered = "already_answered",
        /// No key, and identical to an email that was just accepted through a dialect.
        Identical = "identical",
    }
}

/// Suppressed calls of one email since they were last recorded.
#[derive(Clone, Debug)]
pub struct SuppressedCalls {
    /// The team.
    pub team: TeamId,
    /// The email with which the calls were answered.
    pub email: EmailId,
    /// The number of calls.
    pub count: u64,
    /// The latest of them, oldest first, at most [`crate::limits::SUPPRESSED_CALLS_KEPT`].
    pub latest: Vec<SuppressedCall>,
}
