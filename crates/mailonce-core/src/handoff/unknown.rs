//! Recovery of a handoff whose outcome is unknown.
//!
//! Without a person, only three actions are possible: repeat the attempt with the same key at the same account while
//! the provider surely remembers the key, query the provider, or follow the email's own `on_unknown` policy. A look-up
//! without a hit never proves that the email was not sent.

use crate::{
    handoff::{Handoff, capabilities::RecoveryMethod},
    mutant,
    outbound::email::OnUnknown,
    time::Time,
};

/// How long an email with the policy `resend` waits for evidence first, in milliseconds.
pub const RESEND_AFTER_MS: i64 = 10 * 60_000;
/// For how long the next hop is queried, in milliseconds.
const LOOK_UP_PERIOD_MS: i64 = 72 * 3_600_000;
/// The pause after the first look-up, which doubles each time, in milliseconds.
const LOOK_UP_INTERVAL_MS: i64 = 5 * 60_000;
/// The longest pause between two look-ups, in milliseconds.
const MAX_LOOK_UP_INTERVAL_MS: i64 = 6 * 3_600_000;

/// How soon to check again while the wall clock is not trusted, in milliseconds.
const UNCERTAIN_CLOCK_RETRY_MS: i64 = 60_000;

/// The next action for an unknown handoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryAction {
    /// Repeat the attempt with the same key, now.
    RetryInWindow,
    /// Query the next hop, now.
    LookUp,
    /// Send the same bytes again, once, as the email's policy asks.
    Resend,
    /// Wait until this time. `None`: wait for evidence or a person.
    Wait(Option<Time>),
}

/// What is known about the transport of an unknown handoff, and about the clocks.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryContext<'a> {
    /// The recovery method of the transport.
    pub recovery: RecoveryMethod,
    /// The longest duration of an attempt, in milliseconds.
    pub timeout_ms: i64,
    /// The transport's current account.
    pub account: &'a str,
    /// The earlier of node time and database time; it decides policies. `None` while the clocks are not trusted; then a
    /// window counts as closed, too.
    pub earlier_clock: Option<Time>,
    /// The later of node time and database time; it decides whether a window is open.
    pub later_clock: Time,
    /// Since when elapsed time can be measured reliably. A window that opened earlier counts as closed.
    pub ages_reliable_since: Time,
}

/// The next action for a handoff in doubt at `now`. Only a process that has its transport may call this: other
/// processes do not know what the next hop remembers.
pub fn next_recovery_action(
    handoff: &Handoff,
    on_unknown: OnUnknown,
    context: RecoveryContext<'_>,
    now: Time,
) -> RecoveryAction {
    let work = &handoff.progress;
    if work.needs_person {
        return RecoveryAction::Wait(None);
    }
    let since = work.in_doubt_since.unwrap_or(now);
    let mut looks = [
        transport_recovery(handoff, context, since, now),
        policy_recovery(handoff, on_unknown, since, now, context.earlier_clock),
    ];
    // After one look-up without a hit, the email's resend policy takes precedence over further look-ups.
    if work.unknown_checks > 0 && looks == [Some(RecoveryAction::LookUp), Some(RecoveryAction::Resend)] {
        looks.reverse();
    }
    let mut wait: Option<Time> = None;
    for look in looks.into_iter().flatten() {
        match look {
            RecoveryAction::Wait(Some(at)) => wait = Some(wait.map_or(at, |other| other.min(at))),
            RecoveryAction::Wait(None) => {}
            now => return now,
        }
    }
    RecoveryAction::Wait(wait)
}

/// Whether the next hop surely still remembers the key of the first attempt in doubt.
pub fn is_key_window_open(handoff: &Handoff, context: RecoveryContext<'_>, now: Time) -> bool {
    let RecoveryMethod::IdempotencyKey { window_ms } = context.recovery else { return false };
    let same_account = handoff.progress.account.as_deref() == Some(context.account);
    let measured = |since: &Time| *since >= context.ages_reliable_since || mutant!("window-unmeasured");
    let opened = handoff.progress.in_doubt_since.filter(measured);
    let closes = opened.map(|since| since.plus(window_ms - RecoveryMethod::window_margin_ms(window_ms)));
    (context.earlier_clock.is_some() || mutant!("window-while-unsure"))
        && same_account
        && closes.is_some_and(|closes| now.max(context.later_clock).plus(context.timeout_ms) < closes)
}

fn transport_recovery(
    handoff: &Handoff,
    context: RecoveryContext<'_>,
    since: Time,
    now: Time,
) -> Option<RecoveryAction> {
    let asked = handoff.progress.unknown_checks;
    match context.recovery {
        RecoveryMethod::IdempotencyKey { .. } if is_key_window_open(handoff, context, now) => {
            let due = handoff.due_at.unwrap_or(now);
            Some(if due <= now { RecoveryAction::RetryInWindow } else { RecoveryAction::Wait(Some(due)) })
        }
        // The window may turn out to be open once the clocks are trusted again.
        RecoveryMethod::IdempotencyKey { .. }
            if is_key_window_open(handoff, RecoveryContext { earlier_clock: Some(now), ..context }, now) =>
        {
            Some(RecoveryAction::Wait(Some(now.plus(UNCERTAIN_CLOCK_RETRY_MS))))
        }
        RecoveryMethod::LookUp { settle_delay_ms: settle_ms } if now.since(since) < LOOK_UP_PERIOD_MS => {
            let first = since.plus(settle_ms);
            let due = if asked == 0 { first } else { handoff.due_at.unwrap_or(now).max(first) };
            if due > now {
                return Some(RecoveryAction::Wait(Some(due)));
            }
            Some(RecoveryAction::LookUp)
        }
        _ => None,
    }
}

fn policy_recovery(
    handoff: &Handoff,
    on_unknown: OnUnknown,
    since: Time,
    now: Time,
    earlier: Option<Time>,
) -> Option<RecoveryAction> {
    if on_unknown != OnUnknown::Resend || handoff.progress.resent {
        return None;
    }
    let due = since.plus(RESEND_AFTER_MS);
    match earlier.map(|earlier| earlier.min(now)) {
        Some(earlier) if due <= earlier => Some(RecoveryAction::Resend),
        // The deciding clock is behind ledger time by a known amount, so wait that much longer.
        Some(earlier) => Some(RecoveryAction::Wait(Some(now.plus(due.since(earlier))))),
        // The delay cannot be measured while the clocks are not trusted.
        None if due <= now => Some(RecoveryAction::Wait(Some(now.plus(UNCERTAIN_CLOCK_RETRY_MS)))),
        None => Some(RecoveryAction::Wait(Some(due))),
    }
}

/// When to check again after a look-up without a hit: for the next look-up, or for the resend that the policy asks for.
pub fn next_look_up_at(handoff: &Handoff, on_unknown: OnUnknown, now: Time) -> Time {
    let next_look_up =
        now.plus((LOOK_UP_INTERVAL_MS << handoff.progress.unknown_checks.min(10)).min(MAX_LOOK_UP_INTERVAL_MS));
    let may_resend = on_unknown == OnUnknown::Resend && !handoff.progress.resent;
    let resend =
        handoff.progress.in_doubt_since.filter(|_| may_resend).map(|since| since.plus(RESEND_AFTER_MS).max(now));
    resend.map_or(next_look_up, |resend| resend.min(next_look_up))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handoff::{HandoffProgress, HandoffState};
    use proptest::prelude::*;

    const T0: Time = Time(1_731_628_800_000);
    const MINUTE: i64 = 60_000;
    const HOUR: i64 = 60 * MINUTE;
    const KEY: RecoveryMethod = RecoveryMethod::IdempotencyKey { window_ms: 24 * HOUR };

    /// A handoff in doubt since `T0` at account A.
    fn lost() -> Handoff {
        let work = HandoffProgress {
            attempts_in_doubt: vec![1],
            in_doubt_since: Some(T0),
            account: Some("A".into()),
            ..HandoffProgress::default()
        };
        Handoff {
            number: 0,
            transport: "relay".into(),
            recipients: Vec::new(),
            state: HandoffState::Unknown,
            due_at: Some(T0),
            attempts: 1,
            fence: 1,
            holder: None,
            progress: work,
            parked_by: None,
        }
    }

    /// A transport whose clocks agree with `now`.
    fn context(recovery: RecoveryMethod) -> RecoveryContext<'static> {
        let (earlier, later) = (Some(Time(i64::MAX)), Time(0));
        RecoveryContext {
            recovery,
            timeout_ms: 30_000,
            account: "A",
            earlier_clock: earlier,
            later_clock: later,
            ages_reliable_since: Time(0),
        }
    }

    #[test]
    fn a_key_is_repeated_while_its_window_is_surely_open() {
        let look = |ms: i64| next_recovery_action(&lost(), OnUnknown::Hold, context(KEY), T0.plus(ms));
        let closes = 24 * HOUR - 30 * MINUTE - 30_000;
        assert_eq!(look(0), RecoveryAction::RetryInWindow);
        assert_eq!(look(closes - 1), RecoveryAction::RetryInWindow);
        assert_eq!(look(closes), RecoveryAction::Wait(None));
        let later = Handoff { due_at: Some(T0.plus(5)), ..lost() };
        assert_eq!(
            next_recovery_action(&later, OnUnknown::Hold, context(KEY), T0),
            RecoveryAction::Wait(Some(T0.plus(5)))
        );
    }

    #[test]
    fn an_open_window_is_not_given_up_while_time_is_not_sure() {
        let unsure = RecoveryContext { earlier_clock: None, ..context(KEY) };
        let look = |ms: i64| next_recovery_action(&lost(), OnUnknown::Hold, unsure, T0.plus(ms));
        assert_eq!(look(HOUR), RecoveryAction::Wait(Some(T0.plus(HOUR + MINUTE))));
        assert_eq!(look(24 * HOUR), RecoveryAction::Wait(None));
        let set_back = RecoveryContext { ages_reliable_since: T0.plus(1), ..context(KEY) };
        assert_eq!(next_recovery_action(&lost(), OnUnknown::Hold, set_back, T0.plus(HOUR)), RecoveryAction::Wait(None));
    }

    #[test]
    fn a_next_hop_is_asked_after_it_settled_and_for_three_days() {
        let next_look_up = RecoveryMethod::LookUp { settle_delay_ms: 5 * MINUTE };
        let look = |handoff: &Handoff, ms: i64| {
            next_recovery_action(handoff, OnUnknown::Hold, context(next_look_up), T0.plus(ms))
        };
        assert_eq!(look(&lost(), 0), RecoveryAction::Wait(Some(T0.plus(5 * MINUTE))));
        assert_eq!(look(&lost(), 5 * MINUTE), RecoveryAction::LookUp);
        assert_eq!(look(&lost(), 72 * HOUR), RecoveryAction::Wait(None));
        let asked = Handoff {
            due_at: Some(T0.plus(HOUR)),
            progress: HandoffProgress { unknown_checks: 1, ..lost().progress },
            ..lost()
        };
        assert_eq!(look(&asked, 5 * MINUTE), RecoveryAction::Wait(Some(T0.plus(HOUR))));
        assert_eq!(look(&asked, HOUR), RecoveryAction::LookUp);
    }

    #[test]
    fn an_email_that_asks_for_it_is_resent_once_after_ten_minutes() {
        let look = |handoff: &Handoff, ms: i64| {
            next_recovery_action(handoff, OnUnknown::Resend, context(RecoveryMethod::None), T0.plus(ms))
        };
        let due = T0.plus(RESEND_AFTER_MS);
        assert_eq!(look(&lost(), 0), RecoveryAction::Wait(Some(due)));
        assert_eq!(look(&lost(), RESEND_AFTER_MS), RecoveryAction::Resend);
        let resent = Handoff { progress: HandoffProgress { resent: true, ..lost().progress }, ..lost() };
        assert_eq!(look(&resent, RESEND_AFTER_MS), RecoveryAction::Wait(None));
        assert_eq!(
            next_recovery_action(&lost(), OnUnknown::Hold, context(RecoveryMethod::None), due),
            RecoveryAction::Wait(None)
        );
    }

    #[test]
    fn a_next_hop_that_knows_nothing_does_not_keep_an_email_from_being_resent() {
        let next_look_up = RecoveryMethod::LookUp { settle_delay_ms: MINUTE };
        let look = |handoff: &Handoff, ms: i64| {
            next_recovery_action(handoff, OnUnknown::Resend, context(next_look_up), T0.plus(ms))
        };
        assert_eq!(look(&lost(), RESEND_AFTER_MS), RecoveryAction::LookUp, "it is asked at least once before");
        let asked = Handoff { progress: HandoffProgress { unknown_checks: 1, ..lost().progress }, ..lost() };
        assert_eq!(next_look_up_at(&asked, OnUnknown::Resend, T0.plus(6 * MINUTE)), T0.plus(RESEND_AFTER_MS));
        assert_eq!(look(&asked, 6 * MINUTE), RecoveryAction::LookUp);
        assert_eq!(look(&asked, RESEND_AFTER_MS), RecoveryAction::Resend);
    }

    #[test]
    fn pauses_between_looks_grow_to_a_bound() {
        let asked =
            |asked| Handoff { progress: HandoffProgress { unknown_checks: asked, ..lost().progress }, ..lost() };
        assert_eq!(next_look_up_at(&asked(0), OnUnknown::Hold, T0), T0.plus(5 * MINUTE));
        assert_eq!(next_look_up_at(&asked(1), OnUnknown::Hold, T0), T0.plus(10 * MINUTE));
        assert_eq!(next_look_up_at(&asked(u32::MAX), OnUnknown::Hold, T0), T0.plus(6 * HOUR));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_is_repeated_or_resent_that_must_not_be(
            (same, sure, puzzling, resent, may_resend) in any::<(bool, bool, bool, bool, bool)>(),
            (window, patience, now, due) in (0..30 * HOUR, 0..HOUR, -HOUR..40 * HOUR, proptest::option::of(0..40 * HOUR)),
            (recovery, measured) in (0..3_u8, -HOUR..HOUR),
            (behind, ahead) in (0..2 * HOUR, 0..2 * HOUR),
        ) {
            let mut handoff = lost();
            handoff.due_at = due.map(|ms| T0.plus(ms));
            (handoff.progress.needs_person, handoff.progress.resent) = (puzzling, resent);
            let recovery = match recovery {
                0 => RecoveryMethod::IdempotencyKey { window_ms: window },
                1 => RecoveryMethod::LookUp { settle_delay_ms: window },
                _ => RecoveryMethod::None,
            };
            let account = if same { "A" } else { "B" };
            let (earlier, later) = (sure.then(|| T0.plus(now - behind)), T0.plus(now + ahead));
            let context =
                RecoveryContext { recovery, timeout_ms: patience, account, earlier_clock: earlier, later_clock: later, ages_reliable_since: T0.plus(measured) };
            let policy = if may_resend { OnUnknown::Resend } else { OnUnknown::Hold };

            match next_recovery_action(&handoff, policy, context, T0.plus(now)) {
                RecoveryAction::RetryInWindow => {
                    let keyed = matches!(recovery, RecoveryMethod::IdempotencyKey { .. });
                    prop_assert!(keyed && same && sure && !puzzling && measured <= 0);
                    prop_assert!(now + ahead + patience < window - 3 * MINUTE, "the window may be closed when it arrives");
                }
                RecoveryAction::Resend => prop_assert!(may_resend && !resent && sure && !puzzling && now - behind >= RESEND_AFTER_MS),
                RecoveryAction::LookUp => {
                    let can_ask = matches!(recovery, RecoveryMethod::LookUp { .. });
                    prop_assert!(can_ask && !puzzling);
                }
                RecoveryAction::Wait(at) => prop_assert!(!puzzling || at.is_none()),
            }
        }
    }
}
