//! What an idempotency key is bound to.

use std::borrow::Cow;

use crate::{
    outbound::{digest::Digest, email::Email, suppressed_call::SuppressedCall},
    time::Time,
};

/// What a key is bound to.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyBinding {
    /// An email.
    Email(Email),
    /// An operation other than a send, or a batch.
    Operation {
        /// The digest of the request.
        digest: [u8; 32],
    },
}

impl KeyBinding {
    /// The binding to an email. `None` when the email's key expired by `expiry_cutoff`.
    pub fn to_email(email: Cow<'_, Email>, expiry_cutoff: Time) -> Option<Self> {
        (!email.is_forgotten(expiry_cutoff)).then(|| Self::Email(email.into_owned()))
    }

    /// The binding to an operation. `None` when it expired by `expiry_cutoff`.
    pub fn to_operation(digest: [u8; 32], expires_at: Time, expiry_cutoff: Time) -> Option<Self> {
        (expires_at > expiry_cutoff).then_some(Self::Operation { digest })
    }

    /// Whether the binding has another meaning than a new email with this digest, so that the email must be refused.
    pub fn mismatches(&self, digest: &Digest, first_wins: bool) -> bool {
        let Self::Email(email) = self else { return true };
        // Digests of different versions cannot be compared here. The engine compares them later, for this item alone.
        if email.digest.version() != digest.version() {
            return false;
        }
        let differs = email.digest.differences(digest);
        let forgiven = first_wins && differs.iter().all(|field| field.is_forgivable());
        !differs.is_empty() && !forgiven
    }
}

/// The current state of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyView {
    /// How often it was bound.
    pub bind_number: u32,
    /// What it is bound to. `None` when it is forgotten.
    pub binding: Option<KeyBinding>,
    /// When it will be forgotten. `None` while that is not known, and after it happened.
    pub expires_at: Option<Time>,
    /// When it was forgotten.
    pub forgotten_at: Option<Time>,
    /// The latest suppressed calls, newest first.
    pub suppressed_calls: Vec<SuppressedCall>,
}

/// The result of changing a key.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum KeyChangeResult {
    /// Done; this is the current email.
    Done(Email),
    /// The email of the key is not terminal, so the key cannot be forgotten.
    NotTerminal(Email),
    /// The key is not bound to an email.
    Missing,
}
