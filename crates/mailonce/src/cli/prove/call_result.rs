//! The meaning of a response, independent of the dialect.

use std::time::Duration;

/// The meaning of one response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallResult {
    /// Accepted, now or before.
    Accepted {
        status: u16,
        /// One id for a send, several for a batch, in order.
        ids: Vec<String>,
        /// Whether it was accepted before, if the dialect says so.
        replayed: Option<bool>,
    },
    /// A request with the same key is running.
    InFlight(u16),
    /// The key was used for another request.
    KeyMismatch(u16),
    /// The key is invalid.
    InvalidKey(u16),
    /// Any other refusal, with its error name.
    Refused(u16, String),
    /// Too many requests.
    RateLimited(Duration),
    /// A response that the dialect does not define.
    Unexpected(u16, String),
    /// No response.
    NoAnswer(String),
}

impl CallResult {
    /// The ids of the accepted emails.
    pub(super) fn ids(&self) -> Option<&[String]> {
        match self {
            Self::Accepted { ids, .. } => Some(ids),
            _ => None,
        }
    }

    /// Whether it may have been accepted for the first time.
    pub(super) fn is_first(&self) -> bool {
        matches!(self, Self::Accepted { replayed, .. } if *replayed != Some(true))
    }

    /// Whether it may have been accepted before.
    pub(super) fn is_replay(&self) -> bool {
        matches!(self, Self::Accepted { replayed, .. } if *replayed != Some(false))
    }

    /// Whether both have the same ids.
    pub(super) fn is_same_email(&self, other: &Self) -> bool {
        self.ids().is_some() && self.ids() == other.ids()
    }

    /// A summary for the table.
    pub(super) fn summary(&self) -> String {
        match self {
            Self::Accepted { status, replayed: Some(true), .. } => format!("{status} replayed"),
            Self::Accepted { status, .. } => format!("{status} accepted"),
            Self::InFlight(status) => format!("{status} in flight"),
            Self::KeyMismatch(status) => format!("{status} key of another request"),
            Self::InvalidKey(status) => format!("{status} invalid key"),
            Self::Refused(status, name) if name.is_empty() => format!("{status}"),
            Self::Refused(status, name) | Self::Unexpected(status, name) => format!("{status} {name}"),
            Self::RateLimited(_) => "429 too many requests".into(),
            Self::NoAnswer(why) => format!("no response ({why})"),
        }
    }
}
