//! Promises about answers: each message is answered once, whatever the second one says.

use mailonce_core::{
    conversation::{
        answer::{AnswerWish, Answered},
        turn::{ANSWERS, Slot},
    },
    dispatch::Choice,
    email::{Email, EmailState, Guard, Refusal},
    id::{EmailId, MessageId},
    message::MessageState,
    port::{
        store::{Bound, Once, Resend},
        transport::Meaning,
    },
};
use std::collections::BTreeSet;

use super::{
    Ledger, OTHER, T0, TEAM, accepted, all_at_once, cancelled, capture, keyed, keyless, kinds, listed, next_id,
    next_version, operation,
    post::{automatic, letter, open, own},
    talk::{
        answer, answers, asks, before, came, forward, lease, leased, letter_in, letters_in, next, refused, reply,
        the_message, the_thread, wants, went,
    },
    the,
    work::{self, Job},
};

pub(super) async fn a_message_is_answered_once_and_the_second_gets_the_first(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let Answered::First(email, thread) = answer(&store, reply(&message), T0).await else { panic!() };
    assert_eq!((email.head.answers, email.head.thread), (Some(message.id), Some(message.thread)));
    assert_eq!((thread.about.messages, thread.about.emails, thread.rev), (1, 1, 2));
    assert_eq!(the_thread(&store, message.thread).await, thread);
    let now = the_message(&store, message.id).await;
    assert_eq!((now.state, now.rev), (MessageState::Answered, message.rev + 1));
    assert_eq!(now.marks.turn.answers, [(Slot::Reply(0), email.id)]);
    assert_eq!(now.marks.labels, message.marks.labels);
    assert_eq!(the(&store, email.id).await, email);

    let again = answer(&store, answers(&message, &keyed("k").text("other words"), T0), T0).await;

    assert_eq!(again, Answered::Already(email.id, Some(email.clone()), thread));
    assert_eq!(listed(&store, TEAM).await, [email]);
    assert_eq!(
        store.bound(TEAM, super::given(TEAM, "k"), T0).await.unwrap(),
        None,
        "what was not accepted binds nothing"
    );
    assert_eq!(kinds(&store).await, ["message.received", "email.accepted", "message.answered"]);
}

pub(super) async fn each_wanted_follow_up_is_made_once(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let first = went(answer(&store, reply(&message), T0).await);
    let follow_up = || AnswerWish { slot: Slot::Reply(1), ..reply(&message) };
    let second = went(answer(&store, follow_up(), T0).await);
    assert_ne!(first.id, second.id);
    assert_eq!(before(answer(&store, follow_up(), T0).await).0, second.id);
    assert_eq!(before(answer(&store, reply(&message), T0).await).0, first.id);
}

pub(super) async fn a_second_answer_sees_what_the_first_became(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let email = went(answer(&store, reply(&message), T0).await);
    assert_eq!(capture(&store, 10, T0).await, 1);
    let (id, now) = before(answer(&store, reply(&message), T0).await);
    assert_eq!((id, now.state()), (email.id, EmailState::Sent));
}

/// An answer that a worker has marked.
async fn marked(store: &Ledger, wish: AnswerWish) -> Job {
    let email = went(answer(store, wish, T0).await);
    let job = work::take(store, T0).await;
    assert_eq!(job.id, email.id);
    work::mark(store, job, T0).await
}

pub(super) async fn a_slot_is_free_again_when_its_answer_surely_never_left(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let first = went(answer(&store, reply(&message), T0).await);
    assert_eq!(cancelled(&store, first.id, T0).await.state(), EmailState::Cancelled);

    let job = marked(&store, reply(&message)).await;
    assert_eq!(work::answer(&store, &job, Meaning::Refused, T0).await.1.state(), EmailState::Failed);

    let third = went(answer(&store, reply(&message), T0).await);
    assert_eq!(the_message(&store, message.id).await.marks.turn.answers, [(Slot::Reply(0), third.id)]);
    assert_eq!(before(answer(&store, reply(&message), T0).await).0, third.id);
    assert_eq!(the_thread(&store, message.thread).await.about.emails, 3);
}

pub(super) async fn a_message_is_open_again_when_its_answer_surely_never_left(store: Ledger) {
    let (inbox, message) = letter_in(&store).await;
    let state = async || the_message(&store, message.id).await.state;
    let first = went(answer(&store, reply(&message), T0).await);
    assert_eq!(next(&store, wants(&inbox, &["a"]), T0).await, []);
    let _gone = cancelled(&store, first.id, T0).await;
    assert_eq!(state().await, MessageState::Unanswered);
    let told = ["message.answered", "email.cancelled", "message.reopened"];
    assert_eq!(kinds(&store).await[2..], told);
    assert_eq!(next(&store, wants(&inbox, &["a"]), T0).await.len(), 1);

    let wish = AnswerWish { lease: Some("a".into()), ..reply(&message) };
    let job = marked(&store, wish).await;
    assert_eq!(state().await, MessageState::Answered);
    let (_, failed) = work::answer(&store, &job, Meaning::Refused, T0).await;
    assert_eq!(state().await, MessageState::Unanswered);

    let mut wish = next_version(&failed).wish(T0);
    wish.head.answers = failed.head.answers;
    let resent = store.resend(wish, None, T0).await.unwrap();
    let Once::Done(Resend::First(second)) = resent else { panic!("{resent:?}") };
    assert_eq!(state().await, MessageState::Answered, "its next version may leave");
    let _gone = cancelled(&store, second.id, T0).await;
    assert_eq!(state().await, MessageState::Unanswered);
}

pub(super) async fn an_answer_that_another_replaced_is_not_sent_again(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let first = went(answer(&store, reply(&message), T0).await);
    let first = cancelled(&store, first.id, T0).await;
    let second = went(answer(&store, reply(&message), T0).await);
    let again = |of: &Email| {
        let mut wish = next_version(of).wish(T0);
        wish.head.answers = of.head.answers;
        wish
    };

    let refused = store.resend(again(&first), None, T0).await.unwrap();

    assert_eq!(refused, Once::Done(Resend::Refused(Refusal::Replaced, first)));
    let second = cancelled(&store, second.id, T0).await;
    let resent = store.resend(again(&second), None, T0).await.unwrap();
    assert!(matches!(resent, Once::Done(Resend::First(_))), "{resent:?}");
}

pub(super) async fn other_words_for_a_held_answer_leave_nobody_between(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let held = went(answer(&store, answers(&message, &keyless().held(Guard::Cap), T0), T0).await);
    let mut wish = next_version(&held).wish(T0);
    wish.head.answers = held.head.answers;
    let too_soon = store.resend(wish.clone(), None, T0).await.unwrap();
    assert_eq!(too_soon, Once::Done(Resend::Refused(Refusal::NotTerminal, held.clone())));

    wish.care.takes_back = true;
    let edited = store.resend(wish, None, T0).await.unwrap();

    let Once::Done(Resend::First(edited)) = edited else { panic!("{edited:?}") };
    assert_eq!(the(&store, held.id).await.state(), EmailState::Cancelled);
    assert_eq!(the_message(&store, message.id).await.state, MessageState::Answered);
    assert_eq!(before(answer(&store, reply(&message), T0).await).1.id, edited.id);
    let told = kinds(&store).await;
    assert!(!told.contains(&"message.reopened") && told.contains(&"email.cancelled"), "{told:?}");
}

pub(super) async fn a_message_stays_answered_while_one_of_its_answers_stands(store: Ledger) {
    let (_inbox, messages) = letters_in(&store, 2).await;
    let (message, other) = (&messages[0], &messages[1]);
    let _first = went(answer(&store, reply(message), T0).await);
    assert_eq!(capture(&store, 10, T0).await, 1);
    let follow_up = went(answer(&store, AnswerWish { slot: Slot::Reply(1), ..reply(message) }, T0).await);
    let passed_on = went(answer(&store, forward(message, "c@example.com"), T0).await);
    for email in [follow_up, passed_on] {
        let _gone = cancelled(&store, email.id, T0).await;
    }
    assert_eq!(the_message(&store, message.id).await.state, MessageState::Answered);

    let passed_on = went(answer(&store, forward(other, "c@example.com"), T0).await);
    let _gone = cancelled(&store, passed_on.id, T0).await;
    assert_eq!(the_message(&store, other.id).await.state, MessageState::Unanswered);
    assert!(!kinds(&store).await.contains(&"message.reopened"));
}

pub(super) async fn a_slot_stays_taken_while_its_answer_may_have_left(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let job = marked(&store, reply(&message)).await;
    let _lost = work::answer(&store, &job, Meaning::Unknown, T0).await;
    let (id, email) = before(answer(&store, reply(&message), T0).await);
    assert_eq!((id, email.state()), (job.id, EmailState::Unknown));
    let act = super::deed::resolve(Some(&email), None, Choice::Abandon, true);
    assert_eq!(work::act(&store, job.id, act, T0).await.1.state(), EmailState::Abandoned);
    assert_eq!(before(answer(&store, reply(&message), T0).await).0, job.id);
}

pub(super) async fn a_held_answer_keeps_its_slot(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let held = went(answer(&store, answers(&message, &keyless().held(Guard::Approval), T0), T0).await);
    assert_eq!((held.state(), held.guard), (EmailState::Held, Some(Guard::Approval)));
    assert_eq!(before(answer(&store, reply(&message), T0).await), (held.id, held));
}

pub(super) async fn another_version_keeps_the_slot(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let first = went(answer(&store, reply(&message), T0).await);
    let _gone = cancelled(&store, first.id, T0).await;
    let resent = store.resend(next_version(&first).wish(T0), None, T0).await.unwrap();
    let Once::Done(Resend::First(second)) = resent else { panic!("{resent:?}") };

    assert_eq!(before(answer(&store, reply(&message), T0).await), (first.id, second.clone()));

    let _gone = cancelled(&store, second.id, T0).await;
    assert_ne!(went(answer(&store, reply(&message), T0).await).id, first.id);
}

pub(super) async fn an_answer_that_left_keeps_its_slot_whatever_its_next_version_does(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let first = went(answer(&store, reply(&message), T0).await);
    assert_eq!(capture(&store, 10, T0).await, 1);
    let resent = store.resend(next_version(&first).wish(T0), None, T0).await.unwrap();
    let Once::Done(Resend::First(second)) = resent else { panic!("{resent:?}") };
    assert_eq!(cancelled(&store, second.id, T0).await.state(), EmailState::Cancelled);

    let (id, stands) = before(answer(&store, reply(&message), T0).await);
    assert_eq!((id, stands.id, stands.state()), (first.id, first.id, EmailState::Sent));
}

pub(super) async fn a_key_is_looked_up_before_any_guard(store: Ledger) {
    let (inbox, message) = letter_in(&store).await;
    let wish = || answers(&message, &keyed("k"), T0);
    let email = went(answer(&store, wish(), T0).await);
    let _leased = leased(&store, message.thread, "t", T0).await;
    let automatic = came(&store, &inbox, automatic(letter(Some(2), 2), true), T0).await;
    let told = kinds(&store).await.len();

    assert_eq!(answer(&store, wish(), T0).await, Answered::Bound(Bound::Email(email.clone())));
    let elsewhere = answers(&automatic, &keyed("k"), T0);
    assert_eq!(answer(&store, elsewhere, T0).await, Answered::Bound(Bound::Email(email)));
    let nowhere = AnswerWish { message: MessageId(next_id(T0)), ..wish() };
    assert!(matches!(answer(&store, nowhere, T0).await, Answered::Bound(Bound::Email(_))));

    let other = accepted(&store, &keyed("other"), T0).await;
    let _done = store.cancel(TEAM, other.id, Some(operation("op", 1, T0)), T0).await.unwrap();
    let bound = answer(&store, answers(&automatic, &keyed("op"), T0), T0).await;
    assert_eq!(bound, Answered::Bound(Bound::Operation { digest: [1; 32] }));
    assert_eq!(kinds(&store).await.len(), told + 2, "only the email and its cancel were told");
}

pub(super) async fn a_forward_has_a_slot_for_each_set_of_people(store: Ledger) {
    let (inbox, message) = letter_in(&store).await;
    let ann = went(answer(&store, forward(&message, "ann"), T0).await);
    assert_eq!(before(answer(&store, forward(&message, "ann"), T0).await).0, ann.id);
    let bob = went(answer(&store, forward(&message, "bob"), T0).await);
    assert_ne!(ann.id, bob.id);
    assert_eq!(the_message(&store, message.id).await.state, MessageState::Unanswered);
    let _reply = went(answer(&store, reply(&message), T0).await);
    assert_eq!(the_message(&store, message.id).await.state, MessageState::Answered);
    // What the message itself is does not matter to those it is passed on to.
    for letter in [own(letter(Some(2), 2)), automatic(letter(Some(3), 3), true)] {
        let message = came(&store, &inbox, letter, T0).await;
        let _forward = went(answer(&store, forward(&message, "ann"), T0).await);
    }
    assert_eq!(kinds(&store).await.iter().filter(|kind| **kind == "message.forwarded").count(), 4);
    let _leased = leased(&store, message.thread, "t", T0).await;
    assert_eq!(refused(answer(&store, forward(&message, "eve"), T0).await), (Guard::Leased, None));
}

pub(super) async fn more_answers_than_a_message_remembers_are_not_made(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let mut last = None;
    for n in 0..ANSWERS as u32 {
        last = Some(went(answer(&store, AnswerWish { slot: Slot::Reply(n), ..reply(&message) }, T0).await).id);
    }
    let over = AnswerWish { slot: Slot::Reply(ANSWERS as u32), ..reply(&message) };
    let Answered::Already(id, _, _) = answer(&store, over, T0).await else { panic!() };
    assert_eq!(Some(id), last);
    assert_eq!(listed(&store, TEAM).await.len(), ANSWERS);
}

pub(super) async fn nobody_and_another_teams_message_are_not_answered(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let theirs = mailonce_core::message::Message { team: OTHER, ..message.clone() };
    assert_eq!(answer(&store, reply(&theirs), T0).await, Answered::Missing);
    let nobody = AnswerWish { message: MessageId(next_id(T0)), ..reply(&message) };
    assert_eq!(answer(&store, nobody, T0).await, Answered::Missing);
    assert!(listed(&store, OTHER).await.is_empty() && listed(&store, TEAM).await.is_empty());
    assert_eq!(the_message(&store, message.id).await, message);
}

pub(super) async fn an_answer_is_told_to_watchers(store: Ledger) {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::<Email>::new()));
    let note = seen.clone();
    let watched = store.watch(std::sync::Arc::new(move |email: &Email| note.lock().unwrap().push(email.clone())));
    let (_inbox, message) = letter_in(&store).await;
    let email = went(answer(&store, reply(&message), T0).await);
    assert_eq!(seen.lock().unwrap().last(), watched.then_some(&email));
}

/// Answers all at once. The emails that were made, and those that others were answered with.
async fn contest(store: &Ledger, wishes: Vec<AnswerWish>) -> (BTreeSet<EmailId>, BTreeSet<EmailId>) {
    let work = wishes.into_iter().map(|wish| (store.clone(), wish));
    let answers = all_at_once(work.map(|(store, wish)| async move { store.answer(wish, T0).await.unwrap() })).await;
    let (mut made, mut found) = (BTreeSet::new(), BTreeSet::new());
    for answered in answers {
        match answered {
            Answered::First(email, _) => assert!(made.insert(email.id)),
            Answered::Already(id, Some(_), _) | Answered::Bound(Bound::Email(Email { id, .. })) => {
                found.insert(id);
            }
            other => panic!("{other:?}"),
        }
    }
    (made, found)
}

pub(super) async fn of_32_answers_of_one_message_one_goes(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let words =
        |n: u8| if n.is_multiple_of(2) { keyless() } else { keyed(&format!("k{n}")) }.text(&format!("words {n}"));
    let (made, found) = contest(&store, (0..32).map(|n| answers(&message, &words(n), T0)).collect()).await;
    assert_eq!(made.len(), 1);
    assert_eq!(made, found);
    assert_eq!(listed(&store, TEAM).await.len(), 1);
    assert_eq!(the_thread(&store, message.thread).await.about.emails, 1);
    assert_eq!(kinds(&store).await, ["message.received", "email.accepted", "message.answered"]);
}

pub(super) async fn answers_of_many_messages_at_once_are_each_made_once(store: Ledger) {
    let (_inbox, messages) = letters_in(&store, 12).await;
    let wishes = (0..4).flat_map(|_| messages.iter().map(reply)).collect();
    let (made, found) = contest(&store, wishes).await;
    assert_eq!((made.len(), &made), (12, &found));
}

pub(super) async fn of_32_answers_under_one_key_one_goes(store: Ledger) {
    let (_inbox, messages) = letters_in(&store, 2).await;
    let wishes = (0..32).map(|n: usize| answers(&messages[n % 2], &keyed("k"), T0)).collect();
    let (made, found) = contest(&store, wishes).await;
    assert_eq!(made.len(), 1);
    assert_eq!(made, found);
    let states = [the_message(&store, messages[0].id).await.state, the_message(&store, messages[1].id).await.state];
    assert!(states.contains(&MessageState::Answered) && states.contains(&MessageState::Unanswered));
}

pub(super) async fn an_answer_with_the_lease_goes_and_leaves_it(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let message = came(&store, &inbox, letter(Some(1), 1), T0).await;
    let thread = leased(&store, message.thread, "t", T0).await;
    let wish = AnswerWish { lease: Some("t".into()), ..reply(&message) };
    let _email = went(answer(&store, wish, T0).await);
    let now = the_thread(&store, message.thread).await;
    assert_eq!((now.about.lease, now.about.fence), (thread.about.lease, 1));
    assert!(matches!(
        lease(&store, message.thread, asks("u"), T0).await,
        mailonce_core::conversation::thread::Leasing::Busy(_)
    ));
}
