//! Scheduled drafts that are sent, changed and deleted concurrently: one call wins, and every response is correct.

use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;

use crate::{
    binary::{CliFixture, SpawnedServer},
    wire::{INBOX_PATH, api_call},
};

/// Concurrent callers of one draft.
const CALLERS: usize = 50;
/// A rule that holds mail to one recipient for approval.
const APPROVAL_RULE: &str = r#"{"name":"ask","direction":"outbound","match":{"operator":"all","conditions":
    [{"field":"recipient.address","operator":"is","value":"boss@example.com"}]},"actions":[{"type":"approve"}]}"#;

/// A time in the future, in the wire format.
fn time_from_now(by: Duration) -> String {
    let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap() + by;
    mailonce_core::time::Time(i64::try_from(at.as_millis()).unwrap()).to_string()
}

/// The text and state of every email to a recipient.
async fn emails_to(server: &SpawnedServer, to: &str) -> Vec<(String, String)> {
    let (_, page) = api_call(server, "GET", &format!("/v1/emails?to={to}&limit=100"), &[], "").await;
    let mut all = Vec::new();
    for email in page["data"].as_array().unwrap() {
        let path = format!("/v1/emails/{}", email["id"].as_str().unwrap());
        let (_, detail) = api_call(server, "GET", &path, &[], "").await;
        all.push((detail["text"].to_string(), detail["state"].as_str().unwrap().to_owned()));
    }
    all
}

/// The text and state of every email to a recipient that was not cancelled, once none is queued or sending.
async fn settled_emails_to(server: &SpawnedServer, to: &str) -> Vec<(String, String)> {
    for _ in 0..200 {
        let mut all = emails_to(server, to).await;
        all.retain(|(_, state)| state != "cancelled");
        if all.iter().all(|(_, state)| !["queued", "sending"].contains(&state.as_str())) {
            return all;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the emails to {to} did not settle in time");
}

/// The operation, and the status and body of its response.
type RaceCallResult = (&'static str, u16, Value);

/// Runs sends, updates of text, time and subject, and deletions concurrently.
async fn race_calls(server: &Arc<SpawnedServer>, path: &str, round: usize) -> Vec<RaceCallResult> {
    let mut calls = JoinSet::new();
    for n in 0..CALLERS {
        let (server, path) = (Arc::clone(server), path.to_owned());
        calls.spawn(async move {
            let key = format!("race-{round}-{n}");
            let (operation, method, path, body) = match (n + round) % 5 {
                0 => ("send", "POST", format!("{path}/send"), json!({})),
                1 => ("delete", "DELETE", path, json!({})),
                2 => ("update", "PATCH", path, json!({ "text": format!("Text {n}") })),
                3 => {
                    ("update", "PATCH", path, json!({ "send_at": time_from_now(Duration::from_secs(3600 + n as u64)) }))
                }
                _ => ("update", "PATCH", path, json!({ "subject": format!("Subject {n}") })),
            };
            let headers = if n % 2 == 0 { vec![("Idempotency-Key", key.as_str())] } else { Vec::new() };
            let (status, answer) = api_call(&server, method, &path, &headers, &body.to_string()).await;
            (operation, status, answer)
        });
    }
    calls.join_all().await
}

/// How often an operation succeeded.
fn success_count(results: &[RaceCallResult], operation: &str) -> usize {
    results.iter().filter(|(name, status, _)| *name == operation && *status < 300).count()
}

/// Compares the responses of a round with the draft and the emails.
async fn check_race_outcome(server: &SpawnedServer, path: &str, to: &str, results: &[RaceCallResult]) {
    for (operation, status, answer) in results {
        assert!(matches!(status, 200 | 204 | 404 | 409), "{operation}: {status} {answer}");
    }
    let (sends, deletes) = (success_count(results, "send"), success_count(results, "delete"));
    assert!(sends == 0 || deletes == 0, "sent and deleted: {results:?}");
    let emails = settled_emails_to(server, to).await;
    let (status, draft) = api_call(server, "GET", path, &[], "").await;
    if sends > 0 {
        let mails: std::collections::BTreeSet<&str> = results
            .iter()
            .filter(|(operation, status, _)| *operation == "send" && *status == 200)
            .map(|(_, _, answer)| answer["message_id"].as_str().unwrap())
            .collect();
        assert_eq!((mails.len(), emails.len(), status), (1, 1, 404), "{emails:?}");
        assert_eq!(emails[0].1, "sent");
    } else if deletes > 0 {
        assert_eq!((emails.len(), status), (0, 404), "{emails:?}");
    } else if status == 200 {
        assert_eq!(emails.len(), 1, "{emails:?}");
        assert_eq!(emails[0], (draft["text"].to_string(), "scheduled".to_owned()));
    } else {
        // It became due before any call succeeded.
        assert_eq!(emails.len(), 1, "{emails:?}");
        assert_eq!(emails[0].1, "sent");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_sends_updates_and_deletions_of_a_draft_have_one_outcome() {
    let cli = CliFixture::new();
    let server = Arc::new(cli.start_dev(&[]).await);
    for round in 0..24 {
        let to = format!("race-{round}@example.com");
        // Every third draft becomes due during the race.
        let wait = if round % 3 == 2 { Duration::from_millis(40) } else { Duration::from_hours(1) };
        let body = json!({ "to": to, "subject": "Race", "text": "First", "send_at": time_from_now(wait) }).to_string();
        let (status, draft) = api_call(&server, "POST", &format!("{INBOX_PATH}/drafts"), &[], &body).await;
        assert_eq!(status, 200, "{draft}");
        let path = format!("{INBOX_PATH}/drafts/{}", draft["draft_id"].as_str().unwrap());
        let results = race_calls(&server, &path, round).await;
        check_race_outcome(&server, &path, &to, &results).await;
    }
}

#[tokio::test]
async fn a_held_draft_is_scheduled_and_a_sent_draft_is_a_conflict() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let (status, created) = api_call(&server, "POST", "/v1/rules", &[], APPROVAL_RULE).await;
    assert_eq!(status, 201, "{created}");
    let drafts = format!("{INBOX_PATH}/drafts");
    let create =
        |to: &str, wait: Duration| json!({ "to": to, "text": "x", "send_at": time_from_now(wait) }).to_string();
    let (_, held) = api_call(&server, "POST", &drafts, &[], &create("boss@example.com", Duration::from_mins(1))).await;
    assert_eq!((&held["send_status"], &held["labels"]), (&json!("scheduled"), &json!(["held"])), "{held}");
    let path = format!("{drafts}/{}", held["draft_id"].as_str().unwrap());
    let (status, _) = api_call(&server, "DELETE", &path, &[], "").await;
    assert_eq!((status, emails_to(&server, "boss@example.com").await[0].1.as_str()), (204, "cancelled"));

    let (_, soon) = api_call(&server, "POST", &drafts, &[], &create("ann@example.com", Duration::ZERO)).await;
    let path = format!("{drafts}/{}", soon["draft_id"].as_str().unwrap());
    assert_eq!(settled_emails_to(&server, "ann@example.com").await.len(), 1);
    for body in [r#"{"text":"y"}"#, r#"{"send_at":null}"#] {
        let (status, answer) = api_call(&server, "PATCH", &path, &[], body).await;
        assert_eq!((status, &answer["name"]), (409, &json!("ConflictError")), "{answer}");
        assert!(answer["message"].as_str().unwrap().contains("can no longer be changed"), "{answer}");
    }
    // The packages know no conflict for a deletion, so a sent draft is not found.
    let (status, answer) = api_call(&server, "DELETE", &path, &[], "").await;
    assert_eq!((status, &answer["name"]), (404, &json!("NotFoundError")), "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("it was sent"), "{answer}");
    let (status, _) = api_call(&server, "GET", &path, &[], "").await;
    assert_eq!(status, 404);
    let (status, sent) = api_call(&server, "POST", &format!("{path}/send"), &[], "{}").await;
    assert_eq!((status, sent["message_id"].is_string()), (200, true), "{sent}");
    assert_eq!(settled_emails_to(&server, "ann@example.com").await.len(), 1);
}

#[tokio::test]
async fn a_refused_schedule_changes_nothing() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let drafts = format!("{INBOX_PATH}/drafts");
    let good = json!({ "to": "ann@example.com", "text": "x", "send_at": time_from_now(Duration::from_mins(10)) });
    let (_, draft) = api_call(&server, "POST", &drafts, &[], &good.to_string()).await;
    let path = format!("{drafts}/{}", draft["draft_id"].as_str().unwrap());
    for bad in [json!({ "send_at": "3026-01-01T00:00:00Z" }), json!({ "to": ["no address"] }), json!({ "to": [] })] {
        let (status, answer) = api_call(&server, "PATCH", &path, &[], &bad.to_string()).await;
        assert!(matches!(status, 400 | 422), "{answer}");
        assert_eq!(settled_emails_to(&server, "ann@example.com").await, [("\"x\"".to_owned(), "scheduled".to_owned())]);
    }
    for bad in
        [json!({ "text": "to nobody", "send_at": good["send_at"] }), json!({ "to": "a@b.test", "send_at": "now" })]
    {
        let (status, answer) = api_call(&server, "POST", &drafts, &[], &bad.to_string()).await;
        assert!(matches!(status, 400 | 422), "{answer}");
    }
    let (_, listed) = api_call(&server, "GET", &drafts, &[], "").await;
    assert_eq!(listed["count"], 1, "{listed}");
}
