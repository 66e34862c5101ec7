//! Receiving and filing: unconfirmed commits, hostile content, and batched calls.

use mailonce_core::{
    id::{ArtifactId, DeliveryId, IdGenerator, InboxId, MessageId, NodeId, ThreadId},
    inbound::{
        delivery::{
            DeliveryDetails, DeliveryFormat, DeliveryOutcome, DeliveryQuery, DeliveryTarget, InboundMail, Intake,
            NewDelivery, ReceiveResult,
        },
        wake_up::InboundWakeUp,
    },
    inbox::{
        CreateInboxResult, Inbox, InboxSettings,
        artifact::{ArtifactKind, ExtractedValue, NewArtifact},
        message::{
            FileMessageResult, MessageAnnotations, MessageHead, MessagePosition, MessageQuery, MessageState,
            NewMessage, Party,
        },
    },
    operation::IdempotentResult,
    ports::{
        inbound_store::{InboundStore, InboundWakeUpHandler},
        store::{Store, StoreError, StoreHooks},
    },
};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;
use tokio_postgres::Client;
use uuid::Uuid;

use super::{NOW, TEAM, TestDatabase, rows, wait_until_blocked};
use crate::postgres::Postgres;

pub(crate) const READER: NodeId = NodeId(Uuid::from_u128(0xb1));

fn next_id() -> Uuid {
    static IDS: Mutex<Option<IdGenerator>> = Mutex::new(None);
    IDS.lock().unwrap().get_or_insert_default().next_id(NOW, 9)
}

pub(crate) fn hash(name: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash[..name.len()].copy_from_slice(name.as_bytes());
    hash
}

pub(crate) async fn inbox(node: &Postgres, address: &str) -> InboxId {
    let inbox = Inbox {
        id: InboxId(next_id()),
        team: TEAM,
        rev: 1,
        address: address.into(),
        client_id: None,
        created_at: NOW,
        latest_seq: 0,
        settings: InboxSettings::default(),
    };
    match node.create_inbox(inbox, None).await.unwrap() {
        IdempotentResult::Done(CreateInboxResult::Created(inbox)) => inbox.id,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn new_delivery(inbox: InboxId, key: &str) -> NewDelivery {
    let about = DeliveryDetails {
        intake: Intake::Smtp,
        source: None,
        recipient: format!("{key}@d.test"),
        sender: None,
        ip: None,
        helo: None,
        form: DeliveryFormat::Mime,
        size: 3,
    };
    let id = DeliveryId(next_id());
    let target = DeliveryTarget::Inbox(inbox);
    NewDelivery {
        id,
        team: TEAM,
        details: about,
        target,
        dedup_key: hash(key),
        dedup_until: NOW.plus(1000),
        suppression: None,
    }
}

pub(crate) fn arrival(parcels: Vec<NewDelivery>, reader: Option<NodeId>) -> InboundMail {
    InboundMail { raw: b"raw".as_slice().into(), leased_to: reader, deliveries: parcels }
}

/// Receives a delivery that is leased to `READER`.
pub(crate) async fn receive_delivery(node: &Postgres, inbox: InboxId, key: &str) -> DeliveryId {
    match node.receive(arrival(vec![new_delivery(inbox, key)], Some(READER)), NOW).await.unwrap()[..] {
        [ReceiveResult::Stored(id)] => id,
        ref other => panic!("{other:?}"),
    }
}

pub(crate) fn new_message(name: &str) -> NewMessage {
    NewMessage {
        id: MessageId(next_id()),
        thread: ThreadId(next_id()),
        message_id_hash: Some(hash(name)),
        content_hash: hash(name),
        thread_hashes: vec![hash(name), hash("root")],
        answers_email: None,
        head: MessageHead { subject: name.into(), ..MessageHead::default() },
        annotations: MessageAnnotations::default(),
        state: MessageState::Unanswered,
        artifacts: Vec::new(),
    }
}

pub(crate) async fn message_seqs(node: &Postgres, inbox: InboxId) -> Vec<u64> {
    let query = MessageQuery { position: MessagePosition::After(0), limit: 1000, ..MessageQuery::default() };
    node.messages(TEAM, inbox, query).await.unwrap().rows.iter().map(|message| message.seq).collect()
}

/// Subscribes to all further wake-ups of a node.
pub(crate) fn subscribe_wake_ups(node: &Postgres) -> mpsc::UnboundedReceiver<InboundWakeUp> {
    let (tell, told) = mpsc::unbounded_channel();
    let inbound = Some(Box::new(move |hint| tell.send(hint).unwrap_or_default()) as InboundWakeUpHandler);
    assert!(node.attach(StoreHooks { inbound, ..StoreHooks::default() }).inbound, "it does not listen");
    told
}

pub(crate) async fn next_wake_up(told: &mut mpsc::UnboundedReceiver<InboundWakeUp>) -> InboundWakeUp {
    tokio::time::timeout(std::time::Duration::from_secs(20), told.recv()).await.expect("nothing was heard").unwrap()
}

/// Makes every commit that inserts into a table raise a warning, as if it were not replicated.
async fn warn_on_commit(session: &Client, table: &str) {
    let warn = format!(
        "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE WARNING 'not replicated'; RETURN NEW; END $$;
         CREATE CONSTRAINT TRIGGER warn AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION warn()"
    );
    session.batch_execute(&warn).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_retried_after_an_unconfirmed_commit_finds_itself() {
    let fresh = TestDatabase::create().await;
    let (node, session) = (fresh.node().await, fresh.session().await);
    let a = inbox(&node, "a@d.test").await;
    let known = receive_delivery(&node, a, "known").await;
    warn_on_commit(&session, "deliveries").await;
    let arrival = arrival(vec![new_delivery(a, "new"), new_delivery(a, "known"), new_delivery(a, "new")], None);
    let ids: Vec<_> = arrival.deliveries.iter().map(|parcel| parcel.id).collect();

    let unsure = node.receive(arrival.clone(), NOW).await;
    assert!(matches!(unsure, Err(StoreError::CommitUnknown(_))), "{unsure:?}");
    session.batch_execute("DROP TRIGGER warn ON deliveries").await.unwrap();

    for _ in 0..2 {
        let answers = node.receive(arrival.clone(), NOW).await.unwrap();
        let repeat = |n: usize, of| ReceiveResult::Duplicate { id: ids[n], original: of };
        assert_eq!(answers, [ReceiveResult::Stored(ids[0]), repeat(1, known), repeat(2, ids[0])]);
    }
    let all = DeliveryQuery { limit: 100, ..DeliveryQuery::default() };
    assert_eq!(node.deliveries(TEAM, all).await.unwrap().len(), 4);
    assert_eq!(node.events(TEAM, 0, 100).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filing_whose_commit_nobody_confirmed_is_there_once() {
    let fresh = TestDatabase::create().await;
    let (node, session) = (fresh.node().await, fresh.session().await);
    let a = inbox(&node, "a@d.test").await;
    let id = receive_delivery(&node, a, "1").await;
    let mut told = subscribe_wake_ups(&node);
    warn_on_commit(&session, "messages").await;
    let letter = new_message("1");
    let unsure = node.file_message(TEAM, id, letter.clone(), NOW).await;
    assert!(matches!(unsure, Err(StoreError::CommitUnknown(_))), "{unsure:?}");
    // The message may be filed, so waiters are woken up.
    assert_eq!(next_wake_up(&mut told).await, InboundWakeUp::MessageFiled(a));
    session.batch_execute("DROP TRIGGER warn ON messages").await.unwrap();
    assert_eq!(node.file_message(TEAM, id, letter, NOW).await.unwrap(), FileMessageResult::AlreadyFinished);
    assert_eq!(message_seqs(&node, a).await, [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filings_that_wait_for_an_inbox_share_a_commit() {
    let fresh = TestDatabase::create().await;
    let (node, session) = (Arc::new(fresh.node().await), fresh.session().await);
    let a = inbox(&node, "a@d.test").await;
    let mut ids = Vec::new();
    for n in 0..30 {
        ids.push(receive_delivery(&node, a, &format!("{n}")).await);
    }
    session.batch_execute("BEGIN").await.unwrap();
    session.query("SELECT FROM inboxes FOR UPDATE", &[]).await.unwrap();
    let before = node.gauges().commits;
    let (mut tasks, line) = (Vec::new(), Arc::new(tokio::sync::Barrier::new(31)));
    for (n, id) in ids.into_iter().enumerate() {
        let (node, line) = (node.clone(), line.clone());
        tasks.push(tokio::spawn(async move {
            line.wait().await;
            node.file_message(TEAM, id, new_message(&format!("{n}")), NOW).await.unwrap()
        }));
    }
    line.wait().await;
    wait_until_blocked(&fresh.session().await, 1).await;
    session.batch_execute("COMMIT").await.unwrap();
    for task in tasks {
        assert!(matches!(task.await.unwrap(), FileMessageResult::New(_, _)));
    }
    assert_eq!(message_seqs(&node, a).await, (1..=30).collect::<Vec<u64>>());
    let commits = node.gauges().commits - before;
    assert!(commits <= 10, "{commits}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_that_the_database_rejects_does_not_fail_its_batch() {
    let fresh = TestDatabase::create().await;
    let (node, session) = (Arc::new(fresh.node().await), fresh.session().await);
    let a = inbox(&node, "a@d.test").await;
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                      $$ BEGIN IF NEW.about LIKE '%poison%' THEN RAISE EXCEPTION 'no'; END IF; RETURN NEW; END $$;
                  CREATE TRIGGER refuse BEFORE INSERT ON deliveries FOR EACH ROW EXECUTE FUNCTION refuse()";
    session.batch_execute(refuse).await.unwrap();
    let mut tasks = Vec::new();
    for n in 0..40 {
        let key = if n % 10 == 7 { format!("poison{n}") } else { format!("good{n}") };
        let (node, arrival) = (node.clone(), arrival(vec![new_delivery(a, &key)], None));
        tasks.push((n, tokio::spawn(async move { node.receive(arrival, NOW).await })));
    }
    for (n, task) in tasks {
        let answer = task.await.unwrap();
        assert_eq!(answer.is_ok(), n % 10 != 7, "{n}: {answer:?}");
    }
    assert_eq!((rows(&session, "deliveries").await, rows(&session, "raws").await), (36, 36));
    assert_eq!(rows(&session, "delivery_keys").await, 36);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_text_may_hold_is_kept() {
    let fresh = TestDatabase::create().await;
    let node = fresh.node().await;
    let a = inbox(&node, "a@d.test").await;
    let mut hostile = new_delivery(a, "1");
    hostile.details.helo = Some("m\0x".into());
    let id = hostile.id;
    node.receive(arrival(vec![hostile], Some(READER)), NOW).await.unwrap();
    let dead =
        node.record_delivery_outcome(TEAM, id, DeliveryOutcome::Dead("b\0d".into()), NOW).await.unwrap().unwrap();
    assert_eq!(node.delivery(TEAM, id).await.unwrap(), Some(dead));
    node.replay_delivery(TEAM, id, NOW).await.unwrap().unwrap();

    let mut letter = new_message("1");
    letter.head.from = Some(Party { name: Some("\0".into()), address: "x\0y@d.test".into() });
    letter.head.subject = "\0\u{feff}".into();
    let found = ExtractedValue { value: "1\0".into(), masked: "•".into(), confidence: 1, reasons: vec![] };
    letter.artifacts =
        vec![NewArtifact { id: ArtifactId(next_id()), kind: ArtifactKind::Code, extracted: found, hash: hash("v") }];
    let FileMessageResult::New(message, artifacts) = node.file_message(TEAM, id, letter, NOW).await.unwrap() else {
        panic!("not new")
    };
    assert_eq!(node.message(TEAM, message.id).await.unwrap(), Some(*message));
    assert_eq!(node.artifact(TEAM, artifacts[0].id).await.unwrap().as_ref(), artifacts.first());
    assert_eq!(
        node.inbox_by_address(&["\0@d.test".into(), "a@d.test".into()]).await.unwrap().map(|inbox| inbox.id),
        Some(a)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_store_answers_arrivals_that_wait_and_no_more() {
    let fresh = TestDatabase::create().await;
    let node = Arc::new(fresh.node().await);
    let a = inbox(&node, "a@d.test").await;
    let mut tasks = Vec::new();
    for n in 0..40 {
        let (node, arrival) = (node.clone(), arrival(vec![new_delivery(a, &format!("{n}"))], None));
        tasks.push(tokio::spawn(async move { node.receive(arrival, NOW).await }));
    }
    node.close().await;
    let mut kept = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(answers) => kept += answers.len() as i64,
            Err(error) => assert!(matches!(error, StoreError::Unreachable(_)), "{error}"),
        }
    }
    assert_eq!(rows(&fresh.session().await, "deliveries").await, kept);
    assert!(node.receive(arrival(vec![new_delivery(a, "late")], None), NOW).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arrivals_and_whoever_removes_their_inbox_wait_for_each_other() {
    let fresh = TestDatabase::create().await;
    let (node, session) = (Arc::new(fresh.node().await), fresh.session().await);
    let (a, b) = (inbox(&node, "a@d.test").await, inbox(&node, "b@d.test").await);
    // Receiving waits for a removal in progress and sees its result.
    let remove = format!("BEGIN; SELECT 1 FROM inboxes WHERE id = '{}' FOR UPDATE", a.0);
    session.batch_execute(&remove).await.unwrap();
    let (late, receiver) = (new_delivery(a, "late"), Arc::clone(&node));
    let id = late.id;
    let receiving = tokio::spawn(async move { receiver.receive(arrival(vec![late], None), NOW).await });
    wait_until_blocked(&session, 1).await;
    session.batch_execute("UPDATE inboxes SET removed_at = 1 WHERE address = 'a@d.test'; COMMIT").await.unwrap();
    assert_eq!(receiving.await.unwrap().unwrap(), [ReceiveResult::Refused(id)]);
    // A removal waits for the commit of a mail that is being received.
    let hold = format!("BEGIN; SELECT 1 FROM inboxes WHERE id = '{}' FOR KEY SHARE", b.0);
    session.batch_execute(&hold).await.unwrap();
    let remover = Arc::clone(&node);
    let removing = tokio::spawn(async move { remover.remove_inbox(TEAM, b, NOW).await });
    wait_until_blocked(&session, 1).await;
    session.batch_execute("COMMIT").await.unwrap();
    assert!(removing.await.unwrap().unwrap().is_some());
}
