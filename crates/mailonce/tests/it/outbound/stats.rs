//! What the dashboard's pages read: statistics, the list of idempotency keys, and the test of a transport.

use serde_json::{Value, json};

use crate::fixtures::{
    api_fixture::{World, mail, mail_with},
    conversations::TestMail,
    requests::{TestRequest, TestResponse, get, post},
};

fn keys(rows: &[Value]) -> Vec<&str> {
    rows.iter().filter_map(|row| row["key"].as_str()).collect()
}

async fn end_lease(world: &World, path: &str, key: &str) -> TestResponse {
    world.call(TestRequest::new("DELETE", path).bearer(key).json(&json!({ "force": true }))).await
}

over_every_engine! {
    async fn statistics_show_what_was_accepted_and_what_was_stopped(world) {
        for _ in 0..3 {
            world.send("k", &mail()).await;
        }
        world.send("other", &mail_with(json!({ "text": "another" }))).await.expect_status(202);
        world.engine.outbound.flush_suppressed_calls().await;
        let stats = world.get("/v1/stats?hours=1").await.expect_status(200);
        assert_eq!((&stats["accepted"], &stats["duplicates"], &stats["bucket_s"]), (&json!(2), &json!(2), &json!(120)));
        assert_eq!(stats["states"], json!({ "queued": 2 }));
        let buckets = stats["buckets"].as_array().unwrap();
        assert_eq!(buckets.len(), 30);
        assert_eq!((&buckets[29]["accepted"], &buckets[29]["duplicates"]), (&json!(2), &json!(2)), "{}", stats.text);
        assert_eq!(stats["needs_you"], json!({}));
        world.post("/v1/escalations", &json!({ "question": "May I?" })).await.expect_status(201);
        assert_eq!(world.get("/v1/stats").await.expect_status(200)["needs_you"], json!({ "asked": 1 }));
        let waiting = world.get("/v1/stats?hours=0").await.expect_status(200);
        assert_eq!((&waiting["needs_you"], &waiting["accepted"]), (&json!({ "asked": 1 }), &json!(0)), "{}", waiting.text);
        assert_eq!((&waiting["states"], &waiting["buckets"]), (&json!({}), &json!([])), "{}", waiting.text);
        for hours in ["745", "x", "-1"] {
            world.get(&format!("/v1/stats?hours={hours}")).await.expect_problem(400, "invalid_query");
        }
    }

    async fn keys_are_listed_by_their_beginning_and_by_duplicates(world) {
        for key in ["order-1", "order-2", "invoice-1"] {
            world.send(key, &mail_with(json!({ "text": key }))).await.expect_status(202);
        }
        world.call(post("/v1/emails").json(&mail_with(json!({ "text": "no key" })))).await.expect_status(202);
        world.send("order-1", &mail_with(json!({ "text": "order-1" }))).await.expect_status(200);
        world.engine.outbound.flush_suppressed_calls().await;
        assert_eq!(keys(&world.get("/v1/keys").await.expect_status(200).rows()), ["invoice-1", "order-2", "order-1"]);
        assert_eq!(keys(&world.get("/v1/keys?prefix=order-").await.expect_status(200).rows()), ["order-2", "order-1"]);
        let stopped = world.get("/v1/keys?duplicates=true").await.expect_status(200).rows();
        assert_eq!((keys(&stopped), &stopped[0]["hits"]), (vec!["order-1"], &json!(1)));
        let first = world.get("/v1/keys?limit=2").await.expect_status(200);
        let rest = world.get(&format!("/v1/keys?limit=2&cursor={}", first.string_field("next_cursor"))).await.expect_status(200);
        assert_eq!((keys(&first.rows()), keys(&rest.rows())), (vec!["invoice-1", "order-2"], vec!["order-1"]));
        assert_eq!(world.get("/v1/emails?duplicates=true").await.expect_status(200).rows().len(), 1);
        world.get("/v1/keys?duplicates=yes").await.expect_problem(400, "invalid_query");
        world.get("/v1/keys?cursor=x").await.expect_problem(400, "invalid_query");
    }

    async fn a_test_email_leaves_by_the_transport_that_is_tested(world) {
        let body = json!({ "from": "ada@example.com", "to": "bob@example.com" });
        let test = || post("/v1/transports/sandbox/test").key("t").json(&body);
        let id = world.call(test()).await.expect_status(202).string_field("id");
        assert_eq!(world.call(test()).await.expect_status(200).string_field("id"), id);
        let email = world.email(&id).await;
        assert_eq!((&email["handoffs"][0]["transport"], &email["subject"]), (&json!("sandbox"), &json!("Test of the transport sandbox")));
        world.call(post("/v1/transports/nowhere/test").json(&body)).await.expect_problem(404, "not_found");
        let sender = world.create_api_key(&json!({ "name": "s", "scopes": ["send"] })).await;
        world.call(test().bearer(&sender)).await.expect_problem(403, "wrong_scope");
    }

    async fn a_person_takes_a_thread_over_from_a_stuck_agent(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let message = world.receive_message(TestMail::default()).await;
        let path = format!("/v1/threads/{}/lease", message["thread_id"].as_str().unwrap());
        let taken = world.post(&path, &json!({ "ttl_s": 600, "holder": "stuck" })).await.expect_status(201);
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["read", "reply"] })).await;
        let approver = world.create_api_key(&json!({ "name": "ada", "scopes": ["read", "approve"] })).await;
        end_lease(&world, &path, &agent).await.expect_problem(403, "wrong_scope");
        for body in [json!({}), json!({ "force": true, "token": taken["token"] }), json!({ "token": null })] {
            world.call(TestRequest::new("DELETE", &path).json(&body)).await.expect_problem(422, "invalid_field");
        }
        assert_eq!(end_lease(&world, &path, &approver).await.expect_status(200)["lease"], Value::Null);
        let late = json!({ "text": "x", "lease": taken["token"] });
        world.reply_with(&message, late).await.expect_problem(409, "leased");
        assert_eq!(world.post(&path, &json!({ "holder": "two" })).await.expect_status(201)["fence"], 3);
        let audit = world.get("/v1/audit?action=thread.lease_ended").await.expect_status(200).rows();
        assert_eq!(audit.len(), 1, "{audit:?}");
        world.call(get("/v1/stats").bearer(&agent)).await.expect_status(200);
    }
}
