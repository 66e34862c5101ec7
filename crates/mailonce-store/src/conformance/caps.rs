//! Promises about too many answers: in a thread within minutes, within a day, and to one person.

use mailonce_core::{
    conversation::{
        answer::{AnswerWish, Answered},
        caps::{Caps, person_hash},
        turn::Slot,
    },
    dispatch::{Act, Verdict},
    email::{Email, EmailState, Guard},
    message::Message,
    port::store::{Once, Resend},
    time::Time,
};

use super::{
    DAY, HOUR, Ledger, MINUTE, OTHER, T0, TEAM, all_at_once, cancelled, events, keyless, kinds, next_version,
    post::{inbox, letter, made},
    talk::{
        LOOSE, answer, answers, before, came, letter_in, letters_in, next_letter, reply, the_message, the_thread, went,
    },
    work::act,
};

/// The follow-up of this number, under these caps.
fn follow_up(message: &Message, n: u32, caps: Caps, now: Time) -> AnswerWish {
    AnswerWish { slot: Slot::Reply(n), caps, ..answers(message, &keyless(), now) }
}

/// Whether the follow-up goes, or is held by the cap.
async fn goes(store: &Ledger, wish: AnswerWish, now: Time) -> bool {
    let email = went(answer(store, wish, now).await);
    match (email.state(), email.guard) {
        (EmailState::Queued, None) => true,
        (EmailState::Held, Some(Guard::Cap)) => false,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn one_answer_too_many_is_held_and_takes_its_slot(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let caps = Caps { per_window: 2, ..LOOSE };
    assert!(goes(&store, follow_up(&message, 0, caps, T0), T0).await);
    assert!(goes(&store, follow_up(&message, 1, caps, T0), T0).await);
    let Answered::First(held, thread) = answer(&store, follow_up(&message, 2, caps, T0), T0).await else { panic!() };
    assert_eq!((held.state(), held.guard), (EmailState::Held, Some(Guard::Cap)));
    assert_eq!((thread.about.emails, thread.about.sends.within(DAY, T0)), (3, 2));
    assert_eq!(thread, the_thread(&store, message.thread).await);
    assert_eq!(before(answer(&store, follow_up(&message, 2, LOOSE, T0), T0).await), (held.id, held.clone()));
    assert_eq!(the_message(&store, message.id).await.marks.turn.answered_by(&Slot::Reply(2)), Some(held.id));
    assert_eq!(kinds(&store).await[5..], ["email.held", "message.answered", "thread.cap"]);
    let told = events(&store, TEAM).await.pop().unwrap().event;
    assert_eq!((told.about, told.rev, &told.data["email"]), (thread.id.0, thread.rev, &held.id.to_string().into()));
}

pub(super) async fn a_held_answer_is_not_counted(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let caps = Caps { per_window: 1, ..LOOSE };
    let at = |ms: i64| T0.plus(ms);
    assert!(goes(&store, follow_up(&message, 0, caps, T0), T0).await);
    assert!(!goes(&store, follow_up(&message, 1, caps, T0), at(MINUTE - 1)).await);
    assert!(goes(&store, follow_up(&message, 2, caps, T0), at(MINUTE)).await);
}

pub(super) async fn an_answer_that_a_person_lets_go_counts_from_then_on(store: Ledger) {
    let (_inbox, messages) = letters_in(&store, 2).await;
    let caps = Caps { per_window: 1, ..LOOSE };
    assert!(goes(&store, follow_up(&messages[0], 0, caps, T0), T0).await);
    let held = went(answer(&store, follow_up(&messages[0], 1, caps, T0), T0).await);
    let (verdict, _email) = act(&store, held.id, Act::Release, T0).await;
    assert_eq!(verdict, Verdict::Done);
    let thread = the_thread(&store, messages[0].thread).await;
    assert_eq!((thread.about.emails, thread.about.sent, thread.about.sends.within(DAY, T0)), (2, 2, 2));
    let _again = act(&store, held.id, Act::Release, T0).await;
    assert_eq!(the_thread(&store, messages[0].thread).await, thread, "once");
    let two = Caps { per_window: 2, ..LOOSE };
    assert!(!goes(&store, follow_up(&messages[0], 2, two, T0), T0).await);
    // The person was answered as well, over all threads.
    let caps = Caps { per_person: 1, ..LOOSE };
    let person = Some(person_hash(&held.head.to[0]));
    assert!(!goes(&store, AnswerWish { caps, person, ..reply(&messages[1]) }, T0).await);
}

pub(super) async fn an_answer_that_goes_in_other_words_counts_once(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let held = went(answer(&store, answers(&message, &keyless().held(Guard::Approval), T0), T0).await);
    let mut wish = next_version(&held).wish(T0);
    (wish.head.answers, wish.care.takes_back) = (held.head.answers, true);
    let edited = store.resend(wish, None, T0).await.unwrap();
    assert!(matches!(edited, Once::Done(Resend::First(_))), "{edited:?}");
    let thread = the_thread(&store, message.thread).await;
    assert_eq!((thread.about.sent, thread.about.sends.within(DAY, T0)), (1, 1));
}

pub(super) async fn an_answer_that_its_own_sender_may_let_go_counts_at_once(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let caps = Caps { per_window: 1, ..LOOSE };
    let alike = answers(&message, &keyless().held(Guard::LooksDuplicate), T0);
    let held = went(answer(&store, AnswerWish { caps, ..alike }, T0).await);
    assert_eq!((held.state(), held.guard), (EmailState::Held, Some(Guard::LooksDuplicate)));
    assert!(!goes(&store, follow_up(&message, 1, caps, T0), T0).await);
    let _released = act(&store, held.id, Act::Release, T0).await;
    assert_eq!(the_thread(&store, message.thread).await.about.sent, 1);
}

pub(super) async fn an_answer_that_is_rejected_is_never_counted(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let held = went(answer(&store, answers(&message, &keyless().held(Guard::Cap), T0), T0).await);
    let _gone = cancelled(&store, held.id, T0).await;
    assert_eq!(the_thread(&store, message.thread).await.about.sent, 0);
}

pub(super) async fn a_day_has_a_cap_of_its_own(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let caps = Caps { per_day: 2, ..LOOSE };
    for n in 0..2 {
        let now = T0.plus(i64::from(n) * HOUR);
        assert!(goes(&store, follow_up(&message, n, caps, now), now).await);
    }
    assert!(!goes(&store, follow_up(&message, 2, caps, T0), T0.plus(DAY - 1)).await);
    assert!(goes(&store, follow_up(&message, 3, caps, T0), T0.plus(DAY)).await);
}

pub(super) async fn a_thread_has_a_cap_in_all_that_no_day_opens(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let caps = Caps { per_thread: Some(2), ..LOOSE };
    for n in 0..2 {
        assert!(goes(&store, follow_up(&message, n, caps, T0), T0.plus(i64::from(n) * DAY)).await);
    }
    assert!(!goes(&store, follow_up(&message, 2, caps, T0), T0.plus(9 * DAY)).await);
    assert!(goes(&store, follow_up(&message, 3, LOOSE, T0), T0.plus(9 * DAY)).await);
}

pub(super) async fn answers_to_one_person_are_counted_over_all_threads_of_the_team(store: Ledger) {
    let (_inbox, messages) = letters_in(&store, 4).await;
    let theirs = made(&store, &mailonce_core::inbox::Inbox { team: OTHER, ..inbox("b@d.test") }).await;
    let other = came(&store, &theirs, letter(Some(1), 1), T0).await;
    let to = |message: &Message, person: Option<u8>| {
        let caps = Caps { per_person: 2, ..LOOSE };
        AnswerWish { caps, person: person.map(|n| [n; 16]), ..reply(message) }
    };
    assert!(goes(&store, to(&other, Some(1)), T0).await);
    assert!(goes(&store, to(&messages[0], Some(1)), T0).await);
    assert!(goes(&store, to(&messages[1], Some(1)), T0).await);
    let again = |wish: AnswerWish, n: u32| AnswerWish { slot: Slot::Reply(n), ..wish };
    assert!(goes(&store, again(to(&messages[2], Some(2)), 1), T0).await, "another person");
    assert!(goes(&store, again(to(&messages[2], None), 2), T0).await, "nobody who is counted");
    assert!(!goes(&store, to(&messages[2], Some(1)), T0).await);
    assert!(goes(&store, again(to(&other, Some(1)), 1), T0).await, "another team");
    assert!(goes(&store, to(&messages[3], Some(1)), T0.plus(DAY)).await);
}

pub(super) async fn a_sweep_takes_no_count_that_a_cap_asks_about(store: Ledger) {
    let (_inbox, messages) = letters_in(&store, 3).await;
    let to = |message: &Message| {
        let caps = Caps { per_person: 1, ..LOOSE };
        AnswerWish { caps, person: Some([1; 16]), ..reply(message) }
    };
    assert!(goes(&store, to(&messages[0]), T0).await);
    let _swept = store.sweep(100, T0.plus(DAY - 1)).await.unwrap();
    assert!(!goes(&store, to(&messages[1]), T0.plus(DAY - 1)).await);
    let _swept = store.sweep(100, T0.plus(DAY)).await.unwrap();
    assert!(goes(&store, to(&messages[2]), T0.plus(DAY)).await);
}

/// How many of these answers go when they come at once.
async fn going(store: &Ledger, wishes: Vec<AnswerWish>) -> usize {
    let work = wishes.into_iter().map(|wish| (store.clone(), wish));
    let answers = all_at_once(work.map(|(store, wish)| async move { store.answer(wish, T0).await.unwrap() })).await;
    let emails: Vec<Email> = answers.into_iter().map(went).collect();
    emails.iter().filter(|email| email.state() == EmailState::Queued).count()
}

pub(super) async fn of_16_answers_at_once_only_as_many_as_the_caps_go(store: Ledger) {
    let (inbox, message) = letter_in(&store).await;
    let mut messages = vec![message];
    for n in 2..=16 {
        messages.push(came(&store, &inbox, next_letter(n), T0).await);
    }
    let seen: Vec<_> = messages.iter().map(|message| message.id).collect();
    let caps = Caps { per_window: 3, ..LOOSE };
    let wish = |message| AnswerWish { caps, seen: seen.clone(), ..reply(message) };
    assert_eq!(going(&store, messages.iter().map(wish).collect()).await, 3);
}

pub(super) async fn of_16_answers_to_one_person_at_once_only_as_many_as_the_cap_go(store: Ledger) {
    let (_inbox, messages) = letters_in(&store, 16).await;
    let caps = Caps { per_person: 5, ..LOOSE };
    let wish = |message| AnswerWish { caps, person: Some([1; 16]), ..reply(message) };
    assert_eq!(going(&store, messages.iter().map(wish).collect()).await, 5);
}
