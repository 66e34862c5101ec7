//! What to do next about a handoff whose outcome is unknown.
//!
//! Only three things are ever done without a person: repeat the attempt with the same key at the same account while
//! the provider surely remembers it, ask the provider, and what the email's own policy says. A negative look-up is
//! never enough.

use crate::{email::OnUnknown, handoff::Handoff, mutant, port::transport::Recovery, time::Time};

/// How long an email that asks to be resent waits for evidence first, in milliseconds.
pub const RESEND_AFTER_MS: i64 = 10 * 60_000;
/// How long the next hop is asked, in milliseconds.
const ASK_FOR_MS: i64 = 72 * 3_600_000;
/// The pause between two look-ups, which doubles, in milliseconds.
const ASK_EVERY_MS: i64 = 5 * 60_000;
/// The longest pause between two look-ups, in milliseconds.
const LONGEST_ASK_MS: i64 = 6 * 3_600_000;

/// How soon to look again while time is not sure, in milliseconds.
const UNSURE_MS: i64 = 60_000;

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
    /// The earlier of node time and database time, which decides policies. `None` while the time is not sure: then a
    /// window counts as closed, too.
    pub earlier: Option<Time>,
    /// The later of node time and database time, which decides whether a window is open.
    pub later: Time,
    /// Since when it can be measured how long something is ago. A window that opened before counts as closed.
    pub measured_since: Time,
}

/// What to do about a handoff in doubt at `now`. Only a process that has its transport may ask: to others it is not known
/// what the next hop remembers.
pub fn next(handoff: &Handoff, on_unknown: OnUnknown, way: Way<'_>, now: Time) -> Next {
    let work = &handoff.work;
    if work.puzzling || mutant!("never-looked-at-again") {
        return Next::Wait(None);
    }
    let since = work.doubt_since.unwrap_or(now);
    let mut looks = [by_transport(handoff, way, since, now), by_policy(handoff, on_unknown, since, now, way.earlier)];
    // A next hop that was asked and knew nothing is not asked for days before the email gets what it wishes.
    if work.asked > 0 && looks == [Some(Next::LookUp), Some(Next::Resend)] {
        looks.reverse();
    }
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
    let same_account = handoff.work.account.as_deref() == Some(way.account) || mutant!("any-account");
    if mutant!("window-never-closes") {
        return same_account;
    }
    let measured = |since: &Time| *since >= way.measured_since || mutant!("window-unmeasured");
    let opened = handoff.work.doubt_since.filter(measured);
    let closes = opened.map(|since| since.plus(window_ms - Recovery::margin_ms(window_ms)));
    (way.earlier.is_some() || mutant!("window-while-unsure"))
        && same_account
        && closes.is_some_and(|closes| now.max(way.later).plus(way.patience_ms) < closes)
}

fn by_transport(handoff: &Handoff, way: Way<'_>, since: Time, now: Time) -> Option<Next> {
    let asked = handoff.work.asked;
    match way.recovery {
        Recovery::Key { .. } if window_is_open(handoff, way, now) => {
            let due = handoff.due_at.unwrap_or(now);
            Some(if due <= now { Next::Repeat } else { Next::Wait(Some(due)) })
        }
        // The window may prove open once time is sure again.
        Recovery::Key { .. } if window_is_open(handoff, Way { earlier: Some(now), ..way }, now) => {
            Some(Next::Wait(Some(now.plus(UNSURE_MS))))
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

fn by_policy(handoff: &Handoff, on_unknown: OnUnknown, since: Time, now: Time, earlier: Option<Time>) -> Option<Next> {
    let wishes = on_unknown == OnUnknown::Resend || mutant!("hold-is-resend");
    if !wishes || (handoff.work.resent && !mutant!("policy-twice")) {
        return None;
    }
    let due = since.plus(RESEND_AFTER_MS);
    match earlier.map(|earlier| earlier.min(now)) {
        Some(earlier) if due <= earlier => Some(Next::Resend),
        // The clock that decides is behind ledger time; it gets there after as long as it lacks.
        Some(earlier) => Some(Next::Wait(Some(now.plus(due.since(earlier))))),
        // The pause cannot be measured while the time is not sure.
        None if due <= now => Some(Next::Wait(Some(now.plus(UNSURE_MS)))),
        None => Some(Next::Wait(Some(due))),
    }
}

/// When to look again after a look-up that found nothing: to ask once more, or to do what the email wishes.
pub fn look_again_at(handoff: &Handoff, on_unknown: OnUnknown, now: Time) -> Time {
    let ask = now.plus((ASK_EVERY_MS << handoff.work.asked.min(10)).min(LONGEST_ASK_MS));
    let wishes = on_unknown == OnUnknown::Resend && !handoff.work.resent;
    let resend = handoff.work.doubt_since.filter(|_| wishes).map(|since| since.plus(RESEND_AFTER_MS).max(now));
    resend.map_or(ask, |resend| resend.min(ask))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handoff::{State, Work};
    use proptest::prelude::*;

    const T0: Time = Time(1_731_628_800_000);
    const MINUTE: i64 = 60_000;
    const HOUR: i64 = 60 * MINUTE;
    const KEY: Recovery = Recovery::Key { window_ms: 24 * HOUR };

    /// A handoff in doubt since `T0` at account A.
    fn lost() -> Handoff {
        let work = Work { doubts: vec![1], doubt_since: Some(T0), account: Some("A".into()), ..Work::default() };
        Handoff {
            number: 0,
            transport: "relay".into(),
            recipients: Vec::new(),
            state: State::Unknown,
            due_at: Some(T0),
            attempts: 1,
            fence: 1,
            holder: None,
            work,
        }
    }

    /// A way out whose clocks agree with `now`.
    fn way(recovery: Recovery) -> Way<'static> {
        let (earlier, later) = (Some(Time(i64::MAX)), Time(0));
        Way { recovery, patience_ms: 30_000, account: "A", earlier, later, measured_since: Time(0) }
    }

    #[test]
    fn a_key_is_repeated_while_its_window_is_surely_open() {
        let look = |ms: i64| next(&lost(), OnUnknown::Hold, way(KEY), T0.plus(ms));
        let closes = 24 * HOUR - 30 * MINUTE - 30_000;
        assert_eq!(look(0), Next::Repeat);
        assert_eq!(look(closes - 1), Next::Repeat);
        assert_eq!(look(closes), Next::Wait(None));
        let later = Handoff { due_at: Some(T0.plus(5)), ..lost() };
        assert_eq!(next(&later, OnUnknown::Hold, way(KEY), T0), Next::Wait(Some(T0.plus(5))));
    }

    #[test]
    fn an_open_window_is_not_given_up_while_time_is_not_sure() {
        let unsure = Way { earlier: None, ..way(KEY) };
        let look = |ms: i64| next(&lost(), OnUnknown::Hold, unsure, T0.plus(ms));
        assert_eq!(look(HOUR), Next::Wait(Some(T0.plus(HOUR + MINUTE))));
        assert_eq!(look(24 * HOUR), Next::Wait(None));
        let set_back = Way { measured_since: T0.plus(1), ..way(KEY) };
        assert_eq!(next(&lost(), OnUnknown::Hold, set_back, T0.plus(HOUR)), Next::Wait(None));
    }

    #[test]
    fn a_next_hop_is_asked_after_it_settled_and_for_three_days() {
        let ask = Recovery::LookUp { settle_ms: 5 * MINUTE };
        let look = |handoff: &Handoff, ms: i64| next(handoff, OnUnknown::Hold, way(ask), T0.plus(ms));
        assert_eq!(look(&lost(), 0), Next::Wait(Some(T0.plus(5 * MINUTE))));
        assert_eq!(look(&lost(), 5 * MINUTE), Next::LookUp);
        assert_eq!(look(&lost(), 72 * HOUR), Next::Wait(None));
        let asked = Handoff { due_at: Some(T0.plus(HOUR)), work: Work { asked: 1, ..lost().work }, ..lost() };
        assert_eq!(look(&asked, 5 * MINUTE), Next::Wait(Some(T0.plus(HOUR))));
        assert_eq!(look(&asked, HOUR), Next::LookUp);
    }

    #[test]
    fn an_email_that_asks_for_it_is_resent_once_after_ten_minutes() {
        let look = |handoff: &Handoff, ms: i64| next(handoff, OnUnknown::Resend, way(Recovery::None), T0.plus(ms));
        let due = T0.plus(RESEND_AFTER_MS);
        assert_eq!(look(&lost(), 0), Next::Wait(Some(due)));
        assert_eq!(look(&lost(), RESEND_AFTER_MS), Next::Resend);
        let resent = Handoff { work: Work { resent: true, ..lost().work }, ..lost() };
        assert_eq!(look(&resent, RESEND_AFTER_MS), Next::Wait(None));
        assert_eq!(next(&lost(), OnUnknown::Hold, way(Recovery::None), due), Next::Wait(None));
    }

    #[test]
    fn a_next_hop_that_knows_nothing_does_not_keep_an_email_from_being_resent() {
        let ask = Recovery::LookUp { settle_ms: MINUTE };
        let look = |handoff: &Handoff, ms: i64| next(handoff, OnUnknown::Resend, way(ask), T0.plus(ms));
        assert_eq!(look(&lost(), RESEND_AFTER_MS), Next::LookUp, "it is asked at least once before");
        let asked = Handoff { work: Work { asked: 1, ..lost().work }, ..lost() };
        assert_eq!(look_again_at(&asked, OnUnknown::Resend, T0.plus(6 * MINUTE)), T0.plus(RESEND_AFTER_MS));
        assert_eq!(look(&asked, 6 * MINUTE), Next::LookUp);
        assert_eq!(look(&asked, RESEND_AFTER_MS), Next::Resend);
    }

    #[test]
    fn pauses_between_looks_grow_to_a_bound() {
        let asked = |asked| Handoff { work: Work { asked, ..lost().work }, ..lost() };
        assert_eq!(look_again_at(&asked(0), OnUnknown::Hold, T0), T0.plus(5 * MINUTE));
        assert_eq!(look_again_at(&asked(1), OnUnknown::Hold, T0), T0.plus(10 * MINUTE));
        assert_eq!(look_again_at(&asked(u32::MAX), OnUnknown::Hold, T0), T0.plus(6 * HOUR));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_is_repeated_or_resent_that_must_not_be(
            (same, sure, puzzling, resent, wishes) in any::<(bool, bool, bool, bool, bool)>(),
            (window, patience, now, due) in (0..30 * HOUR, 0..HOUR, -HOUR..40 * HOUR, proptest::option::of(0..40 * HOUR)),
            (recovery, measured) in (0..3_u8, -HOUR..HOUR),
            (behind, ahead) in (0..2 * HOUR, 0..2 * HOUR),
        ) {
            let mut handoff = lost();
            handoff.due_at = due.map(|ms| T0.plus(ms));
            (handoff.work.puzzling, handoff.work.resent) = (puzzling, resent);
            let recovery = match recovery {
                0 => Recovery::Key { window_ms: window },
                1 => Recovery::LookUp { settle_ms: window },
                _ => Recovery::None,
            };
            let account = if same { "A" } else { "B" };
            let (earlier, later) = (sure.then(|| T0.plus(now - behind)), T0.plus(now + ahead));
            let way =
                Way { recovery, patience_ms: patience, account, earlier, later, measured_since: T0.plus(measured) };
            let policy = if wishes { OnUnknown::Resend } else { OnUnknown::Hold };

            match next(&handoff, policy, way, T0.plus(now)) {
                Next::Repeat => {
                    let keyed = matches!(recovery, Recovery::Key { .. });
                    prop_assert!(keyed && same && sure && !puzzling && measured <= 0);
                    prop_assert!(now + ahead + patience < window - 3 * MINUTE, "the window may be closed when it arrives");
                }
                Next::Resend => prop_assert!(wishes && !resent && sure && !puzzling && now - behind >= RESEND_AFTER_MS),
                Next::LookUp => {
                    let can_ask = matches!(recovery, Recovery::LookUp { .. });
                    prop_assert!(can_ask && !puzzling);
                }
                Next::Wait(at) => prop_assert!(!puzzling || at.is_none()),
            }
        }
    }
}
