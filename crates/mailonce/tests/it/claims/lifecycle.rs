//! Claims through the API: one caller wins, a lost holder leaves the claim unknown, and every fact is recorded.

use mailonce_core::hex::format_hash;
use serde_json::{Value, json};

use crate::fixtures::{
    api_fixture::{World, mail},
    binary::CliFixture,
    requests::{TestResponse, delete, get, post},
};

const MINUTE: i64 = 60_000;

fn body(key: &str) -> Value {
    json!({ "key": key, "lease_s": 60 })
}

fn body_with(key: &str, more: Value) -> Value {
    let mut body = body(key);
    let Value::Object(more) = more else { panic!("the fields must be a JSON object") };
    for (name, value) in more {
        body[name] = value;
    }
    body
}

/// A claim that this caller has.
struct Won {
    id: String,
    token: String,
    downstream_key: String,
}

async fn win(world: &World, body: &Value) -> Won {
    let won = world.post("/v1/claims", body).await.expect_status(201);
    let field = |name| won.string_field(name);
    Won { id: field("id"), token: field("token"), downstream_key: field("downstream_key") }
}

async fn act(world: &World, id: &str, verb: &str, body: Value) -> TestResponse {
    world.post(&format!("/v1/claims/{id}/{verb}"), &body).await
}

async fn state(world: &World, id: &str) -> Value {
    world.get(&format!("/v1/claims/{id}")).await.expect_status(200).body["state"].clone()
}

async fn open_questions(world: &World) -> Vec<Value> {
    world.get("/v1/escalations?state=open").await.expect_status(200).rows()
}

over_every_engine! {
    async fn one_caller_wins_and_the_others_get_its_result(world) {
        let first = world.post("/v1/claims", &body_with("invoice-7", json!({ "label": "billing-7" }))).await.expect_status(201);
        assert_eq!((&first["state"], &first["fence"], &first["may_repeat"]), (&json!("begun"), &json!(1), &json!(false)));
        assert!(first.string_field("downstream_key").starts_with("cl_"));
        let busy = world.post("/v1/claims", &body("invoice-7")).await.expect_problem(409, "busy");
        assert_eq!((&busy["label"], &busy["retry_after"]), (&json!("billing-7"), &json!(30)));
        assert_eq!(busy.header("retry-after"), Some("30"));

        let (id, token) = (first.string_field("id"), first.string_field("token"));
        let done = act(&world, &id, "complete", json!({ "token": token, "result": { "invoice": 17 } })).await.expect_status(200);
        assert_eq!((&done["state"], &done["corrected"]), (&json!("completed"), &json!(false)));
        let replay = world.post("/v1/claims", &body("invoice-7")).await.expect_status(200);
        assert_eq!((&replay["id"], &replay["state"], &replay["result"]), (&json!(id), &json!("completed"), &json!({ "invoice": 17 })));
        assert!(replay.is_replay());
    }

    async fn a_lost_holder_leaves_the_claim_unknown_and_a_person_decides(world) {
        let won = win(&world, &body("a")).await;
        world.advance_clock(MINUTE);
        let unknown = world.post("/v1/claims", &body("a")).await.expect_problem(409, "unknown");
        let known = (&json!(won.id), &json!(won.downstream_key));
        assert_eq!((&unknown["id"], &unknown["downstream_key"]), known, "a look-up searches for this key");
        let open = open_questions(&world).await;
        assert_eq!((open.len(), &open[0]["reason"], &open[0]["about"]["claim"]), (1, &json!("claim_unknown"), &json!(won.id)));

        let resolve = format!("/v1/escalations/{}/resolve", open[0]["id"].as_str().unwrap());
        world.post(&resolve, &json!({ "as": "sent", "rev": open[0]["rev"] })).await.expect_problem(422, "invalid_field");
        world.post(&resolve, &json!({ "as": "retry", "rev": open[0]["rev"] })).await.expect_status(200);
        let again = world.post("/v1/claims", &body("a")).await.expect_status(201);
        assert_eq!((&again["id"], &again["fence"], &again["may_repeat"]), (&json!(won.id), &json!(2), &json!(true)));
        assert_eq!(open_questions(&world).await.len(), 0);
        // The lost holder was only slow. What it did is recorded, and the second one learns of it.
        let late = act(&world, &won.id, "complete", json!({ "token": won.token })).await.expect_status(200);
        assert_eq!((&late["state"], &late["corrected"]), (&json!("completed"), &json!(true)));
    }

    async fn callers_that_ask_again_learn_the_period_that_they_wait_for(world) {
        let computed = json!({ "type": "report", "entity": "c17", "period": { "every": "day", "time_zone": "UTC" } });
        let body = json!({ "intent": computed, "lease_s": 60 });
        let won = world.post("/v1/claims", &body).await.expect_status(201);
        let busy = world.post("/v1/claims", &body).await.expect_problem(409, "busy");
        assert_eq!(busy["period"], won["period"]);
        world.advance_clock(48 * 60 * MINUTE);
        let named = json!({ "type": "report", "entity": "c17", "period": won["period"] });
        let unknown = world.post("/v1/claims", &json!({ "intent": named, "lease_s": 60 })).await.expect_problem(409, "unknown");
        assert_eq!((&unknown["period"], &unknown["id"]), (&won["period"], &won["id"]));
        assert_eq!(world.post("/v1/claims", &self::body("plain")).await.expect_status(201)["period"], Value::Null);
    }

    async fn the_loop_notices_a_lost_holder(world) {
        let won = win(&world, &body("a")).await;
        world.engine.claims.apply_due_deadlines().await.unwrap();
        assert_eq!(state(&world, &won.id).await, "begun");
        world.advance_clock(MINUTE);
        world.engine.claims.apply_due_deadlines().await.unwrap();
        assert_eq!(state(&world, &won.id).await, "unknown");
        let open = open_questions(&world).await;
        assert_eq!(open.len(), 1);
        let rev = world.get(&format!("/v1/claims/{}", won.id)).await.expect_status(200)["rev"].clone();
        act(&world, &won.id, "resolve", json!({ "as": "done", "rev": 0 })).await.expect_problem(409, "stale_rev");
        let done = act(&world, &won.id, "resolve", json!({ "as": "done", "rev": rev, "result": "by hand" })).await.expect_status(200);
        assert_eq!((&done["state"], &done["resolved_as"]), (&json!("completed"), &json!("done")));
        assert_eq!(open_questions(&world).await.len(), 0, "the question is moot");
        act(&world, &won.id, "resolve", json!({ "as": "done", "rev": rev })).await.expect_problem(409, "not_unknown");
        let replay = world.post("/v1/claims", &body("a")).await.expect_status(200);
        assert_eq!(replay["result"], "by hand");
    }

    async fn a_stop_keeps_claims_from_beginning_and_never_refuses_a_fact(world) {
        let later = win(&world, &body_with("later", json!({ "begin": "later" }))).await;
        let running = win(&world, &body("running")).await;
        let stop = json!({ "scope": { "team": true }, "reason": "month end" });
        let stop = world.post("/v1/stops", &stop).await.expect_status(201).string_field("id");
        let refused = world.post("/v1/claims", &body("new")).await.expect_problem(409, "stopped");
        assert_eq!(refused["stop"], stop.as_str());
        act(&world, &later.id, "begin", json!({ "token": later.token })).await.expect_problem(409, "stopped");
        win(&world, &body_with("other", json!({ "begin": "later" }))).await;
        act(&world, &running.id, "complete", json!({ "token": running.token })).await.expect_status(200);
        world.post("/v1/claims", &body("running")).await.expect_status(200);
        world.call(delete(&format!("/v1/stops/{stop}"))).await.expect_status(200);
        act(&world, &later.id, "begin", json!({ "token": later.token })).await.expect_status(200);
        win(&world, &body("new")).await;
    }

    async fn a_claim_shows_its_policy_trace_when_asked(world) {
        let ask = || post("/v1/claims").header("prefer", "policy-trace").json(&self::body("a"));
        let passed = |policy: &Value| (policy[0]["kind"].clone(), policy[0]["verdict"].clone()) == (json!("stop"), json!("pass"));
        let won = world.call(ask()).await.expect_status(201);
        assert!(passed(&won["policy"]), "{}", won.text);
        assert!(world.post("/v1/claims", &body("plain")).await.expect_status(201).body.get("policy").is_none());
        act(&world, &won.string_field("id"), "complete", json!({ "token": won["token"] })).await.expect_status(200);
        let stop = json!({ "scope": { "team": true }, "reason": "month end" });
        world.post("/v1/stops", &stop).await.expect_status(201);
        let ended = world.call(ask()).await.expect_status(200);
        assert!(passed(&ended["policy"]), "{}", ended.text);
        let refused = post("/v1/claims").header("prefer", "policy-trace").json(&body("b"));
        let refused = world.call(refused).await.expect_problem(409, "stopped");
        assert_eq!((&refused["policy"][0]["name"], &refused["policy"][0]["verdict"]), (&json!("stops"), &json!("refuse")));
        assert_eq!(refused["policy"][0]["why"], refused["detail"]);
    }

    async fn evidence_with_a_key_is_recorded_once(world) {
        let won = win(&world, &body("a")).await;
        let says = |says: &str| {
            post(&format!("/v1/claims/{}/evidence", won.id)).key("look-up-1").json(&json!({ "says": says }))
        };
        for _ in 0..2 {
            let recorded = world.call(says("not_found")).await.expect_status(200);
            assert_eq!(recorded["evidence"].as_array().unwrap().len(), 1);
        }
        world.call(says("done")).await.expect_problem(422, "key_mismatch");
        act(&world, &won.id, "evidence", json!({ "says": "not_found" })).await.expect_status(200);
        assert_eq!(world.get(&format!("/v1/claims/{}", won.id)).await["evidence"].as_array().unwrap().len(), 2);
    }

    async fn a_stop_of_an_api_key_covers_its_claims_alone(world) {
        let key = world.post("/v1/api-keys", &json!({ "name": "agent" })).await.expect_status(201);
        world.post("/v1/stops", &json!({ "scope": { "api_key": key.string_field("id") } })).await.expect_status(201);
        let call = post("/v1/claims").bearer(&key.string_field("api_key")).json(&body("a"));
        world.call(call).await.expect_problem(409, "stopped");
        win(&world, &body("a")).await;
    }

    async fn only_the_same_holder_gets_its_token_again(world) {
        let mine = body_with("a", json!({ "holder": "6f1d0c" }));
        let first = world.post("/v1/claims", &mine).await.expect_status(201);
        let again = world.post("/v1/claims", &mine).await.expect_status(201);
        for field in ["id", "token", "fence", "downstream_key", "lease_expires_at"] {
            assert_eq!(again[field], first[field], "{field}");
        }
        let other = world.post("/v1/claims", &body_with("a", json!({ "holder": "other" }))).await.expect_problem(409, "busy");
        assert!(!other.text.contains("6f1d0c"), "{}", other.text);
        world.post("/v1/claims", &body("a")).await.expect_problem(409, "busy");
        let shown = world.get(&format!("/v1/claims/{}", first.string_field("id"))).await.expect_status(200);
        assert!(!shown.text.contains("6f1d0c") && shown.body.get("token").is_none(), "{}", shown.text);
        assert!(!json!(world.events().await).to_string().contains("6f1d0c"));
    }

    async fn an_unbegun_claim_is_freed_and_a_late_completion_refuses_the_next_begin(world) {
        let later = body_with("a", json!({ "begin": "later" }));
        let first = win(&world, &later).await;
        world.advance_clock(MINUTE);
        let second = win(&world, &later).await;
        assert_eq!(first.id, second.id);
        act(&world, &first.id, "begin", json!({ "token": first.token })).await.expect_problem(409, "stale_token");
        act(&world, &first.id, "renew", json!({ "token": first.token, "lease_s": 5 })).await.expect_problem(409, "stale_token");
        let fail = json!({ "token": first.token, "retryable": true, "reason": "late" });
        act(&world, &first.id, "fail", fail).await.expect_problem(409, "stale_token");
        let late = act(&world, &first.id, "complete", json!({ "token": first.token, "result": 1 })).await.expect_status(200);
        assert_eq!(late["corrected"], true);
        act(&world, &first.id, "begin", json!({ "token": second.token })).await.expect_problem(409, "claim_ended");
        let again = act(&world, &first.id, "complete", json!({ "token": first.token, "result": 2 })).await.expect_status(200);
        assert_eq!(again.body, late.body, "a repeat gets the same answer");
        let twice = act(&world, &first.id, "complete", json!({ "token": second.token })).await.expect_status(200);
        assert_eq!(twice["completions"], 2, "it happened twice, and that is visible");
    }

    async fn wrong_tokens_are_refused(world) {
        let (one, two) = (win(&world, &body("a")).await, win(&world, &body("b")).await);
        for token in [two.token.as_str(), "", "ct_1_2_3", &format!("{}0", one.token)] {
            act(&world, &one.id, "complete", json!({ "token": token })).await.expect_problem(403, "wrong_token");
        }
        let nobody = uuid::Uuid::nil();
        act(&world, &nobody.to_string(), "complete", json!({ "token": one.token })).await.expect_problem(404, "not_found");
        assert_eq!(state(&world, &one.id).await, "begun");
    }

    async fn a_result_that_is_too_large_is_left_out_and_the_fact_is_kept(world) {
        let won = win(&world, &body("a")).await;
        let result = "x".repeat(4 * 1024 * 1024);
        let done = act(&world, &won.id, "complete", json!({ "token": won.token, "result": result })).await.expect_status(200);
        assert_eq!((&done["state"], &done["result_omitted"]), (&json!("completed"), &json!(true)));
        let replay = world.post("/v1/claims", &body("a")).await.expect_status(200);
        assert_eq!((replay.body.get("result"), &replay["result_omitted"]), (None, &json!(true)));
        let won = win(&world, &body("b")).await;
        let result = "x".repeat(4 * 1024 * 1024 - 2);
        act(&world, &won.id, "complete", json!({ "token": won.token, "result": result })).await.expect_status(200);
        assert_eq!(world.post("/v1/claims", &body("b")).await.expect_status(200)["result"], result.as_str());
    }

    async fn the_numbers_of_a_result_keep_every_digit(world) {
        let result = r#"{"total":12345678901234567890123.10,"rates":[0.12345678901234567891,-1E+2],"name":"é"}"#;
        let spaced = result.replace(':', " : ");
        let won = win(&world, &body("a")).await;
        let fact = format!(r#"{{ "token": "{}", "result": {spaced} }}"#, won.token);
        world.call(post(&format!("/v1/claims/{}/complete", won.id)).json_bytes(fact)).await.expect_status(200);
        let found = win(&world, &body("b")).await;
        let fact = format!(r#"{{ "says": "done", "result": {spaced} }}"#);
        world.call(post(&format!("/v1/claims/{}/evidence", found.id)).json_bytes(fact)).await.expect_status(200);
        for (key, id) in [("a", won.id), ("b", found.id)] {
            let duplicate = world.post("/v1/claims", &body(key)).await.expect_status(200);
            let read = world.get(&format!("/v1/claims/{id}")).await.expect_status(200);
            for answer in [duplicate, read] {
                assert!(answer.text.contains(&format!(r#""result":{result}"#)), "{}", answer.text);
            }
        }
    }

    async fn a_result_that_cannot_be_read_does_not_keep_the_fact_from_being_recorded(world) {
        let members: Vec<String> = (0..1_001).map(|number| format!(r#""member{number}":0"#)).collect();
        let unreadable = [
            r#""\ud83d""#.to_owned(),
            format!("{{{}}}", members.join(",")),
            format!("{}{}", "[".repeat(121), "]".repeat(121)),
            format!("[{}0]", "0,".repeat(500_000)),
        ];
        for (number, result) in unreadable.into_iter().enumerate() {
            let key = format!("unreadable-{number}");
            let won = win(&world, &body(&key)).await;
            let path = format!("/v1/claims/{}/complete", won.id);
            let fact = |token: &str, rest: &str| format!(r#"{{"token":"{token}","result":{result}{rest}}}"#);
            world.call(post(&path).json_bytes(fact("ct_wrong", ""))).await.expect_problem(403, "wrong_token");
            let misspelt = world.call(post(&path).json_bytes(fact(&won.token, r#","resullt":1"#))).await;
            assert!(matches!(misspelt.status, 400 | 413), "{}", misspelt.text);
            let done = world.call(post(&path).json_bytes(fact(&won.token, ""))).await.expect_status(200);
            assert_eq!((&done["state"], &done["result_omitted"]), (&json!("completed"), &json!(true)), "{number}");
            let replay = world.post("/v1/claims", &body(&key)).await.expect_status(200);
            assert_eq!((replay.body.get("result"), &replay["result_omitted"]), (None, &json!(true)));
            let found = win(&world, &body(&format!("found-{number}"))).await;
            let path = format!("/v1/claims/{}/evidence", found.id);
            let evidence = |says: &str, rest: &str| format!(r#"{{"says":"{says}","result":{result}{rest}}}"#);
            world.call(post(&path).json_bytes(evidence("maybe", ""))).await.expect_problem(422, "invalid_field");
            let misspelt = world.call(post(&path).json_bytes(evidence("done", r#","resullt":1"#))).await;
            assert!(matches!(misspelt.status, 400 | 413), "{}", misspelt.text);
            let say_done = || world.call(post(&path).key(&key).json_bytes(evidence("done", "")));
            for _ in 0..2 {
                let done = say_done().await.expect_status(200);
                assert_eq!((&done["state"], &done["result_omitted"]), (&json!("completed"), &json!(true)), "{number}");
                assert_eq!(done["evidence"].as_array().map(Vec::len), Some(1), "{number}");
            }
        }
        let won = win(&world, &body("cut")).await;
        let path = format!("/v1/claims/{}/complete", won.id);
        let cut = format!(r#"{{"token":"{}","result":[1,"#, won.token);
        world.call(post(&path).json_bytes(cut)).await.expect_problem(400, "invalid_json");
    }

    async fn failures_end_the_claim_or_free_it(world) {
        let won = win(&world, &body("a")).await;
        let fail = |token: &str, retryable: bool| json!({ "token": token, "retryable": retryable, "reason": "card declined" });
        act(&world, &won.id, "fail", fail(&won.token, true)).await.expect_status(200);
        let second = win(&world, &body("a")).await;
        act(&world, &won.id, "fail", fail(&second.token, false)).await.expect_status(200);
        let ended = world.post("/v1/claims", &body("a")).await.expect_status(200);
        assert_eq!((&ended["state"], &ended["reason"]), (&json!("failed"), &json!("card declined")));
        let long = json!({ "token": second.token, "retryable": false, "reason": "r".repeat(1_001) });
        act(&world, &won.id, "fail", long).await.expect_problem(422, "invalid_field").expect_field("reason");
    }

    async fn evidence_completes_an_unknown_claim_and_a_negative_look_up_does_not_free_it(world) {
        let won = win(&world, &body("a")).await;
        world.advance_clock(MINUTE);
        act(&world, &won.id, "evidence", json!({ "says": "not_found" })).await.expect_status(200);
        world.post("/v1/claims", &body("a")).await.expect_problem(409, "unknown");
        let done = act(&world, &won.id, "evidence", json!({ "says": "done", "result": 5 })).await.expect_status(200);
        assert_eq!((&done["state"], done["evidence"].as_array().map(Vec::len)), (&json!("completed"), Some(2)));
        assert_eq!(world.post("/v1/claims", &body("a")).await.expect_status(200)["result"], 5);
        assert_eq!(open_questions(&world).await.len(), 0);
        act(&world, &won.id, "evidence", json!({ "says": "maybe" })).await.expect_problem(422, "invalid_field");
    }

    async fn the_policy_retry_frees_a_lost_claim_once(world) {
        let retrying = body_with("a", json!({ "on_unknown": "retry" }));
        win(&world, &retrying).await;
        world.advance_clock(MINUTE);
        let unknown = world.post("/v1/claims", &retrying).await.expect_problem(409, "unknown");
        assert!(unknown.body["retry_at"].is_string(), "{}", unknown.text);
        assert_eq!(open_questions(&world).await.len(), 0, "nobody is asked while the policy decides");
        world.advance_clock(10 * MINUTE);
        let again = world.post("/v1/claims", &retrying).await.expect_status(201);
        assert_eq!(again["may_repeat"], true);
        world.advance_clock(100 * MINUTE);
        world.post("/v1/claims", &retrying).await.expect_problem(409, "unknown");
        assert_eq!(open_questions(&world).await.len(), 1);
    }

    async fn renewing_keeps_the_claim_and_brings_back_a_holder_that_seemed_lost(world) {
        let won = win(&world, &body("a")).await;
        world.advance_clock(MINUTE - 1_000);
        act(&world, &won.id, "renew", json!({ "token": won.token, "lease_s": 60 })).await.expect_status(200);
        world.advance_clock(MINUTE - 1_000);
        assert_eq!(world.post("/v1/claims", &body("a")).await.expect_problem(409, "busy")["retry_after"], 1);
        world.advance_clock(MINUTE);
        world.engine.claims.apply_due_deadlines().await.unwrap();
        assert_eq!(open_questions(&world).await.len(), 1);
        let back = act(&world, &won.id, "renew", json!({ "token": won.token, "lease_s": 60 })).await.expect_status(200);
        assert_eq!(back["state"], "begun");
        assert_eq!(open_questions(&world).await.len(), 0);
        world.advance_clock(MINUTE);
        world.engine.claims.apply_due_deadlines().await.unwrap();
        assert_eq!(open_questions(&world).await.len(), 1, "lost again: asked again");
    }

    async fn keys_come_from_the_header_the_body_or_an_intent(world) {
        let intent = json!({ "type": "order.confirmation", "entity": "order_4821" });
        let derived = world.post("/v1/claims", &json!({ "intent": intent, "lease_s": 60 })).await.expect_status(201);
        // The key of the same intent with `to: []`, as every SDK derives it.
        assert_eq!(derived["key"], format!("i1_{}", expected_digest()));
        world.post("/v1/claims", &json!({ "key": derived["key"], "lease_s": 60 })).await.expect_problem(409, "busy");
        let header = |key: &str, body: &Value| post("/v1/claims").key(key).json(body);
        world.call(header("h", &json!({ "lease_s": 60 }))).await.expect_status(201);
        world.call(header("h", &json!({ "key": "h", "lease_s": 60 }))).await.expect_problem(409, "busy");
        world.call(header("h", &body("other"))).await.expect_problem(422, "invalid_field").expect_field("key");
        let stored = world.call(header("h2", &json!({ "intent": intent, "lease_s": 60 }))).await.expect_status(201);
        assert_eq!(stored["key"], "h2");
        world.post("/v1/claims", &json!({ "lease_s": 60 })).await.expect_problem(422, "invalid_field").expect_field("key");
        // An email and a claim may have the same key.
        world.send("h", &mail()).await.expect_status(202);
    }

    async fn a_period_is_computed_by_the_servers_clock(world) {
        let request = |period: Value| json!({ "intent": { "type": "digest", "entity": "user_1", "period": period }, "lease_s": 60 });
        let first = world.post("/v1/claims", &request(json!({ "every": "day" }))).await.expect_status(201);
        let day = first.string_field("period");
        assert_eq!(day, world.timestamp_in(60_000)[..10]);
        world.post("/v1/claims", &request(json!({ "every": "day", "time_zone": "UTC", "grace_s": 60 }))).await.expect_problem(409, "busy");
        world.post("/v1/claims", &request(json!(day))).await.expect_problem(409, "busy");
        world.advance_clock(24 * 60 * MINUTE);
        let next = world.post("/v1/claims", &request(json!({ "every": "day" }))).await.expect_status(201);
        assert_ne!(next.string_field("period"), day);
        let month = world.post("/v1/claims", &request(json!({ "every": "month" }))).await.expect_status(201);
        assert_eq!(month.string_field("period").len(), 7);
        for (period, field) in [
            (json!({ "every": "hour" }), "intent.period.every"),
            (json!({ "every": "day", "time_zone": "Moon/Crater" }), "intent.period.time_zone"),
            (json!({ "every": "day", "grace_s": -1 }), "intent.period.grace_s"),
            (json!({ "every": "day", "grace_s": 43_201 }), "intent.period.grace_s"),
        ] {
            world.post("/v1/claims", &request(period)).await.expect_problem(422, "invalid_field").expect_field(field);
        }
    }

    async fn a_retry_after_a_lost_answer_keeps_the_period_of_its_first_try(world) {
        let now = world.timestamp_in(0);
        let number = |from: usize| now[from..from + 2].parse::<i64>().unwrap();
        let passed_s = (number(11) * 60 + number(14)) * 60 + number(17);
        world.advance_clock((86_400 - passed_s) * 1_000 - 2 * MINUTE);
        let period = json!({ "every": "day", "time_zone": "UTC", "grace_s": 0 });
        let call = |holder: &str| json!({
            "intent": { "type": "report", "entity": "c17", "period": period }, "lease_s": 3_600, "holder": holder,
        });
        let first = world.post("/v1/claims", &call("first")).await.expect_status(201);
        world.advance_clock(4 * MINUTE);
        let retried = world.post("/v1/claims", &call("first")).await.expect_status(201);
        assert_eq!((&retried["id"], &retried["period"], &retried["token"]), (&first["id"], &first["period"], &first["token"]));
        let next = world.post("/v1/claims", &call("second")).await.expect_status(201);
        assert_ne!(next["period"], first["period"], "another call counts for the new day");
        // A call that comes much later is no retry, although its holder is the same.
        world.advance_clock(9 * MINUTE);
        let busy = world.post("/v1/claims", &call("first")).await.expect_problem(409, "busy");
        assert_eq!(busy["period"], next["period"]);
    }

    async fn another_fingerprint_is_a_mismatch(world) {
        let of = |text: &str| body_with("a", json!({ "fingerprint": text }));
        let won = win(&world, &of("100 EUR")).await;
        let mismatch = world.post("/v1/claims", &of("200 EUR")).await.expect_problem(422, "key_mismatch");
        assert_eq!(mismatch["id"], won.id.as_str());
        act(&world, &won.id, "complete", json!({ "token": won.token })).await.expect_status(200);
        world.post("/v1/claims", &of("200 EUR")).await.expect_problem(422, "key_mismatch");
        world.post("/v1/claims", &of("100 EUR")).await.expect_status(200);
    }

    async fn bad_claims_are_refused(world) {
        for (more, field) in [
            (json!({ "lease_s": 0 }), "lease_s"),
            (json!({ "lease_s": 3_601 }), "lease_s"),
            (json!({ "holder": "h".repeat(129) }), "holder"),
            (json!({ "holder": "" }), "holder"),
            (json!({ "label": "l".repeat(129) }), "label"),
            (json!({ "fingerprint": "f".repeat(257) }), "fingerprint"),
            (json!({ "begin": "soon" }), "begin"),
            (json!({ "on_unknown": "resend" }), "on_unknown"),
            (json!({ "ttl": "401d" }), "ttl"),
            (json!({ "intent": { "type": "", "entity": "e" } }), "intent.type"),
        ] {
            world.post("/v1/claims", &body_with("a", more)).await.expect_problem(422, "invalid_field").expect_field(field);
        }
        world.post("/v1/claims", &body(&"k".repeat(257))).await.expect_problem(400, "invalid_key");
        world.post("/v1/claims", &json!({ "key": "a" })).await.expect_problem(400, "invalid_type");
        world.post("/v1/claims", &body_with("a", json!({ "hodler": "x" }))).await.expect_problem(400, "unknown_field");
        assert_eq!(world.get("/v1/claims").await.expect_status(200).rows().len(), 0);
    }

    async fn claims_are_listed_and_forgotten(world) {
        let mut ids = Vec::new();
        for key in ["a", "b", "c"] {
            ids.insert(0, win(&world, &body_with(key, json!({ "ttl": "1h" }))).await);
        }
        assert_eq!(world.get("/v1/claims").await.expect_status(200).ids(), ids.iter().map(|won| won.id.clone()).collect::<Vec<_>>());
        let page = world.get("/v1/claims?limit=2").await.expect_status(200);
        let rest = world.get(&format!("/v1/claims?cursor={}", page.string_field("next_cursor"))).await.expect_status(200);
        assert_eq!((page.rows().len(), rest.ids()), (2, vec![ids[2].id.clone()]));
        assert_eq!(world.get("/v1/claims?key=b&state=begun").await.expect_status(200).ids(), [ids[1].id.clone()]);
        world.get("/v1/claims?state=lost").await.expect_problem(400, "invalid_query");
        let first = act(&world, &ids[0].id, "complete", json!({ "token": ids[0].token })).await.expect_status(200);
        assert!(first["expires_at"].is_string());
        world.advance_clock(59 * MINUTE);
        world.engine.claims.forget_old().await.unwrap();
        assert_eq!(world.get("/v1/claims").await.expect_status(200).rows().len(), 3);
        world.advance_clock(2 * MINUTE);
        world.engine.claims.forget_old().await.unwrap();
        world.call(get(&format!("/v1/claims/{}", ids[0].id))).await.expect_problem(404, "not_found");
        let before = world.get("/v1/claims?state=unknown").await.expect_status(200).rows().len();
        assert_eq!(before, 0, "nobody noticed yet");
        let again = world.post("/v1/claims", &body("c")).await.expect_status(201);
        assert_ne!(again.string_field("id"), ids[0].id);
    }

    async fn the_downstream_key_is_the_same_for_every_holder_until_the_claim_is_forgotten(world) {
        let body = body_with("a", json!({ "ttl": "1h" }));
        let first = world.post("/v1/claims", &body).await.expect_status(201);
        let fail = json!({ "token": first["token"], "retryable": true });
        act(&world, &first.string_field("id"), "fail", fail).await.expect_status(200);
        let second = world.post("/v1/claims", &body).await.expect_status(201);
        assert_eq!(second["downstream_key"], first["downstream_key"]);
        act(&world, &first.string_field("id"), "complete", json!({ "token": second["token"] })).await.expect_status(200);
        world.advance_clock(61 * MINUTE);
        let third = world.post("/v1/claims", &body).await.expect_status(201);
        assert_ne!(third["downstream_key"], first["downstream_key"]);
    }

    async fn a_decision_has_an_audit_entry_and_a_key_that_replays_it(world) {
        let won = win(&world, &body("a")).await;
        world.advance_clock(MINUTE);
        world.engine.claims.apply_due_deadlines().await.unwrap();
        let rev = world.get(&format!("/v1/claims/{}", won.id)).await.expect_status(200)["rev"].clone();
        let decide = || post(&format!("/v1/claims/{}/resolve", won.id)).key("d").json(&json!({ "as": "abandon", "rev": rev }));
        world.call(decide()).await.expect_status(200);
        assert_eq!(world.call(decide()).await.expect_status(200)["state"], "abandoned");
        let other = post(&format!("/v1/claims/{}/resolve", won.id)).key("d").json(&json!({ "as": "done", "rev": rev }));
        world.call(other).await.expect_problem(422, "key_mismatch");
        let entries = world.get("/v1/audit?action=claim.resolved").await.expect_status(200).rows();
        assert_eq!((entries.len(), &entries[0]["after"]["as"]), (1, &json!("abandon")));
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["send", "read"] })).await;
        world.call(decide().bearer(&agent)).await.expect_problem(403, "wrong_scope");
        assert_eq!(world.post("/v1/claims", &body("a")).await.expect_status(200)["state"], "abandoned");
    }

    async fn claims_survive_a_restart(world) {
        let won = win(&world, &body_with("a", json!({ "holder": "h" }))).await;
        act(&world, &won.id, "complete", json!({ "token": won.token, "result": [1, 2] })).await.expect_status(200);
        let open = win(&world, &body_with("b", json!({ "holder": "h" }))).await;
        let world = world.restart().await;
        assert_eq!(world.post("/v1/claims", &body("a")).await.expect_status(200)["result"], json!([1, 2]));
        let again = world.post("/v1/claims", &body_with("b", json!({ "holder": "h" }))).await.expect_status(201);
        assert_eq!(again.string_field("token"), open.token);
        act(&world, &open.id, "complete", json!({ "token": open.token })).await.expect_status(200);
    }
}

/// The hex SHA-256 of the intent's RFC 8785 form, computed without the code under test.
fn expected_digest() -> String {
    use sha2::{Digest as _, Sha256};
    let form = r#"{"entity":"order_4821","to":[],"type":"order.confirmation","v":1}"#;
    format_hash(&Sha256::digest(form.as_bytes()).into())
}

#[tokio::test]
async fn a_real_server_notices_a_lost_holder_and_the_command_line_resolves_it() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let auth = format!("Bearer {}", server.api_key);
    let headers = [("authorization", auth.as_str()), ("content-type", "application/json")];
    let claim = json!({ "key": "nightly", "lease_s": 1, "label": "cron" }).to_string();
    let (status, won) = server.call("POST", "/v1/claims", &headers, &claim).await;
    assert_eq!((status, &won["state"]), (201, &json!("begun")));
    // Nobody calls: the loop of the server notices it.
    let mut listed = json!(null);
    for _ in 0..200 {
        listed = cli.run(&["claims", "list", "--state", "unknown"]).await.expect_exit(0).json();
        if listed["data"].as_array().is_some_and(|rows| rows.len() == 1) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let id = listed["data"][0]["id"].as_str().expect("the claim is unknown").to_owned();
    let open = cli.run(&["escalations", "list"]).await.expect_exit(0).json();
    assert_eq!(open["data"][0]["about"]["claim"], id.as_str());
    let shown = cli.run(&["claims", "show", &id]).await.expect_exit(0).json();
    assert_eq!((&shown["state"], &shown["label"]), (&json!("unknown"), &json!("cron")));
    let done = cli.run(&["claims", "resolve", &id, "--as", "done"]).await.expect_exit(0).json();
    assert_eq!(done["state"], "completed");
    let (status, replay) = server.call("POST", "/v1/claims", &headers, &claim).await;
    assert_eq!((status, &replay["state"]), (200, &json!("completed")));
    assert_eq!(server.terminate().await.code(), Some(0));
}
