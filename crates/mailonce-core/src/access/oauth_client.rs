//! OAuth clients: programs that registered themselves, so that people can connect them.
//!
//! Everybody may register a client. So nothing that it says about itself is trusted, and what strangers can store is
//! bounded.

use serde::{Deserialize, Serialize};

use crate::{id::OauthClientId, time::Time};

/// A client that registered itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OauthClient {
    /// Its id, which is public.
    pub id: OauthClientId,
    /// The keyed hash of the network from which it was registered.
    pub registered_from: [u8; 32],
    /// What it says about itself.
    pub details: OauthClientDetails,
    /// When it was registered.
    pub created_at: Time,
    /// When a person first connected it.
    pub connected_at: Option<Time>,
}

/// What a client says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OauthClientDetails {
    /// The display name.
    pub name: String,
    /// Where a browser may be sent after a person decided.
    pub redirect_uris: Vec<String>,
}

/// How many clients may be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrationLimits {
    /// Registrations from one network within the window.
    pub per_network: usize,
    /// The window, in milliseconds.
    pub window_ms: i64,
    /// Clients that nobody connected. The oldest of them make room for a new one.
    pub unconnected: usize,
}

/// The limits of an installation.
pub const REGISTRATION_LIMITS: RegistrationLimits =
    RegistrationLimits { per_network: 20, window_ms: 3_600_000, unconnected: 10_000 };

/// The result of registering a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum RegisterClientResult {
    /// It is registered.
    Registered,
    /// Its network registered too many. The next may be registered at this time.
    TooMany {
        /// When the oldest registration leaves the window.
        retry_at: Time,
    },
}

impl RegistrationLimits {
    /// Decides about a registration at `now`, given the times of the earlier ones from the same network.
    pub fn decide(&self, mut earlier: Vec<Time>, now: Time) -> RegisterClientResult {
        earlier.retain(|at| now.since(*at) < self.window_ms);
        earlier.sort_unstable();
        // Once this registration has left the window, one less than the limit is in it.
        let blocking = earlier.len().checked_sub(self.per_network).and_then(|index| earlier.get(index));
        blocking.map_or(RegisterClientResult::Registered, |at| RegisterClientResult::TooMany {
            retry_at: at.plus(self.window_ms),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_waits_for_its_oldest_registration_to_leave_the_window() {
        let limits = RegistrationLimits { per_network: 2, window_ms: 100, unconnected: 9 };
        let decide = |earlier: &[i64], now: i64| limits.decide(earlier.iter().copied().map(Time).collect(), Time(now));
        assert_eq!(decide(&[], 0), RegisterClientResult::Registered);
        assert_eq!(decide(&[10], 20), RegisterClientResult::Registered);
        assert_eq!(decide(&[10, 20], 30), RegisterClientResult::TooMany { retry_at: Time(110) });
        assert_eq!(decide(&[30, 20, 10], 40), RegisterClientResult::TooMany { retry_at: Time(120) });
        assert_eq!(decide(&[10, 20], 109), RegisterClientResult::TooMany { retry_at: Time(110) });
        assert_eq!(decide(&[10, 20], 110), RegisterClientResult::Registered);
    }
}
