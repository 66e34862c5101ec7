//! How large a modelled world is, what its next hop can do, and what is wrong with it on purpose.

use clap::ValueEnum;
use mailonce_core::{
    handoff::{capabilities::RecoveryMethod, unknown::RecoveryContext},
    outbound::email::OnUnknown,
    time::Time,
};
use serde::Serialize;

/// One step of modelled time, in milliseconds: the margin that the core keeps before the end of a window.
pub const TICK_MS: i64 = 3 * 60_000;
/// How many ticks the next hop remembers a key. The core may use the first of them.
pub const WINDOW_TICKS: u8 = 2;
/// How many ticks may begin between the look at the window and the next hop's decision. A connection older than
/// 60 s is not written to and patience ends after 30 s, so together they are shorter than one tick.
pub const SLACK_TICKS: u8 = 1;
/// The account behind the way out.
pub const ACCOUNT: &str = "A";

/// What the next hop can do about an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelHopClass {
    /// It remembers a key for a window.
    Keyed,
    /// It can be asked, and may learn of a mail late.
    LookUp,
    /// Nothing.
    Keyless,
}

/// A mistake built into a world. Each must be found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeededBug {
    /// Bytes go out on a connection however old it is.
    OldConnection,
    /// What is found in `sending` goes back to the queue.
    SendingIsRetried,
    /// The ledger forgets the last marker, like a replica that was behind when it took over.
    LostMarker,
    /// The bytes go first, the marker follows.
    WireFirst,
    /// A look-up that finds nothing counts as proof.
    NegativeIsProof,
    /// A refusal of a repeat settles the whole handoff.
    RefusalSettlesAll,
    /// A worker that came back gets the fence of now.
    FenceOfNow,
}

impl SeededBug {
    /// The class of next hop that shows it.
    pub fn hop_class(self) -> ModelHopClass {
        match self {
            Self::OldConnection | Self::RefusalSettlesAll => ModelHopClass::Keyed,
            Self::NegativeIsProof => ModelHopClass::LookUp,
            Self::SendingIsRetried | Self::LostMarker | Self::WireFirst | Self::FenceOfNow => ModelHopClass::Keyless,
        }
    }
}

/// A world to be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct ModelConfig {
    /// What the next hop can do.
    pub class: ModelHopClass,
    /// What the email asks for when its outcome stays unknown.
    pub on_unknown: OnUnknown,
    /// Workers, each a process of its own.
    pub workers: u8,
    /// Handoffs of the one email.
    pub handoffs: u8,
    /// Leases that each handoff may have.
    pub leases: u8,
    /// Whether the next hop tells what became of the mail: delivered, bounced, complained.
    pub news: bool,
    /// What is wrong on purpose.
    pub flaw: Option<SeededBug>,
}

impl ModelConfig {
    /// Ticks that time may pass. Only windows care for time.
    pub fn max_ticks(self) -> u8 {
        if self.class == ModelHopClass::Keyed { WINDOW_TICKS + SLACK_TICKS } else { 0 }
    }

    /// What the core is told about the way out.
    pub fn recovery_input(self) -> RecoveryContext<'static> {
        let recovery = match self.class {
            ModelHopClass::Keyed => RecoveryMethod::IdempotencyKey { window_ms: i64::from(WINDOW_TICKS) * TICK_MS },
            // Lag is the next hop's own business here: it may answer "no" at any time.
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

/// The instant at which a tick begins.
pub fn tick_start(tick: u8) -> Time {
    Time(i64::from(tick) * TICK_MS)
}

/// The tick that an instant of the model belongs to.
pub fn tick_of(at: Time) -> u8 {
    (at.0 / TICK_MS) as u8
}
