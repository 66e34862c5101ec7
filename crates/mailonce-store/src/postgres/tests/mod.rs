//! Tests specific to PostgreSQL: several nodes, lost connections, other schema versions.

mod action_batches;
mod audit;
mod benchmarks;
mod conversations;
mod faults;
mod guards;
mod heartbeat;
mod history;
mod inbound;
mod inbound_two_nodes;
mod notices;
mod tls;
mod two_nodes;
mod upgrade;

use mailonce_core::{
    handoff::envelope::Envelope,
    id::{EmailId, IdGenerator, TeamId},
    intent::Intent,
    key::{EmailKey, Key},
    outbound::{
        accept::{AcceptResult, GuardInput, NewEmail},
        content::{EmailContent, RawContent},
        digest::Digest,
        email::{Channel, Email, EmailHead, OnUnknown},
    },
    time::Time,
    ttl,
};
use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use super::{Options, Postgres};

pub(crate) const NOW: Time = Time(1_731_628_800_000);
pub(crate) const TEAM: TeamId = TeamId(Uuid::from_u128(1));

/// A new database for one test, dropped at the end.
pub(crate) struct TestDatabase {
    admin: String,
    name: String,
    /// The URL of the database.
    pub(crate) url: String,
}

impl TestDatabase {
    /// Creates a database on the server in `MAILONCE_TEST_POSTGRES`. Without that variable the test fails; it is not
    /// skipped.
    pub(crate) async fn create() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let admin = std::env::var("MAILONCE_TEST_POSTGRES")
            .expect("MAILONCE_TEST_POSTGRES names the server of these tests: postgres://user@host:port/db");
        let name = format!("mailonce_test_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let base = admin.rsplit_once('/').expect("the URL ends with the name of a database").0;
        let url = format!("{base}/{name}");
        connect(&admin).await.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        Self { admin, name, url }
    }

    /// Opens a node on this database.
    pub(crate) async fn node(&self) -> Postgres {
        Postgres::open_with(&self.url, [7; 32], Options { accept_workers: 2, sessions: 4 }).await.unwrap()
    }

    /// Opens a session outside the store.
    pub(crate) async fn session(&self) -> Client {
        let client = connect(&self.url).await;
        client.batch_execute("SET search_path = mailonce").await.unwrap();
        client
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (admin, name) = (self.admin.clone(), self.name.clone());
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                connect(&admin).await.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.unwrap();
            });
        });
        dropped.join().ok();
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A new email with a given idempotency key, or without one.
pub(crate) fn new_email(key: Option<&str>) -> NewEmail {
    new_email_named(key.map(|key| EmailKey::Given(Key::parse(key).unwrap())), None, &["user@example.com"])
}

/// A new email with an intent about `entity`, to these recipients.
pub(crate) fn new_email_with_intent(entity: &str, to: &[&str]) -> NewEmail {
    let intent = Intent { kind: "order.confirmation".into(), entity: entity.into(), version: 1, period: None };
    let key = intent.derive_key(&content(to).to_addresses());
    new_email_named(Some(EmailKey::Given(Key::parse(&key).unwrap())), Some(intent), to)
}

fn content(to: &[&str]) -> EmailContent {
    EmailContent::validate(RawContent {
        from: "agent@example.com".into(),
        to: to.iter().map(ToString::to_string).collect(),
        subject: "Hello".into(),
        text: Some("hello".into()),
        ..RawContent::default()
    })
    .unwrap()
}

fn new_email_named(key: Option<EmailKey>, intent: Option<Intent>, to: &[&str]) -> NewEmail {
    static IDS: Mutex<Option<IdGenerator>> = Mutex::new(None);
    let content = content(to);
    let id = IDS.lock().unwrap().get_or_insert_default().next_id(NOW, 7);
    let to: Vec<String> = to.iter().map(ToString::to_string).collect();
    let head = EmailHead {
        from: "agent@example.com".into(),
        to: to.clone(),
        cc: Vec::new(),
        bcc: Vec::new(),
        subject: "Hello".into(),
        key,
        intent,
        created_at: NOW,
        on_unknown: OnUnknown::Hold,
        caller: None,
        channel: Channel::Http,
        version: 1,
        transport: None,
        resend_of: None,
        reason: None,
        answers: None,
        thread: None,
        call: None,
        held_by: None,
        policy: None,
        inbox: None,
        template: None,
        identical_place: None,
        erased: None,
    };
    NewEmail {
        id: EmailId(id),
        team: TEAM,
        digest: Digest::of_content(&content),
        key: head.key.as_ref().map(|name| name.hash(TEAM)),
        shadow_keys: head.shadow_keys(TEAM),
        first_wins: false,
        head,
        ttl: ttl::DEFAULT,
        envelopes: vec![Envelope { transport: "sandbox".into(), recipients: to }],
        due_at: None,
        body: serde_json::to_vec(&content).unwrap().into(),
        guard_input: GuardInput::default(),
    }
}

/// The email in a result, and whether it was the first.
pub(crate) fn email_of(answer: AcceptResult) -> (Email, bool) {
    match answer {
        AcceptResult::First(email) => (email, true),
        AcceptResult::KeyBound(mailonce_core::outbound::key_binding::KeyBinding::Email(email)) => (email, false),
        other => panic!("{other:?}"),
    }
}

/// Waits until this many sessions of the store are waiting for a lock.
pub(crate) async fn wait_until_blocked(session: &Client, count: i64) {
    let waiting = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name = 'mailonce' AND wait_event_type = 'Lock'";
    for _ in 0..2000 {
        if session.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) >= count {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    panic!("nobody waits");
}

/// How many rows a table has.
pub(crate) async fn rows(session: &Client, table: &str) -> i64 {
    session.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0)
}
