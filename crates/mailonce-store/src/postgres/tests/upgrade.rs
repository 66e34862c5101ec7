//! Migrations of databases that already contain rows.

use mailonce_core::{
    conversation::{
        reply_guards::ReplyResult,
        thread::{Thread, ThreadDetails},
    },
    id::{InboxId, MessageId, ThreadId},
    inbox::message::MessageHead,
    ports::{conversation_store::ConversationStore, inbound_store::InboundStore},
    time::Time,
};
use tokio_postgres::Client;
use uuid::Uuid;

use super::{NOW, TEAM, TestDatabase, conversations::reply};
use crate::postgres::schema::{MIGRATIONS, NAMESPACE};

const INBOX: InboxId = InboxId(Uuid::from_u128(0xa));

/// Applies the migrations before the first one that contains `made`.
async fn migrate_until(session: &Client, made: &str) {
    session.batch_execute(NAMESPACE).await.unwrap();
    let until = MIGRATIONS.iter().position(|sql| sql.contains(made)).unwrap();
    for (number, sql) in MIGRATIONS[..until].iter().enumerate() {
        session.batch_execute(sql).await.unwrap();
        let number = number as i32 + 1;
        session.execute("INSERT INTO schema (version) VALUES ($1)", &[&number]).await.unwrap();
    }
}

async fn insert_message(session: &Client, thread: u128, seq: i64, head: &MessageHead) {
    let insert =
        "INSERT INTO messages (team, inbox, seq, id, rev, thread, delivery, received_at, state, content, head, marks)
                  VALUES ($1, $2, $3, $4, 1, $5, $4, $6, 'unanswered', '', $7, '{}')";
    let (id, thread, head) = (id_of(seq), Uuid::from_u128(thread), serde_json::to_string(head).unwrap());
    session.execute(insert, &[&TEAM.0, &INBOX.0, &seq, &id, &thread, &(NOW.0 + seq), &head]).await.unwrap();
}

fn id_of(seq: i64) -> Uuid {
    Uuid::from_u128(0x1000 + seq as u128)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_there_already_have_threads_and_can_be_answered() {
    let fresh = TestDatabase::create().await;
    let session = fresh.session().await;
    migrate_until(&session, "CREATE TABLE threads").await;
    let inbox = "INSERT INTO inboxes (team, id, rev, seq, created_at, address, about)
                 VALUES ($1, $2, 1, 62, 0, 'a@d.test', '{}')";
    session.execute(inbox, &[&TEAM.0, &INBOX.0]).await.unwrap();
    // Characters that PostgreSQL text cannot contain, and some that only look like them.
    let odd = MessageHead { subject: "\0 \\u0000 \"Ünï\"\\".into(), ..MessageHead::default() };
    insert_message(&session, 1, 1, &odd).await;
    insert_message(&session, 1, 2, &MessageHead { own: Some("sent by us".into()), ..MessageHead::default() }).await;
    insert_message(&session, 1, 3, &MessageHead { automatic: Some(("list".into(), true)), ..MessageHead::default() })
        .await;
    for seq in 4..=62 {
        insert_message(&session, 2, seq, &MessageHead { subject: format!("{seq}"), ..MessageHead::default() }).await;
    }

    let node = fresh.node().await;
    let thread = |id: u128, from: i64, to: i64, subject: &str, people: Vec<i64>| Thread {
        id: ThreadId(Uuid::from_u128(id)),
        team: TEAM,
        inbox: INBOX,
        rev: (to - from + 1) as u32,
        last_activity_at: Time(NOW.0 + to),
        details: ThreadDetails {
            subject: subject.into(),
            created_at: Time(NOW.0 + from),
            messages: (to - from + 1) as u32,
            people: people.into_iter().map(|seq| (seq as u64, MessageId(id_of(seq)))).collect(),
            ..ThreadDetails::default()
        },
    };
    let first = thread(1, 1, 3, "\u{fffd} \\ufffd \"Ünï\"\\", vec![1]);
    let second = thread(2, 4, 62, "4", (13..=62).collect());
    assert_eq!(node.thread(TEAM, first.id).await.unwrap(), Some(first));
    assert_eq!(node.thread(TEAM, second.id).await.unwrap(), Some(second));
    let message = node.message(TEAM, MessageId(id_of(1))).await.unwrap().unwrap();
    assert_eq!(message.head.subject, odd.subject);
    assert!(matches!(node.accept_reply(reply(&message), NOW).await.unwrap(), ReplyResult::First(..)));
}
