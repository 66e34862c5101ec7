//! Promises about messages: filing, deduplication, numbers, raw bytes, lists and hints.

use mailonce_core::{
    id::{DeliveryId, MessageId, ThreadId},
    inbound::{
        delivery::{DeliveryState, DeliverySuppression},
        wake_up::InboundWakeUp,
    },
    inbox::{
        Inbox,
        artifact::ArtifactKind,
        message::{FileMessageResult, Message, MessageFlag, MessagePage, MessagePosition, MessageQuery, MessageState},
    },
    ports::{inbound_store::InboundWakeUpHandler, store::StoreHooks},
};
use std::{sync::Arc, time::Duration};

use crate::conformance::{
    OTHER_TEAM, SECOND, T0, TEAM, TestStore, all_events, event_kinds,
    fixtures::{
        handoffs::NODE,
        inbound::{
            RAW, all_messages, created_inbox, file_delivery, file_duplicate, file_new, finish_delivery, from_sender,
            in_reply_to, load_delivery, new_delivery, new_inbox, new_message, open_inbox, receive_all, receive_one,
            unleased_mail, with_artifacts, with_passed_auth,
        },
    },
    next_id,
};

pub(super) async fn a_delivery_becomes_a_message(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let (id, later) = (receive_one(&store, new_delivery(&inbox, T0), T0).await, T0.plus(SECOND));
    let wanted = new_message(Some(1), 1);
    let FileMessageResult::New(message, artifacts) = file_delivery(&store, id, wanted.clone(), later).await else {
        panic!("not new")
    };
    let expected = Message {
        id: wanted.id,
        team: TEAM,
        inbox: inbox.id,
        seq: 1,
        rev: 1,
        thread: wanted.thread,
        delivery: id,
        received_at: T0,
        state: MessageState::Unanswered,
        head: Arc::new(wanted.head),
        annotations: wanted.annotations,
    };
    assert_eq!((*message, artifacts), (expected.clone(), Vec::new()));
    assert_eq!(store.message(TEAM, wanted.id).await.unwrap(), Some(expected.clone()));
    assert_eq!(store.raw_message(TEAM, wanted.id).await.unwrap().as_deref(), Some(RAW));
    let done = load_delivery(&store, id).await;
    assert_eq!((done.state, done.message, done.due_at, done.rev), (DeliveryState::Done, Some(wanted.id), None, 2));
    let events = all_events(&store, TEAM).await;
    assert_eq!((events.len(), events[0].seq, &events[0].event), (1, 1, &expected.received_event(later)));
    assert_eq!(store.inbox(TEAM, inbox.id).await.unwrap(), Some(Inbox { latest_seq: 1, ..inbox }));
    assert_eq!(store.message(TEAM, MessageId(next_id(T0))).await.unwrap(), None);
    assert_eq!(store.raw_message(TEAM, MessageId(next_id(T0))).await.unwrap(), None);
}

pub(super) async fn messages_are_numbered_in_each_inbox(store: TestStore) {
    let (one, two) = (open_inbox(&store, "a@d.test").await, open_inbox(&store, "b@d.test").await);
    for n in 1..=3 {
        assert_eq!(file_new(&store, &one, new_message(Some(n), n), T0).await.0.seq, u64::from(n));
        file_duplicate(&store, &one, new_message(Some(n), n), T0).await;
        assert_eq!(file_new(&store, &two, new_message(Some(n), n), T0).await.0.seq, u64::from(n));
    }
    assert_eq!(store.inbox(TEAM, one.id).await.unwrap().unwrap().latest_seq, 3);
    assert_eq!(store.inbox_by_address(&["b@d.test".into()]).await.unwrap().unwrap().latest_seq, 3);
    assert_eq!(store.inboxes(TEAM, None, 1).await.unwrap()[0].latest_seq, 3);
}

pub(super) async fn a_duplicate_message_is_filed_once_and_each_repeat_emits_an_event(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let (first, _) = file_new(&store, &inbox, new_message(Some(1), 1), T0).await;
    let (id, answer) = file_duplicate(&store, &inbox, new_message(Some(1), 1), T0).await;
    assert_eq!(answer, (first.id, DeliverySuppression::SameMessage));
    let ended = load_delivery(&store, id).await;
    assert_eq!((ended.state, ended.message, ended.due_at), (DeliveryState::Duplicate, Some(first.id), None));
    assert_eq!((ended.suppressed, ended.duplicate_of, ended.rev), (Some(DeliverySuppression::SameMessage), None, 2));
    let events = all_events(&store, TEAM).await;
    assert_eq!(event_kinds(&store).await, ["message.received", "delivery.duplicate"]);
    assert_eq!(Some(events[1].event.clone()), ended.to_event(T0));
    assert_eq!(store.raw_message(TEAM, first.id).await.unwrap().as_deref(), Some(RAW));
}

pub(super) async fn the_same_content_without_a_message_id_is_filed_once(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    file_new(&store, &inbox, new_message(Some(1), 1), T0).await;
    let (first, _) = file_new(&store, &inbox, new_message(None, 1), T0).await;
    let (_, answer) = file_duplicate(&store, &inbox, new_message(None, 1), T0).await;
    assert_eq!(answer, (first.id, DeliverySuppression::SameContent));
    let (second, _) = file_new(&store, &inbox, new_message(None, 2), T0).await;
    assert!(second.head.flags.is_empty());
    let (_, answer) = file_duplicate(&store, &inbox, new_message(None, 2), T0).await;
    assert_eq!(answer, (second.id, DeliverySuppression::SameContent));
}

pub(super) async fn other_content_under_the_same_message_id_is_another_message(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let mut ids = Vec::new();
    for content in 1..=3 {
        let (message, _) = file_new(&store, &inbox, new_message(Some(1), content), T0).await;
        let reused = content > 1;
        assert_eq!(message.head.flags.contains(&MessageFlag::MessageIdReused), reused);
        assert_eq!(store.message(TEAM, message.id).await.unwrap(), Some(message.clone()));
        ids.push(message.id);
    }
    for (content, id) in (1..).zip(ids) {
        let (_, answer) = file_duplicate(&store, &inbox, new_message(Some(1), content), T0).await;
        assert_eq!(answer, (id, DeliverySuppression::SameMessage));
    }
}

pub(super) async fn a_message_id_that_was_only_referenced_is_not_flagged_as_reused(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    file_new(&store, &inbox, in_reply_to(new_message(Some(2), 2), &[1]), T0).await;
    let (message, _) = file_new(&store, &inbox, new_message(Some(1), 1), T0).await;
    assert!(message.head.flags.is_empty());
}

pub(super) async fn the_same_mail_in_two_inboxes_is_two_messages(store: TestStore) {
    let (one, two) = (open_inbox(&store, "a@d.test").await, open_inbox(&store, "b@d.test").await);
    let (first, _) = file_new(&store, &one, new_message(Some(1), 1), T0).await;
    let (second, _) = file_new(&store, &two, new_message(Some(1), 1), T0).await;
    assert_ne!((first.id, first.thread), (second.id, second.thread));
    let (without_id, _) = file_new(&store, &one, new_message(None, 5), T0).await;
    assert_ne!(file_new(&store, &two, new_message(None, 5), T0).await.0.id, without_id.id);
}

pub(super) async fn a_delivery_is_filed_only_while_it_waits_and_only_by_its_team(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let id = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    assert_eq!(
        store.file_message(OTHER_TEAM, id, new_message(Some(1), 1), T0).await.unwrap(),
        FileMessageResult::Missing
    );
    assert_eq!(
        file_delivery(&store, DeliveryId(next_id(T0)), new_message(Some(1), 1), T0).await,
        FileMessageResult::Missing
    );
    assert!(matches!(file_delivery(&store, id, new_message(Some(1), 1), T0).await, FileMessageResult::New(_, _)));
    assert_eq!(file_delivery(&store, id, new_message(Some(2), 2), T0).await, FileMessageResult::AlreadyFinished);
    let dead = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    finish_delivery(&store, dead, mailonce_core::inbound::delivery::DeliveryOutcome::Dead("broken".into()), T0).await;
    assert_eq!(file_delivery(&store, dead, new_message(Some(3), 3), T0).await, FileMessageResult::AlreadyFinished);
    assert_eq!(store.inbox(TEAM, inbox.id).await.unwrap().unwrap().latest_seq, 1);
}

pub(super) async fn a_delivery_waiting_for_a_removed_inbox_is_refused(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let id = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    store.remove_inbox(TEAM, inbox.id, T0).await.unwrap().unwrap();
    assert_eq!(file_delivery(&store, id, new_message(Some(1), 1), T0).await, FileMessageResult::AlreadyFinished);
    let refused = load_delivery(&store, id).await;
    assert_eq!((refused.state, refused.suppressed), (DeliveryState::Refused, Some(DeliverySuppression::UnknownInbox)));
    assert_eq!(event_kinds(&store).await, ["delivery.refused"]);
    assert_eq!(file_delivery(&store, id, new_message(Some(1), 1), T0).await, FileMessageResult::AlreadyFinished);
    assert_eq!(event_kinds(&store).await.len(), 1);
}

pub(super) async fn raw_bytes_stay_while_one_delivery_needs_them(store: TestStore) {
    let (one, two) = (open_inbox(&store, "a@d.test").await, open_inbox(&store, "b@d.test").await);
    let (first, _) = file_new(&store, &one, new_message(Some(1), 1), T0).await;
    for order in [[0, 1], [1, 0]] {
        // The first inbox already has the message; the other one needs the bytes.
        let deliveries = vec![new_delivery(&one, T0), new_delivery(&two, T0)];
        let ids = [deliveries[0].id, deliveries[1].id];
        receive_all(&store, deliveries, T0).await;
        let mut filed = Vec::new();
        for index in order {
            let content = if index == 0 { 1 } else { 10 + order[0] };
            filed.push(file_delivery(&store, ids[usize::from(index)], new_message(Some(content), content), T0).await);
        }
        let [FileMessageResult::New(message, _)] =
            &filed.iter().filter(|f| matches!(f, FileMessageResult::New(_, _))).collect::<Vec<_>>()[..]
        else {
            panic!("{filed:?}")
        };
        assert_eq!(store.raw_message(TEAM, message.id).await.unwrap().as_deref(), Some(RAW));
    }
    assert_eq!(store.raw_message(TEAM, first.id).await.unwrap().as_deref(), Some(RAW));
}

pub(super) async fn messages_are_listed_in_both_directions_in_pages(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let mut all = Vec::new();
    for n in 0..7 {
        all.push(file_new(&store, &inbox, new_message(Some(n), n), T0).await.0);
    }
    for limit in [1, 3, 7, 8] {
        let oldest = MessageQuery { position: MessagePosition::After(0), limit, ..MessageQuery::default() };
        assert_eq!(all_messages(&store, &inbox, oldest.clone()).await, all, "in pages of {limit}");
        let newest = MessageQuery { limit, ..MessageQuery::default() };
        let mut found = all_messages(&store, &inbox, newest).await;
        found.reverse();
        assert_eq!(found, all, "in pages of {limit}");
    }
    let query = |position, limit| MessageQuery { position, limit, ..MessageQuery::default() };
    let page = store.messages(TEAM, inbox.id, query(MessagePosition::After(2), 2)).await.unwrap();
    assert_eq!(page, MessagePage { rows: all[2..4].to_vec(), next: Some(4) });
    let page = store.messages(TEAM, inbox.id, query(MessagePosition::After(5), 2)).await.unwrap();
    assert_eq!(page, MessagePage { rows: all[5..].to_vec(), next: None });
    let page = store.messages(TEAM, inbox.id, query(MessagePosition::After(7), 2)).await.unwrap();
    assert_eq!(page, MessagePage::default());
    // A page goes past messages that do not match and ends without a cursor.
    let rare = MessageQuery { subject: Some("täg 6".into()), ..query(MessagePosition::After(0), 1) };
    let page = store.messages(TEAM, inbox.id, rare).await.unwrap();
    assert_eq!(page, MessagePage { rows: all[6..].to_vec(), next: None });
}

pub(super) async fn messages_can_be_filtered(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let (one, _) =
        file_new(&store, &inbox, with_artifacts(new_message(Some(1), 1), &[(ArtifactKind::Code, 1)]), T0).await;
    let (two, _) =
        file_new(&store, &inbox, with_passed_auth(from_sender(new_message(Some(2), 2), "b@shop.test")), T0).await;
    let mut skipped = in_reply_to(new_message(Some(3), 3), &[1]);
    (skipped.state, skipped.annotations.labels) = (MessageState::Skipped, vec!["list".into()]);
    let (three, _) = file_new(&store, &inbox, skipped, T0).await;
    let all = || MessageQuery { limit: 10, ..MessageQuery::default() };
    let found = |query: MessageQuery| {
        let (store, inbox) = (store.clone(), inbox.clone());
        async move { all_messages(&store, &inbox, query).await.iter().map(|m| m.seq).collect::<Vec<_>>() }
    };
    assert_eq!(found(all()).await, [3, 2, 1]);
    assert_eq!(found(MessageQuery { thread: Some(one.thread), ..all() }).await, [three.seq, one.seq]);
    assert_eq!(found(MessageQuery { thread: Some(ThreadId(next_id(T0))), ..all() }).await, [0; 0]);
    assert_eq!(found(MessageQuery { state: Some(MessageState::Skipped), ..all() }).await, [three.seq]);
    assert_eq!(found(MessageQuery { from: Some("B@shop.test".into()), ..all() }).await, [two.seq]);
    assert_eq!(found(MessageQuery { from: Some("@sender.test".into()), ..all() }).await, [three.seq, one.seq]);
    assert_eq!(found(MessageQuery { subject: Some("TÄG 1".into()), ..all() }).await, [one.seq]);
    assert_eq!(found(MessageQuery { message_id: two.head.message_id.clone(), ..all() }).await, [two.seq]);
    assert_eq!(found(MessageQuery { message_id: Some("<nobody@x.test>".into()), ..all() }).await, [0; 0]);
    assert_eq!(found(MessageQuery { has: Some(ArtifactKind::Code), ..all() }).await, [one.seq]);
    assert_eq!(found(MessageQuery { label: Some("list".into()), ..all() }).await, [three.seq]);
    assert_eq!(found(MessageQuery { only_authenticated: true, ..all() }).await, [two.seq]);
}

pub(super) async fn messages_of_another_team_are_not_found(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let theirs = created_inbox(&store, &Inbox { team: OTHER_TEAM, ..new_inbox("b@d.test") }).await;
    let (message, _) = file_new(&store, &inbox, new_message(Some(1), 1), T0).await;
    file_new(&store, &theirs, new_message(Some(1), 1), T0).await;
    assert_eq!(store.message(OTHER_TEAM, message.id).await.unwrap(), None);
    assert_eq!(store.raw_message(OTHER_TEAM, message.id).await.unwrap(), None);
    let all = || MessageQuery { limit: 10, ..MessageQuery::default() };
    assert_eq!(store.messages(OTHER_TEAM, inbox.id, all()).await.unwrap(), MessagePage::default());
    assert_eq!(store.messages(OTHER_TEAM, theirs.id, all()).await.unwrap().rows.len(), 1);
    assert_eq!(all_events(&store, OTHER_TEAM).await[0].seq, 1);
}

pub(super) async fn nothing_of_a_removed_inbox_is_found(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let (message, artifacts) =
        file_new(&store, &inbox, with_artifacts(new_message(Some(1), 1), &[(ArtifactKind::Code, 1)]), T0).await;
    store.remove_inbox(TEAM, inbox.id, T0).await.unwrap().unwrap();
    for sweep in [false, true] {
        if sweep {
            assert_eq!(store.sweep(100, T0).await.unwrap().deliveries, 1);
        }
        assert_eq!(store.message(TEAM, message.id).await.unwrap(), None);
        assert_eq!(store.raw_message(TEAM, message.id).await.unwrap(), None);
        let all = MessageQuery { limit: 10, ..MessageQuery::default() };
        assert_eq!(store.messages(TEAM, inbox.id, all).await.unwrap(), MessagePage::default());
        assert_eq!(store.artifact(TEAM, artifacts[0].id).await.unwrap(), None);
        assert!(store.artifacts(TEAM, inbox.id, None, 0, 10).await.unwrap().is_empty());
    }
    assert_eq!(store.delivery(TEAM, message.delivery).await.unwrap(), None);
}

pub(super) async fn subscribers_get_hints_about_new_deliveries_and_messages(store: TestStore) {
    let (sender, mut hints) = tokio::sync::mpsc::unbounded_channel();
    let inbound = Some(Box::new(move |hint| sender.send(hint).unwrap_or(())) as InboundWakeUpHandler);
    store.attach(StoreHooks { inbound, ..StoreHooks::default() });
    // Hints between nodes take a moment.
    let mut next_hint = async || tokio::time::timeout(Duration::from_secs(10), hints.recv()).await.unwrap().unwrap();
    let inbox = open_inbox(&store, "a@d.test").await;
    let id = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    assert_eq!(next_hint().await, InboundWakeUp::DeliveryWaiting);
    finish_delivery(&store, id, mailonce_core::inbound::delivery::DeliveryOutcome::Dead("broken".into()), T0).await;
    store.replay_delivery(TEAM, id, T0).await.unwrap().unwrap();
    assert_eq!(next_hint().await, InboundWakeUp::DeliveryWaiting);
    assert!(matches!(file_delivery(&store, id, new_message(Some(1), 1), T0).await, FileMessageResult::New(_, _)));
    assert_eq!(next_hint().await, InboundWakeUp::MessageFiled(inbox.id));
    let mail = unleased_mail(vec![new_delivery(&inbox, T0)]);
    let mail = mailonce_core::inbound::delivery::InboundMail { leased_to: Some(NODE), ..mail };
    // A mail that is leased on arrival and a duplicate message give no hint of their own.
    let _kept = store.receive(mail, T0).await.unwrap();
    file_duplicate(&store, &inbox, new_message(Some(1), 1), T0).await;
    assert_eq!(next_hint().await, InboundWakeUp::DeliveryWaiting);
    file_new(&store, &inbox, new_message(Some(2), 2), T0).await;
    assert_eq!(
        (next_hint().await, next_hint().await),
        (InboundWakeUp::DeliveryWaiting, InboundWakeUp::MessageFiled(inbox.id))
    );
}

pub(super) async fn message_ids_and_content_hashes_do_not_collide(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let (with_id, _) = file_new(&store, &inbox, new_message(Some(7), 1), T0).await;
    let (without_id, _) = file_new(&store, &inbox, new_message(None, 7), T0).await;
    assert_ne!(with_id.id, without_id.id);
    let (_, answer) = file_duplicate(&store, &inbox, new_message(None, 7), T0).await;
    assert_eq!(answer, (without_id.id, DeliverySuppression::SameContent));
}
