//! The erasure of a person from a claim: what keeps it once stays as hashes, its texts are removed.

use serde::{Deserialize, Serialize};
use std::fmt;

use super::{Claim, ResultPresence};
use crate::{
    control::erasure::AddressEraser,
    id::TeamId,
    key::{Key, KeyHash},
};

/// The key of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ClaimKey {
    /// Given by a caller or derived from an intent.
    Given(Key),
    /// A key of which only the hash is left, because its claim was erased. It is still found by its text.
    Erased {
        /// The hash.
        hash: KeyHash,
    },
}

impl ClaimKey {
    /// The hash under which the ledger stores it.
    pub fn hash(&self, team: TeamId) -> KeyHash {
        match self {
            Self::Given(key) => KeyHash::of_claim(team, key),
            Self::Erased { hash } => *hash,
        }
    }
}

impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(key) => f.write_str(key.as_str()),
            Self::Erased { hash } => write!(f, "erased {:032x}", u128::from_be_bytes(hash.0)),
        }
    }
}

/// What an erased claim keeps of a fingerprint, so that another one is still a mismatch.
fn hashed_fingerprint(team: TeamId, fingerprint: &str) -> String {
    let hash = KeyHash::of_fingerprint(team, fingerprint);
    format!("erased {:032x}", u128::from_be_bytes(hash.0))
}

impl Claim {
    /// Whether its key was erased.
    pub fn is_erased(&self) -> bool {
        matches!(self.key, ClaimKey::Erased { .. })
    }

    /// Whether one of its texts names the person. A key joins its words by hyphens, as in `invoice-ann@example.com`.
    pub fn is_named(&self, eraser: &AddressEraser) -> bool {
        let entity = self.intent.as_ref().map(|intent| intent.entity.as_str());
        eraser.may_be_in(&self.key.to_string())
            || entity.is_some_and(|entity| eraser.may_be_in(entity))
            || eraser.is_in_json_of(self)
    }

    /// Erases a claim that has ended, or that is free and has no payload for a worker: its texts and the text of its
    /// key. The caller deletes its result and payload. What decides about retries stays: the hashes of its key, its
    /// fingerprint and its payload. Returns false when somebody still needs what it contains.
    pub fn erase(&mut self, eraser: &AddressEraser) -> bool {
        let is_unused = self.is_free() && self.offer.is_none();
        if !self.is_ended() && !is_unused {
            return false;
        }
        let is_hashed = self.is_erased();
        if let Some(fingerprint) = &mut self.fingerprint
            && (!is_hashed || eraser.is_in(fingerprint))
        {
            *fingerprint = hashed_fingerprint(self.team, fingerprint);
        }
        self.key = ClaimKey::Erased { hash: self.key_hash() };
        self.intent = None;
        if let Some(failure) = &mut self.failure {
            failure.reason.clear();
        }
        if self.result == ResultPresence::Stored {
            self.result = ResultPresence::Omitted;
        }
        self.rev += 1;
        true
    }

    /// Whether a caller gives another fingerprint than its own.
    pub(super) fn has_other_fingerprint(&self, given: Option<&String>) -> bool {
        let (Some(own), Some(given)) = (&self.fingerprint, given) else { return false };
        given != own && hashed_fingerprint(self.team, given) != *own
    }
}
