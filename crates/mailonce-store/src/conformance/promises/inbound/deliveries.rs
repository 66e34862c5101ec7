//! Promises about deliveries: how they are stored, deduplicated, refused, listed and swept.

use mailonce_core::{
    id::{DeliveryId, EmailId, ordered_bits},
    inbound::delivery::{
        Delivery, DeliveryOutcome, DeliveryQuery, DeliveryState, DeliverySuppression, DeliveryTarget, InboundMail,
        NewDelivery, ReceiveResult,
    },
    inbox::Inbox,
    limits,
    time::Time,
};
use std::sync::Arc;
use uuid::Uuid;

use crate::conformance::{
    MINUTE, OTHER_TEAM, SECOND, T0, TEAM, TestStore, all_events, event_kinds,
    fixtures::{
        handoffs::NODE,
        inbound::{
            RAW, created_inbox, fetched_mail, file_new, finish_delivery, keyed_delivery, lease_deliveries,
            lease_due_ids, load_delivery, new_delivery, new_inbox, new_message, open_inbox, receive_all, receive_one,
            refused_delivery, unleased_mail,
        },
    },
    next_id,
};

fn later(ms: i64) -> Time {
    T0.plus(ms)
}

pub(super) async fn a_delivery_is_read_back_unchanged(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let bounce = DeliveryTarget::Return { email: EmailId(next_id(T0)), handoff: 3, attempt: 7 };
    for wanted in [new_delivery(&inbox, T0), NewDelivery { target: bounce, ..new_delivery(&inbox, T0) }] {
        let id = receive_one(&store, wanted.clone(), T0).await;
        assert_eq!(load_delivery(&store, id).await, Delivery::new(wanted, false, T0));
    }
    assert_eq!(store.delivery(TEAM, DeliveryId(next_id(T0))).await.unwrap(), None);
    assert!(event_kinds(&store).await.is_empty(), "a waiting delivery emits no event");
}

pub(super) async fn a_duplicate_delivery_is_stored_once_and_each_repeat_emits_an_event(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let of = receive_one(&store, keyed_delivery(&inbox, 1, T0), T0).await;
    for _ in 0..2 {
        let repeat = keyed_delivery(&inbox, 1, later(SECOND));
        let id = repeat.id;
        assert_eq!(
            receive_all(&store, vec![repeat.clone()], later(SECOND)).await,
            [ReceiveResult::Duplicate { id, original: of }]
        );
        assert_eq!(load_delivery(&store, id).await, Delivery::duplicate(repeat, of, None, later(SECOND)));
    }
    assert_eq!(event_kinds(&store).await, ["delivery.duplicate", "delivery.duplicate"]);
    assert_eq!(lease_due_ids(&store, 10, later(SECOND)).await, [of]);
}

pub(super) async fn a_duplicate_delivery_names_the_message_of_the_first(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let id = receive_one(&store, keyed_delivery(&inbox, 1, T0), T0).await;
    let _filed = store.file_message(TEAM, id, new_message(Some(1), 1), T0).await.unwrap();
    let repeat = keyed_delivery(&inbox, 1, T0);
    let again = repeat.id;
    receive_all(&store, vec![repeat], T0).await;
    let (first, second) = (load_delivery(&store, id).await, load_delivery(&store, again).await);
    assert!(first.message.is_some());
    assert_eq!(second.message, first.message);
}

pub(super) async fn a_delivery_key_deduplicates_within_its_team_until_it_expires(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let theirs = created_inbox(&store, &Inbox { team: OTHER_TEAM, ..new_inbox("b@d.test") }).await;
    let short = |now| NewDelivery { dedup_until: later(10), ..keyed_delivery(&inbox, 1, now) };
    let first = receive_one(&store, short(T0), T0).await;
    receive_one(&store, keyed_delivery(&theirs, 1, T0), T0).await;
    let repeat = receive_all(&store, vec![short(later(9))], later(9)).await;
    assert!(matches!(repeat[..], [ReceiveResult::Duplicate { original, .. }] if original == first), "{repeat:?}");
    let second = receive_one(&store, keyed_delivery(&inbox, 1, later(10)), later(10)).await;
    // A sweep removes expired delivery keys and no others.
    receive_one(&store, NewDelivery { dedup_until: later(11), ..keyed_delivery(&inbox, 2, T0) }, T0).await;
    store.sweep(100, later(11)).await.unwrap();
    receive_one(&store, keyed_delivery(&inbox, 2, later(11)), later(11)).await;
    let repeat = receive_all(&store, vec![short(later(12))], later(12)).await;
    assert!(matches!(repeat[..], [ReceiveResult::Duplicate { original, .. }] if original == second), "{repeat:?}");
}

pub(super) async fn equal_deliveries_of_one_mail_are_stored_once(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let deliveries: Vec<_> = (0..3).map(|_| keyed_delivery(&inbox, 1, T0)).collect();
    let ids: Vec<_> = deliveries.iter().map(|delivery| delivery.id).collect();
    let repeat = |n: usize| ReceiveResult::Duplicate { id: ids[n], original: ids[0] };
    assert_eq!(receive_all(&store, deliveries, T0).await, [ReceiveResult::Stored(ids[0]), repeat(1), repeat(2)]);
    assert_eq!(lease_due_ids(&store, 10, T0).await, ids[..1]);
}

pub(super) async fn a_mail_for_many_recipients_makes_a_delivery_for_each(store: TestStore) {
    let ours = open_inbox(&store, "a@d.test").await;
    let theirs = created_inbox(&store, &Inbox { team: OTHER_TEAM, ..new_inbox("b@d.test") }).await;
    let refused = refused_delivery(TEAM, DeliverySuppression::UnknownInbox, T0);
    let deliveries = vec![refused, new_delivery(&ours, T0), new_delivery(&theirs, T0)];
    let ids: Vec<_> = deliveries.iter().map(|delivery| delivery.id).collect();
    let answers = receive_all(&store, deliveries, T0).await;
    assert_eq!(answers, [ReceiveResult::Refused(ids[0]), ReceiveResult::Stored(ids[1]), ReceiveResult::Stored(ids[2])]);
    let leased = lease_deliveries(&store, NODE, 10, T0).await;
    let found: Vec<_> = leased.iter().map(|leased| (leased.delivery.id, leased.delivery.team)).collect();
    assert_eq!(found, [(ids[1], TEAM), (ids[2], OTHER_TEAM)]);
    assert!(leased.iter().all(|leased| leased.raw == RAW));
}

pub(super) async fn large_and_empty_mails_are_stored_unchanged(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let raw: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let mail = InboundMail { raw: raw.clone().into(), ..unleased_mail(vec![new_delivery(&inbox, T0)]) };
    let [ReceiveResult::Stored(id)] = store.receive(mail, T0).await.unwrap()[..] else { panic!("not kept") };
    assert_eq!(lease_deliveries(&store, NODE, 1, T0).await[0].raw, raw);
    let empty = InboundMail { raw: Arc::from([]), ..unleased_mail(vec![new_delivery(&inbox, T0)]) };
    let _kept = store.receive(empty, T0).await.unwrap();
    assert!(lease_deliveries(&store, NODE, 1, T0).await[0].raw.is_empty());
    finish_delivery(&store, id, DeliveryOutcome::Done, T0).await;
}

pub(super) async fn a_refused_delivery_leaves_a_row_and_an_event_and_binds_no_key(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    for why in [DeliverySuppression::ExpiredInbox, DeliverySuppression::Blocked] {
        let refused = NewDelivery { suppression: Some(why), ..keyed_delivery(&inbox, 1, T0) };
        let id = refused.id;
        assert_eq!(receive_all(&store, vec![refused.clone()], T0).await, [ReceiveResult::Refused(id)]);
        assert_eq!(load_delivery(&store, id).await, Delivery::new(refused, false, T0));
    }
    assert_eq!(event_kinds(&store).await, ["delivery.refused", "delivery.refused"]);
    assert!(lease_due_ids(&store, 10, later(MINUTE)).await.is_empty());
    receive_one(&store, keyed_delivery(&inbox, 1, T0), T0).await;
}

pub(super) async fn mail_for_a_removed_inbox_is_refused_in_its_commit(store: TestStore) {
    let (gone, there) = (open_inbox(&store, "a@d.test").await, open_inbox(&store, "b@d.test").await);
    let before = receive_one(&store, keyed_delivery(&gone, 1, T0), T0).await;
    // The inboxes were looked up before the removal; the commit happens after it.
    let deliveries = vec![keyed_delivery(&gone, 2, T0), keyed_delivery(&there, 3, T0), keyed_delivery(&gone, 1, T0)];
    let ids: Vec<_> = deliveries.iter().map(|delivery| delivery.id).collect();
    store.remove_inbox(TEAM, gone.id, T0).await.unwrap().unwrap();
    let answers = receive_all(&store, deliveries.clone(), T0).await;
    assert_eq!(
        answers,
        [ReceiveResult::Refused(ids[0]), ReceiveResult::Stored(ids[1]), ReceiveResult::Refused(ids[2])]
    );
    let mut refused = deliveries[0].clone();
    refused.refuse_missing_inbox();
    assert_eq!(load_delivery(&store, ids[0]).await, Delivery::new(refused, false, T0));
    assert_eq!(event_kinds(&store).await, ["delivery.refused", "delivery.refused"]);
    // A retry gets the same answer and writes nothing. A delivery that was stored before the removal stays stored.
    assert_eq!(receive_all(&store, deliveries, T0).await, answers);
    assert_eq!(event_kinds(&store).await.len(), 2);
    assert_eq!(lease_due_ids(&store, 10, T0).await, [before, ids[1]]);
    // The row survives the sweep of the removed inbox and binds no key.
    store.sweep(100, T0).await.unwrap();
    assert_eq!(load_delivery(&store, ids[0]).await.suppressed, Some(DeliverySuppression::UnknownInbox));
    receive_one(&store, keyed_delivery(&there, 2, T0), T0).await;
}

pub(super) async fn a_repeated_receive_call_returns_the_first_results(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    receive_one(&store, keyed_delivery(&inbox, 1, T0), T0).await;
    let refused = NewDelivery { suppression: Some(DeliverySuppression::Blocked), ..new_delivery(&inbox, T0) };
    let deliveries = vec![keyed_delivery(&inbox, 2, T0), keyed_delivery(&inbox, 1, T0), refused];
    let first = receive_all(&store, deliveries.clone(), T0).await;
    let (events, rows) = (all_events(&store, TEAM).await, listed(&store, DeliveryQuery::default()).await);
    assert_eq!(receive_all(&store, deliveries, T0).await, first);
    assert_eq!(all_events(&store, TEAM).await, events);
    assert_eq!(listed(&store, DeliveryQuery::default()).await, rows);
}

async fn listed(store: &TestStore, query: DeliveryQuery) -> Vec<DeliveryId> {
    let limit = if query.limit == 0 { 100 } else { query.limit };
    let rows = store.deliveries(TEAM, DeliveryQuery { limit, ..query }).await.unwrap();
    rows.iter().map(|delivery| delivery.id).collect()
}

pub(super) async fn deliveries_are_listed_newest_first_and_can_be_filtered(store: TestStore) {
    let (inbox, second) = (open_inbox(&store, "a@d.test").await, open_inbox(&store, "b@d.test").await);
    let one = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    let sourceless = |mut delivery: NewDelivery| {
        delivery.details.source = None;
        delivery
    };
    let two = receive_one(&store, sourceless(new_delivery(&second, T0)), T0).await;
    let three = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    let refused = NewDelivery { suppression: Some(DeliverySuppression::Blocked), ..new_delivery(&inbox, T0) };
    let four = refused.id;
    receive_all(&store, vec![refused], T0).await;
    let message = new_message(Some(1), 1);
    let filed_as = Some(message.id);
    let _filed = store.file_message(TEAM, two, message, T0).await.unwrap();

    let all = DeliveryQuery::default;
    assert_eq!(listed(&store, all()).await, [four, three, two, one]);
    assert_eq!(listed(&store, DeliveryQuery { limit: 2, ..all() }).await, [four, three]);
    assert_eq!(listed(&store, DeliveryQuery { before: Some(three), limit: 1, ..all() }).await, [two]);
    assert_eq!(listed(&store, DeliveryQuery { inbox: Some(inbox.id), ..all() }).await, [four, three, one]);
    assert_eq!(listed(&store, DeliveryQuery { state: Some(DeliveryState::Waiting), ..all() }).await, [three, one]);
    assert_eq!(listed(&store, DeliveryQuery { state: Some(DeliveryState::Refused), ..all() }).await, [four]);
    assert_eq!(listed(&store, DeliveryQuery { message: filed_as, ..all() }).await, [two]);
    let source = Some(mailonce_core::id::SourceId(Uuid::from_u128(0x50)));
    assert_eq!(listed(&store, DeliveryQuery { source, ..all() }).await, [four, three, one]);
}

pub(super) async fn deliveries_of_another_team_are_not_found(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let id = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    assert_eq!(store.delivery(OTHER_TEAM, id).await.unwrap(), None);
    assert_eq!(store.record_delivery_outcome(OTHER_TEAM, id, DeliveryOutcome::Done, T0).await.unwrap(), None);
    assert_eq!(store.replay_delivery(OTHER_TEAM, id, T0).await.unwrap(), None);
    assert_eq!(store.attach_fetched_content(OTHER_TEAM, id, fetched_mail(T0)).await.unwrap(), None);
    let all = DeliveryQuery { limit: 10, ..DeliveryQuery::default() };
    assert!(store.deliveries(OTHER_TEAM, all).await.unwrap().is_empty());
    assert_eq!(load_delivery(&store, id).await.state, DeliveryState::Waiting);
}

pub(super) async fn old_rows_of_suppressed_deliveries_are_swept(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let (message, _) = file_new(&store, &inbox, new_message(Some(1), 1), T0).await;
    let dead = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    finish_delivery(&store, dead, DeliveryOutcome::Dead("broken".into()), T0).await;
    for n in 0..3 {
        let known = receive_one(&store, new_delivery(&inbox, T0), later(n)).await;
        let _known = store.file_message(TEAM, known, new_message(Some(1), 1), later(n)).await.unwrap();
        receive_all(&store, vec![refused_delivery(TEAM, DeliverySuppression::UnknownInbox, T0)], later(n)).await;
    }
    assert_eq!(listed(&store, DeliveryQuery::default()).await.len(), 8);
    let sweep = async |max, at| store.sweep(max, at).await.unwrap().deliveries;
    assert_eq!(sweep(100, later(limits::SUPPRESSED_DELIVERY_RETENTION_MS - 1)).await, 0);
    assert_eq!(sweep(100, later(limits::SUPPRESSED_DELIVERY_RETENTION_MS)).await, 2);
    assert_eq!(sweep(3, later(limits::SUPPRESSED_DELIVERY_RETENTION_MS + 2)).await, 3);
    assert_eq!(sweep(3, later(limits::SUPPRESSED_DELIVERY_RETENTION_MS + 2)).await, 1);
    assert_eq!(listed(&store, DeliveryQuery::default()).await, [dead, message.delivery]);
    assert_eq!(store.raw_message(TEAM, message.id).await.unwrap().as_deref(), Some(RAW));
}

pub(super) async fn a_removed_inbox_is_swept_in_bounded_steps(store: TestStore) {
    let (inbox, second) = (open_inbox(&store, "a@d.test").await, open_inbox(&store, "b@d.test").await);
    for n in 0..4 {
        file_new(&store, &inbox, new_message(Some(n), n), T0).await;
    }
    let dead = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    finish_delivery(&store, dead, DeliveryOutcome::Dead("broken".into()), T0).await;
    // One mail for two inboxes: the other inbox still needs its bytes.
    let deliveries = vec![new_delivery(&inbox, T0), new_delivery(&second, T0)];
    let (here, there) = (deliveries[0].id, deliveries[1].id);
    receive_all(&store, deliveries, T0).await;
    let _filed = store.file_message(TEAM, here, new_message(Some(9), 9), T0).await.unwrap();
    let waiting = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    store.remove_inbox(TEAM, inbox.id, T0).await.unwrap().unwrap();

    let mut swept = Vec::new();
    for _ in 0..4 {
        swept.push(store.sweep(2, T0).await.unwrap().deliveries);
    }
    assert_eq!(swept, [2, 2, 2, 0]);
    assert_eq!(listed(&store, DeliveryQuery::default()).await, [waiting, there], "waiting deliveries are not swept");
    assert_eq!(
        store.file_message(TEAM, waiting, new_message(None, 1), T0).await.unwrap(),
        mailonce_core::inbox::message::FileMessageResult::AlreadyFinished
    );
    assert_eq!(store.sweep(2, T0).await.unwrap().deliveries, 1);
    // A delivery that was refused for the inbox is swept, too, even if it arrives after everything else was swept.
    let late = NewDelivery { suppression: Some(DeliverySuppression::Blocked), ..new_delivery(&inbox, T0) };
    receive_all(&store, vec![late], T0).await;
    assert_eq!(store.sweep(2, T0).await.unwrap().deliveries, 1);
    let leased = lease_deliveries(&store, NODE, 10, T0).await;
    assert_eq!((leased.len(), leased[0].delivery.id, leased[0].raw.as_slice()), (1, there, RAW));
}

pub(super) async fn the_highest_inbound_id_is_remembered(store: TestStore) {
    let highest = async || store.installation().await.unwrap().last_id;
    let inbox = open_inbox(&store, "a@d.test").await;
    assert_eq!(highest().await, ordered_bits(inbox.id.0));
    let refused = refused_delivery(TEAM, DeliverySuppression::UnknownInbox, T0);
    let id = refused.id;
    receive_all(&store, vec![refused], T0).await;
    assert_eq!(highest().await, ordered_bits(id.0));
    let (message, _) = file_new(&store, &inbox, new_message(Some(1), 1), T0).await;
    assert!(highest().await >= ordered_bits(message.id.0).max(ordered_bits(message.thread.0)));
    let late = later(limits::SUPPRESSED_DELIVERY_RETENTION_MS);
    let last = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    finish_delivery(&store, last, DeliveryOutcome::Refused(DeliverySuppression::Blocked), T0).await;
    assert_eq!(store.sweep(100, late).await.unwrap().deliveries, 2);
    assert!(highest().await >= ordered_bits(last.0), "even after its rows are swept");
}
