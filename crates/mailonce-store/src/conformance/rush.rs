//! Promises about mail, workers and agents that come at the same moment.

use mailonce_core::{
    artifact::{ArtifactKind, Taken},
    delivery::{DeliveryState, Received},
    id::{DeliveryId, NodeId, WatchId},
    inbox::{Inbox, InboxMade},
    message::{Filed, MessagePlace, MessageQuery},
    port::store::Once,
    watch::{Spent, Watch},
};
use std::collections::BTreeSet;
use uuid::Uuid;

use super::{
    Ledger, MINUTE, OTHER, T0, TEAM, all_at_once, events, kinds, next_id,
    post::{
        all_messages, answering, delivery, file, filed, holding, inbox, kept, keyed_parcel, letter, make, open, parcel,
        receive, taking,
    },
};

pub(super) async fn of_16_workers_one_files_a_delivery(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let id = kept(&store, parcel(&inbox, T0), T0).await;
    let work: Vec<_> = (0..16).map(|_| (store.clone(), letter(Some(1), 1))).collect();
    let answers =
        all_at_once(work.into_iter().map(|(store, letter)| async move { file(&store, id, letter, T0).await })).await;
    let new = answers.iter().filter(|answer| matches!(answer, Filed::New(_, _))).count();
    let settled = answers.iter().filter(|answer| **answer == Filed::Settled).count();
    assert_eq!((new, settled), (1, 15));
    assert_eq!(kinds(&store).await, ["message.received"]);
    assert_eq!(store.inbox(TEAM, inbox.id).await.unwrap().unwrap().seq, 1);
}

pub(super) async fn of_32_equal_deliveries_one_is_kept(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let work: Vec<_> = (0..32).map(|_| (store.clone(), keyed_parcel(&inbox, 1, T0))).collect();
    let answers = all_at_once(
        work.into_iter().map(|(store, parcel)| async move { receive(&store, vec![parcel], T0).await.remove(0) }),
    )
    .await;
    let kept: Vec<DeliveryId> =
        answers.iter().filter_map(|answer| if let Received::Kept(id) = answer { Some(*id) } else { None }).collect();
    assert_eq!(kept.len(), 1);
    let repeats = answers.iter().filter(|answer| matches!(answer, Received::Duplicate { of, .. } if *of == kept[0]));
    assert_eq!(repeats.count(), 31);
    assert_eq!(events(&store, TEAM).await.len(), 31);
}

pub(super) async fn of_16_deliveries_of_one_message_one_is_filed(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    for (round, name) in [Some(1), None].into_iter().enumerate() {
        let mut work = Vec::new();
        for _ in 0..16 {
            work.push((store.clone(), kept(&store, parcel(&inbox, T0), T0).await, letter(name, 7)));
        }
        let ids: Vec<_> = work.iter().map(|(_, id, _)| *id).collect();
        let answers =
            all_at_once(work.into_iter().map(|(store, id, letter)| async move { file(&store, id, letter, T0).await }))
                .await;
        let new = answers.iter().filter(|answer| matches!(answer, Filed::New(_, _))).count();
        let known = answers.iter().filter(|answer| matches!(answer, Filed::Known(_, _))).count();
        assert_eq!((new, known), (1, 15));
        assert_eq!(store.inbox(TEAM, inbox.id).await.unwrap().unwrap().seq, round as u64 + 1);
        let mut done = 0;
        for id in ids {
            done += usize::from(delivery(&store, id).await.state == DeliveryState::Done);
        }
        assert_eq!(done, 1);
    }
}

pub(super) async fn numbers_of_many_filers_have_no_gaps(store: Ledger) {
    let (one, two) = (open(&store, "a@d.test").await, open(&store, "b@d.test").await);
    let mut work = Vec::new();
    for n in 0..24 {
        let inbox = if n % 3 == 0 { &two } else { &one };
        // All of one thread, whichever comes first.
        let letter = answering(letter(Some(n), n), &[200]);
        work.push((store.clone(), kept(&store, parcel(inbox, T0), T0).await, letter));
    }
    all_at_once(work.into_iter().map(|(store, id, letter)| async move { file(&store, id, letter, T0).await })).await;
    for (inbox, count) in [(&one, 16), (&two, 8)] {
        let query = MessageQuery { place: MessagePlace::After(0), limit: 100, ..MessageQuery::default() };
        let found = all_messages(&store, inbox, query).await;
        let numbers: Vec<u64> = found.iter().map(|message| message.seq).collect();
        assert_eq!(numbers, (1..=count).collect::<Vec<u64>>());
        assert!(found.iter().all(|message| message.thread == found[0].thread));
    }
    let told: Vec<u64> = events(&store, TEAM).await.iter().map(|event| event.seq).collect();
    assert_eq!(told, (1..=24).collect::<Vec<u64>>());
}

pub(super) async fn many_readers_read_each_delivery_once(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let mut ids = BTreeSet::new();
    for _ in 0..40 {
        ids.insert(kept(&store, parcel(&inbox, T0), T0).await);
    }
    let nodes: Vec<_> = (0..8).map(|n| (store.clone(), NodeId(Uuid::from_u128(100 + n)))).collect();
    let read = all_at_once(nodes.into_iter().map(|(store, node)| async move {
        let mut mine = Vec::new();
        for _ in 0..8 {
            mine.extend(store.read(node, 5, T0).await.unwrap().into_iter().map(|reading| reading.delivery.id));
        }
        mine
    }))
    .await;
    let all: Vec<_> = read.into_iter().flatten().collect();
    assert_eq!(all.len(), 40);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), ids);
}

pub(super) async fn of_100_consumers_one_takes_an_artifact(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let code = holding(letter(Some(1), 1), &[(ArtifactKind::Code, 1)]);
    let id = filed(&store, &inbox, code, T0).await.1[0].id;
    let work: Vec<_> = (0..100).map(|n| (store.clone(), taking(&format!("run-{n}")))).collect();
    let answers = all_at_once(
        work.into_iter().map(|(store, taking)| async move { store.consume(TEAM, id, taking, None, T0).await.unwrap() }),
    )
    .await;
    let first = answers.iter().filter(|answer| matches!(answer, Once::Done(Taken::First(_)))).count();
    let gone = answers.iter().filter(|answer| matches!(answer, Once::Done(Taken::Gone(_)))).count();
    assert_eq!((first, gone), (1, 99));
    assert_eq!(kinds(&store).await.iter().filter(|kind| **kind == "artifact.consumed").count(), 1);
}

pub(super) async fn of_32_spenders_only_as_many_as_the_budget_spend(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let watch = Watch {
        id: WatchId(next_id(T0)),
        team: TEAM,
        inbox: inbox.id,
        rev: 1,
        started_at: T0,
        after: 0,
        deadline: T0.plus(MINUTE),
        budget: 3,
        spent: 0,
        require_auth: false,
    };
    let begun = store.create_watch(watch.clone(), None).await.unwrap();
    assert!(matches!(begun, Once::Done(Some(_))));
    let work: Vec<_> = (0..32).map(|_| store.clone()).collect();
    let answers =
        all_at_once(work.into_iter().map(|store| async move { store.spend(TEAM, watch.id, None, T0).await.unwrap() }))
            .await;
    let spent = answers.iter().filter(|answer| matches!(answer, Once::Done(Spent::Done(_)))).count();
    assert_eq!(spent, 3);
}

pub(super) async fn of_32_inboxes_of_one_client_id_one_is_made(store: Ledger) {
    let wish = |n| Inbox { client_id: Some("c".into()), ..inbox(&format!("{n}@d.test")) };
    let work: Vec<_> = (0..32).map(|n| (store.clone(), wish(n))).collect();
    let answers = all_at_once(work.into_iter().map(|(store, wish)| async move { make(&store, &wish).await })).await;
    let made: Vec<&Inbox> = answers
        .iter()
        .filter_map(|answer| if let InboxMade::Made(made) = answer { Some(made) } else { None })
        .collect();
    assert_eq!(made.len(), 1);
    let before = answers.iter().filter(|answer| matches!(answer, InboxMade::Before(before) if before == made[0]));
    assert_eq!(before.count(), 31);
    assert_eq!(store.inboxes(TEAM, None, 100).await.unwrap().len(), 1);
}

pub(super) async fn of_two_teams_one_gets_an_address(store: Ledger) {
    for round in 0..8 {
        let address = format!("{round}@d.test");
        let wish = |n: usize| Inbox { team: if n.is_multiple_of(2) { TEAM } else { OTHER }, ..inbox(&address) };
        let work: Vec<_> = (0..8).map(|n| (store.clone(), wish(n))).collect();
        let answers = all_at_once(work.into_iter().map(|(store, wish)| async move { make(&store, &wish).await })).await;
        let made = answers.iter().filter(|answer| matches!(answer, InboxMade::Made(_))).count();
        let taken = answers.iter().filter(|answer| **answer == InboxMade::Taken).count();
        assert_eq!((made, taken), (1, 7));
    }
}
