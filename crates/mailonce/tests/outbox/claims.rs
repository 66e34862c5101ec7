//! `mailonce_outbox.claim`: what commits waits for a worker once, with its payload, and what rolls back never does.

use serde_json::{Value, json};

use crate::rig::{Rig, Server, ServerOptions, wait_until};

impl Rig {
    /// Puts a claim into the outbox. Returns the id of the row.
    async fn claim(&self, key: &str, payload: &Value) -> String {
        let sql = "SELECT mailonce_outbox.claim($1, $2::text::jsonb)::text";
        self.sql.query_one(sql, &[&key, &payload.to_string()]).await.unwrap().get(0)
    }
}

async fn take(server: &Server, key: &str) -> (u16, Value) {
    server.post("/v1/claims", &json!({ "key": key, "lease_s": 60 }).to_string()).await
}

async fn claims(server: &Server) -> Vec<Value> {
    server.get("/v1/claims").await["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_commit_offers_one_claim_and_a_rollback_offers_none() {
    let ledger = crate::database::TempDatabase::create().await;
    for store in ["sqlite", &ledger.url] {
        let mut rig = Rig::installed().await;
        let server = rig.start(&ServerOptions { store, ..ServerOptions::default() }).await;
        for (key, commits) in [("invoice-1", true), ("invoice-2", false)] {
            let tx = rig.sql.transaction().await.unwrap();
            tx.execute("INSERT INTO orders (name) VALUES ($1)", &[&key]).await.unwrap();
            let payload = json!({ "total": 99, "for": key }).to_string();
            tx.execute("SELECT mailonce_outbox.claim($1, $2::text::jsonb)", &[&key, &payload]).await.unwrap();
            if commits { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
        }
        rig.wait_for_count("done", 1).await;

        let offered = claims(&server).await;
        assert_eq!(offered.len(), 1, "{store}: {offered:?}");
        assert_eq!((&offered[0]["state"], &offered[0]["lease_expires_at"]), (&"claimed".into(), &Value::Null));
        assert_eq!((offered[0]["offered_at"].is_string(), &offered[0]["label"]), (true, &Value::Null));
        let (status, won) = take(&server, "invoice-1").await;
        assert_eq!((status, &won["state"], &won["fence"]), (201, &"begun".into(), &1.into()), "{store}: {won}");
        assert_eq!(won["payload"], json!({ "total": 99, "for": "invoice-1" }));
        let path = format!("/v1/claims/{}", won["id"].as_str().unwrap());
        assert_eq!(server.get(&path).await["payload"], won["payload"]);
        assert_eq!(take(&server, "invoice-1").await.0, 409, "somebody has it");

        let done = json!({ "token": won["token"], "result": 17 }).to_string();
        assert_eq!(server.post(&format!("{path}/complete"), &done).await.0, 200);
        let (status, ended) = take(&server, "invoice-1").await;
        assert_eq!((status, &ended["result"], &ended["payload"]), (200, &17.into(), &won["payload"]));
        assert!(server.subjects().await.is_empty(), "a claim is no email");
        server.terminate().await;
    }
}

#[tokio::test]
async fn the_numbers_of_a_payload_keep_every_digit() {
    let ledger = crate::database::TempDatabase::create().await;
    for store in ["sqlite", &ledger.url] {
        let rig = Rig::installed().await;
        let server = rig.start(&ServerOptions { store, ..ServerOptions::default() }).await;
        let offer = async |total: &str| {
            let payload = format!(r#"{{ "total": {total}, "rate": 0.12345678901234567891 }}"#);
            let sql = "SELECT mailonce_outbox.claim('invoice-1', $1::text::jsonb)";
            rig.sql.execute(sql, &[&payload]).await.unwrap();
        };
        offer("12345678901234567890123").await;
        rig.wait_for_count("done", 1).await;
        let (status, won) =
            server.text("POST", "/v1/claims", &json!({ "key": "invoice-1", "lease_s": 60 }).to_string()).await;
        let id = claims(&server).await[0]["id"].as_str().unwrap().to_owned();
        let (_, read) = server.text("GET", &format!("/v1/claims/{id}"), "").await;
        assert_eq!(status, 201, "{store}: {won}");
        for answer in [won, read] {
            for number in [r#""total":12345678901234567890123"#, r#""rate":0.12345678901234567891"#] {
                assert!(answer.contains(number), "{store}: {answer}");
            }
        }

        offer("12345678901234567890123.00").await;
        rig.wait_for_count("done", 2).await;
        offer("12345678901234567890124").await;
        rig.wait_for_count("parked", 1).await;
        server.terminate().await;
    }
}

#[tokio::test]
async fn the_row_of_a_claim_names_it_and_the_event_tells_workers() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    rig.claim("invoice-1", &json!([1, "two", null])).await;
    rig.wait_for_count("done", 1).await;
    let row =
        rig.sql.query_one("SELECT claim_id::text, email_id IS NULL FROM mailonce_outbox.rows", &[]).await.unwrap();
    let claim = server.get(&format!("/v1/claims/{}", row.get::<_, String>(0))).await;
    assert_eq!((&claim["key"], &claim["payload"]), (&"invoice-1".into(), &json!([1, "two", null])));
    assert!(row.get::<_, bool>(1));
    let events = server.get("/v1/events?limit=100").await;
    let events: Vec<&Value> = events["data"].as_array().unwrap().iter().collect();
    let offered: Vec<&&Value> = events.iter().filter(|event| event["type"] == "claim.offered").collect();
    assert_eq!((offered.len(), &offered[0]["data"]["key"]), (1, &"invoice-1".into()), "{events:?}");

    let verified = rig.outbox(&["verify", "--data", "node"]).await.expect_exit(0).json();
    assert_eq!(verified, json!({ "checked": 1, "missing": [] }));
    let lose = "UPDATE mailonce_outbox.rows SET claim_id = '00000000-0000-4000-8000-000000000000'";
    rig.sql.execute(lose, &[]).await.unwrap();
    let verified = rig.outbox(&["verify", "--data", "node"]).await.expect_exit(5).json();
    assert_eq!(verified["missing"][0]["claim_id"], "00000000-0000-4000-8000-000000000000");
    server.terminate().await;
}

#[tokio::test]
async fn a_different_payload_under_the_key_of_a_claim_is_a_dead_letter() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    rig.claim("invoice-1", &json!({ "total": 99, "currency": "EUR" })).await;
    rig.wait_for_count("done", 1).await;
    rig.claim("invoice-1", &json!({ "currency": "EUR", "total": 99 })).await;
    rig.wait_for_count("done", 2).await;
    let other = rig.claim("invoice-1", &json!({ "total": 100, "currency": "EUR" })).await;
    rig.wait_for_count("parked", 1).await;

    let parked = server.get("/v1/outboxes/shop1/parked").await["data"][0].clone();
    assert_eq!(
        (&parked["id"], &parked["kind"], &parked["code"]),
        (&other.into(), &"claim".into(), &"key_mismatch".into())
    );
    assert!(parked["detail"].as_str().unwrap().contains("another payload"), "{parked}");
    assert_eq!(claims(&server).await.len(), 1);
    assert_eq!(take(&server, "invoice-1").await.1["payload"]["total"], 99);
    server.terminate().await;
}

#[tokio::test]
async fn emails_and_claims_with_the_same_key_are_different_things() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    rig.order("both", Some("order-1")).await;
    rig.claim("order-1", &json!({})).await;
    rig.wait_for_count("done", 2).await;
    assert_eq!(server.subjects().await, ["both"]);
    assert_eq!(take(&server, "order-1").await.0, 201);
    server.terminate().await;
}

#[tokio::test]
async fn a_claim_that_a_stop_refuses_waits_in_its_row() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    let (status, stop) = server.post("/v1/stops", "{\"scope\": {\"team\": true}, \"mode\": \"refuse\"}").await;
    assert_eq!(status, 201, "{stop}");
    rig.claim("invoice-1", &json!({})).await;
    let waiting = "SELECT count(*) FROM mailonce_outbox.rows WHERE state = 'pending' AND failure_code = 'stopped'";
    wait_until("the row was refused", async || rig.sql.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 1)
        .await;
    assert!(claims(&server).await.is_empty());
    assert_eq!(server.call("DELETE", &format!("/v1/stops/{}", stop["id"].as_str().unwrap())).await.0, 200);
    rig.wait_for_count("done", 1).await;
    assert_eq!(take(&server, "invoice-1").await.0, 201);
    server.terminate().await;
}

#[tokio::test]
async fn claim_refuses_what_can_never_be_offered_and_the_transaction_fails() {
    let rig = Rig::installed().await;
    let long = "k".repeat(257);
    for (key, payload) in [
        (None, Some("{}")),
        (Some(""), Some("{}")),
        (Some("é"), Some("{}")),
        (Some(&*long), Some("{}")),
        (Some("k"), None),
    ] {
        let sql = "SELECT mailonce_outbox.claim($1, $2::text::jsonb)";
        rig.sql.execute(sql, &[&key, &payload]).await.expect_err("the claim is refused");
    }
    assert_eq!(rig.count("pending").await, 0);
}

#[cfg(feature = "failpoints")]
#[tokio::test]
async fn a_drainer_that_is_killed_before_the_mark_offers_no_second_claim() {
    let rig = Rig::installed().await;
    rig.claim("invoice-1", &json!({ "total": 99 })).await;
    let options = ServerOptions { failpoint: Some("outbox-accepted:kill:1"), ..ServerOptions::default() };
    rig.start(&options).await.wait_for_exit().await;
    assert_eq!(rig.count("pending").await, 1);

    // A worker is faster than the next drainer, and the claim has ended when its row is offered again.
    let server = rig.start_server().await;
    let (status, won) = take(&server, "invoice-1").await;
    assert_eq!((status, &won["payload"]["total"]), (201, &99.into()), "{won}");
    let done = json!({ "token": won["token"] }).to_string();
    server.post(&format!("/v1/claims/{}/complete", won["id"].as_str().unwrap()), &done).await;
    rig.wait_for_count("done", 1).await;
    assert_eq!(claims(&server).await.len(), 1);
    assert_eq!(take(&server, "invoice-1").await.0, 200);
    server.terminate().await;
}
