//! Policy traces, simulated sends, and rules that only observe.

use serde_json::{Value, json};

use crate::fixtures::{
    api_fixture::{World, mail, mail_with, mail_with_intent},
    requests::{TestResponse, delete, patch, post},
};

/// The steps that are no pass, as `kind name verdict`.
fn findings(steps: &Value) -> Vec<String> {
    let field = |step: &Value, name: &str| step[name].as_str().unwrap().to_owned();
    let text = |step: &Value| ["kind", "name", "verdict"].map(|name| field(step, name)).join(" ");
    let steps = steps.as_array().unwrap().iter();
    steps.filter(|step| step["verdict"] != "pass").map(text).collect()
}

fn names(steps: &Value) -> Vec<&str> {
    steps.as_array().unwrap().iter().map(|step| step["name"].as_str().unwrap()).collect()
}

fn rule(name: &str, subject: &str, action: &str, mode: &str) -> Value {
    let condition = json!({ "field": "subject", "operator": "contains", "value": subject });
    json!({ "name": name, "direction": "outbound", "mode": mode, "match": { "conditions": [condition] },
        "actions": [{ "type": action }] })
}

fn budget(name: &str, limit: u64, at_limit: &str) -> Value {
    json!({ "name": name, "scope": { "team": true }, "measure": "mails", "per": "day", "limit": limit, "at_limit": at_limit })
}

async fn send_traced(world: &World, key: &str, body: &Value) -> TestResponse {
    world.call(post("/v1/emails").key(key).header("prefer", "policy-trace").json(body)).await
}

async fn simulate(world: &World, body: &Value) -> TestResponse {
    world.post("/v1/policy/simulate", body).await.expect_status(200)
}

async fn detail_policy(world: &World, id: &str) -> Value {
    world.get(&format!("/v1/emails/{id}")).await.expect_status(200)["policy"].clone()
}

over_every_engine! {
    async fn every_check_that_looked_at_a_send_is_in_its_trace(world) {
        world.post("/v1/rules", &rule("no gifts", "gift", "block", "enforce")).await.expect_status(201);
        world.post("/v1/rules", &rule("offers", "offer", "approve", "enforce")).await.expect_status(201);
        world.post("/v1/budgets", &budget("daily", 1, "hold")).await.expect_status(201);
        let sent = send_traced(&world, "1", &mail()).await.expect_status(202);
        assert_eq!(
            names(&sent["policy"]),
            ["sender", "stops", "suppressions", "lists", "no gifts", "offers", "daily", "overlaps", "looks_duplicate"]
        );
        assert!(findings(&sent["policy"]).is_empty(), "{}", sent.text);
        // The detail view always has it, and a plain answer does not.
        assert_eq!(detail_policy(&world, &sent.string_field("id")).await, sent["policy"]);
        let offer = world.send("2", &mail_with(json!({ "subject": "an offer" }))).await.expect_status(202);
        assert!(offer.body.get("policy").is_none());
        let policy = detail_policy(&world, &offer.string_field("id")).await;
        assert_eq!(findings(&policy), ["rule offers hold", "budget daily hold"]);
        // What a replay shows is what was decided about the first email.
        let replayed = send_traced(&world, "2", &mail_with(json!({ "subject": "an offer" }))).await.expect_status(200);
        assert_eq!(replayed["policy"], policy);
    }

    async fn a_refusal_shows_its_trace_when_asked(world) {
        world.post("/v1/rules", &rule("no gifts", "gift", "block", "enforce")).await.expect_status(201);
        let gift = mail_with(json!({ "subject": "a gift" }));
        let refused = send_traced(&world, "1", &gift).await.expect_problem(422, "blocked_by_rule");
        assert_eq!(findings(&refused["policy"]), ["rule no gifts refuse"]);
        assert_eq!(names(&refused["policy"]).last(), Some(&"no gifts"), "nothing is asked after a refusal");
        let plain = world.send("1", &gift).await.expect_problem(422, "blocked_by_rule");
        assert!(plain.body.get("policy").is_none());
        world.post("/v1/suppressions", &json!({ "address": "user@example.com", "reason": "asked" })).await.expect_status(201);
        let refused = send_traced(&world, "1", &mail_with(json!({ "to": "user@example.com" }))).await;
        assert_eq!(findings(&refused["policy"]), ["suppression suppressions refuse"]);
    }

    async fn the_guards_of_the_transaction_are_in_the_trace(world) {
        world.post("/v1/budgets", &budget("warn", 0, "flag")).await.expect_status(201);
        let to = |people: &[&str]| { let mut body = mail_with_intent("o"); body["to"] = json!(people); body };
        world.send_without_key(&to(&["a@example.com"])).await.expect_status(202);
        let overlapping = world.send_without_key(&to(&["a@example.com", "b@example.com"])).await.expect_status(202);
        let policy = detail_policy(&world, &overlapping.string_field("id")).await;
        assert_eq!(findings(&policy), ["budget warn flag", "guard overlaps hold"]);
        let why = policy.as_array().unwrap().iter().find(|step| step["name"] == "warn").unwrap()["why"].clone();
        assert_eq!(why, "1 of 0 are used, and this email counts 1");
    }

    async fn a_key_that_may_not_list_rules_sees_only_those_that_decided(world) {
        world.post("/v1/rules", &rule("no gifts", "gift", "block", "enforce")).await.expect_status(201);
        world.post("/v1/rules", &rule("secret plan", "offer", "approve", "observe")).await.expect_status(201);
        let key = world.create_api_key(&json!({ "name": "agent", "scopes": ["send"] })).await;
        let simulate = |subject: &str| post("/v1/policy/simulate").bearer(&key).json(&mail_with(json!({ "subject": subject })));
        let offer = world.call(simulate("an offer")).await.expect_status(200);
        assert!(!offer.text.contains("secret plan") && !offer.text.contains("no gifts"), "{}", offer.text);
        let gift = world.call(simulate("a gift")).await.expect_status(200);
        assert_eq!(findings(&gift["policy"]), ["rule no gifts refuse"]);
    }

    async fn an_edited_email_shows_the_budget_that_holds_it(world) {
        world.post("/v1/rules", &rule("offers", "offer", "approve", "enforce")).await.expect_status(201);
        world.post("/v1/budgets", &budget("daily", 0, "hold")).await.expect_status(201);
        let held = world.send("1", &mail_with(json!({ "subject": "an offer" }))).await.expect_status(202).string_field("id");
        let open = world.escalations("state=open").await;
        let approval = open.iter().find(|escalation| escalation["reason"] == "approval").unwrap();
        let edit = json!({ "as": "edit", "rev": 1, "edit": { "text": "Other words" } });
        world.post(&format!("/v1/escalations/{}/resolve", approval["id"].as_str().unwrap()), &edit).await.expect_status(200);
        let edited = world.email(&held).await["resent_as"].as_str().unwrap().to_owned();
        assert_eq!(findings(&detail_policy(&world, &edited).await), ["budget daily hold"]);
    }

    async fn a_refused_reply_shows_its_trace_when_asked(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        world.post("/v1/rules", &rule("no gifts", "gift", "block", "enforce")).await.expect_status(201);
        world.receive_mail(&["a@agents.test"], "From: ann@x.test\nMessage-ID: <1@x>\nSubject: a gift\n\nhello\n").await;
        let message = world.get(&format!("/v1/inboxes/{inbox}/messages")).await.expect_status(200).ids().remove(0);
        let reply = post(&format!("/v1/messages/{message}/reply")).header("prefer", "policy-trace").json(&json!({ "text": "x" }));
        let refused = world.call(reply).await.expect_problem(422, "blocked_by_rule");
        assert_eq!(findings(&refused["policy"]), ["rule no gifts refuse"]);
    }

    async fn a_reply_that_its_guards_refuse_shows_its_trace_when_asked(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let from_ann = "From: ann@x.test\nMessage-ID: <1@x>\nSubject: a question\n\nhello\n";
        let newer = "From: ann@x.test\nMessage-ID: <2@x>\nIn-Reply-To: <1@x>\nSubject: Re: a question\n\nhello?\n";
        let automatic = "From: bob@x.test\nMessage-ID: <3@x>\nAuto-Submitted: auto-replied\nSubject: away\n\nlater\n";
        let own = "From: a@agents.test\nMessage-ID: <4@x>\nSubject: mine\n\nhello\n";
        for raw in [from_ann, newer, automatic, own] {
            world.receive_mail(&["a@agents.test"], raw).await;
        }
        let messages = world.get(&format!("/v1/inboxes/{inbox}/messages")).await.expect_status(200).rows();
        let by_subject = |subject: &str| messages.iter().find(|message| message["subject"] == subject).unwrap();
        let reply = async |subject: &str| {
            let path = format!("/v1/messages/{}/reply", by_subject(subject)["id"].as_str().unwrap());
            world.call(post(&path).header("prefer", "policy-trace").json(&json!({ "text": "x" }))).await
        };
        for (subject, status, guard) in
            [("a question", 409, "newer_message"), ("away", 422, "automatic"), ("mine", 422, "self")]
        {
            let refused = reply(subject).await.expect_problem(status, guard);
            assert_eq!(findings(&refused["policy"]), [format!("guard {guard} refuse")]);
            assert_eq!(names(&refused["policy"]).last(), Some(&guard), "nothing is asked after a refusal");
        }
        let thread = by_subject("Re: a question")["thread_id"].as_str().unwrap();
        world.post(&format!("/v1/threads/{thread}/lease"), &json!({ "holder": "other" })).await.expect_status(201);
        let refused = reply("Re: a question").await.expect_problem(409, "leased");
        assert_eq!(findings(&refused["policy"]), ["guard leased refuse"]);
        let steps = refused["policy"].as_array().unwrap();
        assert_eq!(steps.last().unwrap()["why"], refused["detail"]);
    }

    async fn a_simulated_send_says_what_would_happen_and_writes_nothing(world) {
        world.post("/v1/rules", &rule("no gifts", "gift", "block", "enforce")).await.expect_status(201);
        world.post("/v1/rules", &rule("offers", "offer", "approve", "enforce")).await.expect_status(201);
        let budget = world.post("/v1/budgets", &budget("daily", 1, "refuse")).await.expect_status(201).string_field("id");
        let events = world.get("/v1/events").await.expect_status(200).rows().len();
        assert_eq!(simulate(&world, &mail()).await["would"], "accept");
        let held = simulate(&world, &mail_with(json!({ "subject": "an offer" }))).await;
        assert_eq!((held["would"].as_str(), findings(&held["policy"])), (Some("hold"), vec!["rule offers hold".to_owned()]));
        let refused = simulate(&world, &mail_with(json!({ "subject": "a gift" }))).await;
        assert_eq!((&refused["would"], &refused["problem"]["code"]), (&json!("refuse"), &json!("blocked_by_rule")));
        assert_eq!(world.email_count().await, 0);
        assert_eq!(world.get("/v1/events").await.expect_status(200).rows().len(), events);
        assert_eq!(world.get(&format!("/v1/budgets/{budget}")).await["used"], 0);
        // The key is looked up and stays free.
        let keyed = |key: &str| post("/v1/policy/simulate").key(key).json(&mail());
        assert_eq!(world.call(keyed("k")).await.expect_status(200)["would"], "accept");
        let first = world.send("k", &mail()).await.expect_status(202).string_field("id");
        let replay = world.call(keyed("k")).await.expect_status(200);
        assert_eq!((&replay["would"], &replay["email"]), (&json!("replay"), &json!(first)));
        assert_eq!(world.get(&format!("/v1/emails/{first}")).await["suppressed_calls"], json!([]));
        let other = post("/v1/policy/simulate").key("k").json(&mail_with(json!({ "text": "other" })));
        assert_eq!(world.call(other).await.expect_status(200)["problem"]["code"], "key_mismatch");
        let full = simulate(&world, &mail()).await;
        assert_eq!((&full["would"], &full["problem"]["code"]), (&json!("refuse"), &json!("quota_exceeded")));
        assert_eq!(findings(&full["policy"]), ["budget daily refuse"]);
    }

    async fn a_stop_for_which_an_email_waits_is_in_its_trace(world) {
        for scope in [json!({ "team": true }), json!({ "transport": "sandbox" })] {
            let body = json!({ "scope": scope, "reason": "wrong prices" });
            let stop = world.post("/v1/stops", &body).await.expect_status(201).string_field("id");
            let simulated = simulate(&world, &mail()).await;
            assert_eq!((simulated["would"].as_str(), findings(&simulated["policy"])), (Some("accept"), vec!["stop stops flag".to_owned()]));
            assert!(simulated.text.contains("wrong prices"), "{}", simulated.text);
            world.call(delete(&format!("/v1/stops/{stop}"))).await.expect_status(200);
            world.engine.handoffs.release_stopped().await;
        }
        world.post("/v1/stops", &json!({ "scope": { "team": true } })).await.expect_status(201);
        let sent = send_traced(&world, "1", &mail()).await.expect_status(202);
        assert_eq!(findings(&sent["policy"]), ["stop stops flag"]);
    }

    async fn batches_and_resends_show_their_trace_and_budget_when_asked(world) {
        let id = world.post("/v1/budgets", &budget("daily", 9, "hold")).await.expect_status(201).string_field("id");
        world.post("/v1/rules", &rule("offers", "offer", "approve", "enforce")).await.expect_status(201);
        let items = json!([mail(), mail_with(json!({ "subject": "an offer" }))]);
        let batch = |wants: &str| post("/v1/emails/batch").key("b").header("prefer", wants).json(&items);
        let sent = world.call(batch("policy-trace")).await.expect_status(202);
        assert!(findings(&sent["data"][0]["policy"]).is_empty(), "{}", sent.text);
        assert_eq!(findings(&sent["data"][1]["policy"]), ["rule offers hold"]);
        let room = &sent["data"][0]["tightest_budget"];
        assert_eq!((&room["id"], &room["remaining"]), (&json!(id), &json!(8)), "held email does not count: {}", sent.text);
        let replayed = world.call(batch("policy-trace")).await.expect_status(200);
        assert_eq!(replayed["data"][1]["policy"], sent["data"][1]["policy"]);
        let plain = world.call(batch("respond-async")).await.expect_status(200);
        assert!(!plain.text.contains("policy"), "{}", plain.text);

        world.hand_off_due().await;
        let path = format!("/v1/emails/{}/resend", sent["data"][0]["id"].as_str().unwrap());
        let resent = world.call(post(&path).header("prefer", "policy-trace").json(&json!({}))).await.expect_status(202);
        assert_eq!((&resent["tightest_budget"]["remaining"], names(&resent["policy"]).contains(&"daily")), (&json!(7), true), "{}", resent.text);
    }

    async fn refused_resends_and_batch_items_show_their_trace_when_asked(world) {
        let sent = world.send("1", &mail_with(json!({ "subject": "a gift" }))).await.expect_status(202).string_field("id");
        let other = world.send("2", &mail_with(json!({ "text": "other" }))).await.expect_status(202).string_field("id");
        world.hand_off_due().await;
        world.post("/v1/rules", &rule("no gifts", "gift", "block", "enforce")).await.expect_status(201);
        world.post("/v1/budgets", &budget("daily", 0, "refuse")).await.expect_status(201);
        let resend = async |id: &str, wants: &str| {
            world.call(post(&format!("/v1/emails/{id}/resend")).header("prefer", wants).json(&json!({}))).await
        };
        let refused = resend(&sent, "policy-trace").await.expect_problem(422, "blocked_by_rule");
        assert_eq!(findings(&refused["policy"]), ["rule no gifts refuse"]);
        assert!(resend(&sent, "respond-async").await.expect_problem(422, "blocked_by_rule").body.get("policy").is_none());
        let full = resend(&other, "policy-trace").await.expect_problem(429, "quota_exceeded");
        assert_eq!(findings(&full["policy"]), ["budget daily refuse"]);
        let missing = resend(&uuid::Uuid::nil().to_string(), "policy-trace").await.expect_problem(404, "not_found");
        assert!(missing.body.get("policy").is_none(), "no check was asked: {}", missing.text);

        let items = json!([mail_with(json!({ "text": "new" })), mail_with(json!({ "subject": "a gift" }))]);
        let batch = |wants: &str, validation: &str| {
            post("/v1/emails/batch").header("prefer", wants).header("x-batch-validation", validation).json(&items)
        };
        let strict = world.call(batch("policy-trace", "strict")).await.expect_problem(422, "blocked_by_rule");
        assert_eq!((&strict["index"], findings(&strict["policy"])), (&json!(1), vec!["rule no gifts refuse".to_owned()]));
        let permissive = world.call(batch("policy-trace", "permissive")).await;
        let steps = |index: usize| findings(&permissive["errors"][index]["policy"]);
        assert_eq!((steps(0), steps(1)), (vec!["budget daily refuse".to_owned()], vec!["rule no gifts refuse".to_owned()]));
        let plain = world.call(batch("respond-async", "permissive")).await;
        assert_eq!(plain["errors"].as_array().unwrap().len(), 2);
        assert!(!plain.text.contains("policy"), "{}", plain.text);
        let strict = post("/v1/emails/batch").header("prefer", "policy-trace").json(&json!([mail()]));
        let strict = world.call(strict).await.expect_problem(429, "quota_exceeded");
        assert_eq!(findings(&strict["policy"]), ["budget daily refuse"]);
    }

    async fn a_rule_that_observes_records_and_does_nothing(world) {
        let world = world.with_inbox_domain().await;
        let created = world.post("/v1/rules", &rule("no gifts", "gift", "block", "observe")).await.expect_status(201);
        assert_eq!(created["mode"], "observe");
        world.post("/v1/rules", &rule("offers", "gift", "approve", "enforce")).await.expect_status(201);
        let gift = mail_with(json!({ "subject": "a gift" }));
        let sent = send_traced(&world, "1", &gift).await.expect_status(202);
        assert_eq!(findings(&sent["policy"]), ["rule no gifts observe", "rule offers hold"]);
        let step = &sent["policy"].as_array().unwrap().iter().find(|step| step["name"] == "no gifts").unwrap()["why"];
        assert_eq!(step, "it matched and would have refused the email");
        let enforce = patch(&format!("/v1/rules/{}", created.string_field("id"))).json(&json!({ "rev": 1, "mode": "enforce" }));
        world.call(enforce).await.expect_status(200);
        world.send("2", &gift).await.expect_problem(422, "blocked_by_rule");
        let mut wrong = rule("other", "x", "block", "enforce");
        wrong["mode"] = json!("watch");
        world.post("/v1/rules", &wrong).await.expect_problem(422, "invalid_field").expect_field("mode");
    }

    async fn an_inbound_rule_that_observes_leaves_the_message_alone(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let condition = json!({ "field": "subject", "operator": "contains", "value": "gift" });
        for action in [json!({ "type": "block" }), json!({ "type": "label", "value": "spam" })] {
            let name = action["type"].as_str().unwrap();
            let rule = json!({ "name": name, "mode": "observe", "match": { "conditions": [condition] }, "actions": [action] });
            world.post("/v1/rules", &rule).await.expect_status(201);
        }
        world.receive_mail(&["a@agents.test"], "From: ann@x.test\nMessage-ID: <1@x>\nSubject: a gift\n\nhello\n").await;
        let message = world.get(&format!("/v1/inboxes/{inbox}/messages")).await.expect_status(200).rows().remove(0);
        assert_eq!((&message["labels"], &message["rules"]), (&json!([]), &json!([])));
        let observed: Vec<_> = message["observed_rules"].as_array().unwrap().iter().map(|rule| rule["name"].clone()).collect();
        assert_eq!(observed, ["block", "label"]);
    }
}
