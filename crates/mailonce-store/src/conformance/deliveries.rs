//! Promises about deliveries: what arrives, who reads it, and what is left of it.

use mailonce_core::{
    delivery::{Arrival, Delivery, DeliveryQuery, DeliveryState, NewDelivery, Received, Settle, Suppression, Target},
    id::{DeliveryId, EmailId, ordered_bits},
    inbox::Inbox,
    limits,
    time::Time,
};
use std::sync::Arc;
use uuid::Uuid;

use super::{
    Ledger, MINUTE, OTHER, SECOND, T0, TEAM, events, kinds, next_id,
    post::{
        RAW, arrival, delivery, due, fetched, filed, inbox, kept, keyed_parcel, letter, made, open, parcel, read,
        receive, refused_parcel, settle,
    },
    work::NODE,
};

fn later(ms: i64) -> Time {
    T0.plus(ms)
}

pub(super) async fn a_delivery_is_read_back_whole(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let bounce = Target::Return { email: EmailId(next_id(T0)), handoff: 3, attempt: 7 };
    for wanted in [parcel(&inbox, T0), NewDelivery { target: bounce, ..parcel(&inbox, T0) }] {
        let id = kept(&store, wanted.clone(), T0).await;
        assert_eq!(delivery(&store, id).await, Delivery::new(wanted, false, T0));
    }
    assert_eq!(store.delivery(TEAM, DeliveryId(next_id(T0))).await.unwrap(), None);
    assert!(kinds(&store).await.is_empty(), "what is kept is not told yet");
}

pub(super) async fn the_same_delivery_is_kept_once_and_each_repeat_is_told(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let of = kept(&store, keyed_parcel(&inbox, 1, T0), T0).await;
    for _ in 0..2 {
        let repeat = keyed_parcel(&inbox, 1, later(SECOND));
        let id = repeat.id;
        assert_eq!(receive(&store, vec![repeat.clone()], later(SECOND)).await, [Received::Duplicate { id, of }]);
        assert_eq!(delivery(&store, id).await, Delivery::duplicate(repeat, of, None, later(SECOND)));
    }
    assert_eq!(kinds(&store).await, ["delivery.duplicate", "delivery.duplicate"]);
    assert_eq!(due(&store, 10, later(SECOND)).await, [of]);
}

pub(super) async fn a_repeat_names_the_message_of_the_first(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let id = kept(&store, keyed_parcel(&inbox, 1, T0), T0).await;
    let _filed = store.file(TEAM, id, letter(Some(1), 1), T0).await.unwrap();
    let repeat = keyed_parcel(&inbox, 1, T0);
    let again = repeat.id;
    receive(&store, vec![repeat], T0).await;
    let (first, second) = (delivery(&store, id).await, delivery(&store, again).await);
    assert!(first.message.is_some());
    assert_eq!(second.message, first.message);
}

pub(super) async fn a_delivery_is_known_until_its_time_in_its_team(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let theirs = made(&store, &Inbox { team: OTHER, ..super::post::inbox("b@d.test") }).await;
    let short = |now| NewDelivery { known_until: later(10), ..keyed_parcel(&inbox, 1, now) };
    let first = kept(&store, short(T0), T0).await;
    kept(&store, keyed_parcel(&theirs, 1, T0), T0).await;
    let repeat = receive(&store, vec![short(later(9))], later(9)).await;
    assert!(matches!(repeat[..], [Received::Duplicate { of, .. }] if of == first), "{repeat:?}");
    let second = kept(&store, keyed_parcel(&inbox, 1, later(10)), later(10)).await;
    // A sweep forgets what is known no longer, and nothing else.
    kept(&store, NewDelivery { known_until: later(11), ..keyed_parcel(&inbox, 2, T0) }, T0).await;
    store.sweep(100, later(11)).await.unwrap();
    kept(&store, keyed_parcel(&inbox, 2, later(11)), later(11)).await;
    let repeat = receive(&store, vec![short(later(12))], later(12)).await;
    assert!(matches!(repeat[..], [Received::Duplicate { of, .. }] if of == second), "{repeat:?}");
}

pub(super) async fn equal_parcels_of_one_arrival_are_one_delivery(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let parcels: Vec<_> = (0..3).map(|_| keyed_parcel(&inbox, 1, T0)).collect();
    let ids: Vec<_> = parcels.iter().map(|parcel| parcel.id).collect();
    let repeat = |n: usize| Received::Duplicate { id: ids[n], of: ids[0] };
    assert_eq!(receive(&store, parcels, T0).await, [Received::Kept(ids[0]), repeat(1), repeat(2)]);
    assert_eq!(due(&store, 10, T0).await, ids[..1]);
}

pub(super) async fn an_arrival_for_many_is_read_by_each(store: Ledger) {
    let ours = open(&store, "a@d.test").await;
    let theirs = made(&store, &Inbox { team: OTHER, ..inbox("b@d.test") }).await;
    let refused = refused_parcel(TEAM, Suppression::UnknownInbox, T0);
    let parcels = vec![refused, parcel(&ours, T0), parcel(&theirs, T0)];
    let ids: Vec<_> = parcels.iter().map(|parcel| parcel.id).collect();
    let answers = receive(&store, parcels, T0).await;
    assert_eq!(answers, [Received::Refused(ids[0]), Received::Kept(ids[1]), Received::Kept(ids[2])]);
    let readings = read(&store, NODE, 10, T0).await;
    let found: Vec<_> = readings.iter().map(|reading| (reading.delivery.id, reading.delivery.team)).collect();
    assert_eq!(found, [(ids[1], TEAM), (ids[2], OTHER)]);
    assert!(readings.iter().all(|reading| reading.raw == RAW));
}

pub(super) async fn a_large_arrival_is_kept_whole(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let raw: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let arrival = Arrival { raw: raw.clone().into(), ..arrival(vec![parcel(&inbox, T0)]) };
    let [Received::Kept(id)] = store.receive(arrival, T0).await.unwrap()[..] else { panic!("not kept") };
    assert_eq!(read(&store, NODE, 1, T0).await[0].raw, raw);
    let empty = Arrival { raw: Arc::from([]), ..super::post::arrival(vec![parcel(&inbox, T0)]) };
    let _kept = store.receive(empty, T0).await.unwrap();
    assert!(read(&store, NODE, 1, T0).await[0].raw.is_empty());
    settle(&store, id, Settle::Done, T0).await;
}

pub(super) async fn a_refused_parcel_leaves_a_row_and_an_event_and_binds_no_key(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    for why in [Suppression::ExpiredInbox, Suppression::Blocked] {
        let refused = NewDelivery { refused: Some(why), ..keyed_parcel(&inbox, 1, T0) };
        let id = refused.id;
        assert_eq!(receive(&store, vec![refused.clone()], T0).await, [Received::Refused(id)]);
        assert_eq!(delivery(&store, id).await, Delivery::new(refused, false, T0));
    }
    assert_eq!(kinds(&store).await, ["delivery.refused", "delivery.refused"]);
    assert!(due(&store, 10, later(MINUTE)).await.is_empty());
    kept(&store, keyed_parcel(&inbox, 1, T0), T0).await;
}

pub(super) async fn mail_for_an_inbox_that_is_gone_is_refused_in_its_commit(store: Ledger) {
    let (gone, there) = (open(&store, "a@d.test").await, open(&store, "b@d.test").await);
    let before = kept(&store, keyed_parcel(&gone, 1, T0), T0).await;
    // Looked up before the removal, committed after it.
    let parcels = vec![keyed_parcel(&gone, 2, T0), keyed_parcel(&there, 3, T0), keyed_parcel(&gone, 1, T0)];
    let ids: Vec<_> = parcels.iter().map(|parcel| parcel.id).collect();
    store.remove_inbox(TEAM, gone.id, T0).await.unwrap().unwrap();
    let answers = receive(&store, parcels.clone(), T0).await;
    assert_eq!(answers, [Received::Refused(ids[0]), Received::Kept(ids[1]), Received::Refused(ids[2])]);
    let mut refused = parcels[0].clone();
    refused.refuse_inbox_gone();
    assert_eq!(delivery(&store, ids[0]).await, Delivery::new(refused, false, T0));
    assert_eq!(kinds(&store).await, ["delivery.refused", "delivery.refused"]);
    // The same call again gets the same answer and writes nothing, and what was kept before the removal stays so.
    assert_eq!(receive(&store, parcels, T0).await, answers);
    assert_eq!(kinds(&store).await.len(), 2);
    assert_eq!(due(&store, 10, T0).await, [before, ids[1]]);
    // The row outlives the sweep of what the removed inbox left, and binds no key.
    store.sweep(100, T0).await.unwrap();
    assert_eq!(delivery(&store, ids[0]).await.suppressed, Some(Suppression::UnknownInbox));
    kept(&store, keyed_parcel(&there, 2, T0), T0).await;
}

pub(super) async fn an_arrival_received_twice_is_the_same_arrival(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    kept(&store, keyed_parcel(&inbox, 1, T0), T0).await;
    let refused = NewDelivery { refused: Some(Suppression::Blocked), ..parcel(&inbox, T0) };
    let parcels = vec![keyed_parcel(&inbox, 2, T0), keyed_parcel(&inbox, 1, T0), refused];
    let first = receive(&store, parcels.clone(), T0).await;
    let (told, rows) = (events(&store, TEAM).await, listed(&store, DeliveryQuery::default()).await);
    assert_eq!(receive(&store, parcels, T0).await, first);
    assert_eq!(events(&store, TEAM).await, told);
    assert_eq!(listed(&store, DeliveryQuery::default()).await, rows);
}

async fn listed(store: &Ledger, query: DeliveryQuery) -> Vec<DeliveryId> {
    let limit = if query.limit == 0 { 100 } else { query.limit };
    let rows = store.deliveries(TEAM, DeliveryQuery { limit, ..query }).await.unwrap();
    rows.iter().map(|delivery| delivery.id).collect()
}

pub(super) async fn deliveries_are_listed_newest_first_and_found(store: Ledger) {
    let (inbox, second) = (open(&store, "a@d.test").await, open(&store, "b@d.test").await);
    let one = kept(&store, parcel(&inbox, T0), T0).await;
    let sourceless = |mut parcel: NewDelivery| {
        parcel.about.source = None;
        parcel
    };
    let two = kept(&store, sourceless(parcel(&second, T0)), T0).await;
    let three = kept(&store, parcel(&inbox, T0), T0).await;
    let refused = NewDelivery { refused: Some(Suppression::Blocked), ..parcel(&inbox, T0) };
    let four = refused.id;
    receive(&store, vec![refused], T0).await;
    let message = letter(Some(1), 1);
    let named = Some(message.id);
    let _filed = store.file(TEAM, two, message, T0).await.unwrap();

    let all = DeliveryQuery::default;
    assert_eq!(listed(&store, all()).await, [four, three, two, one]);
    assert_eq!(listed(&store, DeliveryQuery { limit: 2, ..all() }).await, [four, three]);
    assert_eq!(listed(&store, DeliveryQuery { before: Some(three), limit: 1, ..all() }).await, [two]);
    assert_eq!(listed(&store, DeliveryQuery { inbox: Some(inbox.id), ..all() }).await, [four, three, one]);
    assert_eq!(listed(&store, DeliveryQuery { state: Some(DeliveryState::Waiting), ..all() }).await, [three, one]);
    assert_eq!(listed(&store, DeliveryQuery { state: Some(DeliveryState::Refused), ..all() }).await, [four]);
    assert_eq!(listed(&store, DeliveryQuery { message: named, ..all() }).await, [two]);
    let source = Some(mailonce_core::id::SourceId(Uuid::from_u128(0x50)));
    assert_eq!(listed(&store, DeliveryQuery { source, ..all() }).await, [four, three, one]);
}

pub(super) async fn deliveries_of_another_team_are_not_there(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let id = kept(&store, parcel(&inbox, T0), T0).await;
    assert_eq!(store.delivery(OTHER, id).await.unwrap(), None);
    assert_eq!(store.settle_delivery(OTHER, id, Settle::Done, T0).await.unwrap(), None);
    assert_eq!(store.replay_delivery(OTHER, id, T0).await.unwrap(), None);
    assert_eq!(store.bring(OTHER, id, fetched(T0)).await.unwrap(), None);
    let all = DeliveryQuery { limit: 10, ..DeliveryQuery::default() };
    assert!(store.deliveries(OTHER, all).await.unwrap().is_empty());
    assert_eq!(delivery(&store, id).await.state, DeliveryState::Waiting);
}

pub(super) async fn old_rows_of_suppressed_deliveries_are_swept(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let (message, _) = filed(&store, &inbox, letter(Some(1), 1), T0).await;
    let dead = kept(&store, parcel(&inbox, T0), T0).await;
    settle(&store, dead, Settle::Dead("broken".into()), T0).await;
    for n in 0..3 {
        let known = kept(&store, parcel(&inbox, T0), later(n)).await;
        let _known = store.file(TEAM, known, letter(Some(1), 1), later(n)).await.unwrap();
        receive(&store, vec![refused_parcel(TEAM, Suppression::UnknownInbox, T0)], later(n)).await;
    }
    assert_eq!(listed(&store, DeliveryQuery::default()).await.len(), 8);
    let sweep = async |max, at| store.sweep(max, at).await.unwrap().deliveries;
    assert_eq!(sweep(100, later(limits::DUPLICATE_KEPT_MS - 1)).await, 0);
    assert_eq!(sweep(100, later(limits::DUPLICATE_KEPT_MS)).await, 2);
    assert_eq!(sweep(3, later(limits::DUPLICATE_KEPT_MS + 2)).await, 3);
    assert_eq!(sweep(3, later(limits::DUPLICATE_KEPT_MS + 2)).await, 1);
    assert_eq!(listed(&store, DeliveryQuery::default()).await, [dead, message.delivery]);
    assert_eq!(store.raw(TEAM, message.id).await.unwrap().as_deref(), Some(RAW));
}

pub(super) async fn a_sweep_takes_what_a_removed_inbox_left_in_pieces(store: Ledger) {
    let (inbox, second) = (open(&store, "a@d.test").await, open(&store, "b@d.test").await);
    for n in 0..4 {
        filed(&store, &inbox, letter(Some(n), n), T0).await;
    }
    let dead = kept(&store, parcel(&inbox, T0), T0).await;
    settle(&store, dead, Settle::Dead("broken".into()), T0).await;
    // One arrival for two inboxes: its bytes are still wanted by the other.
    let parcels = vec![parcel(&inbox, T0), parcel(&second, T0)];
    let (here, there) = (parcels[0].id, parcels[1].id);
    receive(&store, parcels, T0).await;
    let _filed = store.file(TEAM, here, letter(Some(9), 9), T0).await.unwrap();
    let waiting = kept(&store, parcel(&inbox, T0), T0).await;
    store.remove_inbox(TEAM, inbox.id, T0).await.unwrap().unwrap();

    let mut swept = Vec::new();
    for _ in 0..4 {
        swept.push(store.sweep(2, T0).await.unwrap().deliveries);
    }
    assert_eq!(swept, [2, 2, 2, 0]);
    assert_eq!(listed(&store, DeliveryQuery::default()).await, [waiting, there], "what waits is not lost quietly");
    assert_eq!(store.file(TEAM, waiting, letter(None, 1), T0).await.unwrap(), mailonce_core::message::Filed::Settled);
    assert_eq!(store.sweep(2, T0).await.unwrap().deliveries, 1);
    // Even one that was refused for the inbox while it went, and comes when nothing of it was left.
    let late = NewDelivery { refused: Some(Suppression::Blocked), ..parcel(&inbox, T0) };
    receive(&store, vec![late], T0).await;
    assert_eq!(store.sweep(2, T0).await.unwrap().deliveries, 1);
    let readings = read(&store, NODE, 10, T0).await;
    assert_eq!((readings.len(), readings[0].delivery.id, readings[0].raw.as_slice()), (1, there, RAW));
}

pub(super) async fn the_highest_id_of_what_comes_in_is_remembered(store: Ledger) {
    let highest = async || store.install().await.unwrap().last_id;
    let inbox = open(&store, "a@d.test").await;
    assert_eq!(highest().await, ordered_bits(inbox.id.0));
    let refused = refused_parcel(TEAM, Suppression::UnknownInbox, T0);
    let id = refused.id;
    receive(&store, vec![refused], T0).await;
    assert_eq!(highest().await, ordered_bits(id.0));
    let (message, _) = filed(&store, &inbox, letter(Some(1), 1), T0).await;
    assert!(highest().await >= ordered_bits(message.id.0).max(ordered_bits(message.thread.0)));
    let late = later(limits::DUPLICATE_KEPT_MS);
    let last = kept(&store, parcel(&inbox, T0), T0).await;
    settle(&store, last, Settle::Refused(Suppression::Blocked), T0).await;
    assert_eq!(store.sweep(100, late).await.unwrap().deliveries, 2);
    assert!(highest().await >= ordered_bits(last.0), "not even after its last trace is gone");
}
