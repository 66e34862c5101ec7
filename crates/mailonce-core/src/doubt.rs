//! What to do next about a handoff whose outcome is unknown.
//!
//! Only three things are ever done without a person: repeat the attempt with the same key at the same account while
//! the provider surely remembers it, ask the provider, and what the email's own policy says. A negative look-up is
//! never enough.

use crate::{email::OnUnknown, handoff::Handoff, port::transport::Recovery, retry, time::Time};

/// How long an email that asks to be resent waits for evidence first, in milliseconds.
pub const RESEND_AFTER_MS: i64 = 10 * 60_000;
/// How long the next hop is asked, in milliseconds.
const ASK_FOR_MS: i64 = 72 * 3_600_000;
/// The pause between two look-ups, which doubles, in milliseconds.
const ASK_EVERY_MS: i64 = 5 * 60_000;
/// The longest pause between two look-ups, in milliseconds.
const LONGEST_ASK_MS: i64 = 6 * 3_600_000;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Repeat with the same key, now.
    Repeat,
    /// Ask the next hop, now.
    LookUp,
    /// Send the same bytes again, once, as the email asks.
    Resend,
    /// Nothing before this time. `None`: nothing but evidence or a person.
    Wait(Option<Time>),
}

/// What is known about the way out of a handoff in doubt.
#[derive(Clone, Copy, Debug)]
pub struct Way<'a> {
    /// What it can do.
    pub recovery: Recovery,
    /// How long a hand-over may take.
    pub patience_ms: i64,
    /// The account behind it now.
    pub account: &'a str,
    /// Whether time can be trusted. A window counts as closed otherwise.
    pub time_is_sure: bool,
}

/// What to do about a handoff in doubt at `now`. `way` is `None` when its transport is no longer configured.
pub fn next(handoff: &Handoff, on_unknown: OnUnknown, way: Option<Way<'_>>, now: Time) -> Next {
    let work = &handoff.work;
    if work.puzzling {
        return Next::Wait(None);
    }
    let since = work.doubt_since.unwrap_or(now);
    let looks = [
        way.and_then(|way| by_transport(handoff, way, since, now)),
        by_policy(handoff, on_unknown, since, now, way.is_some_and(|way| way.time_is_sure)),
    ];
    let mut wait: Option<Time> = None;
    for look in looks.into_iter().flatten() {
        match look {
            Next::Wait(Some(at)) => wait = Some(wait.map_or(at, |other| other.min(at))),
            Next::Wait(None) => {}
            now => return now,
        }
    }
    Next::Wait(wait)
}

/// Whether the next hop surely still remembers the key of the first attempt in doubt.
pub fn window_is_open(handoff: &Handoff, way: Way<'_>, now: Time) -> bool {
    let Recovery::Key { window_ms } = way.recovery else { return false };
    let same_account = handoff.work.account.as_deref() == Some(way.account);
    let closes = handoff.work.doubt_since.map(|since| since.plus(window_ms - Recovery::margin_ms(window_ms)));
    way.time_is_sure && same_account && closes.is_some_and(|closes| now.plus(way.patience_ms) < closes)
}

fn by_transport(handoff: &Handoff, way: Way<'_>, since: Time, now: Time) -> Option<Next> {
    let asked = handoff.work.asked;
    match way.recovery {
        Recovery::Key { .. } if window_is_open(handoff, way, now) => {
            let due = handoff.due_at.unwrap_or(now);
            Some(if due <= now { Next::Repeat } else { Next::Wait(Some(due)) })
        }
        Recovery::LookUp { settle_ms } if now.since(since) < ASK_FOR_MS => {
            let first = since.plus(settle_ms);
            let due = if asked == 0 { first } else { handoff.due_at.unwrap_or(now).max(first) };
            if due > now {
                return Some(Next::Wait(Some(due)));
            }
            Some(Next::LookUp)
        }
        _ => None,
    }
}

fn by_policy(handoff: &Handoff, on_unknown: OnUnknown, since: Time, now: Time, sure: bool) -> Option<Next> {
    if on_unknown != OnUnknown::Resend || handoff.work.resent {
        return None;
    }
    let due = since.plus(RESEND_AFTER_MS);
    match due <= now {
        true if sure => Some(Next::Resend),
        // The pause cannot be measured while time is not sure.
        true => Some(Next::Wait(Some(now.plus(60_000)))),
        false => Some(Next::Wait(Some(due))),
    }
}

/// When to ask again after a look-up that found nothing.
pub fn ask_again_at(asked: u32, now: Time) -> Time {
    now.plus((ASK_EVERY_MS << asked.min(10)).min(LONGEST_ASK_MS))
}

/// When to repeat again after a repeat that settled nothing.
pub fn repeat_again_at(asked: u32, chance: u64, now: Time) -> Time {
    now.plus(retry::backoff(asked + 2, chance).max(200))
}
