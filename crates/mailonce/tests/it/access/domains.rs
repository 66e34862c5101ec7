//! Sending domains: their DKIM keys, their verification, and which senders they allow.

use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

use crate::fixtures::{
    api_fixture::{MINUTE, World, mail, mail_with},
    engine_deps::TransportFixture,
    requests::{delete, get, patch, post},
};

/// A domain with its required records published.
async fn create_published_domain(fixture: &TransportFixture, name: &str) -> Value {
    let domain = fixture.world.post("/v1/domains", &json!({ "name": name })).await.expect_status(201).body;
    for record in required_records(&domain) {
        fixture.dns.publish(record["name"].as_str().unwrap(), record["value"].as_str().unwrap());
    }
    domain
}

fn required_records(domain: &Value) -> Vec<Value> {
    domain["records"].as_array().unwrap().iter().filter(|record| record["required"] == true).cloned().collect()
}

async fn verify_domain(world: &World, domain: &Value) -> Value {
    let path = format!("/v1/domains/{}/verify", domain["id"].as_str().unwrap());
    world.call(post(&path)).await.expect_status(200).body
}

fn mail_from(address: &str) -> Value {
    mail_with(json!({ "from": address }))
}

over_every_engine! {
    async fn a_new_domain_shows_its_dns_records_and_no_private_key(world) {
        let call = || post("/v1/domains").key("k").json(&json!({ "name": "Mail.Example.com" }));
        let created = world.call(call()).await.expect_status(201);
        assert_eq!((&created["name"], &created["state"]), (&json!("mail.example.com"), &json!("pending")));
        let records = required_records(&created.body);
        let names: Vec<&str> = records.iter().map(|record| record["name"].as_str().unwrap()).collect();
        assert_eq!(names[0], "_mailonce.mail.example.com");
        assert!(names[1].starts_with("mailonce-rsa-") && names[1].ends_with("._domainkey.mail.example.com"));
        assert!(names[2].starts_with("mailonce-ed-"));
        assert!(records[1]["value"].as_str().unwrap().starts_with("v=DKIM1; k=rsa; p=MII"));
        assert!(records[2]["value"].as_str().unwrap().starts_with("v=DKIM1; k=ed25519; p="));
        let again = world.call(call()).await.expect_status(200);
        assert!(again.is_replay());
        let by_name = world.post("/v1/domains", &json!({ "name": "mail.example.com" })).await.expect_status(200);
        let read = world.get(&format!("/v1/domains/{}", created.string_field("id"))).await.expect_status(200);
        let list = world.get("/v1/domains").await.expect_status(200);
        for same in [&again.body, &by_name.body, &read.body, &list.rows()[0]] {
            assert_eq!(same, &created.body);
        }
        assert!(!list.text.contains("sealed"), "{}", list.text);
        world.call(post("/v1/domains").key("k").json(&json!({ "name": "other.example" }))).await.expect_problem(422, "key_mismatch");
        world.call(delete(&format!("/v1/domains/{}", created.string_field("id")))).await.expect_status(200);
        world.get(&format!("/v1/domains/{}", created.string_field("id"))).await.expect_problem(404, "not_found");
        world.call(call()).await.expect_problem(404, "not_found");
    }

    async fn only_a_verified_domain_may_send_when_verification_is_required(world) {
        let fixture = TransportFixture::new(world, true).await;
        let world = &fixture.world;
        world.send("k", &mail_from("agent@example.com")).await.expect_problem(403, "sender_not_verified").expect_field("from");
        let domain = world.post("/v1/domains", &json!({ "name": "example.com" })).await.expect_status(201).body;
        world.send("k", &mail_from("agent@example.com")).await.expect_problem(403, "sender_not_verified");
        let failed = verify_domain(world, &domain).await;
        assert_eq!((&failed["state"], &failed["records"][0]["status"]), (&json!("failed"), &json!("missing")));
        for record in required_records(&domain) {
            fixture.dns.publish(record["name"].as_str().unwrap(), record["value"].as_str().unwrap());
        }
        let verified = verify_domain(world, &domain).await;
        assert_eq!((&verified["state"], &verified["records"][2]["status"]), (&json!("verified"), &json!("found")));
        let first = world.send("k", &mail_from("agent@example.com")).await.expect_status(202);
        world.send("sub", &mail_from("agent@a.b.example.com")).await.expect_status(202);
        for unverified in ["agent@com", "agent@evilexample.com", "agent@other.example"] {
            world.send("x", &mail_from(unverified)).await.expect_problem(403, "sender_not_verified");
        }
        let other = world.create_team("other").await;
        world.call(post("/v1/emails").bearer(&other).json(&mail_from("agent@example.com"))).await.expect_problem(403, "sender_not_verified");
        // Batches follow the same rule. A retry of an accepted email is replayed even after the domain is deleted.
        let items = json!([mail_from("agent@example.com"), mail_from("agent@other.example")]);
        world.call(post("/v1/emails/batch").key("b").json(&items)).await.expect_problem(403, "sender_not_verified").expect_field("[1].from");
        world.call(delete(&format!("/v1/domains/{}", domain["id"].as_str().unwrap()))).await.expect_status(200);
        assert_eq!(world.send("k", &mail_from("agent@example.com")).await.expect_status(200)["id"], first["id"]);
        world.send("new", &mail_from("agent@example.com")).await.expect_problem(403, "sender_not_verified");
    }

    async fn a_domain_stays_verified_until_its_records_are_definitely_gone(world) {
        let fixture = TransportFixture::new(world, true).await;
        let domain = create_published_domain(&fixture, "example.com").await;
        let verified = verify_domain(&fixture.world, &domain).await;
        let token = verified["records"][0]["name"].as_str().unwrap();
        fixture.world.advance_clock(MINUTE);
        fixture.dns.fail_lookups(token);
        let unsure = verify_domain(&fixture.world, &domain).await;
        assert_eq!((&unsure["state"], &unsure["verified_at"]), (&json!("verified"), &verified["verified_at"]));
        assert_eq!(unsure["records"][0]["status"], "unknown");
        fixture.dns.publish(token, "mailonce-domain=of-another-team");
        let gone = verify_domain(&fixture.world, &domain).await;
        assert_eq!((&gone["state"], &gone["records"][0]["status"]), (&json!("failed"), &json!("different")));
        let event_types: Vec<Value> = fixture.world.events().await.iter().map(|event| event["type"].clone()).collect();
        assert_eq!(event_types, ["domain.verified", "domain.failed"]);
        fixture.world.send("k", &mail_from("agent@example.com")).await.expect_problem(403, "sender_not_verified");
    }

    async fn a_verification_with_an_idempotency_key_runs_once(world) {
        let fixture = TransportFixture::new(world, false).await;
        let domain = fixture.world.post("/v1/domains", &json!({ "name": "example.com" })).await.expect_status(201).body;
        let path = format!("/v1/domains/{}/verify", domain["id"].as_str().unwrap());
        let first = fixture.world.call(post(&path).key("v")).await.expect_status(200);
        let again = fixture.world.call(post(&path).key("v")).await.expect_status(200);
        assert_eq!((&again["rev"], &again["checked_at"]), (&first["rev"], &first["checked_at"]));
        fixture.world.send("v", &mail()).await.expect_problem(422, "key_mismatch");
        fixture.world.call(get("/v1/domains/nonsense")).await.expect_problem(404, "not_found");
    }

    async fn mail_of_a_domain_is_signed_with_both_keys(world) {
        let mut fixture = TransportFixture::new(world, false).await;
        let domain = fixture.world.post("/v1/domains", &json!({ "name": "example.com" })).await.expect_status(201).body;
        let (stop, stopped) = watch::channel(false);
        let working = tokio::spawn(Arc::clone(&fixture.world.engine.handoffs).run_handoff(stopped));
        let tags = json!({ "unsubscribe": { "tags": ["news"] } });
        fixture.world.call(patch("/v1/settings").json(&tags)).await.expect_status(200);
        let mut frozen = async |key: &str, body: Value| {
            fixture.world.send(key, &body).await.expect_status(202);
            let bytes = tokio::time::timeout(Duration::from_secs(20), fixture.frozen_bytes.recv()).await.unwrap().unwrap();
            String::from_utf8(bytes).unwrap()
        };
        let signed = frozen("k", mail_from("agent@news.example.com")).await;
        let plain = frozen("p", mail_from("agent@other.example")).await;
        let tag = json!([{ "name": "news", "value": "weekly" }]);
        let news = frozen("n", mail_with(json!({ "from": "agent@news.example.com", "tags": tag }))).await;
        stop.send_replace(true);
        working.await.unwrap();
        let head = signed.split_once("\r\n\r\n").unwrap().0.to_owned();
        for (record, algorithm) in required_records(&domain)[1..].iter().zip(["rsa-sha256", "ed25519-sha256"]) {
            let selector = record["name"].as_str().unwrap().split('.').next().unwrap();
            assert!(head.contains(&format!("s={selector}; ")) && head.contains(algorithm), "{head}");
        }
        assert_eq!((head.matches("DKIM-Signature:").count(), head.matches("d=example.com;").count()), (2, 2), "{head}");
        assert!(!plain.contains("DKIM-Signature:"));
        // RFC 8058: the signature covers both headers of a one-click link.
        let unfolded = news.replace("\r\n ", "").replace("\r\n\t", "").to_ascii_lowercase();
        let signatures: Vec<&str> = unfolded.lines().filter(|line| line.starts_with("dkim-signature:")).collect();
        assert_eq!(signatures.len(), 2, "{news}");
        for signature in signatures {
            let signed = signature.split("h=").nth(1).unwrap().split(';').next().unwrap();
            let names: Vec<&str> = signed.split(':').map(str::trim).collect();
            assert!(names.contains(&"list-unsubscribe") && names.contains(&"list-unsubscribe-post"), "{signature}");
        }
    }
}

#[tokio::test]
async fn invalid_domain_names_are_refused() {
    let world = World::memory().await;
    for name in ["", "localhost", "a b.test", "user@example.com", "-x-.", "http://example.com"] {
        world
            .post("/v1/domains", &json!({ "name": name }))
            .await
            .expect_problem(422, "invalid_field")
            .expect_field("name");
    }
    world.post("/v1/domains", &json!({ "nane": "x.test" })).await.expect_problem(400, "unknown_field");
}
