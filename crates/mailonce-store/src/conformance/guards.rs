//! Promises about the guards of an answer: which speaks, in which order, and what a refusal leaves.

use mailonce_core::{
    conversation::{answer::AnswerWish, caps::Caps},
    email::{EmailState, Guard},
    message::Message,
};

use super::{
    HOUR, Ledger, MINUTE, T0, TEAM, events, given, keyed, kinds, listed,
    post::{answering, automatic, letter, open, own},
    talk::{
        LOOSE, answer, answers, before, came, forward, leased, letter_in, next_letter, refused, reply, the_message,
        the_thread, went,
    },
};

/// The guard that refuses a plain answer now.
async fn refuses(store: &Ledger, wish: AnswerWish) -> Guard {
    refused(answer(store, wish, T0).await).0
}

pub(super) async fn our_own_mail_is_not_answered(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let message = came(&store, &inbox, own(letter(Some(1), 1)), T0).await;
    let wish = AnswerWish { answers_soft: true, ..reply(&message) };
    assert_eq!(refuses(&store, wish).await, Guard::Itself);
}

pub(super) async fn an_answer_to_nobody_but_ourselves_is_refused(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    assert_eq!(refuses(&store, AnswerWish { to_itself: true, ..reply(&message) }).await, Guard::Itself);
    let _email = went(answer(&store, AnswerWish { to_itself: true, ..forward(&message, "b@d.test") }, T0).await);
}

pub(super) async fn automatic_mail_is_answered_only_where_soft_signs_are(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let hard = came(&store, &inbox, automatic(letter(Some(1), 1), true), T0).await;
    let soft = came(&store, &inbox, automatic(letter(Some(2), 2), false), T0).await;
    assert_eq!(refuses(&store, reply(&hard)).await, Guard::Automatic);
    assert_eq!(refuses(&store, AnswerWish { answers_soft: true, ..reply(&hard) }).await, Guard::Automatic);
    assert_eq!(refuses(&store, reply(&soft)).await, Guard::Automatic);
    let _email = went(answer(&store, AnswerWish { answers_soft: true, ..reply(&soft) }, T0).await);
}

pub(super) async fn a_thread_that_another_holds_is_not_answered(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let _leased = leased(&store, message.thread, "t", T0).await;
    assert_eq!(refuses(&store, reply(&message)).await, Guard::Leased);
    let told = events(&store, TEAM).await.pop().unwrap().event;
    assert_eq!((told.kind.word(), told.about, told.rev), ("reply.refused", message.id.0, message.rev));
    assert_eq!((&told.data["guard"], &told.data["holder"]), (&"leased".into(), &"agent t".into()));
    assert_eq!((&told.data["fence"], &told.data["thread"]), (&1.into(), &message.thread.to_string().into()));
    let wrong = AnswerWish { lease: Some("u".into()), ..reply(&message) };
    assert_eq!(refuses(&store, wrong).await, Guard::Leased);
    // Nobody holds it any more.
    let _email = went(answer(&store, reply(&message), T0.plus(HOUR)).await);
}

pub(super) async fn a_stale_token_is_refused(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let with = |token: &str| AnswerWish { lease: Some(token.into()), ..reply(&message) };
    let later = T0.plus(HOUR);
    let _first = leased(&store, message.thread, "t", T0).await;
    let _second = leased(&store, message.thread, "u", later).await;
    assert_eq!(refused(answer(&store, with("t"), later).await).0, Guard::Leased);
    // The second lapsed too, but nobody took it since.
    let _email = went(answer(&store, with("u"), later.plus(2 * HOUR)).await);
}

pub(super) async fn a_token_that_was_given_back_is_stale(store: Ledger) {
    let (_inbox, message) = letter_in(&store).await;
    let _leased = leased(&store, message.thread, "t", T0).await;
    let _free = store.release_thread(TEAM, message.thread, "t", T0).await.unwrap().unwrap();
    assert_eq!(refuses(&store, AnswerWish { lease: Some("t".into()), ..reply(&message) }).await, Guard::Leased);
    let _email = went(answer(&store, reply(&message), T0).await);
}

pub(super) async fn a_newer_message_of_a_person_must_be_seen(store: Ledger) {
    let (inbox, message) = letter_in(&store).await;
    let robot = came(&store, &inbox, automatic(next_letter(2), false), T0).await;
    assert_eq!(robot.thread, message.thread);
    let two = came(&store, &inbox, next_letter(3), T0).await;
    let three = came(&store, &inbox, next_letter(4), T0).await;

    let seeing = |seen: &[&Message]| {
        let seen = seen.iter().map(|message| message.id).collect();
        AnswerWish { seen, ..reply(&message) }
    };
    assert_eq!(refused(answer(&store, seeing(&[]), T0).await), (Guard::NewerMessage, Some(two.id)));
    assert_eq!(refused(answer(&store, seeing(&[&two]), T0).await), (Guard::NewerMessage, Some(three.id)));
    assert_eq!(refused(answer(&store, seeing(&[&three]), T0).await), (Guard::NewerMessage, Some(two.id)));
    let _forward = went(answer(&store, forward(&message, "ann"), T0).await);
    let _email = went(answer(&store, seeing(&[&two, &three]), T0).await);
    // Whoever answers the latest has nothing to see.
    let _email = went(answer(&store, reply(&three), T0).await);
}

pub(super) async fn guards_speak_in_their_order(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let both = came(&store, &inbox, own(automatic(letter(Some(1), 1), true)), T0).await;
    let robot = came(&store, &inbox, automatic(next_letter(2), true), T0).await;
    let answered = came(&store, &inbox, next_letter(3), T0).await;
    let first = went(answer(&store, reply(&answered), T0).await);
    let message = came(&store, &inbox, next_letter(4), T0).await;
    let newer = came(&store, &inbox, answering(letter(Some(5), 5), &[4]), T0).await;
    let _leased = leased(&store, message.thread, "t", T0).await;
    let capped = |message: &Message, lease: Option<&str>| {
        let caps = Caps { per_window: 1, ..LOOSE };
        AnswerWish { caps, lease: lease.map(Into::into), ..reply(message) }
    };
    assert_eq!(refuses(&store, capped(&both, None)).await, Guard::Itself);
    assert_eq!(refuses(&store, capped(&robot, None)).await, Guard::Automatic);
    assert_eq!(before(answer(&store, capped(&answered, None), T0).await).0, first.id);
    assert_eq!(refuses(&store, capped(&message, None)).await, Guard::Leased);
    assert_eq!(refuses(&store, capped(&message, Some("t"))).await, Guard::NewerMessage);
    let last = AnswerWish { seen: vec![newer.id], ..capped(&message, Some("t")) };
    let held = went(answer(&store, last, T0.plus(MINUTE - 1)).await);
    assert_eq!((held.state(), held.guard), (EmailState::Held, Some(Guard::Cap)));
}

pub(super) async fn a_refusal_leaves_an_event_and_nothing_else(store: Ledger) {
    let (inbox, message) = letter_in(&store).await;
    let _newer = came(&store, &inbox, next_letter(2), T0).await;
    let (thread, told) = (the_thread(&store, message.thread).await, kinds(&store).await);

    let wish = AnswerWish { person: Some([1; 16]), ..answers(&message, &keyed("k"), T0) };
    let _guard = refuses(&store, wish).await;

    assert_eq!(the_message(&store, message.id).await, message);
    assert_eq!(the_thread(&store, message.thread).await, thread);
    assert!(listed(&store, TEAM).await.is_empty());
    assert_eq!(store.key(TEAM, given(TEAM, "k"), T0).await.unwrap(), None);
    assert!(store.thread_emails(TEAM, message.thread, None, 10).await.unwrap().is_empty());
    assert_eq!(kinds(&store).await, [told, vec!["reply.refused"]].concat());
}
