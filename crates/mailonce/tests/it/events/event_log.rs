//! Listing the event log.

use serde_json::{Value, json};

use crate::{
    fixtures::{
        api_fixture::{DAY, mail, mail_with, mail_with_intent},
        conversations::str_field,
        requests::{delete, get, patch, post},
    },
    outbound::client_disconnects::drop_request_after,
};

fn event_types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

over_memory_and_sqlite! {
    async fn every_change_writes_one_event_in_sequence_without_gaps(world) {
        let later = mail_with(json!({ "scheduled_at": "in 1 hour" }));
        let id = world.send("k", &later).await.expect_status(202).string_field("id");
        world.call(patch(&format!("/v1/emails/{id}")).json(&json!({ "scheduled_at": "in 2 hours" }))).await.expect_status(200);
        world.call(post(&format!("/v1/emails/{id}/cancel"))).await.expect_status(200);
        world.call(post(&format!("/v1/emails/{id}/resend"))).await.expect_status(202);
        world.hand_off_due().await;
        world.send("k", &later).await.expect_status(200);
        world.engine.outbound.flush_suppressed_calls().await;
        world.call(patch("/v1/keys/k").json(&json!({ "ttl": "90d" }))).await.expect_status(200);
        world.call(delete("/v1/keys/k")).await.expect_status(200);
        let mut body = mail_with_intent("order_1");
        body["to"] = json!(["a@x.test", "b@x.test"]);
        world.send_without_key(&body).await.expect_status(202);
        body["to"] = json!("a@x.test");
        world.send_without_key(&body).await.expect_status(202);
        let events = world.events().await;
        let sequence: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
        assert_eq!(sequence, (1..=events.len() as u64).collect::<Vec<_>>());
        let mut found = event_types(&events);
        // The two events of a resend share one commit, so their order may vary.
        found[3..5].sort_unstable();
        assert_eq!(found, [
            "email.accepted", "email.rescheduled", "email.cancelled", "email.accepted", "email.resent", "email.sent",
            "email.duplicate", "key.extended", "key.forgotten", "email.accepted", "email.held",
            "escalation.opened",
        ]);
        let first = &events[0];
        assert_eq!(first["about"], json!({ "kind": "email", "id": id, "rev": 1 }));
        assert_eq!((&first["data"]["state"], &first["data"]["key"]), (&json!("scheduled"), &json!("k")));
        assert_eq!((&first["at"], &events[2]["about"]["rev"]), (&json!(world.timestamp_in(0)), &json!(3)));
        assert_eq!(events[10]["data"]["guard"], "overlaps");
    }

    async fn replays_become_one_event_with_their_count(world) {
        world.send("k", &mail()).await.expect_status(202);
        for _ in 0..5 {
            world.send("k", &mail()).await.expect_status(200);
        }
        world.engine.outbound.flush_suppressed_calls().await;
        world.engine.outbound.flush_suppressed_calls().await;
        let events = world.events().await;
        assert_eq!(event_types(&events), ["email.accepted", "email.duplicate"]);
        assert_eq!(events[1]["data"]["call_count"], 5);
    }

    async fn event_pages_continue_after_a_cursor(world) {
        for n in 0..5 {
            world.send(&format!("k{n}"), &mail()).await.expect_status(202);
        }
        let (mut seen, mut after) = (Vec::new(), "0".to_owned());
        loop {
            let page = world.get(&format!("/v1/events?limit=2&after={after}")).await.expect_status(200);
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            assert_eq!(page.rows().last().unwrap()["cursor"], cursor);
            cursor.clone_into(&mut after);
            seen.extend(page.rows());
        }
        assert_eq!(seen, world.events().await);
        assert_eq!(seen.len(), 5);
        world.send("k5", &mail()).await.expect_status(202);
        let page = world.get(&format!("/v1/events?after={after}")).await.expect_status(200);
        assert_eq!(page.rows()[0]["seq"], 6);
        assert_eq!(world.get("/v1/events?after=0").await.expect_status(200).rows().len(), 6);
    }

    async fn a_cursor_of_another_epoch_is_410(world) {
        world.send("k", &mail()).await.expect_status(202);
        let cursor = world.events().await[0]["cursor"].as_str().unwrap().to_owned();
        let (epoch, seq) = cursor.split_once('-').unwrap();
        let foreign = format!("{}-{seq}", epoch.parse::<u32>().unwrap() + 1);
        let refused = world.get(&format!("/v1/events?after={foreign}")).await.expect_problem(410, "cursor_reset");
        assert!(refused.string_field("next").contains("after=0"), "{}", refused.text);
        world.get(&format!("/v1/events?after={cursor}")).await.expect_status(200);
    }

    async fn events_are_kept_as_long_as_the_team_wants(world) {
        for bad in ["23h", "3651d"] {
            let refused = world.call(patch("/v1/settings").json(&json!({ "retention": { "events": bad } }))).await;
            refused.expect_problem(422, "invalid_field").expect_field("retention.events");
        }
        let kept = world.call(patch("/v1/settings").json(&json!({ "retention": { "events": "1d" } }))).await;
        assert_eq!(kept.expect_status(200)["retention"]["events"], "1d");
        for key in ["a", "b", "c"] {
            world.send(key, &mail()).await.expect_status(202);
        }
        let cursors: Vec<String> = world.events().await.iter().map(|event| str_field(event, "cursor").to_owned()).collect();
        world.advance_clock(2 * DAY);
        world.engine.ctx.confirm_time();
        world.send("d", &mail()).await.expect_status(202);
        world.engine.search.index_all().await.unwrap();
        world.engine.apply_retention().await;

        let refused = world.get(&format!("/v1/events?after={}", cursors[0])).await.expect_problem(410, "cursor_reset");
        assert!(refused.string_field("detail").contains("retention.events"), "{}", refused.text);
        world.get(&format!("/v1/events?type=email.sent&after={}", cursors[1])).await.expect_problem(410, "cursor_reset");
        world.get(&format!("/v1/events/stream?after={}", cursors[1])).await.expect_problem(410, "cursor_reset");
        let endpoint = json!({ "url": "https://receiver.test/hook", "after": cursors[1] });
        world.post("/v1/endpoints", &endpoint).await.expect_problem(410, "cursor_reset");
        for after in ["0", cursors[2].as_str()] {
            let page = world.get(&format!("/v1/events?after={after}")).await.expect_status(200);
            assert_eq!(page.rows().iter().map(|event| event["seq"].clone()).collect::<Vec<_>>(), [json!(4)], "after {after}");
        }
        world.send("e", &mail()).await.expect_status(202);
        assert_eq!(world.events().await.last().unwrap()["seq"], 5);
        assert_eq!(world.send("a", &mail()).await.expect_status(200)["dedupe"]["outcome"], "replayed");
    }

    async fn each_team_has_its_own_event_sequence_from_1(world) {
        let other = world.create_team("other").await;
        world.send("k", &mail()).await.expect_status(202);
        world.send("l", &mail()).await.expect_status(202);
        world.call(post("/v1/emails").bearer(&other).key("k").json(&mail())).await.expect_status(202);
        let theirs = world.call(get("/v1/events").bearer(&other)).await.expect_status(200).rows();
        assert_eq!((theirs.len(), &theirs[0]["seq"]), (1, &json!(1)));
        assert_eq!(world.events().await.len(), 2);
    }

    async fn event_ids_are_stable_and_unique(world) {
        world.send("k", &mail()).await.expect_status(202);
        world.hand_off_due().await;
        let (first, again) = (world.events().await, world.events().await);
        assert_eq!(first, again);
        assert_ne!(first[0]["id"], first[1]["id"]);
    }

    async fn every_email_of_dropped_requests_has_one_accepted_event(world) {
        for n in 0..50 {
            drop_request_after(&world, post("/v1/emails").key(&format!("k{n}")).json(&mail()), 1 + n % 3).await;
        }
        for n in 0..50 {
            world.send(&format!("k{n}"), &mail()).await;
        }
        let events = world.events().await;
        let accepted = events.iter().filter(|event| event["type"] == "email.accepted").count();
        assert_eq!((accepted, world.email_count().await), (50, 50));
    }
}
