//! Listing emails and reading a single one.

use serde_json::{Value, json};

use crate::fixtures::{
    api_fixture::{DAY, HOUR, World, mail, mail_with, mail_with_intent},
    requests::{get, post},
};

/// Sends five emails, an hour apart. Returns their ids, oldest first.
async fn send_five_emails(world: &World) -> Vec<String> {
    let mut ids = Vec::new();
    for n in 0..5 {
        let body = mail_with(json!({ "to": format!("r{n}@x.test"), "cc": "All@x.test" }));
        ids.push(world.send(&format!("key-{n}"), &body).await.expect_status(202).string_field("id"));
        world.advance_clock(HOUR);
    }
    ids
}

over_every_engine! {
    async fn emails_are_listed_newest_first_in_pages(world) {
        let mut all = send_five_emails(&world).await;
        all.reverse();
        let (mut seen, mut path) = (Vec::new(), "/v1/emails?limit=2".to_owned());
        loop {
            let page = world.get(&path).await.expect_status(200);
            assert!(page.rows().len() <= 2);
            seen.extend(page.ids());
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            path = format!("/v1/emails?limit=2&cursor={cursor}");
        }
        assert_eq!(seen, all);
        assert_eq!(world.get("/v1/emails").await.expect_status(200).ids(), all);
    }

    async fn the_next_page_ignores_emails_sent_meanwhile(world) {
        let all = send_five_emails(&world).await;
        let page = world.get("/v1/emails?limit=2").await.expect_status(200);
        world.send("newer", &mail()).await.expect_status(202);
        let next = world.get(&format!("/v1/emails?limit=2&cursor={}", page.string_field("next_cursor"))).await.expect_status(200);
        assert_eq!(next.ids(), [all[2].clone(), all[1].clone()]);
    }

    async fn emails_are_filtered_by_state_recipient_key_and_time(world) {
        let all = send_five_emails(&world).await;
        world.call(post(&format!("/v1/emails/{}/cancel", all[0]))).await.expect_status(200);
        let list = async |query: &str| world.get(&format!("/v1/emails?{query}")).await.expect_status(200).ids();
        assert_eq!(list("state=cancelled").await, [all[0].clone()]);
        assert_eq!(list("state=queued").await.len(), 4);
        assert_eq!(list("state=bounced").await, [] as [String; 0]);
        assert_eq!(list("to=R3%40X.test").await, [all[3].clone()]);
        assert_eq!(list("to=all%40x.test").await.len(), 5);
        assert_eq!(list("key=key-2").await, [all[2].clone()]);
        assert_eq!(list("key=key-9").await, [] as [String; 0]);
        let (since, until) = (world.timestamp_in(-3 * HOUR), world.timestamp_in(-HOUR));
        assert_eq!(list(&format!("since={since}&until={until}")).await, [all[3].clone(), all[2].clone()]);
        assert_eq!(list(&format!("since={since}&until={until}&to=r2%40x.test&state=queued&key=key-2")).await, [all[2].clone()]);
        assert_eq!(list(&format!("since={since}&until={until}&to=r1%40x.test")).await, [] as [String; 0]);
    }

    async fn a_list_row_has_state_key_addresses_and_times(world) {
        let id = world.send("k", &mail_with(json!({ "ttl": "1d" }))).await.expect_status(202).string_field("id");
        world.hand_off_due().await;
        let row = world.get("/v1/emails").await.expect_status(200).rows().remove(0);
        assert_eq!((&row["id"], &row["state"], &row["key"]), (&json!(id), &json!("sent"), &json!("k")));
        assert_eq!((&row["from"], &row["to"]), (&json!("agent@example.com"), &json!(["user@example.com"])));
        assert_eq!((&row["settled_at"], &row["expires_at"]), (&json!(world.timestamp_in(0)), &json!(world.timestamp_in(DAY))));
        assert_eq!((&row["counts"], &row["version"], &row["subject"]), (&json!({ "sent": 1 }), &json!(1), &json!("Order 4821")));
    }

    async fn the_single_view_has_content_envelopes_attempts_timeline_and_suppressed_calls(world) {
        let body = mail_with(json!({
            "html": "<p>Hi</p>", "reply_to": "desk@example.com", "headers": { "X-Kind": "receipt" },
            "attachments": [{ "filename": "a.txt", "content": "aGVsbG8=", "content_type": "text/plain" }],
            "tags": ["receipt", { "name": "team", "value": "sales" }], "metadata": { "order": 4821, "vip": true },
        }));
        let id = world.send("k", &body).await.expect_status(202).string_field("id");
        world.advance_clock(HOUR);
        world.hand_off_due().await;
        world.advance_clock(HOUR);
        world.call(post("/v1/emails").header("user-agent", "mailonce-cli/1").key("k").json(&body)).await.expect_status(200);
        world.engine.outbound.flush_suppressed_calls().await;
        let email = world.email(&id).await;
        assert_eq!((&email["text"], &email["html"]), (&body["text"], &body["html"]));
        assert_eq!((&email["headers"], &email["metadata"]), (&body["headers"], &body["metadata"]));
        assert_eq!(email["tags"], json!({ "receipt": null, "team": "sales" }));
        assert_eq!(email["reply_to"], json!(["desk@example.com"]));
        let file = json!({ "filename": "a.txt", "content_type": "text/plain", "content_id": null, "size": 5 });
        assert_eq!(email["attachments"], json!([file]));
        let handoff = &email["handoffs"][0];
        assert_eq!((&handoff["state"], &handoff["transport"]), (&json!("sent"), &json!("sandbox")));
        assert_eq!(handoff["attempts"][0]["outcome"], "accepted");
        assert_eq!(handoff["attempts"][0]["at"], world.timestamp_in(-HOUR));
        let call = &email["suppressed_calls"][0];
        assert_eq!((&call["channel"], &call["reason"], &call["at"]), (&json!("cli"), &json!("key_replay"), &json!(world.timestamp_in(0))));
        assert!(call["caller"].is_string());
        let whens: Vec<&Value> = email["timeline"].as_array().unwrap().iter().map(|fact| &fact["at"]).collect();
        assert_eq!(whens, [&json!(world.timestamp_in(-2 * HOUR)), &json!(world.timestamp_in(-HOUR)), &json!(world.timestamp_in(-HOUR)), &json!(world.timestamp_in(0))]);
        assert_eq!(email["suppressed"], 1);
    }

    async fn the_single_view_shows_the_intent(world) {
        let id = world.send_without_key(&mail_with_intent("order_1")).await.expect_status(202).string_field("id");
        let email = world.email(&id).await;
        assert_eq!(email["intent"], json!({ "type": "order.confirmation", "entity": "order_1", "version": 1 }));
        assert_eq!((&email["suppressed_calls"], &email["on_unknown"]), (&json!([]), &json!("hold")));
    }

    async fn an_invalid_query_is_refused_with_the_parameter_name(world) {
        let faults = [
            ("limit", "0"), ("limit", "101"), ("limit", "-1"), ("limit", "many"), ("limit", ""), ("cursor", "nonsense"),
            ("state", "flying"), ("since", "yesterday"), ("until", "2026-11-15"), ("to", "nobody"), ("key", ""),
        ];
        for (name, value) in faults {
            world.get(&format!("/v1/emails?{name}={value}")).await.expect_problem(400, "invalid_query").expect_field(name);
        }
        for (name, value) in [("limit", "0"), ("limit", "1001"), ("after", "nonsense"), ("after", "1"), ("after", "-1")] {
            world.get(&format!("/v1/events?{name}={value}")).await.expect_problem(400, "invalid_query").expect_field(name);
        }
    }

    async fn an_unknown_parameter_is_refused_and_named(world) {
        for (path, name) in [("/v1/emails?stat=queued", "stat"), ("/v1/events?cursor=0", "cursor")] {
            let refused = world.call(get(path)).await.expect_problem(400, "invalid_query");
            assert!(refused.string_field("detail").contains(name), "{}", refused.text);
            // `next` says to correct the parameter named in `field`.
            refused.expect_field(name);
        }
    }
}
