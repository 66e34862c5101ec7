//! Authentication, scopes and limits of API keys.

use serde_json::json;

use crate::fixtures::{
    api_fixture::{DAY, HOUR, World, mail, mail_with},
    requests::{TestRequest, delete, get, patch, post},
};

fn send_request(secret: &str) -> TestRequest {
    post("/v1/emails").bearer(secret).json(&mail())
}

over_memory_and_sqlite! {
    async fn a_call_without_credentials_is_401_and_names_the_bearer_scheme(world) {
        let malformed = ["", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "mo_key", &format!("Token {}", world.secret)];
        let mut calls: Vec<TestRequest> = malformed.iter().map(|value| get("/v1/emails").header("authorization", value)).collect();
        calls.push(get("/v1/emails").anonymous());
        for call in calls {
            let refused = world.call(call).await.expect_problem(401, "unauthorized");
            assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
            assert_eq!(refused["retry"], "never");
        }
        let lower = get("/v1/emails").header("authorization", &format!("bearer {}", world.secret));
        world.call(lower).await.expect_status(200);
    }

    async fn a_pinned_api_version_is_served_or_refused(world) {
        let pinned = |version: &str| send_request(&world.secret).header("mailonce-version", version);
        world.call(pinned("2026-11-15")).await.expect_status(202);
        for other in ["2031-01-01", "", "latest", "2026-11-15T00:00:00Z"] {
            let refused = world.call(pinned(other)).await.expect_problem(400, "unknown_version").expect_field("Mailonce-Version");
            assert!(refused.string_field("detail").contains("`2026-11-15`"), "{}", refused.text);
            assert_eq!(refused["retry"], "never");
        }
        // An unauthenticated caller learns nothing about versions.
        world.call(get("/v1/emails").anonymous().header("mailonce-version", "x")).await.expect_problem(401, "unauthorized");
    }

    async fn an_unknown_api_key_is_401(world) {
        for secret in ["mo_unknown", &world.secret[..world.secret.len() - 1], &format!("{}x", world.secret)] {
            world.call(send_request(secret)).await.expect_problem(401, "unauthorized");
        }
        assert!(world.events().await.is_empty());
    }

    async fn a_revoked_api_key_is_401_at_once(world) {
        let created = world.post("/v1/api-keys", &json!({ "name": "worker" })).await.expect_status(201);
        let secret = created.string_field("api_key");
        world.call(send_request(&secret)).await.expect_status(202);
        let revoked = world.call(delete(&format!("/v1/api-keys/{}", created.string_field("id")))).await.expect_status(200);
        assert_eq!(revoked["revoked_at"], world.timestamp_in(0));
        world.call(send_request(&secret)).await.expect_problem(401, "unauthorized");
        world.call(delete(&format!("/v1/api-keys/{}", created.string_field("id")))).await.expect_status(200);
        world.call(delete("/v1/api-keys/019a0000-0000-7000-8000-000000000000")).await.expect_problem(404, "not_found");
        world.call(delete("/v1/api-keys/nonsense")).await.expect_problem(404, "not_found");
    }

    async fn an_expired_api_key_is_401_from_its_expiry_on(world) {
        let secret = world.create_api_key(&json!({ "name": "guest", "expires_at": world.timestamp_in(HOUR) })).await;
        world.call(send_request(&secret)).await.expect_status(202);
        world.advance_clock(HOUR - 1);
        world.call(send_request(&secret)).await.expect_status(202);
        world.advance_clock(1);
        let refused = world.call(send_request(&secret)).await.expect_problem(401, "key_expired");
        assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
        assert_eq!(refused.string_field("expires_at"), world.timestamp_in(0));
        // Once revoked, the key is reported as unauthorized instead of expired.
        let keys = world.get("/v1/api-keys").await.expect_status(200).rows();
        let id = keys.iter().find(|key| key["name"] == "guest").unwrap()["id"].as_str().unwrap().to_owned();
        world.call(delete(&format!("/v1/api-keys/{id}"))).await.expect_status(200);
        world.call(send_request(&secret)).await.expect_problem(401, "unauthorized");
    }

    async fn allow_ips_takes_only_valid_addresses_and_cidr_blocks(world) {
        let blocks = json!(["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"]);
        let created = world.post("/v1/api-keys", &json!({ "name": "office", "allow_ips": blocks })).await.expect_status(201);
        let keys = world.get("/v1/api-keys").await.expect_status(200).rows();
        let office = keys.iter().find(|key| key["name"] == "office").unwrap();
        assert_eq!(office["allow_ips"], json!(["10.0.0.0/8", "2001:db8::/32", "192.0.2.7/32"]));
        // These tests bypass the listener, so the client address is unknown and the call is refused.
        world.call(send_request(&created.string_field("api_key"))).await.expect_problem(403, "ip_not_allowed");
        for bad in ["10.0.0.0/33", "office", "", "10.0.0.0/8,11.0.0.0/8"] {
            let body = json!({ "name": "x", "allow_ips": ["10.0.0.1", bad] });
            world.post("/v1/api-keys", &body).await.expect_problem(422, "invalid_field").expect_field("allow_ips[1]");
        }
        let many: Vec<String> = (0..101).map(|n| format!("10.0.0.{n}")).collect();
        world.post("/v1/api-keys", &json!({ "name": "x", "allow_ips": many })).await.expect_problem(422, "invalid_field");
        let many: Vec<String> = (0..101).map(|n| format!("u{n}@example.com")).collect();
        let refused = world.post("/v1/api-keys", &json!({ "name": "x", "allowed_senders": many })).await;
        refused.expect_problem(422, "invalid_field").expect_field("allowed_senders");
    }

    async fn an_api_key_may_do_only_what_its_scopes_allow(world) {
        let id = world.send("k", &mail()).await.expect_status(202).string_field("id");
        let sender = world.create_api_key(&json!({ "name": "s", "scopes": ["send"] })).await;
        let reader = world.create_api_key(&json!({ "name": "r", "scopes": ["read"] })).await;
        let admin = world.create_api_key(&json!({ "name": "a", "scopes": ["admin"] })).await;
        let (email, key) = (format!("/v1/emails/{id}"), "/v1/keys/k");
        let calls: [(&str, &dyn Fn() -> TestRequest); 9] = [
            ("send", &|| post("/v1/emails").key("k").json(&mail())),
            ("send", &|| post("/v1/emails/batch").key("b").json(&json!([mail()]))),
            ("read", &|| get("/v1/emails")),
            ("read", &|| get(&email)),
            ("read", &|| get(key)),
            ("read", &|| get("/v1/events")),
            ("admin", &|| patch(key).json(&json!({ "ttl": "90d" }))),
            ("admin", &|| get("/v1/api-keys")),
            ("admin", &|| post("/v1/api-keys").json(&json!({ "name": "x", "scopes": ["admin"] }))),
        ];
        for (scope, call) in calls {
            for (holds, secret) in [("send", &sender), ("read", &reader), ("admin", &admin)] {
                let answer = world.call(call().bearer(secret)).await;
                if holds == scope {
                    assert!(answer.status < 300, "{holds}: {}", answer.text);
                } else {
                    let refused = answer.expect_problem(403, "wrong_scope");
                    assert!(refused.string_field("detail").contains(&format!("`{scope}`")), "{}", refused.text);
                }
            }
        }
        world.call(get("/v1/teams").bearer(&admin)).await.expect_problem(403, "wrong_scope");
        world.call(post("/v1/teams").bearer(&admin).json(&json!({ "name": "x" }))).await.expect_problem(403, "wrong_scope");
    }

    async fn an_api_key_sends_only_from_its_allowed_senders(world) {
        let secret = world.create_api_key(&json!({ "name": "bot", "allowed_senders": ["Agent@Example.com", "@news.example.com"] })).await;
        for (from, status) in [
            ("agent@example.com", 202), ("The agent <AGENT@example.com>", 202), ("x@news.example.com", 202),
            ("other@example.com", 403), ("x@evilnews.example.com", 403), ("x@news.example.com.evil.test", 403),
            ("agent@sub.example.com", 403),
        ] {
            let answer = world.call(post("/v1/emails").bearer(&secret).json(&mail_with(json!({ "from": from })))).await;
            assert_eq!(answer.status, status, "{from}: {}", answer.text);
            if status == 403 {
                answer.expect_problem(403, "sender_not_allowed").expect_field("from");
            }
        }
        assert_eq!(world.email_count().await, 3);
    }

    async fn an_api_key_over_its_rate_limit_gets_429_with_retry_after(world) {
        let secret = world.create_api_key(&json!({ "name": "slow", "rate_per_s": 2 })).await;
        for _ in 0..2 {
            world.call(send_request(&secret)).await.expect_status(202);
        }
        let refused = world.call(send_request(&secret)).await.expect_problem(429, "rate_limited");
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(refused["retry"], "later");
        world.advance_clock(500);
        world.call(send_request(&secret)).await.expect_status(202);
        world.call(send_request(&secret)).await.expect_problem(429, "rate_limited");
        world.advance_clock(DAY);
        for status in [202, 202, 429] {
            world.call(send_request(&secret)).await.expect_status(status);
        }
        world.send("others", &mail()).await.expect_status(202);
    }

    async fn an_api_key_cannot_grant_scopes_it_lacks(world) {
        let admin = world.create_api_key(&json!({ "name": "a", "scopes": ["admin", "read"] })).await;
        let make = |scopes| post("/v1/api-keys").bearer(&admin).json(&json!({ "name": "x", "scopes": scopes }));
        for scope in ["send", "operator", "secrets"] {
            world.call(make(json!(["read", scope]))).await.expect_problem(403, "wrong_scope");
        }
        world.call(post("/v1/api-keys").bearer(&admin).json(&json!({ "name": "x" }))).await.expect_problem(403, "wrong_scope");
        world.call(make(json!(["read", "admin"]))).await.expect_status(201);
    }

    async fn an_api_key_cannot_grant_senders_it_may_not_use(world) {
        let bound = world.create_api_key(&json!({ "name": "b", "scopes": ["admin", "send"], "allowed_senders": ["agent@example.com"] })).await;
        let make = |senders| post("/v1/api-keys").bearer(&bound).json(&json!({ "name": "x", "scopes": ["send"], "allowed_senders": senders }));
        for senders in [json!(null), json!([]), json!(["other@example.com"]), json!(["@example.com"])] {
            let answer = world.call(make(senders.clone())).await;
            assert_eq!(answer.status, 403, "{senders}: {}", answer.text);
        }
        world.call(make(json!(["agent@example.com"]))).await.expect_status(201);
    }

    async fn the_api_key_list_shows_creation_times_and_no_secrets(world) {
        let key_body = json!({ "name": "worker", "scopes": ["send"], "allowed_senders": ["@example.com"], "rate_per_s": 5, "inboxes": ["Support@Example.com"] });
        let secret = world.create_api_key(&key_body).await;
        assert!(secret.starts_with("mo_") && secret.len() == 46, "{secret}");
        let list = world.get("/v1/api-keys").await.expect_status(200);
        assert!(!list.text.contains(&secret) && !list.text.contains(&world.secret));
        let row = &list.rows()[0];
        assert_eq!((&row["name"], &row["scopes"]), (&json!("worker"), &json!(["send"])));
        assert_eq!((&row["allowed_senders"], &row["rate_per_s"]), (&json!(["@example.com"]), &json!(5)));
        assert_eq!(row["inboxes"], json!(["support@example.com"]), "addresses are stored in canonical form");
        assert_eq!((&row["secret_prefix"], &row["created_at"]), (&json!(&secret[..7]), &json!(world.timestamp_in(0))));
    }

    async fn a_scope_listed_twice_is_stored_once(world) {
        world.create_api_key(&json!({ "name": "worker", "scopes": ["read", "send", "read"] })).await;
        assert_eq!(world.get("/v1/api-keys").await.expect_status(200).rows()[0]["scopes"], json!(["read", "send"]));
    }

    async fn an_invalid_api_key_request_is_refused(world) {
        let faults = [
            ("name", json!({ "name": "a\r\nb" })),
            ("scopes", json!({ "name": "x", "scopes": ["fly"] })),
            ("allowed_senders", json!({ "name": "x", "allowed_senders": ["nobody"] })),
            ("allowed_senders", json!({ "name": "x", "allowed_senders": ["@"] })),
            ("rate_per_s", json!({ "name": "x", "rate_per_s": 0 })),
            ("expires_at", json!({ "name": "x", "expires_at": "soon" })),
            ("inboxes", json!({ "name": "x", "inboxes": ["a\nb"] })),
            ("inboxes", json!({ "name": "x", "inboxes": ["nope"] })),
            ("name", json!({ "name": "" })),
            ("scopes", json!({ "name": "x", "scopes": [] })),
            ("expires_at", json!({ "name": "x", "expires_at": world.timestamp_in(0) })),
        ];
        for (field, body) in faults {
            world.post("/v1/api-keys", &body).await.expect_problem(422, "invalid_field").expect_field(field);
        }
        world.post("/v1/api-keys", &json!({})).await.expect_problem(400, "invalid_type").expect_field("name");
        world.post("/v1/api-keys", &json!({ "name": "x", "scope": [] })).await.expect_problem(400, "unknown_field").expect_field("scope");
        world.post("/v1/teams", &json!({ "name": "a\nb" })).await.expect_problem(422, "invalid_field").expect_field("name");
        assert_eq!(world.get("/v1/api-keys").await.rows().len(), 1);
    }
}

#[tokio::test]
async fn api_keys_and_revocations_survive_a_restart() {
    let world = World::sqlite().await;
    let active_key = world.create_api_key(&json!({ "name": "kept" })).await;
    let revoked = world.post("/v1/api-keys", &json!({ "name": "ended" })).await.expect_status(201);
    world.call(delete(&format!("/v1/api-keys/{}", revoked.string_field("id")))).await.expect_status(200);
    let world = Box::pin(world.restart()).await;
    world.call(send_request(&active_key)).await.expect_status(202);
    world.call(send_request(&revoked.string_field("api_key"))).await.expect_problem(401, "unauthorized");
}
