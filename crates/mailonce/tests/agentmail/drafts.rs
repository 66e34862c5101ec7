//! Scheduled drafts that are sent, changed and removed at the same time: one of them wins, and all are told the truth.

use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;

use crate::{
    binary::{CliFixture, SpawnedServer},
    wire::{INBOX_PATH, api_call},
};

/// Callers of one draft at a time.
const CALLERS: usize = 50;
/// A rule under which a mail to somebody waits for a person.
const APPROVAL_RULE: &str = r#"{"name":"ask","direction":"outbound","match":{"operator":"all","conditions":
    [{"field":"recipient.address","operator":"is","value":"boss@example.com"}]},"actions":[{"type":"approve"}]}"#;

/// A time some way ahead, as the wire has it.
fn time_from_now(by: Duration) -> String {
    let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap() + by;
    mailonce_core::time::Time(i64::try_from(at.as_millis()).unwrap()).to_string()
}

/// What became of the emails to somebody: the words and the state of each.
async fn emails_to(server: &SpawnedServer, to: &str) -> Vec<(String, String)> {
    let (_, page) = api_call(server, "GET", &format!("/v1/emails?to={to}&limit=100"), &[], "").await;
    let mut all = Vec::new();
    for email in page["data"].as_array().unwrap() {
        let path = format!("/v1/emails/{}", email["id"].as_str().unwrap());
        let (_, whole) = api_call(server, "GET", &path, &[], "").await;
        all.push((whole["text"].to_string(), whole["state"].as_str().unwrap().to_owned()));
    }
    all
}

/// What became of the emails to somebody that were not taken back, once nothing is under way any more.
async fn settled_emails_to(server: &SpawnedServer, to: &str) -> Vec<(String, String)> {
    for _ in 0..200 {
        let mut all = emails_to(server, to).await;
        all.retain(|(_, state)| state != "cancelled");
        if all.iter().all(|(_, state)| !["queued", "sending"].contains(&state.as_str())) {
            return all;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the mails to {to} do not rest");
}

/// Who calls, and what was answered.
type RaceCallResult = (&'static str, u16, Value);

/// Everybody at once: sends, changes of the words and of the time, removals.
async fn race_calls(server: &Arc<SpawnedServer>, path: &str, round: usize) -> Vec<RaceCallResult> {
    let mut calls = JoinSet::new();
    for n in 0..CALLERS {
        let (server, path) = (Arc::clone(server), path.to_owned());
        calls.spawn(async move {
            let key = format!("race-{round}-{n}");
            let (deed, method, path, body) = match (n + round) % 5 {
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
            (deed, status, answer)
        });
    }
    calls.join_all().await
}

/// Whether a deed was told as done, and how often.
fn success_count(told: &[RaceCallResult], deed: &str) -> usize {
    told.iter().filter(|(what, status, _)| *what == deed && *status < 300).count()
}

/// Holds a round to the truth: what was told, what the draft is, and which mails there are.
async fn check_race_outcome(server: &SpawnedServer, path: &str, to: &str, told: &[RaceCallResult]) {
    for (deed, status, answer) in told {
        assert!(matches!(status, 200 | 204 | 404 | 409), "{deed}: {status} {answer}");
    }
    let (sends, deletes) = (success_count(told, "send"), success_count(told, "delete"));
    assert!(sends == 0 || deletes == 0, "sent and removed: {told:?}");
    let kept = settled_emails_to(server, to).await;
    let (status, draft) = api_call(server, "GET", path, &[], "").await;
    if sends > 0 {
        let mails: std::collections::BTreeSet<&str> = told
            .iter()
            .filter(|(deed, status, _)| *deed == "send" && *status == 200)
            .map(|(_, _, answer)| answer["message_id"].as_str().unwrap())
            .collect();
        assert_eq!((mails.len(), kept.len(), status), (1, 1, 404), "{kept:?}");
        assert_eq!(kept[0].1, "sent");
    } else if deletes > 0 {
        assert_eq!((kept.len(), status), (0, 404), "{kept:?}");
    } else if status == 200 {
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert_eq!(kept[0], (draft["text"].to_string(), "scheduled".to_owned()));
    } else {
        // Its time came before anybody.
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert_eq!(kept[0].1, "sent");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_changes_and_removals_of_a_scheduled_draft_race_to_one_end() {
    let cli = CliFixture::new();
    let server = Arc::new(cli.start_dev(&[]).await);
    for round in 0..24 {
        let to = format!("race-{round}@example.com");
        // Every third draft is due while they race.
        let wait = if round % 3 == 2 { Duration::from_millis(40) } else { Duration::from_hours(1) };
        let body = json!({ "to": to, "subject": "Race", "text": "First", "send_at": time_from_now(wait) }).to_string();
        let (status, draft) = api_call(&server, "POST", &format!("{INBOX_PATH}/drafts"), &[], &body).await;
        assert_eq!(status, 200, "{draft}");
        let path = format!("{INBOX_PATH}/drafts/{}", draft["draft_id"].as_str().unwrap());
        let told = race_calls(&server, &path, round).await;
        check_race_outcome(&server, &path, &to, &told).await;
    }
}

#[tokio::test]
async fn a_draft_that_is_held_is_scheduled_and_one_that_left_is_a_conflict() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let (status, made) = api_call(&server, "POST", "/v1/rules", &[], APPROVAL_RULE).await;
    assert_eq!(status, 201, "{made}");
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
    // Of a removal the packages know no conflict: what left is a draft no more.
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
async fn a_schedule_that_is_refused_changes_nothing() {
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
