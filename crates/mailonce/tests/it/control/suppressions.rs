//! Suppressed addresses, to which a team sends no mail.

use serde_json::json;

use crate::fixtures::{
    api_fixture::{DAY, SECOND, World, mail, mail_with},
    requests::{delete, get, post},
};

async fn suppress(world: &World, address: &str) {
    world.post("/v1/suppressions", &json!({ "address": address, "reason": "asked us to" })).await.expect_status(201);
}

over_every_engine! {
    async fn an_address_is_suppressed_read_and_removed(world) {
        let created = world.post("/v1/suppressions", &json!({ "address": "Gone@Bücher.example" })).await.expect_status(201);
        assert_eq!((&created["address"], &created["reason"]), (&json!("gone@xn--bcher-kva.example"), &json!("manual")));
        for spelling in ["gone@xn--bcher-kva.example", "GONE@b%C3%BCcher.example", "gone%40xn--bcher-kva.example"] {
            let read = world.get(&format!("/v1/suppressions/{spelling}")).await.expect_status(200);
            assert_eq!(read.body, created.body, "{spelling}");
        }
        let again = world.post("/v1/suppressions", &json!({ "address": "gone@bücher.example", "reason": "other" })).await.expect_status(200);
        assert_eq!(again.body, created.body, "the first reason is kept");
        assert!(again.is_replay());
        world.call(delete("/v1/suppressions/gone@xn--bcher-kva.example")).await.expect_status(200);
        world.get("/v1/suppressions/gone@xn--bcher-kva.example").await.expect_problem(404, "not_found");
        world.call(delete("/v1/suppressions/gone@xn--bcher-kva.example")).await.expect_problem(404, "not_found");
        world.get("/v1/suppressions/nonsense").await.expect_problem(404, "not_found");
    }

    async fn suppressions_are_listed_newest_first_in_pages(world) {
        for number in 0..5 {
            suppress(&world, &format!("{number}@example.com")).await;
        }
        let (mut addresses, mut path) = (Vec::new(), "/v1/suppressions?limit=2".to_owned());
        loop {
            let page = world.get(&path).await.expect_status(200);
            addresses.extend(page.rows().iter().map(|row| row["address"].as_str().unwrap().to_owned()));
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            path = format!("/v1/suppressions?limit=2&cursor={cursor}");
        }
        assert_eq!(addresses, ["4@example.com", "3@example.com", "2@example.com", "1@example.com", "0@example.com"]);
        world.get("/v1/suppressions?cursor=x").await.expect_problem(400, "invalid_query").expect_field("cursor");
    }

    async fn a_mail_to_a_suppressed_address_is_refused_with_the_field(world) {
        // The list is loaded into memory before the first address is added.
        world.send("before", &mail()).await.expect_status(202);
        suppress(&world, "gone@example.com").await;
        let cases = [
            ("to[1]", json!({ "to": ["user@example.com", "Gone <GONE@example.com>"] })),
            ("cc[0]", json!({ "cc": ["gone@example.com"] })),
            ("bcc[2]", json!({ "bcc": ["a@example.com", "b@example.com", "gone@example.com"] })),
        ];
        for (field, more) in cases {
            let refused = world.send("k", &mail_with(more)).await.expect_problem(422, "recipient_suppressed").expect_field(field);
            assert_eq!((&refused["reason"], &refused["recipient"]), (&json!("asked us to"), &json!("gone@example.com")));
        }
        world.send("k", &mail()).await.expect_status(202);
        world.call(delete("/v1/suppressions/gone@example.com")).await.expect_status(200);
        world.send("again", &mail_with(json!({ "to": "gone@example.com" }))).await.expect_status(202);
    }

    async fn suppressions_are_loaded_at_startup(world) {
        suppress(&world, "user@example.com").await;
        let world = Box::pin(world.restart()).await;
        world.send("k", &mail()).await.expect_problem(422, "recipient_suppressed").expect_field("to[0]");
    }

    async fn a_retry_of_an_accepted_email_is_never_refused(world) {
        let first = world.send("k", &mail()).await.expect_status(202);
        suppress(&world, "user@example.com").await;
        assert_eq!(world.send("k", &mail()).await.expect_status(200)["id"], first["id"]);
        let world = Box::pin(world.restart()).await;
        assert_eq!(world.send("k", &mail()).await.expect_status(200)["id"], first["id"]);
        world.send("new", &mail()).await.expect_problem(422, "recipient_suppressed");
    }

    async fn a_permissive_batch_refuses_only_the_suppressed_item(world) {
        suppress(&world, "gone@example.com").await;
        let items = json!([mail(), mail_with(json!({ "to": "gone@example.com" }))]);
        let strict = world.call(post("/v1/emails/batch").key("b").json(&items)).await;
        strict.expect_problem(422, "recipient_suppressed").expect_field("[1].to[0]");
        let call = post("/v1/emails/batch").key("b").header("x-batch-validation", "permissive").json(&items);
        let answer = world.call(call).await.expect_status(202);
        assert_eq!(answer["errors"][0]["code"], "recipient_suppressed");
        assert!(answer["data"][0]["id"].is_string() && answer["data"][1].is_null());
    }

    async fn a_resend_to_a_suppressed_address_is_refused(world) {
        let id = world.send("k", &mail()).await.expect_status(202).string_field("id");
        world.hand_off_due().await;
        suppress(&world, "user@example.com").await;
        let resend = format!("/v1/emails/{id}/resend");
        world.call(post(&resend)).await.expect_problem(422, "recipient_suppressed").expect_field("to[0]");
        world.call(delete("/v1/suppressions/user@example.com")).await.expect_status(200);
        let next = world.call(post(&resend)).await.expect_status(202);
        suppress(&world, "user@example.com").await;
        assert_eq!(world.call(post(&resend)).await.expect_status(200)["id"], next["id"], "a replay is still answered");
    }

    async fn suppressions_apply_to_one_team_only(world) {
        let other = world.create_team("other").await;
        suppress(&world, "user@example.com").await;
        world.call(post("/v1/emails").bearer(&other).json(&mail())).await.expect_status(202);
        world.call(get("/v1/suppressions/user@example.com").bearer(&other)).await.expect_problem(404, "not_found");
        world.call(delete("/v1/suppressions/user@example.com").bearer(&other)).await.expect_problem(404, "not_found");
        assert!(world.call(get("/v1/suppressions").bearer(&other)).await.expect_status(200).rows().is_empty());
    }

    async fn a_read_key_cannot_change_suppressions(world) {
        suppress(&world, "user@example.com").await;
        let reader = world.create_api_key(&json!({ "name": "r", "scopes": ["read"] })).await;
        world.call(get("/v1/suppressions").bearer(&reader)).await.expect_status(200);
        world.call(get("/v1/suppressions/user@example.com").bearer(&reader)).await.expect_status(200);
        world.call(delete("/v1/suppressions/user@example.com").bearer(&reader)).await.expect_problem(403, "wrong_scope");
        let call = post("/v1/suppressions").bearer(&reader).json(&json!({ "address": "a@example.com" }));
        world.call(call).await.expect_problem(403, "wrong_scope");
    }

    async fn a_suppression_with_an_idempotency_key_is_created_once(world) {
        let call = |reason: &str| {
            post("/v1/suppressions").key("k").json(&json!({ "address": "a@example.com", "reason": reason }))
        };
        let first = world.call(call("x")).await.expect_status(201);
        assert_eq!(world.call(call("x")).await.expect_status(200).body, first.body);
        world.call(call("y")).await.expect_problem(422, "key_mismatch");
        world.send("k", &mail()).await.expect_problem(422, "key_mismatch");
    }

    async fn an_invalid_suppression_is_refused_with_the_field_name(world) {
        for (body, status, code, field) in [
            (json!({ "address": "nonsense" }), 422, "invalid_field", "address"),
            (json!({}), 400, "invalid_type", "address"),
            (json!({ "address": "a@b.test", "reson": "x" }), 400, "unknown_field", "reson"),
            (json!({ "address": "a@b.test", "reason": "a\nb" }), 422, "invalid_field", "reason"),
        ] {
            world.post("/v1/suppressions", &body).await.expect_problem(status, code).expect_field(field);
        }
    }
}

/// A second node sees a new suppression within seconds, when it reloads the list.
#[tokio::test]
async fn another_node_applies_suppressions_within_seconds() {
    let world = World::postgres().await;
    let (other, secret) = world.second_node().await;
    let send = |key: &'static str| post("/v1/emails").key(key).json(&mail()).build(&secret);
    let status = async |key| tower::ServiceExt::oneshot(other.clone(), send(key)).await.unwrap().status().as_u16();
    assert_eq!(status("1").await, 202);
    suppress(&world, "user@example.com").await;
    world.advance_clock(5 * SECOND);
    assert_eq!(status("2").await, 422);
    world.advance_clock(DAY);
    assert_eq!(status("3").await, 422);
    world.call(delete("/v1/suppressions/user@example.com")).await.expect_status(200);
    assert_eq!(status("4").await, 202, "a removed address is free at once");
}
