//! Stops: switches that keep email from leaving.

use serde_json::{Value, json};

use crate::{
    access::oauth::create_connection,
    fixtures::{
        api_fixture::{World, mail, mail_with},
        binary::{CliFixture, send_args},
        openapi_status::expect_declared_status,
        requests::{delete, get, post},
    },
};

async fn stop(world: &World, scope: Value) -> String {
    world.post("/v1/stops", &json!({ "scope": scope, "reason": "a test" })).await.expect_status(201).string_field("id")
}

async fn state_of(world: &World, id: &str) -> (Value, Value) {
    let email = world.email(id).await;
    (email["state"].clone(), email["stopped_by"].clone())
}

async fn send(world: &World, key: &str, mail: &Value) -> String {
    world.send(key, mail).await.expect_status(202).string_field("id")
}

over_every_engine! {
    async fn stopped_email_waits_and_leaves_after_resume(world) {
        let first = send(&world, "1", &mail()).await;
        let id = stop(&world, json!({ "team": true })).await;
        let second = send(&world, "2", &mail_with(json!({ "text": "another" }))).await;
        world.hand_off_due().await;
        for email in [&first, &second] {
            assert_eq!(state_of(&world, email).await, (json!("queued"), json!(id)));
        }
        let listed = world.get("/v1/emails").await.expect_status(200).rows();
        assert!(listed.iter().all(|email| email["stopped_by"] == id.as_str()), "{listed:?}");

        let ended = world.call(delete(&format!("/v1/stops/{id}"))).await.expect_status(200);
        assert_eq!(ended["state"], "releasing");
        world.engine.handoffs.release_stopped().await;
        world.hand_off_due().await;
        for email in [&first, &second] {
            assert_eq!(state_of(&world, email).await, (json!("sent"), Value::Null));
        }
        assert_eq!(world.get("/v1/stops").await.expect_status(200).rows().len(), 0);
        world.call(delete(&format!("/v1/stops/{id}"))).await.expect_problem(404, "not_found");
    }

    async fn the_same_scope_again_answers_the_stop_that_exists(world) {
        let id = stop(&world, json!({ "team": true })).await;
        let again = world.post("/v1/stops", &json!({ "scope": { "team": true }, "reason": "again" })).await.expect_status(200);
        assert_eq!((&again["id"], &again["reason"]), (&json!(id), &json!("a test")));
        let stricter = json!({ "scope": { "team": true }, "mode": "refuse" });
        let replaced = world.post("/v1/stops", &stricter).await.expect_status(201);
        assert_eq!((&replaced["id"], &replaced["mode"]), (&json!(id), &json!("refuse")));
        world.send("1", &mail()).await.expect_problem(409, "stopped");
        let body = json!({ "scope": { "installation": true } });
        let keyed = || post("/v1/stops").key("s").json(&body);
        let first = world.call(keyed()).await.expect_status(201).string_field("id");
        assert_eq!(world.call(keyed()).await.expect_status(200).string_field("id"), first);
    }

    async fn a_stop_may_refuse_new_sends_and_never_refuses_a_retry(world) {
        let first = send(&world, "1", &mail()).await;
        let body = json!({ "scope": { "team": true }, "mode": "refuse", "reason": "answers in a loop" });
        let id = world.post("/v1/stops", &body).await.expect_status(201).string_field("id");
        let refused = world.send("2", &mail_with(json!({ "text": "b" }))).await.expect_problem(409, "stopped");
        assert_eq!(refused["stop"], id.as_str());
        assert!(refused.string_field("detail").contains("answers in a loop"), "{}", refused.text);
        for (path, body) in [("/v1/emails", mail()), ("/v1/emails/batch", json!([mail()]))] {
            let refused = world.post(path, &body).await.expect_problem(409, "stopped");
            expect_declared_status("POST", path, &refused);
        }
        assert_eq!(world.send("1", &mail()).await.expect_status(200).string_field("id"), first);
        assert_eq!(world.email_count().await, 1);
        world.call(delete(&format!("/v1/stops/{id}"))).await.expect_status(200);
        send(&world, "2", &mail_with(json!({ "text": "b" }))).await;
    }

    async fn a_stop_of_an_api_key_covers_its_email_alone(world) {
        let key = world.post("/v1/api-keys", &json!({ "name": "agent" })).await.expect_status(201);
        let (key_id, secret) = (key.string_field("id"), key.string_field("api_key"));
        let id = stop(&world, json!({ "api_key": key_id })).await;
        let call = post("/v1/emails").key("agent").bearer(&secret).json(&mail());
        let stopped = world.call(call).await.expect_status(202).string_field("id");
        let other = send(&world, "other", &mail_with(json!({ "text": "other" }))).await;
        world.hand_off_due().await;
        assert_eq!(state_of(&world, &stopped).await, (json!("queued"), json!(id)));
        assert_eq!(state_of(&world, &other).await.0, "sent");
    }

    async fn a_stop_of_an_inbox_follows_a_new_address(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let id = stop(&world, json!({ "inbox": inbox })).await;
        world.post(&format!("/v1/inboxes/{inbox}/rotate"), &json!({})).await.expect_status(200);
        let address = world.get(&format!("/v1/inboxes/{inbox}")).await.expect_status(200).string_field("address");
        let stopped = send(&world, "1", &mail_with(json!({ "from": address }))).await;
        let other = send(&world, "2", &mail()).await;
        world.hand_off_due().await;
        assert_eq!(state_of(&world, &stopped).await, (json!("queued"), json!(id)));
        assert_eq!(state_of(&world, &other).await.0, "sent");
    }

    async fn stops_below_the_installation_are_in_sight(world) {
        send(&world, "1", &mail()).await;
        stop(&world, json!({ "team": true })).await;
        world.hand_off_due().await;
        let listed = world.get("/v1/stops").await.expect_status(200).rows();
        assert_eq!(listed[0]["waiting"], 1, "{listed:?}");
        let warnings = world.get("/readyz").await.expect_status(200)["warnings"].to_string();
        assert!(warnings.contains("stops keep some email from leaving: 1 of kind team"), "{warnings}");
        let metrics = world.get("/metrics").await.expect_status(200).text;
        assert!(metrics.contains("mailonce_stops{scope=\"team\"} 1"), "{metrics}");
    }

    async fn email_under_a_pause_is_counted_and_other_teams_are_not_shown(world) {
        let other = world.create_team("other").await;
        for n in ["1", "2"] {
            send(&world, n, &mail_with(json!({ "text": n }))).await;
        }
        world.call(post("/v1/emails").key("3").bearer(&other).json(&mail())).await.expect_status(202);
        world.post("/v1/handoff/pause", &json!({})).await.expect_status(200);
        stop(&world, json!({ "transport": "sandbox" })).await;
        let admin = world.create_api_key(&json!({ "name": "admin", "scopes": ["read", "admin"] })).await;

        for (key, expected) in [(&world.secret, 3), (&admin, 2), (&other, 1)] {
            let listed = world.call(get("/v1/stops").bearer(key)).await.expect_status(200).rows();
            let waiting: Vec<&Value> = listed.iter().map(|stop| &stop["waiting"]).collect();
            assert_eq!(waiting, [&json!(expected), &json!(expected)], "{listed:?}");
        }
    }

    async fn the_hand_off_resumes_at_a_rate(world) {
        world.post("/v1/handoff/pause", &json!({})).await.expect_status(200);
        for rate in [json!(0), json!(10_001), json!("many")] {
            let answer = world.post("/v1/handoff/resume", &json!({ "rate_per_s": rate })).await;
            assert!(matches!(answer.status, 400 | 422), "{rate}: {}", answer.text);
        }
        world.post("/v1/handoff/resume", &json!({ "rate_per_s": 5 })).await.expect_status(200);
        assert_eq!(world.get("/v1/stops").await.expect_status(200).rows()[0]["state"], "releasing");
    }

    async fn a_connected_client_is_stopped_and_limited_like_an_api_key(world) {
        let connection = create_connection(&world).await;
        stop(&world, json!({ "api_key": connection })).await;
        let budget = json!({ "name": "agent", "scope": { "api_key": connection }, "measure": "mails", "per": "day", "limit": 1 });
        world.post("/v1/budgets", &budget).await.expect_status(201);
    }

    async fn pause_and_resume_are_the_stop_of_the_installation(world) {
        let paused = world.post("/v1/handoff/pause", &json!({})).await.expect_status(200);
        assert_eq!(paused["state"], "paused");
        let listed = world.get("/v1/stops").await.expect_status(200).rows();
        assert_eq!(listed[0]["scope"], json!({ "installation": true }));
        let warnings = world.get("/readyz").await.expect_status(200)["warnings"].to_string();
        assert!(warnings.contains("the installation is stopped"), "{warnings}");
        let email = send(&world, "1", &mail()).await;
        world.hand_off_due().await;
        assert_eq!(state_of(&world, &email).await.0, "queued");
        let running = world.post("/v1/handoff/resume", &json!({})).await.expect_status(200);
        assert_eq!(running["state"], "running");
        world.engine.handoffs.release_stopped().await;
        world.hand_off_due().await;
        assert_eq!(state_of(&world, &email).await.0, "sent");
    }

    async fn held_email_still_waits_for_its_approval_after_a_stop(world) {
        let first = send(&world, "1", &mail()).await;
        let held = world.post("/v1/emails", &mail()).await;
        assert_eq!(held["state"], "held", "{}", held.text);
        let id = stop(&world, json!({ "team": true })).await;
        world.call(delete(&format!("/v1/stops/{id}?rate_per_s=1000"))).await.expect_status(200);
        // The first round parks what waits without being parked, so that it leaves at the rate.
        for _ in 0..2 {
            world.hand_off_due().await;
            world.engine.handoffs.release_stopped().await;
            world.advance_clock(5_000);
        }
        world.hand_off_due().await;
        assert_eq!(state_of(&world, &held.string_field("id")).await.0, "held");
        assert_eq!(state_of(&world, &first).await.0, "sent");
    }

    async fn bad_stops_are_refused(world) {
        for (body, field) in [
            (json!({ "scope": {} }), "scope"),
            (json!({ "scope": { "team": true, "installation": true } }), "scope"),
            (json!({ "scope": { "team": false } }), "scope"),
            (json!({ "scope": { "api_key": "x" } }), "scope.api_key"),
            (json!({ "scope": { "api_key": uuid::Uuid::nil().to_string() } }), "scope.api_key"),
            (json!({ "scope": { "transport": "nowhere" } }), "scope.transport"),
            (json!({ "scope": { "team": true }, "mode": "kill" }), "mode"),
            (json!({ "scope": { "team": true }, "reason": "x".repeat(1_001) }), "reason"),
        ] {
            let problem = world.post("/v1/stops", &body).await.expect_problem(422, "invalid_field");
            assert!(problem.text.contains(&format!("\"{field}\"")), "{body}: {}", problem.text);
        }
        assert_eq!(world.get("/v1/stops").await.expect_status(200).rows().len(), 0);
        let id = stop(&world, json!({ "team": true })).await;
        for rate in ["0", "x", "10001", "-1"] {
            let answer = world.call(delete(&format!("/v1/stops/{id}?rate_per_s={rate}"))).await;
            assert!(matches!(answer.status, 400 | 422), "{rate}: {} {}", answer.status, answer.text);
        }
    }

    async fn stops_need_the_right_scopes(world) {
        let admin = world.create_api_key(&json!({ "name": "admin", "scopes": ["read", "admin"] })).await;
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["read", "send"] })).await;
        for scope in [json!({ "installation": true }), json!({ "transport": "sandbox" })] {
            let call = post("/v1/stops").bearer(&admin).json(&json!({ "scope": scope }));
            world.call(call).await.expect_problem(403, "wrong_scope");
        }
        let body = json!({ "scope": { "team": true } });
        world.call(post("/v1/stops").bearer(&agent).json(&body)).await.expect_problem(403, "wrong_scope");
        let id = world.call(post("/v1/stops").bearer(&admin).json(&body)).await.expect_status(201).string_field("id");
        world.call(delete(&format!("/v1/stops/{id}")).bearer(&agent)).await.expect_problem(403, "wrong_scope");
        assert_eq!(world.call(get("/v1/stops").bearer(&agent)).await.expect_status(200).rows().len(), 1);
        let events = world.events().await;
        assert!(events.iter().any(|event| event["type"] == "stop.created"), "{events:?}");
    }
}

#[tokio::test]
async fn the_command_line_shows_what_is_stopped() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let stop = cli.run(&["stop", "--team", "--reason", "a test"]).await.expect_exit(0).json();
    let stop = stop["id"].as_str().unwrap();
    let would_send =
        ["policy", "try", "--plain", "--from", "a@x.test", "--to", "b@x.test", "--subject", "Hi", "--text", "Hi."];
    let tried = cli.run(&would_send).await.expect_exit(0);
    assert!(tried.stdout.contains("wait until a stop ends"), "{tried:?}");
    let waited = cli.run(&[&send_args("1", "x")[..], &["--plain", "--wait", "1"]].concat()).await.expect_exit(4);
    assert!(waited.stdout.contains("stopped_by") && waited.stderr.contains(stop), "{waited:?}");
    let listed = cli.run(&["emails", "list", "--plain"]).await.expect_exit(0);
    assert!(listed.stdout.contains("queued (stopped)"), "{listed:?}");
    let id = cli.run(&["emails", "list"]).await.json()["data"][0]["id"].as_str().unwrap().to_owned();
    let shown = cli.run(&["emails", "show", "--plain", &id]).await.expect_exit(0);
    assert!(shown.stdout.contains(stop), "{shown:?}");
    let checked = cli.run(&["doctor", "--plain"]).await;
    assert!(checked.stdout.contains("stops keep some email from leaving: 1 of kind team"), "{checked:?}");
    server.terminate().await;
}
