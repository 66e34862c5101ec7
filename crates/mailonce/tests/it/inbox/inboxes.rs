//! Inboxes: created once, found by id or address, changed, rotated and deleted.

use serde_json::json;

use crate::fixtures::{
    api_fixture::HOUR,
    requests::{delete, get, patch, post},
};

over_every_engine! {
    async fn reserved_names_of_a_shared_domain_belong_to_its_operator(world) {
        let world = world.with_inbox_domain().await;
        let team = world.create_team("tenants").await;
        for name in ["postmaster", "Hostmaster", "admin", "administrator", "webmaster", "abuse", "security"] {
            let request = post("/v1/inboxes").bearer(&team).json(&json!({ "username": name }));
            world.call(request).await.expect_problem(409, "address_reserved");
        }
        for disguised in ["admin\u{200b}", "\u{ad}admin", "ａｄｍｉｎ", "poſtmaster", "аdmin", "adm1n", "𝐚dmin", "admín", "post-master", "_admin"] {
            let request = post("/v1/inboxes").bearer(&team).json(&json!({ "username": disguised }));
            world.call(request).await.expect_problem(409, "address_reserved");
        }
        let request = json!({ "address": "postmaster@agents.test" });
        world.call(post("/v1/inboxes").bearer(&team).json(&request)).await.expect_problem(409, "address_reserved");
        let all = json!({ "username": "all", "catch_all": true });
        world.call(post("/v1/inboxes").bearer(&team).json(&all)).await.expect_problem(409, "address_reserved");
        for allowed_name in ["admission", "supporters", "post"] {
            world.call(post("/v1/inboxes").bearer(&team).json(&json!({ "username": allowed_name }))).await.expect_status(201);
        }
        let own = world.call(post("/v1/inboxes").bearer(&team).json(&json!({ "username": "desk" }))).await.expect_status(201);
        let wider = patch(&format!("/v1/inboxes/{}", own.string_field("id"))).bearer(&team).json(&json!({ "catch_all": true }));
        world.call(wider).await.expect_problem(409, "address_reserved");
        world.post("/v1/inboxes", &request).await.expect_status(201);
        world.post("/v1/inboxes", &all).await.expect_status(201);
    }

    async fn an_agent_key_cannot_extend_the_allowed_link_domains(world) {
        let world = world.with_inbox_domain().await;
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["send", "read", "reply"] })).await;
        let inbox = world.create_inbox("desk").await;
        let wider = json!({ "allowed_link_domains": ["evil.example"] });
        world.call(patch(&format!("/v1/inboxes/{inbox}")).bearer(&agent).json(&wider)).await.expect_problem(403, "wrong_scope");
        world.call(post("/v1/inboxes").bearer(&agent).json(&wider)).await.expect_problem(403, "wrong_scope");
        world.call(patch(&format!("/v1/inboxes/{inbox}")).json(&wider)).await.expect_status(200);
    }

    async fn an_inbox_has_a_random_or_chosen_address_and_is_found_by_id_or_address(world) {
        let world = world.with_inbox_domain().await;
        let random = world.post("/v1/inboxes", &json!({})).await.expect_status(201);
        assert!(random.string_field("address").ends_with("@agents.test") && random.string_field("address").len() > 20);
        let chosen = world.post("/v1/inboxes", &json!({ "username": "Sales", "agent": "crm" })).await.expect_status(201);
        assert_eq!(chosen.string_field("address"), "sales@agents.test");
        let by_id = world.get(&format!("/v1/inboxes/{}", chosen.string_field("id"))).await.expect_status(200);
        let by_name = world.get("/v1/inboxes/SALES@agents.test").await.expect_status(200);
        assert_eq!((by_id.body, by_name.string_field("agent")), (chosen.body, "crm".to_owned()));
        assert_eq!(world.get("/v1/inboxes").await.expect_status(200).rows().len(), 2);
        world.get("/v1/inboxes/nobody@agents.test").await.expect_status(404);
    }

    async fn a_client_id_or_an_idempotency_key_creates_one_inbox(world) {
        let world = world.with_inbox_domain().await;
        let request = json!({ "client_id": "run-7" });
        let first = world.post("/v1/inboxes", &request).await.expect_status(201);
        let again = world.post("/v1/inboxes", &request).await.expect_status(200);
        assert!(again.is_replay());
        assert_eq!(again.string_field("id"), first.string_field("id"));
        let keyed = || post("/v1/inboxes").key("k").json(&json!({ "agent": "a" }));
        let one = world.call(keyed()).await.expect_status(201);
        assert_eq!(world.call(keyed()).await.expect_status(200).string_field("id"), one.string_field("id"));
        world.call(post("/v1/inboxes").key("k").json(&json!({ "agent": "b" }))).await.expect_problem(422, "key_mismatch");
        assert_eq!(world.get("/v1/inboxes").await.expect_status(200).rows().len(), 2);
    }

    async fn an_address_is_never_given_to_another_inbox(world) {
        let world = world.with_inbox_domain().await;
        let other = world.create_team("other").await;
        let id = world.create_inbox("a").await;
        let request = json!({ "address": "a@agents.test" });
        world.post("/v1/inboxes", &request).await.expect_problem(409, "name_taken");
        world.call(post("/v1/inboxes").bearer(&other).json(&request)).await.expect_status(409);
        let rotated = world.post(&format!("/v1/inboxes/{id}/rotate"), &json!({})).await.expect_status(200);
        assert_ne!(rotated.string_field("address"), "a@agents.test");
        world.call(post("/v1/inboxes").bearer(&other).json(&request)).await.expect_status(409);
        world.call(delete(&format!("/v1/inboxes/{id}"))).await.expect_status(200);
        world.get(&format!("/v1/inboxes/{id}")).await.expect_status(404);
        world.call(post("/v1/inboxes").bearer(&other).json(&request)).await.expect_status(409);
    }

    async fn an_invalid_inbox_is_refused_with_the_field_name(world) {
        let world = world.with_inbox_domain().await;
        for (body, field) in [
            (json!({ "username": "a b" }), "username"),
            (json!({ "username": "a+b" }), "username"),
            (json!({ "address": "a@@agents.test" }), "address"),
            (json!({ "address": "a@agents.test", "username": "a" }), "address"),
            (json!({ "ttl": "soon" }), "ttl"),
            (json!({ "ttl": "500d" }), "ttl"),
            (json!({ "client_id": "" }), "client_id"),
        ] {
            let refused = world.post("/v1/inboxes", &body).await.expect_status(422);
            assert!(refused.text.contains(field), "{body}: {}", refused.text);
        }
        world.post("/v1/inboxes", &json!({ "adress": "a@agents.test" })).await.expect_problem(400, "unknown_field");
        assert!(world.get("/v1/inboxes").await.expect_status(200).rows().is_empty());
    }

    async fn an_inbox_expires_and_keeps_its_history(world) {
        let world = world.with_inbox_domain().await;
        let created = world.post("/v1/inboxes", &json!({ "username": "a", "ttl": "1h" })).await.expect_status(201);
        let id = created.string_field("id");
        world.receive_mail(&["a@agents.test"], "From: x@shop.test\nSubject: one\n\nhello\n").await;
        world.advance_clock(HOUR);
        let late = world.receive_mail(&["a@agents.test"], "From: x@shop.test\nSubject: two\n\nhello\n").await;
        assert_eq!(late.len(), 1);
        let messages = world.get(&format!("/v1/inboxes/{id}/messages")).await.expect_status(200).rows();
        assert_eq!(messages.len(), 1);
        let rows = world.get("/v1/deliveries?inbox=A@agents.test").await.expect_status(200).rows();
        assert_eq!(rows, world.get(&format!("/v1/deliveries?inbox={id}")).await.expect_status(200).rows());
        world.get("/v1/deliveries?inbox=nobody@agents.test").await.expect_problem(404, "not_found");
        assert_eq!((&rows[0]["state"], &rows[0]["reason"]), (&json!("refused"), &json!("expired_inbox")));
        let patched = world.call(patch(&format!("/v1/inboxes/{id}")).json(&json!({ "ttl": null }))).await.expect_status(200);
        assert!(patched.body["expires_at"].is_null());
    }

    async fn a_patch_checks_the_rev_and_leaves_other_fields(world) {
        let world = world.with_inbox_domain().await;
        let created = world.post("/v1/inboxes", &json!({ "username": "a", "agent": "x", "metadata": { "k": "v" } })).await;
        let path = format!("/v1/inboxes/{}", created.expect_status(201).string_field("id"));
        let changed = world.call(patch(&path).json(&json!({ "agent": null, "name": "Ann", "rev": 1 }))).await.expect_status(200);
        assert_eq!((&changed.body["agent"], &changed.body["name"]), (&json!(null), &json!("Ann")));
        assert_eq!(changed.body["metadata"], json!({ "k": "v" }));
        world.call(patch(&path).json(&json!({ "agent": "y", "rev": 1 }))).await.expect_problem(409, "stale_rev");
    }

    async fn a_key_tied_to_an_inbox_sees_only_that_inbox(world) {
        let world = world.with_inbox_domain().await;
        let (mine, theirs) = (world.create_inbox("mine").await, world.create_inbox("theirs").await);
        world.receive_mail(&["theirs@agents.test"], "From: x@shop.test\nSubject: s\n\nhello\n").await;
        let message = world.get(&format!("/v1/inboxes/{theirs}/messages")).await.rows()[0]["id"].clone();
        let message = message.as_str().unwrap();
        for tied in [mine.as_str(), "mine@agents.test"] {
            let key = world.create_api_key(&json!({ "name": "tied", "scopes": ["read", "secrets"], "inboxes": [tied] })).await;
            let see = async |path: String| world.call(get(&path).bearer(&key)).await;
            see(format!("/v1/inboxes/{mine}")).await.expect_status(200);
            see(format!("/v1/inboxes/{theirs}")).await.expect_status(404);
            see(format!("/v1/inboxes/{theirs}/messages")).await.expect_status(404);
            see(format!("/v1/inboxes/{theirs}/wait?timeout=0")).await.expect_status(404);
            see(format!("/v1/messages/{message}")).await.expect_status(404);
            see(format!("/v1/messages/{message}/raw")).await.expect_status(404);
            assert_eq!(see("/v1/inboxes".into()).await.expect_status(200).rows().len(), 1);
            world.call(post("/v1/inboxes").bearer(&key).json(&json!({}))).await.expect_status(403);
        }
    }
}
