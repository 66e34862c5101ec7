//! Against a real server: through a proxy that loses answers after the commit, delays, resets and answers 503, one mail at
//! the sink and one success for the caller; notices that the server signs, leases that it gives to one at a time, and the
//! stories that the double tells. scripts/test-sdks starts what this needs and names it in the environment.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed, and says why")]
#![expect(clippy::panic, reason = "a helper that finds what it must not find fails its test")]

#[path = "../contract/behaviour.rs"]
mod behaviour;
mod once;
#[path = "../contract/play.rs"]
mod play;
mod server;

use bytes::Bytes;
use hyper::Method;
use mailonce_sdk::{
    Client, EventQuery, Mail, Mails, MessageQuery, Once, Reply, WaitFor, Work,
    http::{Request, ServerUrl},
    wire::{Acknowledgement, NewInbox, NextMessages},
};
use serde_json::{Value, json};
use std::{
    collections::HashSet,
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::sleep;

const FAULTS: [&str; 7] = ["refuse", "503", "lose", "reset", "cut", "delay", "late503"];

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run scripts/test-sdks"))
}

/// A name that no other run has.
fn run() -> String {
    format!("{:x}", SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() & 0xffff_ffff_ffff)
}

/// Calls the fault proxy.
async fn call_proxy(method: Method, path: String, body: Value) -> Value {
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let server_url = ServerUrl::new(&env("MAILONCE_FAULT_PROXY"), &[], "network_faults").unwrap();
    let answer = server_url.call(&Request { method, path, headers: Vec::new(), body }).await.unwrap();
    serde_json::from_slice(&answer.body).unwrap()
}

/// A client behind a proxy with these faults, and the proxy's number.
async fn through(faults: &[&str]) -> (Client, Value) {
    let request = json!({ "to": env("MAILONCE_URL"), "faults": faults });
    let proxy = call_proxy(Method::POST, "/proxy".into(), request).await;
    let mo = Client::builder()
        .base_url(proxy["url"].as_str().unwrap())
        .backoff(Duration::from_millis(5))
        .timeout(Duration::from_millis(600))
        .max_retries(faults.len() as u32 + 3);
    (mo.build().unwrap(), proxy["number"].clone())
}

/// Looks until the sink has a mail for `to`, then a while longer whether it gets another.
async fn mails_for(to: &str) -> u64 {
    let count = async || {
        let path = format!("/mails?to={}", to.replace('@', "%40"));
        call_proxy(Method::GET, path, Value::Null).await["count"].as_u64().unwrap()
    };
    for _ in 0..100 {
        if count().await > 0 {
            break;
        }
        sleep(Duration::from_millis(50)).await;
    }
    sleep(Duration::from_millis(150)).await;
    count().await
}

/// Lets a mail arrive at the real server, by SMTP.
fn arrive(to: &str, from: &str, more: &[&str]) {
    let smtp = env("MAILONCE_SMTP_LISTEN");
    let words = ["simulate", "inbound", "--to", to, "--from", from, "--smtp", &smtp];
    let ended = Command::new(env("MAILONCE_BIN")).args(words).args(more).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

fn mail(to: &str) -> Mail {
    Mail::new("agent@mailonce.test", to).subject("Order").text("Thank you.")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intent_a_key_and_a_batch_are_sent_once_despite_network_faults() {
    let run = run();
    for fault in FAULTS {
        let [one, two, three] = ["a", "b", "c"].map(|name| format!("{name}-{fault}-{run}@example.com"));
        let (mo, number) = through(&[fault, fault]).await;
        let sent = mo.emails.send(mail(&one), Once::intent("order", format!("{fault}-{run}"))).await.unwrap();
        assert_eq!(call_proxy(Method::GET, format!("/proxy/{number}"), Value::Null).await["left"], 0);
        let (mo, _) = through(&[fault, fault]).await;
        mo.emails.send(mail(&two), Once::key(format!("{fault}-{run}"))).await.unwrap();
        let (mo, _) = through(&[fault, fault]).await;
        let batch = mo.emails.batch(Mails::keyed(format!("batch-{fault}-{run}"), [mail(&three)])).await.unwrap();
        assert_ne!(sent.id, batch.data[0].as_ref().unwrap().id);
        for to in [&one, &two, &three] {
            assert_eq!(mails_for(to).await, 1, "{fault}: {to}");
        }
    }
}

#[tokio::test]
async fn a_message_is_answered_once_and_work_is_taken_once() {
    let run = run();
    let (desk, person) = (format!("rs-{run}@mailonce.test"), format!("person-{run}@example.com"));
    let plain = Client::from_env().unwrap();
    let (mo, _) = through(&["lose", "reset", "late503"]).await;
    let inbox =
        mo.inboxes.create(&NewInbox { username: Some(format!("rs-{run}")), ..NewInbox::default() }).await.unwrap();
    assert_eq!(inbox.address, desk);
    arrive(&desk, &person, &["--text", "When?"]);
    plain.inboxes.wait(&desk, &WaitFor { timeout: Some(10), ..WaitFor::default() }).await.unwrap().unwrap();
    let (mo, _) = through(&["lose", "cut"]).await;
    let offer =
        mo.inboxes.next(&desk, &NextMessages { ttl_s: Some(60), ..NextMessages::default() }).await.unwrap().remove(0);
    let (mo, _) = through(&["lose", "delay", "late503"]).await;
    let first = mo.messages.reply(&offer.message.id, &Reply::text("At nine.").lease(&offer.lease.token)).await.unwrap();
    let (mo, _) = through(&["lose", "reset"]).await;
    mo.messages
        .ack(&offer.message.id, &Acknowledgement { lease: offer.lease.token, ..Acknowledgement::default() })
        .await
        .unwrap();
    let again = plain.messages.reply(&offer.message.id, &Reply::text("At nine o'clock.")).await.unwrap();
    assert_eq!(again.id, first.id);
    assert_eq!(mails_for(&person).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn forty_callers_of_one_intent_each_with_its_own_network_faults() {
    let run = run();
    let to = format!("crowd-{run}@example.com");
    let mut sends = tokio::task::JoinSet::new();
    for n in 0..40 {
        let (to, run) = (to.clone(), run.clone());
        sends.spawn(async move {
            let (mo, _) = through(&[FAULTS[n % FAULTS.len()], FAULTS[(n * 3 + 1) % FAULTS.len()]]).await;
            mo.emails.send(mail(&to), Once::intent("crowd", run)).timeout(Duration::from_secs(2)).await.unwrap().id
        });
    }
    let ids: HashSet<String> = sends.join_all().await.into_iter().collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(mails_for(&to).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_of_work_answers_each_message_once_and_the_stream_tells_of_each_once() {
    let run = run();
    let desk = format!("loop-{run}@mailonce.test");
    let mo = Client::from_env().unwrap();
    let inbox =
        mo.inboxes.create(&NewInbox { username: Some(format!("loop-{run}")), ..NewInbox::default() }).await.unwrap();
    let query = EventQuery {
        kind: Some("message.received".into()),
        inbox: Some(inbox.id),
        after: Some("0".into()),
        ..EventQuery::default()
    };
    let mut followed = mo.events.stream(query);
    let people = ["x", "y", "z"].map(|name| format!("{name}-{run}@example.com"));
    for person in &people {
        arrive(&desk, person, &["--text", "Help"]);
    }
    let (done, mut left) = (tokio::sync::Notify::new(), people.len());
    let how = Work::default();
    let worked = mo.inboxes.work(&desk, &how, done.notified(), async |message, lease| {
        mo.messages.reply(&message.id, &Reply::text("Coming.").lease(&lease.token)).await?;
        left -= 1;
        if left == 0 {
            done.notify_one();
        }
        Ok::<(), mailonce_sdk::Error>(())
    });
    worked.await.unwrap();
    let mut seen = HashSet::new();
    for _ in &people {
        seen.insert(followed.next().await.unwrap().cursor);
    }
    assert_eq!(seen.len(), people.len());
    let more = tokio::time::timeout(Duration::from_millis(200), followed.next()).await;
    assert!(more.is_err(), "a message was told of twice: {more:?}");
    for person in &people {
        assert_eq!(mails_for(person).await, 1, "{person}");
    }
    let answered = MessageQuery { state: Some("answered".into()), ..MessageQuery::default() };
    assert_eq!(mo.inboxes.messages(&desk, &answered).await.unwrap().data.len(), people.len());
}
