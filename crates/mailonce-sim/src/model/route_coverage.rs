//! Routes that must occur at least once, since a property can also hold because nothing ever happened.

use mailonce_core::outbound::email::OnUnknown;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::model::config::{ModelConfig, ModelHopClass};

macro_rules! routes {
    ($($(#[$doc:meta])* $name:ident = $words:literal),* $(,)?) => {
        /// A route of a handoff.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Route { $($(#[$doc])* $name),* }

        impl Route {
            /// All routes.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its description.
            pub fn words(self) -> &'static str {
                match self { $(Self::$name => $words),* }
            }
        }
    };
}

routes! {
    /// Leased, then queued.
    LeaseLapsed = "a lease lapses and the handoff is queued again",
    /// Leased too often.
    PutAside = "a handoff that ends its workers is put aside",
    /// Sending, then unknown.
    CrashAfterMarker = "a worker ends after its marker and the outcome is unknown",
    /// A worker was only slow.
    LateAcceptance = "a worker that lost its lease brings an acceptance",
    /// The same with a refusal.
    LateRefusal = "a worker that lost its lease brings a refusal and the handoff is tried again",
    /// Cancelled before the marker.
    MarkerAfterCancel = "a marker is refused because the email was cancelled",
    /// Taken over before the marker.
    MarkerAfterTakeOver = "a marker is refused because the handoff was taken over",
    /// The commit's fate is not known, and it was durable.
    MarkerUnsure = "a marker that was written without its worker's knowing is taken back",
    /// The commit's fate is not known, and it was not.
    MarkerNever = "a marker that was never written is put off",
    /// Refused before the marker.
    RefusedBefore = "the next hop refuses before the marker",
    /// Refused after it.
    RefusedAfter = "the next hop refuses after the marker",
    /// Deferred after the marker.
    Deferred = "the next hop defers and the handoff is queued again",
    /// Deferred too often.
    GivenUp = "a handoff is given up after its last attempt",
    /// Cancelled.
    Cancelled = "a cancel wins",
    /// Not cancelled.
    CancelTooLate = "a cancel is too late",
    /// Unknown, then sent by an event.
    EventSettles = "an event settles an unknown outcome",
    /// Sending, then sent by an event.
    EventOvertakes = "an event overtakes our own commit",
    /// Abandoned, then sent.
    EventCorrects = "an event corrects what a person gave up",
    /// A person.
    PersonSent = "a person says that it arrived",
    /// A person.
    PersonResends = "a person sends it again",
    /// A person.
    PersonAbandons = "a person gives it up",
    /// The policy.
    PolicyResends = "the policy sends it again",
    /// Found.
    LookUpFinds = "a look-up finds the mail",
    /// Not found although it is there.
    LookUpMisses = "a look-up misses a mail that is there",
    /// A repeat that settles it.
    RepeatSettles = "a repeat inside the window settles it",
    /// A repeat whose worker ended.
    RepeatLapses = "a repeat ends with its worker before the marker",
    /// A repeat that came too late.
    WindowClosed = "a repeat finds its window closed",
    /// A repeat that is refused.
    RepeatRefused = "a refusal of a repeat leaves the first in doubt",
    /// Busy.
    Concurrent = "the next hop is busy with an earlier request",
    /// Mismatch.
    Puzzle = "the next hop contradicts itself and a person must look",
    /// Too old a connection.
    OldConnection = "a worker that slept too long writes nothing",
    /// Written twice.
    SettledTwice = "an answer is written down twice",
}

impl Route {
    /// Whether a system of this configuration must take the route.
    pub fn must_be_reached(self, size: ModelConfig) -> bool {
        let keyed = size.class == ModelHopClass::Keyed;
        match self {
            Self::PutAside => u32::from(size.leases) >= mailonce_core::handoff::action::MAX_LEASE_LAPSES,
            Self::MarkerAfterTakeOver | Self::LateRefusal | Self::LateAcceptance => true,
            Self::PolicyResends => size.on_unknown == OnUnknown::Resend,
            Self::LookUpFinds | Self::LookUpMisses => size.class == ModelHopClass::LookUp,
            Self::GivenUp | Self::PersonResends | Self::Deferred => size.leases > 1,
            Self::RepeatSettles | Self::RepeatLapses | Self::WindowClosed | Self::RepeatRefused => {
                keyed && size.leases > 1
            }
            Self::Concurrent | Self::Puzzle | Self::OldConnection => keyed,
            _ => true,
        }
    }
}

/// How often each route was taken.
#[derive(Debug, Default)]
pub struct RouteCoverage(BTreeMap<&'static str, AtomicU64>);

impl RouteCoverage {
    /// Counters for all routes.
    pub fn new() -> Self {
        Self(Route::ALL.iter().map(|route| (route.words(), AtomicU64::new(0))).collect())
    }

    /// Counts a route.
    pub fn count(&self, route: Route) {
        if let Some(counter) = self.0.get(route.words()) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counts by description.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.iter().map(|(words, counter)| (*words, counter.load(Ordering::Relaxed))).collect()
    }

    /// Routes that a system of this configuration must take and never took.
    pub fn unreached(&self, size: ModelConfig) -> Vec<&'static str> {
        let counts = self.counts();
        let due = Route::ALL.iter().filter(|route| route.must_be_reached(size)).map(|route| route.words());
        due.filter(|words| counts.get(words).is_none_or(|count| *count == 0)).collect()
    }
}
