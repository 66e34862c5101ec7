//! Promises about answers: each message is answered once, whatever the second one says.

use mailonce_core::{
    conversation::{
        message_progress::{MAX_ANSWERS, ReplySlot},
        reply_guards::{NewReply, ReplyResult},
    },
    handoff::{action::Resolution, reply::ReplyMeaning},
    id::{EmailId, MessageId},
    inbox::message::MessageState,
    operation::IdempotentResult,
    outbound::{
        accept::AcceptResult,
        email::{Email, EmailChangeRefusal, EmailState, Guard},
        email_commands::EmailResendResult,
        key_binding::KeyBinding,
    },
};
use std::collections::BTreeSet;

use super::{
    OTHER_TEAM, T0, TEAM, TestStore, accept_first, all_at_once, all_events, cancel_email, capture_due, event_kinds,
    keyed_email, keyless_email, list_all, load_email, new_operation, next_id, next_version,
    post::{from_own_address, new_message, open_inbox, written_by_machine},
    talk::{
        accept_reply, expect_accepted, expect_already_answered, expect_leased_thread, expect_refused, file_message,
        inbox_with_message, inbox_with_messages, lease_messages, lease_request, lease_thread, load_message,
        load_thread, new_forward, next_request, plain_reply, reply_with,
    },
    work::{self, LeasedJob},
};

pub(super) async fn a_message_is_answered_once_and_the_second_gets_the_first(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let ReplyResult::First(email, thread) = accept_reply(&store, plain_reply(&message), T0).await else { panic!() };
    assert_eq!((email.head.answers, email.head.thread), (Some(message.id), Some(message.thread)));
    assert_eq!((thread.details.messages, thread.details.emails, thread.rev), (1, 1, 2));
    assert_eq!(load_thread(&store, message.thread).await, thread);
    let now = load_message(&store, message.id).await;
    assert_eq!((now.state, now.rev), (MessageState::Answered, message.rev + 1));
    assert_eq!(now.annotations.turn.answers, [(ReplySlot::Reply(0), email.id)]);
    assert_eq!(now.annotations.labels, message.annotations.labels);
    assert_eq!(load_email(&store, email.id).await, email);

    let again = accept_reply(&store, reply_with(&message, &keyed_email("k").text("other words"), T0), T0).await;

    assert_eq!(again, ReplyResult::AlreadyAnswered(email.id, Some(email.clone()), thread));
    assert_eq!(list_all(&store, TEAM).await, [email]);
    assert_eq!(
        store.key_binding(TEAM, super::given_key_hash(TEAM, "k"), T0).await.unwrap(),
        None,
        "what was not accepted binds nothing"
    );
    assert_eq!(event_kinds(&store).await, ["message.received", "email.accepted", "message.answered"]);
}

pub(super) async fn each_wanted_follow_up_is_made_once(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let first = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    let follow_up = || NewReply { slot: ReplySlot::Reply(1), ..plain_reply(&message) };
    let second = expect_accepted(accept_reply(&store, follow_up(), T0).await);
    assert_ne!(first.id, second.id);
    assert_eq!(expect_already_answered(accept_reply(&store, follow_up(), T0).await).0, second.id);
    assert_eq!(expect_already_answered(accept_reply(&store, plain_reply(&message), T0).await).0, first.id);
}

pub(super) async fn a_second_answer_sees_what_the_first_became(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let email = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!(capture_due(&store, 10, T0).await, 1);
    let (id, now) = expect_already_answered(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!((id, now.state()), (email.id, EmailState::Sent));
}

/// An answer that a worker has marked.
async fn reply_and_mark(store: &TestStore, wish: NewReply) -> LeasedJob {
    let email = expect_accepted(accept_reply(store, wish, T0).await);
    let job = work::lease_only_handoff(store, T0).await;
    assert_eq!(job.id, email.id);
    work::write_marker(store, job, T0).await
}

pub(super) async fn a_slot_is_free_again_when_its_answer_surely_never_left(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let first = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!(cancel_email(&store, first.id, T0).await.state(), EmailState::Cancelled);

    let job = reply_and_mark(&store, plain_reply(&message)).await;
    assert_eq!(work::record_answer(&store, &job, ReplyMeaning::Refused, T0).await.1.state(), EmailState::Failed);

    let third = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!(load_message(&store, message.id).await.annotations.turn.answers, [(ReplySlot::Reply(0), third.id)]);
    assert_eq!(expect_already_answered(accept_reply(&store, plain_reply(&message), T0).await).0, third.id);
    assert_eq!(load_thread(&store, message.thread).await.details.emails, 3);
}

pub(super) async fn a_message_is_open_again_when_its_answer_surely_never_left(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    let state = async || load_message(&store, message.id).await.state;
    let first = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!(lease_messages(&store, next_request(&inbox, &["a"]), T0).await, []);
    let _gone = cancel_email(&store, first.id, T0).await;
    assert_eq!(state().await, MessageState::Unanswered);
    let told = ["message.answered", "email.cancelled", "message.reopened"];
    assert_eq!(event_kinds(&store).await[2..], told);
    assert_eq!(lease_messages(&store, next_request(&inbox, &["a"]), T0).await.len(), 1);

    let wish = NewReply { lease_token_hash: Some("a".into()), ..plain_reply(&message) };
    let job = reply_and_mark(&store, wish).await;
    assert_eq!(state().await, MessageState::Answered);
    let (_, failed) = work::record_answer(&store, &job, ReplyMeaning::Refused, T0).await;
    assert_eq!(state().await, MessageState::Unanswered);

    let mut wish = next_version(&failed).to_new_email(T0);
    wish.head.answers = failed.head.answers;
    let resent = store.resend(wish, None, T0).await.unwrap();
    let IdempotentResult::Done(EmailResendResult::First(second)) = resent else { panic!("{resent:?}") };
    assert_eq!(state().await, MessageState::Answered, "its next version may leave");
    let _gone = cancel_email(&store, second.id, T0).await;
    assert_eq!(state().await, MessageState::Unanswered);
}

pub(super) async fn an_answer_that_another_replaced_is_not_sent_again(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let first = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    let first = cancel_email(&store, first.id, T0).await;
    let second = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    let again = |of: &Email| {
        let mut wish = next_version(of).to_new_email(T0);
        wish.head.answers = of.head.answers;
        wish
    };

    let refused = store.resend(again(&first), None, T0).await.unwrap();

    assert_eq!(
        refused,
        IdempotentResult::Done(EmailResendResult::Refused(EmailChangeRefusal::AnsweredByAnother, first))
    );
    let second = cancel_email(&store, second.id, T0).await;
    let resent = store.resend(again(&second), None, T0).await.unwrap();
    assert!(matches!(resent, IdempotentResult::Done(EmailResendResult::First(_))), "{resent:?}");
}

pub(super) async fn a_resend_refused_for_another_answer_cancels_nothing(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let _answer = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    let mut replaced = keyless_email().held(Guard::Approval).to_new_email(T0);
    replaced.head.answers = Some(message.id);
    let AcceptResult::First(held) = store.accept(replaced, T0).await.unwrap() else { panic!() };
    let events = all_events(&store, TEAM).await;
    let mut wish = next_version(&held).to_new_email(T0);
    wish.head.answers = held.head.answers;
    wish.guard_input.cancels_previous = true;

    let refused = store.resend(wish, Some(new_operation("op", 1, T0)), T0).await.unwrap();

    let refusal = EmailResendResult::Refused(EmailChangeRefusal::AnsweredByAnother, held.clone());
    assert_eq!(refused, IdempotentResult::Done(refusal));
    assert_eq!(load_email(&store, held.id).await, held);
    assert_eq!(all_events(&store, TEAM).await, events);
    let _free = accept_first(&store, &keyed_email("op"), T0).await;
}

pub(super) async fn other_words_for_a_held_answer_leave_nobody_between(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let held =
        expect_accepted(accept_reply(&store, reply_with(&message, &keyless_email().held(Guard::Cap), T0), T0).await);
    let mut wish = next_version(&held).to_new_email(T0);
    wish.head.answers = held.head.answers;
    let too_soon = store.resend(wish.clone(), None, T0).await.unwrap();
    assert_eq!(
        too_soon,
        IdempotentResult::Done(EmailResendResult::Refused(EmailChangeRefusal::NotTerminal, held.clone()))
    );

    wish.guard_input.cancels_previous = true;
    let edited = store.resend(wish, None, T0).await.unwrap();

    let IdempotentResult::Done(EmailResendResult::First(edited)) = edited else { panic!("{edited:?}") };
    assert_eq!(load_email(&store, held.id).await.state(), EmailState::Cancelled);
    assert_eq!(load_message(&store, message.id).await.state, MessageState::Answered);
    assert_eq!(expect_already_answered(accept_reply(&store, plain_reply(&message), T0).await).1.id, edited.id);
    let told = event_kinds(&store).await;
    assert!(!told.contains(&"message.reopened") && told.contains(&"email.cancelled"), "{told:?}");
}

pub(super) async fn a_message_stays_answered_while_one_of_its_answers_stands(store: TestStore) {
    let (_inbox, messages) = inbox_with_messages(&store, 2).await;
    let (message, other) = (&messages[0], &messages[1]);
    let _first = expect_accepted(accept_reply(&store, plain_reply(message), T0).await);
    assert_eq!(capture_due(&store, 10, T0).await, 1);
    let follow_up =
        expect_accepted(accept_reply(&store, NewReply { slot: ReplySlot::Reply(1), ..plain_reply(message) }, T0).await);
    let passed_on = expect_accepted(accept_reply(&store, new_forward(message, "c@example.com"), T0).await);
    for email in [follow_up, passed_on] {
        let _gone = cancel_email(&store, email.id, T0).await;
    }
    assert_eq!(load_message(&store, message.id).await.state, MessageState::Answered);

    let passed_on = expect_accepted(accept_reply(&store, new_forward(other, "c@example.com"), T0).await);
    let _gone = cancel_email(&store, passed_on.id, T0).await;
    assert_eq!(load_message(&store, other.id).await.state, MessageState::Unanswered);
    assert!(!event_kinds(&store).await.contains(&"message.reopened"));
}

pub(super) async fn a_slot_stays_taken_while_its_answer_may_have_left(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let job = reply_and_mark(&store, plain_reply(&message)).await;
    let _lost = work::record_answer(&store, &job, ReplyMeaning::Unknown, T0).await;
    let (id, email) = expect_already_answered(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!((id, email.state()), (job.id, EmailState::Unknown));
    let act = super::deed::resolve_action(Some(&email), None, Resolution::Abandon, true);
    assert_eq!(work::apply_action(&store, job.id, act, T0).await.1.state(), EmailState::Abandoned);
    assert_eq!(expect_already_answered(accept_reply(&store, plain_reply(&message), T0).await).0, job.id);
}

pub(super) async fn a_held_answer_keeps_its_slot(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let held = expect_accepted(
        accept_reply(&store, reply_with(&message, &keyless_email().held(Guard::Approval), T0), T0).await,
    );
    assert_eq!((held.state(), held.guard), (EmailState::Held, Some(Guard::Approval)));
    assert_eq!(expect_already_answered(accept_reply(&store, plain_reply(&message), T0).await), (held.id, held));
}

pub(super) async fn another_version_keeps_the_slot(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let first = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    let _gone = cancel_email(&store, first.id, T0).await;
    let resent = store.resend(next_version(&first).to_new_email(T0), None, T0).await.unwrap();
    let IdempotentResult::Done(EmailResendResult::First(second)) = resent else { panic!("{resent:?}") };

    assert_eq!(
        expect_already_answered(accept_reply(&store, plain_reply(&message), T0).await),
        (first.id, second.clone())
    );

    let _gone = cancel_email(&store, second.id, T0).await;
    assert_ne!(expect_accepted(accept_reply(&store, plain_reply(&message), T0).await).id, first.id);
}

pub(super) async fn an_answer_that_left_keeps_its_slot_whatever_its_next_version_does(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let first = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!(capture_due(&store, 10, T0).await, 1);
    let resent = store.resend(next_version(&first).to_new_email(T0), None, T0).await.unwrap();
    let IdempotentResult::Done(EmailResendResult::First(second)) = resent else { panic!("{resent:?}") };
    assert_eq!(cancel_email(&store, second.id, T0).await.state(), EmailState::Cancelled);

    let (id, stands) = expect_already_answered(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!((id, stands.id, stands.state()), (first.id, first.id, EmailState::Sent));
}

pub(super) async fn a_key_is_looked_up_before_any_guard(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    let wish = || reply_with(&message, &keyed_email("k"), T0);
    let email = expect_accepted(accept_reply(&store, wish(), T0).await);
    let _leased = expect_leased_thread(&store, message.thread, "t", T0).await;
    let automatic = file_message(&store, &inbox, written_by_machine(new_message(Some(2), 2), true), T0).await;
    let told = event_kinds(&store).await.len();

    assert_eq!(accept_reply(&store, wish(), T0).await, ReplyResult::KeyBound(KeyBinding::Email(email.clone())));
    let elsewhere = reply_with(&automatic, &keyed_email("k"), T0);
    assert_eq!(accept_reply(&store, elsewhere, T0).await, ReplyResult::KeyBound(KeyBinding::Email(email)));
    let nowhere = NewReply { message: MessageId(next_id(T0)), ..wish() };
    assert!(matches!(accept_reply(&store, nowhere, T0).await, ReplyResult::KeyBound(KeyBinding::Email(_))));

    let other = accept_first(&store, &keyed_email("other"), T0).await;
    let _done = store.cancel(TEAM, other.id, Some(new_operation("op", 1, T0)), T0).await.unwrap();
    let bound = accept_reply(&store, reply_with(&automatic, &keyed_email("op"), T0), T0).await;
    assert_eq!(bound, ReplyResult::KeyBound(KeyBinding::Operation { digest: [1; 32] }));
    assert_eq!(event_kinds(&store).await.len(), told + 2, "only the email and its cancel were told");
}

pub(super) async fn a_forward_has_a_slot_for_each_set_of_people(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    let ann = expect_accepted(accept_reply(&store, new_forward(&message, "ann"), T0).await);
    assert_eq!(expect_already_answered(accept_reply(&store, new_forward(&message, "ann"), T0).await).0, ann.id);
    let bob = expect_accepted(accept_reply(&store, new_forward(&message, "bob"), T0).await);
    assert_ne!(ann.id, bob.id);
    assert_eq!(load_message(&store, message.id).await.state, MessageState::Unanswered);
    let _reply = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!(load_message(&store, message.id).await.state, MessageState::Answered);
    // What the message itself is does not matter to those it is passed on to.
    for letter in [from_own_address(new_message(Some(2), 2)), written_by_machine(new_message(Some(3), 3), true)] {
        let message = file_message(&store, &inbox, letter, T0).await;
        let _forward = expect_accepted(accept_reply(&store, new_forward(&message, "ann"), T0).await);
    }
    assert_eq!(event_kinds(&store).await.iter().filter(|kind| **kind == "message.forwarded").count(), 4);
    let _leased = expect_leased_thread(&store, message.thread, "t", T0).await;
    assert_eq!(expect_refused(accept_reply(&store, new_forward(&message, "eve"), T0).await), (Guard::Leased, None));
}

pub(super) async fn more_answers_than_a_message_remembers_are_not_made(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let mut last = None;
    for n in 0..MAX_ANSWERS as u32 {
        last = Some(
            expect_accepted(
                accept_reply(&store, NewReply { slot: ReplySlot::Reply(n), ..plain_reply(&message) }, T0).await,
            )
            .id,
        );
    }
    let over = NewReply { slot: ReplySlot::Reply(MAX_ANSWERS as u32), ..plain_reply(&message) };
    let ReplyResult::AlreadyAnswered(id, _, _) = accept_reply(&store, over, T0).await else { panic!() };
    assert_eq!(Some(id), last);
    assert_eq!(list_all(&store, TEAM).await.len(), MAX_ANSWERS);
}

pub(super) async fn nobody_and_another_teams_message_are_not_answered(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let theirs = mailonce_core::inbox::message::Message { team: OTHER_TEAM, ..message.clone() };
    assert_eq!(accept_reply(&store, plain_reply(&theirs), T0).await, ReplyResult::Missing);
    let nobody = NewReply { message: MessageId(next_id(T0)), ..plain_reply(&message) };
    assert_eq!(accept_reply(&store, nobody, T0).await, ReplyResult::Missing);
    assert!(list_all(&store, OTHER_TEAM).await.is_empty() && list_all(&store, TEAM).await.is_empty());
    assert_eq!(load_message(&store, message.id).await, message);
}

pub(super) async fn an_answer_is_told_to_watchers(store: TestStore) {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::<Email>::new()));
    let note = seen.clone();
    let watched =
        store.subscribe_to_emails(std::sync::Arc::new(move |email: &Email| note.lock().unwrap().push(email.clone())));
    let (_inbox, message) = inbox_with_message(&store).await;
    let email = expect_accepted(accept_reply(&store, plain_reply(&message), T0).await);
    assert_eq!(seen.lock().unwrap().last(), watched.then_some(&email));
}

/// Answers all at once. The emails that were made, and those that others were answered with.
async fn reply_concurrently(store: &TestStore, wishes: Vec<NewReply>) -> (BTreeSet<EmailId>, BTreeSet<EmailId>) {
    let work = wishes.into_iter().map(|wish| (store.clone(), wish));
    let answers =
        all_at_once(work.map(|(store, wish)| async move { store.accept_reply(wish, T0).await.unwrap() })).await;
    let (mut made, mut found) = (BTreeSet::new(), BTreeSet::new());
    for answered in answers {
        match answered {
            ReplyResult::First(email, _) => assert!(made.insert(email.id)),
            ReplyResult::AlreadyAnswered(id, Some(_), _)
            | ReplyResult::KeyBound(KeyBinding::Email(Email { id, .. })) => {
                found.insert(id);
            }
            other => panic!("{other:?}"),
        }
    }
    (made, found)
}

pub(super) async fn of_32_answers_of_one_message_one_goes(store: TestStore) {
    let (_inbox, message) = inbox_with_message(&store).await;
    let words = |n: u8| {
        if n.is_multiple_of(2) { keyless_email() } else { keyed_email(&format!("k{n}")) }.text(&format!("words {n}"))
    };
    let (made, found) =
        reply_concurrently(&store, (0..32).map(|n| reply_with(&message, &words(n), T0)).collect()).await;
    assert_eq!(made.len(), 1);
    assert_eq!(made, found);
    assert_eq!(list_all(&store, TEAM).await.len(), 1);
    assert_eq!(load_thread(&store, message.thread).await.details.emails, 1);
    assert_eq!(event_kinds(&store).await, ["message.received", "email.accepted", "message.answered"]);
}

pub(super) async fn answers_of_many_messages_at_once_are_each_made_once(store: TestStore) {
    let (_inbox, messages) = inbox_with_messages(&store, 12).await;
    let wishes = (0..4).flat_map(|_| messages.iter().map(plain_reply)).collect();
    let (made, found) = reply_concurrently(&store, wishes).await;
    assert_eq!((made.len(), &made), (12, &found));
}

pub(super) async fn of_32_answers_under_one_key_one_goes(store: TestStore) {
    let (_inbox, messages) = inbox_with_messages(&store, 2).await;
    let wishes = (0..32).map(|n: usize| reply_with(&messages[n % 2], &keyed_email("k"), T0)).collect();
    let (made, found) = reply_concurrently(&store, wishes).await;
    assert_eq!(made.len(), 1);
    assert_eq!(made, found);
    let states = [load_message(&store, messages[0].id).await.state, load_message(&store, messages[1].id).await.state];
    assert!(states.contains(&MessageState::Answered) && states.contains(&MessageState::Unanswered));
}

pub(super) async fn an_answer_with_the_lease_goes_and_leaves_it(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let message = file_message(&store, &inbox, new_message(Some(1), 1), T0).await;
    let thread = expect_leased_thread(&store, message.thread, "t", T0).await;
    let wish = NewReply { lease_token_hash: Some("t".into()), ..plain_reply(&message) };
    let _email = expect_accepted(accept_reply(&store, wish, T0).await);
    let now = load_thread(&store, message.thread).await;
    assert_eq!((now.details.lease, now.details.fence), (thread.details.lease, 1));
    assert!(matches!(
        lease_thread(&store, message.thread, lease_request("u"), T0).await,
        mailonce_core::conversation::thread::ThreadLeaseResult::Busy(_)
    ));
}
