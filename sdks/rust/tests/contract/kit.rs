//! The test kit on the code it is for: the run-twice and the crash tests, and that they fail for code that is not safe.

use mailonce_sdk::{
    Client, Error, Mail, Once,
    testing::{Arrival, Double, Like, expect_sent_once},
    wire::SendReceipt,
};
use serde_json::Value;
use std::sync::atomic::{AtomicU32, Ordering};

fn mail(lead: &str) -> Mail {
    Mail::new("agent@mailonce.test", format!("{lead}@example.com")).subject("Hello").text("…")
}

async fn follow_up(mo: Client, lead: &str) -> Result<SendReceipt, Error> {
    mo.emails.send(mail(lead), Once::intent("follow-up", lead)).await
}

/// A key that is another one each time protects nothing.
async fn careless(mo: Client, lead: &str) -> Result<SendReceipt, Error> {
    static LAST: AtomicU32 = AtomicU32::new(0);
    mo.emails.send(mail(lead), Once::key(format!("k-{}", LAST.fetch_add(1, Ordering::Relaxed)))).await
}

#[tokio::test]
async fn run_twice() {
    let double = Double::new();
    follow_up(double.client(), "lead_8821").await.unwrap();
    follow_up(double.client(), "lead_8821").await.unwrap();
    expect_sent_once(&double, &Like::default());
}

#[tokio::test]
async fn a_crash_after_the_commit() {
    let double = Double::new();
    double.crash(follow_up(double.client(), "lead_8821")).await;
    follow_up(double.client(), "lead_8821").await.unwrap();
    expect_sent_once(&double, &Like { entity: Some("lead_8821".into()), ..Like::default() });
}

#[tokio::test]
async fn a_lost_answer_and_a_refusal_are_tried_again() {
    let double = Double::new();
    double.lose_answers(1).refuse(1);
    follow_up(double.client(), "lead_8821").await.unwrap();
    assert_eq!(double.calls(), 3);
    expect_sent_once(&double, &Like { to: Some("lead_8821@example.com".into()), ..Like::default() });
}

#[tokio::test]
#[should_panic(expected = "2 mails went out, wanted 1")]
async fn careless_code_is_found_out() {
    let double = Double::new();
    careless(double.client(), "lead_8821").await.unwrap();
    careless(double.client(), "lead_8821").await.unwrap();
    expect_sent_once(&double, &Like::default());
}

#[tokio::test]
#[should_panic(expected = "0 mails went out")]
async fn a_mail_to_somebody_else_does_not_count() {
    let double = Double::new();
    follow_up(double.client(), "lead_8821").await.unwrap();
    expect_sent_once(&double, &Like { to: Some("nobody@example.com".into()), ..Like::default() });
}

#[tokio::test]
#[should_panic(expected = "ended well")]
async fn work_that_swallows_its_failure_is_found_out() {
    Double::new().crash(async { Ok::<(), Error>(()) }).await;
}

#[tokio::test]
async fn what_the_double_does_not_know_is_said() {
    let error = Double::new().client().events.stream(mailonce_sdk::EventQuery::default()).next().await.unwrap_err();
    assert_eq!((error.code.as_str(), error.status), ("not_in_double", 501));
}

#[tokio::test]
async fn the_double_tells_the_stories_of_the_real_one() {
    let double = Double::new();
    crate::behaviour::tell(&double.client(), |mail: &Value| {
        let text = |name: &str| mail[name].as_str().unwrap_or_default().to_owned();
        double.receive(Arrival {
            to: text("to"),
            from: mail["from"].as_str().map(str::to_owned),
            subject: text("subject"),
            text: text("text"),
            code: mail["code"].as_str().map(str::to_owned),
        });
    })
    .await;
}
