//! Received mail on two nodes: wake-ups, message numbers, and leases.

use mailonce_core::{
    id::NodeId,
    inbound::{delivery::ReceiveResult, wake_up::InboundWakeUp},
    inbox::message::FileMessageResult,
    ports::{
        inbound_store::InboundStore,
        store::{Store, StoreHooks},
    },
};
use std::collections::BTreeSet;
use uuid::Uuid;

use super::{NOW, TEAM, heartbeat::age_peers, rows};
use crate::postgres::tests::{
    inbound::{
        READER, arrival, inbox, message_seqs, new_delivery, new_message, next_wake_up, receive_delivery,
        subscribe_wake_ups,
    },
    two_nodes::two_nodes,
};

const WORKER: NodeId = NodeId(Uuid::from_u128(0xb2));

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_hears_of_the_others_and_of_itself_once() {
    let (_fresh, one, two) = two_nodes().await;
    let (a, b) = (inbox(&one, "a@d.test").await, inbox(&one, "b@d.test").await);
    let (mut at_one, mut at_two) = (subscribe_wake_ups(&one), subscribe_wake_ups(&two));
    let first = receive_delivery(&one, a, "1").await;
    let _filed = one.file_message(TEAM, first, new_message("1"), NOW).await.unwrap();
    assert_eq!(
        (next_wake_up(&mut at_one).await, next_wake_up(&mut at_two).await),
        (InboundWakeUp::MessageFiled(a), InboundWakeUp::MessageFiled(a))
    );

    one.receive(arrival(vec![new_delivery(a, "2")], None), NOW).await.unwrap();
    assert_eq!(
        (next_wake_up(&mut at_one).await, next_wake_up(&mut at_two).await),
        (InboundWakeUp::DeliveryWaiting, InboundWakeUp::DeliveryWaiting)
    );

    // If a node received its own notifications, another wake-up would come before this one.
    let last = receive_delivery(&two, b, "3").await;
    let _filed = two.file_message(TEAM, last, new_message("3"), NOW).await.unwrap();
    assert_eq!(
        (next_wake_up(&mut at_one).await, next_wake_up(&mut at_two).await),
        (InboundWakeUp::MessageFiled(b), InboundWakeUp::MessageFiled(b))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_session_was_lost_listens_again() {
    let (fresh, one, two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    let mut at_two = subscribe_wake_ups(&two);
    let session = fresh.session().await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name = 'mailonce' AND query LIKE '%pg_backend_pid%'";
    assert_eq!(session.query(kill, &[]).await.unwrap().len(), 2);
    // The node wakes itself up, because it may have missed notifications.
    assert_eq!(next_wake_up(&mut at_two).await, InboundWakeUp::DeliveryWaiting);
    let id = receive_delivery(&one, a, "1").await;
    let _filed = one.file_message(TEAM, id, new_message("1"), NOW).await.unwrap();
    assert_eq!(next_wake_up(&mut at_two).await, InboundWakeUp::MessageFiled(a));
    assert!(two.attach(StoreHooks { inbound: Some(Box::new(|_hint| {})), ..StoreHooks::default() }).inbound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_two_nodes_have_no_gaps_and_one_thread() {
    let (_fresh, one, two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    let mut tasks = Vec::new();
    for n in 0..80 {
        let node = if n % 2 == 0 { one.clone() } else { two.clone() };
        tasks.push(tokio::spawn(async move {
            let id = receive_delivery(&node, a, &format!("{n}")).await;
            node.file_message(TEAM, id, new_message(&format!("{n}")), NOW).await.unwrap()
        }));
    }
    let mut threads = BTreeSet::new();
    for task in tasks {
        match task.await.unwrap() {
            FileMessageResult::New(message, _) => threads.insert(message.thread),
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(message_seqs(&two, a).await, (1..=80).collect::<Vec<u64>>());
    assert_eq!(threads.len(), 1);
    assert_eq!(one.events(TEAM, 0, 1000).await.unwrap().len(), 80);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_keep_one_copy_of_a_delivery() {
    let (fresh, one, two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    for round in 0..20 {
        let mut tasks = Vec::new();
        for n in 0..10 {
            let node = if n % 2 == 0 { one.clone() } else { two.clone() };
            let arrival =
                arrival(vec![new_delivery(a, &format!("k{round}")), new_delivery(a, &format!("l{round}"))], None);
            tasks.push(tokio::spawn(async move { node.receive(arrival, NOW).await.unwrap() }));
        }
        let mut kept = 0;
        for task in tasks {
            kept += task.await.unwrap().iter().filter(|answer| matches!(answer, ReceiveResult::Stored(_))).count();
        }
        assert_eq!(kept, 2, "round {round}");
    }
    let session = fresh.session().await;
    assert_eq!(rows(&session, "deliveries").await, 400);
    let users: i64 = session.query_one("SELECT sum(users) FROM raws", &[]).await.unwrap().get(0);
    assert_eq!(users, 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_node_holds_is_read_by_nobody_else() {
    let (fresh, one, _two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    let parcels = vec![new_delivery(a, "1"), new_delivery(a, "2")];
    let (busy, free) = (parcels[0].id, parcels[1].id);
    one.receive(arrival(parcels, None), NOW).await.unwrap();
    let session = fresh.session().await;
    session.batch_execute("BEGIN").await.unwrap();
    session.query("SELECT FROM deliveries WHERE id = $1 FOR UPDATE", &[&busy.0]).await.unwrap();
    let read = async || {
        let readings = one.lease_deliveries(READER, 10, NOW).await.unwrap();
        readings.iter().map(|reading| reading.delivery.id).collect::<Vec<_>>()
    };
    assert_eq!(read().await, [free]);
    session.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(read().await, [busy]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_silent_node_read_is_due_after_fifteen_seconds() {
    let (_fresh, one, two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    one.heartbeat(READER, NOW).await.unwrap();
    let id = receive_delivery(&one, a, "1").await;
    for (seconds, given_back) in [(0, 0), (13, 0), (2, 1), (0, 0)] {
        age_peers(&two, seconds);
        assert_eq!(two.recover_dead_nodes(WORKER, 10, NOW).await.unwrap().deliveries, given_back, "{seconds} s more");
    }
    let readings = two.lease_deliveries(WORKER, 10, NOW).await.unwrap();
    assert_eq!((readings.len(), readings[0].delivery.id, readings[0].delivery.attempts), (1, id, 2));
}
