//! Calls other than sends that carry an idempotency key.

use crate::access::caller::Caller;
use mailonce_core::{limits, operation::KeyedOperation, time::Time};

/// A call other than a send that has an idempotency key.
#[derive(Clone, Debug)]
pub struct KeyedCall {
    /// The idempotency key.
    pub key: mailonce_core::key::EmailKey,
    /// The digest of the operation, its path and its body.
    pub digest: [u8; 32],
}

/// The operation to bind to the caller's key, with the response for replays. `None` without a key.
pub(crate) fn operation(
    caller: &Caller,
    keyed_call: Option<&KeyedCall>,
    answer: Vec<u8>,
    now: Time,
) -> Option<KeyedOperation> {
    let keyed_call = keyed_call?;
    Some(KeyedOperation {
        team: caller.team.id,
        key: keyed_call.key.hash(caller.team.id),
        digest: keyed_call.digest,
        response: answer,
        expires_at: now.plus(limits::OPERATION_RETENTION_MS),
    })
}
