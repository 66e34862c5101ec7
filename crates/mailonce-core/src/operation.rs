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

/// Whether an operation may be performed, from what its key is bound to.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum OperationDecision {
    /// The key is free: perform the operation.
    First,
    /// The operation was performed before: answer with the stored response.
    Replayed,
    /// The key is bound to something else.
    KeyMismatch(KeyBinding),
}

impl KeyedOperation {
    /// Decides whether to perform this operation.
    pub fn decide(&self, bound: Option<KeyBinding>) -> OperationDecision {
        match bound {
            None => OperationDecision::First,
            Some(KeyBinding::Operation { digest }) if digest == self.digest => OperationDecision::Replayed,
            Some(other) => OperationDecision::KeyMismatch(other),
        }
    }
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
