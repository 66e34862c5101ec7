//! Inboxes: made once, found by id or address, changed, rotated and removed.

use serde_json::json;

use crate::{
    call::{delete, get, patch, post},
    world::HOUR,
};

over_every_engine! {
    async fn names_of_a_shared_domain_belong_to_its_operator(world) {
        let world = world.with_inboxes().await;
        let team = world.team("tenants").await;
        for name in ["postmaster", "Hostmaster", "admin", "administrator", "webmaster", "abuse", "security"] {
            let wish = post("/v1/inboxes").by(&team).json(&json!({ "username": name }));
            world.call(wish).await.refused(409, "address_reserved");
        }
        for disguised in ["admin\u{200b}", "\u{ad}admin", "ａｄｍｉｎ", "poſtmaster", "аdmin", "adm1n"] {
            let wish = post("/v1/inboxes").by(&team).json(&json!({ "username": disguised }));
            world.call(wish).await.refused(409, "address_reserved");
        }
        let wish = json!({ "address": "postmaster@agents.test" });
        world.call(post("/v1/inboxes").by(&team).json(&wish)).await.refused(409, "address_reserved");
        let all = json!({ "username": "all", "catch_all": true });
        world.call(post("/v1/inboxes").by(&team).json(&all)).await.refused(409, "address_reserved");
        let own = world.call(post("/v1/inboxes").by(&team).json(&json!({ "username": "desk" }))).await.is(201);
        let wider = patch(&format!("/v1/inboxes/{}", own.word("id"))).by(&team).json(&json!({ "catch_all": true }));
        world.call(wider).await.refused(409, "address_reserved");
        world.post("/v1/inboxes", &wish).await.is(201);
        world.post("/v1/inboxes", &all).await.is(201);
    }

    async fn an_agent_cannot_widen_the_links_it_trusts(world) {
        let world = world.with_inboxes().await;
        let agent = world.api_key(&json!({ "name": "agent", "scopes": ["send", "read", "reply"] })).await;
        let inbox = world.inbox("desk").await;
        let wider = json!({ "link_domains": ["evil.example"] });
        world.call(patch(&format!("/v1/inboxes/{inbox}")).by(&agent).json(&wider)).await.refused(403, "wrong_scope");
        world.call(post("/v1/inboxes").by(&agent).json(&wider)).await.refused(403, "wrong_scope");
        world.call(patch(&format!("/v1/inboxes/{inbox}")).json(&wider)).await.is(200);
    }

    async fn an_inbox_has_a_random_or_a_chosen_address_and_is_found_by_both_its_names(world) {
        let world = world.with_inboxes().await;
        let random = world.post("/v1/inboxes", &json!({})).await.is(201);
        assert!(random.word("address").ends_with("@agents.test") && random.word("address").len() > 20);
        let chosen = world.post("/v1/inboxes", &json!({ "username": "Sales", "agent": "crm" })).await.is(201);
        assert_eq!(chosen.word("address"), "sales@agents.test");
        let by_id = world.get(&format!("/v1/inboxes/{}", chosen.word("id"))).await.is(200);
        let by_name = world.get("/v1/inboxes/SALES@agents.test").await.is(200);
        assert_eq!((by_id.body, by_name.word("agent")), (chosen.body, "crm".to_owned()));
        assert_eq!(world.get("/v1/inboxes").await.is(200).rows().len(), 2);
        world.get("/v1/inboxes/nobody@agents.test").await.is(404);
    }

    async fn a_client_id_or_a_key_makes_one_inbox_however_often_it_is_asked(world) {
        let world = world.with_inboxes().await;
        let wish = json!({ "client_id": "run-7" });
        let first = world.post("/v1/inboxes", &wish).await.is(201);
        let again = world.post("/v1/inboxes", &wish).await.is(200);
        assert!(again.is_replay());
        assert_eq!(again.word("id"), first.word("id"));
        let keyed = || post("/v1/inboxes").key("k").json(&json!({ "agent": "a" }));
        let one = world.call(keyed()).await.is(201);
        assert_eq!(world.call(keyed()).await.is(200).word("id"), one.word("id"));
        world.call(post("/v1/inboxes").key("k").json(&json!({ "agent": "b" }))).await.refused(422, "key_mismatch");
        assert_eq!(world.get("/v1/inboxes").await.is(200).rows().len(), 2);
    }

    async fn an_address_belongs_to_one_inbox_for_ever(world) {
        let world = world.with_inboxes().await;
        let other = world.team("other").await;
        let id = world.inbox("a").await;
        let wish = json!({ "address": "a@agents.test" });
        world.post("/v1/inboxes", &wish).await.refused(409, "name_taken");
        world.call(post("/v1/inboxes").by(&other).json(&wish)).await.is(409);
        let rotated = world.post(&format!("/v1/inboxes/{id}/rotate"), &json!({})).await.is(200);
        assert_ne!(rotated.word("address"), "a@agents.test");
        world.call(post("/v1/inboxes").by(&other).json(&wish)).await.is(409);
        world.call(delete(&format!("/v1/inboxes/{id}"))).await.is(200);
        world.get(&format!("/v1/inboxes/{id}")).await.is(404);
        world.call(post("/v1/inboxes").by(&other).json(&wish)).await.is(409);
    }

    async fn what_cannot_be_an_inbox_is_refused_with_its_field(world) {
        let world = world.with_inboxes().await;
        for (body, field) in [
            (json!({ "username": "a b" }), "username"),
            (json!({ "username": "a+b" }), "username"),
            (json!({ "address": "a@@agents.test" }), "address"),
            (json!({ "address": "a@agents.test", "username": "a" }), "address"),
            (json!({ "ttl": "soon" }), "ttl"),
            (json!({ "ttl": "500d" }), "ttl"),
            (json!({ "client_id": "" }), "client_id"),
        ] {
            let refused = world.post("/v1/inboxes", &body).await.is(422);
            assert!(refused.text.contains(field), "{body}: {}", refused.text);
        }
        world.post("/v1/inboxes", &json!({ "adress": "a@agents.test" })).await.refused(400, "unknown_field");
        assert!(world.get("/v1/inboxes").await.is(200).rows().is_empty());
    }

    async fn an_inbox_expires_and_keeps_its_history(world) {
        let world = world.with_inboxes().await;
        let made = world.post("/v1/inboxes", &json!({ "username": "a", "ttl": "1h" })).await.is(201);
        let id = made.word("id");
        world.arrives(&["a@agents.test"], "From: x@shop.test\nSubject: one\n\nhello\n").await;
        world.pass(HOUR);
        let late = world.arrives(&["a@agents.test"], "From: x@shop.test\nSubject: two\n\nhello\n").await;
        assert_eq!(late.len(), 1);
        let messages = world.get(&format!("/v1/inboxes/{id}/messages")).await.is(200).rows();
        assert_eq!(messages.len(), 1);
        let rows = world.get("/v1/deliveries?inbox=A@agents.test").await.is(200).rows();
        assert_eq!(rows, world.get(&format!("/v1/deliveries?inbox={id}")).await.is(200).rows());
        world.get("/v1/deliveries?inbox=nobody@agents.test").await.refused(404, "not_found");
        assert_eq!((&rows[0]["state"], &rows[0]["reason"]), (&json!("refused"), &json!("expired_inbox")));
        let patched = world.call(patch(&format!("/v1/inboxes/{id}")).json(&json!({ "ttl": null }))).await.is(200);
        assert!(patched.body["expires_at"].is_null());
    }

    async fn a_change_names_what_it_saw_and_leaves_the_rest(world) {
        let world = world.with_inboxes().await;
        let made = world.post("/v1/inboxes", &json!({ "username": "a", "agent": "x", "metadata": { "k": "v" } })).await;
        let path = format!("/v1/inboxes/{}", made.is(201).word("id"));
        let changed = world.call(patch(&path).json(&json!({ "agent": null, "name": "Ann", "rev": 1 }))).await.is(200);
        assert_eq!((&changed.body["agent"], &changed.body["name"]), (&json!(null), &json!("Ann")));
        assert_eq!(changed.body["metadata"], json!({ "k": "v" }));
        world.call(patch(&path).json(&json!({ "agent": "y", "rev": 1 }))).await.refused(409, "stale_rev");
    }

    async fn a_key_that_is_tied_to_an_inbox_sees_that_one_only(world) {
        let world = world.with_inboxes().await;
        let (mine, theirs) = (world.inbox("mine").await, world.inbox("theirs").await);
        world.arrives(&["theirs@agents.test"], "From: x@shop.test\nSubject: s\n\nhello\n").await;
        let message = world.get(&format!("/v1/inboxes/{theirs}/messages")).await.rows()[0]["id"].clone();
        let message = message.as_str().unwrap();
        for tied in [mine.as_str(), "mine@agents.test"] {
            let key = world.api_key(&json!({ "name": "tied", "scopes": ["read", "secrets"], "inboxes": [tied] })).await;
            let see = async |path: String| world.call(get(&path).by(&key)).await;
            see(format!("/v1/inboxes/{mine}")).await.is(200);
            see(format!("/v1/inboxes/{theirs}")).await.is(404);
            see(format!("/v1/inboxes/{theirs}/messages")).await.is(404);
            see(format!("/v1/inboxes/{theirs}/wait?timeout=0")).await.is(404);
            see(format!("/v1/messages/{message}")).await.is(404);
            see(format!("/v1/messages/{message}/raw")).await.is(404);
            assert_eq!(see("/v1/inboxes".into()).await.is(200).rows().len(), 1);
            world.call(post("/v1/inboxes").by(&key).json(&json!({}))).await.is(403);
        }
    }
}
