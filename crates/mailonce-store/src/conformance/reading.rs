//! Promises about who reads deliveries, and how they end without a message.

use mailonce_core::{
    delivery::{Arrival, Delivery, DeliveryState, Form, Received, Settle, Suppression},
    id::DeliveryId,
    limits,
    message::Filed,
    time::Time,
};

use super::{
    Ledger, MINUTE, T0, TEAM, kinds, next_id,
    post::{FETCHED, RAW, arrival, delivery, due, fetched, kept, letter, notice, open, parcel, read, receive, settle},
    work::{NODE, SECOND_NODE},
};

fn later(ms: i64) -> Time {
    T0.plus(ms)
}

pub(super) async fn what_a_process_reads_at_once_is_read_by_nobody_else(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let arrival = Arrival { reader: Some(NODE), ..arrival(vec![parcel(&inbox, T0)]) };
    let [Received::Kept(id)] = store.receive(arrival, T0).await.unwrap()[..] else { panic!("not kept") };
    assert_eq!(delivery(&store, id).await.attempts, 1);
    assert!(read(&store, SECOND_NODE, 10, later(limits::READING_MS - 1)).await.is_empty());
    let silent = read(&store, SECOND_NODE, 10, later(limits::READING_MS)).await;
    assert_eq!((silent.len(), silent[0].delivery.attempts), (1, 2));
}

pub(super) async fn due_deliveries_are_read_the_longest_due_first(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let first = kept(&store, parcel(&inbox, T0), T0).await;
    let second = kept(&store, parcel(&inbox, T0), later(1)).await;
    let third = kept(&store, parcel(&inbox, T0), later(2)).await;
    settle(&store, first, Settle::Later(later(3), "busy".into()), later(2)).await;
    assert!(due(&store, 10, Time(T0.0 - 1)).await.is_empty());
    assert_eq!(due(&store, 2, later(5)).await, [second, third]);
    assert_eq!(due(&store, 2, later(5)).await, [first]);
    let again = read(&store, NODE, 10, later(5 + limits::READING_MS)).await;
    assert_eq!(again.len(), 3);
    assert_eq!(again[0].delivery, delivery(&store, again[0].delivery.id).await);
    assert!(again.iter().all(|reading| reading.delivery.attempts == 2 && reading.raw == RAW));
}

pub(super) async fn a_settled_delivery_stays_as_it_is(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    for end in [Settle::Done, Settle::Refused(Suppression::Blocked), Settle::Dead("no mail".into())] {
        let id = kept(&store, parcel(&inbox, T0), T0).await;
        let ended = settle(&store, id, end.clone(), T0).await;
        let mut wanted = Delivery { rev: 1, ..ended.clone() };
        wanted = Delivery { state: DeliveryState::Waiting, suppressed: None, trouble: None, ..wanted };
        assert!(wanted.settle(end));
        assert_eq!(ended, wanted);
        let late = settle(&store, id, Settle::Later(later(9), "late".into()), T0).await;
        assert_eq!((&late, &delivery(&store, id).await), (&ended, &ended));
    }
    assert!(due(&store, 10, later(MINUTE)).await.is_empty());
    assert_eq!(kinds(&store).await, ["delivery.refused", "delivery.failed"]);
    let nobody = store.settle_delivery(TEAM, DeliveryId(next_id(T0)), Settle::Done, T0).await.unwrap();
    assert_eq!(nobody, None);
}

pub(super) async fn a_dead_delivery_is_kept_and_read_again(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let id = kept(&store, parcel(&inbox, T0), T0).await;
    assert_eq!(due(&store, 1, T0).await, [id]);
    settle(&store, id, Settle::Dead("broken".into()), later(1)).await;
    let replayed = store.replay_delivery(TEAM, id, later(2)).await.unwrap().unwrap();
    assert_eq!((replayed.state, replayed.attempts, replayed.due), (DeliveryState::Waiting, 0, Some(later(2))));
    let again = store.replay_delivery(TEAM, id, later(3)).await.unwrap().unwrap();
    assert_eq!(again, replayed);
    let reading = read(&store, NODE, 1, later(3)).await;
    assert_eq!((reading[0].raw.as_slice(), reading[0].delivery.attempts), (RAW, 1));
    assert_eq!(store.replay_delivery(TEAM, DeliveryId(next_id(T0)), T0).await.unwrap(), None);
}

pub(super) async fn a_mail_takes_the_place_of_its_notice_once(store: Ledger) {
    let (inbox, other) = (open(&store, "a@d.test").await, open(&store, "b@d.test").await);
    let whole = kept(&store, parcel(&inbox, T0), T0).await;
    let kept = receive(&store, vec![notice(&inbox, T0), notice(&other, T0)], T0).await;
    let [Received::Kept(id), Received::Kept(second)] = kept[..] else { panic!("{kept:?}") };
    let before = read(&store, NODE, 10, T0).await;
    assert_eq!(before.len(), 3);
    let brought = store.bring(TEAM, id, fetched(T0)).await.unwrap().unwrap();
    assert_eq!((brought.about.form, brought.about.size, brought.attempts, brought.rev), (Form::Mime, 23, 1, 3));
    assert_eq!(delivery(&store, id).await, brought);
    let again = store.bring(TEAM, id, fetched(T0)).await.unwrap();
    assert_eq!(again.as_ref(), Some(&brought), "what has its mail keeps it");
    assert_eq!(store.bring(TEAM, whole, fetched(T0)).await.unwrap(), Some(delivery(&store, whole).await));
    assert_eq!(store.bring(TEAM, DeliveryId(next_id(T0)), fetched(T0)).await.unwrap(), None);
    assert!(read(&store, SECOND_NODE, 10, later(limits::READING_MS - 1)).await.is_empty(), "whoever reads it goes on");
    let mut rest = read(&store, SECOND_NODE, 10, later(limits::READING_MS)).await;
    rest.sort_by_key(|reading| reading.delivery.id);
    let bytes: Vec<_> = rest.iter().map(|reading| (reading.delivery.id, reading.raw.as_slice())).collect();
    assert_eq!(bytes, [(whole, RAW), (id, FETCHED), (second, RAW)], "only the one that was fetched for");
    let Filed::New(message, _) = store.file(TEAM, id, letter(Some(1), 1), T0).await.unwrap() else { panic!("known") };
    assert_eq!(store.raw(TEAM, message.id).await.unwrap().as_deref(), Some(FETCHED));
    store.settle_delivery(TEAM, second, Settle::Dead("gone".into()), T0).await.unwrap();
    let late = store.bring(TEAM, second, fetched(T0)).await.unwrap().unwrap();
    assert_eq!((late.state, late.about.form), (DeliveryState::Dead, Form::Notice), "what no longer waits stays");
}

pub(super) async fn what_an_ended_process_read_is_due_at_once(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let mut ids = Vec::new();
    for n in 0..3 {
        let arrival = Arrival { reader: Some(NODE), ..arrival(vec![parcel(&inbox, T0)]) };
        let [Received::Kept(id)] = store.receive(arrival, later(n)).await.unwrap()[..] else { panic!("not kept") };
        ids.push(id);
    }
    let put_off = ids.remove(0);
    settle(&store, put_off, Settle::Later(later(MINUTE), "busy".into()), later(3)).await;
    let recovered = store.recover(NODE, 10, later(4)).await.unwrap();
    assert_eq!(recovered.deliveries, 0, "a process takes nothing from itself");
    assert_eq!(store.recover(SECOND_NODE, 1, later(4)).await.unwrap().deliveries, 1);
    assert_eq!(store.recover(SECOND_NODE, 10, later(4)).await.unwrap().deliveries, 1);
    assert_eq!(store.recover(SECOND_NODE, 10, later(4)).await.unwrap().deliveries, 0);
    let readings = read(&store, SECOND_NODE, 10, later(4)).await;
    let found: Vec<_> = readings.iter().map(|reading| (reading.delivery.id, reading.delivery.attempts)).collect();
    assert_eq!(found, [(ids[0], 2), (ids[1], 2)], "what was put off stays put off");
}

pub(super) async fn a_delivery_over_which_processes_end_waits_before_the_next(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let id = kept(&store, parcel(&inbox, T0), T0).await;
    for attempts in 1..=limits::READERS_AT_ONCE {
        assert_eq!(read(&store, NODE, 1, T0).await[0].delivery.attempts, attempts);
        assert_eq!(store.recover(SECOND_NODE, 10, T0).await.unwrap().deliveries, 1);
    }
    assert_eq!(due(&store, 1, T0).await, [id]);
    assert_eq!(store.recover(SECOND_NODE, 10, T0).await.unwrap().deliveries, 1);
    assert_eq!(store.recover(SECOND_NODE, 10, T0).await.unwrap().deliveries, 0, "nobody reads it any more");
    let wanted = delivery(&store, id).await.due.unwrap();
    assert!(wanted > T0 && wanted < later(limits::READING_MS), "{wanted:?}");
    assert!(due(&store, 1, Time(wanted.0 - 1)).await.is_empty());
    assert_eq!(due(&store, 1, wanted).await, [id]);
}

pub(super) async fn a_process_that_was_heard_of_keeps_what_it_reads(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    store.heartbeat(NODE, T0).await.unwrap();
    kept(&store, parcel(&inbox, T0), T0).await;
    assert_eq!(due(&store, 1, T0).await.len(), 1);
    let soon = later(limits::ALIVE_MS - 1);
    assert_eq!(store.recover(SECOND_NODE, 10, soon).await.unwrap().deliveries, 0);
}
