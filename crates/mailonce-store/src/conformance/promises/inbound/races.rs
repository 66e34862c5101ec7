//! Promises about concurrent deliveries, workers, consumers and inbox creations.

use mailonce_core::{
    id::{DeliveryId, NodeId, WatchId},
    inbound::delivery::{DeliveryState, ReceiveResult},
    inbox::{
        CreateInboxResult, Inbox,
        artifact::{ArtifactKind, ConsumeRequest, ConsumeResult, HeldArtifacts},
        message::{FileMessageResult, MessagePosition, MessageQuery},
        watch::{SpendResendResult, Watch},
    },
    operation::IdempotentResult,
};
use std::collections::BTreeSet;
use uuid::Uuid;

use crate::conformance::{
    MINUTE, OTHER_TEAM, T0, TEAM, TestStore, all_at_once, all_events, event_kinds,
    fixtures::inbound::{
        all_messages, consume_request, create_inbox, file_delivery, file_new, in_reply_to, keyed_delivery,
        load_delivery, new_delivery, new_inbox, new_message, open_inbox, receive_all, receive_one, with_artifacts,
    },
    next_id,
};

pub(super) async fn of_16_concurrent_workers_one_files_a_delivery(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let id = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    let work: Vec<_> = (0..16).map(|_| (store.clone(), new_message(Some(1), 1))).collect();
    let answers = all_at_once(
        work.into_iter().map(|(store, message)| async move { file_delivery(&store, id, message, T0).await }),
    )
    .await;
    let new = answers.iter().filter(|answer| matches!(answer, FileMessageResult::New(_, _))).count();
    let settled = answers.iter().filter(|answer| **answer == FileMessageResult::AlreadyFinished).count();
    assert_eq!((new, settled), (1, 15));
    assert_eq!(event_kinds(&store).await, ["message.received"]);
    assert_eq!(store.inbox(TEAM, inbox.id).await.unwrap().unwrap().latest_seq, 1);
}

pub(super) async fn of_32_equal_concurrent_deliveries_one_is_stored(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let work: Vec<_> = (0..32).map(|_| (store.clone(), keyed_delivery(&inbox, 1, T0))).collect();
    let answers = all_at_once(
        work.into_iter()
            .map(|(store, delivery)| async move { receive_all(&store, vec![delivery], T0).await.remove(0) }),
    )
    .await;
    let kept: Vec<DeliveryId> = answers
        .iter()
        .filter_map(|answer| if let ReceiveResult::Stored(id) = answer { Some(*id) } else { None })
        .collect();
    assert_eq!(kept.len(), 1);
    let repeats = answers
        .iter()
        .filter(|answer| matches!(answer, ReceiveResult::Duplicate { original, .. } if *original == kept[0]));
    assert_eq!(repeats.count(), 31);
    assert_eq!(all_events(&store, TEAM).await.len(), 31);
}

pub(super) async fn of_16_concurrent_deliveries_of_one_message_one_is_filed(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    for (round, name) in [Some(1), None].into_iter().enumerate() {
        let mut work = Vec::new();
        for _ in 0..16 {
            work.push((store.clone(), receive_one(&store, new_delivery(&inbox, T0), T0).await, new_message(name, 7)));
        }
        let ids: Vec<_> = work.iter().map(|(_, id, _)| *id).collect();
        let answers = all_at_once(
            work.into_iter().map(|(store, id, message)| async move { file_delivery(&store, id, message, T0).await }),
        )
        .await;
        let new = answers.iter().filter(|answer| matches!(answer, FileMessageResult::New(_, _))).count();
        let known = answers.iter().filter(|answer| matches!(answer, FileMessageResult::Duplicate(_, _))).count();
        assert_eq!((new, known), (1, 15));
        assert_eq!(store.inbox(TEAM, inbox.id).await.unwrap().unwrap().latest_seq, round as u64 + 1);
        let mut done = 0;
        for id in ids {
            done += usize::from(load_delivery(&store, id).await.state == DeliveryState::Done);
        }
        assert_eq!(done, 1);
    }
}

pub(super) async fn message_numbers_of_concurrent_workers_have_no_gaps(store: TestStore) {
    let (one, two) = (open_inbox(&store, "a@d.test").await, open_inbox(&store, "b@d.test").await);
    let mut work = Vec::new();
    for n in 0..24 {
        let inbox = if n % 3 == 0 { &two } else { &one };
        // All of them reply to the same message, so they share a thread whichever is filed first.
        let message = in_reply_to(new_message(Some(n), n), &[200]);
        work.push((store.clone(), receive_one(&store, new_delivery(inbox, T0), T0).await, message));
    }
    all_at_once(
        work.into_iter().map(|(store, id, message)| async move { file_delivery(&store, id, message, T0).await }),
    )
    .await;
    for (inbox, count) in [(&one, 16), (&two, 8)] {
        let query = MessageQuery { position: MessagePosition::After(0), limit: 100, ..MessageQuery::default() };
        let found = all_messages(&store, inbox, query).await;
        let numbers: Vec<u64> = found.iter().map(|message| message.seq).collect();
        assert_eq!(numbers, (1..=count).collect::<Vec<u64>>());
        assert!(found.iter().all(|message| message.thread == found[0].thread));
    }
    let event_seqs: Vec<u64> = all_events(&store, TEAM).await.iter().map(|event| event.seq).collect();
    assert_eq!(event_seqs, (1..=24).collect::<Vec<u64>>());
}

pub(super) async fn many_nodes_lease_each_delivery_once(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let mut ids = BTreeSet::new();
    for _ in 0..40 {
        ids.insert(receive_one(&store, new_delivery(&inbox, T0), T0).await);
    }
    let nodes: Vec<_> = (0..8).map(|n| (store.clone(), NodeId(Uuid::from_u128(100 + n)))).collect();
    let leased = all_at_once(nodes.into_iter().map(|(store, node)| async move {
        let mut mine = Vec::new();
        for _ in 0..8 {
            mine.extend(
                store.lease_deliveries(node, 5, T0).await.unwrap().into_iter().map(|leased| leased.delivery.id),
            );
        }
        mine
    }))
    .await;
    let all: Vec<_> = leased.into_iter().flatten().collect();
    assert_eq!(all.len(), 40);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), ids);
}

pub(super) async fn of_100_concurrent_consumers_one_gets_an_artifact(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let code = with_artifacts(new_message(Some(1), 1), &[(ArtifactKind::Code, 1)]);
    let id = file_new(&store, &inbox, code, T0).await.1[0].id;
    let work: Vec<_> = (0..100).map(|n| (store.clone(), consume_request(&format!("run-{n}")))).collect();
    let answers = all_at_once(
        work.into_iter()
            .map(|(store, request)| async move { store.consume_artifact(TEAM, id, request, None, T0).await.unwrap() }),
    )
    .await;
    let first =
        answers.iter().filter(|answer| matches!(answer, IdempotentResult::Done(ConsumeResult::First(_)))).count();
    let gone = answers
        .iter()
        .filter(|answer| matches!(answer, IdempotentResult::Done(ConsumeResult::ConsumedByOther(_))))
        .count();
    assert_eq!((first, gone), (1, 99));
    assert_eq!(event_kinds(&store).await.iter().filter(|kind| **kind == "artifact.consumed").count(), 1);
}

pub(super) async fn of_32_concurrent_resend_requests_only_the_budget_is_spent(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let watch = Watch {
        id: WatchId(next_id(T0)),
        team: TEAM,
        inbox: inbox.id,
        rev: 1,
        started_at: T0,
        after_seq: 0,
        deadline: T0.plus(MINUTE),
        resend_budget: 3,
        resends_used: 0,
        require_auth: false,
    };
    let begun = store.create_watch(watch.clone(), None).await.unwrap();
    assert!(matches!(begun, IdempotentResult::Done(Some(_))));
    let work: Vec<_> = (0..32).map(|_| store.clone()).collect();
    let answers = all_at_once(
        work.into_iter().map(|store| async move { store.spend_resend(TEAM, watch.id, None, T0).await.unwrap() }),
    )
    .await;
    let spent =
        answers.iter().filter(|answer| matches!(answer, IdempotentResult::Done(SpendResendResult::Spent(_)))).count();
    assert_eq!(spent, 3);
}

pub(super) async fn of_32_concurrent_inboxes_with_one_client_id_one_is_created(store: TestStore) {
    let inbox = |n| Inbox { client_id: Some("c".into()), ..new_inbox(&format!("{n}@d.test")) };
    let work: Vec<_> = (0..32).map(|n| (store.clone(), inbox(n))).collect();
    let answers =
        all_at_once(work.into_iter().map(|(store, inbox)| async move { create_inbox(&store, &inbox).await })).await;
    let created: Vec<&Inbox> = answers
        .iter()
        .filter_map(|answer| if let CreateInboxResult::Created(created) = answer { Some(created) } else { None })
        .collect();
    assert_eq!(created.len(), 1);
    let existing = answers
        .iter()
        .filter(|answer| matches!(answer, CreateInboxResult::AlreadyExists(existing) if existing == created[0]));
    assert_eq!(existing.count(), 31);
    assert_eq!(store.inboxes(TEAM, None, 100).await.unwrap().len(), 1);
}

pub(super) async fn of_two_concurrent_teams_one_gets_an_address(store: TestStore) {
    for round in 0..8 {
        let address = format!("{round}@d.test");
        let inbox =
            |n: usize| Inbox { team: if n.is_multiple_of(2) { TEAM } else { OTHER_TEAM }, ..new_inbox(&address) };
        let work: Vec<_> = (0..8).map(|n| (store.clone(), inbox(n))).collect();
        let answers =
            all_at_once(work.into_iter().map(|(store, inbox)| async move { create_inbox(&store, &inbox).await })).await;
        let created = answers.iter().filter(|answer| matches!(answer, CreateInboxResult::Created(_))).count();
        let taken = answers.iter().filter(|answer| **answer == CreateInboxResult::AddressTaken).count();
        assert_eq!((created, taken), (1, 7));
    }
}

pub(super) async fn of_16_concurrent_takes_for_one_consumer_one_gets_an_artifact(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let mut ids = Vec::new();
    for n in 1..=16 {
        let code = with_artifacts(new_message(Some(n), n), &[(ArtifactKind::Code, n)]);
        ids.push(file_new(&store, &inbox, code, T0).await.1[0].id);
    }
    let held_before = Some(HeldArtifacts { after: 0, known: Vec::new() });
    let request = ConsumeRequest { held_before, ..consume_request("run-1") };
    let answers = all_at_once(ids.iter().map(|id| {
        let (store, id, request) = (store.clone(), *id, request.clone());
        async move { store.consume_artifact(TEAM, id, request, None, T0).await.unwrap() }
    }))
    .await;

    let taken = |answer: &IdempotentResult<ConsumeResult>| match answer {
        IdempotentResult::Done(ConsumeResult::First(artifact)) => Some(artifact.clone()),
        _ => None,
    };
    let first: Vec<_> = answers.iter().filter_map(taken).collect();
    assert_eq!(first.len(), 1, "{answers:?}");
    let told = IdempotentResult::Done(ConsumeResult::TookMeanwhile(first[0].clone()));
    assert_eq!(answers.iter().filter(|answer| **answer == told).count(), 15);
    let held = store.held_artifacts(TEAM, inbox.id, ArtifactKind::Code, 0, "run-1").await.unwrap();
    assert_eq!(held, first);
}
