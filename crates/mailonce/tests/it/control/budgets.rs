//! Budgets: how many mails and recipients a team, an inbox or an API key may send in a period.

use serde_json::{Value, json};

use crate::fixtures::{
    api_fixture::{World, mail, mail_with},
    binary::{CliFixture, SpawnedServer, send_args},
    requests::{delete, patch, post},
};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

fn budget_body(scope: &Value, measure: &str, per: &str, limit: u64) -> Value {
    json!({ "name": format!("{measure} per {per}"), "scope": scope, "measure": measure, "per": per, "limit": limit })
}

fn team_scope() -> Value {
    json!({ "team": true })
}

/// A mail to this many recipients.
fn mail_to_recipients(people: usize) -> Value {
    mail_with(json!({ "to": (0..people).map(|n| format!("u{n}@example.com")).collect::<Vec<_>>() }))
}

async fn budget_usage(world: &World, id: &str) -> (u64, u64) {
    let budget = world.get(&format!("/v1/budgets/{id}")).await.expect_status(200);
    (budget["used"].as_u64().unwrap(), budget["remaining"].as_u64().unwrap())
}

over_memory_and_sqlite! {
    async fn one_call_cannot_send_a_thousand_mails_past_a_budget(world) {
        let key = world.post("/v1/api-keys", &json!({ "name": "agent", "rate_per_s": 1 })).await.expect_status(201);
        let (id, secret) = (key.string_field("id"), key.string_field("api_key"));
        world.post("/v1/budgets", &budget_body(&json!({ "api_key": id }), "mails", "minute", 10)).await.expect_status(201);
        let items: Vec<Value> = (0..1_000).map(|_| mail_to_recipients(50)).collect();
        let batch = || post("/v1/emails/batch").key("b").json(&json!(items)).bearer(&secret);
        let refused = world.call(batch()).await.expect_problem(429, "quota_exceeded");
        assert_eq!((&refused["limit"], &refused["used"]), (&json!(10), &json!(10)), "{}", refused.text);
        assert_eq!(world.email_count().await, 0, "a strict batch is refused whole");
        world.advance_clock(1_000);
        let permissive = world.call(batch().header("x-batch-validation", "permissive")).await.expect_status(202);
        assert_eq!(world.email_count().await, 10, "{}", permissive.text);
        world.advance_clock(1_000);
        // Other API keys of the team are not affected.
        world.send("other", &mail()).await.expect_status(202);
    }

    async fn to_cc_and_bcc_recipients_all_count_against_a_budget(world) {
        let id = world.post("/v1/budgets", &budget_body(&team_scope(), "recipients", "day", 5)).await.expect_status(201).string_field("id");
        let three = mail_with(json!({ "cc": ["c@example.com"], "bcc": ["d@example.com"] }));
        world.send("1", &three).await.expect_status(202);
        assert_eq!(budget_usage(&world, &id).await, (3, 2));
        let refused = world.send("2", &three).await.expect_problem(429, "quota_exceeded");
        assert_eq!(refused["budget"]["name"], "recipients per day");
        assert_eq!(refused["resets_at"], world.get(&format!("/v1/budgets/{id}")).await["resets_at"]);
        // A mail that can never fit is refused without a retry time.
        let never = world.send("3", &mail_to_recipients(6)).await.expect_problem(429, "quota_exceeded");
        assert!(never.string_field("detail").contains("alone counts 6") && never.header("retry-after").is_none());
        assert!(never["retry"] == "never" && never.string_field("next").contains("Do not retry"), "{}", never.text);
        assert_eq!(budget_usage(&world, &id).await, (3, 2));
    }

    async fn a_retry_is_replayed_and_a_refused_key_succeeds_in_the_next_period(world) {
        let id = world.post("/v1/budgets", &budget_body(&team_scope(), "mails", "hour", 1)).await.expect_status(201).string_field("id");
        let first = world.send("1", &mail()).await.expect_status(202).string_field("id");
        assert_eq!(world.send("1", &mail()).await.expect_status(200).string_field("id"), first);
        let refused = world.send("2", &mail()).await.expect_problem(429, "quota_exceeded");
        let wait: i64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!(wait > 0 && wait <= 3_600, "{wait}");
        assert_eq!((&refused["retry"], refused["retry_after"].as_i64()), (&json!("later"), Some(wait)));
        world.advance_clock(wait * 1_000);
        world.send("2", &mail()).await.expect_status(202);
        assert_eq!(budget_usage(&world, &id).await, (1, 0));
    }

    async fn an_inbox_budget_counts_only_mails_and_replies_of_that_inbox(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        world.create_inbox("b").await;
        let scope = json!({ "inbox": "a@agents.test" });
        let created = world.post("/v1/budgets", &budget_body(&scope, "mails", "day", 2)).await.expect_status(201);
        assert_eq!(created["scope"], json!({ "inbox": inbox }));
        let from = |who: &str| mail_with(json!({ "from": format!("{who}@agents.test") }));
        world.send("1", &from("a")).await.expect_status(202);
        world.send("2", &from("b")).await.expect_status(202);
        world.receive_mail(&["a@agents.test"], "From: ann@x.test\nMessage-ID: <1@x>\nSubject: hi\n\nhello\n").await;
        let message = world.get(&format!("/v1/inboxes/{inbox}/messages")).await.expect_status(200).ids().remove(0);
        let reply = |text: &str| post(&format!("/v1/messages/{message}/reply")).json(&json!({ "text": text }));
        let sent = world.call(reply("yes")).await.expect_status(202).string_field("id");
        // An address with a plus tag counts for the same inbox, and a resend counts as another mail.
        world.send("3", &from("a+x")).await.expect_problem(429, "quota_exceeded");
        world.hand_off_due().await;
        world.post(&format!("/v1/emails/{sent}/resend"), &json!({ "reason": "lost" })).await.expect_problem(429, "quota_exceeded");
        world.receive_mail(&["a@agents.test"], "From: ann@x.test\nMessage-ID: <2@x>\nSubject: more\n\nhello\n").await;
        let next = world.get(&format!("/v1/inboxes/{inbox}/messages")).await.expect_status(200).ids();
        let next = next.into_iter().find(|id| *id != message).unwrap();
        let refused = world.post(&format!("/v1/messages/{next}/reply"), &json!({ "text": "no" })).await;
        assert_eq!(refused.expect_problem(429, "quota_exceeded")["guard"], "budget");
        assert_eq!(world.get(&format!("/v1/messages/{next}")).await["state"], "unanswered");
    }

    async fn a_scheduled_mail_counts_in_the_period_in_which_it_is_due(world) {
        let id = world.post("/v1/budgets", &budget_body(&team_scope(), "mails", "day", 1)).await.expect_status(201).string_field("id");
        let tomorrow = |hours: i64| mail_with(json!({ "scheduled_at": world.timestamp_in(DAY + hours * HOUR) }));
        world.send("1", &tomorrow(0)).await.expect_status(202);
        assert_eq!(budget_usage(&world, &id).await, (0, 1));
        world.send("2", &mail()).await.expect_status(202);
        world.send("3", &tomorrow(0)).await.expect_problem(429, "quota_exceeded");
        world.advance_clock(DAY);
        assert_eq!(budget_usage(&world, &id).await, (1, 0));
    }

    async fn budgets_are_created_changed_and_deleted(world) {
        let body = budget_body(&team_scope(), "mails", "day", 0);
        let created = world.call(post("/v1/budgets").key("k").json(&body)).await.expect_status(201);
        let again = world.call(post("/v1/budgets").key("k").json(&body)).await.expect_status(200);
        assert_eq!(created.string_field("id"), again.string_field("id"));
        world.post("/v1/budgets", &body).await.expect_problem(409, "name_taken").expect_field("name");
        world.send("1", &mail()).await.expect_problem(429, "quota_exceeded");
        let path = format!("/v1/budgets/{}", created.string_field("id"));
        let off = world.call(patch(&path).json(&json!({ "rev": 1, "enabled": false }))).await.expect_status(200);
        assert_eq!((&off["enabled"], &off["rev"], &off["limit"]), (&json!(false), &json!(2), &json!(0)));
        world.send("1", &mail()).await.expect_status(202);
        world.call(patch(&path).json(&json!({ "rev": 1, "limit": 9 }))).await.expect_problem(409, "stale_rev");
        let on = world.call(patch(&path).json(&json!({ "rev": 2, "enabled": true, "limit": 1 }))).await.expect_status(200);
        assert_eq!((&on["used"], &on["remaining"]), (&json!(0), &json!(1)), "mails sent while the budget was disabled are not counted");
        world.send("2", &mail()).await.expect_status(202);
        world.send("3", &mail()).await.expect_problem(429, "quota_exceeded");
        assert_eq!(world.get("/v1/budgets").await.expect_status(200).rows().len(), 1);
        world.call(delete(&path)).await.expect_status(200);
        world.call(delete(&path)).await.expect_problem(404, "not_found");
        world.send("3", &mail()).await.expect_status(202);
    }

    async fn a_bad_budget_is_refused_with_the_field_name(world) {
        let good = budget_body(&team_scope(), "mails", "day", 5);
        for (member, value) in [
            ("scope", json!({})), ("scope", json!({ "team": false })), ("scope", json!({ "team": true, "inbox": "x" })),
            ("measure", json!("bytes")), ("per", json!("week")), ("at_limit", json!("wait")),
            ("scope.recipient", json!({ "recipient": "nobody" })), ("scope.recipient_domain", json!({ "recipient_domain": "not a domain" })),
            ("limit", json!(1_000_000_001)), ("name", json!(" ")),
            ("scope.api_key", json!({ "api_key": "x" })),
            ("scope.api_key", json!({ "api_key": "0197a3c2-7d3e-7c11-9b1e-2f6d3a4b5c6d" })),
        ] {
            let mut body = good.clone();
            body[member.split('.').next().unwrap()] = value.clone();
            let answer = world.post("/v1/budgets", &body).await.expect_problem(422, "invalid_field");
            assert!(answer.text.contains(&format!("\"{member}\"")), "{value}: {}", answer.text);
        }
        for limit in [json!(-1), json!(1.5), json!("5")] {
            let mut body = good.clone();
            body["limit"] = limit;
            assert_eq!(world.post("/v1/budgets", &body).await.status / 100, 4);
        }
        let nobody = budget_body(&json!({ "inbox": "nobody@agents.test" }), "mails", "day", 5);
        world.post("/v1/budgets", &nobody).await.expect_problem(404, "not_found");
        assert!(world.get("/v1/budgets").await.expect_status(200).rows().is_empty());
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["send", "read"] })).await;
        world.call(post("/v1/budgets").bearer(&agent).json(&good)).await.expect_problem(403, "wrong_scope");
    }

    async fn a_team_has_at_most_a_hundred_budgets(world) {
        for n in 0..100 {
            let mut body = budget_body(&team_scope(), "mails", "day", 1_000);
            body["name"] = json!(format!("b{n}"));
            world.post("/v1/budgets", &body).await.expect_status(201);
        }
        world.post("/v1/budgets", &budget_body(&team_scope(), "mails", "day", 5)).await.expect_problem(422, "invalid_field");
    }
}

/// Budgets that hold or flag email.
mod holds {
    use serde_json::{Value, json};
    use std::sync::Arc;

    use super::{DAY, budget_body, budget_usage, team_scope};
    use crate::fixtures::{
        api_fixture::{World, mail, mail_with},
        requests::{patch, post},
    };

    fn holding_budget(measure: &str, per: &str, limit: u64) -> Value {
        let mut body = budget_body(&team_scope(), measure, per, limit);
        body["at_limit"] = json!("hold");
        body
    }

    async fn state_and_holds(world: &World, id: &str) -> (Value, Value) {
        let email = world.email(id).await;
        (email["state"].clone(), email["holds"].clone())
    }

    /// Of 64 callers on two nodes exactly as many mails leave as the budget allows, also after three were cancelled and
    /// both nodes release what waits at the same time.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn two_nodes_let_exactly_the_limit_leave() {
        let world = World::postgres().await;
        let other = world.node_with_own_store().await;
        world.post("/v1/budgets", &holding_budget("mails", "day", 20)).await.expect_status(201);
        let routers = [world.router(), mailonce::api::router(Arc::clone(&other), false)];
        let calls = (0..64).map(|n: usize| {
            let request = post("/v1/emails").key(&format!("k{n}")).json(&mail()).build(world.secret());
            tokio::spawn(tower::ServiceExt::oneshot(routers[n % 2].clone(), request))
        });
        for answer in calls.collect::<Vec<_>>() {
            assert_eq!(answer.await.unwrap().unwrap().status().as_u16(), 202);
        }
        let in_state = async |state: &str| {
            world.get(&format!("/v1/emails?limit=100&state={state}")).await.expect_status(200).rows()
        };
        let held = in_state("held").await;
        assert_eq!((in_state("queued").await.len(), held.len()), (20, 44));
        assert!(held.iter().all(|email| email["holds"] == json!(["budget"])));
        for email in in_state("queued").await.iter().take(3) {
            for _ in 0..2 {
                let path = format!("/v1/emails/{}/cancel", email["id"].as_str().unwrap());
                world.call(post(&path)).await.expect_status(200);
            }
        }
        for _ in 0..2 {
            let (one, two) =
                tokio::join!(world.engine.budgets.release_held_by_budget(), other.budgets.release_held_by_budget());
            one.unwrap();
            two.unwrap();
        }
        assert_eq!((in_state("queued").await.len(), in_state("held").await.len()), (20, 41));
        // A mail of yesterday frees no place today.
        let yesterday = in_state("queued").await[0]["id"].as_str().unwrap().to_owned();
        world.advance_clock(DAY);
        world.call(post(&format!("/v1/emails/{yesterday}/cancel"))).await.expect_status(200);
        for _ in 0..2 {
            let (one, two) =
                tokio::join!(world.engine.budgets.release_held_by_budget(), other.budgets.release_held_by_budget());
            one.unwrap();
            two.unwrap();
        }
        assert_eq!((in_state("queued").await.len(), in_state("held").await.len()), (19 + 20, 21));
        // Exactly these leave.
        world.hand_off_due().await;
        assert_eq!((in_state("sent").await.len(), in_state("held").await.len()), (19 + 20, 21));
    }

    over_every_engine! {
        async fn replies_and_tools_show_the_tightest_budget(world) {
            let world = world.with_inbox_domain().await;
            let inbox = world.create_inbox("a").await;
            world.post("/v1/budgets", &holding_budget("mails", "day", 9)).await.expect_status(201);
            let month = world.post("/v1/budgets", &holding_budget("mails", "month", 5)).await.expect_status(201);
            let month = month.string_field("id");
            let room = |body: &Value| (body["tightest_budget"]["id"].clone(), body["tightest_budget"]["remaining"].clone());
            let raw = "From: ann@x.test\nMessage-ID: <1@x>\nSubject: a question\n\nhello\n";
            world.receive_mail(&["a@agents.test"], raw).await;
            let message = world.get(&format!("/v1/inboxes/{inbox}/messages")).await.expect_status(200).ids().remove(0);
            let path = format!("/v1/messages/{message}/reply");
            let replied = world.post(&path, &json!({ "text": "an answer" })).await.expect_status(202);
            assert_eq!(room(&replied.body), (json!(month), json!(4)), "{}", replied.text);

            let arguments = json!({ "inbox": "a@agents.test", "to": "bob@x.test", "subject": "News", "text": "It is done.",
                "type": "news", "entity": "n1" });
            let params = json!({ "name": "send_email", "arguments": arguments });
            let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
            let call = post("/mcp").header("mcp-protocol-version", "2025-11-25").json(&call);
            let sent = world.call(call).await.expect_status(200);
            assert_eq!(room(&sent["result"]["structuredContent"]), (json!(month), json!(3)), "{}", sent.text);
        }

        async fn mail_beyond_the_limit_is_held_and_leaves_by_itself_when_there_is_room(world) {
            let budget = world.post("/v1/budgets", &holding_budget("mails", "day", 1)).await.expect_status(201).string_field("id");
            let first = world.send("1", &mail()).await.expect_status(202);
            assert_eq!((&first["tightest_budget"]["remaining"], &first["tightest_budget"]["id"]), (&json!(0), &json!(budget)));
            let held = world.send("2", &mail()).await.expect_status(202);
            assert_eq!((&held["state"], &held["guard"], &held["holds"]), (&json!("held"), &json!("budget"), &json!(["budget"])));
            assert!(held.string_field("next").contains("leaves by itself"), "{}", held.text);
            let replayed = world.send("2", &mail()).await.expect_status(200);
            assert_eq!((replayed.string_field("id"), &replayed["holds"]), (held.string_field("id"), &json!(["budget"])));
            assert_eq!(world.escalations("state=open").await[0]["reason"], "budget");
            assert_eq!(world.engine.budgets.release_held_by_budget().await.unwrap(), 0);
            assert_eq!(budget_usage(&world, &budget).await, (1, 0));
            world.advance_clock(DAY);
            assert_eq!(world.engine.budgets.release_held_by_budget().await.unwrap(), 1);
            assert_eq!(world.engine.budgets.release_held_by_budget().await.unwrap(), 0, "once");
            world.engine.escalations.run_escalation_round().await;
            assert!(world.escalations("state=open").await.is_empty());
            assert_eq!(world.hand_off_and_count_sent().await, 2);
            assert_eq!(budget_usage(&world, &budget).await, (1, 0));
        }

        async fn a_cancelled_mail_gives_its_place_to_a_held_one(world) {
            world.post("/v1/budgets", &holding_budget("mails", "day", 1)).await.expect_status(201);
            let first = world.send("1", &mail()).await.expect_status(202).string_field("id");
            let held = world.send("2", &mail()).await.expect_status(202).string_field("id");
            for _ in 0..2 {
                world.call(post(&format!("/v1/emails/{first}/cancel"))).await.expect_status(200);
            }
            assert_eq!(world.engine.budgets.release_held_by_budget().await.unwrap(), 1);
            assert_eq!(state_and_holds(&world, &held).await, (json!("queued"), json!([])));
            let third = world.send("3", &mail()).await.expect_status(202);
            assert_eq!(third["state"], "held", "the place was given back once");
        }

        async fn a_person_releases_mail_that_a_budget_holds(world) {
            world.post("/v1/budgets", &holding_budget("mails", "month", 0)).await.expect_status(201);
            let held = world.send("1", &mail()).await.expect_status(202).string_field("id");
            let escalation = world.escalations("state=open").await.remove(0);
            world.resolve_escalation(&escalation, "release").await.expect_status(200);
            assert_eq!(state_and_holds(&world, &held).await, (json!("queued"), json!([])));
        }

        async fn mail_that_needs_approval_and_room_leaves_after_both(world) {
            let rule = json!({
                "name": "first contact", "direction": "outbound",
                "match": { "conditions": [] }, "actions": [{ "type": "approve_new_recipients" }],
            });
            world.post("/v1/rules", &rule).await.expect_status(201);
            let budget = world.post("/v1/budgets", &holding_budget("mails", "day", 0)).await.expect_status(201);
            let held = world.send("1", &mail()).await.expect_status(202);
            assert_eq!((&held["guard"], &held["holds"]), (&json!("approval"), &json!(["approval", "budget"])));
            let open = world.escalations("state=open").await;
            let mut reasons: Vec<&str> = open.iter().filter_map(|escalation| escalation["reason"].as_str()).collect();
            reasons.sort_unstable();
            assert_eq!(reasons, ["approval", "budget"]);
            let approval = open.iter().find(|escalation| escalation["reason"] == "approval").unwrap();
            world.resolve_escalation(approval, "release").await.expect_status(200);
            let id = held.string_field("id");
            assert_eq!(state_and_holds(&world, &id).await, (json!("held"), json!(["budget"])));
            assert_eq!(world.hand_off_and_count_sent().await, 0);
            let path = format!("/v1/budgets/{}", budget.string_field("id"));
            world.call(patch(&path).json(&json!({ "rev": 1, "limit": 1 }))).await.expect_status(200);
            assert_eq!(world.engine.budgets.release_held_by_budget().await.unwrap(), 1);
            assert_eq!(world.hand_off_and_count_sent().await, 1);
            // The team mailed this person now.
            world.call(patch(&path).json(&json!({ "rev": 2, "limit": 9 }))).await.expect_status(200);
            assert_eq!(world.send("2", &mail()).await.expect_status(202)["state"], "queued");
        }

        async fn a_waived_budget_does_not_hold_again_and_a_used_one_asks_again(world) {
            let rule = json!({
                "name": "all", "direction": "outbound",
                "match": { "operator": "any", "conditions": [] }, "actions": [{ "type": "approve_new_recipients" }],
            });
            world.post("/v1/rules", &rule).await.expect_status(201);
            let budget = world.post("/v1/budgets", &holding_budget("mails", "day", 0)).await.expect_status(201);
            let path = format!("/v1/budgets/{}", budget.string_field("id"));
            let open = async |reason: &str| {
                let open = world.escalations("state=open").await;
                open.into_iter().find(|escalation| escalation["reason"] == reason)
            };
            let waived = world.send("1", &mail()).await.expect_status(202).string_field("id");
            for reason in ["budget", "approval"] {
                world.resolve_escalation(&open(reason).await.unwrap(), "release").await.expect_status(200);
            }
            assert_eq!(state_and_holds(&world, &waived).await, (json!("queued"), json!([])));
            // There is room, so only the approval is left. When it comes, the room is gone.
            let to = mail_with(json!({ "to": ["eve@example.com"] }));
            let held = world.send("2", &to).await.expect_status(202).string_field("id");
            world.call(patch(&path).json(&json!({ "rev": 1, "limit": 9 }))).await.expect_status(200);
            assert_eq!(world.engine.budgets.release_held_by_budget().await.unwrap(), 1);
            world.engine.escalations.run_escalation_round().await;
            assert!(open("budget").await.is_none());
            world.call(patch(&path).json(&json!({ "rev": 2, "limit": 0 }))).await.expect_status(200);
            world.resolve_escalation(&open("approval").await.unwrap(), "release").await.expect_status(200);
            assert_eq!(state_and_holds(&world, &held).await, (json!("held"), json!(["budget"])));
            world.resolve_escalation(&open("budget").await.unwrap(), "release").await.expect_status(200);
            assert_eq!(state_and_holds(&world, &held).await, (json!("queued"), json!([])));
        }

        async fn mail_that_a_person_rejected_does_not_leave_by_a_resend(world) {
            world.post("/v1/budgets", &holding_budget("mails", "day", 0)).await.expect_status(201);
            let held = world.send("1", &mail()).await.expect_status(202).string_field("id");
            let escalation = world.escalations("state=open").await.remove(0);
            world.resolve_escalation(&escalation, "reject").await.expect_status(200);
            let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["send", "read"] })).await;
            let again = world.call(post(&format!("/v1/emails/{held}/resend")).bearer(&agent)).await;
            assert_eq!(again["holds"], json!(["approval", "budget"]), "{}", again.text);
        }

        async fn an_edited_mail_counts_for_the_api_key_that_sent_it(world) {
            let key = world.post("/v1/api-keys", &json!({ "name": "agent" })).await.expect_status(201);
            let mut body = budget_body(&json!({ "api_key": key.string_field("id") }), "mails", "day", 0);
            body["at_limit"] = json!("hold");
            world.post("/v1/budgets", &body).await.expect_status(201);
            let rule = json!({
                "name": "all", "direction": "outbound",
                "match": { "conditions": [] }, "actions": [{ "type": "approve_new_recipients" }],
            });
            world.post("/v1/rules", &rule).await.expect_status(201);
            let send = post("/v1/emails").key("1").bearer(&key.string_field("api_key")).json(&mail());
            let held = world.call(send).await.expect_status(202).string_field("id");
            let open = world.escalations("state=open").await;
            let approval = open.iter().find(|escalation| escalation["reason"] == "approval").unwrap();
            let edit = json!({ "as": "edit", "rev": 1, "edit": { "text": "Other words" } });
            let path = format!("/v1/escalations/{}/resolve", approval["id"].as_str().unwrap());
            world.post(&path, &edit).await.expect_status(200);
            let edited = world.email(&held).await["resent_as"].as_str().unwrap().to_owned();
            assert_eq!(state_and_holds(&world, &edited).await, (json!("held"), json!(["budget"])));
            assert_eq!(world.engine.budgets.release_held_by_budget().await.unwrap(), 0);
        }

        async fn a_budget_that_flags_sends_and_says_so(world) {
            let mut body = budget_body(&team_scope(), "mails", "hour", 0);
            body["at_limit"] = json!("flag");
            world.post("/v1/budgets", &body).await.expect_status(201);
            let flagged = world.send("1", &mail()).await.expect_status(202);
            assert_eq!((&flagged["state"], &flagged["guard"]), (&json!("queued"), &json!("budget")));
            assert!(flagged["holds"].is_null());
        }

        async fn each_recipient_and_each_domain_is_counted_on_its_own(world) {
            for (scope, limit) in [(json!({ "recipient": "any" }), 1), (json!({ "recipient_domain": "any" }), 2)] {
                let mut body = budget_body(&scope, "mails", "day", limit);
                body["name"] = scope.to_string().into();
                let created = world.post("/v1/budgets", &body).await.expect_status(201);
                assert!(created["used"].is_null() && created["scope"] == scope, "{}", created.text);
            }
            let to = |address: &str| mail_with(json!({ "to": [address] }));
            world.send("1", &to("ann@one.test")).await.expect_status(202);
            world.send("2", &to("Ann@one.test")).await.expect_problem(429, "quota_exceeded");
            world.send("3", &to("bob@one.test")).await.expect_status(202);
            world.send("4", &to("eve@one.test")).await.expect_problem(429, "quota_exceeded");
            world.send("5", &to("eve@two.test")).await.expect_status(202);
        }

        async fn new_recipients_are_counted_once(world) {
            world.post("/v1/budgets", &budget_body(&team_scope(), "new_recipients", "day", 2)).await.expect_status(201);
            let to = |address: &str| mail_with(json!({ "to": [address] }));
            for (key, address) in [("1", "ann@one.test"), ("2", "ann@one.test"), ("3", "bob@one.test"), ("4", "ann@one.test")] {
                world.send(key, &to(address)).await.expect_status(202);
                world.hand_off_due().await;
            }
            world.send("5", &to("eve@one.test")).await.expect_problem(429, "quota_exceeded");
            world.send("6", &to("bob@one.test")).await.expect_status(202);
            world.advance_clock(DAY);
            world.send("5", &to("eve@one.test")).await.expect_status(202);
        }

        async fn days_begin_in_the_time_zone_of_the_team(world) {
            let settings = |zone: &str| patch("/v1/settings").json(&json!({ "time_zone": zone }));
            world.call(settings("Moon/Crater")).await.expect_problem(422, "invalid_field").expect_field("time_zone");
            let zone = world.call(settings("Pacific/Kiritimati")).await.expect_status(200);
            assert_eq!(zone["time_zone"], "Pacific/Kiritimati");
            let budget = world.post("/v1/budgets", &budget_body(&team_scope(), "mails", "day", 1)).await.expect_status(201);
            // The zone is 14 hours ahead of UTC, so its midnight is 10:00 UTC.
            assert!(budget.string_field("resets_at").ends_with("T10:00:00.000Z"), "{}", budget.text);
            let month = world.post("/v1/budgets", &budget_body(&team_scope(), "mails", "month", 1)).await.expect_status(201);
            assert!(month.string_field("resets_at").ends_with("T10:00:00.000Z"), "{}", month.text);
        }
    }
}

/// Rescheduling mail moves its budget charge to the new period.
mod reschedules {
    use serde_json::{Value, json};

    use super::{DAY, HOUR, budget_body, budget_usage, team_scope};
    use crate::fixtures::{
        api_fixture::{World, mail, mail_with},
        requests::{TestResponse, patch, post},
    };

    async fn schedule_email(world: &World, key: &str, ms: i64) -> String {
        world
            .send(key, &mail_with(json!({ "scheduled_at": world.timestamp_in(ms) })))
            .await
            .expect_status(202)
            .string_field("id")
    }

    async fn reschedule(world: &World, id: &str, ms: i64) -> TestResponse {
        world.call(patch(&format!("/v1/emails/{id}")).json(&json!({ "scheduled_at": world.timestamp_in(ms) }))).await
    }

    async fn scheduled_at(world: &World, id: &str) -> Value {
        world.get(&format!("/v1/emails/{id}")).await.expect_status(200)["scheduled_at"].clone()
    }

    over_every_engine! {
        async fn scheduled_mail_rescheduled_to_now_stays_within_the_budget(world) {
            let budget = world.post("/v1/budgets", &budget_body(&team_scope(), "mails", "day", 2)).await.expect_status(201).string_field("id");
            for key in ["1", "2"] {
                world.send(key, &mail()).await.expect_status(202);
            }
            for day in 1..4 {
                let id = schedule_email(&world, &format!("day {day}"), day * DAY).await;
                // A time in the past means now and must count in the current day.
                for ms in [0, -HOUR, -DAY, -3 * DAY, HOUR] {
                    let refused = reschedule(&world, &id, ms).await.expect_problem(429, "quota_exceeded");
                    assert!(refused.header("retry-after").is_some() && refused["used"] == 2, "{}", refused.text);
                }
                assert_eq!(scheduled_at(&world, &id).await, world.timestamp_in(day * DAY), "the refused reschedule must not change the time");
            }
            world.hand_off_due().await;
            let emails = world.get("/v1/emails").await.expect_status(200).rows();
            let sent = emails.iter().filter(|email| email["state"] == "sent").count();
            assert_eq!((sent, budget_usage(&world, &budget).await), (2, (2, 0)));
        }

        async fn rescheduling_to_another_day_frees_budget_and_within_a_day_changes_nothing(world) {
            let budget = world.post("/v1/budgets", &budget_body(&team_scope(), "mails", "day", 1)).await.expect_status(201).string_field("id");
            let id = schedule_email(&world, "1", HOUR).await;
            assert_eq!(budget_usage(&world, &budget).await, (1, 0));
            for ms in [2 * HOUR, HOUR, 3 * HOUR] {
                reschedule(&world, &id, ms).await.expect_status(200);
                assert_eq!(budget_usage(&world, &budget).await, (1, 0));
            }
            reschedule(&world, &id, DAY).await.expect_status(200);
            assert_eq!(budget_usage(&world, &budget).await, (0, 1));
            // Another mail takes the freed budget of today, so the first cannot move back. Tomorrow's budget is used.
            world.send("2", &mail()).await.expect_status(202);
            reschedule(&world, &id, HOUR).await.expect_problem(429, "quota_exceeded");
            world.send("3", &mail_with(json!({ "scheduled_at": world.timestamp_in(DAY) }))).await.expect_problem(429, "quota_exceeded");
            world.advance_clock(DAY);
            assert_eq!(budget_usage(&world, &budget).await, (1, 0));
        }

        async fn mail_older_than_the_budget_counts_once_it_is_rescheduled(world) {
            let id = schedule_email(&world, "1", DAY).await;
            let budget = world.post("/v1/budgets", &budget_body(&team_scope(), "mails", "day", 1)).await.expect_status(201).string_field("id");
            reschedule(&world, &id, DAY + HOUR).await.expect_status(200);
            let other = schedule_email(&world, "2", DAY).await;
            reschedule(&world, &id, 0).await.expect_status(200);
            assert_eq!(budget_usage(&world, &budget).await, (1, 0));
            reschedule(&world, &other, 0).await.expect_problem(429, "quota_exceeded");
            // Tomorrow's budget is used by the other mail alone.
            world.send("3", &mail_with(json!({ "scheduled_at": world.timestamp_in(DAY) }))).await.expect_problem(429, "quota_exceeded");
        }

        async fn rescheduled_mail_counts_for_the_api_key_that_sent_it(world) {
            let key = world.post("/v1/api-keys", &json!({ "name": "agent" })).await.expect_status(201);
            let scope = json!({ "api_key": key.string_field("id") });
            let budget = world.post("/v1/budgets", &budget_body(&scope, "mails", "day", 1)).await.expect_status(201).string_field("id");
            let secret = key.string_field("api_key");
            let by_agent = |key: &str, body: &Value| post("/v1/emails").key(key).json(body).bearer(&secret);
            world.call(by_agent("1", &mail())).await.expect_status(202);
            let later = mail_with(json!({ "scheduled_at": world.timestamp_in(DAY) }));
            let id = world.call(by_agent("2", &later)).await.expect_status(202).string_field("id");
            reschedule(&world, &id, 0).await.expect_problem(429, "quota_exceeded");
            assert_eq!(budget_usage(&world, &budget).await, (1, 0));
            // A mail of another API key is not affected.
            let own = schedule_email(&world, "3", DAY).await;
            reschedule(&world, &own, 0).await.expect_status(200);
        }

        async fn the_dialects_cannot_reschedule_mail_past_a_budget(world) {
            let budget = world.post("/v1/budgets", &budget_body(&team_scope(), "mails", "day", 1)).await.expect_status(201).string_field("id");
            world.send("1", &mail()).await.expect_status(202);
            let id = schedule_email(&world, "2", DAY).await;
            let path = format!("/compat/resend/emails/{id}");
            let refused = world.call(patch(&path).json(&json!({ "scheduled_at": world.timestamp_in(0) }))).await;
            assert_eq!((refused.status, &refused["name"]), (429, &json!("daily_quota_exceeded")), "{}", refused.text);
            let path = format!("/compat/usesend/api/v1/emails/{id}");
            let refused = world.call(patch(&path).json(&json!({ "scheduledAt": world.timestamp_in(0) }))).await;
            assert_eq!((refused.status, &refused["error"]["code"]), (429, &json!("RATE_LIMITED")), "{}", refused.text);
            assert_eq!((scheduled_at(&world, &id).await, budget_usage(&world, &budget).await), (json!(world.timestamp_in(DAY)), (1, 0)));
        }

        async fn a_draft_over_budget_stays_scheduled_and_editable(world) {
            let world = world.with_inbox_domain().await;
            world.create_inbox("a").await;
            world.post("/v1/budgets", &budget_body(&team_scope(), "mails", "day", 1)).await.expect_status(201);
            world.send("1", &mail()).await.expect_status(202);
            let drafts = "/compat/agentmail/v0/inboxes/a@agents.test/drafts";
            let body = json!({ "to": ["ann@example.com"], "text": "x", "send_at": world.timestamp_in(DAY) });
            let draft = world.post(drafts, &body).await.expect_status(200).string_field("draft_id");
            let send = || post(&format!("{drafts}/{draft}/send")).key("send").json(&json!({}));
            assert_eq!(world.call(send()).await.status, 429);
            let open = world.call(patch(&format!("{drafts}/{draft}")).json(&json!({ "add_labels": ["x"] }))).await;
            assert_eq!(open.expect_status(200)["send_at"], world.timestamp_in(DAY));
            world.advance_clock(DAY - HOUR);
            world.call(send()).await.expect_status(200);
        }
    }
}

/// A call of a server, with its own API key.
async fn call_server(server: &SpawnedServer, method: &str, path: &str, body: &Value) -> Value {
    let key = format!("Bearer {}", server.api_key);
    let headers = [("Authorization", key.as_str()), ("Content-Type", "application/json")];
    let (status, answer) = server.call(method, path, &headers, &body.to_string()).await;
    assert!(status < 300, "{status} {answer}");
    answer
}

#[tokio::test]
async fn a_server_releases_held_email_by_itself() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let body = json!({ "name": "all", "scope": { "team": true }, "measure": "mails", "per": "day", "limit": 0, "at_limit": "hold" });
    let budget = call_server(&server, "POST", "/v1/budgets", &body).await;
    let held = cli.run(&send_args("1", "x")).await.json();
    assert_eq!((&held["state"], &held["holds"]), (&json!("held"), &json!(["budget"])));
    let path = format!("/v1/budgets/{}", budget["id"].as_str().unwrap());
    call_server(&server, "PATCH", &path, &json!({ "rev": budget["rev"], "limit": 1 })).await;
    let path = format!("/v1/emails/{}", held["id"].as_str().unwrap());
    let mut state = Value::Null;
    for _ in 0..100 {
        state = call_server(&server, "GET", &path, &json!({})).await["state"].clone();
        if state == "sent" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(state, "sent");
    server.terminate().await;
}
