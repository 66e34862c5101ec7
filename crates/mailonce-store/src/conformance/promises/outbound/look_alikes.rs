//! Promises about look-alikes, and about emails that a guard held or flagged before the accept.

use mailonce_core::{
    handoff::reply::ReplyMeaning,
    id::EmailId,
    operation::IdempotentResult,
    outbound::{
        accept::{AcceptResult, NewEmail},
        content_guard::{COMPARE_WINDOW_MS, MAX_COMPARED},
        email::{Email, EmailState, Guard},
        email_commands::EmailResendResult,
    },
    time::Time,
};

use crate::conformance::{
    EmailFixture, OTHER_TEAM, T0, TEAM, TestStore, accept_and_send, accept_batch_items, accept_email, accept_first,
    accept_replay, all_at_once, cancel_email, capture_due, event_kinds, expect_first,
    fixtures::{
        conversations::{accept_reply, expect_accepted, inbox_with_message, load_thread, reply_with},
        handoffs,
    },
    intent_email, keyed_email, keyless_batch, keyless_email, list_all, load_email, next_version,
};

const A: &str = "a@example.com";
const B: &str = "b@example.com";

/// An email without a key that the content guard compares.
fn comparable_email(text: &str) -> EmailFixture {
    keyless_email().text(text).compared()
}

/// Whether an email is held as a look-alike or queued.
async fn is_held(store: &TestStore, fixture: &EmailFixture, now: Time) -> bool {
    is_look_alike(&accept_first(store, fixture, now).await)
}

fn is_look_alike(email: &Email) -> bool {
    match (email.state(), email.guard) {
        (EmailState::Queued, None) => false,
        (EmailState::Held, Some(Guard::LooksDuplicate)) => true,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn a_look_alike_is_held(store: TestStore) {
    let _first = accept_and_send(&store, &comparable_email("your order 41 has shipped"), T0).await;
    assert!(is_held(&store, &comparable_email("Your order 41 has shipped!"), T0.plus(COMPARE_WINDOW_MS - 1)).await);
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.sent", "email.held"]);
    assert_eq!(capture_due(&store, 10, T0.plus(COMPARE_WINDOW_MS)).await, 0);
}

pub(super) async fn emails_with_other_numbers_words_people_or_teams_are_not_look_alikes(store: TestStore) {
    assert!(!is_held(&store, &comparable_email("your order 41 has shipped"), T0).await);
    assert!(!is_held(&store, &comparable_email("your order 42 has shipped"), T0).await);
    assert!(!is_held(&store, &comparable_email("the invoice 41 is overdue since monday"), T0).await);
    assert!(!is_held(&store, &comparable_email("your order 41 has shipped").to(&[A]), T0).await);
    assert!(!is_held(&store, &comparable_email("your order 41 has shipped").team(OTHER_TEAM), T0).await);
    let plain = accept_first(&store, &keyless_email().text("your order 41 has shipped"), T0).await;
    assert_eq!(plain.state(), EmailState::Queued, "an email that is not compared is sent");
}

pub(super) async fn another_spelling_of_an_intent_is_held(store: TestStore) {
    let email = |entity: &str, to: &[&str], text: &str| intent_email(entity, to).text(text).compared();
    assert!(!is_held(&store, &email("order_4821", &[A], "your order has shipped"), T0).await);

    let last = T0.plus(COMPARE_WINDOW_MS - 1);
    assert!(is_held(&store, &email("ORDER-4821", &[A], "what you bought is on its way to you"), last).await);

    assert!(!is_held(&store, &email("order_4822", &[A], "thank you for waiting so patiently"), last).await);
    assert!(!is_held(&store, &email("Order_4821", &[B], "what you bought is on its way to you"), last).await);
    let plain = accept_first(&store, &intent_email("order 4821", &[A]).text("we sent it this morning"), last).await;
    assert_eq!(plain.state(), EmailState::Queued, "an email that is not compared is sent");
}

/// An email without a key that is answered with an identical one of the last ten minutes.
fn repeatable_email(text: &str) -> EmailFixture {
    keyless_email().text(text).identical_within(COMPARE_WINDOW_MS)
}

/// The id of the email that a call created or was answered with, and whether it was created.
async fn accept_repeatable(store: &TestStore, fixture: &EmailFixture, now: Time) -> (EmailId, bool) {
    id_of(store.accept(fixture.to_new_email(now), now).await.unwrap())
}

fn id_of(accepted: AcceptResult) -> (EmailId, bool) {
    match accepted {
        AcceptResult::First(email) => (email.id, true),
        AcceptResult::Identical(email) => (email.id, false),
        other => panic!("{other:?}"),
    }
}

pub(super) async fn an_identical_email_is_answered_with_the_first(store: TestStore) {
    let email = repeatable_email("your order 41 has shipped");
    let (first, _) = accept_repeatable(&store, &email, T0).await;
    assert_eq!(accept_repeatable(&store, &email, T0.plus(COMPARE_WINDOW_MS / 2)).await, (first, false));
    // The repetition in between extends nothing.
    assert_eq!(accept_repeatable(&store, &email, T0.plus(COMPARE_WINDOW_MS - 1)).await, (first, false));
    let (second, created) = accept_repeatable(&store, &email, T0.plus(COMPARE_WINDOW_MS)).await;
    assert!(created && second != first);
    assert_eq!(accept_repeatable(&store, &email, T0.plus(COMPARE_WINDOW_MS + 1)).await, (second, false));
    let short = email.identical_within(1);
    assert!(accept_repeatable(&store, &short, T0.plus(COMPARE_WINDOW_MS + 2)).await.1);
    assert_eq!(event_kinds(&store).await, ["email.accepted"; 3]);
}

pub(super) async fn only_an_email_that_may_be_sent_is_repeated(store: TestStore) {
    let email = repeatable_email("your order 41 has shipped");
    let (first, _) = accept_repeatable(&store, &email, T0).await;
    for other in [
        repeatable_email("your order 41 has shipped."),
        repeatable_email("your order 41 has shipped").to(&[A]),
        repeatable_email("your order 41 has shipped").cc(&[A]),
        repeatable_email("your order 41 has shipped").team(OTHER_TEAM),
    ] {
        assert!(accept_repeatable(&store, &other, T0).await.1);
    }
    cancel_email(&store, first, T0).await;
    let (second, created) = accept_repeatable(&store, &email, T0).await;
    assert!(created, "the first is not sent");
    capture_due(&store, 10, T0).await;
    assert_eq!(accept_repeatable(&store, &email, T0.plus(1)).await, (second, false));
}

pub(super) async fn identical_items_of_one_batch_are_all_sent_once(store: TestStore) {
    let batch = |now: Time| {
        let mut items: Vec<NewEmail> = (0..3).map(|_| repeatable_email("hello").to_new_email(now)).collect();
        for (place, item) in [None, Some(1), Some(2)].into_iter().zip(&mut items) {
            item.guard_input.identical.as_mut().unwrap().set_batch_place(place);
        }
        items
    };
    let created = accept_batch_items(&store, keyless_batch(&batch(T0)), T0).await;
    let created: Vec<_> = created.into_iter().map(id_of).collect();
    assert!(created.iter().all(|(_, is_first)| *is_first));
    let again = accept_batch_items(&store, keyless_batch(&batch(T0.plus(1))), T0.plus(1)).await;
    let again: Vec<_> = again.into_iter().map(id_of).collect();
    let same: Vec<_> = created.iter().map(|(id, _)| (*id, false)).collect();
    assert_eq!(again, same, "each item gets its own");
    assert_eq!(list_all(&store, TEAM).await.len(), 3);
}

pub(super) async fn of_16_concurrent_identical_emails_one_is_created(store: TestStore) {
    let accepts = (0..16).map(|_| {
        let (store, email) = (store.clone(), repeatable_email("hello").to_new_email(T0));
        async move { id_of(store.accept(email, T0).await.unwrap()) }
    });
    let answers = all_at_once(accepts).await;
    let created: Vec<_> = answers.iter().filter(|(_, is_first)| *is_first).collect();
    assert_eq!(created.len(), 1);
    assert!(answers.iter().all(|(id, _)| *id == created[0].0));
}

pub(super) async fn an_explicit_resend_is_sent_and_its_look_alikes_are_held(store: TestStore) {
    let first = accept_and_send(&store, &comparable_email("your order 41 has shipped"), T0).await;
    let version = next_version(&first).text("your order 41 has shipped").compared().to_new_email(T0);
    let IdempotentResult::Done(EmailResendResult::First(version)) = store.resend(version, None, T0).await.unwrap()
    else {
        panic!()
    };
    assert!(!is_look_alike(&version), "a resend repeats its content on purpose");
    assert!(is_held(&store, &comparable_email("your order 41 has shipped"), T0).await);
    // The first email was never sent, so only its new version can be the one that looks alike.
    let gone = accept_first(&store, &comparable_email("something else altogether"), T0).await;
    let gone = cancel_email(&store, gone.id, T0).await;
    let again = next_version(&gone).text("something else altogether").compared().to_new_email(T0);
    let IdempotentResult::Done(EmailResendResult::First(again)) = store.resend(again, None, T0).await.unwrap() else {
        panic!()
    };
    assert!(!is_look_alike(&again));
    assert!(is_held(&store, &comparable_email("something else altogether"), T0).await);
}

pub(super) async fn nothing_is_a_look_alike_after_the_window(store: TestStore) {
    for (n, sweeps) in [(0, false), (1, true)] {
        let (fixture, began) = (comparable_email("hello again"), T0.plus(n * 10 * COMPARE_WINDOW_MS));
        let sweep = async |now| {
            if sweeps {
                let _swept = store.sweep(100, now).await.unwrap();
            }
        };
        assert!(!is_held(&store, &fixture, began).await, "swept: {sweeps}");
        let later = began.plus(COMPARE_WINDOW_MS);
        sweep(later.plus(-1)).await;
        assert!(is_held(&store, &fixture, later.plus(-1)).await, "swept: {sweeps}");
        // From now on the held email is the one that counts.
        assert!(is_held(&store, &fixture, later).await, "swept: {sweeps}");
        let much_later = later.plus(COMPARE_WINDOW_MS);
        sweep(much_later).await;
        assert!(!is_held(&store, &fixture, much_later).await, "swept: {sweeps}");
    }
}

pub(super) async fn an_email_that_certainly_was_not_sent_has_no_look_alikes(store: TestStore) {
    let first = accept_first(&store, &comparable_email("hello"), T0).await;
    let _cancelled = cancel_email(&store, first.id, T0).await;
    let job = handoffs::accept_and_mark(&store, &comparable_email("hello")).await;
    assert_eq!(handoffs::record_attempt(&store, &job, ReplyMeaning::Refused, T0).await.1.state(), EmailState::Failed);
    let job = handoffs::accept_and_mark(&store, &comparable_email("hello")).await;
    let _lost = handoffs::record_attempt(&store, &job, ReplyMeaning::Unknown, T0).await;
    assert!(is_held(&store, &comparable_email("hello"), T0).await, "an email that may have been sent has look-alikes");
}

pub(super) async fn only_the_latest_emails_are_compared(store: TestStore) {
    assert!(!is_held(&store, &comparable_email("mail 0"), T0).await);
    for n in 1..MAX_COMPARED {
        assert!(!is_held(&store, &comparable_email(&format!("mail {n}")), T0).await);
    }
    assert!(is_held(&store, &comparable_email("mail 0"), T0).await);
    assert!(!is_held(&store, &comparable_email("mail 99"), T0).await);
    assert!(!is_held(&store, &comparable_email("mail 1"), T0).await, "only the latest eight are compared");
}

pub(super) async fn a_replay_is_no_look_alike(store: TestStore) {
    let fixture = comparable_email("hello");
    let first = accept_first(&store, &keyed_email("k").text("hello").compared(), T0).await;
    assert_eq!(accept_replay(&store, &keyed_email("k").text("hello").compared(), T0).await, first);
    let _cancelled = cancel_email(&store, first.id, T0).await;
    assert!(!is_held(&store, &fixture, T0).await);
}

pub(super) async fn look_alike_items_of_one_batch_are_held(store: TestStore) {
    let new_emails = [comparable_email("hello"), comparable_email("hello"), comparable_email("bye")]
        .map(|fixture| fixture.to_new_email(T0));
    let results = accept_batch_items(&store, keyless_batch(&new_emails), T0).await;
    let held: Vec<bool> = results.into_iter().map(|result| is_look_alike(&expect_first(result))).collect();
    assert_eq!(held, [false, true, false]);
}

pub(super) async fn of_16_concurrent_look_alikes_one_is_sent(store: TestStore) {
    for round in 0..5 {
        let fixture = |n: u8| {
            let fixture = if n.is_multiple_of(2) { keyless_email() } else { keyed_email(&format!("k{round}-{n}")) };
            fixture.text(&format!("round {round}")).compared().to_new_email(T0)
        };
        let work: Vec<_> = (0..16).map(|n| (store.clone(), fixture(n))).collect();
        let results = all_at_once(
            work.into_iter().map(|(store, new_email)| async move { store.accept(new_email, T0).await.unwrap() }),
        )
        .await;
        let queued = results
            .into_iter()
            .filter(|result| matches!(result, AcceptResult::First(email) if !is_look_alike(email)))
            .count();
        assert_eq!(queued, 1, "round {round}");
    }
    assert_eq!(list_all(&store, TEAM).await.len(), 80);
}

pub(super) async fn a_reply_that_is_a_look_alike_is_held(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let _first = accept_first(&store, &comparable_email("hello"), T0).await;
    let held = expect_accepted(accept_reply(&store, reply_with(&message, &comparable_email("hello"), T0), T0).await);
    assert!(is_look_alike(&held));
    let thread = load_thread(&store, message.thread).await;
    assert_eq!(thread.details.sends.count_within(COMPARE_WINDOW_MS, T0), 1, "its sender may release it at any time");
}

pub(super) async fn an_email_that_a_guard_holds_is_not_sent(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k").held(Guard::Approval), T0).await;
    assert_eq!((email.state(), email.guard), (EmailState::Held, Some(Guard::Approval)));
    assert_eq!((event_kinds(&store).await, capture_due(&store, 10, T0).await), (vec!["email.held"], 0));
    assert_eq!(accept_replay(&store, &keyed_email("k"), T0).await, email);
    let due = T0.plus(COMPARE_WINDOW_MS);
    let later = accept_first(&store, &keyless_email().held(Guard::Cap).due(due), T0).await;
    assert_eq!((later.state(), later.handoffs[0].due_at), (EmailState::Held, Some(due)));
}

pub(super) async fn a_flagged_email_is_sent(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k").flagged(Guard::LooksDuplicate), T0).await;
    assert_eq!((email.state(), email.guard), (EmailState::Queued, Some(Guard::LooksDuplicate)));
    assert_eq!(load_email(&store, email.id).await, email);
    assert_eq!((event_kinds(&store).await, capture_due(&store, 10, T0).await), (vec!["email.accepted"], 1));
}

pub(super) async fn an_email_that_its_look_alikes_only_flag_is_sent(store: TestStore) {
    let email = |text: &str| keyless_email().text(text).flagged_if_similar();
    let state_and_guard = |email: &Email| (email.state(), email.guard);
    let last = T0.plus(COMPARE_WINDOW_MS - 1);

    let first = accept_first(&store, &email("your order 41 has shipped"), T0).await;
    let near = accept_first(&store, &email("Your order 41 has shipped!"), last).await;
    let other = accept_first(&store, &email("your order 42 has shipped"), last).await;
    let late = accept_first(&store, &email("your order 41 has shipped"), last.plus(COMPARE_WINDOW_MS)).await;
    let held = accept_first(&store, &comparable_email("your order 41 has shipped"), last.plus(COMPARE_WINDOW_MS)).await;

    assert_eq!(state_and_guard(&first), (EmailState::Queued, None));
    assert_eq!(state_and_guard(&near), (EmailState::Queued, Some(Guard::LooksDuplicate)));
    assert_eq!(load_email(&store, near.id).await, near);
    assert_eq!(state_and_guard(&other), (EmailState::Queued, None));
    assert_eq!(state_and_guard(&late), (EmailState::Queued, None), "the window is over");
    assert!(is_look_alike(&held), "one that is compared is held");
}

pub(super) async fn every_guard_that_applies_holds_the_email(store: TestStore) {
    let _one = accept_first(&store, &intent_email("o", &[A]).text("hello").compared(), T0).await;
    let several = intent_email("o", &[A, B]).text("hello").compared();
    let all = accept_first(&store, &several.clone().held(Guard::Approval).flagged(Guard::Cap), T0).await;
    assert_eq!((all.state(), all.guard), (EmailState::Held, Some(Guard::Approval)));
    assert_eq!(all.holds.to_column().as_deref(), Some("approval,overlaps"));
    let other = || intent_email("p", &[A, B]).text("hello").compared();
    let two = accept_first(&store, &other().held(Guard::Approval), T0).await;
    assert_eq!(two.holds.to_column().as_deref(), Some("approval,looks_duplicate"));
    let AcceptResult::First(alike) =
        accept_email(&store, &keyless_email().to(&[A, B]).text("hello").compared().flagged(Guard::Cap), T0).await
    else {
        panic!()
    };
    assert_eq!((alike.state(), alike.guard), (EmailState::Held, Some(Guard::LooksDuplicate)));
}
