//! Conversations on two nodes: one reply per message, one agent per thread.

use mailonce_core::{
    conversation::{
        caps::ReplyCaps,
        message_progress::{Acknowledgement, MessageLeaseRef},
        reply_guards::{NewReply, ReplyResult},
        thread::{AcknowledgeResult, MessageLeaseSpec, MessageOffer, ThreadLeaseSpec},
    },
    id::{InboxId, MessageId, ThreadId},
    inbox::{
        message::{FileMessageResult, Message, MessageState, NewMessage},
        progress::ReplySlot,
    },
    operation::IdempotentResult,
    ports::{conversation_store::ConversationStore, inbound_store::InboundStore, store::Store},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use super::{NOW, TEAM, new_email, rows, wait_until_blocked};
use crate::postgres::{
    Postgres,
    tests::{
        inbound::{hash, inbox, new_message, receive_delivery},
        two_nodes::two_nodes,
    },
};

/// Caps that no test reaches.
pub(crate) const UNLIMITED_CAPS: ReplyCaps =
    ReplyCaps { per_window: 1_000, window_ms: 60_000, per_day: 1_000, per_person: 1_000, per_thread: None };

/// A message that starts a thread, or joins the thread of the same name.
pub(crate) fn message_in_thread(name: &str, thread: &str) -> NewMessage {
    NewMessage { thread_hashes: vec![hash(name), hash(thread)], ..new_message(name) }
}

pub(crate) async fn file_message(node: &Postgres, inbox: InboxId, letter: NewMessage) -> Message {
    let id = receive_delivery(node, inbox, &letter.head.subject).await;
    match node.file_message(TEAM, id, letter, NOW).await.unwrap() {
        FileMessageResult::New(message, _) => *message,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn reply(message: &Message) -> NewReply {
    NewReply {
        email: new_email(None),
        message: message.id,
        slot: ReplySlot::Reply(0),
        lease_token_hash: None,
        seen: Vec::new(),
        may_answer_soft_automatic: false,
        is_to_own_team: false,
        caps: UNLIMITED_CAPS,
        recipient_hash: Some([5; 16]),
    }
}

fn next_request(inbox: InboxId, holder: &str, count: usize) -> MessageLeaseSpec {
    let tokens = (0..count).map(|n| format!("{holder}-{n}")).collect();
    MessageLeaseSpec { inbox, holder: holder.into(), ttl_ms: 60_000, tokens }
}

async fn lease_offers(node: &Postgres, wanted: MessageLeaseSpec) -> Vec<MessageOffer> {
    match node.lease_messages(TEAM, wanted, None, NOW).await.unwrap() {
        IdempotentResult::Done(offers) => offers,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_50_answers_on_two_nodes_one_is_sent() {
    let (fresh, one, two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    for round in 0..8 {
        let name = format!("{round}");
        let message = file_message(&one, a, message_in_thread(&name, &name)).await;
        let tasks: Vec<_> = (0..50)
            .map(|n| {
                let (node, new_reply) = (if n % 2 == 0 { one.clone() } else { two.clone() }, reply(&message));
                tokio::spawn(async move { node.accept_reply(new_reply, NOW).await.unwrap() })
            })
            .collect();
        let (mut first, mut ids) = (0, BTreeSet::new());
        for task in tasks {
            ids.insert(match task.await.unwrap() {
                ReplyResult::First(email, _) => {
                    first += 1;
                    email.id
                }
                ReplyResult::AlreadyAnswered(id, Some(email), _) if email.id == id => id,
                other => panic!("{other:?}"),
            });
        }
        assert_eq!((first, ids.len()), (1, 1), "round {round}");
        let thread = two.thread(TEAM, message.thread).await.unwrap().unwrap();
        assert_eq!((thread.details.messages, thread.details.emails), (1, 1));
        let emails = two.thread_emails(TEAM, message.thread, None, 10).await.unwrap();
        assert_eq!(emails, ids.into_iter().collect::<Vec<_>>());
        assert_eq!(two.message(TEAM, message.id).await.unwrap().unwrap().state, MessageState::Answered);
    }
    let session = fresh.session().await;
    assert_eq!((rows(&session, "emails").await, rows(&session, "tallies").await), (8, 1));
}

/// Which worker holds which thread, and the finished messages.
#[derive(Default)]
struct WorkTracker {
    threads: BTreeMap<ThreadId, String>,
    done: Vec<MessageId>,
}

/// Leases messages and replies or returns them, until all are done.
async fn work_until_done(node: Arc<Postgres>, a: InboxId, holder: String, desk: Arc<Mutex<WorkTracker>>, all: usize) {
    for round in 0_i64.. {
        if desk.lock().unwrap().done.len() == all {
            return;
        }
        let wanted = next_request(a, &format!("{holder}-{round}"), 2);
        let tokens = wanted.tokens.clone();
        for offer in lease_offers(&node, wanted).await {
            let (id, thread) = (offer.message.id, offer.thread.id);
            let before = desk.lock().unwrap().threads.insert(thread, holder.clone());
            assert_eq!(before, None, "{thread} is with two at a time");
            tokio::task::yield_now().await;
            let token = tokens[offer.token_index].clone();
            let again = round % 3 == 0 && offer.message.annotations.progress.offers == 1;
            if !again {
                let new_reply = NewReply {
                    lease_token_hash: Some(token.clone()),
                    seen: offer.thread.details.people.iter().map(|(_, id)| *id).collect(),
                    ..reply(&offer.message)
                };
                let answered = node.accept_reply(new_reply, NOW).await.unwrap();
                assert!(matches!(answered, ReplyResult::First(..)), "{answered:?}");
                desk.lock().unwrap().done.push(id);
            }
            desk.lock().unwrap().threads.remove(&thread);
            let how = if again { Acknowledgement::Nack { delay_ms: 0 } } else { Acknowledgement::Ack };
            let settled = node
                .acknowledge_message(TEAM, MessageLeaseRef { message: id, token_hash: token }, how, NOW)
                .await
                .unwrap();
            assert!(matches!(settled, AcknowledgeResult::Done(..)), "{settled:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_workers_on_two_nodes_have_each_message_once_at_a_time() {
    let (_fresh, one, two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    let mut all = BTreeSet::new();
    for n in 0..40 {
        let letter = message_in_thread(&format!("m{n}"), &format!("t{}", n % 15));
        all.insert(file_message(&one, a, letter).await.id);
    }
    let desk = Arc::new(Mutex::new(WorkTracker::default()));
    let worker = |n: usize| {
        let node = if n.is_multiple_of(2) { one.clone() } else { two.clone() };
        tokio::spawn(work_until_done(node, a, format!("w{n}"), desk.clone(), 40))
    };
    let workers: Vec<_> = (0..8).map(worker).collect();
    for worker in workers {
        worker.await.unwrap();
    }
    let done = desk.lock().unwrap().done.clone();
    assert_eq!((done.len(), done.into_iter().collect::<BTreeSet<_>>()), (40, all));
    assert_eq!(lease_offers(&one, next_request(a, "late", 5)).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_another_node_decides_about_is_passed_over() {
    let (fresh, one, _two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    let busy = file_message(&one, a, message_in_thread("1", "1")).await;
    let free = file_message(&one, a, message_in_thread("2", "2")).await;
    let session = fresh.session().await;
    session.batch_execute("BEGIN").await.unwrap();
    session.query("SELECT FROM threads WHERE id = $1 FOR UPDATE", &[&busy.thread.0]).await.unwrap();
    let given = async |holder| {
        let offers = lease_offers(&one, next_request(a, holder, 5)).await;
        offers.iter().map(|offer| offer.message.id).collect::<Vec<_>>()
    };
    assert_eq!(given("x").await, [free.id]);
    session.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(given("y").await, [busy.id]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_waited_for_its_thread_is_judged_by_what_was_left_there() {
    let (fresh, one, two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    let message = file_message(&one, a, message_in_thread("1", "1")).await;
    let session = fresh.session().await;
    session.batch_execute("BEGIN").await.unwrap();
    session.query("SELECT FROM threads FOR UPDATE", &[]).await.unwrap();
    let tasks: Vec<_> = [one.clone(), two.clone()]
        .into_iter()
        .map(|node| {
            let new_reply = reply(&message);
            tokio::spawn(async move { node.accept_reply(new_reply, NOW).await.unwrap() })
        })
        .collect();
    wait_until_blocked(&fresh.session().await, 2).await;
    session.batch_execute("COMMIT").await.unwrap();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers.sort_by_key(|answer| !matches!(answer, ReplyResult::First(..)));
    assert!(
        matches!(answers[..], [ReplyResult::First(..), ReplyResult::AlreadyAnswered(_, Some(_), _)]),
        "{answers:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filing_that_waited_for_its_thread_keeps_what_was_left_there() {
    let (fresh, one, _two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    let first = file_message(&one, a, message_in_thread("1", "t")).await;
    let session = fresh.session().await;
    session.batch_execute("BEGIN").await.unwrap();
    let answered = "UPDATE threads SET about = replace(about, '\"emails\":0', '\"emails\":7')";
    assert_eq!(session.execute(answered, &[]).await.unwrap(), 1);
    let node = one.clone();
    let waiting = tokio::spawn(async move { file_message(&node, a, message_in_thread("2", "t")).await });
    wait_until_blocked(&fresh.session().await, 1).await;
    session.batch_execute("COMMIT").await.unwrap();
    assert_eq!(waiting.await.unwrap().thread, first.thread);
    let thread = one.thread(TEAM, first.thread).await.unwrap().unwrap();
    assert_eq!((thread.details.messages, thread.details.emails), (2, 7));
}

/// Files, replies, leases, offers and sweeps concurrently. Calls that conflict wait or retry internally, and none
/// returns an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verbs_that_meet_in_a_thread_never_fail() {
    let (_fresh, one, two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    let first = file_message(&one, a, message_in_thread("0", "t")).await;
    let mut tasks = Vec::new();
    for n in 1..40 {
        let (node, other) = if n % 2 == 0 { (one.clone(), two.clone()) } else { (two.clone(), one.clone()) };
        let first = first.clone();
        tasks.push(tokio::spawn(async move {
            let (next_node, lease_node) = (other.clone(), node.clone());
            let holder = format!("h{n}");
            let ask = ThreadLeaseSpec { renew: None, token: holder.clone(), holder: holder.clone(), ttl_ms: 1 };
            let (message, _, _, _) = tokio::join!(
                file_message(&node, a, message_in_thread(&format!("m{n}"), "t")),
                async {
                    next_node.lease_messages(TEAM, next_request(a, &holder, 3), None, NOW.plus(n * 100)).await.unwrap()
                },
                async { lease_node.lease_thread(TEAM, first.thread, ask, None, NOW.plus(n * 100)).await.unwrap() },
                async { other.sweep(100, NOW).await.unwrap() },
            );
            let forward = NewReply { slot: ReplySlot::Forward("b@d.test".into()), ..reply(&message) };
            let answered = node.accept_reply(forward, NOW.plus(90_000_000)).await.unwrap();
            assert!(matches!(answered, ReplyResult::First(..)), "{answered:?}");
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let thread = one.thread(TEAM, first.thread).await.unwrap().unwrap();
    assert_eq!((thread.details.messages, thread.details.people.len(), thread.details.emails), (40, 40, 39));
    assert_eq!(two.thread_emails(TEAM, first.thread, None, 100).await.unwrap().len(), 39);
}
