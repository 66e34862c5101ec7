//! Calls other than sends that carry an idempotency key.

use crate::{id::TeamId, key::KeyHash, outbound::key_binding::KeyBinding, time::Time};

/// An operation other than a send, made repeatable by an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedOperation {
    /// The caller's team.
    pub team: TeamId,
    /// The hash of the idempotency key.
    pub key: KeyHash,
    /// The digest of the request.
    pub digest: [u8; 32],
    /// The sealed response for a replay. Empty when the operation itself returns the same response when repeated.
    pub response: Vec<u8>,
    /// Until when the key is remembered.
    pub expires_at: Time,
}

/// The result of a call that may be a replay.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum IdempotentResult<T> {
    /// Done now.
    Done(T),
    /// Done before; this is the stored response.
    Replayed(Vec<u8>),
    /// The key is bound to another request.
    KeyMismatch(KeyBinding),
}

impl<T> IdempotentResult<T> {
    /// Converts the value of `Done`.
    pub fn map<U>(self, said: impl FnOnce(T) -> U) -> IdempotentResult<U> {
        match self {
            Self::Done(done) => IdempotentResult::Done(said(done)),
            Self::Replayed(answer) => IdempotentResult::Replayed(answer),
            Self::KeyMismatch(bound) => IdempotentResult::KeyMismatch(bound),
        }
    }
}
