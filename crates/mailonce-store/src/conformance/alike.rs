//! Promises about mails that look alike, and about what guards said before an email came to the ledger.

use mailonce_core::{
    handoff::reply::ReplyMeaning,
    operation::IdempotentResult,
    outbound::{
        accept::AcceptResult,
        content_guard::{COMPARE_WINDOW_MS, MAX_COMPARED},
        email::{Email, EmailState, Guard},
        email_commands::EmailResendResult,
    },
    time::Time,
};

use super::{
    EmailFixture, OTHER_TEAM, T0, TEAM, TestStore, accept_and_send, accept_batch_items, accept_email, accept_first,
    accept_replay, all_at_once, cancel_email, capture_due, event_kinds, intent_email, keyed_email, keyless_batch,
    keyless_email, list_all, next_version,
    talk::{accept_reply, expect_accepted, inbox_with_message, reply_with},
    work,
};

const A: &str = "a@example.com";
const B: &str = "b@example.com";

/// A mail without a key that says this and is compared.
fn comparable_email(text: &str) -> EmailFixture {
    keyless_email().text(text).compared()
}

/// Whether a draft is held as a look-alike, or goes.
async fn is_held(store: &TestStore, draft: &EmailFixture, now: Time) -> bool {
    is_look_alike(&accept_first(store, draft, now).await)
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

pub(super) async fn other_marks_words_people_and_teams_are_not_alike(store: TestStore) {
    assert!(!is_held(&store, &comparable_email("your order 41 has shipped"), T0).await);
    assert!(!is_held(&store, &comparable_email("your order 42 has shipped"), T0).await);
    assert!(!is_held(&store, &comparable_email("the invoice 41 is overdue since monday"), T0).await);
    assert!(!is_held(&store, &comparable_email("your order 41 has shipped").to(&[A]), T0).await);
    assert!(!is_held(&store, &comparable_email("your order 41 has shipped").team(OTHER_TEAM), T0).await);
    let plain = accept_first(&store, &keyless_email().text("your order 41 has shipped"), T0).await;
    assert_eq!(plain.state(), EmailState::Queued, "what is not compared goes");
}

pub(super) async fn a_version_that_was_asked_for_goes_and_what_looks_like_it_is_held(store: TestStore) {
    let first = accept_and_send(&store, &comparable_email("your order 41 has shipped"), T0).await;
    let version = next_version(&first).text("your order 41 has shipped").compared().to_new_email(T0);
    let IdempotentResult::Done(EmailResendResult::First(version)) = store.resend(version, None, T0).await.unwrap()
    else {
        panic!()
    };
    assert!(!is_look_alike(&version), "it says the same on purpose");
    assert!(is_held(&store, &comparable_email("your order 41 has shipped"), T0).await);
    // The first never left, so only the version can be what the next one looks like.
    let gone = accept_first(&store, &comparable_email("something else altogether"), T0).await;
    let gone = cancel_email(&store, gone.id, T0).await;
    let again = next_version(&gone).text("something else altogether").compared().to_new_email(T0);
    let IdempotentResult::Done(EmailResendResult::First(again)) = store.resend(again, None, T0).await.unwrap() else {
        panic!()
    };
    assert!(!is_look_alike(&again));
    assert!(is_held(&store, &comparable_email("something else altogether"), T0).await);
}

pub(super) async fn after_the_window_nothing_is_alike(store: TestStore) {
    for (n, sweeps) in [(0, false), (1, true)] {
        let (draft, began) = (comparable_email("hello again"), T0.plus(n * 10 * COMPARE_WINDOW_MS));
        let sweep = async |now| {
            if sweeps {
                let _swept = store.sweep(100, now).await.unwrap();
            }
        };
        assert!(!is_held(&store, &draft, began).await, "swept: {sweeps}");
        let later = began.plus(COMPARE_WINDOW_MS);
        sweep(later.plus(-1)).await;
        assert!(is_held(&store, &draft, later.plus(-1)).await, "swept: {sweeps}");
        // The held one stands from then on.
        assert!(is_held(&store, &draft, later).await, "swept: {sweeps}");
        let much_later = later.plus(COMPARE_WINDOW_MS);
        sweep(much_later).await;
        assert!(!is_held(&store, &draft, much_later).await, "swept: {sweeps}");
    }
}

pub(super) async fn what_surely_never_left_has_no_look_alikes(store: TestStore) {
    let first = accept_first(&store, &comparable_email("hello"), T0).await;
    let _gone = cancel_email(&store, first.id, T0).await;
    let job = work::accept_and_mark(&store, &comparable_email("hello")).await;
    assert_eq!(work::record_answer(&store, &job, ReplyMeaning::Refused, T0).await.1.state(), EmailState::Failed);
    let job = work::accept_and_mark(&store, &comparable_email("hello")).await;
    let _lost = work::record_answer(&store, &job, ReplyMeaning::Unknown, T0).await;
    assert!(is_held(&store, &comparable_email("hello"), T0).await, "what may have left has");
}

pub(super) async fn only_the_latest_are_compared(store: TestStore) {
    assert!(!is_held(&store, &comparable_email("mail 0"), T0).await);
    for n in 1..MAX_COMPARED {
        assert!(!is_held(&store, &comparable_email(&format!("mail {n}")), T0).await);
    }
    assert!(is_held(&store, &comparable_email("mail 0"), T0).await);
    assert!(!is_held(&store, &comparable_email("mail 99"), T0).await);
    assert!(!is_held(&store, &comparable_email("mail 1"), T0).await, "it is the ninth back");
}

pub(super) async fn a_replay_is_no_look_alike(store: TestStore) {
    let draft = comparable_email("hello");
    let first = accept_first(&store, &keyed_email("k").text("hello").compared(), T0).await;
    assert_eq!(accept_replay(&store, &keyed_email("k").text("hello").compared(), T0).await, first);
    let _gone = cancel_email(&store, first.id, T0).await;
    assert!(!is_held(&store, &draft, T0).await);
}

pub(super) async fn items_of_one_batch_look_alike_too(store: TestStore) {
    let wishes = [comparable_email("hello"), comparable_email("hello"), comparable_email("bye")]
        .map(|draft| draft.to_new_email(T0));
    let said = accept_batch_items(&store, keyless_batch(&wishes), T0).await;
    let held: Vec<bool> = said.into_iter().map(|said| is_look_alike(&super::expect_first(said))).collect();
    assert_eq!(held, [false, true, false]);
}

pub(super) async fn of_16_look_alikes_at_once_one_goes(store: TestStore) {
    for round in 0..5 {
        let draft = |n: u8| {
            let draft = if n.is_multiple_of(2) { keyless_email() } else { keyed_email(&format!("k{round}-{n}")) };
            draft.text(&format!("round {round}")).compared().to_new_email(T0)
        };
        let work: Vec<_> = (0..16).map(|n| (store.clone(), draft(n))).collect();
        let said =
            all_at_once(work.into_iter().map(|(store, wish)| async move { store.accept(wish, T0).await.unwrap() }))
                .await;
        let going =
            said.into_iter().filter(|said| matches!(said, AcceptResult::First(email) if !is_look_alike(email))).count();
        assert_eq!(going, 1, "round {round}");
    }
    assert_eq!(list_all(&store, TEAM).await.len(), 80);
}

pub(super) async fn an_answer_may_look_alike_too(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let _first = accept_first(&store, &comparable_email("hello"), T0).await;
    let held = expect_accepted(accept_reply(&store, reply_with(&message, &comparable_email("hello"), T0), T0).await);
    assert!(is_look_alike(&held));
    let thread = super::talk::load_thread(&store, message.thread).await;
    assert_eq!(thread.details.sends.count_within(COMPARE_WINDOW_MS, T0), 1, "its sender may let it go at any time");
}

pub(super) async fn what_a_guard_wants_held_is_held(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k").held(Guard::Approval), T0).await;
    assert_eq!((email.state(), email.guard), (EmailState::Held, Some(Guard::Approval)));
    assert_eq!((event_kinds(&store).await, capture_due(&store, 10, T0).await), (vec!["email.held"], 0));
    assert_eq!(accept_replay(&store, &keyed_email("k"), T0).await, email);
    let due = T0.plus(COMPARE_WINDOW_MS);
    let later = accept_first(&store, &keyless_email().held(Guard::Cap).due(due), T0).await;
    assert_eq!((later.state(), later.handoffs[0].due_at), (EmailState::Held, Some(due)));
}

pub(super) async fn what_a_guard_only_flags_goes(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k").flagged(Guard::LooksDuplicate), T0).await;
    assert_eq!((email.state(), email.guard), (EmailState::Queued, Some(Guard::LooksDuplicate)));
    assert_eq!(super::load_email(&store, email.id).await, email);
    assert_eq!((event_kinds(&store).await, capture_due(&store, 10, T0).await), (vec!["email.accepted"], 1));
}

pub(super) async fn of_several_guards_the_strongest_holds(store: TestStore) {
    let _one = accept_first(&store, &intent_email("o", &[A]).text("hello").compared(), T0).await;
    let several = intent_email("o", &[A, B]).text("hello").compared();
    let all = accept_first(&store, &several.clone().held(Guard::Approval).flagged(Guard::Cap), T0).await;
    assert_eq!((all.state(), all.guard), (EmailState::Held, Some(Guard::Overlaps)));
    let other = || intent_email("p", &[A, B]).text("hello").compared();
    let two = accept_first(&store, &other().held(Guard::Approval), T0).await;
    assert_eq!(two.guard, Some(Guard::Approval));
    let AcceptResult::First(alike) =
        accept_email(&store, &keyless_email().to(&[A, B]).text("hello").compared().flagged(Guard::Cap), T0).await
    else {
        panic!()
    };
    assert_eq!((alike.state(), alike.guard), (EmailState::Held, Some(Guard::LooksDuplicate)));
}
