//! Two nodes on one database: equal keys, overlapping recipients, sweeps and events.

use mailonce_core::{
    key::KeyHash,
    outbound::{
        accept::{AcceptResult, NewEmail},
        email::Guard,
        email_commands::RescheduleRequest,
        key_binding::KeyChangeResult,
    },
    ports::store::Store,
    time::Time,
    ttl::Ttl,
};
use std::{collections::BTreeSet, sync::Arc};
use uuid::Uuid;

use super::{NOW, TEAM, TestDatabase, email_of, new_email, new_email_with_intent, rows, wait_until_blocked};
use crate::postgres::Postgres;

const A: &str = "a@example.com";
const B: &str = "b@example.com";
const C: &str = "c@example.com";

pub(crate) async fn two_nodes() -> (TestDatabase, Arc<Postgres>, Arc<Postgres>) {
    let fresh = TestDatabase::create().await;
    let (one, two) = tokio::join!(fresh.node(), fresh.node());
    (fresh, Arc::new(one), Arc::new(two))
}

/// Accepts emails concurrently, alternating between the two nodes.
pub(crate) async fn accept_on_both(nodes: [&Arc<Postgres>; 2], new_emails: Vec<NewEmail>) -> Vec<AcceptResult> {
    let tasks: Vec<_> = new_emails
        .into_iter()
        .enumerate()
        .map(|(i, email)| {
            let node = nodes[i % 2].clone();
            tokio::spawn(async move { node.accept(email, NOW).await.unwrap() })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

fn hash(key: KeyHash) -> Uuid {
    Uuid::from_bytes(key.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_equal_keys_on_two_nodes_one_is_the_first() {
    let (fresh, one, two) = two_nodes().await;
    for round in 0..30 {
        let new_emails = (0..40).map(|_| new_email(Some(&format!("k{round}")))).collect();
        let emails: Vec<_> = accept_on_both([&one, &two], new_emails).await.into_iter().map(email_of).collect();
        assert_eq!(emails.iter().filter(|(_, first)| *first).count(), 1);
        assert_eq!(emails.iter().map(|(email, _)| email.id).collect::<BTreeSet<_>>().len(), 1);
    }
    assert_eq!(rows(&fresh.session().await, "emails").await, 30);
    assert!(one.gauges().contended_accepts > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_overlapping_recipients_on_two_nodes_one_goes() {
    let (_fresh, one, two) = two_nodes().await;
    for round in 0..40 {
        let entity = format!("o{round}");
        let new_emails = vec![
            new_email_with_intent(&entity, &[A, B]),
            new_email_with_intent(&entity, &[B]),
            new_email_with_intent(&entity, &[B, C]),
            new_email_with_intent(&entity, &[C, B, A]),
        ];
        let emails: Vec<_> = accept_on_both([&one, &two], new_emails).await.into_iter().map(email_of).collect();
        assert!(emails.iter().all(|(_, first)| *first));
        assert_eq!(emails.iter().filter(|(email, _)| email.guard.is_none()).count(), 1, "{entity}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_email_waits_for_a_concurrent_shadow_key_and_is_held() {
    let (fresh, one, _two) = two_nodes().await;
    for (round, ends, guard) in [(0, "COMMIT", Some(Guard::Overlaps)), (1, "ROLLBACK", None)] {
        let entity = format!("o{round}");
        let several = email_of(one.accept(new_email_with_intent(&format!("x{round}"), &[A, B]), NOW).await.unwrap()).0;
        let single = new_email_with_intent(&entity, &[A]);
        // Another node is about to let that email occupy A's key as a shadow key.
        let other = fresh.session().await;
        other.batch_execute("BEGIN").await.unwrap();
        let slot = "INSERT INTO keys (team, hash, slot) VALUES ($1, $2, $3)";
        other.execute(slot, &[&TEAM.0, &hash(single.key.unwrap()), &several.id.0]).await.unwrap();

        let node = one.clone();
        let waiting = tokio::spawn(async move { node.accept(single, NOW).await.unwrap() });
        wait_until_blocked(&fresh.session().await, 1).await;
        other.batch_execute(ends).await.unwrap();

        let (email, first) = email_of(waiting.await.unwrap());
        assert_eq!((first, email.guard, email.bind_number), (true, guard, 1), "{ends}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_email_to_several_waits_for_a_concurrent_key_binding_and_is_held() {
    let (fresh, one, _two) = two_nodes().await;
    let alone = email_of(one.accept(new_email(Some("k")), NOW).await.unwrap()).0;
    let single = new_email_with_intent("o", &[A]);
    let other = fresh.session().await;
    other.batch_execute("BEGIN").await.unwrap();
    let bind = "INSERT INTO keys (team, hash, bind, email) VALUES ($1, $2, 1, $3)";
    other.execute(bind, &[&TEAM.0, &hash(single.key.unwrap()), &alone.id.0]).await.unwrap();

    let node = one.clone();
    let waiting = tokio::spawn(async move { node.accept(new_email_with_intent("o", &[A, B]), NOW).await.unwrap() });
    wait_until_blocked(&fresh.session().await, 1).await;
    other.batch_execute("COMMIT").await.unwrap();

    assert_eq!(email_of(waiting.await.unwrap()).0.guard, Some(Guard::Overlaps));
}

/// Sends an email whose key is remembered for one second.
async fn send_with_short_ttl(node: &Postgres, key: &str) -> KeyHash {
    let mut brief = new_email(Some(key));
    brief.ttl = Ttl(1000);
    let hash = brief.key.unwrap();
    assert!(email_of(node.accept(brief, NOW).await.unwrap()).1);
    assert_eq!(node.capture("sandbox", 10, Some(NOW), NOW).await.unwrap(), 1);
    hash
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_swept_while_it_is_rebound_stays_bound() {
    let (fresh, one, two) = two_nodes().await;
    for (round, sweep_first) in [(0, true), (1, false)] {
        let key = format!("k{round}");
        let bound = send_with_short_ttl(&one, &key).await;
        let later = NOW.plus(60 * 86_400_000);
        // The sweep and the accept wait for the same row, which a third session has locked, in either order.
        let other = fresh.session().await;
        other.batch_execute("BEGIN").await.unwrap();
        let lock = "SELECT FROM keys WHERE team = $1 AND hash = $2 FOR UPDATE";
        other.query(lock, &[&TEAM.0, &hash(bound)]).await.unwrap();
        let (sweeper, binder, again) = (two.clone(), one.clone(), new_email(Some(&key)));
        let sweep = || tokio::spawn(async move { sweeper.sweep(10, later).await.unwrap() });
        let accept = || tokio::spawn(async move { binder.accept(again, later).await.unwrap() });
        let session = fresh.session().await;
        let (swept, accepted) = if sweep_first {
            let swept = sweep();
            wait_until_blocked(&session, 1).await;
            (swept, accept())
        } else {
            let accepted = accept();
            wait_until_blocked(&session, 1).await;
            (sweep(), accepted)
        };
        wait_until_blocked(&session, 2).await;
        other.batch_execute("COMMIT").await.unwrap();

        let (email, first) = email_of(accepted.await.unwrap());
        let swept = swept.await.unwrap();
        assert_eq!((first, email.bind_number, swept.keys), (true, 2, usize::from(sweep_first)));
        assert_eq!(email_of(two.accept(new_email(Some(&key)), later).await.unwrap()), (email, false));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_not_both_extended_and_rebound() {
    let (_fresh, one, two) = two_nodes().await;
    for round in 0..20 {
        let key = format!("k{round}");
        let bound = send_with_short_ttl(&one, &key).await;
        // One node's clock is slightly behind: for it the key has not expired.
        let (node, again) = (two.clone(), new_email(Some(&key)));
        let accept = tokio::spawn(async move { node.accept(again, NOW.plus(1001)).await.unwrap() });
        let extended = one.extend_key(TEAM, bound, Ttl(86_400_000), NOW.plus(999)).await.unwrap();
        let (email, first) = email_of(accept.await.unwrap());
        // Either the extension came first and the accept was a replay, or the extension applied to the new email.
        match extended {
            KeyChangeResult::Done(extended) => assert_eq!(extended.id, email.id, "round {round}, first: {first}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_two_nodes_have_one_order() {
    let (_fresh, one, two) = two_nodes().await;
    let follower = tokio::spawn({
        let node = two.clone();
        async move {
            let mut seen = Vec::new();
            while seen.len() < 400 {
                let after = seen.last().map_or(0, |event: &mailonce_core::events::event::Event| event.seq);
                seen.extend(node.events(TEAM, after, 30).await.unwrap());
            }
            seen
        }
    });
    let new_emails = (0..400).map(|_| new_email(None)).collect();
    accept_on_both([&one, &two], new_emails).await.into_iter().for_each(|answer| drop(email_of(answer)));

    let seen = follower.await.unwrap();
    assert_eq!(seen.iter().map(|event| event.seq).collect::<Vec<_>>(), (1..=400).collect::<Vec<u64>>());
    assert_eq!(seen, one.events(TEAM, 0, 1000).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_numbered_without_a_reader() {
    let (fresh, one, _two) = two_nodes().await;
    assert!(email_of(one.accept(new_email(None), NOW).await.unwrap()).1);
    let session = fresh.session().await;
    for _ in 0..200 {
        if rows(&session, "events").await == 1 {
            return assert_eq!(rows(&session, "events_pending").await, 0);
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("nobody numbered the event");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envelope_that_another_node_holds_is_left_to_it() {
    let (fresh, one, two) = two_nodes().await;
    let held = email_of(one.accept(new_email(None), NOW).await.unwrap()).0;
    let free = email_of(one.accept(new_email(None), NOW).await.unwrap()).0;
    let other = fresh.session().await;
    other.batch_execute("BEGIN").await.unwrap();
    other.query("SELECT FROM emails WHERE id = $1 FOR UPDATE", &[&held.id.0]).await.unwrap();

    assert_eq!(two.capture("sandbox", 10, Some(NOW), NOW).await.unwrap(), 1);
    assert_eq!(two.email(TEAM, free.id).await.unwrap().unwrap().settled_at, Some(NOW));
    assert_eq!(two.next_handoff_due("sandbox").await.unwrap(), Some(Time(NOW.0)));
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(two.capture("sandbox", 10, Some(NOW), NOW).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_outgrew_their_statistics_are_looked_at_again() {
    let (fresh, one, _two) = two_nodes().await;
    let session = fresh.session().await;
    session.batch_execute("ANALYZE").await.unwrap();
    let new_emails = (0..1000).map(|_| new_email(None)).collect();
    accept_on_both([&one, &one], new_emails).await.into_iter().for_each(|answer| drop(email_of(answer)));
    for _ in 0..100 {
        let known = "SELECT reltuples::bigint FROM pg_class WHERE oid = 'handoffs'::regclass";
        if session.query_one(known, &[]).await.unwrap().get::<_, i64>(0) > 100 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("nobody looked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verb_that_changes_nothing_holds_nothing_when_it_answers() {
    let (fresh, one, _two) = two_nodes().await;
    let session = fresh.session().await;
    let key = new_email(Some("k")).key.unwrap();
    let id = email_of(one.accept(new_email(Some("k")), NOW).await.unwrap()).0.id;
    let free = session.prepare("SELECT FROM emails e, keys k FOR UPDATE SKIP LOCKED").await.unwrap();
    for round in 0..200 {
        let refused = one.forget_key(TEAM, key, NOW).await.unwrap();
        assert!(matches!(refused, KeyChangeResult::NotTerminal(_)), "{refused:?}");
        assert_eq!(session.query(&free, &[]).await.unwrap().len(), 1, "round {round}");
        let _refused = one.reschedule(TEAM, id, RescheduleRequest::without_charges(NOW), NOW).await.unwrap();
        assert_eq!(session.query(&free, &[]).await.unwrap().len(), 1, "round {round}");
    }
}
