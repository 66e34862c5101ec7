//! Guard state on two nodes: reply caps per person, recent content, and budgets.

use mailonce_core::{
    control::budget::{AtLimit, Charge, USAGE_RETENTION_MS},
    conversation::{
        caps::ReplyCaps,
        reply_guards::{NewReply, ReplyResult},
        thread::ThreadQuery,
    },
    id::EmailId,
    outbound::{
        accept::AcceptResult,
        content_guard::{COMPARE_WINDOW_MS, ContentFingerprint, IdenticalCheck},
        email::{EmailState, Guard},
        email_commands::{EmailChangeResult, RescheduleRequest},
    },
    ports::{conversation_store::ConversationStore, inbound_store::InboundStore, store::Store},
};
use std::collections::BTreeSet;

use super::{
    NOW, TEAM,
    conversations::{UNLIMITED_CAPS, file_message, message_in_thread, reply},
    email_of, new_email, new_email_with_intent, rows,
};
use crate::postgres::tests::{
    inbound::inbox,
    two_nodes::{accept_on_both, two_nodes},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_to_a_person_on_two_nodes_stop_at_the_cap() {
    let (_fresh, one, two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    let mut tasks = Vec::new();
    for n in 0..30 {
        let name = format!("{n}");
        let message = file_message(&one, a, message_in_thread(&name, &name)).await;
        let new_reply = NewReply { caps: ReplyCaps { per_person: 7, ..UNLIMITED_CAPS }, ..reply(&message) };
        let node = if n % 2 == 0 { one.clone() } else { two.clone() };
        tasks.push(tokio::spawn(async move { node.accept_reply(new_reply, NOW).await.unwrap() }));
    }
    let mut held = 0;
    for task in tasks {
        let ReplyResult::First(email, _) = task.await.unwrap() else { panic!("not the first") };
        assert_eq!(email.guard == Some(Guard::Cap), email.state() == EmailState::Held);
        held += usize::from(email.guard.is_some());
    }
    assert_eq!(held, 23);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_mails_that_say_the_same_on_two_nodes_one_goes() {
    let (_fresh, one, two) = two_nodes().await;
    for round in 0..10 {
        let saying = |text: &str| {
            let mut email = new_email(None);
            let to = [format!("{round}@example.com")];
            email.guard_input.fingerprint =
                Some(ContentFingerprint::from_email(TEAM, "agent@example.com", &to, "Hello", text));
            email
        };
        // In every other round the pair already has a row to lock.
        if round % 2 == 0 {
            assert_eq!(email_of(one.accept(saying("something else"), NOW).await.unwrap()).0.guard, None);
        }
        let new_emails = (0..24).map(|_| saying("hello")).collect();
        let emails: Vec<_> = accept_on_both([&one, &two], new_emails).await.into_iter().map(email_of).collect();
        assert!(emails.iter().all(|(_, first)| *first));
        let held = |guard| emails.iter().filter(|(email, _)| email.guard == guard).count();
        assert_eq!((held(None), held(Some(Guard::LooksDuplicate))), (1, 23), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mails_that_say_the_same_on_two_nodes_are_flagged_except_one() {
    let (_fresh, one, two) = two_nodes().await;
    for round in 0..10 {
        let saying = |text: &str| {
            let mut email = new_email(None);
            let to = [format!("{round}@example.com")];
            email.guard_input.flag_similar =
                Some(ContentFingerprint::from_email(TEAM, "agent@example.com", &to, "Hello", text));
            email
        };
        let new_emails = (0..24).map(|_| saying("hello")).collect();
        let emails: Vec<_> = accept_on_both([&one, &two], new_emails).await.into_iter().map(email_of).collect();
        assert!(emails.iter().all(|(email, first)| *first && email.state() == EmailState::Queued));
        let with_guard = |guard| emails.iter().filter(|(email, _)| email.guard == guard).count();
        assert_eq!((with_guard(None), with_guard(Some(Guard::LooksDuplicate))), (1, 23), "round {round}");
        let (other, _) = email_of(two.accept(saying("something else"), NOW).await.unwrap());
        assert_eq!(other.guard, None, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_identical_mails_without_a_key_on_two_nodes_one_is_created() {
    let (_fresh, one, two) = two_nodes().await;
    for round in 0..10 {
        let identical = || {
            let fingerprint = ContentFingerprint::of_meaning([round; 16]);
            let mut email = new_email(None);
            email.guard_input.identical = Some(IdenticalCheck { fingerprint, window_ms: COMPARE_WINDOW_MS });
            email
        };
        let answers = accept_on_both([&one, &two], (0..24).map(|_| identical()).collect()).await;
        let ids: BTreeSet<EmailId> = answers
            .iter()
            .map(|answer| match answer {
                AcceptResult::First(email) | AcceptResult::Identical(email) => email.id,
                other => panic!("{other:?}"),
            })
            .collect();
        let created = answers.iter().filter(|answer| matches!(answer, AcceptResult::First(_))).count();
        assert_eq!((created, ids.len()), (1, 1), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guard_decisions_count_in_every_accept_path() {
    let (_fresh, one, _two) = two_nodes().await;
    let due = NOW.plus(60_000);
    // Inserting one key row decides the first two; the third needs its recipients' shadow keys locked.
    for (n, mut email) in
        [new_email(Some("a")), new_email(None), new_email_with_intent("b", &["a@example.com", "b@example.com"])]
            .into_iter()
            .enumerate()
    {
        let mut flagged = email.clone();
        (email.guard_input.holds, email.due_at) = (Guard::Approval.into(), Some(due));
        let (email, first) = email_of(one.accept(email, NOW).await.unwrap());
        assert_eq!((first, email.state(), email.guard), (true, EmailState::Held, Some(Guard::Approval)), "{n}");
        assert!(email.handoffs.iter().all(|handoff| handoff.due_at == Some(due)), "{n}");
        assert_eq!(one.email(TEAM, email.id).await.unwrap(), Some(email));

        let other = super::new_email(None);
        (flagged.id, flagged.key, flagged.shadow_keys, flagged.head) = (other.id, None, Vec::new(), other.head);
        flagged.guard_input.flagged_by = Some(Guard::LooksDuplicate);
        let (email, _) = email_of(one.accept(flagged, NOW).await.unwrap());
        assert_eq!((email.state(), email.guard), (EmailState::Queued, Some(Guard::LooksDuplicate)), "{n}");
    }
    let stuck = one.held_or_unknown_emails(None, 2).await.unwrap();
    assert_eq!(stuck.len(), 2);
    let last = stuck.last().map(|email| (email.team, email.id));
    assert_eq!(one.held_or_unknown_emails(last, 2).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_of_a_removed_inbox_are_removed() {
    let (fresh, one, _two) = two_nodes().await;
    let a = inbox(&one, "a@d.test").await;
    let kept_inbox = inbox(&one, "b@d.test").await;
    for n in 0..3 {
        let message = file_message(&one, a, message_in_thread(&format!("{n}"), &format!("{n}"))).await;
        assert!(matches!(one.accept_reply(reply(&message), NOW).await.unwrap(), ReplyResult::First(..)));
    }
    let other = file_message(&one, kept_inbox, message_in_thread("x", "x")).await;
    let all = ThreadQuery { limit: 10, ..ThreadQuery::default() };
    assert_eq!(one.threads(TEAM, all.clone()).await.unwrap().len(), 4);
    assert!(one.remove_inbox(TEAM, a, NOW).await.unwrap().is_some());
    assert_eq!(one.threads(TEAM, all).await.unwrap().len(), 1);
    let session = fresh.session().await;
    for _ in 0..10 {
        one.sweep(2, NOW).await.unwrap();
    }
    assert_eq!((rows(&session, "threads").await, rows(&session, "thread_emails").await), (1, 0));
    assert!(one.thread(TEAM, other.thread).await.unwrap().is_some());
    // Tallies are kept only while a cap may count them.
    assert_eq!(rows(&session, "tallies").await, 1);
    one.sweep(1, NOW.plus(3 * 86_400_000)).await.unwrap();
    assert_eq!(rows(&session, "tallies").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sends_on_two_nodes_only_as_many_go_as_the_budget_allows() {
    let (_fresh, one, two) = two_nodes().await;
    let charge = Charge {
        budget: uuid::Uuid::from_u128(7),
        counter: uuid::Uuid::from_u128(7),
        period_start: NOW,
        ends_at: NOW.plus(60_000),
        amount: 3,
        limit: 31,
        at_limit: AtLimit::Refuse,
    };
    let charged = |n: usize| {
        let key = format!("k{n}");
        let mut email = new_email(Some(&key).filter(|_| n.is_multiple_of(3)).map(String::as_str));
        email.guard_input.charges = vec![charge.clone()];
        email
    };
    let answers = accept_on_both([&one, &two], (0..64).map(charged).collect()).await;
    let went = answers.iter().filter(|answer| matches!(answer, AcceptResult::First(_))).count();
    assert_eq!(went, 10, "of 31 places each takes three");
    assert!(answers.iter().all(|answer| matches!(answer, AcceptResult::First(_) | AcceptResult::OverBudget(_))));
    assert_eq!(two.budget_usage(TEAM, vec![charge.counter()]).await.unwrap(), [30]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_moves_on_two_nodes_only_as_many_go_as_the_budget_allows() {
    let (fresh, one, two) = two_nodes().await;
    let charge = |start: i64| {
        let (period_start, ends_at) = (NOW.plus(start), NOW.plus(start + 60_000));
        Charge {
            budget: uuid::Uuid::from_u128(7),
            counter: uuid::Uuid::from_u128(7),
            period_start,
            ends_at,
            amount: 3,
            limit: 31,
            at_limit: AtLimit::Refuse,
        }
    };
    let (now, next) = (charge(0), Charge { limit: 96, ..charge(60_000) });
    let mut tasks = Vec::new();
    for n in 0..32 {
        let mut email = new_email(None);
        (email.due_at, email.guard_input.charges) = (Some(next.period_start), vec![next.clone()]);
        let id = email.id;
        assert!(matches!(one.accept(email, NOW).await.unwrap(), AcceptResult::First(_)));
        let node = if n % 2 == 0 { one.clone() } else { two.clone() };
        let new = RescheduleRequest { due_at: NOW, charges: vec![now.clone()] };
        tasks.push(async move { node.reschedule(TEAM, id, new, NOW).await.unwrap() });
    }
    let tasks: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
    let mut went = 0;
    for task in tasks {
        went += usize::from(matches!(task.await.unwrap(), EmailChangeResult::Changed(_)));
    }
    assert_eq!(went, 10, "of 31 places each takes three");
    let counters = vec![now.counter(), next.counter()];
    assert_eq!(two.budget_usage(TEAM, counters).await.unwrap(), [30, 66]);
    // Charges are kept as long as the counters.
    let session = fresh.session().await;
    assert_eq!(rows(&session, "budget_charges").await, 32);
    one.sweep(1, now.ends_at.plus(USAGE_RETENTION_MS)).await.unwrap();
    assert_eq!(rows(&session, "budget_charges").await, 22);
}
