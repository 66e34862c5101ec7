//! Promises about the work queue: the oldest messages first, one per thread, none lost.

use mailonce_core::{
    conversation::{message_progress::Acknowledgement, reply_guards::NewReply, thread::AcknowledgeResult},
    inbox::{
        message::{MessageState, NewMessage},
        progress::MAX_OFFERS,
    },
    operation::IdempotentResult,
    outbound::key_binding::KeyBinding,
};
use std::collections::BTreeSet;

use crate::conformance::{
    HOUR, MINUTE, OTHER_TEAM, SECOND, T0, TEAM, TestStore, all_at_once, all_events, event_kinds,
    fixtures::{
        conversations::{
            accept_reply, acknowledge, expect_accepted, expect_acknowledged, expect_leased_thread, file_message,
            inbox_with_message, inbox_with_messages, lease_message_seqs, lease_messages, load_message, load_thread,
            message_in_thread_1, message_lease_spec, plain_reply,
        },
        inbound::{new_message, open_inbox},
    },
    given_key_hash, new_operation,
};

const ACK: Acknowledgement = Acknowledgement::Ack;

pub(super) async fn the_oldest_messages_are_offered_first_one_per_thread(store: TestStore) {
    let (inbox, first) = inbox_with_message(&store).await;
    let second = file_message(&store, &inbox, message_in_thread_1(2), T0).await;
    let third = file_message(&store, &inbox, new_message(Some(3), 3), T0).await;

    let offers = lease_messages(&store, message_lease_spec(&inbox, &["t", "u", "v"]), T0).await;

    let offered: Vec<_> = offers.iter().map(|offer| (offer.message.id, offer.token_index)).collect();
    assert_eq!(offered, [(first.id, 0), (third.id, 1)]);
    for (offer, token) in offers.iter().zip(["t", "u"]) {
        let lease = offer.thread.details.lease.as_ref().unwrap();
        assert_eq!((lease.token.as_str(), lease.message), (token, Some(offer.message.id)));
        assert_eq!((lease.holder.as_str(), lease.expires_at), ("agent", T0.plus(HOUR)));
        assert_eq!((offer.message.rev, offer.message.annotations.progress.offers), (2, 1));
        assert_eq!(load_message(&store, offer.message.id).await, offer.message);
        assert_eq!(load_thread(&store, offer.thread.id).await, offer.thread);
    }
    assert_eq!(load_message(&store, second.id).await, second);
    assert_eq!(event_kinds(&store).await[3..], ["thread.leased", "thread.leased"]);
    assert!(lease_message_seqs(&store, &inbox, &["w"], T0).await.is_empty(), "every thread is leased");
}

pub(super) async fn no_more_messages_are_offered_than_requested(store: TestStore) {
    let (inbox, _messages) = inbox_with_messages(&store, 4).await;
    assert_eq!(lease_message_seqs(&store, &inbox, &["t", "u"], T0).await, [1, 2]);
    assert!(lease_message_seqs(&store, &inbox, &[], T0).await.is_empty());
    assert_eq!(lease_message_seqs(&store, &inbox, &["v"], T0).await, [3]);
}

pub(super) async fn messages_that_need_no_reply_are_not_offered(store: TestStore) {
    let (inbox, messages) = inbox_with_messages(&store, 3).await;
    let _email = expect_accepted(accept_reply(&store, plain_reply(&messages[0]), T0).await);
    let skipped = NewMessage { state: MessageState::Skipped, ..new_message(Some(8), 8) };
    let _skipped = file_message(&store, &inbox, skipped, T0).await;
    let _leased = expect_leased_thread(&store, messages[1].thread, "t", T0).await;
    let other = open_inbox(&store, "b@d.test").await;
    assert_eq!(lease_message_seqs(&store, &inbox, &["u", "v", "w"], T0).await, [3]);
    assert!(lease_message_seqs(&store, &other, &["u"], T0).await.is_empty());
}

pub(super) async fn a_nacked_message_waits_for_its_delay(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    assert_eq!(lease_message_seqs(&store, &inbox, &["t"], T0).await, [1]);
    let nack = Acknowledgement::Nack { delay_ms: MINUTE };
    let (after, thread) = expect_acknowledged(acknowledge(&store, message.id, "t", nack, T0).await);
    assert_eq!((after.state, after.annotations.progress.not_before), (MessageState::Unanswered, Some(T0.plus(MINUTE))));
    assert_eq!(thread.details.lease, None);
    assert_eq!((load_message(&store, message.id).await, load_thread(&store, thread.id).await), (after, thread));
    assert!(lease_message_seqs(&store, &inbox, &["u"], T0.plus(MINUTE - 1)).await.is_empty());
    assert_eq!(lease_message_seqs(&store, &inbox, &["u"], T0.plus(MINUTE)).await, [1]);
    assert_eq!(load_message(&store, message.id).await.annotations.progress.not_before, None);
}

pub(super) async fn an_extended_offer_lasts_longer(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    assert_eq!(lease_message_seqs(&store, &inbox, &["t"], T0).await, [1]);
    let extend = Acknowledgement::Extend { ttl_ms: 2 * HOUR };
    let (after, thread) = expect_acknowledged(acknowledge(&store, message.id, "t", extend, T0.plus(SECOND)).await);
    assert_eq!(thread.details.lease.as_ref().unwrap().expires_at, T0.plus(2 * HOUR + SECOND));
    assert_eq!((after, thread.clone()), (load_message(&store, message.id).await, load_thread(&store, thread.id).await));
    assert!(lease_message_seqs(&store, &inbox, &["u"], T0.plus(2 * HOUR)).await.is_empty());
    assert_eq!(lease_message_seqs(&store, &inbox, &["u"], T0.plus(2 * HOUR + SECOND)).await, [1]);
}

pub(super) async fn an_acked_message_is_skipped_and_frees_its_thread(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    let _second = file_message(&store, &inbox, message_in_thread_1(2), T0).await;
    assert_eq!(lease_message_seqs(&store, &inbox, &["t", "u"], T0).await, [1]);
    let (after, thread) = expect_acknowledged(acknowledge(&store, message.id, "t", ACK, T0).await);
    assert_eq!(
        (after.state, after.annotations.progress.dead, thread.details.lease),
        (MessageState::Skipped, false, None)
    );
    let event = all_events(&store, TEAM).await.pop().unwrap().event;
    assert_eq!((event.kind.as_str(), event.subject_id), ("message.skipped", message.id.0));
    assert_eq!(event.data["reason"], "handled");
    assert!(matches!(acknowledge(&store, message.id, "t", ACK, T0).await, AcknowledgeResult::Stale(..)));
    assert_eq!(lease_message_seqs(&store, &inbox, &["t", "u"], T0).await, [2]);
}

pub(super) async fn acking_an_answered_message_keeps_it_answered(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    assert_eq!(lease_message_seqs(&store, &inbox, &["t"], T0).await, [1]);
    let reply = NewReply { lease_token_hash: Some("t".into()), ..plain_reply(&message) };
    let _email = expect_accepted(accept_reply(&store, reply, T0).await);
    let (after, thread) = expect_acknowledged(acknowledge(&store, message.id, "t", ACK, T0).await);
    assert_eq!((after.state, thread.details.lease), (MessageState::Answered, None));
    assert!(!event_kinds(&store).await.contains(&"message.skipped"));
}

pub(super) async fn an_expired_offer_is_offered_again_with_a_higher_fence(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    assert_eq!(lease_message_seqs(&store, &inbox, &["t"], T0).await, [1]);
    let later = T0.plus(HOUR);
    let offer = lease_messages(&store, message_lease_spec(&inbox, &["u"]), later).await.remove(0);
    assert_eq!((offer.message.annotations.progress.offers, offer.thread.details.fence), (2, 2));
    for how in [ACK, Acknowledgement::Nack { delay_ms: 0 }, Acknowledgement::Extend { ttl_ms: HOUR }] {
        let stale = acknowledge(&store, message.id, "t", how, later).await;
        assert_eq!(stale, AcknowledgeResult::Stale(offer.message.clone(), offer.thread.clone()));
    }
    assert_eq!(load_thread(&store, message.thread).await, offer.thread);
}

pub(super) async fn a_message_offered_too_often_in_vain_is_skipped_for_good(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    let _second = file_message(&store, &inbox, message_in_thread_1(2), T0).await;
    for n in 0..MAX_OFFERS {
        assert_eq!(lease_message_seqs(&store, &inbox, &["t"], T0.plus(i64::from(n) * HOUR)).await, [1]);
    }
    let later = T0.plus(i64::from(MAX_OFFERS) * HOUR);
    assert_eq!(
        lease_message_seqs(&store, &inbox, &["t"], later).await,
        [2],
        "the next of its thread is offered instead"
    );
    let after = load_message(&store, message.id).await;
    assert_eq!((after.state, after.annotations.progress.dead), (MessageState::Skipped, true));
    let events: Vec<_> = all_events(&store, TEAM).await.into_iter().map(|event| event.event).collect();
    let skipped: Vec<_> = events.iter().filter(|event| event.kind.as_str() == "message.skipped").collect();
    assert_eq!((skipped.len(), skipped[0].subject_id), (1, message.id.0));
    assert_eq!(skipped[0].data["reason"], "max_offers_reached");
}

pub(super) async fn leasing_messages_under_an_operation_is_done_once(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let lease = async |token: &str, digest| {
        let call = Some(new_operation("op", digest, T0));
        store.lease_messages(TEAM, message_lease_spec(&inbox, &[token]), call, T0).await.unwrap()
    };
    assert_eq!(lease("t", 1).await, IdempotentResult::Done(Vec::new()));
    assert_eq!(
        store.key_binding(TEAM, given_key_hash(TEAM, "op"), T0).await.unwrap(),
        None,
        "an empty result binds no key"
    );
    for n in 1..=2 {
        let _message = file_message(&store, &inbox, new_message(Some(n), n), T0).await;
    }
    assert!(matches!(lease("t", 1).await, IdempotentResult::Done(offers) if offers.len() == 1));
    assert_eq!(lease("u", 1).await, IdempotentResult::Replayed(b"answer 1".to_vec()));
    assert_eq!(lease("u", 2).await, IdempotentResult::KeyMismatch(KeyBinding::Operation { digest: [1; 32] }));
    assert_eq!(lease_message_seqs(&store, &inbox, &["v", "w"], T0).await, [2]);
}

pub(super) async fn messages_of_another_team_are_not_offered(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    let result = store.lease_messages(OTHER_TEAM, message_lease_spec(&inbox, &["t"]), None, T0).await.unwrap();
    assert_eq!(result, IdempotentResult::Done(Vec::new()));
    assert_eq!(lease_message_seqs(&store, &inbox, &["t"], T0).await, [1]);
    let held =
        mailonce_core::conversation::message_progress::MessageLeaseRef { message: message.id, token_hash: "t".into() };
    assert_eq!(store.acknowledge_message(OTHER_TEAM, held, ACK, T0).await.unwrap(), AcknowledgeResult::Missing);
    assert_eq!(load_message(&store, message.id).await.state, MessageState::Unanswered);
}

pub(super) async fn many_concurrent_agents_get_each_message_once(store: TestStore) {
    let (inbox, messages) = inbox_with_messages(&store, 40).await;
    let work: Vec<_> = (0..8).map(|worker| (store.clone(), inbox.clone(), worker)).collect();

    let offered = all_at_once(work.into_iter().map(|(store, inbox, worker)| async move {
        let mut mine = Vec::new();
        for round in 0..10 {
            let tokens: Vec<String> = (0..3).map(|n| format!("{worker}-{round}-{n}")).collect();
            let wanted: Vec<&str> = tokens.iter().map(String::as_str).collect();
            for offer in lease_messages(&store, message_lease_spec(&inbox, &wanted), T0).await {
                mine.push(offer.message.id);
                let (after, _) = expect_acknowledged(
                    acknowledge(&store, offer.message.id, &tokens[offer.token_index], ACK, T0).await,
                );
                assert_eq!(after.annotations.progress.offers, 1);
            }
        }
        mine
    }))
    .await;

    let all: Vec<_> = offered.into_iter().flatten().collect();
    assert_eq!(all.len(), 40);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), messages.iter().map(|message| message.id).collect());
}

pub(super) async fn messages_of_one_thread_are_offered_one_at_a_time(store: TestStore) {
    let (inbox, first) = inbox_with_message(&store).await;
    for n in 2..=6 {
        let _message = file_message(&store, &inbox, message_in_thread_1(n), T0).await;
    }
    let work: Vec<_> = (0..8).map(|worker| (store.clone(), inbox.clone(), format!("w{worker}"))).collect();
    let offered = all_at_once(work.into_iter().map(|(store, inbox, token)| async move {
        lease_messages(&store, message_lease_spec(&inbox, &[&token]), T0).await.len()
    }))
    .await;
    assert_eq!(offered.iter().sum::<usize>(), 1);
    assert_eq!(load_thread(&store, first.thread).await.details.fence, 1);
}
