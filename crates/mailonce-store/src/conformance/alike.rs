//! Promises about mails that look alike, and about what guards said before an email came to the ledger.

use mailonce_core::{
    conversation::likeness::{LATEST, WINDOW_MS},
    email::{Email, EmailState, Guard},
    port::{
        store::{Accept, Once, Resend},
        transport::Meaning,
    },
    time::Time,
};

use super::{
    Draft, Ledger, OTHER, T0, TEAM, about, accept, accepted, all_at_once, cancelled, capture, items, keyed, keyless,
    kinds, listed, loose, next_version, replayed, sent,
    talk::{answer, answers, letter_in, went},
    work,
};

const A: &str = "a@example.com";
const B: &str = "b@example.com";

/// A mail without a key that says this and is compared.
fn says(text: &str) -> Draft {
    keyless().text(text).compared()
}

/// Whether a draft is held as a look-alike, or goes.
async fn is_held(store: &Ledger, draft: &Draft, now: Time) -> bool {
    looks(&accepted(store, draft, now).await)
}

fn looks(email: &Email) -> bool {
    match (email.state(), email.guard) {
        (EmailState::Queued, None) => false,
        (EmailState::Held, Some(Guard::LooksDuplicate)) => true,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn a_look_alike_is_held(store: Ledger) {
    let _first = sent(&store, &says("your order 41 has shipped"), T0).await;
    assert!(is_held(&store, &says("Your order 41 has shipped!"), T0.plus(WINDOW_MS - 1)).await);
    assert_eq!(kinds(&store).await, ["email.accepted", "email.sent", "email.held"]);
    assert_eq!(capture(&store, 10, T0.plus(WINDOW_MS)).await, 0);
}

pub(super) async fn other_marks_words_people_and_teams_are_not_alike(store: Ledger) {
    assert!(!is_held(&store, &says("your order 41 has shipped"), T0).await);
    assert!(!is_held(&store, &says("your order 42 has shipped"), T0).await);
    assert!(!is_held(&store, &says("the invoice 41 is overdue since monday"), T0).await);
    assert!(!is_held(&store, &says("your order 41 has shipped").to(&[A]), T0).await);
    assert!(!is_held(&store, &says("your order 41 has shipped").team(OTHER), T0).await);
    let plain = accepted(&store, &keyless().text("your order 41 has shipped"), T0).await;
    assert_eq!(plain.state(), EmailState::Queued, "what is not compared goes");
}

pub(super) async fn a_version_that_was_asked_for_goes_and_what_looks_like_it_is_held(store: Ledger) {
    let first = sent(&store, &says("your order 41 has shipped"), T0).await;
    let version = next_version(&first).text("your order 41 has shipped").compared().wish(T0);
    let Once::Done(Resend::First(version)) = store.resend(version, None, T0).await.unwrap() else { panic!() };
    assert!(!looks(&version), "it says the same on purpose");
    assert!(is_held(&store, &says("your order 41 has shipped"), T0).await);
    // The first never left, so only the version can be what the next one looks like.
    let gone = accepted(&store, &says("something else altogether"), T0).await;
    let gone = cancelled(&store, gone.id, T0).await;
    let again = next_version(&gone).text("something else altogether").compared().wish(T0);
    let Once::Done(Resend::First(again)) = store.resend(again, None, T0).await.unwrap() else { panic!() };
    assert!(!looks(&again));
    assert!(is_held(&store, &says("something else altogether"), T0).await);
}

pub(super) async fn after_the_window_nothing_is_alike(store: Ledger) {
    for (n, sweeps) in [(0, false), (1, true)] {
        let (draft, began) = (says("hello again"), T0.plus(n * 10 * WINDOW_MS));
        let sweep = async |now| {
            if sweeps {
                let _swept = store.sweep(100, now).await.unwrap();
            }
        };
        assert!(!is_held(&store, &draft, began).await, "swept: {sweeps}");
        let later = began.plus(WINDOW_MS);
        sweep(later.plus(-1)).await;
        assert!(is_held(&store, &draft, later.plus(-1)).await, "swept: {sweeps}");
        // The held one stands from then on.
        assert!(is_held(&store, &draft, later).await, "swept: {sweeps}");
        let much_later = later.plus(WINDOW_MS);
        sweep(much_later).await;
        assert!(!is_held(&store, &draft, much_later).await, "swept: {sweeps}");
    }
}

pub(super) async fn what_surely_never_left_has_no_look_alikes(store: Ledger) {
    let first = accepted(&store, &says("hello"), T0).await;
    let _gone = cancelled(&store, first.id, T0).await;
    let job = work::marked(&store, &says("hello")).await;
    assert_eq!(work::answer(&store, &job, Meaning::Refused, T0).await.1.state(), EmailState::Failed);
    let job = work::marked(&store, &says("hello")).await;
    let _lost = work::answer(&store, &job, Meaning::Unknown, T0).await;
    assert!(is_held(&store, &says("hello"), T0).await, "what may have left has");
}

pub(super) async fn only_the_latest_are_compared(store: Ledger) {
    assert!(!is_held(&store, &says("mail 0"), T0).await);
    for n in 1..LATEST {
        assert!(!is_held(&store, &says(&format!("mail {n}")), T0).await);
    }
    assert!(is_held(&store, &says("mail 0"), T0).await);
    assert!(!is_held(&store, &says("mail 99"), T0).await);
    assert!(!is_held(&store, &says("mail 1"), T0).await, "it is the ninth back");
}

pub(super) async fn a_replay_is_no_look_alike(store: Ledger) {
    let draft = says("hello");
    let first = accepted(&store, &keyed("k").text("hello").compared(), T0).await;
    assert_eq!(replayed(&store, &keyed("k").text("hello").compared(), T0).await, first);
    let _gone = cancelled(&store, first.id, T0).await;
    assert!(!is_held(&store, &draft, T0).await);
}

pub(super) async fn items_of_one_batch_look_alike_too(store: Ledger) {
    let wishes = [says("hello"), says("hello"), says("bye")].map(|draft| draft.wish(T0));
    let said = items(&store, loose(&wishes), T0).await;
    let held: Vec<bool> = said.into_iter().map(|said| looks(&super::first(said))).collect();
    assert_eq!(held, [false, true, false]);
}

pub(super) async fn of_16_look_alikes_at_once_one_goes(store: Ledger) {
    for round in 0..5 {
        let draft = |n: u8| {
            let draft = if n.is_multiple_of(2) { keyless() } else { keyed(&format!("k{round}-{n}")) };
            draft.text(&format!("round {round}")).compared().wish(T0)
        };
        let work: Vec<_> = (0..16).map(|n| (store.clone(), draft(n))).collect();
        let said =
            all_at_once(work.into_iter().map(|(store, wish)| async move { store.accept(wish, T0).await.unwrap() }))
                .await;
        let going = said.into_iter().filter(|said| matches!(said, Accept::First(email) if !looks(email))).count();
        assert_eq!(going, 1, "round {round}");
    }
    assert_eq!(listed(&store, TEAM).await.len(), 80);
}

pub(super) async fn an_answer_may_look_alike_too(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let _first = accepted(&store, &says("hello"), T0).await;
    let held = went(answer(&store, answers(&message, &says("hello"), T0), T0).await);
    assert!(looks(&held));
    let thread = super::talk::the_thread(&store, message.thread).await;
    assert_eq!(thread.about.sends.within(WINDOW_MS, T0), 1, "its sender may let it go at any time");
}

pub(super) async fn what_a_guard_wants_held_is_held(store: Ledger) {
    let email = accepted(&store, &keyed("k").held(Guard::Approval), T0).await;
    assert_eq!((email.state(), email.guard), (EmailState::Held, Some(Guard::Approval)));
    assert_eq!((kinds(&store).await, capture(&store, 10, T0).await), (vec!["email.held"], 0));
    assert_eq!(replayed(&store, &keyed("k"), T0).await, email);
    let due = T0.plus(WINDOW_MS);
    let later = accepted(&store, &keyless().held(Guard::Cap).due(due), T0).await;
    assert_eq!((later.state(), later.handoffs[0].due_at), (EmailState::Held, Some(due)));
}

pub(super) async fn what_a_guard_only_flags_goes(store: Ledger) {
    let email = accepted(&store, &keyed("k").flagged(Guard::LooksDuplicate), T0).await;
    assert_eq!((email.state(), email.guard), (EmailState::Queued, Some(Guard::LooksDuplicate)));
    assert_eq!(super::the(&store, email.id).await, email);
    assert_eq!((kinds(&store).await, capture(&store, 10, T0).await), (vec!["email.accepted"], 1));
}

pub(super) async fn of_several_guards_the_strongest_holds(store: Ledger) {
    let _one = accepted(&store, &about("o", &[A]).text("hello").compared(), T0).await;
    let several = about("o", &[A, B]).text("hello").compared();
    let all = accepted(&store, &several.clone().held(Guard::Approval).flagged(Guard::Cap), T0).await;
    assert_eq!((all.state(), all.guard), (EmailState::Held, Some(Guard::Overlaps)));
    let other = || about("p", &[A, B]).text("hello").compared();
    let two = accepted(&store, &other().held(Guard::Approval), T0).await;
    assert_eq!(two.guard, Some(Guard::Approval));
    let Accept::First(alike) =
        accept(&store, &keyless().to(&[A, B]).text("hello").compared().flagged(Guard::Cap), T0).await
    else {
        panic!()
    };
    assert_eq!((alike.state(), alike.guard), (EmailState::Held, Some(Guard::LooksDuplicate)));
}
