//! The size of the modelled system, the class of its next hop, and deliberate bugs.

use clap::ValueEnum;
use mailonce_core::{
    handoff::{capabilities::RecoveryMethod, unknown::RecoveryContext},
    outbound::email::OnUnknown,
    time::Time,
};
use serde::Serialize;

/// One tick of modelled time in milliseconds: the margin that the core keeps before the end of a key's window.
pub const TICK_MS: i64 = 3 * 60_000;
/// How many ticks the next hop remembers a key. The core may use the first of them.
pub const WINDOW_TICKS: u8 = 2;
/// How many ticks may start between the check of the window and the next hop's decision. A connection older than 60 s
/// is not used, and the timeout is 30 s: together less than one tick.
pub const SLACK_TICKS: u8 = 1;
/// The provider account of the transport.
pub const ACCOUNT: &str = "A";

/// The class of next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelHopClass {
    /// It remembers a key for a window of time.
    Keyed,
    /// It can be searched, and may find a mail late.
    LookUp,
    /// Neither.
    Keyless,
}

/// A deliberate bug. The checker must find each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeededBug {
    /// An old connection is used for sending.
    OldConnection,
    /// A handoff in `sending` returns to the queue.
    SendingIsRetried,
    /// The ledger loses the last marker, like a lagging replica that was promoted.
    LostMarker,
    /// The bytes are sent before the marker is committed.
    WireFirst,
    /// A look-up that finds nothing counts as proof.
    NegativeIsProof,
    /// A refused repeat decides the whole handoff.
    RefusalSettlesAll,
    /// A worker that returns gets the current fence.
    FenceOfNow,
}

impl SeededBug {
    /// The class of next hop with which the bug is visible.
    pub fn hop_class(self) -> ModelHopClass {
        match self {
            Self::OldConnection | Self::RefusalSettlesAll => ModelHopClass::Keyed,
            Self::NegativeIsProof => ModelHopClass::LookUp,
            Self::SendingIsRetried | Self::LostMarker | Self::WireFirst | Self::FenceOfNow => ModelHopClass::Keyless,
        }
    }
}

/// A system to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct ModelConfig {
    /// The class of next hop.
    pub class: ModelHopClass,
    /// The email's policy for unknown outcomes.
    pub on_unknown: OnUnknown,
    /// Workers, each a process of its own.
    pub workers: u8,
    /// Handoffs of the one email.
    pub handoffs: u8,
    /// Leases that each handoff may have.
    pub leases: u8,
    /// Whether the provider sends events: delivered, bounced, complained.
    pub news: bool,
    /// The deliberate bug, if any.
    pub flaw: Option<SeededBug>,
}

impl ModelConfig {
    /// How many ticks time may advance. Only windows depend on time.
    pub fn max_ticks(self) -> u8 {
        if self.class == ModelHopClass::Keyed { WINDOW_TICKS + SLACK_TICKS } else { 0 }
    }

    /// The transport's capability, as the core gets it.
    pub fn recovery_input(self) -> RecoveryContext<'static> {
        let recovery = match self.class {
            ModelHopClass::Keyed => RecoveryMethod::IdempotencyKey { window_ms: i64::from(WINDOW_TICKS) * TICK_MS },
            // The lag is part of the modelled next hop: it may answer "not found" at any time.
            ModelHopClass::LookUp => RecoveryMethod::LookUp { settle_delay_ms: 0 },
            ModelHopClass::Keyless => RecoveryMethod::None,
        };
        RecoveryContext {
            recovery,
            timeout_ms: 30_000,
            account: ACCOUNT,
            earlier_clock: Some(Time(i64::MAX)),
            later_clock: Time(0),
            ages_reliable_since: Time(0),
        }
    }
}

/// The start of a tick.
pub fn tick_start(tick: u8) -> Time {
    Time(i64::from(tick) * TICK_MS)
}

/// The tick of an instant.
pub fn tick_of(at: Time) -> u8 {
    (at.0 / TICK_MS) as u8
}
