//! What an answer means, whatever the dialect says it with.

use std::time::Duration;

/// One answer, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallResult {
    /// Accepted now or before.
    Accepted {
        status: u16,
        /// One for a send, several for a batch, in order.
        ids: Vec<String>,
        /// Whether it was accepted before, where the dialect tells.
        replayed: Option<bool>,
    },
    /// The same key is under way.
    InFlight(u16),
    /// The key was used for another request.
    KeyMismatch(u16),
    /// The key itself is wrong.
    InvalidKey(u16),
    /// Any other refusal, with its name.
    Refused(u16, String),
    /// Too many requests.
    RateLimited(Duration),
    /// An answer that the dialect does not have.
    Unexpected(u16, String),
    /// No answer at all.
    NoAnswer(String),
}

impl CallResult {
    /// The ids of what was accepted.
    pub(super) fn ids(&self) -> Option<&[String]> {
        match self {
            Self::Accepted { ids, .. } => Some(ids),
            _ => None,
        }
    }

    /// Whether it was accepted for the first time, as far as the dialect tells.
    pub(super) fn is_first(&self) -> bool {
        matches!(self, Self::Accepted { replayed, .. } if *replayed != Some(true))
    }

    /// Whether it was accepted before, as far as the dialect tells.
    pub(super) fn is_replay(&self) -> bool {
        matches!(self, Self::Accepted { replayed, .. } if *replayed != Some(false))
    }

    /// Whether both were accepted as the same.
    pub(super) fn is_same_email(&self, other: &Self) -> bool {
        self.ids().is_some() && self.ids() == other.ids()
    }

    /// A few words for the table.
    pub(super) fn summary(&self) -> String {
        match self {
            Self::Accepted { status, replayed: Some(true), .. } => format!("{status} replayed"),
            Self::Accepted { status, .. } => format!("{status} taken"),
            Self::InFlight(status) => format!("{status} in flight"),
            Self::KeyMismatch(status) => format!("{status} other request"),
            Self::InvalidKey(status) => format!("{status} bad key"),
            Self::Refused(status, name) if name.is_empty() => format!("{status}"),
            Self::Refused(status, name) | Self::Unexpected(status, name) => format!("{status} {name}"),
            Self::RateLimited(_) => "429 too many requests".into(),
            Self::NoAnswer(why) => format!("no answer ({why})"),
        }
    }
}
