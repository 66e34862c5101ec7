//! Promises about budgets: limits of emails or recipients per period, counted in the accept transaction.

use mailonce_core::{
    control::{
        budget::{AtLimit, Charge, ExceededBudget, USAGE_RETENTION_MS},
        contact::ContactHash,
    },
    conversation::reply_guards::ReplyResult,
    handoff::{
        action::{HandoffAction, HandoffActionStatus, HoldRelease},
        reply::ReplyMeaning,
    },
    id::{EmailId, TeamId},
    operation::IdempotentResult,
    outbound::{
        accept::{AcceptResult, BatchAcceptResult, NewBatch},
        email::{Email, EmailChangeRefusal, EmailState, Guard},
        email_commands::{EmailChangeResult, EmailResendResult, RescheduleRequest},
    },
    time::Time,
};

use crate::conformance::{
    DAY, EmailFixture, HOUR, MINUTE, OTHER_TEAM, SANDBOX, T0, TEAM, TestStore, accept_and_send, accept_batch_items,
    accept_email, accept_first, accept_replay, all_at_once, all_events, cancel_email, expect_bound_email, expect_first,
    fixtures::conversations::{accept_reply, expect_accepted, inbox_with_message, load_message, reply_with},
    fixtures::emails::charge_at,
    fixtures::handoffs::{WIRE_BYTES, accept_and_lease, accept_and_mark, apply_action, marker_action, record_attempt},
    keyed_email, keyless_batch, keyless_email, list_all, load_email, new_operation, next_version,
};

/// A charge of one email against a limit per hour.
fn one_email_per_hour(limit: u64, at: Time) -> Charge {
    charge_at(7, 1, limit, HOUR, at)
}

async fn usage_of(store: &TestStore, team: TeamId, charge: &Charge) -> u64 {
    store.budget_usage(team, vec![charge.counter()]).await.unwrap()[0]
}

fn expect_over_budget(answer: AcceptResult) -> ExceededBudget {
    match answer {
        AcceptResult::OverBudget(exceeded) => exceeded,
        other => panic!("{other:?}"),
    }
}

fn batch_of(fixtures: &[EmailFixture], strict: bool) -> NewBatch {
    let new_emails: Vec<_> = fixtures.iter().map(|fixture| fixture.to_new_email(T0)).collect();
    NewBatch { strict, ..keyless_batch(&new_emails) }
}

pub(super) async fn an_email_over_budget_is_refused_and_leaves_nothing(store: TestStore) {
    let charge = one_email_per_hour(2, T0);
    let _one = accept_first(&store, &keyed_email("a").with_charge(charge.clone()), T0).await;
    let _two = accept_first(&store, &keyless_email().with_charge(charge.clone()), T0).await;
    let event_count = all_events(&store, TEAM).await.len();

    for fixture in [keyed_email("c"), keyless_email()] {
        let exceeded = expect_over_budget(accept_email(&store, &fixture.with_charge(charge.clone()), T0).await);
        assert_eq!((exceeded.used, exceeded.charge), (2, charge.clone()));
    }

    assert_eq!((list_all(&store, TEAM).await.len(), all_events(&store, TEAM).await.len()), (2, event_count));
    assert_eq!(usage_of(&store, TEAM, &charge).await, 2);
    // The key is still free, and the next hour has room.
    let later = T0.plus(HOUR);
    let email = accept_first(&store, &keyed_email("c").with_charge(one_email_per_hour(2, later)), later).await;
    assert_eq!((email.state(), email.bind_number), (EmailState::Queued, 1));
}

pub(super) async fn a_retry_is_never_refused_by_a_budget(store: TestStore) {
    let fixture = keyed_email("k").with_charge(one_email_per_hour(1, T0));
    let email = accept_first(&store, &fixture, T0).await;
    assert_eq!(accept_replay(&store, &fixture, T0).await, email);
    // The same holds for a retry with other content, and for a retry in a batch with a refused item.
    assert_eq!(accept_replay(&store, &fixture.clone().text("other"), T0).await, email);
    let answers = accept_batch_items(
        &store,
        batch_of(&[keyless_email().with_charge(one_email_per_hour(1, T0)), fixture], false),
        T0,
    )
    .await;
    let [over, again] = &answers[..] else { panic!() };
    assert_eq!((expect_over_budget(over.clone()).used, expect_bound_email(again.clone()).id), (1, email.id));
    assert_eq!(usage_of(&store, TEAM, &one_email_per_hour(1, T0)).await, 1);
}

pub(super) async fn every_budget_must_have_room(store: TestStore) {
    let (mails, recipients) = (charge_at(1, 1, 5, MINUTE, T0), charge_at(2, 30, 50, HOUR, T0));
    let fixture = || keyless_email().with_charge(mails.clone()).with_charge(recipients.clone());
    let _first = accept_first(&store, &fixture(), T0).await;
    let exceeded = expect_over_budget(accept_email(&store, &fixture(), T0).await);
    assert_eq!((exceeded.charge, exceeded.used), (recipients.clone(), 30));
    // The budget that had room is not charged either.
    assert_eq!((usage_of(&store, TEAM, &mails).await, usage_of(&store, TEAM, &recipients).await), (1, 30));
}

pub(super) async fn a_strict_batch_that_exceeds_a_budget_is_refused_whole(store: TestStore) {
    let fixture = |n: u32| keyless_email().batch_item("b", n).with_charge(one_email_per_hour(2, T0));
    let three = NewBatch {
        operation: Some(new_operation("b", 1, T0)),
        ..batch_of(&[fixture(0), fixture(1), fixture(2)], true)
    };
    let BatchAcceptResult::OverBudget(2, exceeded) = store.accept_batch(three, T0).await.unwrap() else { panic!() };
    assert_eq!(exceeded.used, 2, "the two items before it");
    assert!(list_all(&store, TEAM).await.is_empty() && all_events(&store, TEAM).await.is_empty());
    assert_eq!(usage_of(&store, TEAM, &one_email_per_hour(2, T0)).await, 0);
    // The key of the batch is free for another one.
    let two = NewBatch { operation: Some(new_operation("b", 2, T0)), ..batch_of(&[fixture(0), fixture(1)], true) };
    assert_eq!(accept_batch_items(&store, two.clone(), T0).await.into_iter().map(expect_first).count(), 2);
    assert_eq!(
        accept_batch_items(&store, two, T0).await.into_iter().map(expect_bound_email).count(),
        2,
        "a retry is not charged"
    );
    assert_eq!(usage_of(&store, TEAM, &one_email_per_hour(2, T0)).await, 2);
}

pub(super) async fn a_permissive_batch_is_accepted_as_far_as_the_budget_goes(store: TestStore) {
    let fixtures: Vec<EmailFixture> =
        (0..4).map(|n| keyless_email().batch_item("b", n).with_charge(one_email_per_hour(2, T0))).collect();
    let answers = accept_batch_items(&store, batch_of(&fixtures, false), T0).await;
    let accepted: Vec<bool> = answers.iter().map(|answer| matches!(answer, AcceptResult::First(_))).collect();
    assert_eq!(accepted, [true, true, false, false]);
    assert_eq!(expect_over_budget(answers[3].clone()).used, 2);
    // A retry in the next hour sends the rest, and only the rest.
    let later = T0.plus(HOUR);
    let fixtures: Vec<_> = (0..4)
        .map(|n| keyless_email().batch_item("b", n).with_charge(one_email_per_hour(2, later)).to_new_email(later))
        .collect();
    let answers = accept_batch_items(&store, keyless_batch(&fixtures), later).await;
    let accepted: Vec<bool> = answers.iter().map(|answer| matches!(answer, AcceptResult::First(_))).collect();
    assert_eq!(accepted, [false, false, true, true]);
}

pub(super) async fn a_repeated_item_of_a_batch_counts_once(store: TestStore) {
    let fixture = || keyed_email("k").with_charge(one_email_per_hour(1, T0));
    let answers = accept_batch_items(&store, batch_of(&[fixture(), fixture(), fixture()], true), T0).await;
    assert!(
        matches!(answers[..], [AcceptResult::First(_), AcceptResult::KeyBound(_), AcceptResult::KeyBound(_)]),
        "{answers:?}"
    );
    assert_eq!(usage_of(&store, TEAM, &one_email_per_hour(1, T0)).await, 1);
}

pub(super) async fn a_resend_is_charged_and_one_over_budget_changes_nothing(store: TestStore) {
    let email = accept_and_send(&store, &keyed_email("k").with_charge(one_email_per_hour(2, T0)), T0).await;
    let again = store
        .resend(next_version(&email).with_charge(one_email_per_hour(2, T0)).to_new_email(T0), None, T0)
        .await
        .unwrap();
    assert!(matches!(again, IdempotentResult::Done(EmailResendResult::First(_))), "{again:?}");
    assert_eq!(usage_of(&store, TEAM, &one_email_per_hour(2, T0)).await, 2);

    let held = accept_first(&store, &keyless_email().held(Guard::Approval), T0).await;
    let event_count = all_events(&store, TEAM).await.len();
    let mut resend = next_version(&held).with_charge(one_email_per_hour(2, T0)).to_new_email(T0);
    resend.guard_input.cancels_previous = true;
    let refused = store.resend(resend, Some(new_operation("op", 1, T0)), T0).await.unwrap();
    assert!(
        matches!(&refused, IdempotentResult::Done(EmailResendResult::OverBudget(exceeded)) if exceeded.used == 2),
        "{refused:?}"
    );
    assert_eq!(load_email(&store, held.id).await, held, "still held");
    assert_eq!(all_events(&store, TEAM).await.len(), event_count);
    let _free = accept_first(&store, &keyed_email("op"), T0).await;
}

pub(super) async fn a_reply_is_charged_and_one_over_budget_leaves_its_slot_free(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let reply = |limit| reply_with(&message, &keyless_email().with_charge(one_email_per_hour(limit, T0)), T0);
    let before = load_message(&store, message.id).await;
    let refused = accept_reply(&store, reply(0), T0).await;
    assert!(matches!(&refused, ReplyResult::OverBudget(exceeded) if exceeded.used == 0), "{refused:?}");
    assert_eq!(load_message(&store, message.id).await, before);
    let email = expect_accepted(accept_reply(&store, reply(1), T0).await);
    assert_eq!(usage_of(&store, TEAM, &one_email_per_hour(1, T0)).await, 1);
    // A second reply returns the first one, whatever the budget.
    let again = accept_reply(&store, reply(1), T0).await;
    assert!(matches!(again, ReplyResult::AlreadyAnswered(id, ..) if id == email.id), "{again:?}");
}

pub(super) async fn budgets_of_teams_are_separate(store: TestStore) {
    let fixture = || keyless_email().with_charge(one_email_per_hour(1, T0));
    let _mine = accept_first(&store, &fixture(), T0).await;
    let _theirs = accept_first(&store, &fixture().team(OTHER_TEAM), T0).await;
    for team in [TEAM, OTHER_TEAM] {
        assert_eq!(expect_over_budget(accept_email(&store, &fixture().team(team), T0).await).used, 1);
        assert_eq!(usage_of(&store, team, &one_email_per_hour(1, T0)).await, 1);
    }
    let counters = vec![one_email_per_hour(1, T0.plus(HOUR)).counter(), one_email_per_hour(1, T0).counter()];
    assert_eq!(store.budget_usage(TEAM, counters).await.unwrap(), [0, 1], "in the order of the counters");
}

pub(super) async fn an_ended_period_is_swept_after_two_days(store: TestStore) {
    let charge = one_email_per_hour(3, T0);
    let _email = accept_first(&store, &keyless_email().with_charge(charge.clone()), T0).await;
    let ended = charge.ends_at.plus(USAGE_RETENTION_MS);
    let _kept = store.sweep(100, ended.plus(-1)).await.unwrap();
    assert_eq!(usage_of(&store, TEAM, &charge).await, 1);
    let _dropped = store.sweep(100, ended).await.unwrap();
    assert_eq!(usage_of(&store, TEAM, &charge).await, 0);
}

pub(super) async fn of_64_concurrent_sends_only_as_many_are_accepted_as_the_budget_allows(store: TestStore) {
    let send = |n: usize| {
        let fixture = if n.is_multiple_of(2) { keyless_email() } else { keyed_email(&format!("k{n}")) };
        let (new_email, store) = (fixture.with_charge(one_email_per_hour(20, T0)).to_new_email(T0), store.clone());
        async move {
            match n % 4 {
                0 => accept_batch_items(&store, keyless_batch(&[new_email]), T0).await.remove(0),
                _ => store.accept(new_email, T0).await.unwrap(),
            }
        }
    };
    let answers = all_at_once((0..64).map(send)).await;
    let accepted = answers.iter().filter(|answer| matches!(answer, AcceptResult::First(_))).count();
    let over = answers.iter().filter(|answer| matches!(answer, AcceptResult::OverBudget(_))).count();
    assert_eq!((accepted, over), (20, 44));
    assert_eq!(
        (list_all(&store, TEAM).await.len(), usage_of(&store, TEAM, &one_email_per_hour(20, T0)).await),
        (20, 20)
    );
}

/// An email that is due at this time and charged to its hour.
async fn schedule_email(store: &TestStore, limit: u64, due: Time) -> Email {
    accept_first(store, &keyless_email().due(due).with_charge(one_email_per_hour(limit, due)), T0).await
}

/// Reschedules an email and charges it to the hour of its new time.
async fn reschedule(store: &TestStore, id: EmailId, limit: u64, due: Time, now: Time) -> EmailChangeResult {
    let new = RescheduleRequest { due_at: due, charges: vec![one_email_per_hour(limit, due.max(now))] };
    store.reschedule(TEAM, id, new, now).await.unwrap()
}

fn expect_changed(answer: EmailChangeResult) -> Email {
    match answer {
        EmailChangeResult::Changed(email) => email,
        other => panic!("{other:?}"),
    }
}

/// The usage of three hours, given by their distance from the first hour.
async fn usage_in_hours(store: &TestStore, hours: [i64; 3]) -> [u64; 3] {
    let counters = hours.map(|hours| one_email_per_hour(0, T0.plus(hours * HOUR)).counter());
    store.budget_usage(TEAM, counters.to_vec()).await.unwrap().try_into().unwrap()
}

pub(super) async fn rescheduling_moves_the_budget_charge(store: TestStore) {
    let email = schedule_email(&store, 1, T0.plus(HOUR)).await;
    assert_eq!(usage_in_hours(&store, [0, 1, 2]).await, [0, 1, 0]);
    let later = expect_changed(reschedule(&store, email.id, 1, T0.plus(2 * HOUR), T0).await);
    assert_eq!(later.handoffs[0].due_at, Some(T0.plus(2 * HOUR)));
    assert_eq!(usage_in_hours(&store, [0, 1, 2]).await, [0, 0, 1]);
    // A time in the past is charged to the current hour.
    let _now = expect_changed(reschedule(&store, email.id, 1, T0.plus(-HOUR), T0).await);
    assert_eq!(usage_in_hours(&store, [0, 1, 2]).await, [1, 0, 0]);
    // A second reschedule to the same time is not charged twice.
    let _again = expect_changed(reschedule(&store, email.id, 1, T0, T0).await);
    assert_eq!(usage_in_hours(&store, [-1, 0, 1]).await, [0, 1, 0]);
    assert_eq!(
        expect_over_budget(accept_email(&store, &keyless_email().with_charge(one_email_per_hour(1, T0)), T0).await)
            .used,
        1
    );
    let _room = schedule_email(&store, 1, T0.plus(HOUR)).await;
}

pub(super) async fn a_reschedule_that_exceeds_a_budget_changes_nothing(store: TestStore) {
    let _now = accept_first(&store, &keyless_email().with_charge(one_email_per_hour(1, T0)), T0).await;
    let email = schedule_email(&store, 1, T0.plus(HOUR)).await;
    let event_count = all_events(&store, TEAM).await.len();
    // The minute has room, the hour does not.
    let (minute, hour) = (charge_at(1, 1, 5, MINUTE, T0), one_email_per_hour(1, T0));
    let new = RescheduleRequest { due_at: T0, charges: vec![minute.clone(), hour.clone()] };
    let refused = store.reschedule(TEAM, email.id, new, T0).await.unwrap();
    assert!(
        matches!(&refused, EmailChangeResult::OverBudget(exceeded) if exceeded.used == 1 && exceeded.charge == hour),
        "{refused:?}"
    );
    assert_eq!(
        (load_email(&store, email.id).await, all_events(&store, TEAM).await.len()),
        (email.clone(), event_count)
    );
    assert_eq!((usage_in_hours(&store, [0, 1, 2]).await, usage_of(&store, TEAM, &minute).await), ([1, 1, 0], 0));
    // An email that cannot be rescheduled is refused for that reason first.
    let cancelled = store.cancel(TEAM, email.id, None, T0).await.unwrap();
    let IdempotentResult::Done(EmailChangeResult::Changed(cancelled)) = cancelled else { panic!("{cancelled:?}") };
    let refused = reschedule(&store, email.id, 1, T0, T0).await;
    assert_eq!(refused, EmailChangeResult::Refused(EmailChangeRefusal::NotScheduled, cancelled));
    assert_eq!(usage_in_hours(&store, [0, 1, 2]).await, [1, 0, 0], "the cancelled email gave its place back");
}

pub(super) async fn a_reschedule_within_a_period_changes_no_counter(store: TestStore) {
    let hour = one_email_per_hour(2, T0).ends_at;
    let [email, _other] = [schedule_email(&store, 2, hour).await, schedule_email(&store, 2, hour).await];
    // The hour is full, and its limit was lowered since.
    for (limit, due) in [(2, hour.plus(HOUR - 1)), (1, hour.plus(MINUTE)), (0, hour)] {
        let _moved = expect_changed(reschedule(&store, email.id, limit, due, T0).await);
        assert_eq!(usage_in_hours(&store, [0, 1, 2]).await, [0, 2, 0]);
    }
}

pub(super) async fn an_uncharged_email_refunds_nothing(store: TestStore) {
    let email = accept_first(&store, &keyless_email().due(T0.plus(HOUR)), T0).await;
    let _counted = schedule_email(&store, 9, T0.plus(HOUR)).await;
    let _same_hour = expect_changed(reschedule(&store, email.id, 9, T0.plus(HOUR + 1), T0).await);
    assert_eq!(usage_in_hours(&store, [0, 1, 2]).await, [0, 1, 0]);
    let _moved = expect_changed(reschedule(&store, email.id, 9, T0, T0).await);
    assert_eq!(usage_in_hours(&store, [0, 1, 2]).await, [1, 1, 0]);
    // From now on it is charged, and a reschedule refunds the charge.
    let _back = expect_changed(reschedule(&store, email.id, 9, T0.plus(2 * HOUR), T0).await);
    assert_eq!(usage_in_hours(&store, [0, 1, 2]).await, [0, 1, 1]);
}

pub(super) async fn an_ended_period_gets_no_refund(store: TestStore) {
    let [one, two] = [schedule_email(&store, 9, T0.plus(HOUR)).await, schedule_email(&store, 9, T0.plus(HOUR)).await];
    let ended = one_email_per_hour(9, T0.plus(HOUR)).ends_at;
    let _in_time = expect_changed(reschedule(&store, one.id, 9, ended, ended.plus(-1)).await);
    assert_eq!(usage_in_hours(&store, [0, 1, 2]).await, [0, 1, 1]);
    let _late = expect_changed(reschedule(&store, two.id, 9, ended, ended).await);
    assert_eq!(usage_in_hours(&store, [0, 1, 2]).await, [0, 1, 2]);
}

pub(super) async fn a_partly_sent_email_keeps_its_charge_when_rescheduled(store: TestStore) {
    let due = T0.plus(MINUTE);
    let fixture = keyless_email()
        .to(&["a@example.com", "b@example.com"])
        .separate_envelopes()
        .due(due)
        .with_charge(one_email_per_hour(1, due));
    let email = accept_first(&store, &fixture, T0).await;
    assert_eq!(store.capture(SANDBOX, 1, Some(due), due).await.unwrap(), 1);
    let rest = expect_changed(reschedule(&store, email.id, 1, T0.plus(HOUR), due).await);
    assert_eq!(rest.state(), EmailState::Scheduled);
    assert_eq!(usage_in_hours(&store, [0, 1, 2]).await, [1, 1, 0]);
    let _again = expect_changed(reschedule(&store, email.id, 1, T0.plus(2 * HOUR), due).await);
    assert_eq!(usage_in_hours(&store, [0, 1, 2]).await, [1, 1, 1]);
}

pub(super) async fn of_32_concurrent_reschedules_only_as_many_succeed_as_the_budget_allows(store: TestStore) {
    let mut ids = Vec::new();
    for n in 0..32 {
        ids.push(schedule_email(&store, 32, T0.plus((1 + n % 2) * HOUR)).await.id);
    }
    let reschedule_one = |id: EmailId| {
        let store = store.clone();
        async move { reschedule(&store, id, 10, T0, T0).await }
    };
    let answers = all_at_once(ids.into_iter().map(reschedule_one)).await;
    let accepted = answers.iter().filter(|answer| matches!(answer, EmailChangeResult::Changed(_))).count();
    let over = answers.iter().filter(|answer| matches!(answer, EmailChangeResult::OverBudget(_))).count();
    let [now, next, last] = usage_in_hours(&store, [0, 1, 2]).await;
    assert_eq!((accepted, over, now, next + last), (10, 22, 10, 22));
}

/// A charge of one email against a limit per hour that holds email without room.
fn holding(limit: u64, at: Time) -> Charge {
    Charge { at_limit: AtLimit::Hold, ..one_email_per_hour(limit, at) }
}

/// Removes a hold of an email that counts against a limit per hour.
fn release_with(hold: Guard, charge: Charge, ignores_budgets: bool) -> HandoffAction {
    HandoffAction::Release(HoldRelease { hold, charges: vec![charge], ignores_budgets })
}

async fn held_by_budget(store: &TestStore) -> Vec<EmailId> {
    store.emails_held_by_budget(None, 100).await.unwrap().iter().map(|email| email.id).collect()
}

pub(super) async fn a_budget_without_room_holds_email_until_there_is_room(store: TestStore) {
    let _first = accept_first(&store, &keyed_email("a").with_charge(holding(1, T0)), T0).await;
    let held = accept_first(&store, &keyed_email("b").with_charge(holding(1, T0)), T0).await;
    assert_eq!((held.state(), held.guard), (EmailState::Held, Some(Guard::Budget)));
    assert_eq!((usage_of(&store, TEAM, &holding(1, T0)).await, held_by_budget(&store).await), (1, vec![held.id]));
    let (status, same) = apply_action(&store, held.id, release_with(Guard::Budget, holding(1, T0), false), T0).await;
    assert_eq!((status, &same), (HandoffActionStatus::Unchanged, &held));
    // The next hour has room.
    let later = T0.plus(HOUR);
    let (status, email) =
        apply_action(&store, held.id, release_with(Guard::Budget, holding(1, later), false), later).await;
    assert_eq!(
        (status, email.state(), load_email(&store, held.id).await),
        (HandoffActionStatus::Done, EmailState::Queued, email)
    );
    assert_eq!(usage_in_hours(&store, [0, 1, 2]).await, [1, 1, 0]);
    assert!(held_by_budget(&store).await.is_empty());
}

pub(super) async fn a_person_may_release_what_a_budget_holds(store: TestStore) {
    let held = accept_first(&store, &keyless_email().with_charge(holding(0, T0)), T0).await;
    let (_, email) = apply_action(&store, held.id, release_with(Guard::Budget, holding(0, T0), true), T0).await;
    assert_eq!((email.state(), usage_of(&store, TEAM, &holding(0, T0)).await), (EmailState::Queued, 1));
}

pub(super) async fn a_budget_that_flags_lets_email_leave(store: TestStore) {
    let charge = Charge { at_limit: AtLimit::Flag, ..one_email_per_hour(1, T0) };
    let [one, two] = ["a", "b"].map(|key| keyed_email(key).with_charge(charge.clone()));
    assert_eq!(accept_first(&store, &one, T0).await.guard, None);
    let flagged = accept_first(&store, &two, T0).await;
    assert_eq!((flagged.state(), flagged.guard), (EmailState::Queued, Some(Guard::Budget)));
    assert_eq!((load_email(&store, flagged.id).await, usage_of(&store, TEAM, &charge).await), (flagged, 2));
}

pub(super) async fn a_held_email_is_charged_when_it_is_released(store: TestStore) {
    let charge = holding(2, T0);
    let held = accept_first(&store, &keyed_email("k").held(Guard::Approval).with_charge(charge.clone()), T0).await;
    assert_eq!(usage_of(&store, TEAM, &charge).await, 0);
    let release = || release_with(Guard::Approval, charge.clone(), false);
    let _released = apply_action(&store, held.id, release(), T0).await;
    let _again = apply_action(&store, held.id, release(), T0).await;
    assert_eq!(usage_of(&store, TEAM, &charge).await, 1);
    // What was approved when the budget had no room any more waits for the budget.
    let other = accept_first(&store, &keyed_email("l").held(Guard::Approval).with_charge(charge.clone()), T0).await;
    let _last = accept_first(&store, &keyless_email().with_charge(charge.clone()), T0).await;
    let (_, email) = apply_action(&store, other.id, release(), T0).await;
    assert_eq!((email.state(), email.guard), (EmailState::Held, Some(Guard::Budget)));
    assert_eq!((usage_of(&store, TEAM, &charge).await, held_by_budget(&store).await), (2, vec![other.id]));
}

pub(super) async fn an_email_that_was_surely_not_sent_gives_its_charge_back_once(store: TestStore) {
    let charge = one_email_per_hour(9, T0);
    let refused = accept_and_mark(&store, &keyless_email().with_charge(charge.clone())).await;
    assert_eq!(usage_of(&store, TEAM, &charge).await, 1);
    for _ in 0..2 {
        let _failed = record_attempt(&store, &refused, ReplyMeaning::Refused, T0).await;
        assert_eq!(usage_of(&store, TEAM, &charge).await, 0);
    }
    let _sent = accept_and_send(&store, &keyless_email().with_charge(charge.clone()), T0).await;
    let cancelled = accept_first(&store, &keyless_email().with_charge(charge.clone()), T0).await;
    let _other = accept_first(&store, &keyless_email().with_charge(charge.clone()), T0).await;
    assert_eq!(usage_of(&store, TEAM, &charge).await, 3);
    for _ in 0..2 {
        let _cancelled = cancel_email(&store, cancelled.id, T0).await;
        assert_eq!(usage_of(&store, TEAM, &charge).await, 2);
    }
}

pub(super) async fn a_cancelled_email_gives_back_the_place_of_its_own_day(store: TestStore) {
    let (today, tomorrow) = (charge_at(7, 1, 9, DAY, T0), charge_at(7, 1, 9, DAY, T0.plus(DAY)));
    let email = accept_first(&store, &keyless_email().with_charge(today.clone()), T0).await;
    let _next = accept_first(&store, &keyless_email().with_charge(tomorrow.clone()), T0.plus(DAY)).await;
    let _cancelled = cancel_email(&store, email.id, T0.plus(DAY)).await;
    assert_eq!((usage_of(&store, TEAM, &today).await, usage_of(&store, TEAM, &tomorrow).await), (0, 1));
}

pub(super) async fn of_64_concurrent_sends_the_budget_holds_all_but_its_limit(store: TestStore) {
    let send = |n: usize| {
        let fixture = if n.is_multiple_of(2) { keyless_email() } else { keyed_email(&format!("k{n}")) };
        let (new_email, store) = (fixture.with_charge(holding(20, T0)).to_new_email(T0), store.clone());
        async move { expect_first(store.accept(new_email, T0).await.unwrap()) }
    };
    let emails = all_at_once((0..64).map(send)).await;
    let queued: Vec<&Email> = emails.iter().filter(|email| email.state() == EmailState::Queued).collect();
    let held = emails.iter().filter(|email| email.guard == Some(Guard::Budget)).count();
    assert_eq!((queued.len(), held, held_by_budget(&store).await.len()), (20, 44, 44));
    // Three give their places back; of all that wait for them, three get one.
    for email in queued.iter().take(3) {
        let _cancelled = cancel_email(&store, email.id, T0).await;
    }
    let release = |id: EmailId| {
        let store = store.clone();
        async move { apply_action(&store, id, release_with(Guard::Budget, holding(20, T0), false), T0).await }
    };
    let answers = all_at_once(held_by_budget(&store).await.into_iter().map(release)).await;
    assert_eq!(answers.iter().filter(|(status, _)| *status == HandoffActionStatus::Done).count(), 3);
    assert_eq!((usage_of(&store, TEAM, &holding(20, T0)).await, held_by_budget(&store).await.len()), (20, 41));
}

pub(super) async fn email_that_waits_for_a_budget_is_listed_in_order(store: TestStore) {
    let fixture = || keyless_email().with_charge(holding(0, T0));
    let theirs = accept_first(&store, &fixture().team(OTHER_TEAM), T0).await;
    let mut mine = Vec::new();
    for _ in 0..3 {
        mine.push(accept_first(&store, &fixture(), T0).await.id);
    }
    let _gone = cancel_email(&store, mine.remove(1), T0).await;
    let _approved = accept_first(&store, &keyless_email().held(Guard::Approval), T0).await;
    let mut found = Vec::new();
    while let page = store.emails_held_by_budget(found.last().copied(), 2).await.unwrap()
        && !page.is_empty()
    {
        assert!(page.len() <= 2 && found.len() < 4, "pages advance: {found:?}");
        found.extend(page.iter().map(|email| (email.team, email.id)));
    }
    let of_mine: Vec<EmailId> = found.iter().filter(|(team, _)| *team == TEAM).map(|(_, id)| *id).collect();
    assert_eq!((found.len(), of_mine), (3, mine));
    assert!(found.contains(&(OTHER_TEAM, theirs.id)));
}

const ANN: ContactHash = ContactHash([1; 16]);
const BOB: ContactHash = ContactHash([2; 16]);

async fn are_known(store: &TestStore, team: TeamId) -> [bool; 2] {
    store.known_contacts(team, vec![ANN, BOB]).await.unwrap().try_into().unwrap()
}

pub(super) async fn whom_an_email_leaves_to_is_a_contact_for_good(store: TestStore) {
    let job = accept_and_lease(&store, &keyless_email()).await;
    assert_eq!(are_known(&store, TEAM).await, [false, false]);
    let HandoffAction::Mark { lease, frozen_bytes, .. } = marker_action(&job, WIRE_BYTES) else { panic!() };
    let mark = |contacts: &[ContactHash]| HandoffAction::Mark {
        lease: lease.clone(),
        frozen_bytes: frozen_bytes.clone(),
        contacts: contacts.to_vec(),
    };
    assert_eq!(apply_action(&store, job.id, mark(&[ANN]), T0).await.0, HandoffActionStatus::Done);
    assert_eq!((are_known(&store, TEAM).await, are_known(&store, OTHER_TEAM).await), ([true, false], [false, false]));
    // A marker that does not take effect makes no contact.
    assert_eq!(apply_action(&store, job.id, mark(&[BOB]), T0).await.0, HandoffActionStatus::Stale);
    assert_eq!(are_known(&store, TEAM).await, [true, false]);
}
