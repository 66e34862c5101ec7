//! Promises about messages that are offered to agents: the oldest first, one of a thread, none dropped.

use mailonce_core::{
    conversation::{
        answer::AnswerWish,
        thread::Settled,
        turn::{OFFERS, Settling},
    },
    message::{MessageState, NewMessage},
    port::store::{Bound, Once},
};
use std::collections::BTreeSet;

use super::{
    HOUR, Ledger, MINUTE, OTHER, SECOND, T0, TEAM, all_at_once, events, given, kinds, operation,
    post::{letter, open},
    talk::{
        answer, came, done, leased, letter_in, letters_in, next, next_letter, offered, reply, settle, the_message,
        the_thread, wants, went,
    },
};

const ACK: Settling = Settling::Ack;

pub(super) async fn the_oldest_are_offered_first_and_one_of_a_thread(store: Ledger) {
    let (inbox, first) = letter_in(&store).await;
    let second = came(&store, &inbox, next_letter(2), T0).await;
    let third = came(&store, &inbox, letter(Some(3), 3), T0).await;

    let offers = next(&store, wants(&inbox, &["t", "u", "v"]), T0).await;

    let given: Vec<_> = offers.iter().map(|offer| (offer.message.id, offer.token)).collect();
    assert_eq!(given, [(first.id, 0), (third.id, 1)]);
    for (offer, token) in offers.iter().zip(["t", "u"]) {
        let lease = offer.thread.about.lease.as_ref().unwrap();
        assert_eq!((lease.token.as_str(), lease.message), (token, Some(offer.message.id)));
        assert_eq!((lease.holder.as_str(), lease.expires_at), ("agent", T0.plus(HOUR)));
        assert_eq!((offer.message.rev, offer.message.marks.turn.offers), (2, 1));
        assert_eq!(the_message(&store, offer.message.id).await, offer.message);
        assert_eq!(the_thread(&store, offer.thread.id).await, offer.thread);
    }
    assert_eq!(the_message(&store, second.id).await, second);
    assert_eq!(kinds(&store).await[3..], ["thread.leased", "thread.leased"]);
    assert!(offered(&store, &inbox, &["w"], T0).await.is_empty(), "every thread is held");
}

pub(super) async fn no_more_are_offered_than_wanted(store: Ledger) {
    let (inbox, _messages) = letters_in(&store, 4).await;
    assert_eq!(offered(&store, &inbox, &["t", "u"], T0).await, [1, 2]);
    assert!(offered(&store, &inbox, &[], T0).await.is_empty());
    assert_eq!(offered(&store, &inbox, &["v"], T0).await, [3]);
}

pub(super) async fn what_wants_no_answer_is_not_offered(store: Ledger) {
    let (inbox, messages) = letters_in(&store, 3).await;
    let _email = went(answer(&store, reply(&messages[0]), T0).await);
    let skipped = NewMessage { state: MessageState::Skipped, ..letter(Some(8), 8) };
    let _skipped = came(&store, &inbox, skipped, T0).await;
    let _leased = leased(&store, messages[1].thread, "t", T0).await;
    let other = open(&store, "b@d.test").await;
    assert_eq!(offered(&store, &inbox, &["u", "v", "w"], T0).await, [3]);
    assert!(offered(&store, &other, &["u"], T0).await.is_empty());
}

pub(super) async fn what_was_put_off_waits_for_its_time(store: Ledger) {
    let (inbox, message) = letter_in(&store).await;
    assert_eq!(offered(&store, &inbox, &["t"], T0).await, [1]);
    let nack = Settling::Nack { delay_ms: MINUTE };
    let (after, thread) = done(settle(&store, message.id, "t", nack, T0).await);
    assert_eq!((after.state, after.marks.turn.not_before), (MessageState::Unanswered, Some(T0.plus(MINUTE))));
    assert_eq!(thread.about.lease, None);
    assert_eq!((the_message(&store, message.id).await, the_thread(&store, thread.id).await), (after, thread));
    assert!(offered(&store, &inbox, &["u"], T0.plus(MINUTE - 1)).await.is_empty());
    assert_eq!(offered(&store, &inbox, &["u"], T0.plus(MINUTE)).await, [1]);
    assert_eq!(the_message(&store, message.id).await.marks.turn.not_before, None);
}

pub(super) async fn an_extended_offer_lasts_longer(store: Ledger) {
    let (inbox, message) = letter_in(&store).await;
    assert_eq!(offered(&store, &inbox, &["t"], T0).await, [1]);
    let extend = Settling::Extend { ttl_ms: 2 * HOUR };
    let (after, thread) = done(settle(&store, message.id, "t", extend, T0.plus(SECOND)).await);
    assert_eq!(thread.about.lease.as_ref().unwrap().expires_at, T0.plus(2 * HOUR + SECOND));
    assert_eq!((after, thread.clone()), (the_message(&store, message.id).await, the_thread(&store, thread.id).await));
    assert!(offered(&store, &inbox, &["u"], T0.plus(2 * HOUR)).await.is_empty());
    assert_eq!(offered(&store, &inbox, &["u"], T0.plus(2 * HOUR + SECOND)).await, [1]);
}

pub(super) async fn an_acked_message_is_skipped_and_frees_its_thread(store: Ledger) {
    let (inbox, message) = letter_in(&store).await;
    let _second = came(&store, &inbox, next_letter(2), T0).await;
    assert_eq!(offered(&store, &inbox, &["t", "u"], T0).await, [1]);
    let (after, thread) = done(settle(&store, message.id, "t", ACK, T0).await);
    assert_eq!((after.state, after.marks.turn.dead, thread.about.lease), (MessageState::Skipped, false, None));
    let told = events(&store, TEAM).await.pop().unwrap().event;
    assert_eq!((told.kind.word(), told.about), ("message.skipped", message.id.0));
    assert_eq!(told.data["why"], "handled");
    assert!(matches!(settle(&store, message.id, "t", ACK, T0).await, Settled::Stale(..)));
    assert_eq!(offered(&store, &inbox, &["t", "u"], T0).await, [2]);
}

pub(super) async fn an_acked_answer_stays_one(store: Ledger) {
    let (inbox, message) = letter_in(&store).await;
    assert_eq!(offered(&store, &inbox, &["t"], T0).await, [1]);
    let wish = AnswerWish { lease: Some("t".into()), ..reply(&message) };
    let _email = went(answer(&store, wish, T0).await);
    let (after, thread) = done(settle(&store, message.id, "t", ACK, T0).await);
    assert_eq!((after.state, thread.about.lease), (MessageState::Answered, None));
    assert!(!kinds(&store).await.contains(&"message.skipped"));
}

pub(super) async fn what_its_holder_lost_is_offered_again_with_a_higher_fence(store: Ledger) {
    let (inbox, message) = letter_in(&store).await;
    assert_eq!(offered(&store, &inbox, &["t"], T0).await, [1]);
    let later = T0.plus(HOUR);
    let offer = next(&store, wants(&inbox, &["u"]), later).await.remove(0);
    assert_eq!((offer.message.marks.turn.offers, offer.thread.about.fence), (2, 2));
    for how in [ACK, Settling::Nack { delay_ms: 0 }, Settling::Extend { ttl_ms: HOUR }] {
        let stale = settle(&store, message.id, "t", how, later).await;
        assert_eq!(stale, Settled::Stale(offer.message.clone(), offer.thread.clone()));
    }
    assert_eq!(the_thread(&store, message.thread).await, offer.thread);
}

pub(super) async fn what_was_offered_in_vain_too_often_is_skipped_for_good(store: Ledger) {
    let (inbox, message) = letter_in(&store).await;
    let _second = came(&store, &inbox, next_letter(2), T0).await;
    for n in 0..OFFERS {
        assert_eq!(offered(&store, &inbox, &["t"], T0.plus(i64::from(n) * HOUR)).await, [1]);
    }
    let later = T0.plus(i64::from(OFFERS) * HOUR);
    assert_eq!(offered(&store, &inbox, &["t"], later).await, [2], "the next of its thread is offered instead");
    let after = the_message(&store, message.id).await;
    assert_eq!((after.state, after.marks.turn.dead), (MessageState::Skipped, true));
    let told: Vec<_> = events(&store, TEAM).await.into_iter().map(|event| event.event).collect();
    let skipped: Vec<_> = told.iter().filter(|event| event.kind.word() == "message.skipped").collect();
    assert_eq!((skipped.len(), skipped[0].about), (1, message.id.0));
    assert_eq!(skipped[0].data["why"], "offered_in_vain");
}

pub(super) async fn an_offering_under_an_operation_is_done_once(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let ask = async |token: &str, digest| {
        let call = Some(operation("op", digest, T0));
        store.next_messages(TEAM, wants(&inbox, &[token]), call, T0).await.unwrap()
    };
    assert_eq!(ask("t", 1).await, Once::Done(Vec::new()));
    assert_eq!(store.bound(TEAM, given(TEAM, "op"), T0).await.unwrap(), None, "nothing given binds nothing");
    for n in 1..=2 {
        let _message = came(&store, &inbox, letter(Some(n), n), T0).await;
    }
    assert!(matches!(ask("t", 1).await, Once::Done(offers) if offers.len() == 1));
    assert_eq!(ask("u", 1).await, Once::Repeated(b"answer 1".to_vec()));
    assert_eq!(ask("u", 2).await, Once::Mismatch(Bound::Operation { digest: [1; 32] }));
    assert_eq!(offered(&store, &inbox, &["v", "w"], T0).await, [2]);
}

pub(super) async fn messages_of_another_team_are_not_offered(store: Ledger) {
    let (inbox, message) = letter_in(&store).await;
    let asked = store.next_messages(OTHER, wants(&inbox, &["t"]), None, T0).await.unwrap();
    assert_eq!(asked, Once::Done(Vec::new()));
    assert_eq!(offered(&store, &inbox, &["t"], T0).await, [1]);
    let held = mailonce_core::conversation::turn::Held { message: message.id, token: "t".into() };
    assert_eq!(store.settle_message(OTHER, held, ACK, T0).await.unwrap(), Settled::Missing);
    assert_eq!(the_message(&store, message.id).await.state, MessageState::Unanswered);
}

pub(super) async fn many_workers_share_an_inbox_and_no_message_is_given_twice(store: Ledger) {
    let (inbox, messages) = letters_in(&store, 40).await;
    let work: Vec<_> = (0..8).map(|worker| (store.clone(), inbox.clone(), worker)).collect();

    let given = all_at_once(work.into_iter().map(|(store, inbox, worker)| async move {
        let mut mine = Vec::new();
        for round in 0..10 {
            let tokens: Vec<String> = (0..3).map(|n| format!("{worker}-{round}-{n}")).collect();
            let wanted: Vec<&str> = tokens.iter().map(String::as_str).collect();
            for offer in next(&store, wants(&inbox, &wanted), T0).await {
                mine.push(offer.message.id);
                let (after, _) = done(settle(&store, offer.message.id, &tokens[offer.token], ACK, T0).await);
                assert_eq!(after.marks.turn.offers, 1);
            }
        }
        mine
    }))
    .await;

    let all: Vec<_> = given.into_iter().flatten().collect();
    assert_eq!(all.len(), 40);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), messages.iter().map(|message| message.id).collect());
}

pub(super) async fn messages_of_one_thread_are_worked_on_one_at_a_time(store: Ledger) {
    let (inbox, first) = letter_in(&store).await;
    for n in 2..=6 {
        let _message = came(&store, &inbox, next_letter(n), T0).await;
    }
    let work: Vec<_> = (0..8).map(|worker| (store.clone(), inbox.clone(), format!("w{worker}"))).collect();
    let given = all_at_once(
        work.into_iter()
            .map(|(store, inbox, token)| async move { next(&store, wants(&inbox, &[&token]), T0).await.len() }),
    )
    .await;
    assert_eq!(given.iter().sum::<usize>(), 1);
    assert_eq!(the_thread(&store, first.thread).await.about.fence, 1);
}
