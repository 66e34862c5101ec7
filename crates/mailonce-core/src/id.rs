//! Ids: UUIDv7 in typed wrappers, made from a time and random bytes that the caller provides.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use uuid::Uuid;

use crate::time::Time;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    )*};
}

ids! {
    /// The id of a team, which is a tenant.
    TeamId,
    /// The id of an API key.
    ApiKeyId,
    /// The id of a person in a team.
    PersonId,
    /// The id of a client that registered itself for OAuth.
    OauthClientId,
    /// The id of a [`crate::access::connection::Connection`], and of the credential that stands for it.
    ConnectionId,
    /// The id of an accepted outbound email.
    EmailId,
    /// The id of an event.
    EventId,
    /// The id of a batch of sends under one key.
    BatchId,
    /// The id of a node: one run of the program.
    NodeId,
    /// The id of a sending domain.
    DomainId,
    /// The id of a source of provider events.
    SourceId,
    /// The id of an [`crate::inbox::Inbox`].
    InboxId,
    /// The id of a [`crate::inbound::delivery::Delivery`].
    DeliveryId,
    /// The id of a [`crate::inbox::message::Message`].
    MessageId,
    /// The id of a [`crate::conversation::thread::Thread`].
    ThreadId,
    /// The id of an [`crate::inbox::artifact::Artifact`].
    ArtifactId,
    /// The id of a [`crate::inbox::watch::Watch`].
    WatchId,
    /// The id of an [`crate::events::endpoint::Endpoint`].
    EndpointId,
    /// The id of a [`crate::events::notice::Notice`].
    NoticeId,
    /// The id of a [`crate::claims::Claim`].
    ClaimId,
    /// The id of a [`crate::control::stop::Stop`].
    StopId,
}

/// The ordered 60 bits of a UUIDv7 made by [`IdGenerator`]: milliseconds and a counter. Unique per generator, so a
/// store with a single writer can use it as the row number and needs no index on the id.
pub fn ordered_bits(id: Uuid) -> i64 {
    let bits = id.as_u128();
    let millis = (bits >> 80) as i64;
    let counter = ((bits >> 64) & 0xfff) as i64;
    (millis << 12) | counter
}

/// The lowest id for an instant.
pub fn first_id_at(at: crate::time::Time) -> Uuid {
    Uuid::from_u128((at.0.clamp(0, (1 << 48) - 1) as u128) << 80)
}

/// The 62 random bits of a UUIDv7, which make it unguessable.
pub fn random_bits(id: Uuid) -> i64 {
    (id.as_u128() & 0x3fff_ffff_ffff_ffff) as i64
}

/// Builds an id from its ordered and random bits.
pub fn from_bits(ordered: i64, tail: i64) -> Uuid {
    let millis = (ordered >> 12) as u128;
    let counter = (ordered & 0xfff) as u128;
    let tail = (tail as u128) & 0x3fff_ffff_ffff_ffff;
    Uuid::from_u128((millis << 80) | (0x7 << 76) | (counter << 64) | (0b10 << 62) | tail)
}

/// Generates UUIDv7s whose first 60 bits never repeat and never decrease (RFC 9562, a counter in `rand_a`).
#[derive(Debug, Default)]
pub struct IdGenerator {
    last: i64,
}

impl IdGenerator {
    /// A generator that stays above every earlier id.
    pub fn starting_above(last: i64) -> Self {
        Self { last }
    }

    /// The next id. After 4,096 ids in one millisecond the counter continues into the next one.
    pub fn next_id(&mut self, now: Time, chance: u64) -> Uuid {
        self.last = (self.last + 1).max(now.0.max(0) << 12);
        from_bits(self.last, chance as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_even_when_the_clock_stands_still_or_falls() {
        let mut maker = IdGenerator::default();
        let mut last = None;
        for step in 0..10_000_i64 {
            let id = maker.next_id(Time(1_700_000_000_000 - step), 7);
            assert_eq!(id.get_version_num(), 7);
            assert!(last < Some(ordered_bits(id)), "step {step}");
            last = Some(ordered_bits(id));
        }
    }

    #[test]
    fn bits_put_an_id_together_again() {
        let id = IdGenerator::default().next_id(Time(1_731_628_800_123), 0xdead_beef_dead_beef);
        assert_eq!(from_bits(ordered_bits(id), random_bits(id)), id);
    }
}
