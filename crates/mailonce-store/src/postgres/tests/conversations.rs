//! Conversations on two nodes: one answer per message, one agent per thread.

use mailonce_core::{
    conversation::{
        answer::{AnswerWish, Answered},
        caps::Caps,
        likeness::Likeness,
        thread::{LeaseAsk, NextAsk, Offer, Settled},
        turn::{Held, Settling, Slot},
    },
    email::{EmailState, Guard},
    id::{InboxId, MessageId, ThreadId},
    message::{Filed, Message, MessageState, NewMessage},
    port::{arrivals::Arrivals, conversations::Conversations, store::Once, store::Store},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use super::{
    NOW, TEAM, about,
    arrivals::{hash, inbox, kept, letter},
    email_of,
    nodes::{scatter, two_nodes},
    rows, until_blocked, wish,
};
use crate::postgres::Postgres;

/// Caps that nothing here reaches.
const LOOSE: Caps = Caps { per_window: 1_000, window_ms: 60_000, per_day: 1_000, per_person: 1_000 };

/// A letter that begins a thread, or joins the one of the same name.
fn of_thread(name: &str, thread: &str) -> NewMessage {
    NewMessage { names: vec![hash(name), hash(thread)], ..letter(name) }
}

async fn filed(node: &Postgres, inbox: InboxId, letter: NewMessage) -> Message {
    let id = kept(node, inbox, &letter.head.subject).await;
    match node.file(TEAM, id, letter, NOW).await.unwrap() {
        Filed::New(message, _) => *message,
        other => panic!("{other:?}"),
    }
}

pub(super) fn reply(message: &Message) -> AnswerWish {
    AnswerWish {
        wish: wish(None),
        message: message.id,
        slot: Slot::Reply(0),
        lease: None,
        seen: Vec::new(),
        answers_soft: false,
        caps: LOOSE,
        person: Some([5; 16]),
    }
}

fn next(inbox: InboxId, holder: &str, count: usize) -> NextAsk {
    let tokens = (0..count).map(|n| format!("{holder}-{n}")).collect();
    NextAsk { inbox, holder: holder.into(), ttl_ms: 60_000, tokens }
}

async fn offers(node: &Postgres, wanted: NextAsk) -> Vec<Offer> {
    match node.next_messages(TEAM, wanted, None, NOW).await.unwrap() {
        Once::Done(offers) => offers,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_50_answers_on_two_nodes_one_is_sent() {
    let (fresh, one, two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    for round in 0..8 {
        let name = format!("{round}");
        let message = filed(&one, a, of_thread(&name, &name)).await;
        let tasks: Vec<_> = (0..50)
            .map(|n| {
                let (node, wish) = (if n % 2 == 0 { one.clone() } else { two.clone() }, reply(&message));
                tokio::spawn(async move { node.answer(wish, NOW).await.unwrap() })
            })
            .collect();
        let (mut first, mut ids) = (0, BTreeSet::new());
        for task in tasks {
            ids.insert(match task.await.unwrap() {
                Answered::First(email, _) => {
                    first += 1;
                    email.id
                }
                Answered::Already(id, Some(email), _) if email.id == id => id,
                other => panic!("{other:?}"),
            });
        }
        assert_eq!((first, ids.len()), (1, 1), "round {round}");
        let thread = two.thread(TEAM, message.thread).await.unwrap().unwrap();
        assert_eq!((thread.about.messages, thread.about.emails), (1, 1));
        let emails = two.thread_emails(TEAM, message.thread, None, 10).await.unwrap();
        assert_eq!(emails, ids.into_iter().collect::<Vec<_>>());
        assert_eq!(two.message(TEAM, message.id).await.unwrap().unwrap().state, MessageState::Answered);
    }
    let session = fresh.session().await;
    assert_eq!((rows(&session, "emails").await, rows(&session, "tallies").await), (8, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_to_a_person_on_two_nodes_stop_at_the_cap() {
    let (_fresh, one, two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    let mut tasks = Vec::new();
    for n in 0..30 {
        let name = format!("{n}");
        let message = filed(&one, a, of_thread(&name, &name)).await;
        let wish = AnswerWish { caps: Caps { per_person: 7, ..LOOSE }, ..reply(&message) };
        let node = if n % 2 == 0 { one.clone() } else { two.clone() };
        tasks.push(tokio::spawn(async move { node.answer(wish, NOW).await.unwrap() }));
    }
    let mut held = 0;
    for task in tasks {
        let Answered::First(email, _) = task.await.unwrap() else { panic!("not the first") };
        assert_eq!(email.guard == Some(Guard::Cap), email.state() == EmailState::Held);
        held += usize::from(email.guard.is_some());
    }
    assert_eq!(held, 23);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_mails_that_say_the_same_on_two_nodes_one_goes() {
    let (_fresh, one, two) = two_nodes().await;
    for round in 0..10 {
        let alike = || {
            let mut wish = wish(None);
            let to = [format!("{round}@example.com")];
            wish.care.likeness = Some(Likeness::of(TEAM, "agent@example.com", &to, "Hello", "hello"));
            wish
        };
        let wishes = (0..24).map(|_| alike()).collect();
        let emails: Vec<_> = scatter([&one, &two], wishes).await.into_iter().map(email_of).collect();
        assert!(emails.iter().all(|(_, first)| *first));
        let held = |guard| emails.iter().filter(|(email, _)| email.guard == guard).count();
        assert_eq!((held(None), held(Some(Guard::LooksDuplicate))), (1, 23), "round {round}");
    }
}

/// Who works on what at this moment.
#[derive(Default)]
struct Desk {
    threads: BTreeMap<ThreadId, String>,
    done: Vec<MessageId>,
}

/// Takes messages and settles them in one way or another, until all are done.
async fn work(node: Arc<Postgres>, a: InboxId, holder: String, desk: Arc<Mutex<Desk>>, all: usize) {
    for round in 0_i64.. {
        if desk.lock().unwrap().done.len() == all {
            return;
        }
        let wanted = next(a, &format!("{holder}-{round}"), 2);
        let tokens = wanted.tokens.clone();
        for offer in offers(&node, wanted).await {
            let (id, thread) = (offer.message.id, offer.thread.id);
            let before = desk.lock().unwrap().threads.insert(thread, holder.clone());
            assert_eq!(before, None, "{thread} is with two at a time");
            tokio::task::yield_now().await;
            let token = tokens[offer.token].clone();
            let again = round % 3 == 0 && offer.message.marks.turn.offers == 1;
            if !again {
                let wish = AnswerWish {
                    lease: Some(token.clone()),
                    seen: offer.thread.about.people.iter().map(|(_, id)| *id).collect(),
                    ..reply(&offer.message)
                };
                let answered = node.answer(wish, NOW).await.unwrap();
                assert!(matches!(answered, Answered::First(..)), "{answered:?}");
                desk.lock().unwrap().done.push(id);
            }
            desk.lock().unwrap().threads.remove(&thread);
            let how = if again { Settling::Nack { delay_ms: 0 } } else { Settling::Ack };
            let settled = node.settle_message(TEAM, Held { message: id, token }, how, NOW).await.unwrap();
            assert!(matches!(settled, Settled::Done(..)), "{settled:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_workers_on_two_nodes_have_each_message_once_at_a_time() {
    let (_fresh, one, two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    let mut all = BTreeSet::new();
    for n in 0..40 {
        let letter = of_thread(&format!("m{n}"), &format!("t{}", n % 15));
        all.insert(filed(&one, a, letter).await.id);
    }
    let desk = Arc::new(Mutex::new(Desk::default()));
    let worker = |n: usize| {
        let node = if n.is_multiple_of(2) { one.clone() } else { two.clone() };
        tokio::spawn(work(node, a, format!("w{n}"), desk.clone(), 40))
    };
    let workers: Vec<_> = (0..8).map(worker).collect();
    for worker in workers {
        worker.await.unwrap();
    }
    let done = desk.lock().unwrap().done.clone();
    assert_eq!((done.len(), done.into_iter().collect::<BTreeSet<_>>()), (40, all));
    assert_eq!(offers(&one, next(a, "late", 5)).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_another_node_decides_about_is_passed_over() {
    let (fresh, one, _two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    let busy = filed(&one, a, of_thread("1", "1")).await;
    let free = filed(&one, a, of_thread("2", "2")).await;
    let session = fresh.session().await;
    session.batch_execute("BEGIN").await.unwrap();
    session.query("SELECT FROM threads WHERE id = $1 FOR UPDATE", &[&busy.thread.0]).await.unwrap();
    let given = async |holder| {
        let offers = offers(&one, next(a, holder, 5)).await;
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
    let message = filed(&one, a, of_thread("1", "1")).await;
    let session = fresh.session().await;
    session.batch_execute("BEGIN").await.unwrap();
    session.query("SELECT FROM threads FOR UPDATE", &[]).await.unwrap();
    let tasks: Vec<_> = [one.clone(), two.clone()]
        .into_iter()
        .map(|node| {
            let wish = reply(&message);
            tokio::spawn(async move { node.answer(wish, NOW).await.unwrap() })
        })
        .collect();
    until_blocked(&fresh.session().await, 2).await;
    session.batch_execute("COMMIT").await.unwrap();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers.sort_by_key(|answer| !matches!(answer, Answered::First(..)));
    assert!(matches!(answers[..], [Answered::First(..), Answered::Already(_, Some(_), _)]), "{answers:?}");
}

/// Files, answers, leases, offers and forgets at once: whoever is in somebody's way waits or tries again inside its
/// verb, and nobody hears of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verbs_that_meet_in_a_thread_never_fail() {
    let (_fresh, one, two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    let first = filed(&one, a, of_thread("0", "t")).await;
    let mut tasks = Vec::new();
    for n in 1..40 {
        let (node, other) = if n % 2 == 0 { (one.clone(), two.clone()) } else { (two.clone(), one.clone()) };
        let first = first.clone();
        tasks.push(tokio::spawn(async move {
            let (next_node, lease_node) = (other.clone(), node.clone());
            let holder = format!("h{n}");
            let ask = LeaseAsk { renew: None, token: holder.clone(), holder: holder.clone(), ttl_ms: 1 };
            let (message, _, _, _) = tokio::join!(
                filed(&node, a, of_thread(&format!("m{n}"), "t")),
                async { next_node.next_messages(TEAM, next(a, &holder, 3), None, NOW.plus(n * 100)).await.unwrap() },
                async { lease_node.lease_thread(TEAM, first.thread, ask, None, NOW.plus(n * 100)).await.unwrap() },
                async { other.sweep(100, NOW).await.unwrap() },
            );
            let _answered = node.answer(reply(&message), NOW.plus(90_000_000)).await.unwrap();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let thread = one.thread(TEAM, first.thread).await.unwrap().unwrap();
    assert_eq!((thread.about.messages, thread.about.people.len()), (40, 40));
    let emails = two.thread_emails(TEAM, first.thread, None, 100).await.unwrap();
    assert_eq!(emails.len(), thread.about.emails as usize);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_removed_inbox_talked_about_goes() {
    let (fresh, one, _two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    let kept_inbox = inbox(&one, "b@d.test").await;
    for n in 0..3 {
        let message = filed(&one, a, of_thread(&format!("{n}"), &format!("{n}"))).await;
        assert!(matches!(one.answer(reply(&message), NOW).await.unwrap(), Answered::First(..)));
    }
    let other = filed(&one, kept_inbox, of_thread("x", "x")).await;
    let threads = one.threads(TEAM, mailonce_core::conversation::thread::ThreadQuery::default());
    assert_eq!(threads.await.unwrap(), []);
    assert!(one.remove_inbox(TEAM, a, NOW).await.unwrap().is_some());
    let session = fresh.session().await;
    for _ in 0..10 {
        one.sweep(2, NOW).await.unwrap();
    }
    assert_eq!((rows(&session, "threads").await, rows(&session, "thread_emails").await), (1, 0));
    assert!(one.thread(TEAM, other.thread).await.unwrap().is_some());
    // Tallies stay while a cap may ask about them, and no longer.
    assert_eq!(rows(&session, "tallies").await, 1);
    one.sweep(1, NOW.plus(3 * 86_400_000)).await.unwrap();
    assert_eq!(rows(&session, "tallies").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_guards_said_before_counts_in_every_lane() {
    let (_fresh, one, _two) = two_nodes().await;
    let due = NOW.plus(60_000);
    // One free row decides the first two; the others need their recipients' keys.
    for (n, mut wish) in
        [wish(Some("a")), wish(None), about("b", &["a@example.com", "b@example.com"])].into_iter().enumerate()
    {
        let mut flagged = wish.clone();
        (wish.care.hold, wish.due) = (Some(Guard::Approval), Some(due));
        let (email, first) = email_of(one.accept(wish, NOW).await.unwrap());
        assert_eq!((first, email.state(), email.guard), (true, EmailState::Held, Some(Guard::Approval)), "{n}");
        assert!(email.handoffs.iter().all(|handoff| handoff.due_at == Some(due)), "{n}");
        assert_eq!(one.email(TEAM, email.id).await.unwrap(), Some(email));

        let other = super::wish(None);
        (flagged.id, flagged.key, flagged.slots, flagged.head) = (other.id, None, Vec::new(), other.head);
        flagged.care.flag = Some(Guard::LooksDuplicate);
        let (email, _) = email_of(one.accept(flagged, NOW).await.unwrap());
        assert_eq!((email.state(), email.guard), (EmailState::Queued, Some(Guard::LooksDuplicate)), "{n}");
    }
    let stuck = one.stuck(None, 2).await.unwrap();
    assert_eq!(stuck.len(), 2);
    let last = stuck.last().map(|email| (email.team, email.id));
    assert_eq!(one.stuck(last, 2).await.unwrap().len(), 1);
}
