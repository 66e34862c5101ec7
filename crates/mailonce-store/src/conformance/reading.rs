//! Promises about who reads deliveries, and how they end without a message.

use mailonce_core::{
    id::DeliveryId,
    inbound::delivery::{
        Delivery, DeliveryFormat, DeliveryOutcome, DeliveryState, DeliverySuppression, InboundMail, ReceiveResult,
    },
    inbox::message::FileMessageResult,
    limits,
    time::Time,
};

use super::{
    MINUTE, T0, TEAM, TestStore, event_kinds, next_id,
    post::{
        FETCHED, RAW, fetched_mail, lease_deliveries, lease_due_ids, load_delivery, mail_notice, new_delivery,
        new_message, open_inbox, receive_all, receive_one, settle_delivery, unread_arrival,
    },
    work::{NODE, SECOND_NODE},
};

fn later(ms: i64) -> Time {
    T0.plus(ms)
}

pub(super) async fn what_a_process_reads_at_once_is_read_by_nobody_else(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let arrival = InboundMail { leased_to: Some(NODE), ..unread_arrival(vec![new_delivery(&inbox, T0)]) };
    let [ReceiveResult::Stored(id)] = store.receive(arrival, T0).await.unwrap()[..] else { panic!("not kept") };
    assert_eq!(load_delivery(&store, id).await.attempts, 1);
    assert!(lease_deliveries(&store, SECOND_NODE, 10, later(limits::DELIVERY_LEASE_MS - 1)).await.is_empty());
    let silent = lease_deliveries(&store, SECOND_NODE, 10, later(limits::DELIVERY_LEASE_MS)).await;
    assert_eq!((silent.len(), silent[0].delivery.attempts), (1, 2));
}

pub(super) async fn due_deliveries_are_read_the_longest_due_first(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let first = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    let second = receive_one(&store, new_delivery(&inbox, T0), later(1)).await;
    let third = receive_one(&store, new_delivery(&inbox, T0), later(2)).await;
    settle_delivery(&store, first, DeliveryOutcome::Retry(later(3), "busy".into()), later(2)).await;
    assert!(lease_due_ids(&store, 10, Time(T0.0 - 1)).await.is_empty());
    assert_eq!(lease_due_ids(&store, 2, later(5)).await, [second, third]);
    assert_eq!(lease_due_ids(&store, 2, later(5)).await, [first]);
    let again = lease_deliveries(&store, NODE, 10, later(5 + limits::DELIVERY_LEASE_MS)).await;
    assert_eq!(again.len(), 3);
    assert_eq!(again[0].delivery, load_delivery(&store, again[0].delivery.id).await);
    assert!(again.iter().all(|reading| reading.delivery.attempts == 2 && reading.raw == RAW));
}

pub(super) async fn a_settled_delivery_stays_as_it_is(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    for end in [
        DeliveryOutcome::Done,
        DeliveryOutcome::Refused(DeliverySuppression::Blocked),
        DeliveryOutcome::Dead("no mail".into()),
    ] {
        let id = receive_one(&store, new_delivery(&inbox, T0), T0).await;
        let ended = settle_delivery(&store, id, end.clone(), T0).await;
        let mut wanted = Delivery { rev: 1, ..ended.clone() };
        wanted = Delivery { state: DeliveryState::Waiting, suppressed: None, last_error: None, ..wanted };
        assert!(wanted.record_outcome(end));
        assert_eq!(ended, wanted);
        let late = settle_delivery(&store, id, DeliveryOutcome::Retry(later(9), "late".into()), T0).await;
        assert_eq!((&late, &load_delivery(&store, id).await), (&ended, &ended));
    }
    assert!(lease_due_ids(&store, 10, later(MINUTE)).await.is_empty());
    assert_eq!(event_kinds(&store).await, ["delivery.refused", "delivery.failed"]);
    let nobody = store.record_delivery_outcome(TEAM, DeliveryId(next_id(T0)), DeliveryOutcome::Done, T0).await.unwrap();
    assert_eq!(nobody, None);
}

pub(super) async fn a_dead_delivery_is_kept_and_read_again(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let id = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    assert_eq!(lease_due_ids(&store, 1, T0).await, [id]);
    settle_delivery(&store, id, DeliveryOutcome::Dead("broken".into()), later(1)).await;
    let replayed = store.replay_delivery(TEAM, id, later(2)).await.unwrap().unwrap();
    assert_eq!((replayed.state, replayed.attempts, replayed.due_at), (DeliveryState::Waiting, 0, Some(later(2))));
    let again = store.replay_delivery(TEAM, id, later(3)).await.unwrap().unwrap();
    assert_eq!(again, replayed);
    let reading = lease_deliveries(&store, NODE, 1, later(3)).await;
    assert_eq!((reading[0].raw.as_slice(), reading[0].delivery.attempts), (RAW, 1));
    assert_eq!(store.replay_delivery(TEAM, DeliveryId(next_id(T0)), T0).await.unwrap(), None);
}

pub(super) async fn a_mail_takes_the_place_of_its_notice_once(store: TestStore) {
    let (inbox, other) = (open_inbox(&store, "a@d.test").await, open_inbox(&store, "b@d.test").await);
    let whole = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    let kept = receive_all(&store, vec![mail_notice(&inbox, T0), mail_notice(&other, T0)], T0).await;
    let [ReceiveResult::Stored(id), ReceiveResult::Stored(second)] = kept[..] else { panic!("{kept:?}") };
    let before = lease_deliveries(&store, NODE, 10, T0).await;
    assert_eq!(before.len(), 3);
    let brought = store.attach_fetched_content(TEAM, id, fetched_mail(T0)).await.unwrap().unwrap();
    assert_eq!(
        (brought.details.form, brought.details.size, brought.attempts, brought.rev),
        (DeliveryFormat::Mime, 23, 1, 3)
    );
    assert_eq!(load_delivery(&store, id).await, brought);
    let again = store.attach_fetched_content(TEAM, id, fetched_mail(T0)).await.unwrap();
    assert_eq!(again.as_ref(), Some(&brought), "what has its mail keeps it");
    assert_eq!(
        store.attach_fetched_content(TEAM, whole, fetched_mail(T0)).await.unwrap(),
        Some(load_delivery(&store, whole).await)
    );
    assert_eq!(store.attach_fetched_content(TEAM, DeliveryId(next_id(T0)), fetched_mail(T0)).await.unwrap(), None);
    assert!(
        lease_deliveries(&store, SECOND_NODE, 10, later(limits::DELIVERY_LEASE_MS - 1)).await.is_empty(),
        "whoever reads it goes on"
    );
    let mut rest = lease_deliveries(&store, SECOND_NODE, 10, later(limits::DELIVERY_LEASE_MS)).await;
    rest.sort_by_key(|reading| reading.delivery.id);
    let bytes: Vec<_> = rest.iter().map(|reading| (reading.delivery.id, reading.raw.as_slice())).collect();
    assert_eq!(bytes, [(whole, RAW), (id, FETCHED), (second, RAW)], "only the one that was fetched for");
    let FileMessageResult::New(message, _) = store.file_message(TEAM, id, new_message(Some(1), 1), T0).await.unwrap()
    else {
        panic!("known")
    };
    assert_eq!(store.raw_message(TEAM, message.id).await.unwrap().as_deref(), Some(FETCHED));
    store.record_delivery_outcome(TEAM, second, DeliveryOutcome::Dead("gone".into()), T0).await.unwrap();
    let late = store.attach_fetched_content(TEAM, second, fetched_mail(T0)).await.unwrap().unwrap();
    assert_eq!(
        (late.state, late.details.form),
        (DeliveryState::Dead, DeliveryFormat::Notice),
        "what no longer waits stays"
    );
}

pub(super) async fn what_an_ended_process_read_is_due_at_once(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let mut ids = Vec::new();
    for n in 0..3 {
        let arrival = InboundMail { leased_to: Some(NODE), ..unread_arrival(vec![new_delivery(&inbox, T0)]) };
        let [ReceiveResult::Stored(id)] = store.receive(arrival, later(n)).await.unwrap()[..] else {
            panic!("not kept")
        };
        ids.push(id);
    }
    let put_off = ids.remove(0);
    settle_delivery(&store, put_off, DeliveryOutcome::Retry(later(MINUTE), "busy".into()), later(3)).await;
    let recovered = store.recover_dead_nodes(NODE, 10, later(4)).await.unwrap();
    assert_eq!(recovered.deliveries, 0, "a process takes nothing from itself");
    assert_eq!(store.recover_dead_nodes(SECOND_NODE, 1, later(4)).await.unwrap().deliveries, 1);
    assert_eq!(store.recover_dead_nodes(SECOND_NODE, 10, later(4)).await.unwrap().deliveries, 1);
    assert_eq!(store.recover_dead_nodes(SECOND_NODE, 10, later(4)).await.unwrap().deliveries, 0);
    let readings = lease_deliveries(&store, SECOND_NODE, 10, later(4)).await;
    let found: Vec<_> = readings.iter().map(|reading| (reading.delivery.id, reading.delivery.attempts)).collect();
    assert_eq!(found, [(ids[0], 2), (ids[1], 2)], "what was put off stays put off");
}

pub(super) async fn a_delivery_over_which_processes_end_waits_before_the_next(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let id = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    for attempts in 1..=limits::CRASHES_BEFORE_RECLAIM_DELAY {
        assert_eq!(lease_deliveries(&store, NODE, 1, T0).await[0].delivery.attempts, attempts);
        assert_eq!(store.recover_dead_nodes(SECOND_NODE, 10, T0).await.unwrap().deliveries, 1);
    }
    assert_eq!(lease_due_ids(&store, 1, T0).await, [id]);
    assert_eq!(store.recover_dead_nodes(SECOND_NODE, 10, T0).await.unwrap().deliveries, 1);
    assert_eq!(store.recover_dead_nodes(SECOND_NODE, 10, T0).await.unwrap().deliveries, 0, "nobody reads it any more");
    let wanted = load_delivery(&store, id).await.due_at.unwrap();
    assert!(wanted > T0 && wanted < later(limits::DELIVERY_LEASE_MS), "{wanted:?}");
    assert!(lease_due_ids(&store, 1, Time(wanted.0 - 1)).await.is_empty());
    assert_eq!(lease_due_ids(&store, 1, wanted).await, [id]);
}

pub(super) async fn a_process_that_was_heard_of_keeps_what_it_reads(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    store.heartbeat(NODE, T0).await.unwrap();
    receive_one(&store, new_delivery(&inbox, T0), T0).await;
    assert_eq!(lease_due_ids(&store, 1, T0).await.len(), 1);
    let soon = later(limits::HEARTBEAT_TIMEOUT_MS - 1);
    assert_eq!(store.recover_dead_nodes(SECOND_NODE, 10, soon).await.unwrap().deliveries, 0);
}
