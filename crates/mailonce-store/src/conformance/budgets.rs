//! Promises about budgets: only so many mails or recipients in a period, counted with the email itself.

use mailonce_core::{
    control::budget::{Charge, KEPT_MS, Overrun},
    conversation::answer::Answered,
    email::{Email, EmailState, Guard, Refusal},
    id::{EmailId, TeamId},
    port::store::{Accept, AcceptBatch, BatchWish, Change, NewDue, Once, Resend},
    time::Time,
};
use uuid::Uuid;

use super::{
    Draft, HOUR, Ledger, MINUTE, OTHER, SANDBOX, T0, TEAM, accept, accepted, all_at_once, bound_email, events, first,
    items, keyed, keyless, listed, loose, next_version, operation, replayed, sent,
    talk::{answer, answers, letter_in, the_message, went},
    the,
};

/// What an email counts for in the period of `length` that contains `at`.
pub(super) fn charge(budget: u128, amount: u64, limit: u64, length: i64, at: Time) -> Charge {
    let period_start = Time(at.0 - at.0.rem_euclid(length));
    Charge { budget: Uuid::from_u128(budget), period_start, ends_at: period_start.plus(length), amount, limit }
}

/// One mail against a limit for an hour.
fn one_of(limit: u64, at: Time) -> Charge {
    charge(7, 1, limit, HOUR, at)
}

async fn used(store: &Ledger, team: TeamId, charge: &Charge) -> u64 {
    store.budget_usage(team, vec![charge.counter()]).await.unwrap()[0]
}

fn refusal(answer: Accept) -> Overrun {
    match answer {
        Accept::OverBudget(exceeded) => exceeded,
        other => panic!("{other:?}"),
    }
}

fn batch(drafts: &[Draft], strict: bool) -> BatchWish {
    let wishes: Vec<_> = drafts.iter().map(|draft| draft.wish(T0)).collect();
    BatchWish { strict, ..loose(&wishes) }
}

pub(super) async fn what_exceeds_a_budget_is_refused_and_leaves_nothing(store: Ledger) {
    let charge = one_of(2, T0);
    let _one = accepted(&store, &keyed("a").charged(charge.clone()), T0).await;
    let _two = accepted(&store, &keyless().charged(charge.clone()), T0).await;
    let told = events(&store, TEAM).await.len();

    for draft in [keyed("c"), keyless()] {
        let exceeded = refusal(accept(&store, &draft.charged(charge.clone()), T0).await);
        assert_eq!((exceeded.used, exceeded.charge), (2, charge.clone()));
    }

    assert_eq!((listed(&store, TEAM).await.len(), events(&store, TEAM).await.len()), (2, told));
    assert_eq!(used(&store, TEAM, &charge).await, 2);
    // The key stayed free, and the next hour has room.
    let later = T0.plus(HOUR);
    let email = accepted(&store, &keyed("c").charged(one_of(2, later)), later).await;
    assert_eq!((email.state(), email.bind), (EmailState::Queued, 1));
}

pub(super) async fn a_retry_is_never_refused_by_a_budget(store: Ledger) {
    let draft = keyed("k").charged(one_of(1, T0));
    let email = accepted(&store, &draft, T0).await;
    assert_eq!(replayed(&store, &draft, T0).await, email);
    // Nor one that says other words, nor one that is answered beside a refusal.
    assert_eq!(replayed(&store, &draft.clone().text("other"), T0).await, email);
    let answers = items(&store, batch(&[keyless().charged(one_of(1, T0)), draft], false), T0).await;
    let [over, again] = &answers[..] else { panic!() };
    assert_eq!((refusal(over.clone()).used, bound_email(again.clone()).id), (1, email.id));
    assert_eq!(used(&store, TEAM, &one_of(1, T0)).await, 1);
}

pub(super) async fn every_budget_must_have_room(store: Ledger) {
    let (mails, recipients) = (charge(1, 1, 5, MINUTE, T0), charge(2, 30, 50, HOUR, T0));
    let draft = || keyless().charged(mails.clone()).charged(recipients.clone());
    let _first = accepted(&store, &draft(), T0).await;
    let exceeded = refusal(accept(&store, &draft(), T0).await);
    assert_eq!((exceeded.charge, exceeded.used), (recipients.clone(), 30));
    // What the one budget would have allowed is not counted in it either.
    assert_eq!((used(&store, TEAM, &mails).await, used(&store, TEAM, &recipients).await), (1, 30));
}

pub(super) async fn a_strict_batch_that_exceeds_a_budget_is_refused_whole(store: Ledger) {
    let draft = |n: u32| keyless().item("b", n).charged(one_of(2, T0));
    let three = BatchWish { operation: Some(operation("b", 1, T0)), ..batch(&[draft(0), draft(1), draft(2)], true) };
    let AcceptBatch::OverBudget(2, exceeded) = store.accept_batch(three, T0).await.unwrap() else { panic!() };
    assert_eq!(exceeded.used, 2, "the two items before it");
    assert!(listed(&store, TEAM).await.is_empty() && events(&store, TEAM).await.is_empty());
    assert_eq!(used(&store, TEAM, &one_of(2, T0)).await, 0);
    // The key of the batch is free for another one.
    let two = BatchWish { operation: Some(operation("b", 2, T0)), ..batch(&[draft(0), draft(1)], true) };
    assert_eq!(items(&store, two.clone(), T0).await.into_iter().map(first).count(), 2);
    assert_eq!(items(&store, two, T0).await.into_iter().map(bound_email).count(), 2, "a retry counts nothing");
    assert_eq!(used(&store, TEAM, &one_of(2, T0)).await, 2);
}

pub(super) async fn a_permissive_batch_is_accepted_as_far_as_the_budget_goes(store: Ledger) {
    let drafts: Vec<Draft> = (0..4).map(|n| keyless().item("b", n).charged(one_of(2, T0))).collect();
    let answers = items(&store, batch(&drafts, false), T0).await;
    let went: Vec<bool> = answers.iter().map(|answer| matches!(answer, Accept::First(_))).collect();
    assert_eq!(went, [true, true, false, false]);
    assert_eq!(refusal(answers[3].clone()).used, 2);
    // A retry in the next hour sends the rest, and only the rest.
    let later = T0.plus(HOUR);
    let drafts: Vec<_> = (0..4).map(|n| keyless().item("b", n).charged(one_of(2, later)).wish(later)).collect();
    let answers = items(&store, loose(&drafts), later).await;
    let went: Vec<bool> = answers.iter().map(|answer| matches!(answer, Accept::First(_))).collect();
    assert_eq!(went, [false, false, true, true]);
}

pub(super) async fn a_repeat_in_a_batch_counts_once(store: Ledger) {
    let draft = || keyed("k").charged(one_of(1, T0));
    let answers = items(&store, batch(&[draft(), draft(), draft()], true), T0).await;
    assert!(matches!(answers[..], [Accept::First(_), Accept::Bound(_), Accept::Bound(_)]), "{answers:?}");
    assert_eq!(used(&store, TEAM, &one_of(1, T0)).await, 1);
}

pub(super) async fn a_resend_counts_and_a_refused_one_takes_nothing_back(store: Ledger) {
    let email = sent(&store, &keyed("k").charged(one_of(2, T0)), T0).await;
    let again = store.resend(next_version(&email).charged(one_of(2, T0)).wish(T0), None, T0).await.unwrap();
    assert!(matches!(again, Once::Done(Resend::First(_))), "{again:?}");
    assert_eq!(used(&store, TEAM, &one_of(2, T0)).await, 2);

    let held = accepted(&store, &keyless().held(Guard::Approval), T0).await;
    let told = events(&store, TEAM).await.len();
    let mut wish = next_version(&held).charged(one_of(2, T0)).wish(T0);
    wish.care.takes_back = true;
    let refused = store.resend(wish, Some(operation("op", 1, T0)), T0).await.unwrap();
    assert!(matches!(&refused, Once::Done(Resend::OverBudget(exceeded)) if exceeded.used == 2), "{refused:?}");
    assert_eq!(the(&store, held.id).await, held, "still held");
    assert_eq!(events(&store, TEAM).await.len(), told);
    let _free = accepted(&store, &keyed("op"), T0).await;
}

pub(super) async fn an_answer_counts_and_a_refused_one_leaves_its_slot_free(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let wish = |limit| answers(&message, &keyless().charged(one_of(limit, T0)), T0);
    let before = the_message(&store, message.id).await;
    let refused = answer(&store, wish(0), T0).await;
    assert!(matches!(&refused, Answered::OverBudget(exceeded) if exceeded.used == 0), "{refused:?}");
    assert_eq!(the_message(&store, message.id).await, before);
    let email = went(answer(&store, wish(1), T0).await);
    assert_eq!(used(&store, TEAM, &one_of(1, T0)).await, 1);
    // What was answered before is said again, whatever the budget.
    let again = answer(&store, wish(1), T0).await;
    assert!(matches!(again, Answered::Already(id, ..) if id == email.id), "{again:?}");
}

pub(super) async fn teams_count_apart(store: Ledger) {
    let draft = || keyless().charged(one_of(1, T0));
    let _mine = accepted(&store, &draft(), T0).await;
    let _theirs = accepted(&store, &draft().team(OTHER), T0).await;
    for team in [TEAM, OTHER] {
        assert_eq!(refusal(accept(&store, &draft().team(team), T0).await).used, 1);
        assert_eq!(used(&store, team, &one_of(1, T0)).await, 1);
    }
    let counters = vec![one_of(1, T0.plus(HOUR)).counter(), one_of(1, T0).counter()];
    assert_eq!(store.budget_usage(TEAM, counters).await.unwrap(), [0, 1], "in the order of the counters");
}

pub(super) async fn an_ended_period_is_swept_after_two_days(store: Ledger) {
    let charge = one_of(3, T0);
    let _email = accepted(&store, &keyless().charged(charge.clone()), T0).await;
    let ended = charge.ends_at.plus(KEPT_MS);
    let _kept = store.sweep(100, ended.plus(-1)).await.unwrap();
    assert_eq!(used(&store, TEAM, &charge).await, 1);
    let _dropped = store.sweep(100, ended).await.unwrap();
    assert_eq!(used(&store, TEAM, &charge).await, 0);
}

pub(super) async fn of_64_sends_at_once_only_as_many_go_as_the_budget_allows(store: Ledger) {
    let send = |n: usize| {
        let draft = if n.is_multiple_of(2) { keyless() } else { keyed(&format!("k{n}")) };
        let (wish, store) = (draft.charged(one_of(20, T0)).wish(T0), store.clone());
        async move {
            match n % 4 {
                0 => items(&store, loose(&[wish]), T0).await.remove(0),
                _ => store.accept(wish, T0).await.unwrap(),
            }
        }
    };
    let answers = all_at_once((0..64).map(send)).await;
    let went = answers.iter().filter(|answer| matches!(answer, Accept::First(_))).count();
    let over = answers.iter().filter(|answer| matches!(answer, Accept::OverBudget(_))).count();
    assert_eq!((went, over), (20, 44));
    assert_eq!((listed(&store, TEAM).await.len(), used(&store, TEAM, &one_of(20, T0)).await), (20, 20));
}

/// An email that is due at this time and counts there.
async fn scheduled(store: &Ledger, limit: u64, due: Time) -> Email {
    accepted(store, &keyless().due(due).charged(one_of(limit, due)), T0).await
}

/// Moves an email to a time at which it counts.
async fn reschedule(store: &Ledger, id: EmailId, limit: u64, due: Time, now: Time) -> Change {
    let new = NewDue { due, charges: vec![one_of(limit, due.max(now))] };
    store.reschedule(TEAM, id, new, now).await.unwrap()
}

fn moved(answer: Change) -> Email {
    match answer {
        Change::Email(email) => email,
        other => panic!("{other:?}"),
    }
}

/// What is used of the hours that begin so many hours after the first.
async fn used_in(store: &Ledger, hours: [i64; 3]) -> [u64; 3] {
    let counters = hours.map(|hours| one_of(0, T0.plus(hours * HOUR)).counter());
    store.budget_usage(TEAM, counters.to_vec()).await.unwrap().try_into().unwrap()
}

pub(super) async fn an_email_that_moves_takes_its_charge_along(store: Ledger) {
    let email = scheduled(&store, 1, T0.plus(HOUR)).await;
    assert_eq!(used_in(&store, [0, 1, 2]).await, [0, 1, 0]);
    let later = moved(reschedule(&store, email.id, 1, T0.plus(2 * HOUR), T0).await);
    assert_eq!(later.handoffs[0].due_at, Some(T0.plus(2 * HOUR)));
    assert_eq!(used_in(&store, [0, 1, 2]).await, [0, 0, 1]);
    // A time in the past means now.
    let _now = moved(reschedule(&store, email.id, 1, T0.plus(-HOUR), T0).await);
    assert_eq!(used_in(&store, [0, 1, 2]).await, [1, 0, 0]);
    // Nor does a second move to the same time count twice.
    let _again = moved(reschedule(&store, email.id, 1, T0, T0).await);
    assert_eq!(used_in(&store, [-1, 0, 1]).await, [0, 1, 0]);
    assert_eq!(refusal(accept(&store, &keyless().charged(one_of(1, T0)), T0).await).used, 1);
    let _room = scheduled(&store, 1, T0.plus(HOUR)).await;
}

pub(super) async fn a_move_that_exceeds_a_budget_changes_nothing(store: Ledger) {
    let _now = accepted(&store, &keyless().charged(one_of(1, T0)), T0).await;
    let email = scheduled(&store, 1, T0.plus(HOUR)).await;
    let told = events(&store, TEAM).await.len();
    // The minute has room, the hour does not.
    let (minute, hour) = (charge(1, 1, 5, MINUTE, T0), one_of(1, T0));
    let new = NewDue { due: T0, charges: vec![minute.clone(), hour.clone()] };
    let refused = store.reschedule(TEAM, email.id, new, T0).await.unwrap();
    assert!(
        matches!(&refused, Change::OverBudget(exceeded) if exceeded.used == 1 && exceeded.charge == hour),
        "{refused:?}"
    );
    assert_eq!((the(&store, email.id).await, events(&store, TEAM).await.len()), (email.clone(), told));
    assert_eq!((used_in(&store, [0, 1, 2]).await, used(&store, TEAM, &minute).await), ([1, 1, 0], 0));
    // What cannot be moved at all says so first.
    let taken_back = store.cancel(TEAM, email.id, None, T0).await.unwrap();
    let Once::Done(Change::Email(taken_back)) = taken_back else { panic!("{taken_back:?}") };
    let refused = reschedule(&store, email.id, 1, T0, T0).await;
    assert_eq!(refused, Change::Refused(Refusal::NotScheduled, taken_back));
    assert_eq!(used_in(&store, [0, 1, 2]).await, [1, 1, 0]);
}

pub(super) async fn a_move_within_a_period_changes_no_counter(store: Ledger) {
    let hour = one_of(2, T0).ends_at;
    let [email, _other] = [scheduled(&store, 2, hour).await, scheduled(&store, 2, hour).await];
    // The hour is full, and its limit was lowered since.
    for (limit, due) in [(2, hour.plus(HOUR - 1)), (1, hour.plus(MINUTE)), (0, hour)] {
        let _moved = moved(reschedule(&store, email.id, limit, due, T0).await);
        assert_eq!(used_in(&store, [0, 1, 2]).await, [0, 2, 0]);
    }
}

pub(super) async fn what_was_never_counted_gives_nothing_back(store: Ledger) {
    let email = accepted(&store, &keyless().due(T0.plus(HOUR)), T0).await;
    let _counted = scheduled(&store, 9, T0.plus(HOUR)).await;
    let _same_hour = moved(reschedule(&store, email.id, 9, T0.plus(HOUR + 1), T0).await);
    assert_eq!(used_in(&store, [0, 1, 2]).await, [0, 1, 0]);
    let _moved = moved(reschedule(&store, email.id, 9, T0, T0).await);
    assert_eq!(used_in(&store, [0, 1, 2]).await, [1, 1, 0]);
    // From now on it is counted, and gives back what it took.
    let _back = moved(reschedule(&store, email.id, 9, T0.plus(2 * HOUR), T0).await);
    assert_eq!(used_in(&store, [0, 1, 2]).await, [0, 1, 1]);
}

pub(super) async fn a_period_that_is_over_gets_nothing_back(store: Ledger) {
    let [one, two] = [scheduled(&store, 9, T0.plus(HOUR)).await, scheduled(&store, 9, T0.plus(HOUR)).await];
    let ended = one_of(9, T0.plus(HOUR)).ends_at;
    let _in_time = moved(reschedule(&store, one.id, 9, ended, ended.plus(-1)).await);
    assert_eq!(used_in(&store, [0, 1, 2]).await, [0, 1, 1]);
    let _late = moved(reschedule(&store, two.id, 9, ended, ended).await);
    assert_eq!(used_in(&store, [0, 1, 2]).await, [0, 1, 2]);
}

pub(super) async fn a_copy_that_left_keeps_its_place(store: Ledger) {
    let due = T0.plus(MINUTE);
    let draft = keyless().to(&["a@example.com", "b@example.com"]).apart().due(due).charged(one_of(1, due));
    let email = accepted(&store, &draft, T0).await;
    assert_eq!(store.capture(SANDBOX, 1, Some(due), due).await.unwrap(), 1);
    let rest = moved(reschedule(&store, email.id, 1, T0.plus(HOUR), due).await);
    assert_eq!(rest.state(), EmailState::Scheduled);
    assert_eq!(used_in(&store, [0, 1, 2]).await, [1, 1, 0]);
    let _again = moved(reschedule(&store, email.id, 1, T0.plus(2 * HOUR), due).await);
    assert_eq!(used_in(&store, [0, 1, 2]).await, [1, 1, 1]);
}

pub(super) async fn of_32_moves_at_once_only_as_many_go_as_the_budget_allows(store: Ledger) {
    let mut ids = Vec::new();
    for n in 0..32 {
        ids.push(scheduled(&store, 32, T0.plus((1 + n % 2) * HOUR)).await.id);
    }
    let move_one = |id: EmailId| {
        let store = store.clone();
        async move { reschedule(&store, id, 10, T0, T0).await }
    };
    let answers = all_at_once(ids.into_iter().map(move_one)).await;
    let went = answers.iter().filter(|answer| matches!(answer, Change::Email(_))).count();
    let over = answers.iter().filter(|answer| matches!(answer, Change::OverBudget(_))).count();
    let [now, next, last] = used_in(&store, [0, 1, 2]).await;
    assert_eq!((went, over, now, next + last), (10, 22, 10, 22));
}
