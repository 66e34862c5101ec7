//! Dead letters: rows that are refused for good, their list and replay; rows that are too old; and `verify`.

use serde_json::{Value, json};

use crate::rig::{Rig, ServerOptions, payload, wait_until};

async fn parked(server: &crate::rig::Server) -> Vec<Value> {
    server.get("/v1/outboxes/shop1/parked").await["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_different_payload_under_the_same_key_is_a_dead_letter() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    rig.order("original", Some("order-7")).await;
    rig.wait_for_count("done", 1).await;
    rig.order("other", Some("order-7")).await;
    rig.wait_for_count("parked", 1).await;

    let rows = parked(&server).await;
    assert_eq!((&rows[0]["code"], &rows[0]["key"]), (&"key_mismatch".into(), &"order-7".into()));
    assert!(rows[0]["detail"].as_str().unwrap().contains("order-7"), "{rows:?}");
    assert_eq!(server.subjects().await, ["original"]);
    server.terminate().await;
}

#[tokio::test]
async fn a_dead_letter_is_replayed_when_its_cause_is_gone() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    let suppress = json!({ "address": "ada@example.com", "reason": "manual" }).to_string();
    let (status, body) = server.post("/v1/suppressions", &suppress).await;
    assert_eq!(status, 201, "{body}");
    rig.order("suppressed", None).await;
    rig.wait_for_count("parked", 1).await;
    let row = parked(&server).await.remove(0);
    assert_eq!(row["code"], "recipient_suppressed");

    assert_eq!(server.call("DELETE", "/v1/suppressions/ada@example.com").await.0, 200);
    let path = format!("/v1/parked/{}/replay", row["id"].as_str().unwrap());
    assert_eq!(server.call("POST", &path).await, (200, json!({ "id": row["id"] })));
    rig.wait_for_count("done", 1).await;
    assert_eq!(server.call("POST", &path).await.0, 200, "a repeated replay changes nothing");
    assert_eq!(server.subjects().await, ["suppressed"]);
    assert_eq!(rig.count("done").await, 1);
    let unknown = "/v1/parked/00000000-0000-4000-8000-000000000000/replay";
    assert_eq!(server.call("POST", unknown).await.0, 404);
    assert_eq!(server.call("POST", "/v1/parked/x/replay").await.0, 404);
    server.terminate().await;
}

#[tokio::test]
async fn each_dead_letter_is_one_event() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    rig.order("original", Some("order-7")).await;
    rig.wait_for_count("done", 1).await;
    rig.order("other", Some("order-7")).await;
    rig.order("old", None).await;
    let age =
        "UPDATE mailonce_outbox.rows SET offered_at = now() - interval '40 days' WHERE payload->>'subject' = 'old'";
    rig.sql.execute(age, &[]).await.unwrap();
    rig.wait_for_count("pending", 0).await;
    let parked_ids = async || {
        let sql = "SELECT string_agg(id::text, ' ' ORDER BY seq) FROM mailonce_outbox.rows WHERE state = 'parked'";
        rig.sql.query_one(sql, &[]).await.unwrap().get::<_, Option<String>>(0).unwrap_or_default()
    };
    let ids = parked_ids().await;
    let reported = async || server.events("outbox.row_parked").await;
    wait_until("every dead letter is reported", async || reported().await.len() == ids.split(' ').count()).await;
    let first = reported().await[0].clone();
    assert_eq!(first.1, json!({ "outbox": "shop1", "kind": "email", "code": "key_mismatch" }));

    // A crash before the mark reports a row again. Its event is not repeated, and a row that is parked again has another.
    rig.sql.execute("UPDATE mailonce_outbox.rows SET is_reported = false", &[]).await.unwrap();
    let unmarked = async || {
        let sql = "SELECT count(*) FROM mailonce_outbox.rows WHERE NOT is_reported AND state = 'parked'";
        rig.sql.query_one(sql, &[]).await.unwrap().get::<_, i64>(0)
    };
    wait_until("every dead letter is marked", async || unmarked().await == 0).await;
    assert_eq!(reported().await.len(), ids.split(' ').count());
    assert_eq!(server.call("POST", &format!("/v1/parked/{}/replay", first.0)).await.0, 200);
    let of_first = async || reported().await.iter().filter(|event| event.0 == first.0).count();
    wait_until("the row is parked and reported again", async || of_first().await == 2).await;
    server.terminate().await;
}

/// Parks a row by hand, as if its replay had failed again.
async fn park_again(rig: &Rig) {
    let park =
        "UPDATE mailonce_outbox.rows SET state = 'parked', parked_at = now(), email_id = NULL, failure_code = 'x'";
    rig.sql.execute(park, &[]).await.unwrap();
}

async fn replays(server: &crate::rig::Server) -> Vec<Value> {
    server.get("/v1/audit?action=outbox.row_replayed").await["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_replay_has_an_audit_entry_and_its_key_replays_it_once() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    rig.order("parked", None).await;
    rig.wait_for_count("done", 1).await;
    park_again(&rig).await;
    let id = parked(&server).await[0]["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/parked/{id}/replay");

    assert_eq!(server.post_with_key(&path, "again-1").await.0, 200);
    rig.wait_for_count("done", 1).await;
    let entries = replays(&server).await;
    assert_eq!((entries.len(), &entries[0]["about"]), (1, &format!("outbox_row/{id}").into()), "{entries:?}");
    assert_eq!(
        (&entries[0]["after"], &entries[0]["actor"]["kind"]),
        (&json!({ "outbox": "shop1" }), &"api_key".into())
    );

    // The same request again, although the row was parked again meanwhile.
    park_again(&rig).await;
    assert_eq!(server.post_with_key(&path, "again-1").await, (200, json!({ "id": id })));
    assert_eq!((rig.count("parked").await, replays(&server).await.len()), (1, 1));
    let (status, other) =
        server.post_with_key("/v1/parked/00000000-0000-4000-8000-000000000000/replay", "again-1").await;
    assert_eq!((status, &other["code"]), (404, &"not_found".into()), "there is no such row: {other}");
    assert_eq!(server.post_with_key("/v1/emails", "again-1").await.0, 400, "no body");

    assert_eq!(server.post_with_key(&path, "again-2").await.0, 200);
    rig.wait_for_count("done", 1).await;
    assert_eq!(server.post_with_key(&path, "again-3").await.0, 200, "it is no longer parked");
    assert_eq!(replays(&server).await.len(), 2, "what changes nothing has no entry");
    server.terminate().await;
}

#[tokio::test]
async fn the_command_line_lists_and_replays_dead_letters() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    rig.order("parked", Some("order-7")).await;
    rig.wait_for_count("done", 1).await;
    park_again(&rig).await;
    let at = ["--data", "node"];
    let listed = rig.run(&[&["outbox", "parked", "shop1"], &at[..]].concat()).await.expect_exit(0).json();
    assert_eq!((&listed["data"][0]["key"], &listed["data"][0]["code"]), (&"order-7".into(), &"x".into()), "{listed}");
    let id = listed["data"][0]["id"].as_str().unwrap();
    let replay = [&["outbox", "replay", id, "--key", "again-1"], &at[..]].concat();
    assert_eq!(rig.run(&replay).await.expect_exit(0).json()["id"], id);
    rig.wait_for_count("done", 1).await;
    park_again(&rig).await;
    rig.run(&replay).await.expect_exit(0);
    assert_eq!((rig.count("parked").await, replays(&server).await.len()), (1, 1), "the same key replays it once");
    server.terminate().await;
}

#[cfg(feature = "failpoints")]
#[tokio::test]
async fn a_replay_that_was_interrupted_continues_under_its_key() {
    let rig = Rig::installed().await;
    let options = ServerOptions { failpoint: Some("outbox-replay-recorded:kill:1"), ..Default::default() };
    let mut server = rig.start(&options).await;
    rig.order("parked", None).await;
    rig.wait_for_count("done", 1).await;
    park_again(&rig).await;
    let path = format!("/v1/parked/{}/replay", parked(&server).await[0]["id"].as_str().unwrap());
    server.post_until_exit(&path, "again-1").await;
    assert_eq!(rig.count("parked").await, 1, "the server was killed before it changed the row");

    let server = rig.start_server().await;
    assert_eq!(server.post_with_key(&path, "again-1").await.0, 200);
    rig.wait_for_count("done", 1).await;
    assert_eq!(replays(&server).await.len(), 1);
    server.terminate().await;
}

#[tokio::test]
async fn an_invalid_payload_is_parked_with_the_field_and_blocks_nothing() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    let mut bad = payload("bad");
    bad["to"] = "nobody".into();
    let mut unknown = payload("unknown");
    unknown["subjct"] = "x".into();
    for body in [bad, unknown, payload("good")] {
        let sql = "SELECT mailonce_outbox.send($1::text::jsonb, NULL, 'one-customer')";
        rig.sql.execute(sql, &[&body.to_string()]).await.unwrap();
    }
    rig.wait_for_count("done", 1).await;
    let rows = parked(&server).await;
    let codes: Vec<&str> = rows.iter().map(|row| row["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["unknown_field", "invalid_field"], "newest first");
    let first = server.get("/v1/outboxes/shop1/parked?limit=1").await;
    let next = first["next_cursor"].as_str().unwrap();
    let second = server.get(&format!("/v1/outboxes/shop1/parked?limit=1&cursor={next}")).await;
    assert_eq!(second["data"][0]["code"], "invalid_field");
    assert_eq!(server.subjects().await, ["good"]);
    server.terminate().await;
}

#[tokio::test]
async fn a_row_that_is_older_than_the_memory_of_its_key_is_parked() {
    let rig = Rig::installed().await;
    rig.order("old", None).await;
    rig.order("new", None).await;
    let age =
        "UPDATE mailonce_outbox.rows SET offered_at = now() - interval '35 days' WHERE payload->>'subject' = 'old'";
    rig.sql.execute(age, &[]).await.unwrap();
    let server = rig.start_server().await;
    rig.wait_for_count("done", 1).await;
    assert_eq!(parked(&server).await[0]["code"], "too_old");
    assert_eq!(server.subjects().await, ["new"]);
    server.terminate().await;
}

#[tokio::test]
async fn the_key_of_a_row_is_remembered_for_35_days_whatever_its_payload_says() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    let mut short = payload("short");
    short["ttl"] = "1s".into();
    rig.sql.execute("SELECT mailonce_outbox.send($1::text::jsonb, 'brief')", &[&short.to_string()]).await.unwrap();
    rig.wait_for_count("done", 1).await;
    wait_until("the email is final", async || !server.get("/v1/keys/brief").await["expires_at"].is_null()).await;
    assert!(remembered_days(&rig, &server.get("/v1/keys/brief").await).await >= 34);
    server.terminate().await;
}

#[tokio::test]
async fn a_key_that_another_call_bound_is_remembered_for_35_days_once_a_row_has_it() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    let mut brief = payload("shared");
    brief["ttl"] = "1h".into();
    brief["intent"] = json!({ "type": "order.confirmation", "entity": "order_1" });
    let (status, email) = server.post("/v1/emails", &brief.to_string()).await;
    assert_eq!(status, 202, "{email}");
    rig.sql.execute("SELECT mailonce_outbox.send($1::text::jsonb)", &[&brief.to_string()]).await.unwrap();
    rig.wait_for_count("done", 1).await;

    let row = rig.sql.query_one("SELECT email_id::text FROM mailonce_outbox.rows", &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), email["id"].as_str().unwrap(), "the intent is the key of both");
    let email = server.get(&format!("/v1/emails/{}", email["id"].as_str().unwrap())).await;
    let path = format!("/v1/keys/{}", email["key"].as_str().unwrap());
    wait_until("the email is final", async || !server.get(&path).await["expires_at"].is_null()).await;
    assert!(remembered_days(&rig, &server.get(&path).await).await >= 34);
    server.terminate().await;
}

#[tokio::test]
async fn the_key_of_an_email_that_ended_long_ago_is_remembered_for_35_days_once_a_row_has_it() {
    let (rig, ledger) = (Rig::installed().await, crate::database::TempDatabase::create().await);
    let server = rig.start(&ServerOptions { store: &ledger.url, ..ServerOptions::default() }).await;
    rig.order("old", Some("order-7")).await;
    rig.wait_for_count("done", 1).await;
    let is_final = async || !server.get("/v1/keys/order-7").await["expires_at"].is_null();
    wait_until("the email is final", is_final).await;
    let age = format!("UPDATE emails SET settled_at = settled_at - {}", (35 * 24 - 1) * 3_600_000_i64);
    crate::database::connect_client(&ledger.url).await.batch_execute(&age).await.unwrap();
    assert_eq!(remembered_days(&rig, &server.get("/v1/keys/order-7").await).await, 0);

    rig.order("old", Some("order-7")).await;
    rig.wait_for_count("done", 2).await;
    assert!(remembered_days(&rig, &server.get("/v1/keys/order-7").await).await >= 34);
    assert_eq!(server.subjects().await, ["old"]);
    server.terminate().await;
}

#[tokio::test]
async fn an_outbox_whose_database_does_not_answer_does_not_keep_others_from_a_replay() {
    let rig = Rig::installed().await;
    let server = rig.start(&ServerOptions { has_silent_outbox: true, ..ServerOptions::default() }).await;
    rig.order("parked", None).await;
    rig.wait_for_count("done", 1).await;
    park_again(&rig).await;
    let path = format!("/v1/parked/{}/replay", parked(&server).await[0]["id"].as_str().unwrap());
    assert_eq!(server.call("POST", &path).await.0, 200);
    rig.wait_for_count("done", 1).await;
    let unknown = "/v1/parked/00000000-0000-4000-8000-000000000000/replay";
    assert_eq!(server.call("POST", unknown).await.0, 503, "the silent one may have it");
    server.terminate().await;
}

/// For how many days a key is still remembered.
async fn remembered_days(rig: &Rig, key: &Value) -> i32 {
    let sql = "SELECT floor(extract(epoch FROM $1::text::timestamptz - now()) / 86400)::integer";
    rig.sql.query_one(sql, &[&key["expires_at"].as_str().unwrap()]).await.unwrap().get(0)
}

#[tokio::test]
async fn other_teams_see_no_outbox() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    let mut bad = payload("bad");
    bad["to"] = "nobody".into();
    rig.sql.execute("SELECT mailonce_outbox.send($1::text::jsonb)", &[&bad.to_string()]).await.unwrap();
    rig.wait_for_count("parked", 1).await;
    let row = parked(&server).await.remove(0)["id"].as_str().unwrap().to_owned();
    let (status, team) = server.post("/v1/teams", "{\"name\": \"other\"}").await;
    assert_eq!(status, 201, "{team}");
    let secret = team["api_key"].as_str().unwrap();

    assert_eq!(server.call_with("GET", "/v1/outboxes", secret).await, (200, json!({ "data": [] })));
    assert_eq!(server.call_with("GET", "/v1/outboxes/shop1/parked", secret).await.0, 404);
    assert_eq!(server.call_with("POST", &format!("/v1/parked/{row}/replay"), secret).await.0, 404);
    assert_eq!(rig.count("parked").await, 1);
    server.terminate().await;
}

#[tokio::test]
async fn verify_lists_rows_whose_email_the_ledger_lacks() {
    let rig = Rig::installed().await;
    let server = rig.start_server().await;
    rig.order("kept", None).await;
    rig.order("lost", None).await;
    rig.wait_for_count("done", 2).await;
    let data = ["--data", "node"];
    let verified = rig.outbox(&[&["verify"], &data[..]].concat()).await.expect_exit(0).json();
    assert_eq!(verified, json!({ "checked": 2, "missing": [] }));

    let lose = "UPDATE mailonce_outbox.rows SET email_id = '00000000-0000-4000-8000-000000000000'
        WHERE payload->>'subject' = 'lost' RETURNING id::text";
    let row: String = rig.sql.query_one(lose, &[]).await.unwrap().get(0);
    let verified = rig.outbox(&[&["verify"], &data[..]].concat()).await.expect_exit(5).json();
    assert_eq!((&verified["checked"], &verified["missing"][0]["id"]), (&2.into(), &row.into()));
    server.terminate().await;
}
