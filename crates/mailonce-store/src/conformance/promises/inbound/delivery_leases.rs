//! Promises about leases of deliveries, and about deliveries that end without a message.

use mailonce_core::{
    id::DeliveryId,
    inbound::delivery::{
        Delivery, DeliveryFormat, DeliveryOutcome, DeliveryState, DeliverySuppression, InboundMail, ReceiveResult,
    },
    inbox::message::FileMessageResult,
    limits,
    time::Time,
};

use crate::conformance::{
    MINUTE, T0, TEAM, TestStore, event_kinds,
    fixtures::{
        handoffs::{NODE, SECOND_NODE},
        inbound::{
            FETCHED, RAW, fetched_mail, finish_delivery, lease_deliveries, lease_due_ids, load_delivery,
            mail_notification, new_delivery, new_message, open_inbox, receive_all, receive_one, unleased_mail,
        },
    },
    next_id,
};

fn later(ms: i64) -> Time {
    T0.plus(ms)
}

pub(super) async fn a_delivery_leased_on_arrival_is_leased_to_no_other_node(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let mail = InboundMail { leased_to: Some(NODE), ..unleased_mail(vec![new_delivery(&inbox, T0)]) };
    let [ReceiveResult::Stored(id)] = store.receive(mail, T0).await.unwrap()[..] else { panic!("not kept") };
    assert_eq!(load_delivery(&store, id).await.attempts, 1);
    assert!(lease_deliveries(&store, SECOND_NODE, 10, later(limits::DELIVERY_LEASE_MS - 1)).await.is_empty());
    let reclaimed = lease_deliveries(&store, SECOND_NODE, 10, later(limits::DELIVERY_LEASE_MS)).await;
    assert_eq!((reclaimed.len(), reclaimed[0].delivery.attempts), (1, 2));
}

pub(super) async fn due_deliveries_are_leased_longest_due_first(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let first = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    let second = receive_one(&store, new_delivery(&inbox, T0), later(1)).await;
    let third = receive_one(&store, new_delivery(&inbox, T0), later(2)).await;
    finish_delivery(&store, first, DeliveryOutcome::Retry(later(3), "busy".into()), later(2)).await;
    assert!(lease_due_ids(&store, 10, Time(T0.0 - 1)).await.is_empty());
    assert_eq!(lease_due_ids(&store, 2, later(5)).await, [second, third]);
    assert_eq!(lease_due_ids(&store, 2, later(5)).await, [first]);
    let again = lease_deliveries(&store, NODE, 10, later(5 + limits::DELIVERY_LEASE_MS)).await;
    assert_eq!(again.len(), 3);
    assert_eq!(again[0].delivery, load_delivery(&store, again[0].delivery.id).await);
    assert!(again.iter().all(|leased| leased.delivery.attempts == 2 && leased.raw == RAW));
}

pub(super) async fn a_finished_delivery_does_not_change(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    for end in [
        DeliveryOutcome::Done,
        DeliveryOutcome::Refused(DeliverySuppression::Blocked),
        DeliveryOutcome::Dead("no mail".into()),
    ] {
        let id = receive_one(&store, new_delivery(&inbox, T0), T0).await;
        let ended = finish_delivery(&store, id, end.clone(), T0).await;
        let mut wanted = Delivery { rev: 1, ..ended.clone() };
        wanted = Delivery { state: DeliveryState::Waiting, suppressed: None, last_error: None, ..wanted };
        assert!(wanted.record_outcome(end));
        assert_eq!(ended, wanted);
        let late = finish_delivery(&store, id, DeliveryOutcome::Retry(later(9), "late".into()), T0).await;
        assert_eq!((&late, &load_delivery(&store, id).await), (&ended, &ended));
    }
    assert!(lease_due_ids(&store, 10, later(MINUTE)).await.is_empty());
    assert_eq!(event_kinds(&store).await, ["delivery.refused", "delivery.failed"]);
    let missing =
        store.record_delivery_outcome(TEAM, DeliveryId(next_id(T0)), DeliveryOutcome::Done, T0).await.unwrap();
    assert_eq!(missing, None);
}

pub(super) async fn a_dead_delivery_can_be_replayed(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let id = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    assert_eq!(lease_due_ids(&store, 1, T0).await, [id]);
    finish_delivery(&store, id, DeliveryOutcome::Dead("broken".into()), later(1)).await;
    let replayed = store.replay_delivery(TEAM, id, later(2)).await.unwrap().unwrap();
    assert_eq!((replayed.state, replayed.attempts, replayed.due_at), (DeliveryState::Waiting, 0, Some(later(2))));
    let again = store.replay_delivery(TEAM, id, later(3)).await.unwrap().unwrap();
    assert_eq!(again, replayed);
    let leased = lease_deliveries(&store, NODE, 1, later(3)).await;
    assert_eq!((leased[0].raw.as_slice(), leased[0].delivery.attempts), (RAW, 1));
    assert_eq!(store.replay_delivery(TEAM, DeliveryId(next_id(T0)), T0).await.unwrap(), None);
}

pub(super) async fn a_fetched_mail_replaces_its_notification_once(store: TestStore) {
    let (inbox, other) = (open_inbox(&store, "a@d.test").await, open_inbox(&store, "b@d.test").await);
    let whole = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    let kept = receive_all(&store, vec![mail_notification(&inbox, T0), mail_notification(&other, T0)], T0).await;
    let [ReceiveResult::Stored(id), ReceiveResult::Stored(second)] = kept[..] else { panic!("{kept:?}") };
    let before = lease_deliveries(&store, NODE, 10, T0).await;
    assert_eq!(before.len(), 3);
    let fetched = store.attach_fetched_content(TEAM, id, fetched_mail(T0)).await.unwrap().unwrap();
    assert_eq!(
        (fetched.details.form, fetched.details.size, fetched.attempts, fetched.rev),
        (DeliveryFormat::Mime, 23, 1, 3)
    );
    assert_eq!(load_delivery(&store, id).await, fetched);
    let again = store.attach_fetched_content(TEAM, id, fetched_mail(T0)).await.unwrap();
    assert_eq!(again.as_ref(), Some(&fetched), "a fetched mail is not replaced");
    assert_eq!(
        store.attach_fetched_content(TEAM, whole, fetched_mail(T0)).await.unwrap(),
        Some(load_delivery(&store, whole).await)
    );
    assert_eq!(store.attach_fetched_content(TEAM, DeliveryId(next_id(T0)), fetched_mail(T0)).await.unwrap(), None);
    assert!(
        lease_deliveries(&store, SECOND_NODE, 10, later(limits::DELIVERY_LEASE_MS - 1)).await.is_empty(),
        "the lease is kept"
    );
    let mut rest = lease_deliveries(&store, SECOND_NODE, 10, later(limits::DELIVERY_LEASE_MS)).await;
    rest.sort_by_key(|leased| leased.delivery.id);
    let bytes: Vec<_> = rest.iter().map(|leased| (leased.delivery.id, leased.raw.as_slice())).collect();
    assert_eq!(bytes, [(whole, RAW), (id, FETCHED), (second, RAW)], "only the delivery that was fetched changes");
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
        "a finished delivery does not change"
    );
}

pub(super) async fn deliveries_of_a_dead_node_are_due_at_once(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let mut ids = Vec::new();
    for n in 0..3 {
        let mail = InboundMail { leased_to: Some(NODE), ..unleased_mail(vec![new_delivery(&inbox, T0)]) };
        let [ReceiveResult::Stored(id)] = store.receive(mail, later(n)).await.unwrap()[..] else { panic!("not kept") };
        ids.push(id);
    }
    let retried = ids.remove(0);
    finish_delivery(&store, retried, DeliveryOutcome::Retry(later(MINUTE), "busy".into()), later(3)).await;
    let recovered = store.recover_dead_nodes(NODE, 10, later(4)).await.unwrap();
    assert_eq!(recovered.deliveries, 0, "a node does not reclaim its own leases");
    assert_eq!(store.recover_dead_nodes(SECOND_NODE, 1, later(4)).await.unwrap().deliveries, 1);
    assert_eq!(store.recover_dead_nodes(SECOND_NODE, 10, later(4)).await.unwrap().deliveries, 1);
    assert_eq!(store.recover_dead_nodes(SECOND_NODE, 10, later(4)).await.unwrap().deliveries, 0);
    let leased = lease_deliveries(&store, SECOND_NODE, 10, later(4)).await;
    let found: Vec<_> = leased.iter().map(|leased| (leased.delivery.id, leased.delivery.attempts)).collect();
    assert_eq!(found, [(ids[0], 2), (ids[1], 2)], "a retry keeps its due time");
}

pub(super) async fn a_delivery_that_keeps_crashing_nodes_is_delayed(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let id = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    for attempts in 1..=limits::CRASHES_BEFORE_RECLAIM_DELAY {
        assert_eq!(lease_deliveries(&store, NODE, 1, T0).await[0].delivery.attempts, attempts);
        assert_eq!(store.recover_dead_nodes(SECOND_NODE, 10, T0).await.unwrap().deliveries, 1);
    }
    assert_eq!(lease_due_ids(&store, 1, T0).await, [id]);
    assert_eq!(store.recover_dead_nodes(SECOND_NODE, 10, T0).await.unwrap().deliveries, 1);
    assert_eq!(store.recover_dead_nodes(SECOND_NODE, 10, T0).await.unwrap().deliveries, 0, "it is no longer leased");
    let wanted = load_delivery(&store, id).await.due_at.unwrap();
    assert!(wanted > T0 && wanted < later(limits::DELIVERY_LEASE_MS), "{wanted:?}");
    assert!(lease_due_ids(&store, 1, Time(wanted.0 - 1)).await.is_empty());
    assert_eq!(lease_due_ids(&store, 1, wanted).await, [id]);
}

pub(super) async fn a_node_with_a_recent_heartbeat_keeps_its_deliveries(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    store.heartbeat(NODE, T0).await.unwrap();
    receive_one(&store, new_delivery(&inbox, T0), T0).await;
    assert_eq!(lease_due_ids(&store, 1, T0).await.len(), 1);
    let soon = later(limits::HEARTBEAT_TIMEOUT_MS - 1);
    assert_eq!(store.recover_dead_nodes(SECOND_NODE, 10, soon).await.unwrap().deliveries, 0);
}
