//! Managing sources: what is shown of them, how a secret is rotated, and reused Mailgun tokens.

use hmac::{Hmac, KeyInit as _, Mac as _};
use mailonce_engine::EngineDeps;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::fixtures::{
    engine_deps::unix_seconds,
    requests::{TestRequest, delete, post},
};

const SECRETS: [&str; 3] = ["first-secret-of-16", "second-secret-of-16", "third-secret-of-16"];

fn postmark_source_body(name: &str, token: &str) -> Value {
    json!({ "name": name, "kind": "postmark", "transport": "sandbox", "bearer_token": token })
}

/// A Postmark webhook with a bearer token.
fn postmark_webhook(path: &str, token: &str) -> TestRequest {
    let bearer = format!("Bearer {token}");
    post(path).header("authorization", &bearer).json(&json!({ "RecordType": "Open", "MessageID": "m" }))
}

over_every_engine! {
    async fn a_source_never_shows_its_secret(world) {
        let created = world.post("/v1/sources", &postmark_source_body("one", SECRETS[0])).await.expect_status(201);
        let (id, path) = (created.string_field("id"), created.string_field("hook_path"));
        assert_eq!(path, format!("/hooks/{id}"));
        assert_eq!((&created["has_secret"], &created["secret_count"]), (&json!(true), &json!(1)));
        let read = world.get(&format!("/v1/sources/{id}")).await.expect_status(200);
        let list = world.get("/v1/sources").await.expect_status(200);
        assert_eq!((&read.body, &list.rows()), (&created.body, &vec![created.body.clone()]));
        for answer in [&created, &read, &list] {
            assert!(!answer.text.contains(SECRETS[0]), "{}", answer.text);
        }
        world.call(postmark_webhook(&path, SECRETS[0])).await.expect_status(200);
        world.call(delete(&format!("/v1/sources/{id}"))).await.expect_status(200);
        world.call(postmark_webhook(&path, SECRETS[0])).await.expect_problem(404, "not_found");
        world.get(&format!("/v1/sources/{id}")).await.expect_problem(404, "not_found");
    }

    async fn two_secrets_are_valid_during_a_rotation(world) {
        let created = world.post("/v1/sources", &postmark_source_body("one", SECRETS[0])).await.expect_status(201);
        let (id, path) = (created.string_field("id"), created.string_field("hook_path"));
        let rotate = |key: &str, body: &Value| post(&format!("/v1/sources/{id}/rotate")).key(key).json(body);
        let expect_valid = async |wanted: [bool; 3]| {
            for (secret, wanted) in SECRETS.iter().zip(wanted) {
                let answer = world.call(postmark_webhook(&path, secret)).await;
                assert_eq!(answer.status == 200, wanted, "{secret}: {}", answer.text);
            }
        };
        expect_valid([true, false, false]).await;
        world.call(rotate("1", &json!({ "bearer_token": SECRETS[1] }))).await.expect_status(200);
        expect_valid([true, true, false]).await;
        let second = world.call(rotate("2", &json!({ "bearer_token": SECRETS[2] }))).await.expect_status(200);
        expect_valid([false, true, true]).await;
        let again = world.call(rotate("2", &json!({ "bearer_token": SECRETS[2] }))).await.expect_status(200);
        assert_eq!((&again["rev"], &again["secret_count"]), (&second["rev"], &json!(2)), "a replay changes nothing");
        world.call(rotate("2", &json!({ "bearer_token": SECRETS[0] }))).await.expect_problem(422, "key_mismatch");
        world.call(rotate("3", &json!({ "bearer_token": SECRETS[2], "keep_previous": false }))).await.expect_status(200);
        expect_valid([false, false, true]).await;
    }

    async fn a_source_with_an_idempotency_key_is_created_once_and_its_name_is_unique(world) {
        let call = || post("/v1/sources").key("k").json(&postmark_source_body("one", SECRETS[0]));
        let first = world.call(call()).await.expect_status(201);
        let again = world.call(call()).await.expect_status(200);
        assert_eq!(again.body, first.body);
        assert!(again.is_replay());
        world.call(post("/v1/sources").key("k").json(&postmark_source_body("one", SECRETS[1]))).await.expect_problem(422, "key_mismatch");
        let taken = world.post("/v1/sources", &postmark_source_body("one", SECRETS[1])).await.expect_problem(409, "name_taken").expect_field("name");
        assert_eq!(taken["id"], first["id"]);
        world.call(postmark_webhook(&first.string_field("hook_path"), SECRETS[1])).await.expect_problem(401, "bad_signature");
    }

    async fn an_invalid_source_is_refused_with_the_field_name(world) {
        let with = |name: &str, value: Value| {
            let mut body = postmark_source_body("one", SECRETS[0]);
            body[name] = value;
            body
        };
        for (body, status, code, field) in [
            (with("transport", json!("gone")), 422, "invalid_field", "transport"),
            (with("kind", json!("pigeon")), 422, "invalid_field", "kind"),
            (with("kind", json!("mailgun")), 422, "invalid_field", "secret"),
            (with("bearer_token", json!("short")), 422, "invalid_field", "secret"),
            (with("bearer_token", Value::Null), 422, "invalid_field", "secret"),
            (with("secret", json!(SECRETS[0])), 422, "invalid_field", "secret"),
            (with("name", json!(" ")), 422, "invalid_field", "name"),
            (with("sekret", json!("x")), 400, "unknown_field", "sekret"),
        ] {
            world.post("/v1/sources", &body).await.expect_problem(status, code).expect_field(field);
        }
        assert!(world.get("/v1/sources").await.expect_status(200).rows().is_empty());
    }

    async fn a_mailgun_token_reused_for_another_event_is_refused(world) {
        let body = json!({ "name": "mg", "kind": "mailgun", "transport": "sandbox", "secret": SECRETS[0] });
        let path = world.post("/v1/sources", &body).await.expect_status(201).string_field("hook_path");
        let at = unix_seconds(world.engine.ctx.now());
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRETS[0].as_bytes()).unwrap();
        mac.update(format!("{at}token").as_bytes());
        let sum: [u8; 32] = mac.finalize().into_bytes().into();
        let (high, low) = sum.split_at(16);
        let number = |half: &[u8]| u128::from_be_bytes(half.try_into().unwrap());
        let hex = format!("{:032x}{:032x}", number(high), number(low));
        let call = |id: &str| post(&path).json(&json!({
            "signature": { "timestamp": at, "token": "token", "signature": hex },
            "event-data": { "event": "opened", "id": id, "timestamp": 1_794_736_800.5 },
        }));
        world.call(call("one")).await.expect_status(200);
        world.call(call("one")).await.expect_status(200);
        world.call(call("two")).await.expect_problem(401, "bad_signature");
        // Another process with the same ledger: a second node, or this one after a restart.
        let world = world.with_engine_deps(EngineDeps::default()).await;
        world.call(call("two")).await.expect_problem(401, "bad_signature");
        world.call(call("one")).await.expect_status(200);
    }
}
