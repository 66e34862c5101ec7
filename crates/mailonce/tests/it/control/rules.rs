//! Rules and lists: applied when mail is received, when it is processed, and when an email is sent.

use mailonce_core::inbound::delivery::ReceiveResult;
use serde_json::{Value, json};

use crate::fixtures::{
    api_fixture::{World, incoming_mail, mail, mail_with},
    requests::{delete, patch, post},
};

fn rule_body(name: &str, condition: &Value, actions: &Value) -> Value {
    json!({ "name": name, "match": { "conditions": [condition] }, "actions": actions })
}

fn inbound_mail(from: &str, subject: &str) -> String {
    format!("From: {from}\nMessage-ID: <{subject}@x>\nSubject: {subject}\nX-Kind: bulk\n\nhello\n")
}

async fn first_message(world: &World, inbox: &str) -> Value {
    world.get(&format!("/v1/inboxes/{inbox}/messages")).await.expect_status(200).rows().remove(0)
}

over_memory_and_sqlite! {
    async fn lists_block_mail_of_a_team_or_an_inbox(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        world.create_inbox("b").await;
        let block = json!({ "entry": "Example.COM", "reason": "not now" });
        let created = world.post("/v1/lists/send/block?inbox=a@agents.test", &block).await.expect_status(201);
        assert_eq!((&created["entry"], &created["inbox"]), (&json!("example.com"), &json!("a@agents.test")));
        world.post("/v1/lists/send/block?inbox=a@agents.test", &block).await.expect_status(200);
        let from = |who: &str| mail_with(json!({ "from": format!("{who}@agents.test") }));
        world.send("1", &from("a")).await.expect_problem(422, "blocked_by_rule");
        world.send("2", &from("b")).await.expect_status(202);
        assert_eq!(world.get("/v1/lists/send/block?inbox=a@agents.test").await.expect_status(200).rows().len(), 1);
        assert!(world.get("/v1/lists/send/block").await.expect_status(200).rows().is_empty());
        let path = "/v1/lists/send/block/example.com?inbox=a@agents.test";
        world.call(delete(path)).await.expect_status(200);
        world.call(delete(path)).await.expect_problem(404, "not_found");
        world.send("3", &from("a")).await.expect_status(202);
        world.post("/v1/lists/send/allow", &json!({ "entry": "friends.example" })).await.expect_status(201);
        world.send("4", &from("b")).await.expect_problem(422, "blocked_by_rule");
        for path in ["/v1/lists/out/block", "/v1/lists/send/deny", "/v1/lists/send/block?inbox=nobody@agents.test"] {
            world.post(path, &block).await.expect_problem(404, "not_found");
        }
        world.post("/v1/lists/send/block", &json!({ "entry": "no entry" })).await.expect_problem(422, "invalid_field");
        for (path, entry) in [("send/block", "*@x.example"), ("receive/allow", "sales-*@x.example"), ("reply/block", "*.x.example")] {
            let refused = world.post(&format!("/v1/lists/{path}"), &json!({ "entry": entry })).await;
            assert!(refused.expect_problem(422, "invalid_field").expect_field("entry").string_field("detail").contains("domain"));
        }
    }

    async fn rules_label_and_file_messages_and_are_named_in_the_message(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let header = json!({ "field": "header.x-kind", "operator": "is", "value": "bulk" });
        let actions = json!([{ "type": "label", "value": "news" }, { "type": "folder", "value": "later" }]);
        let created = world.post("/v1/rules", &rule_body("bulk", &header, &actions)).await.expect_status(201);
        let subject = json!({ "field": "subject", "operator": "contains", "value": "NOPE" });
        world.post("/v1/rules", &rule_body("none", &subject, &json!([{ "type": "mark_read" }]))).await.expect_status(201);
        let domain = json!({ "field": "from.domain", "operator": "in_list", "value": ["shop.test", "x.test"] });
        let quiet = json!([{ "type": "skip_agent" }, { "type": "mark_read" }]);
        world.post("/v1/rules", &rule_body("quiet", &domain, &quiet)).await.expect_status(201);
        world.receive_mail(&["a@agents.test"], &inbound_mail("ann@shop.test", "one")).await;
        let message = first_message(&world, &inbox).await;
        assert_eq!(message["labels"], json!(["news"]));
        assert_eq!((&message["folder"], &message["read"]), (&json!("later"), &json!(true)));
        assert_eq!(message["state"], "skipped");
        let names: Vec<&str> = message["rules"].as_array().unwrap().iter().map(|hit| hit["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["bulk", "quiet"]);
        let path = format!("/v1/rules/{}", created.string_field("id"));
        world.call(patch(&path).json(&json!({ "rev": 1, "enabled": false }))).await.expect_status(200);
        world.call(patch(&path).json(&json!({ "rev": 1, "enabled": true }))).await.expect_problem(409, "stale_rev");
        world.receive_mail(&["a@agents.test"], &inbound_mail("ann@shop.test", "two")).await;
        assert_eq!(first_message(&world, &inbox).await["labels"], json!([]));
        world.call(delete(&path)).await.expect_status(200);
        world.get(&path).await.expect_status(404);
    }

    async fn a_block_rule_refuses_mail_on_receipt_or_when_it_is_processed(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let block = json!([{ "type": "block" }]);
        let sender = json!({ "field": "from.domain", "operator": "is", "value": "shop.test" });
        world.post("/v1/rules", &rule_body("sender", &sender, &block)).await.expect_status(201);
        let subject = json!({ "field": "subject", "operator": "contains", "value": "lottery" });
        world.post("/v1/rules", &rule_body("words", &subject, &block)).await.expect_status(201);
        // The envelope sender is at shop.test, so the mail is refused on receipt.
        let received = world.receive_mail(&["a@agents.test"], &inbound_mail("ann@else.test", "one")).await;
        assert!(matches!(received[..], [ReceiveResult::Refused(_)]));
        let mut mail = incoming_mail(&["a@agents.test"], &inbound_mail("ann@else.test", "The lottery"));
        mail.sender = Some("x@else.test".into());
        let stored = world.engine.inbound.receive_mail(mail).await.unwrap();
        assert!(matches!(stored[..], [ReceiveResult::Stored(_)]));
        world.engine.inbound.process_waiting_deliveries().await.unwrap();
        assert!(world.get(&format!("/v1/inboxes/{inbox}/messages")).await.expect_status(200).rows().is_empty());
        let rows = world.get(&format!("/v1/deliveries?inbox={inbox}")).await.expect_status(200).rows();
        assert!(rows.iter().all(|row| row["state"] == "refused" && row["reason"] == "blocked"), "{rows:?}");
        assert_eq!(rows.len(), 2);
    }

    async fn an_outbound_block_refuses_new_emails_and_never_retries(world) {
        let before = world.send("k", &mail()).await.expect_status(202);
        let to = json!({ "field": "recipient.domain", "operator": "is", "value": "example.com" });
        let mut body = rule_body("quiet", &to, &json!([{ "type": "block" }]));
        body["direction"] = json!("outbound");
        let created = world.post("/v1/rules", &body).await.expect_status(201);
        let refused = world.send("k2", &mail()).await.expect_problem(422, "blocked_by_rule");
        assert_eq!(refused["rule"], created["id"]);
        assert_eq!(world.send("k", &mail()).await.expect_status(200).string_field("id"), before.string_field("id"));
        world.send("k2", &mail_with(json!({ "to": "ann@elsewhere.test" }))).await.expect_status(202);
    }

    async fn conditions_accept_booleans_and_numbers(world) {
        let first = json!({ "field": "is_first", "operator": "is", "value": true });
        let mut body = rule_body("first", &first, &json!([{ "type": "block" }]));
        body["direction"] = json!("outbound");
        let created = world.post("/v1/rules", &body).await.expect_status(201);
        assert_eq!(created["match"]["conditions"][0]["value"], "true");
        world.send("1", &mail()).await.expect_problem(422, "blocked_by_rule");
        let any = json!({ "field": "header.x-priority", "operator": "in_list", "value": [1, "2", false] });
        let created = world.post("/v1/rules", &rule_body("urgent", &any, &json!([{ "type": "mark_read" }]))).await.expect_status(201);
        assert_eq!(created["match"]["conditions"][0]["value"], json!(["1", "2", "false"]));
        for value in [json!(1.5), json!(null), json!({ "is": true }), json!([[true]])] {
            let odd = json!({ "field": "subject", "operator": "is", "value": value });
            world.post("/v1/rules", &rule_body("odd", &odd, &json!([{ "type": "mark_read" }]))).await.expect_problem(400, "invalid_type");
        }
        body["match"]["conditions"][0]["value"] = json!(7);
        world.post("/v1/rules", &body).await.expect_problem(422, "invalid_field").expect_field("match.conditions[0].value");
    }

    async fn an_invalid_rule_is_refused_with_the_field_name(world) {
        let good = json!({ "field": "subject", "operator": "is", "value": "x" });
        let actions = json!([{ "type": "mark_read" }]);
        let outbound = |condition: &Value, actions: &Value| {
            let mut body = rule_body("a", condition, actions);
            body["direction"] = json!("outbound");
            body
        };
        for (body, field) in [
            (rule_body("a", &json!({ "field": "topic", "operator": "is", "value": "x" }), &actions), "match.conditions[0].field"),
            (rule_body("a", &json!({ "field": "subject", "operator": "like", "value": "x" }), &actions), "match.conditions[0].operator"),
            (rule_body("a", &json!({ "field": "subject", "operator": "is", "value": ["x", "y"] }), &actions), "match.conditions[0].value"),
            (rule_body("a", &json!({ "field": "subject", "operator": "is", "value": ["x"] }), &actions), "match.conditions[0].value"),
            (rule_body("a", &json!({ "field": "subject", "operator": "in_list", "value": "x" }), &actions), "match.conditions[0].value"),
            (rule_body("a", &json!({ "field": "recipient.is_new", "operator": "is", "value": "true" }), &actions), "match.conditions[0].field"),
            (outbound(&good, &json!([{ "type": "label", "value": "x" }])), "actions[0].type"),
            (outbound(&json!({ "field": "auth.dmarc", "operator": "is", "value": "fail" }), &json!([{ "type": "block" }])), "match.conditions[0].field"),
            (rule_body("a", &good, &json!([{ "type": "explode" }])), "actions[0].type"),
            (rule_body("a", &good, &json!([{ "type": "label" }])), "actions[0].value"),
            (rule_body("a", &good, &json!([])), "actions"),
            (rule_body(" ", &good, &actions), "name"),
        ] {
            world.post("/v1/rules", &body).await.expect_problem(422, "invalid_field").expect_field(field);
        }
        let list = json!(["subject", "is", "x"]);
        for (body, field) in [
            (rule_body("a", &list, &actions), "match.conditions[0]"),
            (rule_body("a", &good, &json!([["mark_read", null]])), "actions[0]"),
            (json!({ "name": "a", "match": [null, [good]], "actions": actions }), "match"),
        ] {
            world.post("/v1/rules", &body).await.expect_problem(400, "invalid_type").expect_field(field);
        }
        let keyed = || post("/v1/rules").key("r").json(&rule_body("a", &good, &actions));
        let created = world.call(keyed()).await.expect_status(201);
        assert_eq!(world.call(keyed()).await.expect_status(200).string_field("id"), created.string_field("id"));
        world.post("/v1/rules", &rule_body("a", &good, &actions)).await.expect_problem(409, "name_taken");
    }
}
